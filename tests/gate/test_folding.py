"""Counts of minutes, and the monitors that they are folded into."""

import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binom
from sqlalchemy import text

from tests.gate.conftest import tables_on
from tests.gate.streams import START, cells_of, streams
from tests.monitoring.answers import objects
from transcendent import ScoreEvaluator
from transcendent.gate import minutes
from transcendent.gate.database import connect
from transcendent.gate.deployments import deploy
from transcendent.gate.folding import Folding, fold, list_monitors
from transcendent.gate.minutes import Minutes
from transcendent.gate.moving import RowRange, WatchedFeatures
from transcendent.gate.paging import list_alarms
from transcendent.gate.processes import Process
from transcendent.monitoring import DriftMonitor

_digests = count()


@pytest.fixture(scope="module")
def shared(server):
    with tables_on(server) as url:
        engine = connect(url, 20)
        yield engine
        engine.dispose()


@pytest.fixture
def engine(shared):
    """An engine of a database without live processes."""
    with shared.begin() as connection:
        for table in ("process", "alarm", "monitor", "minute_counts"):
            connection.execute(text(f"DELETE FROM {table}"))
    return shared


@pytest.fixture(scope="module")
def judge():
    return ScoreEvaluator().fit(*objects(np.random.default_rng(0), 2000))


@pytest.fixture(scope="module")
def observer(judge):
    return DriftMonitor.of(judge)


def deployed(engine):
    """Return the number of a new deployment."""
    sql = "INSERT INTO model (digest, classes, features) VALUES (:digest, '[0, 1]', '{}') RETURNING id"
    with engine.begin() as connection:
        given = {"digest": f"folding-{next(_digests)}"}
        model = connection.execute(text(sql), given).scalar_one()
        return deploy(connection, model, "pinned", {}, "test", "test")


# A step is 1, and the mean 1,000.
WATCHED = WatchedFeatures(["f"], np.array([0]), np.full(1, 1000.0), np.full(1, 1024.0), 1, 1000)


class Clock:
    """The time, in minutes since the start."""

    def __init__(self):
        self.minutes = 0.0

    def __call__(self):
        return 60 * (START + self.minutes)


class Gate:
    """What a gate does for the monitors, without threads."""

    def __init__(self, engine, clock, judge, deployment, through=None):
        self.process, self.deployment = Process(engine), deployment
        self.minutes = Minutes(through or engine, self.process.id, clock)
        model = SimpleNamespace(rejector=judge, unmonitored=None, watched=WATCHED)
        self.folding = Folding(through or engine, lambda: {deployment: model})
        self.beat()

    def beat(self):
        self.process.beat(self.deployment, [1])

    def add(self, cells):
        rows = np.array(cells, dtype=float)[:, None]
        self.minutes.add(self.deployment, cells, WATCHED, [RowRange(rows, 0, len(rows))])


def sums_of(cells):
    """Sums of one feature, whose value is the cell."""
    return np.array([len(cells), sum(cells) - 1000 * len(cells), 0])


def stored_sums(engine, deployment):
    with engine.connect() as connection:
        sql = "SELECT sums FROM monitor WHERE deployment = :deployment"
        return connection.execute(text(sql), {"deployment": deployment}).scalar()


def folded(judge, by_minute):
    """The state of a monitor after these minutes, by the function alone."""
    state = None
    for minute in sorted(by_minute):
        state = fold(judge, state, minute, by_minute[minute]).monitor.to_json()
    return state


def state_of(engine, deployment):
    with engine.connect() as connection:
        sql = "SELECT state FROM monitor WHERE deployment = :deployment"
        return connection.execute(text(sql), {"deployment": deployment}).scalar()


def number_of(engine, sql):
    with engine.connect() as connection:
        return connection.execute(text(sql)).scalar_one()


def settle(gates, clock):
    """Close all minutes, and fold them."""
    clock.minutes += 2
    for gate in gates:
        gate.beat()
        gate.minutes.flush()
    gates[0].folding.fold_closed()


