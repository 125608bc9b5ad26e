"""From a messy table to a gate that has learnt from its analysts, by the commands that the pages print."""

import json
import re
import shlex
import warnings

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from tests.gate.conftest import ForkedGate
from tests.gate.story import messy_table
from transcendent.artifacts import sandbox
from transcendent.cli.app import app
from transcendent.gate import GateClient

pytestmark = pytest.mark.slow

N, KNOWN = 600, 450
LEARN = "transcendent gate learn objects.toml --artifact objects.transcendent"


class Shell:
    """Runs commands, and keeps the text of those that are refused."""

    def __init__(self) -> None:
        self.refusals: list[str] = []

    def __call__(self, line):
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            done = CliRunner().invoke(app, shlex.split(line)[1:], env={"COLUMNS": "200"})
        if done.exit_code:
            self.refusals.append(done.stderr)
        return done.stdout


@pytest.fixture
def shell(monkeypatch, tmp_path, empty_database):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which a command replaces
    monkeypatch.setattr(sandbox, "try_out", lambda *_: None)  # which takes seconds
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRANSCENDENT_GATE_DATABASE", empty_database)
    return Shell()


@pytest.fixture
def serve(tmp_path, empty_database):
    """Start gates on the test's database, as the command with these options does."""
    started = []

    def start(artifact, trust):
        log = tmp_path / f"gate{len(started)}.log"
        trusted = json.dumps(trust.split()[1::2])
        started.append(ForkedGate(empty_database, tmp_path / artifact, log, trusted=trusted))
        return started[-1].wait()

    yield start
    for gate in started:
        if gate.process.poll() is None:
            gate.stop()


def test_one_path_from_a_table_to_a_gate_that_has_learnt(shell, serve):
    table = messy_table(N)
    table[:KNOWN].to_csv("objects.csv", index=False)
    table[KNOWN:].drop(columns="verdict").to_csv("later.csv", index=False)

    shell("transcendent init objects.csv")
    assert "no bias found" in shell("transcendent data objects.toml")
    assert "kept in objects; next: transcendent report objects" in shell("transcendent backtest objects.toml")
    said = shell("transcendent fit objects.toml --train 2021")
    trust = re.search(r"--trust \S+", said)[0]
    shell(f"transcendent decide objects.transcendent later.csv {trust} --out decisions.parquet")
    by_file = pd.read_parquet("decisions.parquet").set_index("id")
    assert len(shell.refusals) <= 1

    shell("transcendent gate migrate")
    sensor = shell("transcendent gate token create sensor --role client").strip()
    ann = shell("transcendent gate token create ann --role analyst").strip()
    shell("transcendent gate serve objects.transcendent")
    gate = serve("objects.transcendent", trust)
    later = pd.read_csv("later.csv")
    with GateClient(gate.address, sensor) as client:
        features = later[client.model()["features"]["names"]]
        context = [{"path": path} for path in later["path"]]
        decisions = client.decide(later["sha256"], features, context=context)
    kept = [each["id"] for each in decisions if not each["accepted"]]
    assert kept
    assert len(shell.refusals) <= 2
    assert all("--trust sklearn.ensemble" in said for said in shell.refusals)
    refused = len(shell.refusals)
    for each in decisions:
        expected = by_file.loc[each["id"]]
        assert each["label"] == expected["label"]
        assert (each["credibility"], each["confidence"]) == (expected["credibility"], expected["confidence"])

    truth = table.set_index("sha256")["verdict"].replace("unknown", "unclear")
    with GateClient(gate.address, ann) as analyst:
        items = analyst.claim(100)["items"]
        assert {item["object_id"] for item in items} == set(kept)
        for item in items:
            assert item["context"]["path"].startswith("C:\\Users")
            analyst.resolve(item["id"], truth[item["object_id"]])
    with GateClient(gate.address, sensor) as client:
        assert client.find(kept[0])[0]["label"] == truth[kept[0]]

    learnt = json.loads(shell(f"{LEARN} {trust} --json"))
    assert learnt["learnt"] == (truth[kept] != "unclear").sum()
    shell("transcendent gate quarantine export --out labelled.parquet")
    again = f"learn objects.toml --labels labelled.parquet --out by-file.transcendent {trust} --json"
    assert json.loads(shell(f"transcendent {again}"))["learnt"] == learnt["learnt"]
    gate.stop()
    second = serve("objects-learnt.transcendent", trust)
    with GateClient(second.address, sensor) as client:
        decisions = client.decide(later["sha256"], features)
    shell(f"transcendent decide by-file.transcendent later.csv {trust} --out again.parquet")
    by_file = pd.read_parquet("again.parquet").set_index("id").loc[[each["id"] for each in decisions]]
    for column in ("credibility", "confidence"):
        np.testing.assert_array_equal([each[column] for each in decisions], by_file[column])
    assert shell.refusals[refused:] == []
