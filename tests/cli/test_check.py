"""The first minute: a table of past answers, and nothing else."""

import json
import re
import tomllib
import warnings

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from transcendent import Answers, RejectionBudget, ScoreEvaluator, backtest, experiments
from transcendent.artifacts import open_artifact
from transcendent.cli.app import app
from transcendent.monitoring import DriftMonitor
from transcendent.report.checking import _days

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("tried_here")]

N = 3000
RNG = np.random.default_rng(0)
TRUTH = np.where(RNG.random(N) < 0.3, "malicious", "benign")
SCORE = np.where(TRUTH == "malicious", 1, -1) + RNG.normal(size=N) * np.linspace(0.5, 1.2, N)
DAY = (np.datetime64("2013-01-01") + np.arange(N) // 4).astype(str)
FRAME = pd.DataFrame({"sha256": [f"{i:064x}" for i in range(N)], "seen": DAY, "score": SCORE, "truth": TRUTH})


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("answers.csv", index=False)
    return tmp_path


def run(line, code=0):
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        done = CliRunner().invoke(app, line.split(), env={"COLUMNS": "200"})
    assert done.exit_code == code, done.output
    return done


def answers(score):
    return Answers(
        np.where(score > 0, "malicious", "benign"), np.column_stack([score, -score])
    )  # columns: benign, malicious


def test_its_numbers_are_those_of_a_backtest(here):
    said = json.loads(run("check answers.csv --toml answers.toml --json").stdout)
    split = tomllib.loads((here / "answers.toml").read_text())["split"]
    rejectors = {"budget": RejectionBudget(ScoreEvaluator(), rate=0.15), "thresholds": ScoreEvaluator()}
    mine = backtest(rejectors, answers(SCORE), TRUTH, DAY, train=split["train"], monitor=100)
    for key, column in mine.summary().items():
        assert said["summary"][key][:2] == column.tolist()
    again = experiments.read("answers.toml").backtest()
    assert again.summary()["error_kept"].tolist() == said["summary"]["error_kept"]
    (drift,) = mine.monitors["thresholds"].drift
    wrong = mine.answers["budget"].labels != mine.y
    lead, row = said["lead"], {key: column[0] for key, column in mine.summary().items()}
    before = split["train"] > DAY
    first = np.mean(answers(SCORE).labels[before] != TRUTH[before])
    assert f"has aged: {first:.1%} of its answers were wrong before {split['train']}" in lead["Aged"]
    assert f"found {row['errors_caught']:.0%} of its {wrong.sum()} errors" in lead["Budget"]
    assert (
        f"{row['error_kept']:.1%} would have been wrong instead of {row['error_baseline']:.1%}"
        in lead["Budget"]
    )
    assert f"sounded in {drift}" in lead["Alarms"]
    promised = tomllib.loads((here / "answers.toml").read_text())["rejectors"]["promise"]["search"]["error"]
    assert f"at most {promised:.0%} of the accepted are wrong, with 95% confidence" in lead["Promise"]
    left = 1 - mine.at_rejection("budget", 0.5)["rejected"]["share_of_errors"]
    assert f"half of each month rejected, {left:.0%} of the errors would stay" in lead["Features"]
    page = (here / "answers.html").read_text()
    assert all(re.sub(r'"', "&#34;", text) in page for text in lead.values())


def test_a_number_a_day_is_the_least_trusted_of_each_period(here):
    dense = pd.concat([FRAME.assign(seen=FRAME["seen"].str[:7])] * 4)
    dense["seen"] = np.repeat(["2013-01", "2013-02", "2013-03", "2013-04"], N)
    dense.to_csv("answers.csv", index=False)
    said = json.loads(run("check answers.csv --toml answers.toml --json").stdout)
    score = np.tile(SCORE, 4)
    mine = backtest(
        {"budget": RejectionBudget(ScoreEvaluator(), rate=0.15)},
        *(answers(score), np.tile(TRUTH, 4), dense["seen"].to_numpy()),
        train=tomllib.loads((here / "answers.toml").read_text())["split"]["train"],
    )
    decisions, wrong = mine.answers["budget"], mine.answers["budget"].labels != mine.y
    found = 0
    for code, name in enumerate(mine.periods):
        rows = mine.period == code
        count = 80 * {"2013-02": 28, "2013-03": 31, "2013-04": 30}[name]
        found += np.sum(wrong[rows] & decisions[rows].within_budget(count=count).rejected)
    assert f"{found / wrong.sum():.0%} of the errors." in said["lead"]["Budget"]


@pytest.mark.parametrize(
    ("name", "period", "days"),
    [
        ("2023-02", "month", 28),
        ("2024-02", "month", 29),
        ("2024-01-01", "day", 1),
    ],
)
def test_days_of_a_period(name, period, days):
    assert _days(name, period) == days


def test_a_table_as_people_have_it(here):
    frame = FRAME.assign(probability=(1 / (1 + np.exp(-SCORE))).round(3)).drop(columns="score").astype(object)
    unknown = RNG.random(N) < 0.2
    frame.loc[unknown, "truth"] = None
    frame.loc[5:9, "truth"] = "Unknown"
    frame.loc[[3, 40, 700, 2000], "seen"] = ["2013-13", "31/12/2014", "unknown", "2099-01-01"]
    frame.loc[17, "probability"] = "n/a"
    frame.to_csv("messy.csv", index=False)
    done = run("check messy.csv")
    lost = unknown | np.isin(np.arange(N), [3, 5, 6, 7, 8, 9, 17, 700, 2000])
    assert f"{lost.sum()} of 3,000 answers are left out" in done.stderr
    assert "3 (no date), 1 (no score or answer)" in done.stderr
    assert "not dates: '2013-13', 'unknown', '2099-01-01'" in done.stderr
    assert "read as no label: 'Unknown' (5)" in done.stderr
    assert 'times are read by time_format = "%d/%m/%Y"' in done.stderr
    assert "answers: they are 'malicious' above 0.5, otherwise 'benign'" in done.stderr
    assert done.stderr.count("left out") == 1
    assert "written to messy.html" in done.stdout
    headings = re.findall(r"^[A-Z]\w+(?=  )", done.stdout, re.MULTILINE)
    assert headings == ["Aged", "Budget", "Alarms", "Promise", "Features"]


def test_refusals_name_the_option(here):
    FRAME.rename(columns={"truth": "x"}).to_csv("other.csv", index=False)
    assert "--truth: which column holds the true labels" in run("check other.csv", code=2).stderr
    run("check other.csv --truth x")
    assert (
        "--scores: answers.csv has no column 'y'" in run("check answers.csv --scores score,y", code=2).stderr
    )
    (here / "notes.txt").write_text("mine")
    assert "is not an HTML page" in run("check answers.csv --out notes.txt", code=2).stderr
    (here / "answers.toml").write_text("mine")
    assert "answers.toml exists" in run("check answers.csv --toml answers.toml", code=2).stderr
    assert (here / "notes.txt").read_text() == (here / "answers.toml").read_text() == "mine"


def test_names_in_a_table_cannot_write_into_the_page(here):
    bad = "<script>alert(1)</script>"
    FRAME.replace("malicious", bad).to_csv("answers.csv", index=False)
    run("check answers.csv")
    assert "<script" not in (here / "answers.html").read_text()


def test_from_answers_to_decisions_and_an_alarm(here):
    (here / "sub").mkdir()
    run("check answers.csv --toml sub/answers.toml")
    run("fit sub/answers.toml --rejector budget --out held.transcendent")
    run("fit sub/answers.toml --rejector thresholds --out gate.transcendent")
    assert "scores" in run("info gate.transcendent").stdout
    new = FRAME[-400:].drop(columns="truth")
    new.to_csv("new.csv", index=False)
    train = tomllib.loads((here / "sub/answers.toml").read_text())["split"]["train"]
    before = train > DAY
    judge = ScoreEvaluator().fit(answers(SCORE)[before], TRUTH[before])
    expected = judge.decide(answers(SCORE)[-400:])
    run("decide gate.transcendent new.csv --out decided.csv")
    decided = pd.read_csv("decided.csv")
    assert decided["id"].tolist() == new["sha256"].tolist()
    assert decided["accepted"].tolist() == expected.accepted.tolist()
    np.testing.assert_allclose(decided["credibility"], expected.credibility)
    run("decide held.transcendent new.csv --out held.csv")
    assert (~pd.read_csv("held.csv")["accepted"]).sum() == 60
    run("monitor gate.transcendent new.csv --state state.json", 11)
    mine = DriftMonitor.of(judge)
    mine.update(answers(SCORE)[-400:])
    assert json.loads((here / "state.json").read_text())["evidence"] == json.loads(mine.to_json())["evidence"]
    new.assign(score=["n/a", *new["score"][1:]]).to_csv("gaps.csv", index=False)
    assert (
        "1 of 400 rows has no score or no answer in score, in line 2"
        in run("decide gate.transcendent gaps.csv", 4).stderr
    )
    FRAME[-50:].to_csv("labelled.csv", index=False)
    learn = "learn sub/answers.toml --labels labelled.csv --artifact gate.transcendent"
    assert "scores alone leave nothing to learn" in run(learn, 4).stderr


def test_an_artifact_that_does_not_name_its_columns(here):
    from transcendent import save

    save(ScoreEvaluator().fit(answers(SCORE), TRUTH), "bare.transcendent")
    assert "does not name their columns" in run("decide bare.transcendent answers.csv", 5).stderr
    notes = {"scores": {"scores": "score"}}
    save(ScoreEvaluator().fit(answers(SCORE), TRUTH), "odd.transcendent", notes=notes)
    assert "not columns of scores" in run("decide odd.transcendent answers.csv", 5).stderr
    assert open_artifact("odd.transcendent").manifest["judges_scores"]
