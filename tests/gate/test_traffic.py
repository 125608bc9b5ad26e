"""Gates that share a budget through the database: one cutoff, and counts that are counted once."""

import asyncio
import json
import time
from contextlib import contextmanager
from dataclasses import replace

import httpx2
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from tests.gate.conftest import away, gate_of, tables_on
from tests.gate.replay import Process, Shared
from tests.gate.test_intake import model_of
from transcendent import Decisions, InductiveEvaluator, RejectionBudget, StreamingBudget, load, save
from transcendent.baselines import ProbabilityThresholds
from transcendent.gate import cutoff, intake, traffic
from transcendent.gate import model as gate_model
from transcendent.gate.cutoff import Cutoff, Rule, decide_by, draws
from transcendent.gate.database import connect, drop_months, month_of
from transcendent.gate.features import Group, encode
from transcendent.gate.intake import Draw, audit_secret, keep, register, to_keep
from transcendent.gate.model import load_model
from transcendent.gate.older import OlderItems
from transcendent.gate.service import Service
from transcendent.gate.serving import Serving
from transcendent.gate.traffic import Traffic

RULE = Rule(0.2, 60, np.column_stack([np.linspace(0, 1, 50), np.zeros(50)]))
SECRET = b"secret"


@pytest.fixture
def by_hand(monkeypatch):
    """The cutoff moves only when a test says so."""
    monkeypatch.setattr(traffic, "EVERY", 3600)
    monkeypatch.setattr(cutoff, "OBJECTS", 10**9)


@contextmanager
def running(engine, rule=RULE, max_kept=None, model=None):
    """A gate's traffic, for a model that is in the database."""
    if model is None:
        with engine.begin() as connection:
            sql = """INSERT INTO model (digest, classes, features) VALUES ('abc', '[]', '{}')
            ON CONFLICT (digest) DO UPDATE SET digest = 'abc' RETURNING id"""
            model = connection.execute(text(sql)).scalar_one()
    one = Traffic(engine, model, SECRET, rule, max_kept)
    try:
        yield one
    finally:
        one.close()


def said_of(ranks):
    """Objects of which the detector says what has these ranks, and accepts all."""
    n = len(ranks)
    rows = np.random.default_rng(int(1e6 * abs(ranks.sum()))).random((n, 3))
    columns = {"labels": np.zeros(n, int), "accepted": np.ones(n, bool), "classes": np.arange(2)}
    return Group(np.arange(n), rows), Decisions(**columns, credibility=ranks[:, 0], confidence=ranks[:, 1])


def send(one, ranks, sender="sensor"):
    """Answer a request; return which objects are rejected and kept."""
    ruling = one.rule([(sender, len(ranks))], [said_of(ranks)])
    one.finish(ruling.counted)
    rejected = ruling.decided[0][1].rejected
    kept = rejected.copy()
    kept[list(ruling.over)] = False
    return rejected, kept


def one_of(engine, sql):
    with engine.connect() as connection:
        return connection.execute(text(sql)).scalar_one()


def test_the_cutoffs_in_the_database_are_those_of_the_rules(engine, by_hand):
    generator, shared = np.random.default_rng(0), Shared(RULE)
    with running(engine) as first, running(engine) as second:
        gates, likes = (first, second), (Process(shared), Process(shared))
        for turn in range(60):
            g = int(generator.integers(2))
            ranks = (generator.random((int(generator.integers(1, 30)), 2)) - turn / 100).round(1)
            group, _ = said_of(ranks)
            expected = likes[g].decide(ranks, draws(SECRET, encode(group.rows)))
            assert np.array_equal(send(gates[g], ranks)[0], expected)
            if generator.random() < 0.6:
                gates[g].move()
                likes[g].move()
                assert gates[g].cutoff[1:] == likes[g].cutoff[1:]
        assert one_of(engine, "SELECT count(*) FROM ranks") == len(shared.intervals)
        assert one_of(engine, "SELECT count(*) FROM cutoff") == shared.cutoff.number + 1


def test_gates_that_counted_in_the_window_share_the_objects_between_moves(engine, monkeypatch):
    monkeypatch.setattr(traffic, "EVERY", 3600)
    with running(engine) as first, running(engine) as second:
        assert (first.moves_after, second.moves_after) == (400, 400)
        for one in (first, second, first):
            send(one, np.random.default_rng(0).random((20, 2)))
            one.move()
        assert (first.moves_after, second.moves_after) == (200, 200)
        for _ in range(4):  # the objects of the second are no longer in the window of 60
            send(first, np.random.default_rng(1).random((20, 2)))
            first.move()
        assert first.moves_after == 400


