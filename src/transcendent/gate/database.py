"""Database connections, schema versions and monthly partitions.

Items and payloads are partitioned by month of arrival. The month is in the upper bits of an item's id, so
the id alone names the partition, and the ids of later months are larger. Dropping old data is then dropping
a partition, not deleting rows.

Nothing here needs a session: locks and settings are those of a transaction, and no statement is prepared on
the server. So a pooler such as PgBouncer works, even in transaction mode.
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

_BITS = 40  # for the number of an item; the month is above them
# If two processes migrated, or two gates created the same partition, one of them would fail. Before the first
# migration there is no table to lock, hence advisory locks: this number for migrations, the next for months.
_LOCK = 0x7452616E
# Months are those of UTC: the time zone of a session may differ from gate to gate.
_NOW = "now() AT TIME ZONE 'UTC'"
_MONTH = f"((extract(year FROM {_NOW}) - 1970) * 12 + extract(month FROM {_NOW}) - 1)::int"
THIS_MONTH = f"(({_MONTH})::bigint << {_BITS})"
"""SQL of the smallest id of this month."""

T = TypeVar("T")


class DatabaseError(TranscendentError):
    """The database cannot be used."""


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that is closed if the server does not answer in time.

    The server's own timeout does not help if its process is stopped. Nor do keepalives: the kernel answers
    those.
    """

    timeout: float | None = None

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **given: Any) -> T:
        """Wait for an answer, for at most ``timeout`` seconds."""
        if self.timeout is None:
            return super().wait(gen, *args, **given)
        try:
            return super().wait(_until(gen, time.monotonic() + self.timeout), *args, **given)
        except TimeoutError:
            self.pgconn.finish()
            raise psycopg.OperationalError(
                f"the database did not answer within {self.timeout:g} seconds"
            ) from None


def _until(gen: Generator[Any, Any, T], end: float) -> Generator[Any, Any, T]:
    """Run psycopg's generator up to a moment; psycopg resumes it ten times a second."""
    try:
        waits_for = next(gen)
        while time.monotonic() < end:
            waits_for = gen.send((yield waits_for))
    except StopIteration as done:
        answer: T = done.value
        return answer
    raise TimeoutError


def connect(url: str, connections: int = 5, *, timeout: float | None = None) -> Engine:
    """Return an engine for a PostgreSQL database. It connects on first use.

    ``timeout`` is the number of seconds after which a connection without an answer is closed.
    """
    try:
        parsed = make_url(re.sub("^postgres://", "postgresql://", url))
    except (ArgumentError, ValueError):  # ValueError: the port is not a number
        raise DatabaseError("database must be a URL such as postgresql://user@host/name.") from None
    if parsed.get_backend_name() != "postgresql":
        raise DatabaseError(f"the database must be PostgreSQL, not {parsed.get_backend_name()}.")
    engine = create_engine(
        parsed.set(drivername="postgresql+psycopg"),
        pool_size=connections,
        max_overflow=0,
        pool_timeout=10 if timeout is None else min(10, timeout),
        pool_pre_ping=True,
        connect_args={
            "prepare_threshold": None,  # behind a pooler, the next statement may reach another server process
            "connect_timeout": 5 if timeout is None else max(2, min(5, int(timeout))),
            "tcp_user_timeout": 15_000,  # milliseconds that sent data may stay unacknowledged
            "keepalives_idle": 5,  # seconds without traffic before the first keepalive
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "target_session_attrs": "read-write",  # after a failover, not the old primary
            "application_name": "transcendent-gate",
        },
    )
    event.listen(engine, "handle_error", _reconnect_if_read_only)

    @event.listens_for(engine, "do_connect")
    def bounded(dialect: Any, record: Any, args: Any, given: Any) -> Any:  # noqa: ARG001
        connection = BoundedConnection.connect(*args, **given)
        connection.timeout = timeout
        return connection

    return engine


def _reconnect_if_read_only(context: Any) -> None:
    """Drop a connection that refuses writes: a failover may have made its server a replica."""
    if isinstance(context.original_exception, psycopg.errors.ReadOnlySqlTransaction):
        context.is_disconnect = True


