"""Suggestions: the nearest resolved case of an item that waits, with its label. They decide nothing.

A case is a content to which a person has given a label that is a class. Items with the same content are found
when they are shown. Near content, of rows of zeros and ones, is found beforehand, by one process at a time.
"""

import math
import time
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sqlalchemy import Connection, Engine, text

from transcendent.explaining.distances import JaccardIndex
from transcendent.gate.intake import REJECTED
from transcendent.gate.shared_columns import SharedColumns

EVERY = 30.0
"""Seconds between two looks for items without a suggestion."""
MOST = 20_000
"""Limit on the cases, and on the items that are compared with them: the newest."""
_MOST_BYTES = 32 << 20  # features of these
_AT_ONCE = 500  # contents in a transaction
_LONGEST = 5.0  # seconds, so that a gate that stops does not wait long; the next time goes on from there
_LATE = timedelta(minutes=1)  # a label may be committed after others that were written later
ALL_EVERY = 600.0
"""Seconds after which all items that wait are looked at again, even if no label was given or taken back."""

# No lock: the comparisons take seconds, and a transaction would hold a connection. Should two processes do
# this at the same time, both write the same.
_TURN = """
UPDATE case_work SET began_at = now() WHERE began_at < now() - make_interval(secs => :seconds / 2) RETURNING 1
"""
# The label of a content stands as long as it is the last action of its item: not if it was undone.
LAST = """
JOIN LATERAL (SELECT * FROM label WHERE label.item = {0}.labelled ORDER BY label.id DESC LIMIT 1) AS last
    ON last.action = 'label' AND last.label = {0}.label
"""
"""SQL that joins the action that gave a content its label."""
# The first byte of encoded zeros and ones; rows without any feature are near nothing.
_BINARY = r"substring(payload.features FROM 1 FOR 1) = '\x01' AND octet_length(payload.features) > 1"
_OF_CASES = f"""
FROM (SELECT * FROM content WHERE labelled IS NOT NULL ORDER BY labelled DESC LIMIT {MOST}) AS content
JOIN item ON item.id = content.labelled AND item.state = 1 AND item.model = ANY(:models)
{LAST.format("content")}
"""
_LATEST = f"SELECT max(last.written_at) {_OF_CASES}"
_MARKER = """
SELECT (SELECT id FROM label WHERE action IN ('label', 'undo')
        AND NOT EXISTS (SELECT FROM inferred WHERE inferred.label = label.id) ORDER BY id DESC LIMIT 1),
    (SELECT concat(count(*), '-', sum(items + examples)) FROM deletion), (SELECT min(number) FROM month)
"""
_CASES = f"""
SELECT * FROM (
    SELECT item.model, item.id AS item, last.id AS action, content.label, content.contested,
        last.written_at, payload.features,
        sum(octet_length(payload.features)) OVER (ORDER BY item.id DESC) AS bytes
    {_OF_CASES} JOIN payload ON payload.id = item.id WHERE {_BINARY}
) AS found WHERE bytes <= {_MOST_BYTES} ORDER BY item DESC
"""
# If the nearest case has no label any more, all cases are compared again.
_TO_COMPARE = f"""
SELECT newest.id AS item, newest.model, content.key,
    CASE WHEN content.near IS NULL OR source.label IS NOT NULL THEN content.compared_at END AS compared_at
FROM (
    SELECT id, model FROM item WHERE state = 0 AND tier = {REJECTED} AND model = ANY(:models)
    ORDER BY id DESC LIMIT {MOST}
) AS newest
JOIN item_content AS known ON known.item = newest.id JOIN content USING (key)
LEFT JOIN item_content AS near ON near.item = content.near
LEFT JOIN content AS source ON source.key = near.key
WHERE content.label IS NULL AND (content.compared_at IS NULL
    OR content.compared_at < CAST(:latest AS timestamptz)
    OR (content.near IS NOT NULL AND source.label IS NULL))
"""
# Contents that are new, read by their index: those that wait are among the newest without a label.
_TO_COMPARE_NEW = f"""
SELECT item.id AS item, item.model, newest.key, newest.compared_at FROM (
    SELECT * FROM content WHERE label IS NULL AND compared_at IS NULL AND leader >= coalesce((
        SELECT leader FROM content WHERE label IS NULL AND leader IS NOT NULL
        ORDER BY leader DESC OFFSET {MOST} LIMIT 1
    ), 0) ORDER BY leader DESC LIMIT {MOST}
) AS newest
JOIN item ON item.id = newest.leader AND item.state = 0 AND item.tier = {REJECTED} AND model = ANY(:models)
"""
_FEATURES = f"SELECT id, features FROM payload WHERE id = ANY(:items) AND {_BINARY}"
_COMPARED = """
UPDATE content SET compared_at = :now,
    near = CASE WHEN :afresh OR found.distance <= coalesce(content.distance, 1) THEN found.near
        ELSE content.near END,
    distance = CASE WHEN :afresh THEN found.distance
        ELSE least(found.distance, content.distance) END
FROM unnest(CAST(:keys AS bytea[]), CAST(:near AS bigint[]), CAST(:distances AS float8[]))
    AS found (key, near, distance)
WHERE content.key = found.key
"""
# Not for the audit, nor for items that are looked at although they could be settled: they are to say what
# analysts find by themselves. MATERIALIZED: the planner might begin with all cases.
_SUGGESTED = f"""
WITH own AS MATERIALIZED (
    SELECT known.item, known.key, content.distance,
        CASE WHEN content.label IS NULL THEN near.key ELSE known.key END AS source
    FROM item_content AS known JOIN content ON content.key = known.key
    JOIN item ON item.id = known.item JOIN payload ON payload.id = item.id AND NOT payload.accepted
    LEFT JOIN item_content AS near ON near.item = content.near AND content.label IS NULL
    WHERE known.item = ANY(:ids) AND item.id = ANY(:ids) AND payload.id = ANY(:ids)
        AND NOT (item.state = 0 AND EXISTS (SELECT FROM settled_look AS look WHERE look.item = item.id))
)
SELECT own.item AS id, source.label, last.author, last.written_at AS labelled_at,
    CASE WHEN source.key = own.key THEN 0 ELSE own.distance END AS distance,
    source.labelled AS item, source.contested
FROM own JOIN content AS source ON source.key = own.source
{LAST.format("source")}
WHERE source.label IS NOT NULL AND source.labelled <> own.item
    AND EXISTS (SELECT FROM item_content AS kept WHERE kept.item = source.labelled)
"""


