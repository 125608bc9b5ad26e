"""The quarantine as analysts see it: claim, label, skip, undo.

An item waits or has a label. Claiming a waiting item holds it for the time of a lease. After that, others may
claim it; no cleanup job is needed. Claims come in this order: the audit sample, rejected objects (least
trusted first), skipped objects.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, Engine, text

from transcendent.decisions import DOUBTS
from transcendent.errors import TranscendentError
from transcendent.gate.features import decode
from transcendent.gate.intake import AUDITED, REJECTED, SKIPPED

LONGEST_LABEL = 200
LONGEST_NOTE = 2000
MAX_CLAIMED = 100

# The order is that of the index `item_waiting`, so a claim reads the first waiting items and stops. SKIP
# LOCKED passes over items that another claim is taking at this moment: analysts neither wait for each other
# nor get the same item.
_CLAIM = """
SELECT id FROM item WHERE state = 0 AND (held_until IS NULL OR held_until <= now())
    AND (:skipped OR skipped_by IS DISTINCT FROM :who)
ORDER BY tier, rank, id LIMIT :count FOR UPDATE SKIP LOCKED
"""
_HOLD = """
UPDATE item SET holder = :who, held_until = now() + make_interval(secs => :seconds) WHERE id = ANY(:ids)
"""
# The second condition on ids lets the planner skip the other months' partitions of `payload`, too.
_SHOWN = """
SELECT item.id, payload.object_id, payload.sender, item.received_at, item.state, item.holder, item.held_until,
    payload.label AS predicted, payload.accepted, payload.credibility, payload.confidence, payload.votes,
    payload.doubt, payload.p_values, payload.probability, payload.features, model.digest AS model,
    model.classes
FROM item JOIN payload ON payload.id = item.id JOIN model ON model.id = item.model
WHERE item.id = ANY(:ids) AND payload.id = ANY(:ids) ORDER BY item.tier, item.rank, item.id
"""
# Few items have a holder, and an index lists them. With outdated statistics the planner would not know that,
# and would read the whole table.
_BY_INDEX = """
SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true),
    set_config('max_parallel_workers_per_gather', '0', true)"""
# Every item with a lease has a holder, but without that condition the planner could not use `item_held`.
_HELD = "SELECT count(*), min(held_until) FROM item WHERE holder IS NOT NULL AND held_until > now()"
# Partitions dropped by hand leave their rows in `tally`. The sum of bigints is numeric, hence the cast.
_COUNTED = """
SELECT state, tier, sum(n)::bigint FROM tally WHERE month IN (SELECT number FROM month) GROUP BY 1, 2
"""
_GIVE_BACK = "UPDATE item SET holder = NULL, held_until = NULL WHERE id = ANY(:ids)"
_ACTION = "id, action, label, reason, note, author, written_at"
_HISTORY = f"SELECT {_ACTION} FROM label WHERE item = :item ORDER BY id"
# The object's id is copied: labels outlive the payload, whose month may be dropped.
_WRITE = f"""
INSERT INTO label (item, object_id, action, label, reason, note, author)
SELECT id, object_id, :action, :label, :reason, :note, :who FROM payload WHERE id = :item RETURNING {_ACTION}
"""


class NoItemError(TranscendentError, LookupError):
    """The item does not exist."""


class ConflictError(TranscendentError):
    """An item is not in the state that the request needs."""


class LabelError(TranscendentError, ValueError):
    """The label is neither a class of the item's model nor in the setting `labels`."""


class Claimed(NamedTuple):
    """Claimed items, and what `GateClient.claim` says about others."""

    items: list[dict[str, Any]]
    held: int
    next_free: datetime | None
    room: int