@pytest.mark.parametrize("n_gates", [1, 3])
def test_the_same_evidence_to_the_bit_for_any_number_of_processes(engine, judge, observer, n_gates):
    rng, stream, clock = np.random.default_rng(5), np.random.default_rng(6), Clock()
    deployment, expected = deployed(engine), {}
    gates = [Gate(engine, clock, judge, deployment) for _ in range(n_gates)]
    for tick in range(60):  # of ten seconds
        clock.minutes = tick / 6
        cells = cells_of(observer, stream, 40, shift=0.8 * (tick > 30))
        expected.setdefault(START + tick // 6, Counter()).update(cells)
        for cell, owner in zip(cells, rng.integers(n_gates, size=40).tolist(), strict=True):
            gates[owner].add([cell])
        for gate in gates:
            if rng.random() < 0.6:
                gate.minutes.flush()
            if rng.random() < 0.4:
                gate.folding.fold_closed()
    settle(gates, clock)
    assert state_of(engine, deployment) == folded(judge, expected)
    everything = list(sum(expected.values(), Counter()).elements())
    assert stored_sums(engine, deployment) == sums_of(everything).tolist()
    assert number_of(engine, "SELECT count(DISTINCT minute) FROM minute_counts") == 10
    (row,) = [each for each in list_alarms(engine) if each["kind"] == "drift"]
    assert [each["feature"] for each in row["moved"]] == ["f"]
    with engine.connect() as connection:
        (found,) = [each for each in list_monitors(connection) if each["deployment"] == deployment]
    assert found["moved"] == WATCHED.moved(np.array(stored_sums(engine, deployment)))
    assert row["deployment"] == deployment
    assert 1200 < row["at"] <= 2400


class KilledError(Exception):
    """A process ends here."""


class Crashing:
    """An engine that fails at one of the steps of its transactions: before each statement, before and after
    the commit."""

    def __init__(self, engine):
        self.engine, self.at, self.steps = engine, None, 0

    def step(self):
        self.steps += 1
        if self.steps == self.at:
            raise KilledError

    @contextmanager
    def begin(self):
        self.step()
        with self.engine.begin() as connection:
            yield SimpleNamespace(execute=lambda *given: (self.step(), connection.execute(*given))[1])
            self.step()
        self.step()


def crash_at_every_step(engine, run):
    """Run a story once for each step at which it may crash, until it does not crash any more."""
    at = 1
    while run(Crashing(engine), at):
        at += 1
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM process"))
    return at - 1


def test_a_crash_at_any_step_of_folding_changes_nothing(engine, judge, observer):
    rng, expected = np.random.default_rng(1), {}
    parts = [cells_of(observer, rng, 500, shift) for shift in (0, 0.8, 0.8)]
    for minute, cells in enumerate(parts):
        expected[START + minute] = Counter(cells)
    expected = folded(judge, expected)

    def story(crashing, at):
        deployment, clock = deployed(engine), Clock()
        one = Gate(engine, clock, judge, deployment, crashing)
        other = Gate(engine, clock, judge, deployment)
        for minute, cells in enumerate(parts):
            clock.minutes = minute
            one.add(cells)
            one.minutes.flush()
        other.minutes.flush()
        clock.minutes = 5
        one.minutes.flush()
        other.minutes.flush()
        crashing.at, crashing.steps, crashed = at, 0, False
        try:
            one.folding.fold_closed()
        except KilledError:
            crashed = True
            other.folding.fold_closed()
        assert state_of(engine, deployment) == expected
        assert stored_sums(engine, deployment) == sum(map(sums_of, parts)).tolist()
        assert [each["kind"] for each in list_alarms(engine)].count("drift") == at
        return crashed

    assert crash_at_every_step(engine, story) > 30


@pytest.mark.parametrize("fate", ["goes on", "is late", "is dead"])
def test_a_crash_at_any_step_of_a_flush_counts_nothing_twice(engine, judge, observer, fate):
    """A process that goes on loses nothing, even if its minute was folded without it; a dead one loses what
    it had not flushed."""
    rng = np.random.default_rng(2)
    parts = [cells_of(observer, rng, 50) for _ in range(3)]

    def story(crashing, at):
        deployment, clock = deployed(engine), Clock()
        one = Gate(engine, clock, judge, deployment, crashing)
        other = Gate(engine, clock, judge, deployment)
        one.add(parts[0])
        one.minutes.flush()
        other.add(parts[1])
        one.add(parts[2])
        crashing.at, crashing.steps, crashed = at, 0, False
        try:
            one.minutes.flush()
        except KilledError:
            crashed = True
        crashing.at = None
        if fate != "goes on":
            one.process.leave()
            settle([other], clock)
        if fate != "is dead":
            settle([one, other], clock)
            settle([one, other], clock)
        with engine.connect() as connection:
            (found,) = [each for each in list_monitors(connection) if each["deployment"] == deployment]
        if fate == "is dead":
            assert found["objects"] in (100, 150)
            return crashed
        assert found["objects"] == 150
        counts = DriftMonitor.from_json(state_of(engine, deployment), judge)._stream.counts
        whole = DriftMonitor.of(judge)
        whole.update_counts(Counter(cell for part in parts for cell in part), seed=0)
        assert np.array_equal(counts, whole._stream.counts)
        assert stored_sums(engine, deployment) == sum(map(sums_of, parts)).tolist()
        return crashed

    assert crash_at_every_step(engine, story) >= 6


def test_a_minute_is_closed_when_all_that_live_have_flushed_it(engine, judge, observer):
    clock, deployment = Clock(), deployed(engine)
    one, other = (Gate(engine, clock, judge, deployment) for _ in range(2))
    one.add(cells_of(observer, np.random.default_rng(0), 30))
    clock.minutes = 1
    one.minutes.flush()
    one.folding.fold_closed()
    assert state_of(engine, deployment) is None  # the other has never flushed
    other.minutes.flush()
    one.folding.fold_closed()
    first = state_of(engine, deployment)
    assert first is not None
    one.add(cells_of(observer, np.random.default_rng(1), 30))
    clock.minutes = 2
    one.minutes.flush()
    one.folding.fold_closed()
    assert state_of(engine, deployment) == first
    with engine.begin() as connection:  # the other is dead
        sql = "UPDATE process SET seen_at = now() - interval '11 seconds' WHERE id = :id"
        connection.execute(text(sql), {"id": other.process.id})
    one.folding.fold_closed()
    assert state_of(engine, deployment) != first


def test_a_clock_behind_or_set_back_loses_nothing(engine, judge, observer):
    clock, behind, deployment = Clock(), Clock(), deployed(engine)
    one, other = Gate(engine, clock, judge, deployment), Gate(engine, behind, judge, deployment)
    other.process.leave()
    rng = np.random.default_rng(0)
    clock.minutes, behind.minutes = 10, -200
    one.add(cells_of(observer, rng, 20))
    settle([one], clock)
    other.add(cells_of(observer, rng, 30))
    other.minutes.flush()
    behind.minutes = -300
    other.add(cells_of(observer, rng, 40))
    behind.minutes = 20
    settle([other, one], clock)
    assert number_of(engine, "SELECT sum(objects) FROM minute_counts") == 90
    assert DriftMonitor.from_json(state_of(engine, deployment), judge).n == 90


def test_a_clock_that_was_ahead_blinds_nobody(engine, judge, observer, monkeypatch):
    clock, rng, deployment, wrong = Clock(), np.random.default_rng(0), deployed(engine), 60 * 24 * 365
    lock = minutes._LOCK

    def pass_minutes(count, gate, ahead=0):
        for _ in range(count):
            clock.minutes += ahead
            gate.add(cells_of(observer, rng, 10))
            clock.minutes += 1
            seconds = clock() - 60 * ahead
            monkeypatch.setattr(minutes, "_LOCK", lock.replace("now()", f"to_timestamp({seconds})"))
            gate.beat()
            gate.minutes.flush()
            gate.folding.fold_closed()
            clock.minutes -= ahead

    def stored():
        with engine.connect() as connection:
            sql = "SELECT objects, folded FROM monitor WHERE deployment = :deployment"
            return tuple(connection.execute(text(sql), {"deployment": deployment}).one())

    gate = Gate(engine, clock, judge, deployment)
    pass_minutes(2, gate)
    assert stored() == (20, START + 1)
    pass_minutes(2, gate, wrong)
    assert stored()[1] < START + clock.minutes
    pass_minutes(2, gate)
    assert stored() == (60, START + 5)
    gate.process.leave()
    pass_minutes(2, Gate(engine, clock, judge, deployment))
    assert stored() == (80, START + 7)


def test_processes_that_fold_at_once_fold_each_minute_once(engine, judge, observer):
    clock, deployment, rng, expected = Clock(), deployed(engine), np.random.default_rng(3), {}
    gates = [Gate(engine, clock, judge, deployment) for _ in range(4)]
    for minute in range(8):
        clock.minutes = minute
        for gate in gates:
            cells = cells_of(observer, rng, 30)
            expected.setdefault(START + minute, Counter()).update(cells)
            gate.add(cells)
            gate.minutes.flush()
    clock.minutes = 10
    with ThreadPoolExecutor(8) as pool:
        for _ in range(10):
            works = [work for g in gates for work in (g.minutes.flush, g.folding.fold_closed)]
            for done in [pool.submit(work) for work in works]:
                done.result()
    gates[0].folding.fold_closed()
    assert state_of(engine, deployment) == folded(judge, expected)


def test_counts_are_bounded_while_the_database_is_away_and_rows_go_after_a_day(engine, judge, observer):
    clock, deployment, crashing = Clock(), deployed(engine), Crashing(engine)
    gate = Gate(engine, clock, judge, deployment, crashing)
    cells = cells_of(observer, np.random.default_rng(0), 10)
    for minute in range(100):
        clock.minutes, crashing.at, crashing.steps = minute, 1, 0
        gate.add(cells)
        with pytest.raises(KilledError):
            gate.minutes.flush()
    crashing.at = None
    settle([gate], clock)
    assert number_of(engine, "SELECT sum(objects) FROM minute_counts") == 600
    clock.minutes = 1600
    gate.add(cells)
    settle([gate], clock)
    assert number_of(engine, "SELECT count(*) FROM minute_counts") == 1
    assert DriftMonitor.from_json(state_of(engine, deployment), judge).n == 610


def test_what_cannot_be_monitored_says_why(engine, judge):
    model = SimpleNamespace(rejector=None, unmonitored="it has votes")
    deployment = deployed(engine)
    Folding(engine, lambda: {deployment: model}).fold_closed()
    with engine.connect() as connection:
        (found,) = list_monitors(connection)
    assert found["problem"] == "it has votes"
    assert found["objects"] == 0


def test_a_state_of_another_rejector_is_a_problem_that_is_shown(engine, judge, observer):
    clock, deployment = Clock(), deployed(engine)
    gate = Gate(engine, clock, judge, deployment)
    gate.add(cells_of(observer, np.random.default_rng(0), 10))
    settle([gate], clock)
    other = ScoreEvaluator().fit(*objects(np.random.default_rng(9), 500))
    wrong = Gate(engine, clock, other, deployment)
    wrong.add(cells_of(observer, np.random.default_rng(0), 10))
    settle([wrong, gate], clock)
    with engine.connect() as connection:
        (found,) = list_monitors(connection)
    assert "another rejector" in found["problem"]
    assert found["objects"] == 10


@pytest.mark.parametrize("n_streams", [60, pytest.param(400, marks=pytest.mark.full)])
def test_false_alarms_are_as_rare_as_said(n_streams):
    false, high, sorted_high = Counter(), 0, 0
    for monitor, raised, other, cells in streams(n_streams, 6, 200):
        false.update(kind for kind, _, _ in raised)
        high += max(monitor.history.columns["log_value"]) >= math.log(10)
        for of_minute in np.split(cells, 6):  # as if counts were not laid out at random
            other._add(np.sort(of_minute))
        sorted_high += max(other.history.columns["log_value"]) >= math.log(10)
    limit = binom.ppf(0.999, n_streams, 0.01)
    assert false["drift"] <= limit
    assert false["rejections"] <= limit
    assert high <= binom.ppf(0.999, n_streams, 0.1)
    assert sorted_high > binom.ppf(0.999, n_streams, 0.1)


@pytest.mark.parametrize("n_streams", [12, pytest.param(100, marks=pytest.mark.full)])
def test_a_drift_pages_once_and_as_soon_as_one_monitor_would(n_streams):
    later = []
    for _, raised, other, cells in streams(n_streams, 16, 100, lambda minute: 0.8 * (minute >= 4)):
        drift = [(minute, alarm) for kind, minute, alarm in raised if kind == "drift"]
        assert len(drift) == 1
        other._add(cells)
        minute, alarm = drift[0]
        assert 400 < alarm.at <= 100 * (minute + 1)
        later.append(100 * (minute + 1) - other.alarm.at)
    assert np.median(later) <= 100
    assert max(later) <= 300
