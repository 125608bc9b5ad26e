"""Find and repair contradictions between the tables, as a restore or a manual change may leave them."""

from contextlib import suppress
from typing import NamedTuple

from sqlalchemy import Connection, Engine, text

from transcendent.gate import check_contents
from transcendent.gate.database import (
    FIRST_KEPT,
    detached_advice,
    make_month,
    month_name,
    month_of,
    partition,
    without_blocking,
)

# Rows of a month whose partition is missing are left alone: a backup may bring the partition back.
_ELSEWHERE = "<> ALL(CAST(:lacking AS int[]))"
_LOST = f"""FROM identity WHERE item >= {FIRST_KEPT} AND item >> 40 {_ELSEWHERE}
AND NOT EXISTS (SELECT FROM item WHERE item.id = identity.item)"""
_UNKNOWN = "NOT EXISTS (SELECT FROM identity WHERE identity.item = item.id)"
_WHOLE = "FROM item JOIN payload ON payload.id = item.id"
# The same key as `intake._key`.
KEY = "sha256(convert_to(sender || chr(10) || object_id || chr(10), 'UTF8') || payload.features)"
"""SQL of an object's identity, from its payload."""
# If an object has two items, the older one gets the identity.
_IDENTIFY = f"""INSERT INTO identity (key, item)
SELECT {KEY}, item.id {_WHOLE}
WHERE {_UNKNOWN} ORDER BY item.id ON CONFLICT (key) DO NOTHING"""
_SCANNED = "SELECT id >> 40 AS month, tier, state, count(*) AS n FROM item GROUP BY 1, 2, 3"
# What is left of dropped months is swept, and no contradiction.
_LEFT = f"""FROM {{0}} WHERE item >= {FIRST_KEPT} AND item >> 40 {_ELSEWHERE}
AND NOT EXISTS (SELECT FROM item WHERE item.id = {{0}}.item)
AND NOT EXISTS (SELECT FROM example WHERE example.id = {{0}}.item)"""
_TWICE = "FROM example WHERE EXISTS (SELECT FROM item WHERE item.id = example.id)"
_LAST = "(SELECT action FROM label WHERE label.item = item.id ORDER BY label.id DESC LIMIT 1)"

_COUNTED: dict[str, tuple[str, str]] = {
    "identities whose item is gone": (
        f"SELECT count(*) {_LOST}",
        "their objects are stored again when they are sent again; if a backup has the items, restore them; "
        "otherwise --repair deletes these identities.",
    ),
    "items without an identity": (
        f"""SELECT count(*) {_WHOLE}
        WHERE {_UNKNOWN} AND NOT EXISTS (SELECT FROM identity WHERE key = {KEY})""",
        "if their objects are sent again, they are stored twice; --repair recreates the identities.",
    ),
    "items whose object has another item": (
        f"""SELECT count(*) {_WHOLE}
        WHERE {_UNKNOWN} AND EXISTS (SELECT FROM identity WHERE key = {KEY})""",
        "these objects were stored twice; delete the items that have no label.",
    ),
    "items without a payload": (
        f"""SELECT count(*) FROM item WHERE id >> 40 {_ELSEWHERE}
        AND NOT EXISTS (SELECT FROM payload WHERE payload.id = item.id)""",
        "they cannot be shown or labelled; restore the table payload from a backup, or delete the items.",
    ),
    "payloads without an item": (
        f"""SELECT count(*) FROM payload WHERE id >> 40 {_ELSEWHERE}
        AND NOT EXISTS (SELECT FROM item WHERE item.id = payload.id)""",
        "nobody can claim them; restore the table item from a backup, or delete the payloads.",
    ),
    "notes whose item is gone": (
        f"SELECT count(*) {_LEFT.format('remark')}",
        "no deletion of an object finds them; --repair deletes them.",
    ),
    "reasons of other systems whose item is gone": (
        f"SELECT count(*) {_LEFT.format('outside_reason')}",
        "no deletion of an object finds them; --repair deletes them.",
    ),
    "context keys whose item is gone": (
        f"SELECT count(*) {_LEFT.format('context_key')}",
        "they are hashes of contexts; --repair deletes them.",
    ),
    "looks whose item is gone": (
        f"SELECT count(*) {_LEFT.format('settled_look')}",
        "they may stay open for ever; --repair deletes them.",
    ),
    "digests of features whose item is gone": (
        f"SELECT count(*) {_LEFT.format('item_content')}",
        "no deletion of an object finds them; --repair deletes them.",
    ),
    "examples that are also items": (
        f"SELECT count(*) {_TWICE}",
        "they are exported twice, such as after a restore of their month; --repair deletes these examples.",
    ),
    "counts that differ from a scan": (
        f"""SELECT count(*) FROM (
            SELECT month, tier, state, sum(n) AS n FROM tally GROUP BY 1, 2, 3
        ) AS tallied
        FULL JOIN ({_SCANNED}) AS scanned USING (month, tier, state)
        WHERE coalesce(tallied.n, 0) <> coalesce(scanned.n, 0)""",
        "counts() is wrong; --repair recounts.",
    ),
    "items marked as labelled without a label": (
        f"SELECT count(*) FROM item WHERE state = 1 AND {_LAST} IS DISTINCT FROM 'label'",
        "they are never claimed; set their state to 0, or restore the table label from a backup.",
    ),
    "items that have a label and wait": (
        f"SELECT count(*) FROM item WHERE state = 0 AND {_LAST} = 'label'",
        "they will be claimed again; set their state to 1.",
    ),
    "items with a label that are held": (
        "SELECT count(*) FROM item WHERE state = 1 AND holder IS NOT NULL",
        "they count as held; set their holder to null.",
    ),
    **check_contents.COUNTED,
}
"""For each contradiction, the SQL that counts it and the way out."""


