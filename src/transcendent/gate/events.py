"""Events: what happened to items and models, in an order in which readers miss nothing.

Triggers write each event in the transaction of the change that it reports. Transactions do not end in the
order in which they began, so a reader that remembers the last number it saw would miss events that are
committed later with a lower number. So events are read in the order of their transactions, and only those of
transactions that began before every open one: nothing can be inserted between them later.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, Engine, text

from transcendent.decisions import DOUBTS
from transcendent.errors import TranscendentError

MAX_EVENTS = 1000

_SETTLED = "(SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint + ahead FROM event_order)"
# A row has an event for each of its items, or one if it has none. The inner LIMIT ends the index scan early.
# It is one more than needed, since the row of the cursor may have been read already.
_AFTER = f"""
SELECT transaction, number, coalesce(place, 0) AS place, kind, written_at, detail, item
FROM (
    SELECT * FROM event WHERE (transaction, number) >= (:transaction, :number) AND transaction < {_SETTLED}
    ORDER BY transaction, number LIMIT :limit + 1
) AS rows LEFT JOIN LATERAL unnest(items) WITH ORDINALITY AS each (item, place) ON true
WHERE (transaction, number, coalesce(place, 0)) > (:transaction, :number, :place)
ORDER BY transaction, number, place LIMIT :limit
"""
_AT = """
SELECT event.transaction, event.number, wanted.place, kind, written_at, detail, items[wanted.place] AS item
FROM unnest(CAST(:transactions AS bigint[]), CAST(:numbers AS bigint[]), CAST(:places AS bigint[]))
    AS wanted (transaction, number, place)
JOIN event ON event.transaction = wanted.transaction AND event.number = wanted.number
"""
_ITEMS = """
SELECT item.id AS item, payload.object_id, payload.sender, item.received_at, payload.label AS predicted,
    payload.accepted, payload.credibility, payload.confidence, payload.doubt, model.digest AS model,
    payload.cutoff, payload.context, payload.seen_at
FROM item JOIN payload ON payload.id = item.id JOIN model ON model.id = item.model
WHERE item.id = ANY(:ids) AND payload.id = ANY(:ids)
"""
# Reasons can be deleted, events cannot: they name the labels that have them.
_REASONS = {
    "labels": """SELECT told.id, reason, source, how AS inferred
        FROM unnest(CAST(:ids AS bigint[])) AS told (id) LEFT JOIN remark ON remark.label = told.id
        LEFT JOIN outside_label ON action = told.id LEFT JOIN inferred ON inferred.label = told.id""",
    "outside": "SELECT outside AS id, reason FROM outside_reason WHERE outside = ANY(:ids)",
}
# A new webhook begins at a transaction of which it has read nothing yet.
_LAST = "greatest((SELECT max(transaction) FROM event), (SELECT max(transaction) - 1 FROM webhook))"
# Another server, or this one after its files were restored or a replica took over.
_SERVER = "(SELECT system_identifier || '-' || timeline_id FROM pg_control_system(), pg_control_checkpoint())"
# Events of transactions that the server has not reached yet were written by another server, too.
_RESTORED = f"""
SELECT server <> {_SERVER}
    OR coalesce({_LAST} >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint + ahead, false)
FROM event_order
"""
# Readers may have read more events than the backup has. New events must come after those as well, so the
# order skips some billions of transactions.
_GO_ON = f"""
UPDATE event_order SET server = {_SERVER},
    ahead = greatest(ahead, {_LAST} - pg_current_xact_id()::text::bigint) + (1::bigint << 32)
