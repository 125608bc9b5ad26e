"""Suggestions: the nearest resolved case of an item that waits, with its label. They decide nothing.

A case is a content to which a person has given a label that is a class. Items with the same content are found
when they are shown. Near content, of rows of zeros and ones, is found beforehand, by one process at a time.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import orjson
import scipy.sparse as sp
from sqlalchemy import Connection, Engine, text

from transcendent.explaining.distances import JaccardIndex
from transcendent.gate.intake import REJECTED

EVERY = 30.0
"""Seconds between two looks for items without a suggestion."""
MOST = 20_000
"""Limit on the cases, and on the items that are compared with them: the newest."""
_MOST_BYTES = 32 << 20  # features of these
_AT_ONCE = 500  # contents in a transaction
_LONGEST = 5.0  # seconds, so that a gate that stops does not wait long; the next time goes on from there
_LATE = timedelta(minutes=1)  # a label may be committed after others that were written later

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
# Read once: a model may have many feature names.
_MODELS = """
SELECT id, features - '{dtypes,shown_names}'::text[] AS features, classes FROM model
WHERE id <> ALL(:known)"""
# The first byte of encoded zeros and ones; rows without any feature are near nothing.
_BINARY = r"substring(payload.features FROM 1 FOR 1) = '\x01' AND octet_length(payload.features) > 1"
_OF_CASES = f"""
FROM (SELECT * FROM content WHERE labelled IS NOT NULL ORDER BY labelled DESC LIMIT {MOST}) AS content
JOIN item ON item.id = content.labelled AND item.state = 1 AND item.model = ANY(:models)
{LAST.format("content")}
"""
_LATEST = f"SELECT max(last.written_at) {_OF_CASES}"
_MARKER = f"SELECT count(*), max(last.id) {_OF_CASES}"
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
# analysts find by themselves.
_SUGGESTED = f"""
SELECT own.item AS id, source.label, last.author, last.written_at AS labelled_at,
    CASE WHEN source.key = own.key THEN 0 ELSE content.distance END AS distance,
    source.labelled AS item, source.contested
FROM item_content AS own JOIN content USING (key)
JOIN item ON item.id = own.item JOIN payload ON payload.id = item.id AND NOT payload.accepted
LEFT JOIN item_content AS near ON near.item = content.near AND content.label IS NULL
JOIN content AS source ON source.key = CASE WHEN content.label IS NULL THEN near.key ELSE own.key END
{LAST.format("source")}
WHERE own.item = ANY(:ids) AND item.id = ANY(:ids) AND payload.id = ANY(:ids) AND source.label IS NOT NULL
    AND EXISTS (SELECT FROM item_content AS kept WHERE kept.item = source.labelled)
    AND source.labelled <> own.item
    AND NOT (item.state = 0 AND EXISTS (SELECT FROM settled_look AS look WHERE look.item = item.id))
"""


class ContentColumns(NamedTuple):
    """What models that share contents have in common: a digest of columns and classes, and some of it."""

    digest: bytes
    width: int
    classes: tuple[str, ...]


class Case(NamedTuple):
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


class OfModel(Protocol):
    """A row that belongs to a model."""

    @property
    def model(self) -> int:
        """The number of the model."""


T = TypeVar("T", bound=OfModel)


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


class SharedColumns:
    """Which models share contents: those with the same columns and classes. Models of scores are left out."""

    def __init__(self) -> None:
        self._known: dict[int, ContentColumns | None] = {}

    def read(self, connection: Connection) -> list[int]:
        """Read what is new, and return the models."""
        for row in connection.execute(text(_MODELS), {"known": list(self._known)}):
            described = orjson.dumps([row.features, row.classes], option=orjson.OPT_SORT_KEYS)
            classes = tuple(map(str, row.classes))
            columns = ContentColumns(sha256(described).digest(), row.features["count"] or 0, classes)
            self._known[row.id] = None if "scores" in row.features else columns
        return [model for model, columns in self._known.items() if columns is not None]

    def divide(self, rows: Iterable[T]) -> dict[ContentColumns, list[T]]:
        """Return cases or contents by the columns of their models."""
        found: dict[ContentColumns, list[T]] = defaultdict(list)
        for row in rows:
            if columns := self._known.get(row.model):
                found[columns].append(row)
        return found


class Suggesting:
    """Finds the nearest cases of contents that wait. ``then`` is called after that."""

    def __init__(self, engine: Engine, then: Callable[[], None] = lambda: None) -> None:
        self._engine, self._then, self._columns = engine, then, SharedColumns()

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
            given: dict[str, Any] = {"models": self._columns.read(connection)}
            latest = connection.execute(text(_LATEST), given).scalar()
            given["latest"] = None if latest is None else latest + _LATE
            due = [ToCompare(*row) for row in connection.execute(text(_TO_COMPARE), given)]
            if not due:
                return 0
            now = connection.execute(text("SELECT now()")).scalar_one()
            cases = read_cases(connection, given["models"])
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


def marker_of_cases(connection: Connection, models: list[int]) -> tuple[int, int | None]:
    """Return what changes when cases come or go: their number, and that of the latest label."""
    count, last = connection.execute(text(_MARKER), {"models": models}).one()
    return count, last


def read_cases(connection: Connection, models: list[int]) -> list[Case]:
    """Return the cases of zeros and ones, the newest first."""
    rows = connection.execute(text(_CASES), {"models": models})
    return [Case._make(row[:-1])._replace(features=bytes(row.features)) for row in rows]


class _CaseIndex:
    """Finds the nearest of cases with the same columns."""

    def __init__(self, cases: list[Case], width: int) -> None:
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
