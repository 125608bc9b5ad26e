"""Models in the database: promoted to all gates or none, rolled back, and not trusted for being there."""

import asyncio
import json
import signal
import threading
import time
import warnings
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import httpx2
import numpy as np
import psycopg
import pytest
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from typer.testing import CliRunner

from tests.gate.conftest import ForkedGate
from tests.gate.promotions import Client, recompute
from transcendent import InductiveEvaluator, StreamingBudget, load, save
from transcendent.artifacts import open_artifact
from transcendent.cli.app import app
from transcendent.errors import ArtifactError
from transcendent.gate import following, stored
from transcendent.gate import model as gate_model
from transcendent.gate.bodies import RefusedError
from transcendent.gate.database import connect
from transcendent.gate.deployments import DeploymentError, deploy, needed, pinned
from transcendent.gate.following import RETRY, Follower
from transcendent.gate.model import load_model
from transcendent.gate.processes import LIVE, Process
from transcendent.gate.promotion import promote, retire, rollback
from transcendent.gate.service import NO_MODEL, Service
from transcendent.gate.serving import ServingMaker
from transcendent.gate.stored import find, list_models, load_stored

PLAIN = {"audit": 0.0, "budget": None}
BY = ("ann", "a reason")


@pytest.fixture(scope="module")
def files(problem, artifact, tmp_path_factory):
    """Artifacts that differ: one by thresholds, another by thresholds, one within a budget, one of a tree."""
    X, y = problem
    folder = tmp_path_factory.mktemp("files")
    ice = InductiveEvaluator(LinearSVC(random_state=0), random_state=0)
    save(
        InductiveEvaluator(LinearSVC(C=0.01, random_state=0), random_state=3).fit(X[:800], y[:800]),
        folder / "other",
    )
    save(StreamingBudget(ice, rate=0.15, window=200).fit(X[:1000], y[:1000]), folder / "budget")
    tree = InductiveEvaluator(DecisionTreeClassifier(max_depth=3, random_state=0), random_state=0)
    save(tree.fit(X[:1000], y[:1000]), folder / "tree")
    return {"one": artifact, **{name: folder / name for name in ("other", "budget", "tree")}}


@pytest.fixture(autouse=True)
def untried(monkeypatch):
    monkeypatch.setattr(gate_model, "try_out", lambda *_: None)  # which takes seconds


def add(engine, path, name="model"):
    """Add an artifact as the command does, and return what is known of it."""
    model = stored.add(engine, path, [], None, name, *BY)
    with engine.connect() as connection:
        return find(connection, model.digest)


def insert(engine, content, digest, action="active", settings=PLAIN):
    """Insert a model, its artifact and its deployment without any check, as somebody could by SQL."""
    with engine.begin() as connection:
        sql = """INSERT INTO model (digest, classes, features) VALUES (:digest, '[]', '{}')
        ON CONFLICT (digest) DO UPDATE SET digest = excluded.digest RETURNING id"""
        number = connection.execute(text(sql), {"digest": digest}).scalar_one()
        if content is not None:
            sql = """INSERT INTO artifact (model, content, name, rejector, author, reason)
            VALUES (:model, :content, '', '', '', '') ON CONFLICT DO NOTHING"""
            connection.execute(text(sql), {"model": number, "content": content})
        deploy(connection, number, action, settings, *BY)
    return number


