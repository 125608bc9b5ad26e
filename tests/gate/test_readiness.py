"""Readiness: a gate is ready if, and only if, it can keep objects."""

import asyncio
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from itertools import count

import anyio.to_thread
import httpx2
import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from tests.gate.conftest import gate_of, tables_on
from tests.gate.inside import application
from transcendent.gate.app import connect_all
from transcendent.gate.database import (
    DatabaseError,
    check_months,
    check_role,
    connect,
    may_make_months,
    month_name,
    month_of,
    partition,
)
from transcendent.gate.readiness import DEADLINE, KNOWN_FOR, STUCK, Readiness
from transcendent.gate.settings import GateSettings

TIMEOUT = 6  # seconds, the gate's setting
TURNS = 10  # liveness requests a second, at most


@pytest.fixture(scope="module")
def owned(server, artifact, tmp_path_factory):
    """A gate whose database role owns nothing, the owner's engine, and the role."""
    with tables_on(server) as url:
        owner, role = connect(url), f"role_{os.getpid()}"
        with owner.begin() as connection:
            connection.execute(text(f"CREATE ROLE {role} LOGIN"))
            connection.execute(
                text(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}")
            )
            connection.execute(text(f"GRANT USAGE ON SEQUENCE item_number TO {role}"))
        theirs = owner.url.set(username=role, drivername="postgresql").render_as_string(hide_password=False)
        try:
            with gate_of(
                theirs, artifact, tmp_path_factory.mktemp("owned"), timeout=TIMEOUT, tokens="none"
            ) as gate:
                yield gate, owner, role
        finally:
            with owner.begin() as connection:
                connection.execute(text(f"DROP OWNED BY {role}"))
                connection.execute(text(f"DROP ROLE {role}"))
            owner.dispose()


def turns_of(gate, work, *given):
    """Return what work returns, and the number of liveness requests that the gate answers meanwhile.

    This limits a time without a clock: on a busy machine, these requests are slower as well.
    """
    with ThreadPoolExecutor(1) as pool, httpx2.Client(timeout=30) as http:
        job, turns = pool.submit(work, *given), 0
        while not job.done():
            assert http.get(f"{gate.address}/healthz").status_code == 200
            turns += 1
            wait([job], 1 / TURNS)
        return job.result(), turns


def ready(gate):
    """Return whether the gate is ready, and its message; it answers in time even if the database does not."""
    answer, turns = turns_of(gate, lambda: httpx2.get(f"{gate.address}/readyz", timeout=30))
    assert turns <= 3 * DEADLINE * TURNS
    return answer.status_code == 200, answer.json().get("detail")


def until_ready(gate):
    end = time.monotonic() + 60
    while not ready(gate)[0]:
        assert time.monotonic() < end
        time.sleep(0.2)


def send(gate, name, row):
    body = {"objects": [{"id": name, "values": row.tolist()}]}
    return httpx2.post(f"{gate.address}/v1/decisions", json=body, timeout=30)


@pytest.fixture(scope="module")
def rejected(problem, rejector):
    X = problem[0][1000:1400]
    return X[rejector.decide(X).rejected]


@pytest.mark.parametrize(
    "right",
    ["INSERT ON payload", "INSERT ON tally", "USAGE ON SEQUENCE item_number"],
)
def test_a_gate_that_may_not_keep_is_not_ready(owned, rejected, right):
    gate, owner, role = owned
    until_ready(gate)
    with owner.begin() as connection:
        connection.execute(text(f"REVOKE {right} FROM {role}"))
    time.sleep(KNOWN_FOR)
    try:
        good, said = ready(gate)
        assert not good
        assert "cannot be used (InsufficientPrivilege)" in said or "lacks USAGE on item_number" in said
        assert send(gate, right, rejected[0]).status_code == 503
    finally:
        with owner.begin() as connection:
            connection.execute(text(f"GRANT {right} TO {role}"))
    until_ready(gate)
    assert send(gate, right, rejected[0]).status_code == 200


