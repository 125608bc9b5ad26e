"""Shadows beside the model that decides: they see a sample after the answer, and change nothing else."""

import asyncio
import json
import re
import signal
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from threading import Event
from uuid import uuid4

import httpx2
import numpy as np
import pandas as pd
import pytest
from sklearn.svm import LinearSVC
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from typer.testing import CliRunner

from tests.gate.conftest import ForkedGate
from tests.gate.test_database import move
from transcendent import InductiveEvaluator, load, save
from transcendent.cli.app import app
from transcendent.gate import intake, read_labelled, shadowing, shadows, stored
from transcendent.gate import model as gate_model
from transcendent.gate.auditing import harm_in
from transcendent.gate.check import check
from transcendent.gate.comparing import compare
from transcendent.gate.database import connect, drop_months, this_month
from transcendent.gate.deletion import ToDelete, delete
from transcendent.gate.deployments import DeploymentError, deploy, needed
from transcendent.gate.disagreements import THIS_HOUR, Compared, Comparisons
from transcendent.gate.export import export_labelled
from transcendent.gate.following import Follower
from transcendent.gate.promotion import list_processes, promote, retire
from transcendent.gate.quarantine import Quarantine
from transcendent.gate.service import Service
from transcendent.gate.serving import ServingMaker
from transcendent.gate.shadowing import Fates, Shadows, outcomes_of, shadow_secret
from transcendent.gate.shadows import shadow
from transcendent.gate.stored import find, list_models, load_stored

BY = ("ann", "a reason")
PLAIN = {"audit": 0.0, "budget": None}
HALF = {"sample": 0.5, "audit": 0.5, "budget": None}
FIFTH = {"sample": 0.2, "audit": 1.0, "budget": None}


@pytest.fixture(scope="module")
def files(problem, artifact, tmp_path_factory):
    """Artifacts: the one of other tests, one of few rows, one of other labels, one of a frame."""
    X, y = problem
    folder = tmp_path_factory.mktemp("files")

    def evaluator():
        return InductiveEvaluator(LinearSVC(C=0.01, random_state=0), random_state=3)

    save(evaluator().fit(X[:300], y[:300]), folder / "few")
    save(evaluator().fit(X[:800], np.where(y[:800] == "malware", "adware", "goodware")), folder / "classes")
    save(evaluator().fit(pd.DataFrame(X[:500, :3], columns=list("abc")), y[:500]), folder / "columns")
    return {"one": artifact, **{name: folder / name for name in ("few", "classes", "columns")}}


@pytest.fixture(autouse=True)
def untried(monkeypatch):
    monkeypatch.setattr(gate_model, "try_out", lambda *_: None)  # which takes seconds


@pytest.fixture
def models(engine, files):
    """The artifacts in the database, as they are known there."""
    return add_all(engine, files)


def add_all(engine, files):
    digests = {name: stored.add(engine, path, [], None, name, *BY).digest for name, path in files.items()}
    with engine.begin() as connection:  # a key that is always the same, since intervals may miss
        sql = "UPDATE secret SET value = sha256('key') WHERE name = 'shadow'"
        connection.execute(text(sql))
        return {name: find(connection, digest) for name, digest in digests.items()}


class ByHand(Shadows):
    """Shadows that work only when they are told to."""

    def _run(self):
        pass


class Gate:
    """A service that follows the deployments in this process, with a clock and an id of its own."""

    def __init__(self, engine, kind=ByHand, hour=490_000):
        self.engine, self.hour, self.beats = engine, hour, []
        self.comparisons = Comparisons(engine, uuid4(), lambda: 3600 * self.hour)
        self.shadows = kind(shadow_secret(engine), self.comparisons)
        self.service = Service(
            engine, max_objects=5000, timeout=20, max_waiting=1 << 24, shadows=self.shadows
        )
        self.follower = Follower(
            engine,
            self.service,
            lambda number: load_stored(engine, number, (), None),
            ServingMaker(engine, engine, bytes(32), None),
            lambda *said: self.beats.append(said),
            shadows=self.shadows,
        )

    def turn(self):
        self.follower.turn()
        while self.follower._loading is not None:
            self.follower._loading.join()
            self.follower.turn()
        return self.beats[-1]

    def answer(self, X, prefix="o"):
        objects = [{"id": f"{prefix}{i}", "values": row} for i, row in enumerate(X.tolist())]
        status, body = asyncio.run(self.service.answer(json.dumps({"objects": objects}).encode(), "sensor"))
        assert status == 200
        return json.loads(body)["decisions"]

    def store(self):
        self.shadows.work()
        self.comparisons.flush()

    def close(self):
        self.follower.close()
        self.service.close()
        self.shadows.close()


