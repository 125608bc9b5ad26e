"""Versions of the database, and the months in it."""

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import chain, pairwise
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from tests.gate.conftest import drop_all, pretend_version
from transcendent.gate.database import (
    DatabaseError,
    _drop_month,
    check_version,
    connect,
    drop_months,
    make_month,
    make_months,
    migrate,
    month_name,
    month_of,
    months_before,
    newest_version,
    partition,
    retry_if_disconnected,
    version_of,
    versions,
)
from transcendent.gate.intake import audit_secret, keep, register
from transcendent.gate.model import Model
from transcendent.gate.quarantine import NoItemError, Quarantine
from transcendent.gate.retention import sweep_identities
from transcendent.tables.layout import Layout


@pytest.fixture
def bare(empty_database):
    """An engine of a database without tables."""
    engine = connect(empty_database)
    yield engine
    engine.dispose()


def fill(engine, n=3, prefix="o"):
    number = register(engine, Model(None, "d", Layout(3), ["goodware", "malware"], {}))
    keep(
        engine,
        [
            (
                f"{prefix}{i}".encode(),
                number,
                1,
                i / n,
                i / n,
                0.5,
                1.0,
                None,
                None,
                False,
                f"{prefix}{i}",
                "sensor",
                None,
                "malware",
                None,
                b"\x01",
                None,
                None,
                None,
                True,
            )
            for i in range(n)
        ],
    )


def move(engine, prefix, month):
    """Pretend that objects were kept in another month."""
    with engine.begin() as connection:
        make_month(connection, month)
        sql = text("SELECT id FROM payload WHERE object_id LIKE :prefix")
        old = list(connection.execute(sql, {"prefix": f"{prefix}%"}).scalars())
        for table, column in (("item", "id"), ("payload", "id"), ("identity", "item")):
            connection.execute(
                text(
                    f"UPDATE {table} SET {column} = {column} % (1::bigint << 40) + {month << 40} "
                    f"WHERE {column} = ANY(:old)"
                ),
                {"old": old},
            )


def months(engine):
    return months_before(engine, month_of("9999-12"))


def this_month(engine):
    with engine.connect() as connection:
        return connection.execute(text("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM')")).scalar_one()


def tables(engine):
    with engine.connect() as connection:
        sql = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        return set(connection.execute(text(sql)).scalars()) - {"alembic_version"}


def objects(engine):
    """Return the names of tables, indexes, sequences and functions."""
    with engine.connect() as connection:
        sql = """SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
        UNION SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace"""
        return set(connection.execute(text(sql)).scalars())


def test_every_table_is_documented(engine):
    sql = """SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition
    AND relnamespace = 'public'::regnamespace AND relname <> 'alembic_version'"""
    with engine.connect() as connection:
        found = sorted(connection.execute(text(sql)).scalars())
    page = (Path(__file__).parents[2] / "docs/reference/gate_tables.md").read_text("utf-8")
    first_columns = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    assert found == sorted(name for column in first_columns for name in re.findall(r"`(\w+)`", column))


def count(engine, table):
    with engine.connect() as connection:
        return connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()


def test_an_empty_database_has_no_version_and_is_refused(bare):
    with bare.connect() as connection:
        assert version_of(connection) is None
        needs = f"version none, .* needs {newest_version()}: run .*gate migrate'"
        with pytest.raises(DatabaseError, match=needs):
            check_version(connection)


def test_migrations_go_up_to_each_version_and_down_again(bare):
    seen = {None: tables(bare)}
    for version in versions():
        assert migrate(bare, version) == version
        seen[version] = tables(bare)
    assert versions()[-1] == newest_version()
    for later, earlier in pairwise([*reversed(versions()), None]):
        assert seen[earlier] != seen[later]
        assert migrate(bare, earlier or "base") == earlier
        assert tables(bare) == seen[earlier]
    assert migrate(bare, "base") is None
    assert migrate(bare) == newest_version()
    with bare.connect() as connection:
        check_version(connection)


def test_an_old_database_is_refused(bare):
    migrate(bare)
    pretend_version(bare, "0000")
    needs = f"version 0000, .* needs {newest_version()}: run"
    with bare.connect() as connection, pytest.raises(DatabaseError, match=needs):
        check_version(connection)


def test_a_version_that_no_package_has_is_refused(bare):
    migrate(bare)
    pretend_version(bare, "9999")
    said = (
        f"version 9999, but the newest one that this package knows is {newest_version()}: upgrade the package"
    )
    with pytest.raises(DatabaseError, match=said):
        migrate(bare)


