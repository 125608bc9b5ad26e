"""Access by tokens and roles.

A token reads ``tg_ID_SECRET``. The secret has 256 random bits, which cannot be guessed: so the database
stores its plain SHA-256, and failed attempts are not counted. A valid token is remembered for a few seconds
only, so that a revoked one is soon refused.
"""

import asyncio
import hashlib
import hmac
import math
import re
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import structlog
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from transcendent.errors import TranscendentError

Role = Literal["client", "analyst", "labeller", "operator"]
ROLES: tuple[Role, ...] = ("client", "analyst", "labeller", "operator")

REFRESHED = 5  # seconds until a token is looked up again, in the background
REMEMBERED = 10  # seconds until requests wait for the look-up
WITHOUT_DATABASE = 600  # seconds until requests are refused if the database cannot be reached
AWAY = 5  # seconds until an unreachable database is tried again

# The hash is compared afterwards, in constant time: the time of an index search would depend on it.
LOOK_UP = "SELECT name, role, hash FROM token WHERE id = :id AND revoked_at IS NULL"

log = structlog.get_logger("transcendent.gate")

_TOKEN = re.compile(r"tg_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


class Caller(NamedTuple):
    """The sender of a request."""

    name: str
    role: Role


_NOBODY = Caller("nobody", "client")


class TokenError(TranscendentError, ValueError):
    """A token cannot be created or revoked."""


class BadTokenError(TranscendentError):
    """The token is not valid."""

    def __init__(self, message: str = "the token is not valid.") -> None:
        super().__init__(message)


class UncheckedError(TranscendentError):
    """The token cannot be checked now."""


class Tokens:
    """The tokens of a database."""

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._clock = engine, clock
        self._remembered: dict[bytes, tuple[float, Caller]] = {}
        self._under_way: dict[bytes, asyncio.Task[Caller]] = {}
        self._thread = ThreadPoolExecutor(1, "tokens")  # so that look-ups never wait for other work
        self._away_until = -math.inf

    async def caller(self, token: str) -> Caller:
        """Return the caller that a token belongs to, from memory or from the database.

        Requests that wait for the same token share one look-up. While the database cannot be reached, a token
        stays valid for ten minutes.
        """
        now, digest = self._clock(), hashlib.sha256(token.encode(errors="replace")).digest()
        found_at, caller = self._remembered.get(digest, (-math.inf, _NOBODY))
        if now < found_at + REFRESHED:
            return caller
        is_away = self._away_until > -math.inf
        good = now < found_at + (WITHOUT_DATABASE if is_away else REMEMBERED)
        if good and now < self._away_until:
            return caller
        if digest not in self._under_way:
            _parts(token)
            self._under_way[digest] = asyncio.create_task(self._refresh(token, digest))
            self._under_way[digest].add_done_callback(_retrieve)
        return caller if good else await asyncio.shield(self._under_way[digest])

    async def _refresh(self, token: str, digest: bytes) -> Caller:
        now = self._clock()
        try:
            caller = await asyncio.get_running_loop().run_in_executor(self._thread, self._look_up, token)
        except BadTokenError:
            self._remembered.pop(digest, None)  # revoked
            raise
        except UncheckedError:
            found_at, caller = self._remembered.get(digest, (-math.inf, _NOBODY))
            if now >= found_at + WITHOUT_DATABASE:
                raise
            return caller
        finally:
            del self._under_way[digest]
        self._away_until = -math.inf
        if len(self._remembered) > 10_000:
            self._remembered.clear()
        self._remembered[digest] = (now, caller)
        return caller

    def _look_up(self, token: str) -> Caller:
        if self._clock() >= self._away_until:
            try:
                return self.check(token)
            except SQLAlchemyError as error:
                log.error("tokens cannot be checked", error=type(error).__name__)
                self._away_until = self._clock() + AWAY
        raise UncheckedError("the database cannot be reached to check the token: try again later.")

    def check(self, token: str) -> Caller:
        """Look up the caller that a token belongs to; raise if it is not valid."""
        number, secret = _parts(token)
        with self._engine.connect() as connection:
            found = connection.execute(text(LOOK_UP), {"id": number}).first()
        if found is None or not hmac.compare_digest(found.hash.encode(), _hash(secret).encode()):
            raise BadTokenError
        return Caller(found.name, found.role)

    def create(self, name: str, role: Role) -> str:
        """Create a token and return it. It cannot be shown again."""
        if role not in ROLES:
            raise TokenError(f"the role must be one of {', '.join(ROLES)}, not {role!r}.")
        if not name or len(name) > 100 or not name.isprintable():
            raise TokenError("a name must have 1 to 100 printable characters.")
        number, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        sql = text("INSERT INTO token (id, name, role, hash) VALUES (:id, :name, :role, :hash)")
        given = {"id": number, "name": name, "role": role, "hash": _hash(secret)}
        try:
            with self._engine.begin() as connection:
                connection.execute(sql, given)
        except IntegrityError:
            raise TokenError(f"{name!r} already has a token: revoke it first, or use another name.") from None
        return f"tg_{number}_{secret}"

    def revoke(self, name: str) -> None:
        """Revoke the token of a name. Gates that remember it refuse it within seconds."""
        sql = text("UPDATE token SET revoked_at = now() WHERE name = :name AND revoked_at IS NULL")
        with self._engine.begin() as connection:
            if not connection.execute(sql, {"name": name}).rowcount:
                raise TokenError(f"{name!r} has no valid token.")

    def list(self) -> list[dict[str, Any]]:
        """Return the names, roles and times of all tokens."""
        with self._engine.connect() as connection:
            sql = text("SELECT name, role, created_at, revoked_at FROM token ORDER BY created_at")
            return [dict(row) for row in connection.execute(sql).mappings()]


def _parts(token: str) -> tuple[str, str]:
    """Return the id and secret of a token; raise if it is malformed, without a look-up."""
    parts = _TOKEN.fullmatch(token)
    if parts is None:
        raise BadTokenError
    return parts[1], parts[2]


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _retrieve(task: "asyncio.Task[Caller]") -> None:
    """Retrieve the exception of a look-up, or asyncio would log it as never retrieved."""
    if not task.cancelled():
        task.exception()