@pytest.fixture
def start(engine):
    started = []

    def begin(*given, **named):
        started.append(Gate(engine, *given, **named))
        return started[-1]

    yield begin
    for each in started:
        each.close()


def counted(engine):
    """Return cells, undecided and dropped objects by the model of the shadow."""
    found = {}
    with engine.connect() as connection:
        sql = """SELECT deployment.model, shadow_counts.* FROM shadow_counts
        JOIN deployment ON deployment.id = shadow"""
        for row in connection.execute(text(sql)):
            compared = found.setdefault(row.model, Compared())
            pairs = zip(row.active_outcomes, row.shadow_outcomes, strict=True)
            compared.add(
                Compared(Counter(dict(zip(pairs, row.counts, strict=True))), row.undecided, row.dropped)
            )
    return found


class Expected:
    """What a comparison must find, from the artifacts and the secret alone."""

    def __init__(self, secret, files, active, other, X, settings, prefix="o"):
        fates = [Fates(secret)(f"{prefix}{i}") for i in range(len(X))]
        rows = [i for i, fate in enumerate(fates) if fate.sample < settings["sample"]]
        one, two = (outcomes_of(load(files[name]).decide(X)) for name in (active, other))
        self.cells = Counter((one[i], two[i]) for i in rows)
        drawn = [i for i in rows if one[i] != two[i] and fates[i].draw < settings["audit"]]
        self.drawn = {f"{prefix}{i}": (fates[i].draw, one[i], two[i]) for i in drawn}
        self.disagree = {f"{prefix}{i}" for i in rows if one[i] != two[i]}


def drawn_in(engine, number):
    sql = """SELECT object_id, draw, active_outcome, shadow_outcome, rank, tier, accepted, probability
    FROM disagreement JOIN item ON item.id = disagreement.item JOIN payload ON payload.id = item.id
    JOIN deployment ON deployment.id = shadow WHERE deployment.model = :model"""
    with engine.connect() as connection:
        return connection.execute(text(sql), {"model": number}).all()


def promoted(engine, models, settings=PLAIN, action="active", **shadowed):
    """Let one model decide, with others as its shadows."""
    promote(engine, models["one"], action, settings, *BY, 0)
    return {name: shadow(engine, models[name], given, *BY) for name, given in shadowed.items()}


def test_the_sample_is_counted_and_disagreements_are_drawn(engine, start, models, files, problem):
    X = problem[0][1000:1800]
    promoted(engine, models, {"audit": 0.1, "budget": None}, few=HALF, classes=FIFTH)
    gate = start()
    assert gate.turn()[2] is None
    plain = load(files["one"]).decide(X)
    assert [each["accepted"] for each in gate.answer(X)] == plain.accepted.tolist()
    gate.store()
    found, secret = counted(engine), shadow_secret(engine)
    expected = {
        name: Expected(secret, files, "one", name, X, given)
        for name, given in (("few", HALF), ("classes", FIFTH))
    }
    for name, each in expected.items():
        assert found[models[name].number] == Compared(each.cells)
        rows = drawn_in(engine, models[name].number)
        assert {row.object_id: tuple(row[1:4]) for row in rows} == each.drawn
        assert {row.accepted for row in rows} == {True, False}
        audited = [row for row in rows if row.rank < 1]
        assert all(row.accepted and row.probability == 0.1 for row in audited)
        for row in set(rows) - set(audited):
            assert (row.tier, row.rank) == (0, 1 + row.draw)
            of = {
                (True, True): 1 - 0.9 * (1 - (0.2 + 0.3 * 0.5)),  # the union of both draws
                (True, False): 1 - 0.9 * (1 - 0.25),
                (False, True): 1 - 0.9 * (1 - 0.2),
            }
            both = tuple(row.object_id in each.drawn for each in expected.values())
            assert row.probability == pytest.approx(1 if not row.accepted else of[both])
    items = Quarantine(engine, max_held=1000).claim("ann", 100).items
    extra = [each for each in items if not each["audit"]]
    draws = {name: draw for each in expected.values() for name, (draw, *_) in each.drawn.items()}
    order = [draws[each["object_id"]] for each in extra if each["object_id"] in draws]
    assert len(order) > 10
    assert order == sorted(order)
    assert check(engine) == []


