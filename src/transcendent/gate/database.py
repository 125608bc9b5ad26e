"""The database: connections, versions, and the months that items are kept by.

Items and payloads are partitioned by month of arrival. The month is in the upper bits of an item's id, so
the id alone names the partition, and the ids of later months are larger.

Nothing here needs a session: locks and settings are those of a transaction, and no statement is prepared on
the server. So a pooler such as PgBouncer may stand in between, also in transaction mode.
"""

import os
import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
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


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that is closed if the server does not answer in time.

    A timeout of the server's own does not help if the server is stopped, nor do keepalives, which its kernel
    answers.
    """

    seconds: float | None = None

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **given: Any) -> T:
        """Wait for an answer, for so many seconds."""
        if self.seconds is None:
            return super().wait(gen, *args, **given)
        try:
            return super().wait(_until(gen, time.monotonic() + self.seconds), *args, **given)
        except _TooLateError:
            self.pgconn.finish()
            raise psycopg.OperationalError(
                f"the database did not answer within {self.seconds:g} seconds"
            ) from None


class _TooLateError(Exception):
    pass


def _until(gen: Generator[Any, Any, T], end: float) -> Generator[Any, Any, T]:
    """Pass on what a generator waits for, until it is too late; psycopg resumes it ten times a second."""
    try:
        waits_for = next(gen)
        while time.monotonic() < end:
            waits_for = gen.send((yield waits_for))
    except StopIteration as done:
        answer: T = done.value
        return answer
    raise _TooLateError


def connect(url: str, connections: int = 5, *, seconds: float | None = None) -> Engine:
    """Return an engine for a PostgreSQL database, which connects when it is first used.

    If ``seconds`` are given, a connection is left when the server has not answered for so long.
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
        pool_timeout=10 if seconds is None else min(10, seconds),
        pool_pre_ping=True,
        connect_args={
            "prepare_threshold": None,  # the next statement may reach another server process
            "connect_timeout": 5 if seconds is None else max(2, min(5, int(seconds))),
            "tcp_user_timeout": 15_000,  # milliseconds that what was sent may stay unacknowledged
            "keepalives_idle": 5,  # seconds of waiting for an answer until a sign of life is asked for
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "target_session_attrs": "read-write",  # not a replica that a failover has left behind
            "application_name": "transcendent-gate",
        },
    )
    event.listen(engine, "handle_error", _leave_a_replica)

    @event.listens_for(engine, "do_connect")
    def bounded(dialect: Any, record: Any, args: Any, given: Any) -> Any:  # noqa: ARG001
        connection = BoundedConnection.connect(*args, **given)
        connection.seconds = seconds
        return connection

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


MIGRATIONS = Path(__file__).parent / "migrations"


def _scripts(folders: Sequence[Path] = ()) -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    config.set_main_option(
        "version_locations", os.pathsep.join(map(str, (MIGRATIONS / "versions", *folders)))
    )
    return config


def versions(folders: Sequence[Path] = ()) -> list[str]:
    """Return all versions, the oldest first; those in further folders, too."""
    scripts = ScriptDirectory.from_config(_scripts(folders))
    return sorted(script.revision for script in scripts.walk_revisions())


@cache
def newest_version() -> str:
    """Return the version that this code was written for."""
    return versions()[-1]


def version_of(connection: Connection) -> str | None:
    """Return the version of a database, None of an empty one."""
    return MigrationContext.configure(connection).get_current_revision()


def migrate(engine: Engine, to: str = "head", folders: Sequence[Path] = ()) -> str | None:
    """Bring a database to a version, and return it. Only one process at a time does so.

    Further folders may have further versions.
    """
    with engine.begin() as guard:
        guard.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        _migrate(engine, to, folders)
    if to == "head":
        make_months(engine)
    with engine.connect() as connection:
        return version_of(connection)