def test_nobody_gets_an_object_accepted_by_sending_it_again(engine, by_hand):
    generator = np.random.default_rng(0)
    with running(engine, Rule(0.15, 2000, generator.random((500, 2)))) as one:
        for _ in range(20):
            send(one, generator.random((100, 2)))
            one.move()
        before, decided = one.cutoff, one.cutoff.decided
        for _ in range(100):
            rejected, kept = send(one, np.full((1, 2), 0.01))
            assert rejected.all()
            assert kept.all()
            one.move()
        assert one.cutoff.decided == decided + 30  # a tenth of the budget
        assert one.cutoff.rank > 0.7 * before.rank
        others, _ = send(one, generator.random((1000, 2)))
        assert others.mean() > 0.08


def test_a_gate_starts_with_the_calibration_and_then_with_the_newest_cutoff(engine, by_hand):
    with running(engine) as first:
        assert first.cutoff.rank == pytest.approx(0.2, abs=0.03)
        send(first, np.full((30, 2), 0.1))
        first.move()
        with running(engine) as second:
            assert second.cutoff == first.cutoff
            assert second.cutoff.decided == 30
        send(second, np.full((30, 2), 0.1))
        second.move()
        assert first.cutoff != second.cutoff
        first.move()  # with nothing to count
        assert first.cutoff == second.cutoff


def test_without_a_calibration_a_share_of_all_contents_is_rejected(engine, by_hand):
    with running(engine, RULE._replace(before=np.empty((0, 2)))) as one:
        assert one.cutoff[1:] == (None, None, 0.2, 0, 0)
        rejected, _ = send(one, np.random.default_rng(0).random((2000, 2)))
        assert rejected.mean() == pytest.approx(0.2, abs=0.04)


def test_while_the_database_is_away_the_cutoff_stays_and_counts_wait(database, by_hand):
    engine = connect(database)
    with running(engine) as one:
        before = one.cutoff
        send(one, np.full((7, 2), 0.1))
        with away(database):
            with pytest.raises(SQLAlchemyError):
                one.move()
            send(one, np.full((5, 2), 0.3))
            assert one.cutoff == before
        one.move()
        assert one.cutoff.decided == 7
        one.move()
        assert one.cutoff.decided == 12
    engine.dispose()


def test_counts_whose_commit_was_not_confirmed_are_counted_once(engine, by_hand, monkeypatch):
    def lose_the_answer(engine, work):
        with engine.begin() as connection:
            work(connection)
        raise SQLAlchemyError("the connection was lost")

    with running(engine, max_kept=50) as one:
        send(one, np.full((7, 2), -1.0))
        with monkeypatch.context() as patched:
            patched.setattr(traffic, "retry_if_disconnected", lose_the_answer)
            with pytest.raises(SQLAlchemyError):
                one.move()
        send(one, np.full((5, 2), -1.0))
        one.move()
        one.move()
        assert one.cutoff.decided == 12
        assert one_of(engine, "SELECT kept FROM sender_day") == 12


def test_it_moves_every_second_or_sooner(engine, monkeypatch):
    monkeypatch.setattr(traffic, "EVERY", 0.2)

    def moved(one, n):
        started = time.monotonic()
        send(one, np.random.default_rng(n).random((n, 2)))
        while one.cutoff.decided < n:
            time.sleep(0.002)
            assert time.monotonic() < started + 20
        return time.monotonic() - started

    with running(engine) as one:
        moved(one, 10)
        assert one.alive
    monkeypatch.setattr(traffic, "EVERY", 3600)
    with running(engine) as one:
        moved(one, 410)