class StoredCase(NamedTuple):
    """A content of zeros and ones with the label of a person, which the item's ``action`` gave."""

    model: int
    item: int
    action: int
    label: str
    contested: bool
    written_at: datetime
    features: bytes


class ToCompare(NamedTuple):
    """A content that waits; without ``compared_at``, it is to be compared with all cases."""

    item: int
    model: int
    key: bytes
    compared_at: datetime | None


def with_suggestions(
    connection: Connection,
    items: list[dict[str, Any]],
    who: str | None,
    hidden_from: Callable[[list[int]], Collection[int]],
) -> list[dict[str, Any]]:
    """Return items with their suggestions; ``hidden_from`` returns those whose labels are not to be seen."""
    rows = connection.execute(text(_SUGGESTED), {"ids": [item["id"] for item in items]}).mappings().all()
    hidden = hidden_from([number for row in rows for number in (row["id"], row["item"])]) if rows else ()
    shown = {
        row["id"]: {name: row[name] for name in row if name != "id"}
        for row in rows
        if row["author"] == who or not {row["id"], row["item"]} & set(hidden)
    }
    return [
        item | {"suggestion": shown.get(item["id"]) if item["scores"] is None else None} for item in items
    ]


def as_rows(encoded: Sequence[bytes], width: int) -> Any:
    """Return encoded zeros and ones as CSR with a number of columns."""
    places = [np.frombuffer(each, dtype="<i4", offset=1) for each in encoded]
    indices = np.concatenate([np.empty(0, np.int32), *places])
    ends = np.cumsum([0, *map(len, places)])
    return sp.csr_array((np.ones(len(indices), np.float32), indices, ends), shape=(len(places), width))