def test_migrating_to_base_drops_everything(bare):
    engine, empty = bare, objects(bare)
    migrate(engine)
    fill(engine, 5)
    secret = audit_secret(engine)
    assert migrate(engine, "base") is None
    assert objects(engine) - empty == {"alembic_version", "alembic_version_pkc"}
    assert migrate(engine) == newest_version()
    fill(engine, 2)
    assert count(engine, "item") == 2
    assert audit_secret(engine) != secret


def test_migrating_twice_changes_nothing(engine):
    fill(engine)
    before = tables(engine)
    assert migrate(engine) == newest_version()
    assert tables(engine) == before
    assert count(engine, "item") == 3


def test_threads_that_migrate_at_once_wait_for_each_other(empty_database):
    def work(_):
        engine = connect(empty_database)
        try:
            return migrate(engine)
        finally:
            engine.dispose()

    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(work, range(6))) == {newest_version()}


def test_there_are_partitions_of_this_month_and_the_next_two(engine):
    this = month_of(this_month(engine))
    assert months(engine) == [month_name(this + i) for i in range(3)]
    assert {partition(table, this + i) for table in ("item", "payload") for i in range(3)} <= tables(engine)
    make_months(engine)
    assert months(engine) == [month_name(this + i) for i in range(3)]


def test_many_threads_create_a_month_once(engine):
    drop_all(engine)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: make_months(engine), range(8)))
    assert len(months(engine)) == 3


def test_an_id_contains_its_month(engine):
    fill(engine)
    with engine.connect() as connection:
        sql = f"SELECT count(*) FROM {partition('item', month_of(this_month(engine)))}"
        assert connection.execute(text(sql)).scalar_one() == 3


def test_older_months_are_dropped_and_labels_stay(engine):
    for prefix, month in (("a", "2020-11"), ("b", "2020-12"), ("c", "2021-01"), ("d", None)):
        fill(engine, 4, prefix)
        if month:
            move(engine, prefix, month_of(month))
    quarantine = Quarantine(engine)
    for item in quarantine.claim("ann", 16).items:
        quarantine.resolve("ann", item["id"], "malware")
    assert months_before(engine, month_of("2021-01")) == ["2020-11", "2020-12"]
    old, labels = quarantine.show(oldest := min(ids(engine))), count(engine, "label")
    assert old["object_id"][0] == "a"
    assert drop_months(engine, month_of("2021-01")) == ["2020-11", "2020-12"]
    assert drop_months(engine, month_of("2021-01")) == []
    assert [count(engine, table) for table in ("item", "payload", "identity", "label")] == [8, 8, 16, labels]
    assert not {"item_2020_11", "payload_2020_12"} & tables(engine)
    assert "item_2021_01" in tables(engine)
    with pytest.raises(NoItemError):
        quarantine.show(oldest)
    assert count(engine, "example") == 8
    assert sweep_identities(engine) == 8
    assert sweep_identities(engine) == 0
    assert count(engine, "identity") == 8
    assert quarantine.counts()["labelled"] == 8
    with engine.connect() as connection:
        known = connection.execute(text("SELECT object_id FROM example WHERE id = :id"), {"id": oldest})
        assert known.scalars().all() == [old["object_id"]]


def ids(engine):
    with engine.connect() as connection:
        return list(connection.execute(text("SELECT id FROM item")).scalars())


def test_a_month_that_is_not_over_is_not_dropped(engine):
    fill(engine, 4)
    this = month_of(datetime.now(UTC).strftime("%Y-%m"))
    assert drop_months(engine, this) == []
    with pytest.raises(ValueError, match="is not over"):
        drop_months(engine, this + 1)
    assert count(engine, "item") == 4


def test_a_month_is_made_while_others_read_and_dropped_when_they_have_done(engine):
    with engine.begin() as connection:
        make_month(connection, month_of("2001-01"))
    with engine.begin() as reader:
        reader.execute(text("SELECT count(*) FROM item JOIN payload USING (id)"))
        with engine.begin() as connection:
            connection.execute(text("SET LOCAL lock_timeout = '2s'"))
            make_month(connection, month_of("2002-01"))
        with pytest.raises(DatabaseError, match="2001-01 was not dropped: something is using the tables"):
            _drop_month(engine, month_of("2001-01"), tries=1)
        assert fill(engine, 3) is None  # nobody waits behind it
    assert drop_months(engine, month_of("2003-01")) == ["2001-01", "2002-01"]


