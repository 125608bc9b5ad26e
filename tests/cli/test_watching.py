"""The command that monitors."""

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from transcendent import CrossConformalEvaluator, InductiveEvaluator, RejectionBudget, StreamingBudget, save
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
        in run("monitor gate 0.csv --state m.json --threshold 9 --again", code=2).stderr
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


def test_times_are_read_as_for_the_fit(here):
    ice, _ = here
    save(ice, "noted", notes={"time_format": ["%d/%m/%Y %H:%M"]})
    frame = pd.read_csv("all.csv")
    seen = pd.to_datetime(frame["seen"])
    written = [seen.dt.strftime("%d/%m/%Y %H:%M"), seen.astype("datetime64[s]").astype(int).astype(str)]
    frame["seen"] = np.where(np.arange(2000) % 2, *written)
    frame.sample(frac=1, random_state=0).to_csv("mixed.csv", index=False)
    iso = json.loads(run("monitor gate all.csv --state iso.json --json").stdout)
    mixed = json.loads(run("monitor noted mixed.csv --state mixed.json --time seen --json").stdout)
    assert mixed["log_value"] == pytest.approx(iso["log_value"])
    said = " ".join(run("monitor gate mixed.csv --state m.json --time seen", code=4).stderr.split())
    assert "mixed.csv: 1,000 of 2,000 rows have no date, the first is line " in said
    assert "under [data]" in said
    assert "Without --time, the order of the file is used." in said
    frame.loc[[3, 8], "seen"] = ["2099-01-01", None]
    frame.to_csv("undated.csv", index=False)
    run("monitor noted undated.csv --state u.json --time seen", code=4)
    save(ice, "dropping", notes={"time_format": ["%d/%m/%Y %H:%M"], "undated": "drop"})
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        left = run("monitor dropping undated.csv --state u.json --time seen --json")
    assert json.loads(left.stdout)["objects"] == 1998
    assert "left out: 2 of 2,000 rows have no date, the first is line 5" in " ".join(left.stderr.split())


def test_an_alarm_and_a_picture(here):
    frame = pd.read_csv("all.csv")
    features = [name for name in frame if name != "seen"]
    frame[features] *= 0.1
    frame.to_csv("drifted.csv", index=False)
    said = run("monitor gate drifted.csv --state m.json --figure m.svg", 11).stdout
    assert "ALARM of drift at object" in said
    run("monitor gate all.csv --state m.json", 11)  # an alarm stays
    assert Path("m.svg").read_text().startswith("<?xml")


def test_a_budget_is_monitored_as_its_evaluator_also_on_few_rows(here):
    ice, _ = here
    X, y = make_classification(4000, random_state=0)
    rows = pd.DataFrame(X).add_prefix("f")
    unfitted = InductiveEvaluator(LogisticRegression(), random_state=0, verbose=False)
    save(RejectionBudget(unfitted, rate=0.1).fit(rows[:2000], y[:2000]), "held")
    save(StreamingBudget(unfitted, rate=0.1).fit(rows[:2000], y[:2000]), "stream")
    for i, part in enumerate((pd.read_csv("all.csv")[:3], pd.read_csv("all.csv")[3:])):
        part.to_csv(f"{i}.csv", index=False)
        said = [
            run(f"monitor {name} {i}.csv --state {name}.json").stdout for name in ("gate", "held", "stream")
        ]
    assert said[0] == said[1] == said[2]
    states = [Path(f"{name}.json").read_text() for name in ("gate", "held", "stream")]
    assert states[0] == states[1] == states[2]
    assert DriftMonitor.from_json(states[0], ice).n == 2000


def test_what_cannot_be_monitored(here):
    X, y = make_classification(300, random_state=0)
    save(CrossConformalEvaluator(LogisticRegression(), cv=3, verbose=False).fit(X, y), "cce")
    pd.DataFrame(X).add_prefix("f").to_csv("rows.csv", index=False)
    assert "not CrossConformalEvaluator" in run("monitor cce rows.csv --state m.json", code=4).stderr


def test_what_fails_leaves_the_state_as_it_was(here):
    run("monitor gate all.csv --state m.json")
    before = Path("m.json").read_text()
    run("monitor gate all.csv --state m.json --figure nowhere/m.svg --again", 7)
    assert Path("m.json").read_text() == before
    assert "--state all.csv would overwrite" in run("monitor gate all.csv --state all.csv", 2).output
    Path("m.json").write_text("{}")
    assert (
        "m.json: this is not the state of a DriftMonitor"
        in run("monitor gate all.csv --state m.json", 4).output
    )


def test_a_file_is_not_taken_twice(here):
    run("monitor gate all.csv --state m.json")
    before = Path("m.json").read_text()
    Path("all.csv").rename("other.csv")
    refused = run("monitor gate other.csv --state m.json", 4).stderr
    assert "other.csv was taken before, as all.csv: its objects would count twice" in refused
    assert "--again" in refused
    assert Path("m.json").read_text() == before
    assert json.loads(run("monitor gate other.csv --state m.json --again --json").stdout)["objects"] == 4000
    state = json.loads(Path("m.json").read_text())
    assert list(state.pop("files").values()) == ["all.csv"]
    Path("m.json").write_text(json.dumps(state))  # of a version that did not remember files
    run("monitor gate other.csv --state m.json")


def test_programs_read_the_alarms(here):
    said = json.loads(run("monitor gate all.csv --state m.json --json").output)
    assert said["threshold"] == 100
    assert said["alarm_at"] is None
    assert said["alarms_at"] == {}
    assert said["calibrated"] < said["explained"] < 1
