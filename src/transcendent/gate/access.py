"""Access by tokens and roles.

A token reads ``tg_ID_SECRET``. The secret has 256 random bits, which cannot be guessed: so the database
stores its plain SHA-256, and failed attempts are not counted. A valid token is remembered for a few seconds
only, so that a revoked one is soon refused.

A token ends at ``revoked_at``: in the past if it was revoked or has expired, in the future if it will expire.
"""

import asyncio
import hashlib
import hmac
import math
import re
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Literal, NamedTuple

import structlog
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from transcendent.errors import TranscendentError

Role = Literal["client", "analyst", "labeller", "operator", "metrics", "viewer"]
ROLES: tuple[Role, ...] = ("client", "analyst", "labeller", "operator", "metrics", "viewer")

REFRESHED = 5  # seconds until a token is looked up again, in the background
REMEMBERED = 10  # seconds until requests wait for the look-up
WITHOUT_DATABASE = 600  # seconds until requests are refused if the database cannot be reached
AWAY = 5  # seconds until an unreachable database is tried again

_VALID = "(revoked_at IS NULL OR revoked_at > now())"
# The hash is compared afterwards, in constant time: the time of an index search would depend on it.
LOOK_UP = f"""SELECT name, role, hash, extract(epoch FROM revoked_at - now())::float8 AS seconds_left
FROM token WHERE id = :id AND {_VALID}"""

# A screen in a doorway shows the wall for weeks.
SESSION_LIVES = f"""
seen_at > now() - interval '8 hours'
AND created_at > now() - CASE role WHEN 'viewer' THEN interval '30 days' ELSE interval '1 day' END
AND (token IS NULL OR EXISTS (SELECT FROM token AS its WHERE its.id = session.token AND {_VALID}))
"""
"""SQL condition on a session of a browser; the token that began it must be valid."""

# Two commands for the same name at once: each must see what the other has made.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('token ' || :name, 0))"
LOOK_UP_NAME = (
    f"SELECT id, role, revoked_at - created_at AS lifetime FROM token WHERE name = :name AND {_VALID}"
)
_CREATE = """INSERT INTO token (id, name, role, hash, revoked_at)
VALUES (:id, :name, :role, :hash, now() + CAST(:lifetime AS interval))"""
_END = f"""UPDATE token SET revoked_at = least(revoked_at, now() + CAST(:after AS interval))
WHERE name = :name AND {_VALID}"""
# However they have signed in. Links first, in a statement of their own: one that is used at this moment is
# waited for, and the session that it has begun is seen by the next statement.
_END_SESSIONS = ("DELETE FROM sign_in WHERE name = :name", "DELETE FROM session WHERE name = :name")
_LIST = f"SELECT id, name, role, created_at, revoked_at, {_VALID} AS valid FROM token ORDER BY created_at, id"
_LONGEST = timedelta(days=36_500)

log = structlog.get_logger("transcendent.gate")

