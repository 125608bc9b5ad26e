"""What goes into the quarantine: rejected objects, and the audit sample of accepted ones."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import IntegrityError

from transcendent._utils.arrays import AnyArray, take_rows
from transcendent.decisions import Decisions
from transcendent.gate.database import FIRST_KEPT, THIS_MONTH, again_if_gone, make_months
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
_INCOMING = "CREATE TEMPORARY TABLE IF NOT EXISTS incoming ({}) ON COMMIT DELETE ROWS".format(
    ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
)
_COPY = f"COPY incoming ({', '.join(_COLUMNS)}) FROM STDIN (FORMAT binary)"
_PAYLOAD = ", ".join(list(_COLUMNS)[4:])
_KEEP = f"""
WITH new AS (
    INSERT INTO identity (key, item)
    SELECT key, {THIS_MONTH} | nextval('item_number') FROM incoming
    ON CONFLICT (key) DO UPDATE SET item = excluded.item WHERE identity.item < {FIRST_KEPT}
    RETURNING key, item
), kept AS (
    INSERT INTO item (id, rank, received_at, model, tier)
    SELECT item, rank, now(), model, tier FROM new JOIN incoming USING (key)
)
INSERT INTO payload (id, {_PAYLOAD})
SELECT item, {_PAYLOAD} FROM new JOIN incoming USING (key)
"""


Kept = tuple[Any, ...]
"""An object to keep: a row of the table ``incoming``, which begins with its key."""


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
        encode(take_rows(rows, places)),
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
    try:
        again_if_gone(engine, lambda connection: _keep(connection, unique))
    except IntegrityError as error:
        if getattr(error.orig, "sqlstate", None) != _NO_PARTITION:
            raise
        make_months(engine)
        again_if_gone(engine, lambda connection: _keep(connection, unique))


def _keep(connection: Connection, kept: Sequence[Kept]) -> None:
    if not connection.info.get("incoming"):  # once for each connection
        connection.execute(text(_INCOMING))
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor, cursor.copy(_COPY) as copy:
        copy.set_types(list(_COLUMNS.values()))
        for each in kept:
            copy.write_row(each)
    connection.execute(text(_KEEP))
    connection.info["incoming"] = True


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
