"""Who may do what: tokens and roles.

A token reads ``tg_ID_SECRET``. The secret has 256 random bits, which nobody guesses: so the database has its
SHA-256, and failed attempts are not counted. A token that was found good is remembered for a few seconds, so
that a revoked one is refused soon after.
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

Role = Literal["client", "analyst", "operator"]
ROLES: tuple[Role, ...] = ("client", "analyst", "operator")

REFRESHED = 5  # seconds after which a token is looked up again, while requests with it go on
REMEMBERED = 10  # seconds
WITHOUT_DATABASE = 600  # seconds
AWAY = 5  # seconds for which a database that was not reached is left alone

log = structlog.get_logger("transcendent.gate")

_TOKEN = re.compile(r"tg_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


class Caller(NamedTuple):
    """Who sends a request, and in which role."""

    name: str
    role: Role


_NOBODY = Caller("nobody", "client")


class TokenError(TranscendentError, ValueError):
    """A token cannot be made or revoked."""


class BadTokenError(TranscendentError):
    """The token is not a good one."""

    def __init__(self, message: str = "the token is not valid.") -> None:
        super().__init__(message)


class UncheckedError(TranscendentError):
    """A token cannot be checked now."""


class Tokens:
    """The tokens of a database."""

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._clock = engine, clock
        self._remembered: dict[bytes, tuple[float, Caller]] = {}
        self._under_way: dict[bytes, asyncio.Task[Caller]] = {}
        self._thread = ThreadPoolExecutor(1, "tokens")  # other work cannot keep look-ups waiting
        self._away_until = -math.inf

    async def caller(self, token: str) -> Caller:
        """Return who a token belongs to, as remembered or else as the database has it.

        A token is looked up once at a time: all requests that cannot go on with what is remembered wait for
        the same look-up. While the database is away, a token that was good within ten minutes still is.
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
            self._remembered.pop(digest, None)  # it may have been revoked
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
        """Look up in the database who a token belongs to; refuse one that is not good."""
        number, secret = _parts(token)
        with self._engine.connect() as connection:
            sql = text("SELECT name, role, hash FROM token WHERE id = :id AND revoked_at IS NULL")
            found = connection.execute(sql, {"id": number}).first()
        if found is None or not hmac.compare_digest(found.hash.encode(), _hash(secret).encode()):
            raise BadTokenError
        return Caller(found.name, found.role)

    def create(self, name: str, role: Role) -> str:
        """Make a token and return it: it is shown this once."""
        if role not in ROLES:
            raise TokenError(f"a role is one of {', '.join(ROLES)}, not {role!r}.")
        if not name or len(name) > 100 or not name.isprintable():
            raise TokenError("a name has 1 to 100 printable characters.")
        number, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        sql = text("INSERT INTO token (id, name, role, hash) VALUES (:id, :name, :role, :hash)")
        try:
            with self._engine.begin() as connection:
                given = {"id": number, "name": name, "role": role, "hash": _hash(secret)}
                connection.execute(sql, given)
        except IntegrityError:
            raise TokenError(
                f"there is a token for {name!r}: revoke it first, or take another name."
            ) from None
        return f"tg_{number}_{secret}"

    def revoke(self, name: str) -> None:
        """Make the token of a name invalid, within seconds for gates that have just seen it."""
        sql = text("UPDATE token SET revoked_at = now() WHERE name = :name AND revoked_at IS NULL")
        with self._engine.begin() as connection:
            if not connection.execute(sql, {"name": name}).rowcount:
                raise TokenError(f"there is no token for {name!r}.")

    def list(self) -> list[dict[str, Any]]:
        """Return names, roles and times of all tokens."""
        with self._engine.connect() as connection:
            sql = text("SELECT name, role, created_at, revoked_at FROM token ORDER BY created_at")
            return [dict(row) for row in connection.execute(sql).mappings()]


def _parts(token: str) -> tuple[str, str]:
    """Return id and secret; what is not spelled like a token is refused without asking the database."""
    parts = _TOKEN.fullmatch(token)
    if parts is None:
        raise BadTokenError
    return parts[1], parts[2]


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _retrieve(task: "asyncio.Task[Caller]") -> None:
    """Take note of an exception that nobody may have waited for: the next request meets it again."""
    if not task.cancelled():
        task.exception()
