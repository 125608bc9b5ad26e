"""Which gates are running, and what they serve."""

import os
import socket
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Engine, text

from transcendent import __version__

EVERY = 1.0  # seconds between heartbeats
LIVE = 10.0  # seconds without a heartbeat after which a process counts as dead

_BEAT = """
INSERT INTO process (id, host, pid, version, deployment, loaded, problem, p99)
VALUES (:id, :host, :pid, :version, :deployment, :loaded, :problem, :p99)
ON CONFLICT (id) DO UPDATE SET deployment = excluded.deployment, loaded = excluded.loaded,
    problem = excluded.problem, p99 = excluded.p99, seen_at = now()
"""
_LIVE = """
SELECT id, host, pid, version, deployment, loaded, problem, started_at, seen_at FROM process
WHERE seen_at > now() - make_interval(secs => :seconds) ORDER BY started_at, id
"""


class Process:
    """This process, as the database knows it. ``p99`` returns the seconds of its slow answers, if known."""

    def __init__(self, engine: Engine, p99: Callable[[], float | None] = lambda: None) -> None:
        self.id: UUID = uuid4()
        self._engine, self._p99 = engine, p99

    def beat(self, deployment: int | None, loaded: Sequence[int], problem: str | None = None) -> None:
        """Say that the process lives, what it serves, and what it has loaded or could not load."""
        given = {
            "id": self.id,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": __version__,
            "deployment": deployment,
            "loaded": list(loaded),
            "problem": problem,
            "p99": self._p99(),
        }
        with self._engine.begin() as connection:
            connection.execute(text(_BEAT), given)

    def leave(self) -> None:
        """Say that the process has ended."""
        with self._engine.begin() as connection:
            connection.execute(text("DELETE FROM process WHERE id = :id"), {"id": self.id})


def live_processes(connection: Connection) -> list[dict[str, Any]]:
    """Return the processes that live, oldest first."""
    rows = connection.execute(text(_LIVE), {"seconds": LIVE}).mappings()
    return [dict(row) for row in rows]