def retry_if_disconnected(engine: Engine, work: Callable[[Connection], T]) -> T:
    """Run work in a transaction, and once more if the connection was lost. The work must be idempotent."""
    try:
        with engine.begin() as connection:
            return work(connection)
    except (OperationalError, psycopg.OperationalError):
        pass
    except DBAPIError as error:
        if not error.connection_invalidated:
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
    """Return all versions, oldest first, including those in additional folders."""
    scripts = ScriptDirectory.from_config(_scripts(folders))
    return sorted(script.revision for script in scripts.walk_revisions())


@cache
def newest_version() -> str:
    """Return the version that this code was written for."""
    return versions()[-1]


def version_of(connection: Connection) -> str | None:
    """Return the version of a database, or None if it is empty."""
    return MigrationContext.configure(connection).get_current_revision()


def migrate(engine: Engine, to: str = "head", folders: Sequence[Path] = ()) -> str | None:
    """Migrate a database to a version, and return the version it has then.

    ``folders`` may hold additional versions.
    """
    with engine.begin() as guard:
        guard.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        now, known = version_of(guard) or "base", ["base", *versions(folders)]
        if now not in known:
            raise DatabaseError(
                f"the database has version {now}, but the newest one that this package knows is {known[-1]}: "
                "upgrade the package."
            )
        start, end = known.index(now), known.index(known[-1] if to == "head" else to)
        for version in known[start + 1 : end + 1]:
            _step(engine, command.upgrade, version, folders)
        for version in reversed(known[end:start]):
            _step(engine, command.downgrade, version, folders)
    if to == "head":
        make_months(engine)
    with engine.connect() as connection:
        return version_of(connection)


def _step(engine: Engine, change: Callable[[Config, str], None], to: str, folders: Sequence[Path]) -> None:
    """Go one version up or down, and record the oldest gates that work with it."""
    config = _scripts(folders)
    script = None if to == "base" else ScriptDirectory.from_config(config).get_revision(to)

    def work(connection: Connection) -> None:
        config.attributes["connection"] = connection
        change(config, to)
        if script is not None:
            oldest = {"oldest": script.module.works_from}
            connection.execute(text("UPDATE works_from SET version = :oldest"), oldest)

    without_blocking(engine, work, f"the database was not brought to version {to}")


def without_blocking(engine: Engine, work: Callable[[Connection], T], failure: str, tries: int = 30) -> T:
    """Run work that locks tables in a transaction.

    Requests queue behind a waiting lock, even those that the current holder would not block. So each attempt
    waits only briefly.
    """
    try:
        with engine.begin() as connection:
            connection.execute(text("SET LOCAL lock_timeout = '500ms'"))
            return work(connection)
    except OperationalError as error:
        if not isinstance(error.orig, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected):
            raise
        if tries == 1:
            raise DatabaseError(
                f"{failure}: something is using the tables, such as an export or a backup. Try again later."
            ) from error
    time.sleep(1)
    return without_blocking(engine, work, failure, tries - 1)


def check_version(connection: Connection) -> None:
    """Raise unless the database has this gate's version, or a newer one that is compatible with it."""
    encoding = connection.execute(text("SHOW server_encoding")).scalar_one()
    if encoding != "UTF8":
        raise DatabaseError(f"the database has the encoding {encoding}: create one with UTF8.")
    found, own = version_of(connection) or "none", newest_version()
    if found == own:
        return
    if found == "none" or found < own:
        raise DatabaseError(
            f"the database has version {found}, but this gate needs {own}: run 'transcendent gate migrate'."
        )
    oldest = connection.execute(text("SELECT version FROM works_from")).scalar_one()
    if oldest > own:
        raise DatabaseError(
            f"the database has version {found}, which needs gates of version {oldest} or newer, but this "
            f"gate has {own}: upgrade the gate."
        )


@contextmanager
def opened(url: str) -> Iterator[Engine]:
    """Connect to a database of a compatible version, and close the connections at the end."""
    engine = connect(url)
    try:
        with engine.connect() as connection:
            check_version(connection)
        yield engine
    finally:
        engine.dispose()


