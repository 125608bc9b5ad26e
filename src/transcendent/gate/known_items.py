"""Labelled items in memory, for explanations to compare with: read on request, and forgotten in time."""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import structlog
from sqlalchemy import Connection, Engine, text

from transcendent.errors import GateSettingsError
from transcendent.explaining import KnownObjects
from transcendent.gate.features import Group
from transcendent.gate.model import Model
from transcendent.gate.quarantine import Quarantine
from transcendent.gate.reference import LabelledObject, Reference, rows_from
from transcendent.tables.layout import DIFFERING

MAX_KNOWN = 20_000
"""Limit on the labelled items that are compared with: the newest labels."""
MAX_BYTES = 64 << 20
"""Limit on their features as they are stored."""
MAX_CELLS = 4 << 20
"""Limit on the values of rows that are not sparse."""
REFRESHED = 60.0
"""Seconds after which labels are read again, and between looks for deletions."""
_UNUSED = 600.0  # seconds after which items that no explanation needs are forgotten
_LOOKED_AT = 3 * MAX_KNOWN  # newest labels among which those of other models' columns are skipped
_AT_ONCE = 1000
_MAX_PREPARED = 2  # analysts and operators may compare with different items

log = structlog.get_logger("transcendent.gate")

# With outdated statistics, the planner would read whole tables and join them.
_BY_INDEX = """
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true),
    set_config('max_parallel_workers_per_gather', '0', true)"""
# What is compared must have the columns; the types in the fit, and names that are only shown, may differ.
_MODELS = "SELECT id FROM model WHERE features - '{dtypes,shown_names}'::text[] = CAST(:columns AS jsonb)"
# Labels that people gave to the object itself, and that are its item's last action; not those of other
# systems.
_BY_PEOPLE = """
NOT EXISTS (SELECT FROM label AS later WHERE later.item = said.item AND later.id > said.id)
    AND NOT EXISTS (SELECT FROM outside_label WHERE outside_label.action = said.id)"""
# Labels that nobody gave are left out first, since one label may have had thousands of copies. Deleted
# objects are neither items nor examples. All labels are listed each time, since an undo, a deletion or a
# label that was committed late may concern any of them; only the features of new ones are read.
_LISTED = f"""
SELECT said.item, said.label FROM (
    SELECT id, item, label FROM label WHERE action = 'label'
        AND NOT EXISTS (SELECT FROM inferred WHERE inferred.label = label.id)
    ORDER BY id DESC LIMIT :looked_at
) AS said
LEFT JOIN item ON item.id = said.item AND item.state = 1 LEFT JOIN example ON example.id = said.item
WHERE coalesce(item.model, example.model) = ANY(:models) AND {_BY_PEOPLE}
ORDER BY said.id DESC LIMIT :limit
"""
_DAY = "to_char(coalesce(seen_at, received_at) AT TIME ZONE 'UTC', 'YYYY-MM-DD')"
_FEATURES = f"""
SELECT item.id, object_id, {_DAY} AS day, features FROM unnest(CAST(:items AS bigint[])) AS wanted (id)
JOIN item ON item.id = wanted.id JOIN payload ON payload.id = wanted.id
UNION ALL SELECT id, object_id, {_DAY}, features FROM example WHERE id = ANY(:items)
"""
# Each step of a deletion adds to its row what it has deleted.
_DELETED = "SELECT count(*), coalesce(sum(items + examples), 0)::bigint FROM deletion"


class ComparedObjects(NamedTuple):
    """Known objects, and the item of each; ``problem`` says why the reference file is not among them."""

    known: KnownObjects | None
    items: list[int | None]
    problem: str | None = None


@dataclass(frozen=True)
class _Remembered:
    """Labelled items with some columns, newest first, and when they were read.

    ``deleted`` is what had been deleted before. ``hidden`` are items whose label analysts must not see.
    ``prepared`` are rows for a model and for one kind of reader.
    """

    columns: str
    read_at: float
    deleted: tuple[int, ...]
    objects: dict[int, LabelledObject]
    hidden: frozenset[int]
    prepared: dict[tuple[str, bool], ComparedObjects] = field(default_factory=dict)