def test_a_gate_that_cannot_read_tokens_is_not_ready(engine, shared_database):
    class Alive:
        alive, committing_for, serving = True, 0, object()

    own = connect(shared_database, 1, timeout=2)
    moment = count()
    readiness = Readiness(Alive(), own, tokens=True, clock=lambda: next(moment))
    assert readiness.problem() is None
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE token RENAME TO hidden"))
    try:
        assert "cannot be used" in readiness.problem()
        assert Readiness(Alive(), own, tokens=False).problem() is None
    finally:
        with engine.begin() as connection:
            connection.execute(text("ALTER TABLE hidden RENAME TO token"))
    assert readiness.problem() is None
    own.dispose()


@pytest.mark.parametrize("connections", [6, 7, 9])
def test_neither_tokens_nor_readiness_wait_for_other_uses_of_the_connections(connections, shared_database):
    engines = connect_all(GateSettings(database=shared_database, connections=connections))
    assert sum(engine.pool.size() for engine in engines) == connections
    with ExitStack() as held:
        for engine in engines[:-1]:
            for _ in range(engine.pool.size()):
                held.enter_context(engine.connect())

        class Alive:
            alive, committing_for, serving = True, 0, object()

        assert Readiness(Alive(), engines.probing, tokens=True).problem() is None
    for engine in engines:
        engine.dispose()


def test_a_role_that_lacks_a_right_is_refused_at_the_start(owned):
    gate, owner, role = owned
    theirs = connect(gate.database)
    check_role(theirs)
    with owner.begin() as connection:
        connection.execute(text(f"REVOKE INSERT, UPDATE ON item, label FROM {role}"))
    try:
        with pytest.raises(
            DatabaseError, match=f"{role} lacks INSERT on item, UPDATE on item, INSERT on label"
        ):
            check_role(theirs)
    finally:
        with owner.begin() as connection:
            connection.execute(text(f"GRANT INSERT, UPDATE ON item, label TO {role}"))
        theirs.dispose()


def test_a_role_that_cannot_create_partitions_says_so_at_the_start_and_how_far_they_reach(owned):
    gate, owner, _ = owned
    last = month_name(this_month(owner) + 2)
    (line,) = [line for line in gate.log.read_text().splitlines() if "months run out" in line]
    assert f"cannot create partitions, and the last one is {last}" in line
    assert "run 'transcendent gate months' every month" in line
    with owner.connect() as connection:
        assert may_make_months(connection)


def test_missing_months_cause_a_warning_first_and_then_make_a_gate_not_ready(owned):
    _, owner, role = owned
    with owner.begin() as connection:
        this = this_month(owner)
        connection.execute(
            text("UPDATE month SET number = number + 1000 WHERE number > :this"), {"this": this}
        )
        connection.execute(text(f"SET LOCAL ROLE {role}"))
        day = connection.execute(text(DAYS_LEFT)).scalar_one()
        warning = check_months(connection)
        assert (warning is None) == (day >= 7)
        assert warning is None or f"there is no partition for {month_name(this + 1)}" in warning
        connection.execute(text("RESET ROLE"))
        connection.execute(
            text("UPDATE month SET number = number + 1000 WHERE number = :this"), {"this": this}
        )
        connection.execute(text(f"SET LOCAL ROLE {role}"))
        with pytest.raises(
            DatabaseError, match=f"no partition for {month_name(this)}: run .*gate months' as the owner"
        ):
            check_months(connection)
        connection.execute(text("RESET ROLE"))
        assert check_months(connection) is None  # the owner creates it when it is needed
        connection.rollback()


DAYS_LEFT = """SELECT extract(day FROM date_trunc('month', now() AT TIME ZONE 'UTC') + interval '1 month'
    - now() AT TIME ZONE 'UTC')"""


def this_month(engine):
    with engine.connect() as connection:
        return month_of(
            connection.execute(text("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM')")).scalar_one()
        )


