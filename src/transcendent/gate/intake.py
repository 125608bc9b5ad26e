"""What goes into the quarantine: rejected objects, and the audit sample of accepted ones."""

import hashlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import IntegrityError

from transcendent._utils.arrays import AnyArray
from transcendent.decisions import Decisions
from transcendent.gate.database import THIS_MONTH, DatabaseError, again_if_gone, make_months
from transcendent.gate.features import encode, encode_p_values
from transcendent.gate.model import Model

AUDITED, REJECTED, SKIPPED = range(3)
"""Tiers of the queue: what is claimed first."""

_NO_PARTITION = "23514"  # and other violated checks; the message is in the language of the server

_COLUMNS = {
    "key": "bytea",
    "model": "int4",
    "tier": "int2",
    "rank": "float8",
    "credibility": "float8",
    "confidence": "float8",
    "probability": "float8",
    "votes": "int4",
    "doubt": "int2",
    "accepted": "bool",
    "object_id": "text",
    "sender": "text",
    "label": "text",
    "p_values": "bytea",
    "features": "bytea",
}
_ARRAYS = ", ".join(f"%b::{kind}[]" for kind in _COLUMNS.values())
_PAYLOAD = ", ".join(list(_COLUMNS)[4:])
_KEEP = f"""
WITH incoming AS (
    SELECT * FROM unnest({_ARRAYS}) AS incoming ({", ".join(_COLUMNS)})
), new AS (
    INSERT INTO identity (key, item)
    SELECT key, {THIS_MONTH} | nextval('item_number') FROM incoming
    ON CONFLICT (key) DO NOTHING RETURNING key, item
), kept AS (
    INSERT INTO item (id, rank, received_at, model, tier)
    SELECT item, rank, now(), model, tier FROM new JOIN incoming USING (key)
)
INSERT INTO payload (id, {_PAYLOAD})
SELECT item, {_PAYLOAD} FROM new JOIN incoming USING (key)
"""
# Of an identity that this statement sees, it sees the item, too, since both were committed together. The
# statement that inserts may meet an identity that was committed after it began, and would miss the item.
_FORGET = """
DELETE FROM identity WHERE key = ANY(%b) AND NOT EXISTS (SELECT FROM item WHERE item.id = identity.item)
"""

Kept = tuple[Any, ...]
"""An object to keep: its key, and the values of the other columns above."""


class Draw:
    """A random sample of accepted objects for an audit.

    Whether an object is in it depends on its id and on a secret of the database: so it is drawn alike by all
    gates and in every repetition, and nobody outside can tell.
    """

    def __init__(self, secret: bytes, rate: float) -> None:
        self.rate = rate
        self._start = hashlib.blake2b(key=secret, digest_size=8)
        self._below = int(rate * 2**64).to_bytes(9, "big")

    def __call__(self, name: str) -> bool:
        """Return whether the object with this id is drawn."""
        return b"\0" + self._digest(name) < self._below

    def rank(self, name: str) -> float:
        """Return a number below 1 that orders the sample at random: its first part is a sample too."""
        return int.from_bytes(self._digest(name), "big") / 2**64 / self.rate

    def _digest(self, name: str) -> bytes:
        hashed = self._start.copy()
        hashed.update(name.encode())
        return hashed.digest()


def to_keep(
    model: Model,
    number: int,
    draw: Draw,
    ids: Sequence[str],
    senders: Sequence[str],
    rows: Any,
    decisions: Decisions,
) -> dict[int, Kept]:
    """Return what is to be kept of some decisions, by place: the rejected, and the audit sample."""
    chosen = ~decisions.accepted
    if draw.rate:
        drawn = [place for place in np.flatnonzero(decisions.accepted).tolist() if draw(ids[place])]
        chosen[drawn] = True
    places = np.flatnonzero(chosen)
    if len(places) == 0:
        return {}
    few, n, digest = decisions[places], len(places), model.digest.encode()
    columns = zip(
        places.tolist(),
        encode(rows, places),
        few.accepted.tolist(),
        few.ranking.tolist(),
        few.credibility.tolist(),
        few.confidence.tolist(),
        _or_none(few.votes, n),
        _or_none(few.doubts, n),
        map(str, few.labels.tolist()),
        [None] * n if few.p_values is None else encode_p_values(few.p_values),
        strict=True,
    )
    return {
        place: (
            _key(ids[place], digest, features),
            number,
            AUDITED if accepted else REJECTED,
            draw.rank(ids[place]) if accepted else rank,
            credibility,
            confidence,
            draw.rate if accepted else 1.0,
            votes,
            doubt,
            accepted,
            ids[place],
            senders[place],
            label,
            p_values,
            features,
        )
        for place, features, accepted, rank, credibility, confidence, votes, doubt, label, p_values in columns
    }