def _migrate(engine: Engine, to: str, folders: Sequence[Path]) -> None:
    with engine.connect() as connection:
        now = version_of(connection) or "base"
    known = ["base", *versions(folders)]
    if now not in known:
        raise DatabaseError(
            f"the database has version {now}, and this package knows none after {known[-1]}: "
            "upgrade the package."
        )
    start, end = known.index(now), known.index(known[-1] if to == "head" else to)
    for version in known[start + 1 : end + 1]:
        _step(engine, command.upgrade, version, folders)
    for version in reversed(known[end:start]):
        _step(engine, command.downgrade, version, folders)


def _step(engine: Engine, change: Callable[[Config, str], None], to: str, folders: Sequence[Path]) -> None:
    """Go one version up or down, and note which gates work with it."""
    config = _scripts(folders)
    script = None if to == "base" else ScriptDirectory.from_config(config).get_revision(to)

    def work(connection: Connection) -> None:
        config.attributes["connection"] = connection
        change(config, to)
        if oldest := getattr(script and script.module, "works_from", None):
            connection.execute(text("UPDATE works_from SET version = :oldest"), {"oldest": oldest})

    without_blocking(
        engine, work, f"version {to} was not reached: something uses the tables for long, such as an export"
    )


def without_blocking(engine: Engine, work: Callable[[Connection], T], failure: str, tries: int = 30) -> T:
    """Run work that locks tables in a transaction.

    While it waits for a lock, everybody else waits behind it: so it waits briefly, and tries again.
    """
    try:
        with engine.begin() as connection:
            connection.execute(text("SET LOCAL lock_timeout = '500ms'"))
            return work(connection)
    except OperationalError as error:
        if not isinstance(error.orig, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected):
            raise
        if tries == 1:
            raise DatabaseError(f"{failure} or a backup. Try again when it is done.") from error
    time.sleep(1)
    return without_blocking(engine, work, failure, tries - 1)


