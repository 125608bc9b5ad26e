"""The commands of the gate on a database: their output and exit codes."""

import json
import re
import warnings
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from tests.gate.conftest import pretend_version
from transcendent.artifacts import load, sandbox
from transcendent.cli.app import app
from transcendent.experiments import read
from transcendent.gate import read_labelled
from transcendent.gate.access import Tokens
from transcendent.gate.database import connect, make_month, month_of, newest_version, version_of, versions
from transcendent.gate.intake import Draw, keep, register, to_keep
from transcendent.gate.model import Model
from transcendent.gate.quarantine import Quarantine
from transcendent.tables.layout import Layout


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which a command replaces
    monkeypatch.chdir(tmp_path)

    def attempt(*arguments, code=0):
        done = CliRunner().invoke(app, ["gate", *map(str, arguments)])
        assert done.exit_code == code, done.output
        return done

    return attempt


@pytest.fixture
def given(database, monkeypatch):
    """The database, in the environment."""
    monkeypatch.setenv("TRANSCENDENT_GATE_DATABASE", database)
    return database


@pytest.fixture
def items(own_engine, rejector, problem):
    """Rejected objects in the database; the first has a label."""
    engine = own_engine
    X = problem[0][1000:1100]
    model = Model(rejector, "d" * 64, Layout(12), rejector.classes_.tolist(), {})
    ids, senders = [f"o{i}" for i in range(100)], ["probe"] * 100
    kept = to_keep(register(engine, model), Draw(b"", 0), ids, senders, X, rejector.decide(X))
    keep(engine, list(kept.values()))
    quarantine = Quarantine(engine)
    found = [each["id"] for each in quarantine.claim("ann", 100).items]
    quarantine.resolve("ann", found[0], "malware", note="seen \x1b[2J before")
    return found


class TestMigrate:
    def test_to_the_newest_version_and_back(self, run, empty_database):
        at = ("--database", empty_database)
        engine = connect(empty_database)
        first = ("--to", "0001", "--yes")
        for to, version in (((), newest_version()), (("--to", "base", "--yes"), None), (first, "0001")):
            assert f"the database has version {version or 'none'}." in run("migrate", *to, *at).stderr
            with engine.connect() as connection:
                assert version_of(connection) == version
        engine.dispose()

    def test_what_drops_tables_is_confirmed(self, run, given, own_engine):
        engine = own_engine
        Tokens(engine).create("ann", "client")
        done = run("migrate", "--to", "base", code=2)
        assert "--to base drops tables with their content: add --yes" in done.stderr
        assert len(Tokens(engine).list()) == 1
        done = run("migrate", "--to", "0009", code=2)
        assert f"--to 0009: must be head, base or one of {', '.join(versions())}." in done.stderr

    def test_a_database_that_cannot_be_used(self, run):
        done = run("migrate", "--database", "postgresql://ann:hunter2@127.0.0.1:1/gate", code=4)
        assert done.stderr.startswith(
            "error: the database that --database or TRANSCENDENT_GATE_DATABASE names"
        )
        assert "hunter2" not in done.output
        assert "database is not set" in run("migrate", code=2).stderr