def test_other_processes_give_the_same_cells_and_a_flush_may_be_repeated(
    engine, start, models, files, problem
):
    X = problem[0][1000:1400]
    promoted(engine, models, few=HALF)
    first, second = start(), start()
    for gate in (first, second):
        gate.turn()
    first.answer(X[:150])
    second.answer(X[:150])
    first.store()
    whole = Expected(shadow_secret(engine), files, "one", "few", X[:150], HALF)
    assert counted(engine)[models["few"].number] == Compared(whole.cells)
    rows = drawn_in(engine, models["few"].number)
    second.store()
    for _ in range(2):
        first.comparisons.flush()
    twice = Counter({cell: 2 * n for cell, n in whole.cells.items()})
    assert counted(engine)[models["few"].number] == Compared(twice)
    assert drawn_in(engine, models["few"].number) == rows  # the same objects were drawn
    first.hour += 1  # the row of the hour before is complete
    first.answer(X[:150], "p")
    first.store()
    others = Expected(shadow_secret(engine), files, "one", "few", X[:150], HALF, "p")
    assert counted(engine)[models["few"].number].cells == others.cells + twice
    assert len(first.comparisons._counts) == 1 or first.comparisons.flush() is None


def test_a_clock_that_jumps_ahead_and_back_moves_no_counts_into_the_future(engine, start, models, problem):
    promoted(engine, models, few=HALF)
    with engine.connect() as connection:
        now = connection.execute(text(THIS_HOUR)).scalar_one()
    gate = start(hour=now - 2)
    gate.turn()
    answered = 0
    for hour, expected in ((-2, {-2}), (1000, {-2, 0}), (-1, {-2, 0}), (0, {-2, 0}), (-9, {-2, 0})):
        gate.hour = now + hour
        gate.answer(problem[0][1000:1100], f"{hour}-")
        gate.store()
        answered += 100
        with engine.connect() as connection:
            stored = set(connection.execute(text("SELECT hour FROM shadow_counts")).scalars())
            drawn = set(connection.execute(text("SELECT hour FROM disagreement")).scalars())
        assert {min(each, now) for each in stored} == {now + each for each in expected}
        assert max(stored) <= now + 1  # an hour may end during the test
        assert drawn <= stored
    total = counted(engine)[models["few"].number].cells.total()
    assert 0.3 * answered < total < 0.7 * answered


def test_an_id_that_is_sent_again_counts_once(engine, start, models, files, problem):
    X, number = problem[0][1000:1400], models["few"].number
    promoted(engine, models, few=HALF)
    gate = start()
    gate.turn()
    for _ in range(3):
        gate.answer(X)
        gate.store()
    once = Expected(shadow_secret(engine), files, "one", "few", X, HALF)
    assert counted(engine)[number] == Compared(once.cells)
    shadow(engine, models["classes"], FIFTH, *BY)  # which has seen none of them
    gate.turn()
    gate.answer(X)
    gate.store()
    others = Expected(shadow_secret(engine), files, "one", "classes", X, FIFTH)
    assert counted(engine)[models["classes"].number] == Compared(others.cells)


def test_what_the_next_model_has_rejected_stays_rejected(engine, start, models, problem):
    """Objects that were drawn before a promotion are stored after it."""
    X = problem[0][1000:1400]
    promoted(engine, models, few={**HALF, "sample": 1.0, "audit": 1.0})
    gate = start()
    gate.turn()
    gate.answer(X)
    gate.shadows.work()
    promote(engine, models["few"], "active", PLAIN, *BY, 0)
    gate.turn()
    gate.answer(X)
    sql = (
        "SELECT item.id FROM item JOIN payload ON payload.id = item.id WHERE NOT accepted AND model = :model"
    )
    with engine.connect() as connection:
        rejected = set(connection.execute(text(sql), {"model": models["few"].number}).scalars())
    gate.comparisons.flush()
    with engine.connect() as connection:
        assert set(connection.execute(text(sql), {"model": models["few"].number}).scalars()) == rejected
    assert len(rejected) > 20


def test_a_deleted_object_does_not_come_back_from_memory(engine, start, models, problem):
    promoted(engine, models, few={**HALF, "sample": 1.0, "audit": 1.0})
    gate = start()
    gate.turn()
    gate.answer(problem[0][1000:1400])
    gate.shadows.work()
    accepted = [each.kept for _, each in gate.comparisons._drawn if each.active_outcome is not None]
    name = accepted[0][list(intake._COLUMNS).index("object_id")]
    delete(engine, ToDelete("object", name), *BY)
    gate.comparisons.flush()
    with engine.connect() as connection:
        sql = "SELECT count(*) FROM payload WHERE object_id = :name"
        assert connection.execute(text(sql), {"name": name}).scalar_one() == 0
    gate.answer(problem[0][1000:1400], "p")
    gate.store()
    assert drawn_in(engine, models["few"].number)  # of what came later


