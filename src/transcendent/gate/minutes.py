"""Counts of what a gate decided, and sums of its features, by minute and deployment, for the monitors.

Requests only add to counts in memory; every few seconds they are flushed to the database. A row belongs to
one process, minute and deployment, and is replaced as a whole by a larger one. So a flush may be repeated,
even if nobody knows whether it was committed.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any
from uuid import UUID

import numpy as np
from sqlalchemy import Connection, Engine, text

from transcendent._utils.arrays import AnyArray
from transcendent.gate.moving import RowRange, WatchedFeatures

EVERY = 5.0  # seconds between flushes: a process that is killed loses the counts of as many
STORED = 1440  # minutes for which rows stay after they were folded, so that a process can tell what was
_MAX_VALUES, _MAX_PARTS = 1 << 15, 1000  # of rows that wait to be added up: what a processor's cache holds
_MAX_HELD = 60  # minutes with counts that are held while the database is away

Key = tuple[int, int]
"""A minute and a deployment."""

# Shared with other flushes: only folding waits for them, and they for it. So no row is added to a minute
# while it is folded, or after. No minute is later than the database's clock says: what a clock that is wrong
# has called a minute would otherwise be the last one that is folded, for all processes.
_LOCK = """
SELECT floor(extract(epoch FROM now()) / 60)::bigint AS latest FROM pg_advisory_xact_lock_shared(3, 0)
"""
_FOLDED = "SELECT deployment, folded FROM monitor"
_STORED = """
SELECT cells, counts, sums FROM minute_counts
WHERE deployment = :deployment AND minute = :minute AND process = :process
"""
_ADD = """
INSERT INTO minute_counts AS known (deployment, minute, process, objects, cells, counts, sums)
VALUES (:deployment, :minute, :process, :objects, :cells, :counts, :sums)
ON CONFLICT (deployment, minute, process) DO UPDATE
SET objects = excluded.objects, cells = excluded.cells, counts = excluded.counts, sums = excluded.sums
WHERE excluded.objects > known.objects
"""
_FLUSHED = "UPDATE process SET flushed = :minute WHERE id = :process AND flushed IS DISTINCT FROM :minute"


class MinuteCounts:
    """The number of objects in each cell, and sums of their features, if there are any."""

    def __init__(self, cells: Mapping[int, int] | None = None, sums: AnyArray | None = None) -> None:
        self.cells = Counter(cells or {})
        self.sums = sums
        self._waiting: list[RowRange] = []
        self._values = 0

    def add(self, cells: Iterable[int] | Mapping[int, int], sums: AnyArray | None) -> None:
        """Add objects whose features have been added up."""
        self.cells.update(cells)
        self.sums = add_sums(self.sums, sums)

    def observe(
        self, cells: Iterable[int], watched: WatchedFeatures | None, parts: Sequence[RowRange]
    ) -> None:
        """Add objects. Their rows wait for others: adding up few takes NumPy as long as deciding them."""
        self.cells.update(cells)
        if watched is None:
            return
        self._waiting += parts
        self._values += sum(part.values for part in parts)
        if self._values >= _MAX_VALUES or len(self._waiting) >= _MAX_PARTS:
            self.add_up(watched)

    def add_up(self, watched: WatchedFeatures | None) -> None:
        """Add up the features of rows that wait."""
        if watched is not None and self._waiting:
            self.sums = add_sums(self.sums, watched.sums(self._waiting))
        self._waiting, self._values = [], 0

    def without(self, known: "MinuteCounts") -> "MinuteCounts":
        """Return what is left without other objects."""
        sums = self.sums
        if sums is not None and known.sums is not None:
            sums = add_sums(sums, -known.sums)
        return MinuteCounts(self.cells - known.cells, sums)


def add_sums(one: AnyArray | None, other: AnyArray | None) -> AnyArray | None:
    """Add up sums; what has none, or sums of other features, adds nothing."""
    if one is None or other is None:
        return other if one is None else one
    return one + other if len(one) == len(other) else one


class Minutes:
    """The counts of one process. ``clock`` returns seconds since 1970."""

    def __init__(self, engine: Engine, process: UUID, clock: Callable[[], float] = time.time) -> None:
        self._engine, self._process, self._clock = engine, process, clock
        self._lock = Lock()
        self._minute = 0
        self._counts: dict[Key, MinuteCounts] = {}
        self._watched: dict[int, WatchedFeatures | None] = {}

    def add(
        self,
        deployment: int,
        cells: Iterable[int],
        watched: WatchedFeatures | None = None,
        parts: Sequence[RowRange] = (),
    ) -> None:
        """Count objects that a deployment has decided: their cells (see `ObservedDecisions`) and rows."""
        with self._lock:
            self._watched[deployment] = watched
            key = self._now(), deployment
            if key not in self._counts:
                self._counts[key] = MinuteCounts()
                if len(self._counts) > _MAX_HELD:
                    del self._counts[min(self._counts)]
            self._counts[key].observe(cells, watched, parts)

    def flush(self) -> None:
        """Store the counts, and say up to which minute they are complete."""
        with self._engine.begin() as connection:
            latest = connection.execute(text(_LOCK)).scalar_one()
            folded = {row.deployment: row.folded for row in connection.execute(text(_FOLDED))}
            stored = self._stored(connection, folded)
            with self._lock:
                for (_, deployment), own in self._counts.items():
                    own.add_up(self._watched.get(deployment))
                now = self._move(folded, stored, latest)
                counts = {
                    key: MinuteCounts(own.cells, own.sums) for key, own in self._counts.items() if own.cells
                }
            if counts:
                connection.execute(text(_ADD), [self._row(*each) for each in sorted(counts.items())])
            connection.execute(text(_FLUSHED), {"process": self._process, "minute": now - 1})
        with self._lock:
            for key in [key for key in self._counts if key[0] < now]:
                del self._counts[key]

    def _now(self) -> int:
        """Return the current minute; never one that this process may have called complete."""
        return max(self._minute, int(self._clock() // 60))

    def _row(self, key: Key, counts: MinuteCounts) -> dict[str, object]:
        (minute, deployment), cells = key, sorted(counts.cells)
        numbers = [counts.cells[cell] for cell in cells]
        sums = None if counts.sums is None else counts.sums.tolist()
        row = {"objects": sum(numbers), "cells": cells, "counts": numbers, "sums": sums}
        return {"deployment": deployment, "minute": minute, "process": self._process, **row}

    def _stored(self, connection: Connection, folded: Mapping[int, int]) -> dict[Key, MinuteCounts]:
        """Return what was folded of the minutes in memory that no longer take counts."""
        with self._lock:
            late = [key for key in self._counts if key[0] <= folded.get(key[1], -1)]
        found: dict[Key, MinuteCounts] = {}
        for minute, deployment in late:
            given = {"deployment": deployment, "minute": minute, "process": self._process}
            row = connection.execute(text(_STORED), given).first()
            found[minute, deployment] = counts_of(row) if row else MinuteCounts()
        return found

    def _move(self, folded: Mapping[int, int], stored: Mapping[Key, MinuteCounts], latest: int) -> int:
        """Move what came too late for its minute, or is of one to come, to the current one; return that.

        Rows that were folded do not change any more, and none is stored of a minute to come. So it does not
        matter whether this flush is committed.
        """
        now = max(self._minute, min(self._now(), latest), *(folded[each] + 1 for _, each in stored))
        for key, known in stored.items():
            rest, deployment = self._counts.pop(key).without(known), key[1]
            if rest.cells and key[0] > max(folded[deployment], now) - STORED:  # of older ones, nobody knows
                self._counts.setdefault((now, deployment), MinuteCounts()).add(rest.cells, rest.sums)
        for key in [key for key in self._counts if key[0] > now]:
            ahead = self._counts.pop(key)
            self._counts.setdefault((now, key[1]), MinuteCounts()).add(ahead.cells, ahead.sums)
        self._minute = now
        return now


def counts_of(row: Any) -> MinuteCounts:
    """Return the counts of a row: cells, their numbers, and sums."""
    cells, numbers, sums = row
    return MinuteCounts(dict(zip(cells, numbers, strict=True)), None if sums is None else np.array(sums))
