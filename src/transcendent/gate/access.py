"""Who may do what: tokens, roles, and a limit on failed attempts.

A token reads ``tg_ID_SECRET``. The database has the secret's argon2 hash. A token that was found good is
remembered for a few seconds, so that a revoked one is refused soon after.
"""

import hashlib
import math
import secrets
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from argon2 import PasswordHasher
from argon2.exceptions import VerificationError
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError, OperationalError, TimeoutError  # noqa: A004

from transcendent.errors import TranscendentError

Role = Literal["client", "analyst", "operator"]
ROLES: tuple[Role, ...] = ("client", "analyst", "operator")

MOST_FAILURES = 10
WITHIN = 300  # seconds
REMEMBERED = 10  # seconds
WITHOUT_DATABASE = 600  # seconds
AWAY = 5  # seconds for which a database that was not reached is left alone

_hasher = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
_NO_HASH = _hasher.hash(secrets.token_urlsafe(32))


class Caller(NamedTuple):
    """Who sends a request, and in which role."""

    name: str
    role: Role


_NOBODY = Caller("nobody", "client")


class TokenError(TranscendentError, ValueError):
    """A token cannot be made or revoked."""


class BadTokenError(TranscendentError):
    """The token is not a good one."""


class TooManyFailuresError(TranscendentError):
    """Too many attempts with this token, or from this address, have failed."""


class Tokens:
    """The tokens of a database."""

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._clock = engine, clock
        self._remembered: dict[bytes, tuple[float, Caller]] = {}
        self._away_until = -math.inf

    def remembered(self, token: str) -> Caller | None:
        """Return who a token belongs to, if that was found out a moment ago."""
        found = self._remembered.get(_digest(token))
        return found[1] if found and found[0] > self._clock() else None

    def check(self, token: str, address: str) -> Caller:
        """Return who a token belongs to; refuse it, or check nothing after too many failures.

        Failures count for the token whose id was given, else for the address: so nobody is locked out by
        what others at the same address try. It takes as long for an unknown id as for a wrong secret. While
        the database is away, a token that was good within ten minutes still is.
        """
        now, digest = self._clock(), _digest(token)
        until, caller = self._remembered.get(digest, (-math.inf, _NOBODY))
        known = now < until + WITHOUT_DATABASE
        if now < until or (known and now < self._away_until):
            return caller
        try:
            caller = self._check(token, address)
        except BadTokenError:
            self._remembered.pop(digest, None)  # it may have been revoked
            raise
        except (OperationalError, TimeoutError):
            self._away_until = self._clock() + AWAY
            if not known:
                raise
            return caller
        if len(self._remembered) > 10_000:
            self._remembered.clear()
        self._remembered[digest] = (now + REMEMBERED, caller)
        return caller

    def _check(self, token: str, address: str) -> Caller:
        start, number, secret = [*token.split("_", 2), "", ""][:3]
        with self._engine.connect() as connection:
            sql = text("SELECT name, role, hash FROM token WHERE id = :id AND revoked_at IS NULL")
            known = number.replace("\0", "")[:40] if start == "tg" else ""
            found = connection.execute(sql, {"id": known}).first()
        source = f"token {known}" if found else f"address {address}"
        self._check_failures(source)
        try:
            _hasher.verify(found.hash if found else _NO_HASH, secret)
        except (VerificationError, UnicodeEncodeError):
            found = None
        if found is None:
            self._note_failure(source)
            raise BadTokenError("the token is not valid.")
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
                given = {"id": number, "name": name, "role": role, "hash": _hasher.hash(secret)}
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

    def _check_failures(self, source: str) -> None:
        recent = "source = :source AND at > now() - make_interval(secs => :within)"
        sql = text(f"SELECT count(*) FROM failure WHERE {recent}")
        with self._engine.connect() as connection:
            failures = connection.execute(sql, {"source": source, "within": WITHIN}).scalar_one()
        if failures >= MOST_FAILURES:
            raise TooManyFailuresError(f"too many failed attempts: wait {WITHIN // 60} minutes.")

    def _note_failure(self, source: str) -> None:
        with self._engine.begin() as connection:
            connection.execute(text("INSERT INTO failure (source) VALUES (:source)"), {"source": source})
            old = text("DELETE FROM failure WHERE at < now() - make_interval(secs => :within)")
            connection.execute(old, {"within": WITHIN})


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
