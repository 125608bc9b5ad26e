"""What a gate counts for its monitors, and the commands that show them."""

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from sklearn.svm import LinearSVC
from sqlalchemy import text
from typer.testing import CliRunner

from tests.gate.conftest import away
from tests.gate.test_service import answers, body
from transcendent import CrossConformalEvaluator, InductiveEvaluator, RejectionBudget, save
from transcendent.cli.app import app
from transcendent.gate import model as gate_model
from transcendent.gate.bodies import RefusedError
from transcendent.gate.database import connect
from transcendent.gate.deployments import deploy
from transcendent.gate.folding import Folding
from transcendent.gate.intake import Draw, register
from transcendent.gate.minutes import MinuteCounts, Minutes
from transcendent.gate.model import load_model
from transcendent.gate.moving import RowRange
from transcendent.gate.processes import Process
from transcendent.gate.service import Service
from transcendent.gate.serving import Serving
from transcendent.monitoring import DriftMonitor


@pytest.fixture
def loaded(artifact, monkeypatch):
    monkeypatch.setattr(gate_model, "try_out", lambda *_: None)  # which takes seconds
    return load_model(Path(artifact))


@pytest.fixture
def counting(database, loaded):
    """A service, and the counts of what it answered."""
    engine, counts = connect(database, timeout=5), MinuteCounts()
    limits = {"max_objects": 100, "timeout": 20, "max_waiting": 1 << 20}
    serving = Serving(loaded, register(engine, loaded), Draw(b"secret", 0), deployment=7)
    service = Service(engine, serving, **limits, observe=lambda _, *given: counts.observe(*given))
    yield service, counts
    service.close()
    engine.dispose()


def test_answered_objects_are_counted_once_and_bad_ones_never(counting, problem, rejector):
    service, counts = counting
    X, _ = problem
    sent = [body(f"o{i}", X[i]) for i in range(20)]
    sent.append(body([f"p{i}" for i in range(30)], X[20:50]))
    bad = json.loads(body([f"q{i}" for i in range(10)], X[50:60]))
    bad["objects"][4]["values"][0] = "x"
    sent.append(json.dumps(bad).encode())
    found = answers(service, sent)
    assert [status for status, _ in found] == [200] * 21 + [422]
    decided = np.delete(X[:60], 54, axis=0)
    expected = DriftMonitor.of(rejector).observe(decided).cells.tolist()
    assert counts.cells == Counter(expected)
    watched = service.serving.model.watched
    counts.add_up(watched)
    parts = [RowRange(X, i, i + 1).sample(f"o{i}") for i in range(20)] + [RowRange(X, 20, 50).sample("p0")]
    parts.append(RowRange(decided, 50, 59).sample("q0"))
    assert np.array_equal(counts.sums, watched.sums(parts))
    assert 5 <= counts.sums[0] <= 25


def test_objects_without_an_answer_are_not_counted(counting, database, problem):
    service, counts = counting
    rejected = np.flatnonzero(service.serving.model.rejector.decide(problem[0]).rejected)[:5]
    sent = [body(f"o{i}", problem[0][i]) for i in rejected]
    with away(database):
        assert all(isinstance(each, RefusedError) for each in answers(service, sent))
    assert not counts.cells
    assert [status for status, _ in answers(service, sent)] == [200] * 5
    assert counts.cells.total() == 5
    counts.add_up(service.serving.model.watched)
    assert counts.sums[0] == sum(RowRange(problem[0], 0, 1).sample(f"o{i}").n for i in rejected)


def test_models_that_cannot_be_monitored_say_why_and_decide_as_before(problem, tmp_path, monkeypatch):
    monkeypatch.setattr(gate_model, "try_out", lambda *_: None)
    X, y = problem
    cross = CrossConformalEvaluator(LinearSVC(), cv=3, random_state=0, verbose=False).fit(X[:600], y[:600])
    save(cross, tmp_path / "cross.transcendent")
    model = load_model(tmp_path / "cross.transcendent")
    assert model.observer is None
    assert "not CrossConformalEvaluator" in model.unmonitored
    assert np.array_equal(model.decide(X[600:700]).accepted, cross.decide(X[600:700]).accepted)
    budget = RejectionBudget(InductiveEvaluator(LinearSVC(), random_state=0, verbose=False), rate=0.1)
    save(budget.fit(X[:600], y[:600]), tmp_path / "budget.transcendent")
    assert load_model(tmp_path / "budget.transcendent").unmonitored is None