_NEEDED = {
    "alarm": ("SELECT", "INSERT"),
    "artifact": ("SELECT",),
    "campaign": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "case_work": ("SELECT", "UPDATE"),
    "content": ("SELECT", "INSERT", "UPDATE"),
    "contents_known": ("SELECT", "UPDATE"),
    "compared": ("SELECT", "INSERT", "UPDATE"),
    "context_field": ("SELECT", "INSERT"),
    "cutoff": ("SELECT", "INSERT"),
    "deletion": ("SELECT",),
    "decided_day": ("SELECT", "INSERT", "UPDATE"),
    "delivery": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "deployment": ("SELECT", "INSERT"),
    "disagreement": ("SELECT", "INSERT"),
    "event": ("SELECT", "UPDATE"),
    "event_order": ("SELECT", "UPDATE"),
    "example": ("SELECT",),
    "grouped": ("SELECT", "UPDATE"),
    "identity": ("SELECT", "INSERT", "DELETE"),
    "inferred": ("SELECT", "INSERT"),
    "item": ("SELECT", "INSERT", "UPDATE"),
    "item_content": ("SELECT", "INSERT"),
    "label": ("SELECT", "INSERT"),
    "minute_counts": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "model": ("SELECT", "INSERT"),
    "monitor": ("SELECT", "INSERT", "UPDATE"),
    "monitor_day": ("SELECT", "INSERT", "UPDATE"),
    "month": ("SELECT",),
    "opinion": ("SELECT", "INSERT"),
    "outside_label": ("SELECT", "INSERT"),
    "outside_reason": ("SELECT", "INSERT"),
    "payload": ("SELECT", "INSERT", "UPDATE"),
    "process": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "ranks": ("SELECT", "INSERT", "DELETE"),
    "remark": ("SELECT",),
    "secret": ("SELECT",),
    "sender_day": ("SELECT", "INSERT", "UPDATE"),
    "session": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "settled_look": ("SELECT", "INSERT"),
    "settling_switch": ("SELECT", "INSERT"),
    "shadow_counts": ("SELECT", "INSERT", "UPDATE"),
    "sign_in": ("SELECT", "DELETE"),
    "tally": ("SELECT", "INSERT", "DELETE"),
    "token": ("SELECT",),
    "unconfirmed": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "waiting_day": ("SELECT", "INSERT", "UPDATE"),
    "webhook": ("SELECT", "INSERT", "UPDATE"),
    "work": ("SELECT", "INSERT", "DELETE"),
    "work_from": ("SELECT",),
}
"""Rights that a gate needs. Creating partitions needs the owner's."""


def check_role(engine: Engine) -> None:
    """Raise if the database role lacks a right that a gate needs."""
    needed = [("table", name, right) for name, rights in _NEEDED.items() for right in rights]
    lacking = []
    with engine.connect() as connection:
        for kind, name, right in [*needed, ("sequence", "item_number", "USAGE")]:
            sql = text(f"SELECT has_{kind}_privilege(:name, :right)")
            if not connection.execute(sql, {"name": name, "right": right}).scalar_one():
                lacking.append(f"{right} on {name}")
        role = connection.execute(text("SELECT current_user")).scalar_one()
    if lacking:
        raise DatabaseError(
            f"the database role {role} lacks {', '.join(lacking)}: grant it, or use the owner's role."
        )


def may_make_months(connection: Connection) -> bool:
    """Return whether the role may create partitions."""
    # CREATE on the schema is not enough: only the owner of a table may attach a partition to it.
    sql = """SELECT bool_and(pg_has_role(relowner, 'USAGE'))
        AND has_schema_privilege(current_schema(), 'CREATE')
    FROM pg_class WHERE oid = ANY(ARRAY['item', 'payload', 'month', 'tally']::regclass[])"""
    return bool(connection.execute(text(sql)).scalar_one())


def check_months(connection: Connection) -> str | None:
    """Raise if this month has no partition; return a warning if next month, less than a week away, has none.

    A role that may create partitions gets neither: it creates them when they are needed.
    """
    sql = f"""SELECT {_MONTH} AS this, array(SELECT number FROM month WHERE number >= {_MONTH}) AS months,
        extract(day FROM date_trunc('month', {_NOW}) + interval '1 month' - ({_NOW})) AS days"""
    found = connection.execute(text(sql)).one()
    lacks_this, lacks_next = found.this not in found.months, found.this + 1 not in found.months
    if not (lacks_this or (lacks_next and found.days < 7)) or may_make_months(connection):
        return None
    lacking = month_name(found.this if lacks_this else found.this + 1)
    hint = f"there is no partition for {lacking}: run 'transcendent gate months' as the owner of the tables."
    if lacks_this:
        raise DatabaseError(hint)
    return hint


