"""Events: written with what they tell, read in an order in which none is missed."""

import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from typer.testing import CliRunner

from tests.gate.test_quarantine import MODEL, rows
from transcendent.cli import events as commands
from transcendent.cli.app import app
from transcendent.errors import GateError
from transcendent.gate.database import connect, drop_months, month_of
from transcendent.gate.deployments import deploy
from transcendent.gate.events import Cursor, CursorError, Events, resume_order
from transcendent.gate.intake import AUDITED, keep, register
from transcendent.gate.quarantine import Quarantine


def all_of(events, cursor=None):
    return [each for page in events.all_after(cursor or Cursor()) for each in page.events]


def told(events, *names):
    return [(each["type"], *(each["data"].get(name) for name in names)) for each in all_of(events)]


@pytest.fixture
def events(own_engine):
    return Events(own_engine, ["name"])


@pytest.fixture
def fill(own_engine):
    def keep_them(ranks, prefix="o", **given):
        keep(own_engine, rows(own_engine, ranks, prefix, **given))

    return keep_them


def test_each_change_is_told_once_and_in_order(own_engine, events, fill):
    fill([0.1, 0.2, 0.3], context='{"name": "a.exe", "host": "mail-3"}')
    quarantine = Quarantine(own_engine)
    first, second, third = (each["id"] for each in quarantine.claim("ann", 3).items)
    quarantine.resolve("ann", first, "malware", reason="packed", note="do not tell")
    quarantine.resolve("ann", first, "malware")  # again: changes nothing
    quarantine.skip("ann", second)
    quarantine.undo("boss", first, anyone=True)
    quarantine.release("ann")
    quarantine.close(MODEL.digest, "boss")
    with own_engine.begin() as connection:
        deploy(connection, register(own_engine, MODEL), "active", {"secret": 1}, "boss", "better")
    assert told(events, "item", "author", "label", "reason") == [
        ("rejected", first, None, None, None),
        ("rejected", second, None, None, None),
        ("rejected", third, None, None, None),
        ("labelled", first, "ann", "malware", "packed"),
        ("skipped", second, "ann", None, None),
        ("undone", first, "boss", None, None),
        *(("closed", item, "boss", None, "retired") for item in (first, second, third)),
        ("deployed", None, "boss", None, "better"),
    ]
    found = all_of(events)
    assert found[0]["data"]["object_id"] == "o0"
    assert found[0]["data"]["context"] == {"name": "a.exe"}  # host is not among the settings
    assert found[-1]["data"]["model"] == MODEL.digest
    assert "secret" not in str(found)
    assert "do not tell" not in str(found)
    assert len({each["id"] for each in found}) == len(found)


def test_an_object_that_is_decided_again_is_told_and_the_audit_is_not(own_engine, events, fill):
    fill([0.1], "audit", tier=AUDITED, accepted=True, probability=0.5)
    fill([0.1])
    (before,) = told(events, "item")
    with own_engine.begin() as connection:
        connection.execute(text("UPDATE model SET digest = :other"), {"other": "e" * 64})
    fill([0.1])
    assert told(events, "item", "reason")[1:] == [("decided", before[1], "rejected")]


def test_pages_of_any_size_have_the_same_events(own_engine, events, fill):
    for start in range(0, 40, 8):
        fill(np.linspace(0, 1, 8), f"{start}_")
    with own_engine.begin() as connection:
        number = register(own_engine, MODEL)
        for _ in range(3):
            deploy(connection, number, "active", {}, "boss", "why not")
    whole = all_of(events)
    assert len(whole) == 43
    for limit in (1, 2, 7, 8, 43, 1000):
        read, cursor = [], Cursor()
        while (page := events.after(cursor, limit)).last != cursor:
            assert len(page.events) <= limit
            read, cursor = read + page.events, page.last
        assert read == whole
    for place in range(0, 43, 6):  # after any of them come those that follow
        assert all_of(events, Cursor.read(whole[place]["id"])) == whole[place + 1 :]