class TestCap:
    """A sender's rejections that are kept in a day."""

    def test_beyond_it_objects_stay_rejected_and_move_nothing(self, engine, by_hand):
        low = np.full((10, 2), -1.0)
        with running(engine, max_kept=15) as one:
            assert [send(one, low)[1].sum() for _ in range(3)] == [10, 5, 0]
            assert send(one, low)[0].all()
            one.move()
            moved = one.cutoff
            assert (moved.decided, moved.rejected) == (15, 15)
            assert send(one, low)[0].sum() in (0, 10)  # as the cutoff says
            send(one, np.full((10, 2), 5.0))  # accepted ones of this sender count as little
            one.move()
            assert one.cutoff == moved
            assert send(one, low, "another")[1].sum() == send(one, low, "third")[0].sum()
        assert one_of(engine, "SELECT kept FROM sender_day WHERE sender = 'sensor'") == 15
        assert one_of(engine, "SELECT over FROM sender_day WHERE sender = 'sensor'") >= 25

    def test_objects_of_a_request_count_until_the_cap_is_reached(self, engine, by_hand):
        ranks = np.array([[5.0, 0], [-1, 0], [5, 0], [-1, 0], [5, 0], [-1, 0]])
        with running(engine, max_kept=2) as one:
            ruling = one.rule([("sensor", 6)], [said_of(ranks)])
            assert (len(ruling.counted[0].ranks), set(ruling.over)) == (4, {5})

    def test_gates_exceed_it_by_what_they_keep_between_moves(self, engine, by_hand):
        low, generator = np.full((1, 2), -1.0), np.random.default_rng(0)
        with running(engine, max_kept=40) as first, running(engine, max_kept=40) as second:
            kept, since, most = 0, {first: 0, second: 0}, 0
            for _ in range(400):
                one = (first, second)[int(generator.integers(2))]
                one.cutoff = Cutoff(1, 0.0, 0.0, 0.0)  # which rejects all of these
                new = int(send(one, low)[1].sum())
                kept, since[one] = kept + new, since[one] + new
                most = max(most, *since.values())
                if generator.random() < 0.1:
                    one.move()
                    since[one] = 0
        assert 40 <= kept <= 40 + most

    def test_it_holds_for_a_day(self, engine, by_hand):
        low = np.full((10, 2), -1.0)
        with running(engine, None, max_kept=5) as one:
            assert one.cutoff is None
            decided = said_of(low)[0], Decisions(np.zeros(10), np.zeros(10, bool), *low.T, np.arange(2))
            one.finish(one.rule([("sensor", 10)], [decided]).counted)
            one.move()
            assert len(one.rule([("sensor", 10)], [decided]).over) == 10
            with engine.begin() as connection:
                connection.execute(text("UPDATE sender_day SET day = day - 1"))
            one.move()
            assert len(one.rule([("sensor", 10)], [decided]).over) == 5

    def test_what_could_not_be_kept_does_not_count(self, engine, problem, served, monkeypatch):
        X, _ = problem
        objects = [{"id": f"{i}", "values": row.tolist()} for i, row in enumerate(X[1000:1100])]
        body = json.dumps({"objects": objects}).encode()

        def fail(*_):
            raise SQLAlchemyError("no")

        with served(max_kept=5) as service:
            monkeypatch.setattr("transcendent.gate.service.keep", fail)
            for _ in range(3):
                with pytest.raises(Exception, match="nothing was kept"):
                    asyncio.run(service.answer(body, "sensor"))
            monkeypatch.setattr("transcendent.gate.service.keep", intake.keep)
            status, answer = asyncio.run(service.answer(body, "sensor"))
            decisions = json.loads(answer)["decisions"]
            rejected = [each for each in decisions if not each["accepted"]]
            assert status == 200
            assert [each.get("kept", True) for each in rejected] == [True] * 5 + [False] * (len(rejected) - 5)
            assert all("kept" not in each for each in decisions if each["accepted"])
        assert one_of(engine, "SELECT count(*) FROM item") == 5


@pytest.fixture(scope="module")
def budget_artifact(problem, tmp_path_factory):
    X, y = problem
    ice = InductiveEvaluator(LinearSVC(random_state=0), random_state=0)
    path = tmp_path_factory.mktemp("budget") / "gate.transcendent"
    save(StreamingBudget(ice, rate=0.15, window=200).fit(X[:1000], y[:1000]), path)
    return path


@pytest.fixture
def served(engine, budget_artifact, monkeypatch, by_hand):
    """Start a service with a budget, in this process."""
    monkeypatch.setattr(gate_model, "try_out", lambda *_: None)  # which takes seconds
    model = load_model(budget_artifact)

    @contextmanager
    def start(**given):
        number = register(engine, model)
        one = Traffic(engine, number, SECRET, model.rule, **given)
        limits = {"max_objects": 1000, "timeout": 20, "max_waiting": 1 << 20}
        older = OlderItems(engine, number)
        older.read()
        service = Service(engine, Serving(model, number, Draw(SECRET, 0), one, older), **limits)
        yield service
        service.close()

    return start


@pytest.mark.parametrize("max_kept", [None, 5])
def test_what_waits_under_another_model_is_decided_again_by_the_cutoff(
    engine, rejector, problem, served, max_kept
):
    X, ids = problem[0][1000:1100], [f"o{i}" for i in range(100)]
    number, said = register(engine, model_of(rejector)), rejector.decide(X)
    all_rejected = replace(said, accepted=np.zeros(100, bool))
    keep(engine, list(to_keep(number, Draw(SECRET, 0), ids, ["sensor"] * 100, X, all_rejected).values()))
    objects = [{"id": name, "values": row} for name, row in zip(ids, X.tolist(), strict=True)]
    with served(max_kept=max_kept) as service:
        _, answer = asyncio.run(service.answer(json.dumps({"objects": objects}).encode(), "sensor"))
    answer = json.loads(answer)
    new, old = (2, answer["model"], answer["cutoff"]), (0, model_of(rejector).digest, None)
    expected = {
        each["id"]: new if each["accepted"] else (0, *new[1:]) if each.get("kept", True) else old
        for each in answer["decisions"]
    }
    sql = """SELECT object_id, state, digest, cutoff FROM item JOIN payload USING (id)
    JOIN model ON model.id = item.model"""
    with engine.connect() as connection:
        assert {name: tuple(rest) for name, *rest in connection.execute(text(sql))} == expected
    assert len(set(expected.values())) == (2 if max_kept is None else 3)