def test_what_a_process_has_flushed_is_not_lost_with_it_or_with_an_unknown_commit(
    engine, start, models, problem
):
    X = problem[0][1000:1400]
    promoted(engine, models, few=HALF)
    gate = start()
    gate.turn()
    gate.answer(X[:200])
    gate.store()
    before = counted(engine)[models["few"].number]
    gate.answer(X[200:], prefix="p")
    gate.shadows.work()  # and the process is killed: what it had not flushed is lost
    assert counted(engine)[models["few"].number] == before
    rows = len(drawn_in(engine, models["few"].number))

    class Lost:
        """An engine whose commits succeed, but whose answers are lost."""

        connect = staticmethod(engine.connect)

        @contextmanager
        def begin(self):
            with engine.begin() as connection:
                yield connection
            raise OperationalError("", {}, Exception())

    gate.comparisons._engine = Lost()
    with pytest.raises(OperationalError):
        gate.comparisons.flush()
    gate.comparisons._engine = engine
    gate.comparisons.flush()
    after = counted(engine)[models["few"].number].cells.total()
    assert after > before.cells.total()
    assert len(drawn_in(engine, models["few"].number)) > rows
    gate.comparisons.flush()
    assert counted(engine)[models["few"].number].cells.total() == after


def test_an_observing_model_is_compared_by_what_it_would_have_done(engine, start, models, files, problem):
    X = problem[0][1000:1300]
    promoted(engine, models, action="observe", few=HALF)
    gate = start()
    gate.turn()
    assert all(each["accepted"] for each in gate.answer(X))
    gate.store()
    expected = Expected(shadow_secret(engine), files, "one", "few", X, HALF)
    assert counted(engine)[models["few"].number] == Compared(expected.cells)
    assert any(one is None for one, _ in expected.cells)


class Hostile:
    """A rejector that fails in some way."""

    def __init__(self, kind, rejector):
        self.kind, self.rejector, self.free, self.limit = kind, rejector, Event(), np.inf

    def decide(self, X):
        if self.kind == "raises":
            raise ZeroDivisionError
        if np.abs(X).max() > self.limit:
            raise ValueError("too large")
        if self.kind == "blocks":
            self.free.wait(30)
        if self.kind == "returns nothing":
            return None
        decided = self.rejector.decide(X)
        return decided[:-1] if self.kind == "returns too few" else decided


def hostile_beside_a_good_one(engine, gate, models, kind):
    """Replace the model of the first shadow by one that fails; return it."""
    gate.turn()
    bad, good = gate.shadows.standing
    rejector = Hostile(kind, bad.model.rejector)
    bad.model = replace(bad.model, rejector=rejector, observer=None)
    assert (bad.number, good.number) == (models["few"].number, models["classes"].number)
    return rejector


@pytest.mark.parametrize("kind", ["raises", "returns nothing", "returns too few", "refuses two"])
def test_a_shadow_that_fails_changes_nothing_but_its_own_counts(engine, start, models, files, problem, kind):
    X = problem[0][1000:1400]
    promoted(engine, models, few=HALF, classes=HALF)
    gate = start()
    rejector, secret = hostile_beside_a_good_one(engine, gate, models, kind), shadow_secret(engine)
    if kind == "refuses two":
        sampled = [i for i in range(len(X)) if Fates(secret)(f"o{i}").sample < 0.5]
        rejector.limit = np.sort(np.abs(X[sampled]).max(axis=1))[-3]
    plain = load(files["one"]).decide(X)
    assert [each["accepted"] for each in gate.answer(X)] == plain.accepted.tolist()
    gate.store()
    found = counted(engine)
    expected = Expected(secret, files, "one", "classes", X, HALF)
    assert found[models["classes"].number] == Compared(expected.cells)
    bad, n = found[models["few"].number], expected.cells.total()
    assert bad.cells.total() + bad.undecided == n
    assert bad.undecided == (2 if kind == "refuses two" else n)
    assert gate.service.alive


def test_objects_that_a_shadow_cannot_read_are_undecided(engine, start, models, files, problem):
    X = problem[0][1000:1100]
    promoted(engine, models, columns=HALF)
    gate = start()
    gate.turn()
    gate.answer(X)
    gate.store()
    n = Expected(shadow_secret(engine), files, "one", "one", X, HALF).cells.total()
    assert counted(engine)[models["columns"].number] == Compared(undecided=n)


def test_a_shadow_that_hangs_lets_answers_pass_and_what_does_not_fit_is_dropped(
    engine, start, models, files, problem, monkeypatch
):
    monkeypatch.setattr(shadowing, "MAX_OBJECTS", 300)
    X = problem[0][1000:1100]
    promoted(engine, models, few={**HALF, "sample": 1.0}, classes=HALF)
    gate = start(Shadows)
    rejector = hostile_beside_a_good_one(engine, gate, models, "blocks")
    plain = load(files["one"]).decide(X).accepted.tolist()
    gate.answer(X, "a")
    while gate.shadows._objects:  # until it hangs
        time.sleep(0.01)
    for prefix in "bcdefg":
        assert [each["accepted"] for each in gate.answer(X, prefix)] == plain
    assert not rejector.free.is_set()
    rejector.free.set()
    gate.shadows.close()
    gate.comparisons.flush()
    found = counted(engine)
    assert (found[models["few"].number].cells.total(), found[models["few"].number].dropped) == (400, 300)
    assert found[models["classes"].number].dropped == 300
    page = gate.shadows._metrics.page().decode()
    assert f'model="{models["few"].digest[:12]}",result="dropped"}} 300.0' in page


