"""Sessions of browsers, and links that begin one.

Whoever signs in gets a random id in a cookie, a new one each time, of which the database has the hash. A
session ends when it was idle for 8 hours, in any case after a day, when its user signs out, and with the
token that began it.
"""

import hashlib
import hmac
import secrets
from typing import cast

from sqlalchemy import Connection, Engine, text

from transcendent.errors import TranscendentError
from transcendent.gate.access import LOOK_UP_NAME, SESSION_LIVES, Caller, Role, TokenError, check_name

SIGNED_IN: tuple[Role, ...] = ("analyst", "operator", "viewer")
"""Roles that pages are for."""
LONGEST_LINK = 24 * 60
"""Minutes for which a link may be valid."""

MOST_SESSIONS = 20
"""Sessions of one token; a further one ends the oldest."""

_FIND = f"""
SELECT name, role, seen_at < now() - interval '1 minute' AS stale FROM session
WHERE hash = :hash AND {SESSION_LIVES}
"""
_SEEN = "UPDATE session SET seen_at = now() WHERE hash = :hash"
_BEGIN = "INSERT INTO session (hash, name, role, token) VALUES (:hash, :name, :role, :token)"
# Of one token; who signs in again and again makes no more rows.
_END_OLDEST = f"""
DELETE FROM session WHERE name = :name AND token = :token AND hash NOT IN (
    SELECT hash FROM session WHERE name = :name AND token = :token
    ORDER BY created_at DESC LIMIT {MOST_SESSIONS}
)"""
_END = "DELETE FROM session WHERE hash = :hash"
_INVITE = """INSERT INTO sign_in (hash, name, role, ends_at)
VALUES (:hash, :name, :role, now() + make_interval(mins => :minutes))"""
_INVITED = "SELECT name, role FROM sign_in WHERE hash = :hash AND ends_at > now()"
_USE = "DELETE FROM sign_in WHERE hash = :hash AND ends_at > now() RETURNING name, role"


class LinkError(TranscendentError):
    """A link to sign in was used before, or has expired."""

    def __init__(self) -> None:
        super().__init__(
            "this link was used before, or has expired: ask for another one (transcendent gate sign-in)."
        )


class Sessions:
    """The sessions of a database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def begin(self, caller: Caller, token: str, before: str = "") -> str:
        """Begin a session with the token that has an id, end the one ``before``, and return the new id."""
        with self._engine.begin() as connection:
            return _begin(connection, caller, token, before)

    def visitor(self, session: str) -> Caller | None:
        """Return whose session this is, if it has not ended."""
        given = {"hash": _hash(session)}
        with self._engine.begin() as connection:
            found = connection.execute(text(_FIND), given).first()
            if found is None:
                return None
            if found.stale:
                connection.execute(text(_SEEN), given)
            return Caller(found.name, found.role)

    def end(self, session: str) -> None:
        """End a session."""
        with self._engine.begin() as connection:
            connection.execute(text(_END), {"hash": _hash(session)})

    def invite(self, name: str, role: str, minutes: int) -> str:
        """Return the key of a link that signs in once, as a name with a role."""
        if role not in SIGNED_IN:
            raise TokenError(f"pages are for the roles {', '.join(SIGNED_IN)}, not {role!r:.80}.")
        check_name(name)
        if not 0 < minutes <= LONGEST_LINK:
            raise TokenError(f"a link must be valid for 1 to {LONGEST_LINK} minutes.")
        key = secrets.token_urlsafe(32)
        with self._engine.begin() as connection:
            roles = {row.role for row in connection.execute(text(LOOK_UP_NAME), {"name": name})}
            if roles - {role}:
                raise TokenError(
                    f"{name!r} has a token with the role {roles.pop()}: use it, or another name."
                )
            given = {"hash": _hash(key), "name": name, "role": role, "minutes": minutes}
            connection.execute(text(_INVITE), given)
        return key

    def invited(self, key: str) -> Caller:
        """Return whom a link is for; raise if it is not valid any more."""
        with self._engine.connect() as connection:
            found = connection.execute(text(_INVITED), {"hash": _hash(key)}).first()
        if found is None:
            raise LinkError
        return Caller(found.name, found.role)

    def accept(self, key: str, before: str = "") -> str:
        """Use a link up, end the session ``before``, and return the id of a new one."""
        with self._engine.begin() as connection:
            found = connection.execute(text(_USE), {"hash": _hash(key)}).first()
            if found is None:
                raise LinkError
            return _begin(connection, Caller(found.name, cast(Role, found.role)), None, before)


def _begin(connection: Connection, caller: Caller, token: str | None, before: str) -> str:
    session = secrets.token_urlsafe(32)
    connection.execute(text(_END), {"hash": _hash(before)})
    given = {"hash": _hash(session), "name": caller.name, "role": caller.role, "token": token}
    connection.execute(text(_BEGIN), given)
    if token is not None:
        connection.execute(text(_END_OLDEST), {"name": caller.name, "token": token})
    return session


def csrf_of(session: str) -> str:
    """Return what forms of a session must contain; it does not tell the session's id."""
    return hmac.new(session.encode(errors="replace"), b"csrf", hashlib.sha256).hexdigest()


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()
