"""Counts of what a gate decided, by minute and deployment, for the monitors.

Requests only add to counts in memory; every few seconds they are flushed to the database. A row belongs to
one process, minute and deployment, and is replaced as a whole by a larger one. So a flush may be repeated,
even if nobody knows whether it was committed.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from uuid import UUID

from sqlalchemy import Connection, Engine, text

EVERY = 5.0  # seconds between flushes: a process that is killed loses the counts of as many
STORED = 1440  # minutes for which rows stay after they were folded, so that a process can tell what was
_MAX_HELD = 60  # minutes with counts that are held while the database is away

Key = tuple[int, int]
"""A minute and a deployment."""

# Shared with other flushes: only folding waits for them, and they for it. So no row is added to a minute
# while it is folded, or after.
_LOCK = "SELECT pg_advisory_xact_lock_shared(3, 0)"
_FOLDED = "SELECT deployment, folded FROM monitor"
_STORED = """
SELECT cells, counts FROM minute_counts
WHERE deployment = :deployment AND minute = :minute AND process = :process
"""
_ADD = """
INSERT INTO minute_counts AS known (deployment, minute, process, objects, cells, counts)
VALUES (:deployment, :minute, :process, :objects, :cells, :counts)
ON CONFLICT (deployment, minute, process) DO UPDATE
SET objects = excluded.objects, cells = excluded.cells, counts = excluded.counts
WHERE excluded.objects > known.objects
"""
_FLUSHED = "UPDATE process SET flushed = :minute WHERE id = :process AND flushed IS DISTINCT FROM :minute"


class Minutes:
    """The counts of one process. ``clock`` returns seconds since 1970."""

    def __init__(self, engine: Engine, process: UUID, clock: Callable[[], float] = time.time) -> None:
        self._engine, self._process, self._clock = engine, process, clock
        self._lock = Lock()
        self._minute = 0
        self._counts: dict[Key, Counter[int]] = {}

    def add(self, deployment: int, cells: Iterable[int]) -> None:
        """Count objects that a deployment has decided, given by their cells (see `ObservedDecisions`)."""
        with self._lock:
            key = self._now(), deployment
            if key not in self._counts:
                self._counts[key] = Counter()
                if len(self._counts) > _MAX_HELD:
                    del self._counts[min(self._counts)]
            self._counts[key].update(cells)

    def flush(self) -> None:
        """Store the counts, and say up to which minute they are complete."""
        with self._engine.begin() as connection:
            connection.execute(text(_LOCK))
            folded = {row.deployment: row.folded for row in connection.execute(text(_FOLDED))}
            stored = self._stored(connection, folded)
            with self._lock:
                self._move_late(folded, stored)
                now = self._now()
                counts = {key: dict(own) for key, own in self._counts.items() if own}
            if counts:
                connection.execute(text(_ADD), [self._row(*each) for each in sorted(counts.items())])
            connection.execute(text(_FLUSHED), {"process": self._process, "minute": now - 1})
        with self._lock:
            for key in [key for key in self._counts if key[0] < now]:
                del self._counts[key]

    def _now(self) -> int:
        """Return the current minute; never one before, which this process may have called complete."""
        self._minute = max(self._minute, int(self._clock() // 60))
        return self._minute

    def _row(self, key: Key, counts: Mapping[int, int]) -> dict[str, object]:
        (minute, deployment), cells = key, sorted(counts)
        numbers = [counts[cell] for cell in cells]
        row = {"objects": sum(numbers), "cells": cells, "counts": numbers}
        return {"deployment": deployment, "minute": minute, "process": self._process, **row}

    def _stored(self, connection: Connection, folded: Mapping[int, int]) -> dict[Key, Counter[int]]:
        """Return what was folded of the minutes in memory that no longer take counts."""
        with self._lock:
            late = [key for key in self._counts if key[0] <= folded.get(key[1], -1)]
        found: dict[Key, Counter[int]] = {}
        for minute, deployment in late:
            given = {"deployment": deployment, "minute": minute, "process": self._process}
            row = connection.execute(text(_STORED), given).first()
            found[minute, deployment] = Counter(dict(zip(*row, strict=True)) if row else {})
        return found

    def _move_late(self, folded: Mapping[int, int], stored: Mapping[Key, Counter[int]]) -> None:
        """Move what came too late for its minute to one that is open.

        Rows that were folded do not change any more. So it does not matter whether this flush is committed.
        """
        self._minute = max([self._minute, *(folded[deployment] + 1 for _, deployment in stored)])
        for key, known in stored.items():
            rest, deployment = self._counts.pop(key) - known, key[1]
            if rest and key[0] > folded[deployment] - STORED:  # of older ones, nobody knows what was folded
                self._counts.setdefault((self._minute, deployment), Counter()).update(rest)