def test_objects_over_a_cap_are_dropped_since_nobody_can_label_them(engine, start, models, files, problem):
    X = problem[0][1000:1300]
    gate = start()
    gate.follower._make = ServingMaker(engine, engine, bytes(32), 5)
    promoted(engine, models, few=HALF)
    gate.turn()
    answers = gate.answer(X)
    gate.store()
    fates = Fates(shadow_secret(engine))
    over = [each for each in answers if each.get("kept") is False and fates(each["id"]).sample < 0.5]
    found = counted(engine)[models["few"].number]
    assert found.dropped == len(over) > 0
    assert found.cells.total() + len(over) == sum(fates(f"o{i}").sample < 0.5 for i in range(300))


def test_a_budget_has_a_cutoff_of_its_own_in_memory(engine, start, models, problem):
    X = problem[0]
    promoted(engine, models, few={"sample": 1.0, "audit": 0.0, "budget": 0.3})
    gate = start()
    gate.turn()
    for turn in range(3):
        gate.answer(X[1000:], f"{turn}-")
        gate.store()
    cells = counted(engine)[models["few"].number].cells
    rejected = sum(n for (_, outcome), n in cells.items() if outcome is None)
    assert rejected / cells.total() == pytest.approx(0.3, abs=0.02)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM cutoff")).scalar_one() == 0
        assert connection.execute(text("SELECT count(*) FROM ranks")).scalar_one() == 0


def test_shadows_are_followed_until_they_are_retired_or_promoted(engine, start, models):
    gate = start()
    shadow(engine, models["few"], HALF, *BY)
    made = promoted(engine, models, classes=HALF)
    _, loaded, problem_found = gate.turn()
    assert problem_found is None
    assert set(loaded) == {models[name].number for name in ("one", "few", "classes")}
    assert [each.number for each in gate.shadows.standing] == [models["few"].number, models["classes"].number]
    kept = gate.shadows.standing
    again = shadow(engine, models["few"], FIFTH, *BY)  # other settings: a new deployment
    gate.turn()
    assert [each.deployment for each in gate.shadows.standing] == [made["classes"], again]
    assert gate.shadows.standing[0] is kept[1]
    with engine.connect() as connection:
        states = {each["digest"]: each["state"] for each in list_models(connection)}
    assert [states[models[name].digest] for name in models] == ["active", "shadow", "shadow", None]
    retire(engine, models["few"], *BY)
    promote(engine, models["classes"], "active", PLAIN, *BY, 0)
    gate.turn()
    assert gate.shadows.standing == ()
    assert gate.service.serving.number == models["classes"].number
    with engine.connect() as connection:
        assert needed(connection).shadows == []


def test_a_shadow_that_cannot_be_loaded_is_a_problem_and_nothing_else(engine, start, models, problem):
    promoted(engine, models)
    with engine.begin() as connection:
        sql = "UPDATE artifact SET content = '' WHERE model = :model"
        connection.execute(text(sql), {"model": models["few"].number})
        made = [
            deploy(connection, models[name].number, "shadow", given, *BY)
            for name, given in (("few", HALF), ("classes", {**HALF, "sample": 7}), ("columns", HALF))
        ]
    gate = start()
    *_, found = gate.turn()
    assert gate.service.serving.number == models["one"].number
    assert [line.partition(":")[0] for line in found.splitlines()] == [f"deployment {n}" for n in made[1::-1]]
    assert [each.deployment for each in gate.shadows.standing] == [made[2]]
    gate.answer(problem[0][:50])


def test_shadows_that_cannot_be_are_refused(engine, models, monkeypatch):
    promoted(engine, models)
    with pytest.raises(DeploymentError, match="cannot be its own shadow"):
        shadow(engine, models["one"], HALF, *BY)
    for bad in ({**HALF, "sample": 0.0}, {**HALF, "audit": 2.0}, {**HALF, "more": 1}, {"audit": 0.1}):
        with pytest.raises(DeploymentError, match="its settings cannot be used"):
            shadow(engine, models["few"], bad, *BY)
    monkeypatch.setattr(shadows, "MAX_SHADOWS", 1)
    shadow(engine, models["few"], HALF, *BY)
    shadow(engine, models["few"], FIFTH, *BY)  # in place of the first
    with pytest.raises(DeploymentError, match="there are 1 shadows already"):
        shadow(engine, models["classes"], HALF, *BY)


