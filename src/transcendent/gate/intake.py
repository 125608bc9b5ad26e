"""Store rejected objects and the audit sample of accepted ones in the quarantine."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from psycopg.types.json import Jsonb
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import IntegrityError

from transcendent.decisions import Decisions
from transcendent.gate.database import THIS_MONTH, DatabaseError, make_months, retry_if_disconnected
from transcendent.gate.features import encode
from transcendent.gate.model import Model

AUDITED, REJECTED, SKIPPED = range(3)
"""Tiers of the queue, in the order of claims."""

_CHECK_VIOLATION = "23514"  # PostgreSQL reports a missing partition with this code, too

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
# One statement, so that a batch costs one round trip. `identity` decides which objects are new, since it is
# the only table that is unique across months; items and payloads are inserted for those alone. Columns arrive
# as arrays: the text of the statement does not depend on the number of objects.
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
# Identities whose item was dropped or deleted. This cannot be part of the statement above: ON CONFLICT meets
# identities that were committed after that statement began, whose items it does not see. A statement that
# sees an identity in its snapshot sees the item as well, since both were committed together.
_FORGET = """
DELETE FROM identity WHERE key = ANY(%b) AND NOT EXISTS (SELECT FROM item WHERE item.id = identity.item)
"""

Kept = tuple[Any, ...]
"""An object to store: a value for each of the columns above."""


class Draw:
    """A random sample of accepted objects for an audit.

    Whether an object is drawn depends on its id and on a secret in the database. So all gates and all retries
    draw the same objects, and senders cannot predict which.
    """

    def __init__(self, secret: bytes, rate: float) -> None:
        self.rate = rate
        self._start = hashlib.blake2b(key=secret, digest_size=8)
        self._below = int(rate * 2**64).to_bytes(9, "big")

    def __call__(self, name: str) -> bool:
        """Return whether the object with this id is drawn."""
        return b"\0" + self._digest(name) < self._below

    def rank(self, name: str) -> float:
        """Return a number below 1 that orders the sample at random, so that its first part is a sample."""
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
    """Return the rejected objects and the audit sample, by place in the decisions."""
    chosen = ~decisions.accepted
    if draw.rate:
        drawn = [place for place in np.flatnonzero(decisions.accepted).tolist() if draw(ids[place])]
        chosen[drawn] = True
    places = np.flatnonzero(chosen)
    if len(places) == 0:
        return {}
    few, nothing, digest = decisions[places], [None] * len(places), model.digest.encode()
    names, accepted, features = [ids[i] for i in places.tolist()], few.accepted.tolist(), encode(rows, places)
    ranked = zip(names, accepted, few.ranking.tolist(), strict=True)
    columns = (  # in the order of _COLUMNS
        [_key(name, digest, each) for name, each in zip(names, features, strict=True)],
        [number] * len(places),
        [AUDITED if each else REJECTED for each in accepted],
        [draw.rank(name) if is_accepted else rank for name, is_accepted, rank in ranked],
        few.credibility.tolist(),
        few.confidence.tolist(),
        [draw.rate if each else 1.0 for each in accepted],
        nothing if few.votes is None else few.votes.tolist(),
        nothing if few.doubts is None else few.doubts.tolist(),
        accepted,
        names,
        [senders[i] for i in places.tolist()],
        list(map(str, few.labels.tolist())),
        nothing if few.p_values is None else [row.tobytes() for row in few.p_values.astype("<f8")],
        features,
    )
    return dict(zip(places.tolist(), zip(*columns, strict=True), strict=True))


def _key(name: str, model: bytes, features: bytes) -> bytes:
    """Return a digest of an id, a model and features. Neither of the first two contains a newline."""
    return hashlib.sha256(b"%s\n%s\n%s" % (name.encode(), model, features)).digest()


def keep(engine: Engine, kept: Sequence[Kept]) -> None:
    """Commit objects to the quarantine; known ones stay as they are.

    Keys are inserted in sorted order, so that two gates with the same objects cannot deadlock.
    """
    unique = [each for _, each in sorted({each[0]: each for each in kept}.items())]
    try:
        retry_if_disconnected(engine, lambda connection: _keep(connection, unique))
    except IntegrityError as error:
        if getattr(error.orig, "sqlstate", None) != _CHECK_VIOLATION:
            raise
        make_months(engine)
        retry_if_disconnected(engine, lambda connection: _keep(connection, unique))


def _keep(connection: Connection, kept: Sequence[Kept]) -> None:
    _set_up(connection)
    if _insert(connection, kept) == len(kept):
        return
    if connection.exec_driver_sql(_FORGET, ([each[0] for each in kept],)).rowcount:
        _insert(connection, kept)


def try_keeping(connection: Connection) -> None:
    """Raise if objects cannot be stored.

    The insertion runs without objects: it needs the same rights and locks, and leaves no dead rows.
    """
    _set_up(connection)
    _insert(connection, [])
    if not connection.execute(text("SELECT has_sequence_privilege('item_number', 'USAGE')")).scalar_one():
        raise DatabaseError("the database role lacks USAGE on item_number: grant it.")


def _set_up(connection: Connection) -> None:
    """Make the commit durable, whatever the role's default is, and limit the time of statements."""
    driver: Any = connection.connection.driver_connection
    limit = "" if driver.timeout is None else f"SET LOCAL statement_timeout = {int(1000 * driver.timeout)};"
    connection.exec_driver_sql(f"{limit} SET LOCAL synchronous_commit = on")


def _insert(connection: Connection, kept: Sequence[Kept]) -> int:
    """Insert the objects whose identity is new, and return their number."""
    columns = [list(column) for column in zip(*kept, strict=True)] or [[] for _ in _COLUMNS]
    for place, kind in enumerate(_COLUMNS.values()):
        if kind == "float8":
            columns[place] = list(map(float, columns[place]))  # psycopg refuses lists of mixed types
    return connection.exec_driver_sql(_KEEP, tuple(columns)).rowcount


def register(engine: Engine, model: Model) -> int:
    """Return the number of a model in the database; insert the model if it is new."""
    # RETURNING would give nothing for a known model, so the number is selected afterwards.
    insert = """INSERT INTO model (digest, classes, features) VALUES (:digest, :classes, :features)
    ON CONFLICT DO NOTHING"""
    given = {
        "digest": model.digest,
        "classes": Jsonb(model.classes),
        "features": Jsonb({"count": model.layout.width, "names": model.layout.names}),
    }
    with engine.begin() as connection:
        connection.execute(text(insert), given)
        number = connection.execute(text("SELECT id FROM model WHERE digest = :digest"), given)
        return int(number.scalar_one())


def audit_secret(engine: Engine) -> bytes:
    """Return the key of the audit sample."""
    with engine.connect() as connection:
        return bytes(connection.execute(text("SELECT value FROM secret WHERE name = 'audit'")).scalar_one())