def run(*words, database):
    environment = {"TRANSCENDENT_GATE_DATABASE": database, "TRANSCENDENT_GATE_PROMISED_ERROR": "0.05"}
    return CliRunner().invoke(app, ["gate", *words], env=environment)


def test_a_gate_counts_what_it_decides_and_commands_show_what_became_of_it(
    start_gate, database, loaded, problem
):
    assert "no deployment has a monitor yet" in run("monitors", database=database).output
    assert "no alarms." in run("alarms", database=database).output
    gate = start_gate()
    X = np.vstack([problem[0][:500], problem[0][:500] * 3])
    with gate.client() as client:
        client.decide([f"o{i}" for i in range(1000)], X)
    gate.stop()
    engine = connect(database)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT sum(objects) FROM minute_counts")).scalar_one() == 1000
        assert connection.execute(text("SELECT count(*) FROM process")).scalar_one() == 0
        deployment = connection.execute(text("SELECT max(id) FROM deployment")).scalar_one()
    shown = run("monitors", database=database).output
    assert "0" in shown
    assert "nothing decided yet" in shown
    with engine.begin() as connection:  # two minutes ago
        connection.execute(text("UPDATE minute_counts SET minute = minute - 2"))
    process = Process(engine)  # another gate
    process.beat(deployment, [1])
    later = Minutes(engine, process.id)
    later.flush()
    Folding(engine, lambda: {deployment: loaded}).fold_closed()
    engine.dispose()
    shown = run("monitors", database=database).output
    assert "1,000" in shown
    assert re.search(r"^moved +\d+ [+-]\d\.\d\d \(", shown, re.MULTILINE)
    assert "no label of the audit counts yet" in shown
    (found,) = json.loads(run("monitors", "--json", database=database).output)["monitors"]
    assert found["objects"] == 1000
    assert "drift" in found["alarms"]
    alarms = json.loads(run("alarms", "--json", database=database).output)["alarms"]
    number = str(next(each["id"] for each in alarms if each["kind"] == "drift"))
    empty = run("alarms", "acknowledge", number, "--reason", " ", database=database)
    assert empty.exit_code == 2
    assert (
        run("alarms", "acknowledge", number, "--reason", "a new campaign", database=database).exit_code == 0
    )
    again = run("alarms", "acknowledge", number, "--reason", "again", database=database)
    assert again.exit_code == 4
    assert "was acknowledged by" in again.output
    assert (
        "there is no alarm 999"
        in run("alarms", "acknowledge", "999", "--reason", "x", database=database).output
    )
    assert "a new campaign" in run("alarms", database=database).output


def test_only_the_deployment_that_decides_is_active(own_engine, database):
    with own_engine.begin() as connection:
        sql = """INSERT INTO model (digest, classes, features) VALUES (repeat(:c, 64), '[0, 1]', '{}')
        RETURNING id"""
        one, other = (connection.execute(text(sql), {"c": each}).scalar_one() for each in "ab")
        by = {"audit": 0.0}, "ann", "test"
        made = [
            deploy(connection, model, action, *by)
            for model, action in ((one, "pinned"), (one, "active"), (other, "observe"), (one, "active"))
        ]
        sql = "INSERT INTO monitor (deployment, objects, log_value) VALUES (:deployment, 1, -0.04)"
        connection.execute(text(sql), [{"deployment": each} for each in made])
    shown = run("monitors", database=database).output
    states = ["pinned", "ended", "ended", "active"]
    assert re.findall(r"^deployment +\d+ \((\w+)\), model", shown, re.MULTILINE) == states
    assert shown.count("evidence of drift  e^0, alarm at e^4.6") == 4
    listed = json.loads(run("monitors", "--json", database=database).output)["monitors"]
    assert [each["state"] for each in listed] == states