class Suggesting:
    """Finds the nearest cases of contents that wait. ``then`` is called after that."""

    def __init__(self, engine: Engine, then: Callable[[], None] = lambda: None) -> None:
        self._engine, self._then, self._columns = engine, then, SharedColumns()
        self._marker: Any = None
        self._all_at = -math.inf

    def work(self) -> None:
        """Compare contents that wait with the cases, unless another process has just done so."""
        with self._engine.begin() as connection:
            turn = connection.execute(text(_TURN), {"seconds": EVERY}).first()
        if turn is not None:
            self.compare()
            self._then()

    def compare(self) -> int:
        """Compare contents with cases that they have not been compared with; return their number."""
        with self._engine.connect() as connection:
            models = self._columns.read(connection)
            due = self._due(connection, models)
            if not due:
                return 0
            now = connection.execute(text("SELECT now()")).scalar_one()
            cases = read_cases(connection, models)
        known = [each.compared_at for each in due if each.compared_at is not None]
        newer = [case for case in cases if case.written_at > min(known, default=now) - _LATE]
        end, compared = time.monotonic() + _LONGEST, 0
        for afresh, among in ((True, cases), (False, newer)):
            own = self._columns.divide(among)
            chosen = (each for each in due if (each.compared_at is None) is afresh)
            for columns, contents in self._columns.divide(chosen).items():
                index = _CaseIndex(own.get(columns, []), columns.width)
                compared += self._compare(contents, index, now, afresh, end)
        return compared

    def _due(self, connection: Connection, models: list[int]) -> list[ToCompare]:
        """Return contents to compare: those that are new or, if cases may have changed, of all that wait.

        All are looked at until nothing is left to compare.
        """
        marker = marker_of_cases(connection)
        if marker == self._marker and time.monotonic() < self._all_at:
            found = connection.execute(text(_TO_COMPARE_NEW), {"models": models})
            return [ToCompare(*row) for row in found]
        latest = connection.execute(text(_LATEST), {"models": models}).scalar()
        given = {"models": models, "latest": None if latest is None else latest + _LATE}
        due = [ToCompare(*row) for row in connection.execute(text(_TO_COMPARE), given)]
        if not due:
            self._marker, self._all_at = marker, time.monotonic() + ALL_EVERY
        return due

    def _compare(
        self, contents: list[ToCompare], index: "_CaseIndex", now: datetime, afresh: bool, end: float
    ) -> int:
        """Compare contents with cases, until a time; return their number."""
        for start in range(0, len(contents), _AT_ONCE):
            if time.monotonic() > end:
                return start
            some = contents[start : start + _AT_ONCE]
            with self._engine.connect() as connection:
                items = {"items": [each.item for each in some]}
                features = {row.id: bytes(row.features) for row in connection.execute(text(_FEATURES), items)}
            near = index.nearest(features)
            found = [near.get(each.item, (None, None)) for each in some]
            given = {"now": now, "afresh": afresh, "keys": [each.key for each in some]}
            given |= {"near": [item for item, _ in found], "distances": [distance for _, distance in found]}
            with self._engine.begin() as connection:
                connection.execute(text("SELECT pg_advisory_xact_lock(3, 2)"))  # see campaigns
                connection.execute(text(_COMPARED), given)
        return len(contents)


def marker_of_cases(connection: Connection) -> tuple[Any, ...]:
    """Return what changes when cases come or go: the last label or undo of a person, and deletions."""
    return tuple(connection.execute(text(_MARKER)).one())


def read_cases(connection: Connection, models: list[int]) -> list[StoredCase]:
    """Return the cases of zeros and ones, the newest first."""
    rows = connection.execute(text(_CASES), {"models": models})
    return [StoredCase._make(row[:-1])._replace(features=bytes(row.features)) for row in rows]


class _CaseIndex:
    """Finds the nearest of cases with the same columns."""

    def __init__(self, cases: list[StoredCase], width: int) -> None:
        self._cases, self._width = cases, width
        self._index = JaccardIndex(as_rows([case.features for case in cases], width)) if cases else None

    def nearest(self, features: dict[int, bytes]) -> dict[int, tuple[int, float]]:
        """Return the nearest case of each item that shares a feature with one, and its distance."""
        if self._index is None or not features:
            return {}
        found = self._index.nearest(as_rows(list(features.values()), self._width), 1)
        places, distances = found.positions[:, 0].tolist(), found.distances[:, 0].tolist()
        pairs = zip(features, places, distances, strict=True)
        return {item: (self._cases[place].item, distance) for item, place, distance in pairs if distance < 1}