class Quarantine:
    """The items of a database; the parameters are described in `GateSettings`."""

    def __init__(
        self, engine: Engine, lease: float = 900, labels: Sequence[str] = (), max_held: int = 200
    ) -> None:
        self._engine, self._lease, self._labels, self._max_held = engine, lease, list(labels), max_held

    def claim(self, who: str, count: int = 1, *, skipped: bool = False) -> Claimed:
        """Hold up to ``count`` free items; those that the analyst has skipped only if ``skipped``."""
        with self._engine.begin() as connection:
            room = self._room(connection, who, count)
            given = {"who": who, "count": min(count, room), "skipped": skipped}
            ids = list(connection.execute(text(_CLAIM), given).scalars())
            self._hold(connection, who, ids)
            held, next_free = 0, None
            if len(ids) < count:
                others = text(f"{_HELD} AND holder <> :who")
                held, next_free = connection.execute(others, {"who": who}).one()
            return Claimed(_shown(connection, ids), held, next_free, room - len(ids))

    def _room(self, connection: Connection, who: str, count: int) -> int:
        """Return the number of items that an analyst may still hold; release expired ones to make room.

        Until then expired leases count, so the number of items with a holder stays bounded.
        """
        # One claim of an analyst at a time: two would both count before either holds, and exceed the limit.
        locked = text(f"{_BY_INDEX}, pg_advisory_xact_lock(hashtextextended(:who, 0))")
        connection.execute(locked, {"who": who})
        sql = text("SELECT count(*) FROM item WHERE holder = :who")
        room = self._max_held - int(connection.execute(sql, {"who": who}).scalar_one())
        if room < count:
            expired = self._held(connection, who, among="AND held_until <= now()")
            connection.execute(text(_GIVE_BACK), {"ids": expired})
            room += len(expired)
        return max(room, 0)

    def held(self, who: str) -> list[dict[str, Any]]:
        """Return the items that an analyst holds, at most `MAX_CLAIMED`."""
        with self._engine.begin() as connection:
            return _shown(connection, self._held(connection, who)[:MAX_CLAIMED])

    def renew(self, who: str, items: Sequence[int] | None = None) -> list[int]:
        """Restart the lease of items, by default all that are held; return their ids."""
        with self._engine.begin() as connection:
            ids = self._held(connection, who, items)
            self._hold(connection, who, ids)
            return ids

    def release(self, who: str, items: Sequence[int] | None = None) -> list[int]:
        """Release items, by default all that are held; return their ids."""
        with self._engine.begin() as connection:
            ids = self._held(connection, who, items)
            connection.execute(text(_GIVE_BACK), {"ids": ids})
            return ids

    def resolve(
        self, who: str, item: int, label: str, *, reason: str | None = None, note: str | None = None
    ) -> dict[str, Any]:
        """Label a held item. Repeating the same label changes nothing."""
        with self._engine.begin() as connection:
            state = _locked(connection, item)
            allowed = [*map(str, state["classes"]), *self._labels]
            if label not in allowed:
                raise LabelError(f"{label!r:.80} is not one of the labels {', '.join(allowed):.300}.")
            if state["state"] == 1 and (last := _last(connection, item)):
                if (last["author"], last["label"]) == (who, label):
                    return last
                raise ConflictError(f"item {item} has the label {last['label']!r}, by {last['author']}.")
            _check_holder(state, who)
            _set(connection, item, state=1, holder=None)
            return _write(connection, item, "label", who, label=label, reason=reason, note=note)

    def skip(
        self, who: str, item: int, *, reason: str | None = None, note: str | None = None
    ) -> dict[str, Any]:
        """Move a held item to the end of the queue, for other analysts."""
        with self._engine.begin() as connection:
            _check_holder(_locked(connection, item), who)
            _set(connection, item, tier=SKIPPED, skipped_by=who, holder=None)
            return _write(connection, item, "skip", who, reason=reason, note=note)

    def undo(self, who: str, item: int, *, note: str | None = None, anyone: bool = False) -> dict[str, Any]:
        """Take back the last label or skip, the analyst's own unless ``anyone``; the item waits again."""
        with self._engine.begin() as connection:
            state, last = _locked(connection, item), _last(connection, item)
            if last is None or last["action"] == "undo":
                raise ConflictError(f"item {item} has no label or skip to undo.")
            if last["author"] != who and not anyone:
                raise ConflictError(
                    f"the last {last['action']} is by {last['author']}: only they or an operator may undo it."
                )
            if state["holder"] not in (None, who) and state["held"]:
                raise ConflictError(
                    f"{state['holder']} holds item {item} until {state['held_until']:%H:%M:%S}."
                )
            tier = AUDITED if state["accepted"] else REJECTED
            _set(connection, item, state=0, tier=tier, skipped_by=None, holder=None)
            return _write(connection, item, "undo", who, note=note)

    def show(self, item: int) -> dict[str, Any]:
        """Return an item with its features and the history of its labels."""
        with self._engine.connect() as connection:
            found = _shown(connection, [item])
            if not found:
                raise NoItemError(f"item {item} does not exist.")
            history = connection.execute(text(_HISTORY), {"item": item}).mappings()
            return {**found[0], "history": [dict(row) for row in history]}

    def counts(self) -> dict[str, int]:
        """Return the numbers of items that wait, are held, and have labels."""
        with self._engine.connect() as connection:
            rows = connection.execute(text(_COUNTED)).all()
            connection.execute(text(_BY_INDEX))
            held, _ = connection.execute(text(_HELD)).one()
        waiting = {tier: n for state, tier, n in rows if state == 0}
        return {
            "waiting": sum(waiting.values()),
            "audit": waiting.get(AUDITED, 0),
            "rejected": waiting.get(REJECTED, 0),
            "skipped": waiting.get(SKIPPED, 0),
            "held": held,
            "labelled": sum(n for state, _, n in rows if state == 1),
        }

    def _hold(self, connection: Connection, who: str, ids: list[int]) -> None:
        if ids:
            connection.execute(text(_HOLD), {"who": who, "ids": ids, "seconds": self._lease})

    def _held(
        self, connection: Connection, who: str, items: Sequence[int] | None = None, among: str = ""
    ) -> list[int]:
        """Lock the items that an analyst holds, or those of ``items``, and return their ids.

        They are locked in the order of ids, so that two requests for the same items cannot deadlock.
        """
        if items is not None:
            among = "AND id = ANY(:items)"
        sql = f"SELECT id FROM item WHERE holder = :who {among} ORDER BY id FOR UPDATE"
        return list(connection.execute(text(sql), {"who": who, "items": items}).scalars())


