"""Delete what the database holds about objects: by their id, their sender, or a field of their context.

Labels stay, and name an item that is gone by its number. One row of ``deletion`` says who deleted how much,
and why, but not what.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, Engine, text

from transcendent.gate.check import KEY
from transcendent.gate.database import without_blocking
from transcendent.gate.retention import sweep

_STEP = 2000  # objects in a transaction

# The index of a field is complete from the next month on: a transaction that does not see the declaration yet
# belongs to a month before. The day is for a declaration that is committed after a month has begun.
_DECLARE = """
INSERT INTO context_field (name, indexed_from)
SELECT name, ((extract(year FROM soon) - 1970) * 12 + extract(month FROM soon))::bigint << 40
FROM unnest(CAST(:names AS text[])) AS name,
    CAST(now() AT TIME ZONE 'UTC' + interval '1 day' AS timestamp) AS soon
ORDER BY name ON CONFLICT DO NOTHING
"""

_BY_OBJECT = "hashtextextended(object_id, 0) = hashtextextended(:value, 0) AND object_id = :value"
_BY_SENDER = "sender = :value"
# All contexts are read if they are from before the field was declared. An array of items, since the planner
# would join a subquery with all payloads.
_HAS_TEXT = "strpos(context, :written) > 0"
_BY_SCAN = f"{_HAS_TEXT} AND id < (SELECT indexed_from FROM context_field WHERE name = :field)"
_BY_KEY = f"""{_HAS_TEXT} AND id = ANY(ARRAY(SELECT item FROM context_key WHERE key IN (
    hashtextextended(:field || '=' || :value, 0), hashtextextended(:field, 1))))"""
_PLACES = {
    "object": (("payload", _BY_OBJECT), ("example", _BY_OBJECT)),
    "sender": (("payload", _BY_SENDER), ("example", _BY_SENDER)),
    "context": (("payload", _BY_SCAN), ("payload", _BY_KEY), ("example", _HAS_TEXT)),
}

# Whoever labels, claims or decides an item again locks it first, so nothing is written about it after this
# lock. Each statement sees what was committed before it, and so what the lock waited for. Items of a month
# that is dropped meanwhile have become examples.
_LOCK = "SELECT id FROM item WHERE id = ANY(:ids) ORDER BY id FOR UPDATE"
# An identity is a digest of sender, id and features: whoever knows those could find out that they were here.
_IDENTITY = f"""DELETE FROM identity USING payload
WHERE payload.id = ANY(:ids) AND identity.key = {KEY} AND identity.item = payload.id"""
# So is the key of a content, unless other objects have it.
_CONTENTS = """
WITH gone AS (DELETE FROM item_content WHERE item = ANY(:ids) RETURNING key)
DELETE FROM content USING gone WHERE content.key = gone.key AND NOT EXISTS (
    SELECT FROM item_content WHERE item_content.key = gone.key AND item_content.item <> ALL(:ids))
"""
# Nor is anything left to do then. Who does it may wait for an item that is deleted here.
_WORK = """
DELETE FROM label_work WHERE id IN (
    SELECT id FROM label_work AS work WHERE key IS NOT NULL
        AND NOT EXISTS (SELECT FROM item_content WHERE item_content.key = work.key) FOR UPDATE SKIP LOCKED)
"""
_ROWS = {
    "notes": "DELETE FROM remark WHERE item = ANY(:ids)",
    "disagreements": "DELETE FROM disagreement WHERE item = ANY(:ids)",
    "looks": "DELETE FROM settled_look WHERE item = ANY(:ids)",
    "reasons": "DELETE FROM outside_reason WHERE item = ANY(:ids)",
    "keys": "DELETE FROM context_key WHERE item = ANY(:ids)",
    "wanted": "DELETE FROM unconfirmed WHERE item = ANY(:ids)",
    "contents": _CONTENTS,
    "work": _WORK,
    "items": "DELETE FROM item WHERE id = ANY(:ids)",
    "payloads": "DELETE FROM payload WHERE id = ANY(:ids)",
    "examples": "DELETE FROM example WHERE id = ANY(:ids)",
}
# An event is read from the rows of its item when it is delivered; without them there is nothing to deliver.
_DELIVERIES = """DELETE FROM delivery USING event
WHERE event.transaction = delivery.transaction AND event.number = delivery.number
    AND event.items[delivery.place] = ANY(:ids)"""
_WRITE = """INSERT INTO deletion (kind, items, examples, notes, author, reason)
VALUES (:kind, 0, 0, 0, :author, :reason) RETURNING id"""
_COUNT = """UPDATE deletion
SET items = items + :items, examples = examples + :examples, notes = notes + :notes WHERE id = :deletion"""


class ToDelete(NamedTuple):
    """What to delete: the objects of an id, of a sender, or with a value of a context's ``field``."""

    kind: str
    value: str
    field: str = ""


