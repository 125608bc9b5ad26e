"""The database: connections, versions, and the months that items are kept by.

Items and payloads are partitioned by month of arrival. The month is in the upper bits of an item's id, so
the id alone names the partition, and the ids of later months are larger.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError

from transcendent.errors import TranscendentError

_BITS = 40
_LOCK = 0x7452616E  # of Postgres' advisory locks, one for changes to tables
_NOW = "now() AT TIME ZONE 'UTC'"
_MONTH = f"((extract(year FROM {_NOW}) - 1970) * 12 + extract(month FROM {_NOW}) - 1)::int"
THIS_MONTH = f"(({_MONTH})::bigint << {_BITS})"
"""SQL of the smallest id of this month."""

T = TypeVar("T")


class DatabaseError(TranscendentError):
    """The database cannot be used; the message says why, and what to do."""


def connect(url: str, connections: int = 5, *, seconds: float | None = None) -> Engine:
    """Return an engine for a PostgreSQL database, which connects when it is first used.

    A statement may take a number of ``seconds``, if given.
    """
    try:
        parsed = make_url(re.sub("^postgres://", "postgresql://", url))
    except (ArgumentError, ValueError):  # the latter of a port that is no number
        raise DatabaseError("the database is a URL such as postgresql://user@host/name.") from None
    if parsed.get_backend_name() != "postgresql":
        raise DatabaseError(f"the database has to be PostgreSQL, not {parsed.get_backend_name()}.")
    engine = create_engine(
        parsed.set(drivername="postgresql+psycopg"),
        pool_size=connections,
        max_overflow=0,
        pool_timeout=10,
        pool_pre_ping=True,
        pool_recycle=3600,  # a temporary table that never ends would hold back the database's freezing
        connect_args={
            **({} if seconds is None else {"options": f"-c statement_timeout={int(1000 * seconds)}"}),
            "connect_timeout": 5,
            "tcp_user_timeout": 15_000,  # milliseconds that what was sent may stay unacknowledged
            "keepalives_idle": 5,  # seconds of waiting for an answer until a sign of life is asked for
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "target_session_attrs": "read-write",  # not a replica that a failover has left behind
            "application_name": "transcendent-gate",
        },
    )
    event.listen(engine, "handle_error", _leave_a_replica)
    return engine


def _leave_a_replica(context: Any) -> None:
    """Connect anew if the database takes no writes any more: a failover may have made it a replica."""
    if isinstance(context.original_exception, psycopg.errors.ReadOnlySqlTransaction):
        context.is_disconnect = True


def is_gone(error: BaseException) -> bool:
    """Return whether the database was not reached, or went away."""
    return isinstance(error, OperationalError | psycopg.OperationalError) or (
        isinstance(error, DBAPIError) and error.connection_invalidated
    )


def again_if_gone(engine: Engine, work: Callable[[Connection], T]) -> T:
    """Run work in a transaction; once more if the connection had broken. The work has to bear repetition."""
    try:
        with engine.begin() as connection:
            return work(connection)
    except (DBAPIError, psycopg.Error) as error:
        if not is_gone(error):
            raise
    with engine.begin() as connection:
        return work(connection)


def _scripts() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    return config


def versions() -> list[str]:
    """Return all versions, the oldest first."""
    return sorted(script.revision for script in ScriptDirectory.from_config(_scripts()).walk_revisions())


@cache
def newest_version() -> str:
    """Return the version that this code works with."""
    return str(ScriptDirectory.from_config(_scripts()).get_current_head())


def version_of(connection: Connection) -> str | None:
    """Return the version of a database, None of an empty one."""
    return MigrationContext.configure(connection).get_current_revision()


def migrate(engine: Engine, to: str = "head") -> str | None:
    """Bring a database to a version, and return it. Only one process at a time does so."""
    with engine.connect() as guard:
        guard.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": _LOCK})
        guard.commit()
        try:
            _migrate(engine, to)
        finally:
            guard.execute(text("SELECT pg_advisory_unlock(:lock)"), {"lock": _LOCK})
            guard.commit()
    with engine.connect() as connection:
        return version_of(connection)


def _migrate(engine: Engine, to: str) -> None:
    config = _scripts()
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        (command.downgrade if _is_older(connection, to) else command.upgrade)(config, to)
        connection.commit()
    if to == "head":
        make_months(engine)


def _is_older(connection: Connection, to: str) -> bool:
    now = version_of(connection)
    return to == "base" or (to != "head" and now is not None and to < now)


def check_version(connection: Connection) -> None:
    """Refuse a database of another version."""
    encoding = connection.execute(text("SHOW server_encoding")).scalar_one()
    if encoding != "UTF8":
        raise DatabaseError(f"the database has the encoding {encoding}: make one with UTF8.")
    found, needed = version_of(connection), newest_version()
    if found != needed:
        raise DatabaseError(
            f"the database has version {found or 'none'}, this gate needs {needed}: "
            "run 'transcendent gate migrate'."
        )


@contextmanager
def opened(url: str) -> Iterator[Engine]:
    """Connect to a database of the right version, and close the connections in the end."""
    engine = connect(url)
    try:
        with engine.connect() as connection:
            check_version(connection)
        yield engine
    finally:
        engine.dispose()


def make_months(engine: Engine) -> None:
    """Create the partitions of this month and the next two, where there are none."""
    with engine.begin() as connection:
        this: int = connection.execute(text(f"SELECT {_MONTH}")).scalar_one()
        for month in range(this, this + 3):
            make_month(connection, month)


def make_month(connection: Connection, month: int) -> None:
    """Create the partitions of a month, counted from January 1970.

    They are attached, not created as partitions, since that would wait for all who read or write.
    """
    have = text("SELECT 1 FROM month WHERE number = :month")
    if connection.execute(have, {"month": month}).first():
        return
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK + 1})
    if connection.execute(have, {"month": month}).first():
        return
    first, end = month << _BITS, (month + 1) << _BITS
    for table, options in (("item", " WITH (fillfactor = 90)"), ("payload", "")):
        name = partition(table, month)
        connection.execute(text(f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL){options}"))
        bounds = f"FOR VALUES FROM ({first}) TO ({end})"
        connection.execute(text(f"ALTER TABLE {table} ATTACH PARTITION {name} {bounds}"))
    connection.execute(text("INSERT INTO month VALUES (:month)"), {"month": month})


def partition(table: str, month: int) -> str:
    """Return the name of a month's partition."""
    return f"{table}_{month // 12 + 1970:04}_{month % 12 + 1:02}"


