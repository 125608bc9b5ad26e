"""Look for contradictions between the tables, such as a restore or a hand has left them."""

from contextlib import suppress
from typing import NamedTuple

from sqlalchemy import Connection, Engine, text

from transcendent.gate.database import (
    FIRST_KEPT,
    detached,
    in_words,
    make_month,
    month_of,
    partition,
    without_blocking,
)

# What belongs to a month without a partition stays, since the partition may come back.
_ELSEWHERE = "<> ALL(CAST(:lacking AS int[]))"
_LOST = f"""FROM identity WHERE item >= {FIRST_KEPT} AND item >> 40 {_ELSEWHERE}
AND NOT EXISTS (SELECT FROM item WHERE item.id = identity.item)"""
_UNKNOWN = "NOT EXISTS (SELECT FROM identity WHERE identity.item = item.id)"
_WHOLE = "FROM item JOIN payload ON payload.id = item.id JOIN model ON model.id = item.model"
_KEY = "sha256(convert_to(object_id || chr(10) || digest || chr(10), 'UTF8') || payload.features)"
# Of two items of one object, the older one has the identity.
_IDENTIFY = f"""INSERT INTO identity (key, item)
SELECT {_KEY}, item.id {_WHOLE}
WHERE {_UNKNOWN} ORDER BY item.id ON CONFLICT (key) DO NOTHING"""
_SCANNED = "SELECT id >> 40 AS month, tier, state, count(*) AS n FROM item GROUP BY 1, 2, 3"
_LAST = "(SELECT action FROM label WHERE label.item = item.id ORDER BY label.id DESC LIMIT 1)"

_COUNTED: dict[str, tuple[str, str]] = {
    "identities whose item is gone": (
        f"SELECT count(*) {_LOST}",
        "their objects are kept again when they are sent again; if a backup has the items, restore them; "
        "otherwise --repair deletes these identities.",
    ),
    "items without an identity": (
        f"""SELECT count(*) {_WHOLE}
        WHERE {_UNKNOWN} AND NOT EXISTS (SELECT FROM identity WHERE key = {_KEY})""",
        "an object of theirs that is sent again is kept twice; --repair makes their identities anew.",
    ),
    "items of objects that another item is kept of": (
        f"""SELECT count(*) {_WHOLE}
        WHERE {_UNKNOWN} AND EXISTS (SELECT FROM identity WHERE key = {_KEY})""",
        "these objects were kept twice; delete the items that have no label.",
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
    "counts that differ from a scan": (
        f"""SELECT count(*) FROM (
            SELECT month, tier, state, sum(n) AS n FROM tally GROUP BY 1, 2, 3
        ) AS tallied
        FULL JOIN ({_SCANNED}) AS scanned USING (month, tier, state)
        WHERE coalesce(tallied.n, 0) <> coalesce(scanned.n, 0)""",
        "counts() is wrong; --repair counts anew.",
    ),
    "items marked as labelled without a label": (
        f"SELECT count(*) FROM item WHERE state = 1 AND {_LAST} IS DISTINCT FROM 'label'",
        "they are never claimed; set their state to 0, or restore the table label from a backup.",
    ),
    "items that have a label and wait": (
        f"SELECT count(*) FROM item WHERE state = 0 AND {_LAST} = 'label'",
        "they are claimed once more; set their state to 1.",
    ),
    "items with a label that are held": (
        "SELECT count(*) FROM item WHERE state = 1 AND holder IS NOT NULL",
        "they count as held; set their holder to null.",
    ),
}
"""What to count, how, and what is to be done about it."""


class Contradiction(NamedTuple):
    """What is wrong in the tables, and what to do."""

    what: str
    way_out: str


def check(engine: Engine) -> list[Contradiction]:
    """Return what is wrong; every table is read, at one moment."""
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        lacking, unnoted = _months(connection)
        found = [
            Contradiction(
                f"no partition for {in_words(month)}, which the table month has",
                detached(connection, month) or "--repair creates it; its items have to come from a backup.",
            )
            for month in lacking
        ] + [
            Contradiction(
                f"a partition for {in_words(month)}, which the table month does not have",
                "it is neither counted nor ever dropped; --repair enters the month.",
            )
            for month in unnoted
        ]
        for what, (sql, way_out) in _COUNTED.items():
            given = {"lacking": lacking} if ":lacking" in sql else {}
            if n := connection.execute(text(sql), given).scalar_one():
                found.append(Contradiction(f"{n:,} {what}", way_out))
    return found


def _months(connection: Connection) -> tuple[list[int], list[int]]:
    """Return months without partitions, and months of partitions that the table of months does not have."""
    have = set(connection.execute(text("SELECT number FROM month")).scalars())
    sql = """SELECT inhparent::regclass::text, relname
    FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
    WHERE inhparent IN ('item'::regclass, 'payload'::regclass)"""
    parts: dict[str, set[int]] = {"item": set(), "payload": set()}
    for table, name in connection.execute(text(sql)):
        with suppress(ValueError):  # a partition that somebody else has added
            month = month_of(name[-7:].replace("_", "-"))
            if name == partition(table, month):
                parts[table].add(month)
    both = parts["item"] & parts["payload"]
    return sorted(have - both), sorted(both - have)


def repair(engine: Engine) -> None:
    """Repair what can be: months, identities and counts. Gates wait meanwhile."""
    without_blocking(
        engine, _repair, "nothing was repaired: something uses the tables for long, such as an export"
    )


def _repair(connection: Connection) -> None:
    connection.execute(text("LOCK TABLE item IN SHARE ROW EXCLUSIVE MODE"))
    lacking, unnoted = _months(connection)
    for month in lacking:
        connection.execute(text("DELETE FROM month WHERE number = :month"), {"month": month})
        make_month(connection, month)
    for month in unnoted:
        connection.execute(text("INSERT INTO month VALUES (:month)"), {"month": month})
    connection.execute(text(f"DELETE {_LOST}"), {"lacking": lacking})
    connection.execute(text(_IDENTIFY))
    connection.execute(text("DELETE FROM tally"))
    connection.execute(text(f"INSERT INTO tally (month, tier, state, n) {_SCANNED}"))