def test_a_late_commit_holds_back_what_comes_after_it(own_engine, events, fill):
    late = own_engine.connect()
    late.execute(text("INSERT INTO label (item, action, author) VALUES (1, 'skip', 'late')"))
    fill([0.1])  # which began later, and is committed
    page = events.after(Cursor())
    assert page == ([], Cursor())
    late.commit()
    late.close()
    assert [each["type"] for each in all_of(events, page.last)] == ["skipped", "rejected"]


def test_what_was_rolled_back_is_never_told(own_engine, events):
    with own_engine.connect() as connection:
        connection.execute(text("INSERT INTO label (item, action, author) VALUES (1, 'skip', 'nobody')"))
        connection.rollback()
    assert all_of(events) == []


class Load:
    """Writers whose transactions end in another order than they began in, or never; and readers."""

    def __init__(self, url, total, writers=8):
        self.url, self.total, self._writers = url, total, writers
        self._next, self._lock, self.running = 0, threading.Lock(), True

    def _take(self, count):
        with self._lock:
            start, self._next = self._next, self._next + count
            return range(start, min(start + count, self.total))

    def write(self, seed):
        """Write events until there are enough; one transaction in ten is killed or rolled back."""
        draw, connection = random.Random(seed), psycopg.connect(self.url)
        again = []
        while numbers := again or list(self._take(draw.randrange(1, 20))):
            again = numbers
            try:
                with connection.cursor() as cursor:
                    sql = "INSERT INTO label (item, action, author) VALUES (%s, 'skip', 'w')"
                    cursor.executemany(sql, [(number,) for number in numbers])
                    time.sleep(draw.uniform(0, 0.02))
                    fate = draw.random()
                    if fate < 0.05:
                        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
                if fate < 0.1:
                    connection.rollback()
                    continue
                connection.commit()
                again = []
            except psycopg.OperationalError:
                connection.close()
                connection = psycopg.connect(self.url)
        connection.close()

    def read(self, seed):
        """Poll for events in pages of random sizes; return the items in the order read."""
        engine, draw, cursor, read = connect(self.url), random.Random(seed), Cursor(), []
        events = Events(engine)
        while True:
            ended = not self.running
            page = events.after(cursor, draw.randrange(1, 300))
            read += [each["data"]["item"] for each in page.events]
            if ended and page.last == cursor:
                engine.dispose()
                return read
            cursor = page.last

    def read_by_number(self):
        """Poll as one must not: after the largest number seen. Return how many events were read."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            last, read = 0, 0
            while True:
                ended = not self.running
                found = connection.execute(
                    "SELECT number, cardinality(items) FROM event WHERE number > %s ORDER BY number", (last,)
                ).fetchall()
                read += sum(n for _, n in found)
                last = found[-1][0] if found else last
                if ended and not found:
                    return read

    def run(self):
        with ThreadPoolExecutor(self._writers + 3) as pool:
            readers = [pool.submit(self.read, seed) for seed in range(2)]
            naive = pool.submit(self.read_by_number)
            writers = [pool.submit(self.write, seed) for seed in range(self._writers)]
            for each in writers:
                each.result()
            self.running = False
            return [each.result() for each in readers], naive.result()


def test_a_poller_misses_none_and_sees_none_twice_under_concurrent_commits_and_kills(database):
    total = 5000
    found, by_number = Load(database, total).run()
    for read in found:
        assert len(read) == total
        assert set(read) == set(range(total))
    assert by_number < total  # the load would have found out a reader that skips late commits


def test_new_events_come_after_those_of_a_restored_database(own_engine, events, fill):
    fill([0.1])
    with own_engine.begin() as connection:  # as restored on a server that has had fewer transactions
        connection.execute(text("UPDATE event SET transaction = transaction + 1000000"))
    fill([0.2], "meanwhile")
    resume_order(own_engine)
    before = all_of(events)
    assert [each["data"]["object_id"] for each in before] == ["meanwhile0", "o0"]
    fill([0.3], "later")
    resume_order(own_engine)  # changes nothing now
    fill([0.4], "last")
    after = all_of(events, Cursor.read(before[-1]["id"]))
    assert [each["data"]["object_id"] for each in after] == ["later0", "last0"]


@pytest.mark.parametrize(
    "restored",
    ["UPDATE event SET transaction = transaction + 1000000", "UPDATE event_order SET server = 'another'"],
)
def test_a_reader_that_was_ahead_of_a_restored_backup_misses_nothing_new(own_engine, events, fill, restored):
    fill([0.1])
    with own_engine.begin() as connection:
        connection.execute(text(restored))
        place = connection.execute(text("SELECT max(transaction) FROM event")).scalar_one()
    resume_order(own_engine)
    fill([0.2] * 3, "later")
    after = all_of(events, Cursor(place + 5000, 900, 1))  # of an event that the backup did not have
    assert [each["data"]["object_id"] for each in after] == ["later0", "later1", "later2"]
    sql = text("SELECT ahead FROM event_order")
    with own_engine.connect() as connection:
        ahead = connection.execute(sql).scalar_one()
        resume_order(own_engine)  # changes nothing now
        assert connection.execute(sql).scalar_one() == ahead


def test_a_place_that_the_database_has_not_reached_is_refused(own_engine, events, fill):
    fill([0.1])
    last = events.after(Cursor()).last
    assert events.after(last).last == last
    with pytest.raises(CursorError, match="ahead of this database: an older backup must have been restored"):
        events.after(last._replace(transaction=last.transaction + 1000))
    fill([0.2], "new")
    assert len(all_of(events, last)) == 1


def test_gates_without_rights_on_new_tables_go_on_writing(own_engine, events):
    """As a gate whose role was granted its rights before a migration added tables."""
    made = rows(own_engine, [0.1, 0.2])
    role = f"before_{own_engine.url.database}"
    with own_engine.begin() as connection:
        connection.execute(text(f"CREATE ROLE {role}"))
        for table in ("item", "payload", "identity", "tally", "label", "model", "month", "secret"):
            connection.execute(text(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {role}"))
        connection.execute(text(f"GRANT USAGE ON SEQUENCE item_number TO {role}"))
        with connection.begin_nested():
            connection.execute(text(f"SET LOCAL ROLE {role}"))
            with pytest.raises(SQLAlchemyError, match="permission denied"), connection.begin_nested():
                connection.execute(text("SELECT count(*) FROM event"))
            from transcendent.gate.intake import _keep

            _keep(connection, sorted(made))
            connection.execute(text("RESET ROLE"))
        connection.execute(text(f"DROP OWNED BY {role}"))
        connection.execute(text(f"DROP ROLE {role}"))
    assert [each["type"] for each in all_of(events)] == ["rejected", "rejected"]


def test_what_is_gone_is_not_told(own_engine, events, fill):
    fill([0.1, 0.2])
    quarantine = Quarantine(own_engine)
    first, second = (each["id"] for each in quarantine.claim("ann", 2).items)
    quarantine.resolve("ann", first, "malware")
    with own_engine.begin() as connection:
        for table in ("item", "payload"):
            connection.execute(text(f"DELETE FROM {table} WHERE id = :id"), {"id": first})
    found = all_of(events)
    assert [(each["type"], each["data"]["item"]) for each in found] == [
        ("rejected", second),
        ("labelled", first),
    ]
    assert found[1]["data"] == {"item": first, "label": "malware", "author": "ann"}  # by its number alone


def test_events_are_dropped_with_their_months(own_engine, events, fill):
    fill([0.1])
    with own_engine.begin() as connection:
        connection.execute(text("UPDATE event SET written_at = '2020-01-31T23:59Z'"))
    fill([0.1], "new")
    drop_months(own_engine, month_of("2020-02"))
    assert [each["data"]["object_id"] for each in all_of(events)] == ["new0"]


@pytest.mark.parametrize(
    "given",
    ["x", "1-2", "1-2-3-4", "1-2-x", "-1-2-3", "1-2-3 ", "1-2-3\n", "9" * 19 + "-1-1", "٣-1-1", "1.2.3"],
)
def test_what_is_no_id_of_an_event_is_refused(given):
    with pytest.raises(CursorError, match="after must be the id of an event"):
        Cursor.read(given)


def test_a_cursor_is_read_as_it_was_written():
    assert Cursor.read(str(Cursor(12, 34, 5))) == Cursor(12, 34, 5)
    assert Cursor.read("") == Cursor()
    assert Cursor.read("9" * 18 + "-0-0").transaction < 2**63


class TestPrinted:
    @pytest.fixture
    def run(self, database):
        def attempt(*arguments, code=0):
            done = CliRunner().invoke(app, ["gate", "events", "--database", database, *arguments])
            assert done.exit_code == code, done.output
            return done

        return attempt

    def test_lines_of_json_after_an_event(self, events, fill, run):
        fill([0.1] * 3, context='{"name": "\\u001b[2J"}')
        found = all_of(Events(events._engine))
        lines = run().stdout.splitlines()
        assert [json.loads(line) for line in lines] == found
        assert run("--after", found[0]["id"]).stdout.splitlines() == lines[1:]
        assert run("--after", found[-1]["id"]).stdout == ""

    def test_context_only_of_the_settings(self, fill, run, monkeypatch):
        fill([0.1], context='{"name": "a\\u001b.exe", "host": "mail-3"}')
        monkeypatch.setenv("TRANSCENDENT_GATE_EVENT_CONTEXT", "name other")
        for form in ("json", "ocsf", "ecs", "cef"):
            (line,) = run("--format", form).stdout.splitlines()
            assert "a\\u001b.exe" in line.replace("\\\\", "\\")
            assert "mail-3" not in line

    def test_following_waits_for_more(self, fill, run, monkeypatch):
        fill([0.1])
        waits = []

        def wait(_):
            waits.append(1)
            if len(waits) == 3:
                raise KeyboardInterrupt
            fill([0.1], f"later{len(waits)}")

        monkeypatch.setattr(commands.time, "sleep", wait)
        lines = run("--follow", code=130).stdout.splitlines()
        names = [json.loads(line)["data"]["object_id"] for line in lines]
        assert names == ["o0", "later10", "later20"]

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            (("--format", "xml"), "--format xml: must be one of json, ocsf, ecs, cef."),
            (("--after", "yesterday"), "--after: after must be the id of an event"),
        ],
    )
    def test_what_is_refused(self, run, given, said):
        assert said in run(*given, code=2).stderr

    def test_an_event_that_the_database_has_not_reached_is_refused(self, run):
        assert "is ahead of this database" in run("--after", f"{10**17}-1-1", code=4).stderr


@pytest.fixture(scope="module")
def operator(gate):
    return gate.client("boss", "operator")


class TestServed:
    def test_a_client_yields_the_events_of_what_it_did(self, gate, operator, problem):
        X = problem[0][1000:1200]
        sent = gate.client().decide([f"served{i}" for i in range(200)], X)
        rejected = {each["id"] for each in sent if not each["accepted"]}
        found = list(operator.events())
        assert {each["data"]["object_id"] for each in found if each["type"] == "rejected"} == rejected
        (pinned,) = [each["data"] for each in found if each["type"] == "deployed"]
        assert pinned["action"] == "pinned"
        (item,) = operator.claim()["items"]
        operator.resolve(item["id"], "malware")
        (labelled,) = operator.events(found[-1]["id"])
        assert labelled["data"]["object_id"] == item["object_id"]
        assert list(operator.events(labelled["id"])) == []

    @pytest.mark.parametrize("after", ["x", "1-2-" + "9" * 30])
    def test_what_is_no_id_is_refused(self, operator, after):
        with pytest.raises(GateError, match="after must be the id of an event") as error:
            list(operator.events(after))
        assert error.value.status == 422

    def test_a_place_ahead_of_the_database_is_refused(self, operator):
        with pytest.raises(GateError, match="an older backup must have been restored") as error:
            list(operator.events(f"{10**17}-1-1"))
        assert error.value.status == 422

    def test_limits(self, operator):
        for limit, status in ((0, 422), (1001, 422), (1, 200)):
            given = {"limit": limit}
            answer = operator._http.get("/v1/events", params=given)
            assert answer.status_code == status