class TestTokens:
    def test_create_list_and_revoke(self, run, given, own_engine):
        engine = own_engine
        made = run("token", "create", "ann", "--role", "analyst").stdout.strip()
        assert Tokens(engine).check(made) == ("ann", "analyst")
        run("token", "create", "sensor", "--role", "client")
        assert "the token of ann is revoked." in run("token", "revoke", "ann").stderr
        listed = run("token", "list").stdout
        assert [line.split()[:2] for line in listed.splitlines()] == [
            ["name", "role"], ["ann", "analyst"], ["sensor", "client"],
        ]  # fmt: skip
        found = json.loads(run("token", "list", "--json").stdout)["tokens"]
        assert [(each["name"], each["revoked_at"] is None) for each in found] == [
            ("ann", False),
            ("sensor", True),
        ]
        assert made.split("_", 2)[2] not in listed + json.dumps(found)

    def test_expiry_and_rotation(self, run, given, own_engine):
        tokens = Tokens(own_engine)
        first = run("token", "create", "ann", "--role", "metrics", "--days", "90").stdout.strip()
        run("token", "create", "sensor", "--role", "client")
        second = run("token", "rotate", "ann", "--overlap-hours", "2").stdout.strip()
        assert [tokens.check(each) for each in (first, second)] == [("ann", "metrics")] * 2
        now = datetime.now(UTC)
        older, never, newer = (line.split("  ") for line in run("token", "list").stdout.splitlines()[1:])
        assert f"{now + timedelta(hours=2):%Y-%m-%d}" in " ".join(older)
        assert f"{now + timedelta(days=90):%Y-%m-%d}" in " ".join(newer)
        assert "never" in [each.strip() for each in never]
        run("token", "revoke", "ann")
        assert run("token", "list").stdout.count("ended ") == 2
        done = run("token", "create", "bob", "--role", "client", "--days", "0", code=4)
        assert "more than 0" in done.stderr

    def test_errors(self, run, given):
        run("token", "create", "ann", "--role", "client")
        for arguments, said in (
            (("create", "ann", "--role", "client"), "'ann' already has a token"),
            (("revoke", "bob"), "'bob' has no valid token"),
        ):
            done = run("token", *arguments, code=4)
            assert (said in done.stderr, done.stdout) == (True, "")
        refused = run("token", "create", "bob", "--role", "root", code=2).stderr
        assert "--role root: must be one of client, analyst, labeller, operator" in refused
        run("token", "create", "bob", code=2)

    def test_a_database_without_tables(self, run, empty_database):
        done = run("token", "list", "--database", empty_database, code=4)
        assert "run 'transcendent gate migrate'" in done.stderr


class TestQuarantine:
    def test_show_counts(self, run, given, items):
        counted = json.loads(run("quarantine", "show", "--json").stdout)
        n = len(items)
        assert counted == {
            "waiting": n - 1, "audit": 0, "rejected": n - 1, "skipped": 0, "copies": 0, "held": n - 1,
            "labelled": 1, "closed": 0, "over": 0, "campaigns": 0, "in_campaigns": 0,
        }  # fmt: skip
        assert f"waiting       {n - 1}" in run("quarantine", "show").stdout

    def test_show_an_item(self, run, given, items):
        shown = json.loads(run("quarantine", "show", items[0], "--json").stdout)
        assert (shown["id"], shown["sender"], shown["labelled"]) == (items[0], "probe", True)
        assert [each["author"] for each in shown["history"]] == ["ann"]
        plain = run("quarantine", "show", items[0]).stdout
        assert "object id" in plain
        assert "\x1b" not in plain
        assert "item 7 does not exist." in run("quarantine", "show", 7, code=4).stderr

    def test_export(self, run, given, items, tmp_path):
        done = run("quarantine", "export", "--out", "labelled.parquet")
        assert "1 labelled object written to labelled.parquet" in done.stderr
        assert read_labelled(tmp_path / "labelled.parquet").y.tolist() == ["malware"]
        for since, n in (("2026-01-01", 1), ("2999-01-01T08:00:00+02:00", 0)):
            done = run("quarantine", "export", "-o", "labelled.parquet", "--since", since)
            assert f"{n} labelled object" in done.stderr
        refused = run("quarantine", "export", "-o", "x.parquet", "--since", "1.11.2026", code=2).stderr
        assert "--since: '1.11.2026' is not a date or time such as 2026-11-01" in refused
        assert "cannot be written" in run("quarantine", "export", "-o", "nowhere/x.parquet", code=7).stderr
        assert "must end in .parquet" in run("quarantine", "export", "-o", "labelled.csv", code=2).stderr

    def test_close(self, run, given, items, own_engine):
        Quarantine(own_engine).release("ann", items[1:5])
        n = len(items) - 5
        said = f"items of model {'d' * 12}; {n} held items stay"
        assert f"would close 4 {said}: add --yes" in run("quarantine", "close", "--model", "ddd").stderr
        assert Quarantine(own_engine).counts()["closed"] == 0
        assert f"closed 4 {said}." in run("quarantine", "close", "--model", "ddd", "--yes").stderr
        counted = json.loads(run("quarantine", "show", "--json").stdout)
        assert (counted["closed"], counted["waiting"]) == (4, n)
        assert "no models begin with 'x'" in run("quarantine", "close", "--model", "x", code=4).stderr

    def test_drop(self, run, given, items, own_engine):
        engine = own_engine
        with engine.begin() as connection:
            make_month(connection, month_of("2020-01"))
            old = {"item": month_of("2020-01") << 40}
            connection.execute(text("INSERT INTO identity (key, item) VALUES ('old', :item)"), old)
        asked = ("quarantine", "drop", "--before", "2020-02")
        assert "would drop 2020-01: add --yes" in run(*asked).stderr
        dropped = run(*asked, "--yes").stderr
        assert re.fullmatch(r"dropped 2020-01 in \d+\.\d s; 1 identities forgotten\.\n", dropped)
        assert "there is nothing from before 2020-02." in run(*asked).stderr
        assert "dropped nothing" in run(*asked, "--yes").stderr
        assert "a month is written as 2026-11, not 'soon'" in run(*asked[:3], "soon", code=2).stderr
        assert Quarantine(engine).counts()["labelled"] == 1
        for yes in ([], ["--yes"]):
            assert "is not over" in run(*asked[:3], "2999-01", *yes, code=4).stderr
        with engine.connect() as connection:
            assert connection.execute(text("SELECT author FROM label")).scalars().all() == ["ann"]