class KnownItems:
    """The labelled items with the columns of a model, and the objects of a reference file.

    Nothing is read before the first explanation. One thread at a time calls `of`; `forget` may run beside.
    """

    def __init__(
        self,
        engine: Engine,
        quarantine: Quarantine,
        reference: Reference | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._quarantine, self._reference, self._clock = engine, quarantine, reference, clock
        self._lock, self._used_at = Lock(), -np.inf
        self._remembered: _Remembered | None = None

    def of(self, model: Model, who: str | None, *, again: bool = False) -> ComparedObjects:
        """Return what objects of a model are compared with: for an analyst, without labels hidden from them.

        ``who`` is None for an operator. Labels are read if they were not for a minute, or ``again``.
        """
        if model.scores is not None:
            return ComparedObjects(None, [])
        self._used_at = self._clock()
        described = model.layout.description()
        columns = json.dumps({key: described[key] for key in described.keys() - DIFFERING}, sort_keys=True)
        found = self._remembered
        if found is None or found.columns != columns or again or self._used_at >= found.read_at + REFRESHED:
            found = self._read(model, columns, found if found and found.columns == columns else None)
            with self._lock:
                self._remembered = found
        key = model.digest, who is not None and bool(found.hidden)
        if key not in found.prepared:
            while len(found.prepared) >= _MAX_PREPARED:
                del found.prepared[next(iter(found.prepared))]
            found.prepared[key] = self._prepare(model, found, key[1])
        return found.prepared[key]

    def check(self, model: Model) -> None:
        """Log it if the reference file does not fit a model: explanations then do without it."""
        if self._reference is not None:
            try:
                self._reference.objects(model)
            except GateSettingsError as error:
                log.error("the reference is not used", problem=str(error))

    def forget(self) -> None:
        """Forget the items if objects were deleted since they were read, or if nobody needs them."""
        found = self._remembered
        if found is None:
            return
        with self._engine.connect() as connection:
            deleted = _deleted(connection)
        if deleted != found.deleted or self._clock() >= self._used_at + _UNUSED:
            with self._lock:
                if self._remembered is found:
                    self._remembered = None

    def _read(self, model: Model, columns: str, before: _Remembered | None) -> _Remembered:
        """Read labels, and the features of items that are not remembered."""
        read_at, limit = self._clock(), _most(model)
        with self._engine.begin() as connection:
            connection.execute(text(_BY_INDEX))
            deleted = _deleted(connection)
            models = connection.execute(text(_MODELS), {"columns": columns}).scalars().all()
            given = {"looked_at": _LOOKED_AT, "models": models, "limit": limit}
            listed = {row.item: row.label for row in connection.execute(text(_LISTED), given)}
        known = {} if before is None else before.objects
        objects = self._with_features(listed, known)
        hidden = frozenset(self._quarantine.hidden_from("an analyst", list(objects)))
        found = _Remembered(columns, read_at, deleted, objects, hidden)
        same = before is not None and (before.objects, before.hidden) == (objects, hidden)
        return replace(found, prepared=before.prepared) if before is not None and same else found

    def _with_features(
        self, labels: dict[int, str], known: dict[int, LabelledObject]
    ) -> dict[int, LabelledObject]:
        """Return labelled items in their order, up to a limit on bytes."""
        objects: dict[int, LabelledObject] = {}
        items, size = list(labels), 0
        for start in range(0, len(items), _AT_ONCE):
            part = items[start : start + _AT_ONCE]
            missing = [item for item in part if item not in known]
            with self._engine.begin() as connection:
                connection.execute(text(_BY_INDEX))
                rows = connection.execute(text(_FEATURES), {"items": missing}).all() if missing else []
            new = {row.id: (row.object_id, row.day, bytes(row.features)) for row in rows}
            for item in part:
                if item in known:
                    own = known[item]._replace(label=labels[item])
                elif item in new:  # otherwise it was deleted meanwhile
                    name, day, encoded = new[item]
                    own = LabelledObject(item, name, labels[item], day, encoded)
                else:
                    continue
                if (size := size + len(own.encoded)) > MAX_BYTES:
                    return objects
                objects[item] = own
        return objects

    def _prepare(self, model: Model, found: _Remembered, without_hidden: bool) -> ComparedObjects:
        """Return rows of items and of the reference file that a model can decide."""
        chosen = [
            each for each in found.objects.values() if not without_hidden or each.item not in found.hidden
        ]
        problem = None
        if self._reference is not None:
            try:
                objects = self._reference.objects(model)
                chosen += objects[:: -(-len(objects) // _most(model)) or 1]
            except GateSettingsError as error:
                problem = str(error)
        classes = {str(label): code for code, label in enumerate(model.classes)}
        chosen = [each for each in chosen if each.label in classes]  # others, such as unclear, are not known
        if chosen:
            rows = rows_from(model.layout, [each.encoded for each in chosen], sparse=takes_sparse(model))
            whole = model.refuse_missing(Group(np.arange(len(chosen)), rows), {})
            chosen, rows = [chosen[place] for place in whole.places.tolist()], whole.rows
        if not chosen:
            return ComparedObjects(None, [], problem)
        labels = np.array(model.classes)[[classes[each.label] for each in chosen]]
        times, ids = (np.array([*each, None], dtype=object)[:-1] for each in _times_and_ids(chosen))
        known = KnownObjects(rows, labels, times, ids)
        return ComparedObjects(known, [each.item for each in chosen], problem)


def takes_sparse(model: Model) -> bool:
    """Return whether a model decides sparse rows as they are; others decide them as arrays."""
    return model.layout.names is None and bool(getattr(model.rejector, "fitted_on_sparse_", False))


def _most(model: Model) -> int:
    """Return the number of objects to compare with; fewer if their rows are wide and not sparse."""
    return (
        MAX_KNOWN if takes_sparse(model) else min(MAX_KNOWN, max(1, MAX_CELLS // max(1, model.layout.width)))
    )


def _deleted(connection: Connection) -> tuple[int, ...]:
    return tuple(connection.execute(text(_DELETED)).one())


def _times_and_ids(objects: Iterable[LabelledObject]) -> tuple[list[Any], list[Any]]:
    return [each.time for each in objects], [each.object_id for each in objects]