class Following:
    """A service that follows the deployments, in this process; its turns are taken by hand."""

    def __init__(self, engine, trusted=(), public_key=None):
        self.now, self.loads, self.beats = 0.0, [], []
        self.service = Service(engine, max_objects=1000, timeout=20, max_waiting=1 << 20)

        def load_one(number):
            self.loads.append(number)
            return load_stored(engine, number, trusted, public_key)

        self.follower = Follower(
            engine,
            self.service,
            load_one,
            ServingMaker(engine, engine, bytes(32), None),
            lambda *said: self.beats.append(said),
            clock=lambda: self.now,
        )

    def turn(self):
        """Take turns until nothing is being loaded; return what the last one reports."""
        self.follower.turn()
        while self.follower._loading is not None:
            self.follower._loading.join()
            self.follower.turn()
        return self.beats[-1]

    @property
    def digest(self):
        return None if self.service.serving is None else self.service.serving.model.digest

    def answer(self, X, prefix="o"):
        objects = [{"id": f"{prefix}{i}", "values": row} for i, row in enumerate(X.tolist())]
        status, body = asyncio.run(self.service.answer(json.dumps({"objects": objects}).encode(), "sensor"))
        assert status == 200
        return json.loads(body)

    def close(self):
        self.follower.close()
        self.service.close()


@pytest.fixture
def follow(engine):
    """Start services that follow."""
    started = []

    def start(**given):
        started.append(Following(engine, **given))
        return started[-1]

    yield start
    for each in started:
        each.close()


def test_without_a_deployment_requests_are_refused(follow, problem):
    one = follow()
    assert one.turn() == (None, [], None)
    with pytest.raises(RefusedError, match="no model is active") as caught:
        one.answer(problem[0][:1])
    assert (caught.value.status, caught.value.detail) == (503, NO_MODEL)


def test_a_model_is_served_once_it_is_promoted_and_the_one_before_after_a_rollback(
    engine, follow, files, problem
):
    one, other = (add(engine, files[name]) for name in ("one", "other"))
    gate, X = follow(), problem[0][1000:1050]
    first = promote(engine, one, "active", PLAIN, *BY, 0)
    assert gate.turn() == (first.deployment, [one.number], None)
    second = promote(engine, other, "active", {"audit": 0.5, "budget": 0.25}, *BY, 0)
    assert gate.turn() == (second.deployment, [one.number, other.number], None)
    assert (gate.service.serving.draw.rate, gate.service.serving.model.rule.rate) == (0.5, 0.25)
    assert list(gate.service.monitored()) == [first.deployment, second.deployment]
    third = rollback(engine, *BY, 0)
    assert gate.turn() == (third.deployment, [one.number, other.number], None)
    assert (third.model, third.settings, gate.service.serving.draw.rate) == (one, PLAIN, 0)
    deployed = [each.deployment for each in (first, second, third)]
    assert list(gate.service.monitored()) == deployed  # the last minute of each is open
    said = gate.answer(X)
    assert said["model"] == one.digest
    assert [each["accepted"] for each in said["decisions"]] == load(files["one"]).decide(X).accepted.tolist()
    assert rollback(engine, *BY, 0).model == other  # a rollback undoes a rollback
    assert sorted(gate.loads) == [one.number, other.number]
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT action, author, reason FROM deployment ORDER BY id")).all()
    assert [tuple(row) for row in rows] == [("prepare", *BY), ("active", *BY)] * 4


def test_observed_objects_are_answered_as_accepted_and_kept_if_rejected(engine, follow, files, problem):
    X = problem[0][1000:1100]
    expected = load(files["one"]).decide(X)
    promote(engine, add(engine, files["one"]), "observe", PLAIN, *BY, 0)
    gate = follow()
    gate.turn()
    said = gate.answer(X)
    assert said["observed"] is True
    assert all(each["accepted"] for each in said["decisions"])
    assert [each["credibility"] for each in said["decisions"]] == expected.credibility.tolist()
    with engine.connect() as connection:
        kept = connection.execute(text("SELECT object_id, accepted FROM payload")).all()
    assert {(f"o{i}", False) for i in np.flatnonzero(expected.rejected)} == {tuple(row) for row in kept}
    assert kept
    promote(engine, add(engine, files["one"]), "active", PLAIN, *BY, 0)
    gate.turn()
    assert "observed" not in gate.answer(X)