@contextmanager
def stopped(owner, where):
    """Stop server processes of the gate; the kernel still acknowledges what is sent to them."""
    sql = text(f"SELECT pid FROM pg_stat_activity WHERE application_name = 'transcendent-gate' AND {where}")
    with owner.connect() as connection:
        found = [each for each in connection.execute(sql).scalars() if each > 1]
    assert found
    for each in found:
        os.kill(each, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in found:
            os.kill(each, signal.SIGCONT)


def test_a_gate_whose_database_is_stopped_is_not_ready_answers_in_time_and_recovers(owned, rejected):
    gate, owner, role = owned
    until_ready(gate)
    time.sleep(KNOWN_FOR)
    with stopped(owner, f"usename = '{role}'"):
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(turns_of, gate, send, gate, "stopped", rejected[1])
            assert not ready(gate)[0]
            answer, turns = sent.result()
            assert answer.status_code in (200, 503)  # 200 if there was time for another connection
            assert turns <= (TIMEOUT + 2) * TURNS
        until_ready(gate)  # while they are still stopped: the gate has others
        assert send(gate, "another", rejected[2]).status_code == 200
    until_ready(gate)
    assert send(gate, "stopped", rejected[1]).status_code == 200


def test_objects_that_wait_too_long_make_a_gate_not_ready(engine):
    class Waiting:
        alive, committing_for, serving = True, STUCK + 1, object()

    readiness = Readiness(Waiting(), engine, tokens=False)
    assert f"the database for more than {STUCK} seconds" in readiness.problem()


def test_a_probe_leaves_nothing_behind_and_takes_no_number(engine, shared_database):
    class Alive:
        alive, committing_for, serving = True, 0, object()

    moment = count()
    readiness = Readiness(Alive(), engine, tokens=True, clock=lambda: next(moment))

    month = this_month(engine)

    def state():
        with engine.connect() as connection:
            number = connection.execute(text("SELECT last_value, is_called FROM item_number")).one()
            names = ("identity_00", partition("item", month), partition("payload", month), "tally")
            sizes = [
                connection.execute(text(f"SELECT pg_relation_size('{name}')")).scalar_one() for name in names
            ]
            return number, sizes

    before = state()
    for _ in range(30):
        assert readiness.problem() is None
    assert state() == before


def test_readiness_is_checked_once_a_second(engine):
    class Counted:
        asked = 0

        @property
        def alive(self):
            Counted.asked += 1
            return False

    now = [0.0]
    readiness = Readiness(Counted(), engine, tokens=True, clock=lambda: now[0])
    for moment in (0, 0.5, 0.9, 1.1, 1.5, 2.2):
        now[0] = moment
        assert "thread" in readiness.problem()
    assert Counted.asked == 3


def test_a_connection_without_an_answer_is_closed_and_another_one_works(shared_database, engine):
    own = connect(shared_database, 1, timeout=0.5)
    with own.connect() as connection:
        pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    os.kill(pid, signal.SIGSTOP)
    try:
        started = time.monotonic()
        with own.connect() as connection:
            assert connection.execute(text("SELECT pg_backend_pid()")).scalar_one() != pid
            left = time.monotonic()
            with pytest.raises(OperationalError, match=r"did not answer within 0\.5 seconds") as error:
                connection.execute(text("SELECT pg_sleep(5)"))
            assert left - started < 6 * (time.monotonic() - left)  # both wait for one timeout
            assert isinstance(error.value.orig, psycopg.OperationalError)
            assert error.value.connection_invalidated
        with own.connect() as connection:
            assert connection.execute(text("SELECT 7")).scalar_one() == 7
    finally:
        os.kill(pid, signal.SIGCONT)
    own.dispose()


def test_probes_are_answered_while_pages_take_all_threads():
    class Dead:
        alive = False

    app = application({"readiness": Readiness(Dead(), None, tokens=False)})

    async def probed():
        limiter = anyio.to_thread.current_default_thread_limiter()
        limiter.total_tokens = 1
        async with limiter, httpx2.AsyncClient(transport=httpx2.ASGITransport(app)) as http:
            ready = await asyncio.wait_for(http.get("http://127.0.0.1/readyz"), 20)
            scraped = await asyncio.wait_for(http.get("http://127.0.0.1/metrics"), 20)
            return ready.json()["detail"], scraped.status_code

    said, status = asyncio.run(probed())
    assert "a thread of the gate has died" in said
    assert status == 200
