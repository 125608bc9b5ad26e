"""The command that monitors."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from transcendent import CrossConformalEvaluator, InductiveEvaluator, save
from transcendent.cli.app import app
from transcendent.monitoring import DriftMonitor

pytestmark = pytest.mark.usefixtures("tried_here")


def run(line, code=0):
    done = CliRunner().invoke(app, line.split())
    assert done.exit_code == code, done.output
    return done


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = make_classification(4000, random_state=0)
    rows = pd.DataFrame(X).add_prefix("f")
    ice = InductiveEvaluator(LogisticRegression(), random_state=0, verbose=False).fit(rows[:2000], y[:2000])
    save(ice, "gate")
    minutes = np.datetime64("2024-01-01T00:00") + np.arange(2000)
    rows[2000:].assign(seen=minutes).to_csv("all.csv", index=False)
    return ice, rows[2000:]


def test_a_monitor_lives_in_its_state(here):
    ice, rows = here
    frame = pd.read_csv("all.csv")
    for i, part in enumerate((frame[:700], frame[700:])):
        part.to_csv(f"{i}.csv", index=False)
        said = run(f"monitor gate {i}.csv --state m.json").stdout
    expected = DriftMonitor.of(ice)
    expected.update(rows)
    assert "2,000 objects, no alarm" in said
    assert DriftMonitor.from_json(Path("m.json").read_text(), ice).log_value == pytest.approx(
        expected.log_value
    )
    assert (
        "--threshold: m.json exists and has its own"
        in run("monitor gate 0.csv --state m.json --threshold 9", code=2).stderr
    )


def test_times_order_the_objects(here):
    pd.read_csv("all.csv").sample(frac=1, random_state=0).to_csv("shuffled.csv", index=False)
    values = []
    for name, options in (("all", ""), ("shuffled", "--time seen"), ("shuffled", "")):
        state = f"{len(values)}.json"
        values.append(json.loads(run(f"monitor gate {name}.csv --state {state} {options} --json").stdout))
    assert values[0]["objects"] == values[1]["objects"] == 2000
    assert values[0]["log_value"] == pytest.approx(values[1]["log_value"])
    assert values[0]["log_value"] != pytest.approx(values[2]["log_value"])


def test_an_alarm_and_a_picture(here):
    frame = pd.read_csv("all.csv")
    features = [name for name in frame if name != "seen"]
    frame[features] *= 0.1
    frame.to_csv("drifted.csv", index=False)
    said = run("monitor gate drifted.csv --state m.json --figure m.svg").stdout
    assert "ALARM of drift at object" in said
    assert Path("m.svg").read_text().startswith("<?xml")


def test_what_cannot_be_monitored(here):
    X, y = make_classification(300, random_state=0)
    save(CrossConformalEvaluator(LogisticRegression(), cv=3, verbose=False).fit(X, y), "cce")
    pd.DataFrame(X).add_prefix("f").to_csv("rows.csv", index=False)
    assert "not CrossConformalEvaluator" in run("monitor cce rows.csv --state m.json", code=4).stderr


def test_what_fails_leaves_the_state_as_it_was(here):
    run("monitor gate all.csv --state m.json")
    before = Path("m.json").read_text()
    run("monitor gate all.csv --state m.json --figure nowhere/m.svg", 7)
    assert Path("m.json").read_text() == before
    assert "--state all.csv would overwrite" in run("monitor gate all.csv --state all.csv", 2).output
    Path("m.json").write_text("{}")
    assert (
        "m.json: this is not the state of a DriftMonitor"
        in run("monitor gate all.csv --state m.json", 4).output
    )


def test_programs_read_the_alarms(here):
    said = json.loads(run("monitor gate all.csv --state m.json --json").output)
    assert said["threshold"] == 100
    assert said["alarm_at"] is None
    assert said["alarms_at"] == {}
    assert said["calibrated"] < said["explained"] < 1