HOSTILE = {
    "an untrusted type": "not trusted: sklearn.tree",
    "another digest": "its digest is",
    "damaged": "damaged",
    "truncated": "does not end with a seal",
    "empty": "does not end with a seal",
    "too large": "more than 0",
    "without an artifact": "has no artifact",
    "bad settings": "its settings cannot be used: audit",
    "unknown settings": "its settings cannot be used: trusted",
    "settings of another type": "its settings cannot be used: all",
    "a failed trial": "the process that tried it out was ended by SIGSEGV",
    "an unexpected error": "loading it raised a ZeroDivisionError",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_row_never_makes_a_gate_serve_what_it_does_not_trust(
    engine, follow, files, problem, kind, monkeypatch
):
    gate, X = follow(), problem[0][1000:1010]
    good = add(engine, files["one"])
    promote(engine, good, "active", PLAIN, *BY, 0)
    gate.turn()
    before, content, digest = (
        gate.answer(X),
        files["other"].read_bytes(),
        open_artifact(files["other"]).digest,
    )
    given = {}
    if kind == "an untrusted type":
        content, digest = files["tree"].read_bytes(), open_artifact(files["tree"]).digest
    elif kind == "another digest":
        digest = "e" * 64
    elif kind == "damaged":
        content = content[:2000] + bytes([content[2000] ^ 1]) + content[2001:]
    elif kind == "truncated":
        content = content[:-100]
    elif kind == "empty":
        content = b""
    elif kind == "without an artifact":
        content = None
    elif kind == "too large":
        monkeypatch.setattr(stored, "MAX_BYTES", 100)
    elif kind == "bad settings":
        given = {"settings": {"audit": 7, "budget": None}}
    elif kind == "unknown settings":
        given = {"settings": {**PLAIN, "trusted": ["os.system"]}}
    elif kind == "settings of another type":
        given = {"settings": ["audit"]}
    else:
        failure = {
            "a failed trial": ArtifactError(f"it {HOSTILE['a failed trial']}.\nmore"),
            "an unexpected error": ZeroDivisionError("\x1b secret"),
        }[kind]

        def fail(*_):
            raise failure

        monkeypatch.setattr(gate_model, "try_out", fail)
    insert(engine, content, digest, **given)
    with engine.connect() as connection:
        hostile = needed(connection).deciding.id
    for _ in range(3):
        serving, loaded, problem_found = gate.turn()
        assert problem_found.startswith(f"deployment {hostile}: ")
        assert HOSTILE[kind] in problem_found
        assert "secret" not in problem_found
        assert "\n" not in problem_found
        assert good.number in loaded
        assert serving == gate.service.serving.deployment == hostile - 1
        assert gate.answer(X) == before
    assert gate.service.alive
    monkeypatch.undo()
    monkeypatch.setattr(gate_model, "try_out", lambda *_: None)
    best = insert(engine, files["budget"].read_bytes(), open_artifact(files["budget"]).digest)
    assert gate.turn()[2] is None or str(hostile) in gate.turn()[2]  # which is the one to roll back to
    assert gate.service.serving.number == best


def test_a_gate_loads_only_what_its_own_key_has_signed(engine, follow, files, tmp_path):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    (tmp_path / "public").write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    rejector = load(files["one"])
    digest = save(rejector, tmp_path / "signed", signing_key=private)
    strict, free = follow(public_key=tmp_path / "public"), follow()
    insert(engine, files["one"].read_bytes(), open_artifact(files["one"]).digest)
    assert "signature" in strict.turn()[2]
    assert strict.digest is None
    with pytest.raises(RefusedError, match=r"the active model is refused: deployment .* signature"):
        strict.answer(np.zeros((1, 12)))
    assert free.turn()[2] is None
    assert (free.digest is None, free.service.no_model) == (False, NO_MODEL)
    insert(engine, (tmp_path / "signed").read_bytes(), digest)
    strict.turn()
    assert strict.digest == digest


def test_a_refused_model_is_tried_again_after_a_while_or_with_a_new_deployment(engine, follow, files):
    gate = follow()
    digest = open_artifact(files["tree"]).digest
    number = insert(engine, files["tree"].read_bytes(), digest)
    for _ in range(3):
        gate.turn()
    assert gate.loads == [number]
    gate.now += RETRY
    gate.turn()
    assert gate.loads == [number] * 2
    insert(engine, None, digest)
    gate.turn()
    assert gate.loads[2:]
    assert set(gate.loads) == {number}


def test_a_database_that_fails_while_a_model_is_read_is_no_fault_of_the_model(
    engine, follow, files, monkeypatch
):
    gate, real = follow(), following.needed
    known = add(engine, files["one"])
    promote(engine, known, "active", PLAIN, *BY, 0)
    failures = iter([OperationalError("", {}, Exception()), psycopg.OperationalError()])
    load_one = gate.follower._load

    def fails(number):
        for failure in failures:
            raise failure
        return load_one(number)

    gate.follower._load = fails
    assert gate.turn() == (gate.service.serving.deployment, [known.number], None)
    assert gate.loads == [known.number]
    monkeypatch.setattr(following, "needed", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        gate.follower.turn()
    assert gate.beats[-1] == gate.beats[-2]  # a turn that fails is no reason to seem dead
    monkeypatch.setattr(following, "needed", real)


class Slow:
    """A rejector that waits until it is told to decide."""

    def __init__(self, rejector):
        self.rejector, self.began, self.go = rejector, threading.Event(), threading.Event()

    def decide(self, rows):
        self.began.set()
        assert self.go.wait(20)
        return self.rejector.decide(rows)


def test_a_batch_keeps_the_model_that_it_began_with_and_is_counted_for_it(engine, follow, files, problem):
    X, gate = problem[0][1000:1100], follow()
    budget, other = (add(engine, files[name]) for name in ("budget", "other"))
    promote(engine, budget, "active", PLAIN, *BY, 0)
    gate.turn()
    old = gate.service.serving
    slow = Slow(old.model.rejector)
    gate.service.replace(replace(old, model=replace(old.model, rejector=slow, observer=None)))
    old, said = gate.service.serving, {}
    thread = threading.Thread(target=lambda: said.update(gate.answer(X)))
    thread.start()
    assert slow.began.wait(20)
    promote(engine, other, "active", PLAIN, *BY, 0)
    gate.turn()
    assert gate.digest == other.digest
    assert gate.service.uses(old)
    assert old.alive
    slow.go.set()
    thread.join()
    assert gate.answer(X, "later")["model"] == other.digest
    assert (said["model"], said["cutoff"] > 0) == (budget.digest, True)
    assert not gate.service.uses(old)
    gate.turn()
    assert not old.alive
    with engine.connect() as connection:
        counted = connection.execute(text("SELECT model, max(decided) FROM cutoff GROUP BY 1")).all()
        kept = dict(
            connection.execute(
                text("SELECT object_id, cutoff FROM payload JOIN item USING (id) WHERE model = :model"),
                {"model": budget.number},
            ).all()
        )
    assert [tuple(row) for row in counted] == [(budget.number, 100)]
    rejected = {each["id"] for each in said["decisions"] if not each["accepted"]}
    assert set(kept.items()) == {(name, said["cutoff"]) for name in rejected}
    assert rejected


def test_a_failing_request_leaves_nothing_in_use(engine, follow, files):
    gate = follow()
    promote(engine, add(engine, files["budget"]), "active", PLAIN, *BY, 0)
    gate.turn()
    old = gate.service.serving
    bodies = [b"{", b'{"objects": 3}', b'{"objects": [{"id": "a", "values": [NaN]}]}', b'{"objects": []}']
    for body in bodies:
        with pytest.raises(RefusedError) if body in bodies[:2] else ExitStack():
            asyncio.run(gate.service.answer(body, "sensor"))
    assert not gate.service.uses(old)
    assert not gate.service._uses


def test_another_budget_counts_from_zero(engine, follow, files, problem):
    gate, known, X = follow(), add(engine, files["budget"]), problem[0]
    promote(engine, known, "active", PLAIN, *BY, 0)
    gate.turn()
    gate.answer(X[:1000])
    gate.service.serving.traffic.move()

    def newest():
        with engine.connect() as connection:
            sql = text("SELECT decided, rank FROM cutoff ORDER BY number DESC LIMIT 1")
            return tuple(connection.execute(sql).one())

    decided, rank = newest()
    assert decided == 1000
    promote(engine, known, "active", {"audit": 0.5, "budget": None}, *BY, 0)
    promote(engine, known, "active", {"audit": 0.5, "budget": 0.15}, *BY, 0)  # its own
    assert newest() == (decided, rank)
    promote(engine, known, "active", {"audit": 0, "budget": 0.4}, *BY, 0)
    assert newest() == (0, rank)
    gate.turn()
    assert gate.service.serving.model.rule.rate == 0.4
    rejected = 0
    for start in range(0, 2000, 100):
        rejected += sum(
            not each["accepted"] for each in gate.answer(X[start : start + 100], start)["decisions"]
        )
        gate.service.serving.traffic.move()
    assert abs(rejected / 2000 - 0.4) < 0.09  # the bound of a window of 200


@contextmanager
def living(engine, deployment, loaded, problem=None):
    """A process that has sent a heartbeat."""
    process = Process(engine)
    process.beat(deployment, loaded, problem)
    yield process
    process.leave()


def test_promote_waits_for_all_processes_that_follow_and_refuses_otherwise(engine, files):
    one, other = (add(engine, files[name]) for name in ("one", "other"))
    first = promote(engine, one, "active", PLAIN, *BY, 0)
    with engine.begin() as connection:
        fixed = pinned(connection, one.number, PLAIN).id
    with living(engine, fixed, [one.number]), living(engine, first.deployment, [one.number]) as process:
        with pytest.raises(DeploymentError, match=r"1 of 1 gates(.|\n)*not loaded within 0.1 seconds"):
            promote(engine, other, "active", PLAIN, *BY, 0.1)
        with engine.connect() as connection:
            plan = needed(connection)
        assert (plan.deciding.id, plan.others[0].action) == (first.deployment, "prepare")
        process.beat(first.deployment, [one.number], f"deployment {plan.others[0].id + 1}: it is\x07 bad")
        began = time.monotonic()
        with pytest.raises(DeploymentError, match="it is\x07 bad"):
            promote(engine, other, "active", PLAIN, *BY, 60)
        assert time.monotonic() - began < 20  # at once
        process.beat(first.deployment, [one.number, other.number])
        assert promote(engine, other, "active", PLAIN, *BY, 0).gates == 1
        with engine.begin() as connection:
            sql = text("UPDATE process SET seen_at = now() - make_interval(secs => :s) WHERE id = :id")
            connection.execute(sql, {"s": LIVE + 1, "id": process.id})
        assert promote(engine, add(engine, files["budget"]), "active", PLAIN, *BY, 0).gates == 0


def test_a_promotion_beside_another_one_is_refused(engine, files):
    one, other = (add(engine, files[name]) for name in ("one", "other"))
    with living(engine, None, []) as process:
        failures = []

        def attempt():
            try:
                promote(engine, one, "active", PLAIN, *BY, 30)
            except DeploymentError as error:
                failures.append(str(error))

        thread = threading.Thread(target=attempt)
        thread.start()
        time.sleep(0.5)
        with engine.begin() as connection:
            made = deploy(connection, other.number, "active", PLAIN, *BY)
        process.beat(None, [one.number, other.number])
        thread.join()
        assert failures == [f"deployment {made} was made meanwhile: look at it, and try again."]
        with engine.connect() as connection:
            assert needed(connection).deciding.id == made


def test_settings_are_checked_before_a_row_is_written(engine, files):
    known = add(engine, files["one"])
    for bad in (
        {"audit": 2},
        {"audit": -0.1},
        {"audit": float("nan")},
        {"budget": 1.0},
        {"budget": 0},
        {"x": 1},
    ):
        with pytest.raises(DeploymentError, match=next(iter(bad))):
            promote(engine, known, "active", PLAIN | bad, *BY, 0)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM deployment")).scalar_one() == 0


def test_retired_models_are_dropped(engine, follow, files):
    one, other, third = (add(engine, files[name]) for name in ("one", "other", "budget"))
    gate = follow()
    for each in (one, other):
        promote(engine, each, "active", PLAIN, *BY, 0)
    insert(engine, None, third.digest, "prepare")
    assert gate.turn()[1] == [one.number, other.number, third.number]
    with pytest.raises(DeploymentError, match="decides: promote another one first"):
        retire(engine, other, *BY)
    for each in (one, third):
        retire(engine, each, *BY)
    assert gate.turn()[1] == [other.number]
    with pytest.raises(DeploymentError, match="was retired"):
        rollback(engine, *BY, 0)
    with engine.connect() as connection:
        assert [each["state"] for each in list_models(connection)] == ["retired", "active", "retired"]


def test_a_signed_file_replaces_the_same_file_without_a_signature(engine, files, tmp_path):
    known = add(engine, files["one"], "first")
    assert add(engine, files["one"], "second").number == known.number
    with engine.connect() as connection:
        (listed,) = list_models(connection)
    assert (listed["name"], listed["bytes"]) == ("second", files["one"].stat().st_size)


def test_an_artifact_comes_back_as_it_was_stored(engine, files, monkeypatch):
    known = add(engine, files["budget"])
    monkeypatch.setattr(stored, "_PART", 1000)  # more than one part
    again = load_stored(engine, known.number, [], None)
    assert again.digest == known.digest == load_model(files["budget"]).digest


@pytest.fixture
def run(monkeypatch, tmp_path, database):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which a command replaces
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRANSCENDENT_GATE_DATABASE", database)

    def attempt(*arguments, code=0):
        done = CliRunner().invoke(app, ["gate", "model", *map(str, arguments)])
        assert done.exit_code == code, done.output
        return done

    return attempt


def test_the_commands(run, files, own_engine, monkeypatch):
    assert run("list").stdout.split() == ["name", "digest", "rejector", "added", "state", "gates"]
    one = run("add", files["one"], "--name", "first", "--reason", "the first").stdout.strip()
    other = run("add", files["other"]).stdout.strip()
    refused = " ".join(run("add", files["tree"], code=5).stderr.split())
    assert "--trust sklearn.tree" in refused
    assert "in each gate: its setting trusted, or TRANSCENDENT_GATE_TRUSTED in the environment" in refused
    assert (
        "no models begin with 'ffffffffffff'; those that were added are"
        in run("promote", 12 * "f", "--reason", "x", code=4).stderr
    )
    run("promote", one, code=2)  # without a reason
    assert "budget" in run("promote", one, "--reason", "x", "--budget", "15", code=4).stderr
    assert "no deployment before" in run("rollback", "--reason", "x", code=4).stderr
    done = run("promote", one[:10], "--reason", "start", "--observe", "--audit", "0.25")
    assert f"model {one[:12]} (first) is observe, with audit 0.25; no gate follows" in done.stderr
    done = run("promote", other, "--reason", "better", "--budget", "0.2")
    assert "is active, with audit 0.25, budget 0.2" in done.stderr
    listed = json.loads(run("list", "--json").stdout)["models"]
    assert [(each["digest"], each["name"], each["state"], each["reason"]) for each in listed] == [
        (one, "first", None, "the first"),
        (other, "other", "active", ""),
    ]
    assert "is observe, with audit 0.25;" in run("rollback", "--reason", "worse").stderr
    assert "decides: promote another one first" in run("retire", one, "--reason", "x", code=4).stderr
    run("retire", other, "--reason", "x")
    assert [line.split()[-2:] for line in run("list").stdout.splitlines()[1:]] == [
        ["observe", "0"],
        ["retired", "0"],
    ]
    process = Process(own_engine)
    process.beat(None, [], "deployment 1: a problem \x1b[2J")
    shown = run("processes").stdout
    assert "deployment 1: a problem \\x1b[2J" in shown
    (found,) = json.loads(run("processes", "--json").stdout)["processes"]
    assert (found["model"], found["loaded"], found["id"]) == (None, [], str(process.id))
    monkeypatch.setattr(stored, "MAX_BYTES", 100)
    assert "start gates with the file instead" in run("add", files["one"], code=5).stderr


def problems_of(engine):
    """Return what running gates could not load, or nothing."""
    with engine.connect() as connection:
        sql = "SELECT coalesce(problem, '') FROM process WHERE seen_at > now() - interval '3 s'"
        return connection.execute(text(sql)).scalars().all()


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_promotions_under_load(database, files, problem, tmp_path):
    """Two gates, four promotions and rollbacks, a hostile row and a kill: every answer is computed again."""
    X, _ = problem
    objects = [{"values": row} for row in X.tolist()]
    engine, gates = connect(database), []

    def start(port=None):
        given = {} if port is None else {"port": port}
        gates.append(ForkedGate(database, None, tmp_path / f"log{len(gates)}", **given))
        return gates[-1]

    def says(gate, path="/readyz"):
        try:
            answer = httpx2.get(f"{gate.address}{path}", timeout=30)
            return answer.status_code, answer.json().get("detail")
        except httpx2.HTTPError:
            return None

    try:
        first, second = start(), start()
        wait_for(lambda: says(first) == says(second) == (503, NO_MODEL))
        assert says(first, "/healthz") == (200, None)
        known = {name: add(engine, files[name], name) for name in ("one", "other", "budget")}
        assert promote(engine, known["one"], "observe", PLAIN, *BY, 60).gates == 2
        token = first.token("sensor", "client")
        clients = [
            Client(f"client{i}", [first.address, second.address], token, objects, pause=0.03)
            for i in range(2)
        ]
        wait_for(lambda: first.ready and second.ready)
        with clients[0], clients[1]:
            time.sleep(0.5)
            assert promote(engine, known["budget"], "active", PLAIN, *BY, 60).gates == 2
            time.sleep(1.5)
            second.stop(signal.SIGKILL)
            assert promote(engine, known["other"], "active", PLAIN, *BY, 60).gates == 1
            second = start(second.port).wait()
            rollback(engine, *BY, 60)
            time.sleep(1.5)
            insert(engine, files["tree"].read_bytes(), open_artifact(files["tree"]).digest)
            wait_for(lambda: ["sklearn.tree" in each for each in problems_of(engine)] == [True, True])
            assert first.ready
            assert second.ready
            last = promote(engine, known["one"], "active", PLAIN, *BY, 60)
            headers = {"authorization": f"Bearer {token}"}
            for gate in (first, second):
                wait_for(
                    lambda gate=gate: (
                        httpx2.get(f"{gate.address}/v1/model", headers=headers).json()["deployment"]
                        == last.deployment
                    )
                )
            time.sleep(0.5)
        paths = {each.digest: files[name] for name, each in known.items()}
        found = recompute(database, paths, X, clients)
        assert found.wrong == []
        assert (found.lost, found.twice) == (0, 0)
        assert [each.refused for each in clients] == [[], []]
        assert set(found.models) == set(paths)
        assert (found.observed > 0, found.cutoffs > 1) == (True, True)
    finally:
        for gate in gates:
            if gate.process.poll() is None:
                gate.stop()
        engine.dispose()