class FoundObjects(NamedTuple):
    """The items and the examples of a target, by number."""

    items: list[int]
    examples: list[int]


class Deleted(NamedTuple):
    """The number of rows that were deleted."""

    items: int = 0
    examples: int = 0
    notes: int = 0


def declare_fields(engine: Engine, names: Sequence[str]) -> None:
    """Index these fields of contexts from now on."""
    if names:
        with engine.begin() as connection:
            connection.execute(text(_DECLARE), {"names": list(names)})


def find(engine: Engine, target: ToDelete) -> FoundObjects:
    """Return what there is to delete."""
    if target.kind == "context":
        declare_fields(engine, [target.field])
    found: dict[str, set[int]] = {"payload": set(), "example": set()}
    given = {**target._asdict(), "written": orjson.dumps(target.value)[1:-1].decode()}
    columns = "id, context" if target.kind == "context" else "id, NULL AS context"
    with engine.connect() as connection:
        for table, condition in _PLACES[target.kind]:
            rows = connection.execute(text(f"SELECT {columns} FROM {table} WHERE {condition}"), given)
            found[table].update(row.id for row in rows if _has(target, row.context))
    return FoundObjects(sorted(found["payload"]), sorted(found["example"]))


def _has(target: ToDelete, context: str | None) -> bool:
    """Return whether a context has the value; conditions on text are also true of other fields."""
    if target.kind != "context":
        return True
    value = orjson.loads(context or "{}").get(target.field)
    written = value if isinstance(value, str) else orjson.dumps(value).decode()
    return value is not None and written == target.value


def delete(engine: Engine, target: ToDelete, author: str, reason: str) -> Deleted:
    """Delete what the database holds about the objects of a target, and return how much that was.

    Whatever was committed before is found. Objects that gates keep meanwhile may stay, as if they were sent
    afterwards.
    """
    found = find(engine, target)

    def begin(connection: Connection) -> int:
        if target.kind == "sender":
            connection.execute(text("DELETE FROM sender_day WHERE sender = :value"), {"value": target.value})
        given = {"kind": target.kind, "author": author, "reason": reason}
        return int(connection.execute(text(_WRITE), given).scalar_one())

    failure, deleted = "not everything was deleted", Deleted()
    number = without_blocking(engine, begin, "nothing was deleted")
    for ids in _steps(sorted({*found.items, *found.examples})):
        step = without_blocking(engine, partial(_delete, ids=ids, deletion=number), failure)
        deleted = Deleted(*(a + b for a, b in zip(deleted, step, strict=True)))
    sweep(engine)  # what is left of a month that was dropped before or meanwhile, which nothing else finds
    return deleted


def _steps(ids: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(ids), _STEP):
        yield ids[start : start + _STEP]


def _delete(connection: Connection, ids: list[int], deletion: int) -> Deleted:
    given: dict[str, Any] = {"ids": ids}
    connection.execute(text("SET LOCAL synchronous_commit = on"))
    # Whoever finds contents has read items that are deleted here, and would write their keys afterwards.
    connection.execute(text("SELECT pg_advisory_xact_lock(3, 2)"))
    connection.execute(text(_LOCK), given)
    connection.execute(text(_IDENTITY), given)
    connection.execute(text(_DELIVERIES), given)
    counts = {name: connection.execute(text(sql), given).rowcount for name, sql in _ROWS.items()}
    deleted = Deleted(counts["payloads"], counts["examples"], counts["notes"] + counts["reasons"])
    connection.execute(text(_COUNT), {**deleted._asdict(), "deletion": deletion})
    return deleted