_TOKEN = re.compile(r"tg_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


class Caller(NamedTuple):
    """The sender of a request."""

    name: str
    role: Role


_NOBODY = Caller("nobody", "client")


class _Found(NamedTuple):
    """A caller, when it was looked up, and when its token ends."""

    at: float
    caller: Caller
    end: float


_UNKNOWN = _Found(-math.inf, _NOBODY, math.inf)


class TokenError(TranscendentError, ValueError):
    """A token cannot be created, rotated or revoked."""


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
        self._remembered: dict[bytes, _Found] = {}
        self._under_way: dict[bytes, asyncio.Task[Caller]] = {}
        self._thread = ThreadPoolExecutor(1, "tokens")  # so that look-ups never wait for other work
        self._away_until = -math.inf

    async def caller(self, token: str) -> Caller:
        """Return the caller that a token belongs to, from memory or from the database.

        Requests that wait for the same token share one look-up. While the database cannot be reached, a token
        stays valid for ten minutes. One that expires is refused from that moment, also from memory.
        """
        now, digest = self._clock(), hashlib.sha256(token.encode(errors="replace")).digest()
        found_at, caller, end = self._remembered.get(digest, _UNKNOWN)
        if now >= end:
            raise BadTokenError("the token has expired.")
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
            found = await asyncio.get_running_loop().run_in_executor(self._thread, self._look_up, token)
        except BadTokenError:
            self._remembered.pop(digest, None)  # revoked
            raise
        except UncheckedError:
            found_at, caller, _ = self._remembered.get(digest, _UNKNOWN)
            if now >= found_at + WITHOUT_DATABASE:
                raise
            return caller
        finally:
            del self._under_way[digest]
        self._away_until = -math.inf
        if len(self._remembered) > 10_000:
            self._remembered.clear()
        self._remembered[digest] = found
        return found.caller

    def _look_up(self, token: str) -> _Found:
        if self._clock() >= self._away_until:
            try:
                return self._find(token)
            except SQLAlchemyError as error:
                log.error("tokens cannot be checked", error=type(error).__name__)
                self._away_until = self._clock() + AWAY
        raise UncheckedError("the database cannot be reached to check the token: try again later.")

    def check(self, token: str) -> Caller:
        """Look up the caller that a token belongs to; raise if it is not valid."""
        return self._find(token).caller

    def _find(self, token: str) -> _Found:
        now = self._clock()
        number, secret = _parts(token)
        with self._engine.connect() as connection:
            found = connection.execute(text(LOOK_UP), {"id": number}).first()
        if found is None or not hmac.compare_digest(found.hash.encode(), _hash(secret).encode()):
            raise BadTokenError
        end = math.inf if found.seconds_left is None else now + found.seconds_left
        return _Found(now, Caller(found.name, found.role), end)

    def create(self, name: str, role: Role, lifetime: timedelta | None = None) -> str:
        """Create a token and return it. It cannot be shown again. Without a lifetime it does not expire."""
        if role not in ROLES:
            raise TokenError(f"the role must be one of {', '.join(ROLES)}, not {role!r}.")
        check_name(name)
        _check_lifetime(lifetime)
        with self._engine.begin() as connection:
            if _valid(connection, name):
                raise TokenError(f"{name!r} already has a token: rotate or revoke it, or use another name.")
            return _insert(connection, name, role, lifetime)

    def rotate(self, name: str, overlap: timedelta, lifetime: timedelta | None = None) -> str:
        """Create a second token for a name and return it; the first one ends after the overlap.

        By default the new one lives as long as the first one was meant to.
        """
        _check_lifetime(lifetime)
        if not timedelta(0) <= overlap <= _LONGEST:
            raise TokenError(f"the overlap must be between 0 and {_LONGEST.days} days.")
        with self._engine.begin() as connection:
            found = _valid(connection, name)
            if not found:
                raise TokenError(f"{name!r} has no valid token: create one.")
            if len(found) > 1:
                raise TokenError(f"{name!r} has two tokens: wait until the older one ends, or revoke both.")
            connection.execute(text(_END), {"name": name, "after": overlap})
            return _insert(connection, name, found[0].role, lifetime or found[0].lifetime)

    def revoke(self, name: str) -> None:
        """Revoke the tokens of a name, and end its sessions. Gates refuse a token within seconds."""
        with self._engine.begin() as connection:
            revoked = connection.execute(text(_END), {"name": name, "after": timedelta(0)}).rowcount
            ended = sum(connection.execute(text(sql), {"name": name}).rowcount for sql in _END_SESSIONS)
            if not revoked + ended:
                raise TokenError(f"{name!r} has no valid token.")

    def list(self) -> list[dict[str, Any]]:
        """Return the names, roles and times of all tokens, and whether they are valid."""
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(text(_LIST)).mappings()]


def check_name(name: str) -> None:
    """Raise unless somebody may have this name."""
    if not name or len(name) > 100 or not name.isprintable():
        raise TokenError("a name must have 1 to 100 printable characters.")


def token_id(token: str) -> str:
    """Return the id of a token; raise if it is malformed."""
    return _parts(token)[0]


def _check_lifetime(lifetime: timedelta | None) -> None:
    if lifetime is not None and not timedelta(0) < lifetime <= _LONGEST:
        raise TokenError(f"a token must live for more than 0 and at most {_LONGEST.days} days.")


def _valid(connection: Connection, name: str) -> Sequence[Any]:
    """Return the valid tokens of a name, and keep other commands from changing them."""
    connection.execute(text(_LOCK), {"name": name})
    return connection.execute(text(LOOK_UP_NAME), {"name": name}).all()


def _insert(connection: Connection, name: str, role: Role, lifetime: timedelta | None) -> str:
    number, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    given = {"id": number, "name": name, "role": role, "hash": _hash(secret), "lifetime": lifetime}
    connection.execute(text(_CREATE), given)
    return f"tg_{number}_{secret}"


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
