"""Whether a gate can do what it promises: tried out, not assumed."""

import math
import time
from collections.abc import Callable
from threading import Lock

import psycopg
import structlog
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from transcendent.errors import TranscendentError
from transcendent.gate.database import check_months, check_version
from transcendent.gate.intake import keeping_for, try_keeping
from transcendent.gate.service import Service

KNOWN_FOR = 1  # seconds
DEADLINE = 2  # seconds in which the database has to answer
STUCK = 5  # seconds in which objects have to be kept
SAID_FOR = 3600  # seconds until a warning is repeated

log = structlog.get_logger("transcendent.gate")


class Readiness:
    """What keeps a gate from being ready.

    Parameters
    ----------
    service : Service
        Decides and keeps.
    engine : Engine
        Of the database, with a limit on the time of an answer.
    tokens : bool
        Whether callers need a token.
    """

    def __init__(
        self,
        service: Service,
        engine: Engine,
        *,
        tokens: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service, self._engine, self._tokens, self._clock = service, engine, tokens, clock
        self._lock = Lock()
        self._known_until, self._said_until = -math.inf, -math.inf
        self._found: str | None = None

    def problem(self) -> str | None:
        """Return what is wrong, None if nothing is. It is tried once a second, for all who ask."""
        with self._lock:
            if self._clock() >= self._known_until:
                self._found = self._try()
                self._known_until = self._clock() + KNOWN_FOR
            return self._found

    def _try(self) -> str | None:
        if not self._service.alive:
            return "a thread of the gate has died."
        if keeping_for(self._service.engine) > STUCK:
            return f"the database has let objects wait for more than {STUCK} seconds."
        started = self._clock()
        try:
            with self._engine.connect() as connection:  # and nothing is committed
                self._try_database(connection)
        except TranscendentError as error:
            return str(error)
        except (SQLAlchemyError, psycopg.Error) as error:
            cause = getattr(error, "orig", None) or error
            log.warning("not ready", error=type(cause).__name__, detail=str(cause)[:300])
            return f"the database cannot be used ({type(cause).__name__})."
        if self._clock() - started >= DEADLINE:  # such as a connection that had to be replaced
            return f"the database needed more than {DEADLINE} seconds for an answer."
        return None

    def _try_database(self, connection: Connection) -> None:
        check_version(connection)
        try_keeping(connection)
        if self._tokens:
            connection.execute(
                text("SELECT name, role, hash FROM token WHERE id = '' AND revoked_at IS NULL")
            )
        if (warning := check_months(connection)) and self._clock() >= self._said_until:
            self._said_until = self._clock() + SAID_FOR
            log.warning("months run out", detail=warning)