def prepare(engine: Engine) -> str | None:
    """Check a database and create partitions; if the role may not, return a warning about the last one."""
    with engine.connect() as connection:
        check_version(connection)
        if not may_make_months(connection):
            check_months(connection)
            last = connection.execute(text("SELECT max(number) FROM month")).scalar_one()
            return (
                f"this database role cannot create partitions, and the last one is {month_name(last)}: "
                "run 'transcendent gate months' every month as the owner of the tables."
            )
    make_months(engine)
    return None


def this_month(connection: Connection) -> int:
    """Return the number of the current month, in UTC."""
    return int(connection.execute(text(f"SELECT {_MONTH}")).scalar_one())


def make_months(engine: Engine) -> str:
    """Create missing partitions for this month and the next two; return the name of the last month."""
    with engine.begin() as connection:
        this = this_month(connection)
        for month in range(this, this + 3):
            make_month(connection, month)
    return month_name(this + 2)


def make_month(connection: Connection, month: int) -> None:
    """Create the partitions of a month, numbered from January 1970."""
    have = text("SELECT 1 FROM month WHERE number = :month")
    if connection.execute(have, {"month": month}).first():
        return
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK + 1})
    if connection.execute(have, {"month": month}).first():  # another gate did it while this one waited
        return
    if advice := detached_advice(connection, month):
        raise DatabaseError(advice)
    # Claims and labels update items: free space in a page keeps the new version of a row beside the old one.
    for table, options in (("item", " WITH (fillfactor = 90)"), ("payload", "")):
        name = partition(table, month)
        attached = text("SELECT 1 FROM pg_inherits WHERE inhrelid = to_regclass(:name)")
        if connection.execute(attached, {"name": name}).first():  # only the other table's was lost
            continue
        # CREATE TABLE ... PARTITION OF locks the parent against reads and writes; ATTACH PARTITION does not.
        connection.execute(text(f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL){options}"))
        connection.execute(text(_attach(table, month)))
        if table == "item":  # the partition is empty, whatever an earlier one was counted to have
            connection.execute(text("DELETE FROM tally WHERE month = :month"), {"month": month})
    connection.execute(text("INSERT INTO month VALUES (:month)"), {"month": month})


def _attach(table: str, month: int) -> str:
    bounds = f"FROM ({month << _BITS}) TO ({(month + 1) << _BITS})"
    return f"ALTER TABLE {table} ATTACH PARTITION {partition(table, month)} FOR VALUES {bounds}"


def detached_advice(connection: Connection, month: int) -> str | None:
    """Return advice if a table has the name of a month's partition but is not attached."""
    sql = """SELECT to_regclass(:name) IS NOT NULL
        AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = to_regclass(:name))"""
    for table in ("item", "payload"):
        name = partition(table, month)
        if connection.execute(text(sql), {"name": name}).scalar_one():
            return (
                f"the table {name} is not attached to {table}: attach it ({_attach(table, month)}), "
                "or rename it."
            )
    return None


def partition(table: str, month: int) -> str:
    """Return the name of a month's partition."""
    return f"{table}_{month_name(month).replace('-', '_')}"


def month_of(name: str) -> int:
    """Return the number of a month such as 2026-11."""
    found = re.fullmatch("([0-9]{4})-(0[1-9]|1[0-2])", name)
    if found is None:
        raise ValueError(f"a month is written as 2026-11, not {name!r}.")
    return (int(found[1]) - 1970) * 12 + int(found[2]) - 1


def month_name(month: int) -> str:
    """Return the name of a month, such as 2026-11."""
    return f"{month // 12 + 1970:04}-{month % 12 + 1:02}"


def drop_months(engine: Engine, before: int) -> list[str]:
    """Drop the items and payloads of all earlier months; return the dropped months.

    Labels stay, and labelled objects become examples.
    """
    check_over(engine, before)
    dropped = [month for month in months_before(engine, before) if _drop_month(engine, month_of(month))]
    with engine.begin() as connection:
        for sql in _DROP_COUNTS:
            connection.execute(text(sql), {"first": f"{month_name(before)}-01T00:00Z"})
    return dropped


# Events stay while a webhook has not read them, or has not delivered them. The newest one stays in any case:
# after a restore on another server, the order goes on from there.
OLD_EVENTS = """
FROM event WHERE written_at < {}
    AND (transaction, number) < (SELECT transaction, number FROM event ORDER BY 1 DESC, 2 DESC LIMIT 1)
    AND NOT EXISTS (SELECT FROM webhook
        WHERE (webhook.transaction, webhook.number) <= (event.transaction, event.number))
    AND NOT EXISTS (SELECT FROM delivery
        WHERE (delivery.transaction, delivery.number) = (event.transaction, event.number))
"""
# Counts and items of shadows go by the same hours, so that those that stay belong together.
_FIRST_HOUR = "extract(epoch FROM CAST(:first AS timestamptz)) / 3600"
# A budget continues from the newest cutoff of its model, however old that is.
_DROP_COUNTS = (
    f"DELETE {OLD_EVENTS.format('CAST(:first AS timestamptz)')}",
    f"DELETE FROM shadow_counts WHERE hour < {_FIRST_HOUR}",
    f"DELETE FROM disagreement WHERE hour < {_FIRST_HOUR}",
    "DELETE FROM sender_day WHERE day < CAST(:first AS timestamptz) AT TIME ZONE 'UTC'",
    """DELETE FROM cutoff WHERE made_at < CAST(:first AS timestamptz)
    AND number < (SELECT max(number) FROM cutoff AS newest WHERE newest.model = cutoff.model)""",
)


# Found by their labels: reading all items would take seconds, while gates wait.
_EXAMPLES = """INSERT INTO example (id, received_at, model, disagreed, {columns})
SELECT id, received_at, model, accepted AND rank >= 1, {columns} FROM {item} JOIN {payload} USING (id)
WHERE state = 1 AND id IN (
    SELECT item FROM label WHERE action = 'label' AND item >= :first AND item < :end
) ON CONFLICT (id) DO NOTHING"""
_EXAMPLE_COLUMNS = "probability, accepted, object_id, sender, label, features, context, seen_at, shown"


def _drop_month(engine: Engine, month: int, tries: int = 30) -> bool:
    """Drop a month; return False if another process has just done so."""

    def work(connection: Connection) -> bool:
        sql = text("DELETE FROM month WHERE number = :month")
        if not connection.execute(sql, {"month": month}).rowcount:
            return False
        names = {table: partition(table, month) for table in ("item", "payload")}
        for table, name in names.items():  # from here on, nobody can change a label of the month
            connection.execute(text(f"ALTER TABLE {table} DETACH PARTITION {name}"))
        bounds = {"first": month << _BITS, "end": (month + 1) << _BITS}
        connection.execute(text(_EXAMPLES.format(columns=_EXAMPLE_COLUMNS, **names)), bounds)
        for name in names.values():
            connection.execute(text(f"DROP TABLE {name}"))
        # Dropping a table fires no trigger, so its counts are deleted here.
        connection.execute(text("DELETE FROM tally WHERE month = :month"), {"month": month})
        connection.execute(
            text("INSERT INTO unswept VALUES (:month) ON CONFLICT DO NOTHING"), {"month": month}
        )
        return True

    return without_blocking(engine, work, f"{month_name(month)} was not dropped", tries)


def check_over(engine: Engine, before: int) -> None:
    """Raise if the current month is among the months to drop."""
    with engine.connect() as connection:
        this = month_name(this_month(connection))
    if before > month_of(this):
        raise ValueError(f"{this} is not over: the first month to keep must be {this} or earlier.")


def months_before(engine: Engine, before: int) -> list[str]:
    """Return the earlier months that have partitions."""
    sql = text("SELECT number FROM month WHERE number < :before ORDER BY 1")
    with engine.connect() as connection:
        return [month_name(month) for month in connection.execute(sql, {"before": before}).scalars()]


FIRST_KEPT = f"(SELECT coalesce(min(number)::bigint << {_BITS}, {2**63 - 1}) FROM month)"
"""SQL of the smallest id that an item may have: larger than any id if there are no months."""