def _shown(connection: Connection, ids: list[int]) -> list[dict[str, Any]]:
    if not ids:
        return []
    shown = []
    for row in connection.execute(text(_SHOWN), {"ids": ids}).mappings():
        positions, values = decode(bytes(row["features"]))
        item = {name: row[name] for name in row if name not in ("features", "state")}
        item["doubt"] = None if row["doubt"] is None or row["accepted"] else DOUBTS[row["doubt"]]
        p_values = row["p_values"]
        item["p_values"] = None if p_values is None else np.frombuffer(p_values, dtype="<f8").tolist()
        item["audit"] = row["accepted"]
        item["labelled"] = row["state"] == 1
        item["positions"], item["values"] = positions.tolist(), values.tolist()
        shown.append(item)
    return shown


def _locked(connection: Connection, item: int) -> dict[str, Any]:
    # OF item: all items share the row of a model, and analysts would wait for each other.
    sql = """
    SELECT item.state, item.holder, item.held_until, item.held_until > now() AS held, accepted, model.classes
    FROM item JOIN payload ON payload.id = item.id JOIN model ON model.id = item.model
    WHERE item.id = :item FOR UPDATE OF item"""
    found = connection.execute(text(sql), {"item": item}).mappings().first()
    if found is None:
        raise NoItemError(f"item {item} does not exist.")
    return dict(found)


def _check_holder(state: dict[str, Any], who: str) -> None:
    """Raise unless the analyst holds the item. An expired lease counts until another analyst claims it."""
    if state["state"] == 1:
        raise ConflictError("the item already has a label: undo it first.")
    if state["holder"] != who:
        other = f"{state['holder']} holds it" if state["holder"] and state["held"] else "claim it first"
        raise ConflictError(f"you do not hold the item: {other}.")


def _set(connection: Connection, item: int, **values: Any) -> None:
    changes = ", ".join(f"{name} = :{name}" for name in values)
    connection.execute(
        text(f"UPDATE item SET held_until = NULL, {changes} WHERE id = :item"), {"item": item, **values}
    )


def _last(connection: Connection, item: int) -> dict[str, Any] | None:
    found = connection.execute(text(f"{_HISTORY} DESC LIMIT 1"), {"item": item}).mappings().first()
    return None if found is None else dict(found)


def _write(connection: Connection, item: int, action: str, who: str, **given: str | None) -> dict[str, Any]:
    values = {"label": None, "reason": None, "note": None, **given}
    connection.execute(text("SET LOCAL synchronous_commit = on"))  # the role's default may be off
    written = connection.execute(text(_WRITE), {"item": item, "action": action, "who": who, **values})
    return dict(written.mappings().one())