EXPERIMENT = """
[data]
file = "objects.csv"
label = "verdict"
[detector]
class = "sklearn.svm.LinearSVC"
[rejectors.ICE]
measure = "neighbour_ratio"
"""


def test_an_artifact_learns_what_the_quarantine_holds(run, given, own_engine, problem, tmp_path, monkeypatch):
    X, y = (rows[:600] for rows in problem)
    frame = pd.DataFrame(X).add_prefix("f")
    frame[:500].assign(verdict=y[:500]).to_csv("objects.csv", index=False)
    Path("objects.toml").write_text(EXPERIMENT)
    monkeypatch.setattr(sandbox, "try_out", lambda *_: None)  # which takes seconds
    fitted = read("objects.toml").fit()
    fitted.save("objects.transcendent")
    model = Model(fitted.rejector, "d" * 64, Layout(12), fitted.rejector.classes_.tolist(), {})
    file = ("--artifact", "objects.transcendent")
    ids, number = [str(i) for i in range(480, 600)], register(own_engine, model)
    decisions = fitted.rejector.decide(frame[480:])
    keep(own_engine, list(to_keep(number, Draw(b"", 1), ids, ids, X[480:], decisions).values()))
    assert "no object in the quarantine has a label" in run("learn", "objects.toml", *file, code=4).stderr
    other = register(own_engine, replace(model, digest="e" * 64, layout=Layout(3)))
    kept = to_keep(other, Draw(b"", 1), ["599"], ["x"], X[599:, :3], decisions[-1:])
    keep(own_engine, list(kept.values()))
    quarantine = Quarantine(own_engine, labels=["unclear"])
    for item in quarantine.claim("ann", 1000).items:
        row = int(item["object_id"])
        quarantine.resolve("ann", item["id"], "unclear" if row > 590 else y[row])
    trusted = ["sklearn.neighbors._kd_tree.KDTree", "sklearn.metrics._dist_metrics.EuclideanDistance64"]
    trust = [word for name in trusted for word in ("--trust", name)]
    assert "--model eeeeeeeeeeee" in run("learn", "objects.toml", *file, *trust, code=4).stderr
    said = run("learn", "objects.toml", *file, "--model", "fff", code=4).stderr
    assert "no object in the quarantine that a model 'fff' decided has a label yet." in said
    found = json.loads(run("learn", "objects.toml", *file, "--model", "ddd", *trust, "--json").stdout)
    assert found["learnt"] == 91
    assert found["left_out"] == {"label 'unclear' is not a class": 9, "row of the fit": 20}
    by_hand = fitted.rejector.learn(frame[:591], y[:591])
    expected = by_hand.decide(frame[300:]).p_values
    learnt = load(tmp_path / "objects-learnt.transcendent", trusted=trusted)
    np.testing.assert_array_equal(learnt.decide(frame[300:]).p_values, expected)


def test_an_older_version_of_the_tables_is_named(run, given, own_engine):
    engine = own_engine
    pretend_version(engine, "0000")
    said = run("quarantine", "show", code=4).stderr
    needs = f"but this gate needs {newest_version()}: run 'transcendent gate migrate'."
    assert f"the database has version 0000, {needs}" in said