"""

_CURSOR = re.compile(r"([0-9]{1,18})-([0-9]{1,18})-([0-9]{1,18})", re.ASCII)


class CursorError(TranscendentError, ValueError):
    """The text is not the id of an event that can have been read here."""


class Cursor(NamedTuple):
    """The place of an event in the order: its transaction, its row, and the place of its item there."""

    transaction: int = 0
    number: int = 0
    place: int = 0

    @classmethod
    def read(cls, given: str) -> "Cursor":
        """Return the place of the event with this id; the start for an empty text."""
        if not given:
            return cls()
        found = _CURSOR.fullmatch(given)
        if found is None:
            raise CursorError(f"after must be the id of an event, or next of an answer, not {given!r:.80}.")
        return cls(*map(int, found.groups()))

    def __str__(self) -> str:
        return "-".join(map(str, self))


class Page(NamedTuple):
    """Events, and the place after which the next ones come."""

    events: list[dict[str, Any]]
    last: Cursor


class Events:
    """The events of a database; ``context`` names the fields of objects' context that they may have."""

    def __init__(self, engine: Engine, context: Sequence[str] = ()) -> None:
        self._engine, self._context = engine, list(context)

    def after(self, cursor: Cursor, limit: int = MAX_EVENTS) -> Page:
        """Return the next events, without the rejections of items that are gone."""
        with self._engine.connect() as connection:
            rows = places_after(connection, cursor, limit)
            # Events that were read are older than every open transaction, unless a backup was restored since.
            if not rows and cursor.transaction >= newest_place(connection).transaction:
                raise CursorError(
                    f"event {cursor} is ahead of this database: an older backup must have been restored. "
                    "Read on after an event from before that backup, or without after, from the start."
                )
            found = self._told(connection, rows)
        return Page([each for each in found if each], _place(rows[-1]) if rows else cursor)

    def at(self, places: Sequence[Cursor]) -> dict[Cursor, dict[str, Any]]:
        """Return events by their places, without those that are gone."""
        columns = zip(*places, strict=True)
        given = dict(zip(("transactions", "numbers", "places"), map(list, columns), strict=True))
        with self._engine.connect() as connection:
            rows = connection.execute(text(_AT), given).mappings().all()
            found = self._told(connection, rows)
        return {_place(row): each for row, each in zip(rows, found, strict=True) if each}

    def all_after(self, cursor: Cursor) -> Iterator[Page]:
        """Return all events that can be read now, in pages; the last one is empty."""
        while True:
            page = self.after(cursor)
            yield page
            if page.last == cursor:
                return
            cursor = page.last

    def _told(self, connection: Connection, rows: Sequence[Any]) -> list[dict[str, Any] | None]:
        ids = list({row["item"] for row in rows if row["item"] is not None})
        found: Iterable[Any] = ()
        if ids:
            found = connection.execute(text(_ITEMS), {"ids": ids}).mappings()
        items = {row["item"]: self._item(row) for row in found}
        details = _with_reasons(connection, rows)
        return [_event(row, items.get(row["item"]), each) for row, each in zip(rows, details, strict=True)]

    def _item(self, row: Any) -> dict[str, Any]:
        item = dict(row)
        item["doubt"] = None if row["doubt"] is None or row["accepted"] else DOUBTS[row["doubt"]]
        sent = {} if row["context"] is None else orjson.loads(row["context"])
        item["received_at"] = _as_text(row["received_at"])
        item["seen_at"] = None if row["seen_at"] is None else _as_text(row["seen_at"])
        item["context"] = {name: sent[name] for name in self._context if name in sent}
        return item


def places_after(connection: Connection, cursor: Cursor, limit: int) -> Sequence[Any]:
    """Return the next events as rows, without what their items hold."""
    given = {**cursor._asdict(), "limit": limit}
    return connection.execute(text(_AFTER), given).mappings().all()


def newest_place(connection: Connection) -> Cursor:
    """Return the place after all events that can be read now."""
    return Cursor(int(connection.execute(text(f"SELECT {_SETTLED}")).scalar_one()))


def resume_order(engine: Engine) -> None:
    """Order new events after all that were read before a database was restored or moved to another server."""
    with engine.begin() as connection:
        if not connection.execute(text(_RESTORED)).scalar_one():
            return
        # Until the commit nobody else writes events, and those who wait for the lock read the new number.
        connection.execute(text("LOCK TABLE event IN SHARE ROW EXCLUSIVE MODE"))
        if connection.execute(text(_RESTORED)).scalar_one():
            connection.execute(text(_GO_ON))


def _as_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _place(row: Any) -> Cursor:
    return Cursor(row["transaction"], row["number"], row["place"])


def _with_reasons(connection: Connection, rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the details of events, with what is known of their labels: reason, source, how inferred."""
    details = [dict(row["detail"]) for row in rows]
    for table, sql in _REASONS.items():
        named = {i: each.pop(table) for i, each in enumerate(details) if table in each}
        # An event has the number of a label for each of its items.
        labels = {i: numbers[rows[i]["place"] - 1] for i, numbers in named.items()}
        if labels:
            found = connection.execute(text(sql), {"ids": list(labels.values())}).mappings()
            known = {row["id"]: row for row in found}
            for i, label in labels.items():
                said = dict(known.get(label, {}), id=None)
                details[i] |= {name: value for name, value in said.items() if value is not None}
    return details


def _event(row: Any, item: dict[str, Any] | None, detail: dict[str, Any]) -> dict[str, Any] | None:
    """Return an event; None if it is a rejection, which is its item's row, and the item is gone."""
    if row["kind"] == "rejected" and item is None:
        return None
    about = {} if row["item"] is None else item or {"item": row["item"]}
    return {
        "id": str(_place(row)),
        "type": row["kind"],
        "timestamp": _as_text(row["written_at"]),
        "data": {**about, **detail},
    }