def _or_none(column: AnyArray | None, n: int) -> list[Any]:
    return [None] * n if column is None else column.tolist()


def _key(name: str, model: bytes, features: bytes) -> bytes:
    """Return the digest of an id, a model and features; no two different triples are spelled alike."""
    return hashlib.sha256(b"%s\n%s\n%s" % (name.encode(), model, features)).digest()


def keep(engine: Engine, kept: Sequence[Kept]) -> None:
    """Commit objects to the quarantine; those that are in it already are left as they are."""
    unique = [each for _, each in sorted({each[0]: each for each in kept}.items())]
    _begun[engine] = time.monotonic()
    try:
        _keep_in_a_month(engine, unique)
    finally:
        _begun.pop(engine, None)


_begun: dict[Engine, float] = {}


def keeping_for(engine: Engine) -> float:
    """Return for how many seconds objects have been on their way into the quarantine, 0 if none are."""
    begun = _begun.get(engine)
    return 0 if begun is None else time.monotonic() - begun


def _keep_in_a_month(engine: Engine, kept: Sequence[Kept]) -> None:
    try:
        again_if_gone(engine, lambda connection: _keep(connection, kept))
    except IntegrityError as error:
        if getattr(error.orig, "sqlstate", None) != _NO_PARTITION:
            raise
        make_months(engine)
        again_if_gone(engine, lambda connection: _keep(connection, kept))


def _keep(connection: Connection, kept: Sequence[Kept]) -> None:
    _set_up(connection)
    if _insert(connection, kept) == len(kept):
        return
    if connection.exec_driver_sql(_FORGET, ([each[0] for each in kept],)).rowcount:
        _insert(connection, kept)


def try_keeping(connection: Connection) -> None:
    """Raise if objects could not be kept.

    What keeps them is run with none: that needs the same rights and locks, and leaves no dead rows behind.
    """
    _set_up(connection)
    _insert(connection, [])
    if not connection.execute(text("SELECT has_sequence_privilege('item_number', 'USAGE')")).scalar_one():
        raise DatabaseError("the database role has no USAGE on item_number: grant it.")


def _set_up(connection: Connection) -> None:
    """Let the commit last, whatever the role's default is, and let the server end statements in time."""
    driver: Any = connection.connection.driver_connection
    limit = "" if driver.seconds is None else f"SET LOCAL statement_timeout = {int(1000 * driver.seconds)};"
    connection.exec_driver_sql(f"{limit} SET LOCAL synchronous_commit = on")


def _insert(connection: Connection, kept: Sequence[Kept]) -> int:
    """Insert objects whose identity is not known, and return their number."""
    columns = [list(column) for column in zip(*kept, strict=True)] or [[] for _ in _COLUMNS]
    for place, kind in enumerate(_COLUMNS.values()):
        if kind == "float8":
            columns[place] = list(map(float, columns[place]))  # psycopg refuses numbers of two types
    return connection.exec_driver_sql(_KEEP, tuple(columns)).rowcount


def register(engine: Engine, model: Model) -> int:
    """Return the number of a model in the database, which is new if the model is."""
    from psycopg.types.json import Jsonb

    with engine.begin() as connection:
        given = {
            "digest": model.digest,
            "classes": Jsonb(model.classes),
            "features": Jsonb({"count": model.layout.width, "names": model.layout.names}),
        }
        connection.execute(
            text(
                "INSERT INTO model (digest, classes, features) VALUES (:digest, :classes, :features) "
                "ON CONFLICT DO NOTHING"
            ),
            given,
        )
        number = connection.execute(text("SELECT id FROM model WHERE digest = :digest"), given)
        return int(number.scalar_one())


def audit_secret(engine: Engine) -> bytes:
    """Return the secret that audits are drawn with."""
    with engine.connect() as connection:
        return bytes(connection.execute(text("SELECT value FROM secret WHERE name = 'audit'")).scalar_one())