def test_many_threads_drop_a_month_once(engine):
    for year in range(2000, 2004):
        with engine.begin() as connection:
            make_month(connection, month_of(f"{year}-01"))
    with ThreadPoolExecutor(4) as pool:
        dropped = pool.map(lambda _: drop_months(engine, month_of("2004-01")), range(4))
    assert sorted(chain(*dropped)) == [f"{year}-01" for year in range(2000, 2004)]


def test_months_are_dropped_while_objects_come_in(engine):
    for year in range(2000, 2010):
        with engine.begin() as connection:
            make_month(connection, month_of(f"{year}-01"))
    with ThreadPoolExecutor(5) as pool:
        keepers = [
            pool.submit(lambda n=n: [fill(engine, 20, f"{n}_{i}_") for i in range(8)]) for n in range(4)
        ]
        dropped = pool.submit(drop_months, engine, month_of("2010-01")).result()
        for keeper in keepers:
            keeper.result()
    assert len(dropped) == 10
    assert count(engine, "item") == count(engine, "payload") == 4 * 8 * 20


def test_months_are_numbered_from_1970():
    assert month_of("1970-01") == 0
    assert month_of("2026-11") == 56 * 12 + 10
    for month in range(600, 700):
        assert month_of(month_name(month)) == month
    assert partition("item", month_of("2026-02")) == "item_2026_02"


@pytest.mark.parametrize(
    "name",
    [
        *("", "2026", "2026-", "-11", "2026-13", "2026-00", "26-11", "2026-1", "2026-011", "2026-11-01"),
        *("2026/11", "nov 2026", "2026-1x", " 2026-11", "-2026-11", "٢٠٢٦-١١"),
    ],
)
def test_other_names_of_months_are_refused(name):
    with pytest.raises(ValueError, match="written as 2026-11"):
        month_of(name)


@pytest.mark.parametrize(
    "url", ["", "nonsense", "/tmp/file", "postgresql", "postgresql://host:port/name", "http://a:b:c/"]
)
def test_invalid_urls_are_refused(url):
    with pytest.raises(DatabaseError, match="must be a URL such as postgresql://"):
        connect(url)


@pytest.mark.parametrize(
    "url", ["sqlite://", "mysql://u:secret@host/name", "mysql+pymysql://h/n", "redis://h"]
)
def test_other_databases_are_refused_and_passwords_not_repeated(url):
    with pytest.raises(DatabaseError, match="must be PostgreSQL, not") as error:
        connect(url)
    assert "secret" not in str(error.value)


def test_a_url_may_name_another_driver(shared_database):
    engine = connect(shared_database.replace("postgresql://", "postgresql+psycopg2://"))
    with engine.connect() as connection:
        check_version(connection)
    engine.dispose()


def test_work_fails_if_there_is_no_server():
    engine = connect("postgresql://nobody@127.0.0.1:1/nothing")
    calls = []
    with pytest.raises(OperationalError):
        retry_if_disconnected(engine, calls.append)
    assert calls == []


def test_work_is_repeated_if_the_connection_broke(engine):
    calls = []

    def work(connection):
        calls.append(connection)
        if len(calls) == 1:
            connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
        return connection.execute(text("SELECT 7")).scalar_one()

    assert retry_if_disconnected(engine, work) == 7
    assert len(calls) == 2


def test_work_is_repeated_on_a_new_connection_if_the_server_has_become_read_only(engine):
    with engine.begin() as connection:
        connection.execute(text("SET SESSION default_transaction_read_only = on"))
    calls = []

    def work(connection):
        calls.append(connection)
        connection.execute(text("INSERT INTO model (digest, classes, features) VALUES ('d', '[]', '{}')"))

    retry_if_disconnected(engine, work)
    assert len(calls) == 2


def test_read_only_databases_are_refused(database):
    engine = connect(database)
    with engine.begin() as connection:
        name = connection.engine.url.database
        connection.execute(text(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
    engine.dispose()
    with pytest.raises(OperationalError, match="read-only"):
        retry_if_disconnected(engine, lambda connection: connection)


def test_work_that_fails_is_not_repeated(engine):
    calls = []

    def work(connection):
        calls.append(connection)
        connection.execute(text("SELECT 1 / 0"))

    with pytest.raises(Exception, match="division by zero"):
        retry_if_disconnected(engine, work)
    assert len(calls) == 1
