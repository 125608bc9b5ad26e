"""Store rejected objects and the audit sample of accepted ones in the quarantine."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from psycopg.types.json import Jsonb
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import IntegrityError

from transcendent._utils.arrays import IntArray
from transcendent.decisions import Decisions
from transcendent.gate.database import THIS_MONTH, DatabaseError, make_months, retry_if_disconnected
from transcendent.gate.features import encode
from transcendent.gate.model import Model
from transcendent.gate.older import OlderItems
from transcendent.gate.origin import UNKNOWN, Origin

AUDITED, REJECTED, SKIPPED, COPY = range(4)
"""Tiers of the queue, in the order of claims; copies are not claimed (see `contents`)."""
WAITS = f"item.state = 0 AND item.tier < {COPY}"
"""SQL that says whether an item waits for a claim, or is held."""
FREE = "(item.held_until IS NULL OR item.held_until <= now())"
"""SQL that says whether nobody holds an item."""

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
    "cutoff": "int8",
    "label": "text",
    "p_values": "bytea",
    "features": "bytea",
    "context": "text",
    "seen_at": "timestamptz",
    "shown": "text",
    "kept": "bool",  # false for accepted objects that may wait under another model: their item is closed
}
_TIER = list(_COLUMNS).index("tier")
_ARRAYS = ", ".join(f"%b::{kind}[]" for kind in _COLUMNS.values())
_PAYLOAD = ", ".join(list(_COLUMNS)[4:-1])
# One statement, so that a batch costs one round trip. `identity` decides which objects are new, since it is
# the only table that is unique across months; items and payloads are inserted for those alone. Columns arrive
# as arrays: the text of the statement does not depend on the number of objects.
_KEEP = f"""
WITH incoming AS (
    SELECT * FROM unnest({_ARRAYS}) AS incoming ({", ".join(_COLUMNS)})
), new AS (
    INSERT INTO identity (key, item)
    SELECT key, {THIS_MONTH} | nextval('item_number') FROM incoming WHERE incoming.kept
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

# What waits under another model is decided again, and so is what was closed. Items that somebody holds, that
# have a label, or that are the audit of the other model stay: the audit of a model must not lose the objects
# that the next one rejects. Rows are locked in the order of ids, as claims and releases do.
_DECISION = [name for name in list(_COLUMNS)[4:-4] if name not in ("object_id", "sender", "features")]
_AGAIN = f"""
WITH incoming AS (
    SELECT * FROM unnest({_ARRAYS}) AS incoming ({", ".join(_COLUMNS)})
), known AS (
    SELECT item.id, incoming.*, payload.accepted AS was_accepted, payload.label AS was_label,
        model.digest AS was_model
    FROM incoming JOIN identity USING (key) JOIN item ON item.id = identity.item
    JOIN payload ON payload.id = item.id JOIN model ON model.id = item.model
    WHERE {{}} ORDER BY item.id FOR UPDATE OF item
), history AS (
    INSERT INTO label (item, action, reason, note, author)
    SELECT id, CASE WHEN kept THEN 'decide' ELSE 'close' END,
        CASE WHEN accepted THEN 'accepted' ELSE 'rejected' END,
        format('before: %%s as %%s by model %%s', CASE WHEN was_accepted THEN 'accepted' ELSE 'rejected' END,
            was_label, was_model), 'gate'
    FROM known
), payloads AS (
    UPDATE payload SET {", ".join(f"{name} = known.{name}" for name in _DECISION)},
        {", ".join(f"{name} = coalesce(known.{name}, payload.{name})" for name in Origin._fields)}
    FROM known WHERE payload.id = known.id
)
UPDATE item SET model = known.model,
    tier = CASE WHEN item.tier = {COPY} AND known.tier = {REJECTED} THEN item.tier ELSE known.tier END,
    rank = known.rank, holder = NULL, held_until = NULL, skipped_by = NULL,
    state = CASE WHEN known.kept THEN 0 ELSE 2 END
FROM known WHERE item.id = known.id
"""
_CLOSED = "item.state = 2 AND incoming.kept"
_WAITING = f"item.state = 0 AND NOT payload.accepted AND item.model <> incoming.model AND {FREE}"
_OPEN_AGAIN = _AGAIN.format(_CLOSED)
_DECIDE_AGAIN = _AGAIN.format(f"({_CLOSED}) OR ({_WAITING})")

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
    number: int,
    draw: Draw,
    ids: Sequence[str],
    senders: Sequence[str],
    rows: Any,
    decisions: Decisions,
    cutoff: int | None = None,
    origins: Mapping[int, Origin] | None = None,
    older: OlderItems | None = None,
) -> dict[int, Kept]:
    """Return the rejected objects and the audit sample, by place in the decisions.

    Accepted objects that may wait under another model are returned, too, not to be kept.
    """
    chosen = ~decisions.accepted
    if draw.rate:
        drawn = [place for place in np.flatnonzero(decisions.accepted).tolist() if draw(ids[place])]
        chosen[drawn] = True
    kept = chosen.copy()
    if older is not None:
        chosen[older.places(senders, ids)] = True
    places = np.flatnonzero(chosen)
    if len(places) == 0:
        return {}
    keeps, accepted = kept[places].tolist(), decisions.accepted[places].tolist()
    drawn = [is_accepted and keep for is_accepted, keep in zip(accepted, keeps, strict=True)]
    ranked = zip(places.tolist(), drawn, decisions.ranking[places].tolist(), strict=True)
    ranks = [draw.rank(ids[place]) if is_drawn else rank for place, is_drawn, rank in ranked]
    chances = [draw.rate if each else 1.0 for each in drawn]
    own = number, ids, senders, rows, decisions, cutoff, origins or {}
    return dict(zip(places.tolist(), as_kept(*own, places, ranks, chances, keeps), strict=True))


