"""Check whether a gate can decide and store objects, by trying."""

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import psycopg
import structlog
from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError

from transcendent.errors import TranscendentError
from transcendent.gate.access import LOOK_UP
from transcendent.gate.database import check_months, check_version
from transcendent.gate.intake import try_keeping
from transcendent.gate.service import Service

KNOWN_FOR = 1  # seconds for which a result is reused
DEADLINE = 2  # seconds for the database to answer
STUCK = 5  # seconds for a commit
WARN_EVERY = 3600  # seconds until a warning is repeated

log = structlog.get_logger("transcendent.gate")


class Readiness:
    """Finds out why a gate is not ready; ``tokens`` is whether callers need one."""

    def __init__(
        self, service: Service, engine: Engine, *, tokens: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._service, self._engine, self._tokens, self._clock = service, engine, tokens, clock
        self._lock = Lock()
        self._thread = ThreadPoolExecutor(1, "readiness")  # so that probes never wait for pages
        self._known_until = self._warned_until = -math.inf
        self._found: str | None = None

    async def check(self) -> str | None:
        """Return what is wrong, or None, from a thread of its own."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.problem)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False)

    def problem(self) -> str | None:
        """Return what is wrong, or None. All calls within a second share one check."""
        with self._lock:
            if self._clock() >= self._known_until:
                self._found = self._try()
                self._known_until = self._clock() + KNOWN_FOR
            return self._found

    def _try(self) -> str | None:
        if not self._service.alive:
            return "a thread of the gate has died: restart the gate."
        if self._service.serving is None:
            return self._service.no_model
        if self._service.committing_for > STUCK:
            return f"objects have been waiting for the database for more than {STUCK} seconds."
        started = self._clock()
        try:
            with self._engine.connect() as connection:  # rolled back
                check_version(connection)
                try_keeping(connection)
                if self._tokens:
                    connection.execute(text(LOOK_UP), {"id": ""})
                warning = check_months(connection)
        except TranscendentError as error:
            return str(error)
        except (SQLAlchemyError, psycopg.Error) as error:
            cause = getattr(error, "orig", None) or error
            log.warning("not ready", error=type(cause).__name__, detail=str(cause)[:300])
            return f"the database cannot be used ({type(cause).__name__})."
        if self._clock() - started >= DEADLINE:  # the engine's timeout is for one connection, not for two
            return f"the database took more than {DEADLINE} seconds to answer."
        if warning and self._clock() >= self._warned_until:
            self._warned_until = self._clock() + WARN_EVERY
            log.warning("months run out", detail=warning)
        return None
