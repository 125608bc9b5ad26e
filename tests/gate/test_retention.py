"""Retention: months go, labelled objects stay as examples, and what they leave behind is swept."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow.parquet as pq
import pytest
from sqlalchemy import text

from tests.gate.conftest import Forked
from tests.gate.test_commands import given, run  # noqa: F401
from tests.gate.test_database import count, fill, move, this_month
from tests.gate.test_deletion import rows_of
from transcendent.gate import database, retention
from transcendent.gate.check import check
from transcendent.gate.database import (
    DatabaseError,
    connect,
    drop_months,
    make_month,
    month_name,
    month_of,
    months_before,
)
from transcendent.gate.deletion import declare_fields
from transcendent.gate.export import export_labelled
from transcendent.gate.processes import Process
from transcendent.gate.quarantine import ConflictError, NoItemError, Quarantine
from transcendent.gate.retention import sweep, tidy, to_tidy


@pytest.fixture
def this(engine):
    return month_of(this_month(engine))


def fill_months(engine, *months, n=6):
    """Keep objects in earlier months; some get a label, an undone label, or a skip."""
    for month in months:
        prefix = f"{month_name(month)}-"
        fill(engine, n, prefix)
        move(engine, prefix, month)
    quarantine = Quarantine(engine)
    for item in quarantine.claim("ann", 100).items:
        place = int(item["object_id"].rpartition("-")[2])
        act = (quarantine.resolve, quarantine.resolve, quarantine.skip)[place % 3]
        act("ann", item["id"], *(["malware"] if place % 3 < 2 else []), reason="r", note=f"note {place}")
        if place % 3 == 1:
            quarantine.undo("ann", item["id"], note="undone")


def export(engine, path):
    export_labelled(engine, path)
    return pq.read_table(path)


def add_context(engine):
    """Give every object a context and a time."""
    declare_fields(engine, ["host"])
    with engine.begin() as connection:
        sql = """UPDATE payload SET seen_at = '2019-01-01', shown = '{}',
            context = '{"host":"' || object_id || '"}'"""
        connection.exec_driver_sql(sql)


def test_an_export_is_the_same_before_and_after_a_month_is_dropped(engine, this, tmp_path):
    fill_months(engine, this - 3, this - 2, this)
    add_context(engine)
    before = export(engine, tmp_path / "before.parquet")
    assert len(before) == 6
    assert set(before["gate_note"].to_pylist()) == {"note 0", "note 3"}
    old = before["gate_item"].to_pylist()
    for first in (this - 2, this):
        drop_months(engine, first)
        after = export(engine, tmp_path / "after.parquet")
        assert after.equals(before)
        assert after.schema.equals(before.schema, check_metadata=True)
        sweep(engine)
        assert export(engine, tmp_path / "after.parquet").equals(before)
        assert check(engine) == []
    assert count(engine, "example") == 4
    since = before["gate_labelled_at"].to_pylist()[0]
    assert export_labelled(engine, tmp_path / "after.parquet", since=since) == 6
    assert export_labelled(engine, tmp_path / "after.parquet", model="e") == 0
    assert export_labelled(engine, tmp_path / "after.parquet", model="d") == 6
    assert old == sorted(old)


def test_only_notes_and_keys_of_examples_outlive_their_month(engine, this):
    fill_months(engine, this - 2, this)
    add_context(engine)
    assert (count(engine, "remark"), count(engine, "context_key")) == (16, 12)
    drop_months(engine, this)
    assert rows_of(engine, "SELECT month FROM unswept") == [(this - 2,)]
    assert sweep(engine) == 6
    assert sweep(engine) == 0
    assert count(engine, "unswept") == 0
    kept = "SELECT id FROM item UNION SELECT id FROM example"
    for table in ("remark", "context_key"):
        assert rows_of(engine, f"SELECT item FROM {table} WHERE item NOT IN ({kept})") == []
    assert (count(engine, "remark"), count(engine, "context_key")) == (8 + 2, 6 + 2)


def test_no_label_is_lost_that_is_written_while_its_month_is_dropped(engine, this):
    n = 60
    ((start,),) = rows_of(engine, "SELECT coalesce(max(id), 0) FROM label")
    fill(engine, n, "old")
    move(engine, "old", this - 1)
    first = threading.Event()

    def work(who):
        quarantine = Quarantine(engine)
        for item in quarantine.claim(who, n // 3).items:
            try:
                quarantine.resolve(who, item["id"], "malware")
                if item["id"] % 4 == 0:
                    quarantine.undo(who, item["id"])
                else:
                    first.set()
            except (NoItemError, ConflictError):
                return

    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(work, who) for who in "abc"]
        assert first.wait(60)
        drop_months(engine, this)
        for each in running:
            each.result()
    last = f"SELECT DISTINCT ON (item) item, action FROM label WHERE id > {start} ORDER BY item, id DESC"
    labelled = rows_of(engine, f"SELECT item FROM ({last}) AS last WHERE action = 'label' ORDER BY 1")
    assert labelled
    assert rows_of(engine, "SELECT id FROM example ORDER BY 1") == labelled
    assert check(engine) == []


def test_a_drop_that_fails_copies_nothing(engine, this, monkeypatch):
    fill_months(engine, this - 1)
    monkeypatch.setattr(database, "_EXAMPLES", database._EXAMPLES + " RETURNING 1 / (id - id)")
    with pytest.raises(Exception, match="division by zero"):
        drop_months(engine, this)
    assert (count(engine, "example"), count(engine, "item"), count(engine, "unswept")) == (0, 6, 0)
    assert check(engine) == []


class TestTidy:
    def test_keeps_everything_by_default_and_makes_months(self, engine, this):
        fill_months(engine, this - 30, this)
        with engine.begin() as connection:
            for table in ("item", "payload"):
                connection.execute(text(f"DROP TABLE {database.partition(table, this + 2)}"))
            connection.execute(text("DELETE FROM month WHERE number = :last"), {"last": this + 2})
        assert tidy(engine, None, None) == ([], 0, 0, 0, 0)
        assert months_before(engine, this + 9)[-1] == month_name(this + 2)
        assert count(engine, "item") == 12

    def test_drops_what_the_settings_do_not_keep_as_said_before(self, engine, this, monkeypatch):
        fill_months(engine, *(this - i for i in (5, 3, 2, 1, 0)))
        add_context(engine)
        monkeypatch.setattr(retention, "_STEP", 1)
        planned = to_tidy(engine, 2, None)
        assert planned.months == [month_name(this - 5), month_name(this - 3)]
        assert count(engine, "item") == 30
        done = tidy(engine, 2, None)
        assert done == (*planned[:3], 12, 0)
        assert (count(engine, "item"), count(engine, "example")) == (18, 4)
        assert to_tidy(engine, 2, 3) == ([], 2, 0, None, 0)
        assert tidy(engine, 2, 3) == ([], 2, 0, 0, 0)
        assert rows_of(engine, "SELECT DISTINCT id >> 40 FROM example") == [(this - 3,)]
        assert tidy(engine, 0, 0) == ([month_name(this - i) for i in (2, 1)], 6, 0, 12, 0)
        assert (count(engine, "item"), count(engine, "example")) == (6, 0)
        for table in ("remark", "context_key"):
            assert rows_of(engine, f"SELECT item FROM {table} WHERE item < {this << 40}") == []
        assert check(engine) == []

    def test_completes_a_drop_that_was_killed_before_its_sweep(self, engine, this):
        fill_months(engine, this - 2)
        drop_months(engine, this)
        assert count(engine, "identity") == 6
        assert tidy(engine, None, None).identities == 6
        assert (count(engine, "identity"), count(engine, "remark")) == (0, 2)

    def test_forgets_dead_processes_and_old_counts(self, engine, this):
        dead, live = Process(engine), Process(engine)
        for each in (dead, live):
            each.beat(1, [1])
        first = f"{month_name(this - 1)}-01"
        with engine.begin() as connection:
            sql = "UPDATE process SET seen_at = now() - interval '2 days' WHERE id = :id"
            connection.execute(text(sql), {"id": dead.id})
            sql = "INSERT INTO sender_day VALUES (CAST(:day AS date) - 1, 'a', 1, 1), (:day, 'b', 1, 1)"
            connection.execute(text(sql), {"day": first})
            sql = """WITH used AS (
                INSERT INTO model (digest, classes, features) VALUES ('ended', '[]', '{}') RETURNING id
            ), made AS (
                INSERT INTO deployment (model, action, settings, author, reason)
                SELECT id, 'pinned', '{}', 'test', 'test' FROM used RETURNING id
            ) INSERT INTO minute_counts (deployment, minute, process, objects, cells, counts)
            SELECT made.id, extract(epoch FROM now())::bigint / 60 - age, gen_random_uuid(), age, '{1}', '{1}'
            FROM made, unnest(ARRAY[1, 1440, 2890]) AS age"""
            connection.execute(text(sql))
        assert to_tidy(engine, 1, None).processes == 1
        assert tidy(engine, 1, None).processes == 1
        assert rows_of(engine, "SELECT id FROM process") == [(live.id,)]
        assert rows_of(engine, "SELECT sender FROM sender_day") == [("b",)]
        assert rows_of(engine, "SELECT objects FROM minute_counts ORDER BY 1") == [(1,), (1440,)]

    def test_is_left_to_the_process_that_does_it(self, engine, this):
        fill_months(engine, this - 2)
        with engine.begin() as other:
            assert other.execute(text(retention._ALONE)).scalar_one()
            assert tidy(engine, 0, None) is None
            assert count(engine, "item") == 6
        assert tidy(engine, 0, None).months == [month_name(this - 2)]


class TestTidyCommand:
    @pytest.fixture
    def engine(self, own_engine):
        return own_engine

    def test_may_run_on_several_hosts_at_once(self, engine, database, this, tmp_path):
        months = [this - i for i in range(1, 6)]
        fill_months(engine, *months, n=3)
        environment = {
            "TRANSCENDENT_GATE_DATABASE": database,
            "TRANSCENDENT_GATE_KEEP_MONTHS": "0",
        }
        done = [Forked(tidy_command, environment, tmp_path / f"{i}.log") for i in range(2)]
        while any(each.poll() is None for each in done):
            fill(engine, 2, f"new{count(engine, 'item')}")  # gates go on
            time.sleep(0.1)
        logs = [(tmp_path / f"{i}.log").read_text() for i in range(2)]
        assert [each.poll() for each in done] == [0, 0], logs
        dropped = [name for name in map(month_name, months) if sum(name in each for each in logs) == 1]
        assert len(dropped) == 5, logs
        assert count(engine, "example") == 5
        assert check(engine) == []

    def test_needs_the_owner(self, engine, database):
        with engine.begin() as connection:
            connection.execute(text("CREATE ROLE visitor LOGIN"))
            connection.execute(text("GRANT SELECT ON ALL TABLES IN SCHEMA public TO visitor"))
        other = connect(database.replace("postgres@", "visitor@"))
        try:
            with pytest.raises(DatabaseError, match="run it as the owner of the tables"):
                tidy(other, None, None)
        finally:
            other.dispose()
            with engine.begin() as connection:
                connection.execute(text("DROP OWNED BY visitor"))
                connection.execute(text("DROP ROLE visitor"))

    def test_events_go_but_for_those_that_webhooks_need(self, engine, monkeypatch):
        def age(days, kinds=("a", "b", "c", "d", "e")):
            with engine.begin() as connection:
                sql = (
                    "UPDATE event SET written_at = now() - make_interval(days => :days) WHERE kind = ANY(:k)"
                )
                connection.execute(text(sql), {"days": days, "k": list(kinds)})

        def left():
            return "".join(row[0] for row in rows_of(engine, "SELECT kind FROM event ORDER BY 1"))

        def at(table, kind, **more):
            columns = "".join(f", {name}" for name in more)
            values = "".join(f", :{name}" for name in more)
            with engine.begin() as connection:
                sql = f"""INSERT INTO {table} (target, transaction, number, place{columns})
                SELECT 'soc', transaction, number, 1{values} FROM event WHERE kind = :kind"""
                connection.execute(text(sql), {"kind": kind, **more})

        for table in ("delivery", "webhook", "event"):
            with engine.begin() as connection:
                connection.execute(text(f"DELETE FROM {table}"))
        for kind in "abcdef":
            with engine.begin() as connection:
                connection.execute(text("INSERT INTO event (kind, items) VALUES (:k, '{1}')"), {"k": kind})
        monkeypatch.setattr(retention, "_STEP", 1)
        age(10)
        assert tidy(engine, None, None).events == 0
        assert tidy(engine, None, None, 11).events == 0
        at("webhook", "d")  # has read up to d, perhaps not all items of it
        at("delivery", "b", dead=True)
        assert to_tidy(engine, None, None, 9).events == 2
        assert tidy(engine, None, None, 9).events == 2
        assert left() == "bdef"
        drop_months(engine, month_of(this_month(engine)))
        assert left() == "bdef"
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM webhook"))
            connection.execute(text("DELETE FROM delivery"))
        assert tidy(engine, None, None, 9).events == 3
        age(10, "f")
        assert tidy(engine, None, None, 0).events == 0  # the order goes on from the newest
        assert left() == "f"

    def test_the_command(self, run, given, engine, this, monkeypatch):  # noqa: F811
        with engine.begin() as connection:
            make_month(connection, this - 3)
        done = "examples deleted: 0; processes forgotten: 0; events deleted: 0"
        assert run("tidy").stderr == f"months dropped: none; {done}; identities forgotten: 0.\n"
        monkeypatch.setenv("TRANSCENDENT_GATE_KEEP_MONTHS", "2")
        monkeypatch.setenv("TRANSCENDENT_GATE_DELETABLE_CONTEXT", "host")
        said = f"months dropped: {month_name(this - 3)}; {done}"
        assert run("tidy", "--dry-run").stderr == f"would do: {said}.\n"
        assert rows_of(engine, "SELECT name FROM context_field") == []
        assert run("tidy").stderr == f"{said}; identities forgotten: 0.\n"
        assert rows_of(engine, "SELECT name FROM context_field") == [("host",)]


def tidy_command(environment, log):
    """Run the command in a process of its own."""
    import os

    from transcendent.cli.app import app

    os.environ.update(environment)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    app(["gate", "tidy"])
