"""What gates decided, by day and deployment: how many objects, and how many of them they rejected.

Requests only add to counts in memory; every few seconds they are flushed to the database. A row belongs to
one process, day and deployment, and is replaced as a whole by a larger one, so a flush may be repeated.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from threading import Lock
from uuid import UUID

from sqlalchemy import Connection, Engine, text

EVERY = 5.0  # seconds between flushes: a process that is killed loses the counts of as many
_MAX_HELD = 60  # days and deployments with counts that are held while the database is away

# No day is later than the database's clock says.
_TODAY = "SELECT (now() AT TIME ZONE 'UTC')::date - CAST('1970-01-01' AS date)"
_ADD = """
INSERT INTO decided_day AS known (day, deployment, process, objects, rejected)
VALUES (CAST('1970-01-01' AS date) + CAST(:day AS int), :deployment, :process, :objects, :rejected)
ON CONFLICT (day, deployment, process) DO UPDATE
SET objects = excluded.objects, rejected = excluded.rejected WHERE excluded.objects > known.objects
"""

# The time of an analyst begins anew, see `migrations/versions/v0001/days.sql`.
_BEGIN = """
INSERT INTO work (day, author, last_at) VALUES ((now() AT TIME ZONE 'UTC')::date, :who, now())
"""


def begin_work(connection: Connection, who: str, items: Sequence[int]) -> None:
    """Note that an analyst has begun to look at items that were claimed."""
    if items:
        connection.execute(text(_BEGIN), {"who": who})


class DecidedDays:
    """The counts of one process. ``clock`` returns seconds since 1970."""

    def __init__(self, engine: Engine, process: UUID, clock: Callable[[], float] = time.time) -> None:
        self._engine, self._process, self._clock = engine, process, clock
        self._lock, self._day = Lock(), 0
        self._objects: Counter[tuple[int, int]] = Counter()  # by day and deployment
        self._rejected: Counter[tuple[int, int]] = Counter()

    def add(self, deployment: int, objects: int, rejected: int) -> None:
        """Count objects that a deployment has decided."""
        if not objects:
            return
        with self._lock:
            key = self._now(), deployment
            self._objects[key] += objects
            self._rejected[key] += rejected
            if len(self._objects) > _MAX_HELD:
                self._drop(min(self._objects))

    def flush(self) -> None:
        """Store the counts."""
        with self._engine.begin() as connection:
            today = connection.execute(text(_TODAY)).scalar_one()
            with self._lock:
                self._move(today)
                rows = [
                    {"day": day, "deployment": deployment, "process": self._process}
                    | {"objects": n, "rejected": self._rejected[day, deployment]}
                    for (day, deployment), n in sorted(self._objects.items())
                ]
            if rows:
                connection.execute(text(_ADD), rows)
        with self._lock:
            for key in [key for key in self._objects if key[0] < self._day]:
                self._drop(key)

    def _now(self) -> int:
        """Return the current day; never one before that of the last flush, whose row may be complete."""
        return max(self._day, int(self._clock() // 86_400))

    def _move(self, today: int) -> None:
        """Move what is of a day to come to the current one; no row of such a day is stored."""
        now = self._day = max(self._day, min(self._now(), today))
        for key in [key for key in self._objects if key[0] > now]:
            self._objects[now, key[1]] += self._objects[key]
            self._rejected[now, key[1]] += self._rejected[key]
            self._drop(key)

    def _drop(self, key: tuple[int, int]) -> None:
        del self._objects[key]
        self._rejected.pop(key, None)