@pytest.fixture
def drawn(engine, start, models, problem):
    """A gate that has answered, compared and drawn."""
    promoted(engine, models, {"audit": 0.3, "budget": None}, few={**HALF, "sample": 0.8})
    gate = start()
    gate.turn()
    gate.answer(problem[0][1000:])
    gate.store()
    return gate


def label_all(engine, y):
    """Label all items by the truth."""
    quarantine = Quarantine(engine, max_held=2000)
    while items := quarantine.claim("ann", 100).items:
        for each in items:
            quarantine.resolve("ann", each["id"], str(y[1000 + int(each["object_id"][1:])]))


@pytest.fixture
def labelled(engine, drawn, problem):
    """A gate whose items all have their true label."""
    label_all(engine, problem[1])
    return drawn


def set_hours(engine, hour):
    with engine.begin() as connection:
        for table in ("shadow_counts", "disagreement"):
            connection.execute(text(f"UPDATE {table} SET hour = floor({hour})"))


def compared(engine, models, *names):
    with engine.connect() as connection:
        return compare(connection, *(models[name].digest[:10] for name in names))


def test_compare_says_who_was_right(engine, labelled, models, files, problem):
    X, y = problem[0][1000:], problem[1][1000:]
    expected = Expected(shadow_secret(engine), files, "one", "few", X, {"sample": 0.8, "audit": 0.5})
    found = compared(engine, models, "one", "few")
    assert (found.objects, found.disagreements) == (expected.cells.total(), len(expected.disagree))
    assert found.a_rejected == sum(n for (a, _), n in expected.cells.items() if a is None)
    assert found.b_rejected == sum(n for (_, b), n in expected.cells.items() if b is None)
    assert {(cell.a, cell.b): cell.objects for cell in found.cells} == {
        cell: n for cell, n in expected.cells.items() if cell[0] != cell[1]
    }
    assert sum(cell.labels for cell in found.cells) == sum(cell.drawn for cell in found.cells)
    assert sum(cell.drawn for cell in found.cells) == len(expected.drawn)
    one, few = (outcomes_of(load(files[name]).decide(X)) for name in ("one", "few"))
    places = [int(name[1:]) for name in expected.disagree]
    right = [y[i] == one[i] if one[i] is not None else y[i] != few[i] for i in places]
    assert found.a_share.low <= np.mean(right) <= found.a_share.high
    turned = compared(engine, models, "few", "one")
    assert turned.a == found.b
    assert [*turned.a_share, *turned.b_share] == pytest.approx([*found.b_share, *found.a_share])
    assert (turned.shadow, turned.a_rejected) == (found.shadow, found.b_rejected)
    # Days before today count alone once there are any: items of today may wait.
    set_hours(engine, "extract(epoch FROM now()) / 3600")
    today = compared(engine, models, "one", "few")
    assert (today.until, today.cells) == (None, found.cells)
    with engine.begin() as connection:
        sql = """INSERT INTO shadow_counts SELECT active, shadow, 480000, gen_random_uuid(), objects,
            undecided, dropped, active_outcomes, shadow_outcomes, counts FROM shadow_counts"""
        connection.execute(text(sql))
    before = compared(engine, models, "one", "few")
    assert (before.objects, before.until is None) == (found.objects, False)
    assert {cell.drawn for cell in before.cells} == {0}
    with pytest.raises(DeploymentError, match="were not compared"):
        compared(engine, models, "one", "classes")


def test_an_undone_label_ends_the_run_and_the_item_waits_in_front(engine, labelled, models):
    before = compared(engine, models, "one", "few")
    with engine.connect() as connection:
        sql = """SELECT item FROM disagreement JOIN payload ON payload.id = item
        WHERE NOT accepted ORDER BY draw LIMIT 1"""
        item = connection.execute(text(sql)).scalar_one()
    quarantine = Quarantine(engine)
    quarantine.undo("ann", item)
    after = compared(engine, models, "one", "few")
    assert sum(cell.labels for cell in after.cells) < sum(cell.labels for cell in before.cells)
    assert [each["id"] for each in quarantine.claim("bob", 1).items] == [item]
    with engine.connect() as connection:
        assert connection.execute(text("SELECT tier FROM item WHERE state = 0")).scalar_one() == 0