def month_of(name: str) -> int:
    """Return the number of a month such as 2026-11."""
    year, _, month = name.partition("-")
    digits = name.isascii() and year.isdecimal() and month.isdecimal()
    if not (digits and (len(year), len(month)) == (4, 2) and 1 <= int(month) <= 12):
        raise ValueError(f"a month is written as 2026-11, not {name!r}.")
    return (int(year) - 1970) * 12 + int(month) - 1


def in_words(month: int) -> str:
    """Return a month as 2026-11."""
    return f"{month // 12 + 1970:04}-{month % 12 + 1:02}"


def drop_months(engine: Engine, before: int) -> list[str]:
    """Detach and drop what was kept in months before one; labels stay. Return the months."""
    check_over(engine, before)
    months = months_before(engine, before)
    return [month for month in months if _drop_month(engine, month_of(month))]


def _drop_month(engine: Engine, month: int, tries: int = 20) -> bool:
    """Drop a month, unless somebody else has just done so.

    To detach a partition waits for all who read, and lets nobody in meanwhile: so it waits briefly, and tries
    again.
    """
    try:
        return _drop_month_now(engine, month)
    except OperationalError as error:  # of a lock that was not had in time, or a deadlock
        if tries == 1:
            raise DatabaseError(
                f"{in_words(month)} is not dropped: something reads the tables for long, such as an export "
                "or a backup. Try again when it is done."
            ) from error
    time.sleep(1)
    return _drop_month(engine, month, tries - 1)


def _drop_month_now(engine: Engine, month: int) -> bool:
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL lock_timeout = '2s'"))
        sql = text("DELETE FROM month WHERE number = :month")
        if not connection.execute(sql, {"month": month}).rowcount:
            return False
        for table in ("item", "payload"):
            name = partition(table, month)
            connection.execute(text(f"ALTER TABLE {table} DETACH PARTITION {name}"))
            connection.execute(text(f"DROP TABLE {name}"))
    return True


def check_over(engine: Engine, before: int) -> None:
    """Refuse to drop a month that is not over."""
    with engine.connect() as connection:
        this = in_words(connection.execute(text(f"SELECT {_MONTH}")).scalar_one())
    if before > month_of(this):
        raise ValueError(f"{this} is not over: the first month to keep is {this} or earlier.")


def months_before(engine: Engine, before: int) -> list[str]:
    """Return the months before one that something is kept of."""
    sql = text("SELECT number FROM month WHERE number < :before ORDER BY 1")
    with engine.connect() as connection:
        return [in_words(month) for month in connection.execute(sql, {"before": before}).scalars()]


def sweep_identities(engine: Engine) -> int:
    """Delete the identities of items in dropped months, a partition at a time; return their number."""
    swept = 0
    for part in range(16):
        with engine.begin() as connection:
            gone = connection.execute(text(f"DELETE FROM identity_{part:02} WHERE item < {FIRST_KEPT}"))
            swept += gone.rowcount
    return swept


FIRST_KEPT = f"(SELECT coalesce(min(number)::bigint << {_BITS}, {2**63 - 1}) FROM month)"
"""SQL of the smallest id that may still be kept; where no month is, none is."""