class Contradiction(NamedTuple):
    """A contradiction between tables, and the way out."""

    what: str
    way_out: str


def check(engine: Engine) -> list[Contradiction]:
    """Return all contradictions. Every table is read, in one snapshot."""
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        lacking, unnoted = _months(connection)
        found = [
            Contradiction(
                f"no partition for {month_name(month)}, which is in the table month",
                detached_advice(connection, month) or "--repair creates it; restore its items from a backup.",
            )
            for month in lacking
        ] + [
            Contradiction(
                f"a partition for {month_name(month)}, which is not in the table month",
                "it is not counted and will never be dropped; --repair adds the month.",
            )
            for month in unnoted
        ]
        for what, (sql, way_out) in _COUNTED.items():
            given = {"lacking": lacking} if ":lacking" in sql else {}
            if n := connection.execute(text(sql), given).scalar_one():
                found.append(Contradiction(f"{n:,} {what}", way_out))
    return found


def _months(connection: Connection) -> tuple[list[int], list[int]]:
    """Return the months without partitions, and the partitioned months that are not in the table month."""
    have = set(connection.execute(text("SELECT number FROM month")).scalars())
    sql = """SELECT inhparent::regclass::text, relname
    FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
    WHERE inhparent IN ('item'::regclass, 'payload'::regclass)"""
    parts: dict[str, set[int]] = {"item": set(), "payload": set()}
    for table, name in connection.execute(text(sql)):
        with suppress(ValueError):  # a partition with a name of the owner's own
            month = month_of(name[-7:].replace("_", "-"))
            if name == partition(table, month):
                parts[table].add(month)
    both = parts["item"] & parts["payload"]
    return sorted(have - both), sorted(both - have)


def repair(engine: Engine) -> None:
    """Repair months, identities, contents and counts. Gates wait meanwhile."""
    without_blocking(engine, _repair, "nothing was repaired")


def _repair(connection: Connection) -> None:
    # Conflicts with every write to `item`, and so with every commit of a gate, but not with reads.
    connection.execute(text("LOCK TABLE item IN SHARE ROW EXCLUSIVE MODE"))
    lacking, unnoted = _months(connection)
    for month in lacking:
        connection.execute(text("DELETE FROM month WHERE number = :month"), {"month": month})
        make_month(connection, month)
    for month in unnoted:
        connection.execute(text("INSERT INTO month VALUES (:month)"), {"month": month})
    connection.execute(text(f"DELETE {_LOST}"), {"lacking": lacking})
    for table in ("remark", "outside_reason", "context_key", "settled_look", "item_content"):
        connection.execute(text(f"DELETE {_LEFT.format(table)}"), {"lacking": lacking})
    connection.execute(text(f"DELETE {_TWICE}"))
    connection.execute(text(_IDENTIFY))
    check_contents.repair_contents(connection)
    connection.execute(text("DELETE FROM tally"))
    connection.execute(text(f"INSERT INTO tally (month, tier, state, n) {_SCANNED}"))