def test_extra_items_are_not_of_the_audit(engine, labelled, models, tmp_path):
    export_labelled(engine, tmp_path / "labelled")
    before = read_labelled(tmp_path / "labelled")
    table, ids = before.table, before.table["gate_id"].to_pylist()
    draw = labelled.service.serving.draw
    accepted = table["gate_accepted"].to_numpy()
    audited = np.array([draw(name) for name in ids]) & accepted
    np.testing.assert_array_equal(before.audited, audited)
    assert 0 < audited.sum() < accepted.sum()
    chance = 1 - 0.7 * (1 - 0.8 * 0.5)
    np.testing.assert_allclose(before.probability, np.where(~accepted, 1, np.where(audited, 0.3, chance)))
    with engine.begin() as connection:
        for table in ("item", "deployment"):
            column = "received_at" if table == "item" else "made_at"
            days = 1 if table == "item" else 2
            connection.execute(text(f"UPDATE {table} SET {column} = now() - interval '{days} day'"))
        active = connection.execute(text("SELECT id FROM deployment WHERE action = 'active'")).scalar_one()
        assert harm_in(connection, active, 0.05).unclear_right.labels == audited.sum()


@pytest.mark.parametrize("settled", ["labelled", "skipped"])
def test_nor_are_rejected_items_that_were_settled_before_they_were_drawn(
    engine, start, models, problem, settled
):
    promoted(engine, models, {"audit": 0.3, "budget": None}, few={**HALF, "sample": 1.0, "audit": 1.0})
    gate = start()
    gate.turn()
    gate.answer(problem[0][1000:1600])
    quarantine, rejected = Quarantine(engine, max_held=2000), []
    while items := quarantine.claim("ann", 100).items:
        for each in items:
            if settled == "skipped" and not each["accepted"]:
                quarantine.skip("ann", each["id"])
            else:
                quarantine.resolve("ann", each["id"], "malware")
            rejected += [each["id"]] if not each["accepted"] else []
    gate.store()
    with engine.begin() as connection:
        connection.execute(text("UPDATE item SET received_at = now() - interval '1 day'"))
        connection.execute(text("UPDATE deployment SET made_at = now() - interval '2 day'"))
        active = connection.execute(text("SELECT id FROM deployment WHERE action = 'active'")).scalar_one()
        drawn = set(connection.execute(text("SELECT item FROM disagreement")).scalars())
        before = harm_in(connection, active, 0.05).unclear_right.labels
    undone = [item for item in rejected if item in drawn]
    for item in undone:
        quarantine.undo("ann", item)
    with engine.connect() as connection:
        assert harm_in(connection, active, 0.05).unclear_right.labels == before > 0
        sql = """SELECT bool_and(tier = 0 AND rank = 1 + draw) FROM item JOIN disagreement ON item = item.id
        WHERE item.id = ANY(:items)"""
        assert connection.execute(text(sql), {"items": undone}).scalar_one()


def test_nor_are_they_once_their_month_is_dropped(engine, drawn, problem, tmp_path):
    with engine.connect() as connection:
        month = this_month(connection)
    move(engine, "o", month - 2)
    label_all(engine, problem[1])
    export_labelled(engine, tmp_path / "before")
    drop_months(engine, month)
    export_labelled(engine, tmp_path / "after")
    before, after = (read_labelled(tmp_path / name) for name in ("before", "after"))
    assert after.table.equals(before.table)
    assert 0 < after.audited.sum() < after.table["gate_accepted"].to_numpy().sum()


def test_deletion_and_retention_reach_the_rows(engine, labelled, models):
    with engine.connect() as connection:
        sql = "SELECT object_id, item FROM disagreement JOIN payload ON payload.id = item LIMIT 1"
        name, item = connection.execute(text(sql)).one()
        month = this_month(connection)
    delete(engine, ToDelete("object", name), *BY)
    with engine.connect() as connection:
        left = connection.execute(text("SELECT item FROM disagreement")).scalars().all()
    assert left
    assert item not in left
    set_hours(engine, "extract(epoch FROM now()) / 3600")
    drop_months(engine, month)
    assert counted(engine)
    set_hours(engine, "extract(epoch FROM date_trunc('month', now(), 'UTC')) / 3600 - 1")
    drop_months(engine, month)
    assert counted(engine) == {}
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM disagreement")).scalar_one() == 0