def as_kept(
    number: int,
    ids: Sequence[str] | Mapping[int, str],
    senders: Sequence[str] | Mapping[int, str],
    rows: Any,
    decisions: Decisions,
    cutoff: int | None,
    origins: Mapping[int, Origin],
    places: IntArray,
    ranks: list[float],
    chances: list[float],
    keeps: list[bool],
) -> list[Kept]:
    """Return objects at some places of the decisions to store, with ranks and chances of being kept."""
    few, nothing = decisions[places], [None] * len(places)
    names, who = ([each[i] for i in places.tolist()] for each in (ids, senders))
    accepted, features = few.accepted.tolist(), encode(rows, places)
    columns = (  # in the order of _COLUMNS
        [_key(*each) for each in zip(who, names, features, strict=True)],
        [number] * len(places),
        [AUDITED if each else REJECTED for each in accepted],
        ranks,
        few.credibility.tolist(),
        few.confidence.tolist(),
        chances,
        nothing if few.votes is None else few.votes.tolist(),
        nothing if few.doubts is None else few.doubts.tolist(),
        accepted,
        names,
        who,
        [cutoff] * len(places),
        list(map(str, few.labels.tolist())),
        nothing if few.p_values is None else [row.tobytes() for row in few.p_values.astype("<f8")],
        features,
        *zip(*[origins.get(i, UNKNOWN) for i in places.tolist()], strict=True),
        keeps,
    )
    return list(zip(*columns, strict=True))


def tiers_of(kept: Sequence[Kept]) -> Counter[int]:
    """Count the objects to keep by tier."""
    return Counter(each[_TIER] for each in kept if each[-1])


def _key(sender: str, name: str, features: bytes) -> bytes:
    """Return a digest of a sender, an id and features. Neither of the first two contains a newline."""
    return hashlib.sha256(b"%s\n%s\n%s" % (sender.encode(), name.encode(), features)).digest()


def keep(engine: Engine, kept: Sequence[Kept], *, decided_now: bool = True) -> None:
    """Commit objects to the quarantine; known ones stay as they are, or are decided again.

    If they were not ``decided_now``, what waits stays as it is: another model may have decided it since. Keys
    are inserted in sorted order, so that two gates with the same objects cannot deadlock.
    """
    last = {each[0]: each for each in sorted(kept, key=lambda each: bool(each[-1]))}  # those to keep win
    unique = [each for _, each in sorted(last.items())]
    work = partial(_keep, kept=unique, again=_DECIDE_AGAIN if decided_now else _OPEN_AGAIN)
    try:
        retry_if_disconnected(engine, work)
    except IntegrityError as error:
        if getattr(error.orig, "sqlstate", None) != _CHECK_VIOLATION:
            raise
        make_months(engine)
        retry_if_disconnected(engine, work)


def _keep(connection: Connection, kept: Sequence[Kept], again: str = _DECIDE_AGAIN) -> None:
    _set_up(connection)
    if _run(connection, _KEEP, kept) == len(kept):
        return
    if connection.exec_driver_sql(_FORGET, ([each[0] for each in kept],)).rowcount:
        _run(connection, _KEEP, kept)
    _run(connection, again, kept)


def try_keeping(connection: Connection) -> None:
    """Raise if objects cannot be stored.

    The insertion runs without objects: it needs the same rights and locks, and leaves no dead rows.
    """
    _set_up(connection)
    _run(connection, _KEEP, [])
    if not connection.execute(text("SELECT has_sequence_privilege('item_number', 'USAGE')")).scalar_one():
        raise DatabaseError("the database role lacks USAGE on item_number: grant it.")


def _set_up(connection: Connection) -> None:
    """Make the commit durable, whatever the role's default is, and limit the time of statements."""
    driver: Any = connection.connection.driver_connection
    limit = "" if driver.timeout is None else f"SET LOCAL statement_timeout = {int(1000 * driver.timeout)};"
    connection.exec_driver_sql(f"{limit} SET LOCAL synchronous_commit = on")


def _run(connection: Connection, statement: str, kept: Sequence[Kept]) -> int:
    """Run a statement with objects, and return the number of rows that it has written."""
    columns = [list(column) for column in zip(*kept, strict=True)] or [[] for _ in _COLUMNS]
    for place, kind in enumerate(_COLUMNS.values()):
        if kind == "float8":
            columns[place] = list(map(float, columns[place]))  # psycopg refuses lists of mixed types
    return connection.exec_driver_sql(statement, tuple(columns)).rowcount


def register(engine: Engine, model: Model) -> int:
    """Return the number of a model in the database; insert the model if it is new."""
    # RETURNING would give nothing for a known model, so the number is selected afterwards.
    insert = """INSERT INTO model (digest, classes, features) VALUES (:digest, :classes, :features)
    ON CONFLICT DO NOTHING"""
    given = {
        "digest": model.digest,
        "classes": Jsonb(model.classes),
        "features": Jsonb(model.layout.description()),
    }
    with engine.begin() as connection:
        connection.execute(text(insert), given)
        number = connection.execute(text("SELECT id FROM model WHERE digest = :digest"), given)
        return int(number.scalar_one())


def audit_secret(engine: Engine) -> bytes:
    """Return the key of the audit sample."""
    with engine.connect() as connection:
        return bytes(connection.execute(text("SELECT value FROM secret WHERE name = 'audit'")).scalar_one())