def check_version(connection: Connection) -> None:
    """Refuse a database that this gate does not work with.

    It works with one of its own version, and with a newer one that works with gates of this version.
    """
    encoding = connection.execute(text("SHOW server_encoding")).scalar_one()
    if encoding != "UTF8":
        raise DatabaseError(f"the database has the encoding {encoding}: make one with UTF8.")
    found, own = version_of(connection) or "none", newest_version()
    if found == own:
        return
    if found == "none" or found < own:
        raise DatabaseError(
            f"the database has version {found}, this gate needs {own}: run 'transcendent gate migrate'."
        )
    oldest = connection.execute(text("SELECT version FROM works_from")).scalar_one()
    if oldest > own:
        raise DatabaseError(
            f"the database has version {found}, which works with gates from version {oldest} on, and this "
            f"gate has {own}: upgrade the gate."
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


_NEEDED = {
    "identity": ("SELECT", "INSERT", "DELETE"),
    "item": ("SELECT", "INSERT", "UPDATE"),
    "label": ("SELECT", "INSERT"),
    "model": ("SELECT", "INSERT"),
    "month": ("SELECT",),
    "payload": ("SELECT", "INSERT"),
    "secret": ("SELECT",),
    "tally": ("SELECT", "INSERT", "DELETE"),
    "token": ("SELECT",),
}
"""What a gate does with tables; for months, their owner has to come by."""


def check_role(engine: Engine) -> None:
    """Refuse a database role that lacks a right which a gate needs."""
    lacking = []
    with engine.connect() as connection:
        for table, rights in _NEEDED.items():
            for right in rights:
                sql = text("SELECT has_table_privilege(:table, :right)")
                if not connection.execute(sql, {"table": table, "right": right}).scalar_one():
                    lacking.append(f"{right} on {table}")
        if not connection.execute(text("SELECT has_sequence_privilege('item_number', 'USAGE')")).scalar_one():
            lacking.append("USAGE on item_number")
        name = connection.execute(text("SELECT current_user")).scalar_one()
    if lacking:
        raise DatabaseError(
            f"the database role {name} has no {', '.join(lacking)}: grant it, or use the owner."
        )


def may_make_months(connection: Connection) -> bool:
    """Return whether the role may create partitions: it owns the tables, and may create others."""
    sql = """SELECT bool_and(pg_has_role(relowner, 'USAGE'))
        AND has_schema_privilege(current_schema(), 'CREATE')
    FROM pg_class WHERE oid = ANY(ARRAY['item', 'payload', 'month', 'tally']::regclass[])"""
    return bool(connection.execute(text(sql)).scalar_one())


def check_months(connection: Connection) -> str | None:
    """Raise if there is no partition for today; return a warning if there will be none in a week.

    A role that may create partitions creates them when they are needed.
    """
    sql = f"""SELECT {_MONTH} AS this, array(SELECT number FROM month WHERE number >= {_MONTH}) AS months,
        extract(day FROM date_trunc('month', {_NOW}) + interval '1 month' - ({_NOW})) AS days"""
    found = connection.execute(text(sql)).one()
    lacks_this, lacks_next = found.this not in found.months, found.this + 1 not in found.months
    if not (lacks_this or (lacks_next and found.days < 7)) or may_make_months(connection):
        return None
    lacking = in_words(found.this if lacks_this else found.this + 1)
    said = f"there is no partition for {lacking}: run 'transcendent gate months' as the owner of the tables."
    if lacks_this:
        raise DatabaseError(said)
    return said


def prepare(engine: Engine) -> str | None:
    """Check a database, and create partitions; if the role may not, return how far they reach."""
    with engine.connect() as connection:
        check_version(connection)
        if not may_make_months(connection):
            check_months(connection)
            last = connection.execute(text("SELECT max(number) FROM month")).scalar_one()
            return (
                f"this database role cannot create partitions, and there are none after {in_words(last)}: "
                "let the owner of the tables run 'transcendent gate months' every month."
            )
    make_months(engine)
    return None


def make_months(engine: Engine) -> str:
    """Create the partitions of this month and the next two, where there are none; return the last month."""
    with engine.begin() as connection:
        this: int = connection.execute(text(f"SELECT {_MONTH}")).scalar_one()
        for month in range(this, this + 3):
            make_month(connection, month)
    return in_words(this + 2)


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
    if said := detached(connection, month):
        raise DatabaseError(said)
    for table, options in (("item", " WITH (fillfactor = 90)"), ("payload", "")):
        name = partition(table, month)
        attached = text("SELECT 1 FROM pg_inherits WHERE inhrelid = to_regclass(:name)")
        if connection.execute(attached, {"name": name}).first():  # the other one's was lost
            continue
        connection.execute(text(f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL){options}"))
        connection.execute(text(_attach(table, month)))
        if table == "item":
            connection.execute(text("DELETE FROM tally WHERE month = :month"), {"month": month})
    connection.execute(text("INSERT INTO month VALUES (:month)"), {"month": month})


def _attach(table: str, month: int) -> str:
    bounds = f"FROM ({month << _BITS}) TO ({(month + 1) << _BITS})"
    return f"ALTER TABLE {table} ATTACH PARTITION {partition(table, month)} FOR VALUES {bounds}"


def detached(connection: Connection, month: int) -> str | None:
    """Say what to do if a table has the name of a month's partition, and is none."""
    sql = """SELECT to_regclass(:name) IS NOT NULL
        AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = to_regclass(:name))"""
    for table in ("item", "payload"):
        name = partition(table, month)
        if connection.execute(text(sql), {"name": name}).scalar_one():
            return (
                f"there is a table {name} that is no partition of {table}: attach it again "
                f"({_attach(table, month)}), or rename it."
            )
    return None


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


def _drop_month(engine: Engine, month: int, tries: int = 30) -> bool:
    """Drop a month, unless somebody else has just done so."""

    def work(connection: Connection) -> bool:
        sql = text("DELETE FROM month WHERE number = :month")
        if not connection.execute(sql, {"month": month}).rowcount:
            return False
        for table in ("item", "payload"):
            name = partition(table, month)
            connection.execute(text(f"ALTER TABLE {table} DETACH PARTITION {name}"))
            connection.execute(text(f"DROP TABLE {name}"))
        connection.execute(text("DELETE FROM tally WHERE month = :month"), {"month": month})
        return True

    failure = f"{in_words(month)} is not dropped: something reads the tables for long, such as an export"
    return without_blocking(engine, work, failure, tries)


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