def test_commands_shadow_and_compare(database, files, problem, monkeypatch):
    monkeypatch.setenv("TRANSCENDENT_GATE_DATABASE", database)
    engine = connect(database, 20)

    def run(*arguments, code=0):
        done = CliRunner().invoke(app, ["gate", "model", *arguments])
        assert done.exit_code == code, done.output
        return done.output

    models = add_all(engine, files)
    one, few = (models[name].digest[:12] for name in ("one", "few"))
    promote(engine, models["one"], "active", PLAIN, *BY, 0)
    said = run("shadow", few, "--reason", "new", "--sample", "0.8", "--audit", "1")
    assert f"model {few} (few) is a shadow of 80% of the traffic: see" in said
    assert "were not compared" in run("compare", one, few, code=4)
    assert "its own shadow" in run("shadow", one, "--reason", "new", code=4)
    assert "sample" in run("shadow", few, "--reason", "new", "--sample", "2", code=4)
    gate = Gate(engine)
    gate.turn()
    gate.answer(problem[0][1000:])
    gate.store()
    said = run("compare", one, few)
    assert "unknown" in said
    assert "none of the drawn objects has a label that counts yet" in said
    quarantine = Quarantine(engine, max_held=2000)
    for each in quarantine.claim("ann", 100).items:
        label = problem[1][1000 + int(each["object_id"][1:])]
        quarantine.resolve("ann", each["id"], str(label))
    said = run("compare", one, few)
    found = json.loads(run("compare", one, few, "--json"))
    assert found["conclusion"] in said
    assert found["disagreements"] == sum(cell["objects"] for cell in found["cells"])
    assert sum(cell["labels"] for cell in found["cells"]) == min(100, found["disagreements"])
    with engine.connect() as connection:
        assert found["a_share"] == compare(connection, one, few).a_share._asdict()
    assert found["settled"]
    assert "settled" not in said
    assert "is a shadow of all traffic: see" in run(
        "shadow", few, "--reason", "x", "--sample", "1", "--budget", "0.1"
    )
    gate.turn()
    gate.answer(problem[0][1000:], "again")
    gate.store()
    note = "(not settled: a budget needs about 2,000 objects in each gate)"
    rates = rf"^rejected +{one}: [\d.]+%; {few}: [\d.]+% {re.escape(note)}$"
    assert re.search(rates, run("compare", one, few), re.MULTILINE)
    with engine.begin() as connection:
        sql = "UPDATE shadow_counts SET counts = array_fill(2000, ARRAY[cardinality(counts)])"
        connection.execute(text(sql))
    assert json.loads(run("compare", one, few, "--json"))["settled"]
    gate.close()
    assert "budget 0.1" in run("promote", few, "--reason", "not worse", "--wait", "0")
    assert "budget" not in run("promote", one, "--reason", "it is no shadow", "--wait", "0")
    engine.dispose()


def wait_until(good, seconds=30):
    end = time.monotonic() + seconds
    while not good():
        assert time.monotonic() < end
        time.sleep(0.1)


def send(gate, token, X):
    objects = [{"id": f"o{i}", "values": row} for i, row in enumerate(X.tolist())]
    for start in range(0, len(objects), 50):
        answer = httpx2.post(
            f"{gate.address}/v1/decisions",
            json={"objects": objects[start : start + 50]},
            headers={"authorization": f"Bearer {token}"},
        )
        assert answer.status_code == 200


def test_one_and_two_gates_count_the_same_cells_and_a_killed_one_loses_only_what_it_had_not_flushed(
    database, files, problem, tmp_path
):
    engine, X = connect(database), problem[0][1000:1300]
    models = add_all(engine, files)
    promoted(engine, models, few=HALF, classes=FIFTH)
    expected = {
        name: Expected(shadow_secret(engine), files, "one", name, X, given).cells
        for name, given in (("few", HALF), ("classes", FIFTH))
    }

    def loaded(n):
        with engine.connect() as connection:
            return sum(len(each["loaded"]) == 3 for each in list_processes(connection)) == n

    def cells(times):
        found = counted(engine)
        return all(
            models[name].number in found
            and found[models[name].number].cells == Counter({cell: times * n for cell, n in each.items()})
            for name, each in expected.items()
        )

    gates = [ForkedGate(database, None, tmp_path / "first").wait()]
    try:
        token = gates[0].token("sensor", "client")
        wait_until(lambda: loaded(1))
        send(gates[0], token, X)
        wait_until(lambda: cells(1))
        rows = {each.object_id for each in drawn_in(engine, models["few"].number)}
        gates.append(ForkedGate(database, None, tmp_path / "second").wait())
        wait_until(lambda: loaded(2))
        send(gates[0], token, X[:150])  # which it has compared
        send(gates[1], token, X)
        whole = Counter({cell: 2 * n for cell, n in expected["few"].items()})
        wait_until(lambda: counted(engine)[models["few"].number].cells == whole)
        gates[0].stop(signal.SIGKILL)
        assert counted(engine)[models["few"].number].cells == whole
        send(gates[1], token, X[:150])
        gates[1].stop()  # which flushes
        assert counted(engine)[models["few"].number].cells == whole
        assert {each.object_id for each in drawn_in(engine, models["few"].number)} == rows
    finally:
        for gate in gates:
            if gate.process.poll() is None:
                gate.stop()
        engine.dispose()