def test_object_model_and_cutoff_determine_every_answer(server, budget_artifact, problem, tmp_path):
    """Two gates, and objects of which many tie; each answer is computed again from the artifact."""
    X, _ = problem
    rows = np.vstack([X, X[:500].round(), np.zeros((500, 12))])
    rows[-500:, 0] = np.arange(500) % 3
    generator = np.random.default_rng(0)
    order = generator.permutation(len(rows))
    inner = load(budget_artifact).rejector_
    with tables_on(server) as url:
        folders = [tmp_path / name for name in "ab"]
        for folder in folders:
            folder.mkdir()
        with (
            gate_of(url, budget_artifact, folders[0]) as first,
            gate_of(url, budget_artifact, folders[1]) as second,
        ):
            client = first.client("sensor")
            ports, answers = (first.address, second.address), []
            headers = dict(client._http.headers)
            with httpx2.Client(headers=headers, timeout=60) as http:
                for start in range(0, len(order), 50):
                    places = order[start : start + 50]
                    objects = [{"id": f"o{i}", "values": rows[i].tolist()} for i in places]
                    where = ports[int(generator.integers(2))]
                    said = http.post(f"{where}/v1/decisions", json={"objects": objects}).json()
                    answers.append((places, said))
                    time.sleep(0.005)
                numbers = {said["cutoff"] for _, said in answers}
                cutoffs = {n: http.get(f"{ports[0]}/v1/cutoffs/{n}").json() for n in numbers}
                assert http.get(f"{ports[0]}/v1/cutoffs/{10**9}").status_code == 404
                assert http.get(f"{ports[0]}/v1/model").json()["budget"] == 0.15
            engine = connect(url)
            secret = audit_secret(engine)
            with engine.connect() as connection:
                sql = text("SELECT object_id, cutoff, accepted FROM payload")
                kept = {row.object_id: row for row in connection.execute(sql)}
            engine.dispose()
    assert len(numbers) > 3
    rejected = 0
    for places, said in answers:
        row = cutoffs[said["cutoff"]]
        assert row["model"] == said["model"]
        cutoff = Cutoff(**{name: row[name] for name in Cutoff._fields})
        found = decide_by(cutoff, rows[places], inner.decide(rows[places]), secret)
        assert [each["accepted"] for each in said["decisions"]] == found.accepted.tolist()
        assert [each["credibility"] for each in said["decisions"]] == found.credibility.tolist()
        for name in (each["id"] for each in said["decisions"] if not each["accepted"]):
            rejected += 1
            assert kept[name].cutoff == said["cutoff"]
    assert len(kept) == rejected
    assert abs(rejected / len(rows) - 0.15) < 0.1


def test_the_rule_of_a_model(problem, tmp_path, monkeypatch):
    monkeypatch.setattr(gate_model, "try_out", lambda *_: None)  # which takes seconds
    X, y = problem
    ice = InductiveEvaluator(LinearSVC(random_state=0), random_state=0)
    save(RejectionBudget(ice, rate=0.3).fit(X[:500], y[:500]), tmp_path / "one")
    rule = load_model(tmp_path / "one").rule
    assert (rule.rate, rule.window) == (0.3, 2000)
    assert len(rule.before) == 170
    assert 0 <= rule.before.min() < rule.before.max() <= 1
    save(
        RejectionBudget(ProbabilityThresholds(LogisticRegression()), rate=0.3).fit(X[:500], y[:500]),
        tmp_path / "two",
    )
    assert len(load_model(tmp_path / "two").rule.before) == 0
    save(ice.fit(X[:500], y[:500]), tmp_path / "three")
    assert load_model(tmp_path / "three").rule is None


def test_old_cutoffs_are_dropped_with_their_months(engine, by_hand):
    with running(engine, max_kept=9) as one:
        for _ in range(3):
            send(one, np.full((3, 2), 0.1))
            one.move()
        newest = one.cutoff.number
        with engine.begin() as connection:
            connection.execute(text("UPDATE cutoff SET made_at = '2020-01-31T23:59Z'"))
            connection.execute(text("UPDATE sender_day SET day = '2020-01-31'"))
        drop_months(engine, month_of("2020-01"))
        assert one_of(engine, "SELECT count(*) FROM cutoff") == 4
        drop_months(engine, month_of("2020-02"))
        assert one_of(engine, "SELECT array_agg(number) FROM cutoff") == [newest]
        assert one_of(engine, "SELECT count(*) FROM sender_day") == 0
