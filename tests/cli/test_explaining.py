"""`transcendent explain` on files of objects."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from typer.testing import CliRunner

from transcendent import InductiveEvaluator, RejectionBudget
from transcendent.artifacts import save
from transcendent.cli.app import app

pytestmark = pytest.mark.usefixtures("tried_here")

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {"size": RNG.normal(size=400), "vendor": RNG.choice(["acme", "initech", "umbrella"], 400)}
)
LABELS = np.where(
    FRAME["size"] + (FRAME["vendor"] == "umbrella") + RNG.normal(0, 0.5, 400) > 0.5, "bad", "fine"
)
ENCODE = make_column_transformer(
    (OneHotEncoder(handle_unknown="ignore"), ["vendor"]), remainder="passthrough"
)
ICE = InductiveEvaluator(make_pipeline(ENCODE, LogisticRegression()), random_state=0)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which a command replaces
    save(ICE.fit(FRAME[:300], LABELS[:300]), "x.transcendent", notes={"id": "name"})
    names = [f"sample {k}" for k in range(400)]
    FRAME[300:].assign(name=names[300:]).to_csv("new.csv", index=False)
    months = np.datetime64("2013-01") + np.arange(300) % 12
    known = FRAME[:300].assign(name=names[:300], verdict=LABELS[:300], seen=months.astype(str))
    known.to_csv("known.csv", index=False)

    def run(*arguments, code=0):
        done = CliRunner().invoke(app, ["explain", "x.transcendent", "new.csv", *arguments])
        assert done.exit_code == code, done.output
        return done.output

    return run


KNOWN = ["--known", "known.csv", "--label", "verdict", "--time", "seen"]


def test_known_objects_as_people_have_them(run):
    """The object itself, labels that say nothing, and times as the file writes them."""
    names = [f"sample {k}" for k in range(300, 400)]
    known = FRAME[300:].assign(name=names, verdict=LABELS[300:], seen="27/05/2019")
    known.loc[300:330, "verdict"] = [*[" Unknown", "n/a", "?"] * 10, "unknown"]
    known.to_csv("known.csv", index=False)
    (said,) = json.loads(run("--object", "sample 340", *KNOWN, "--json"))["objects"]
    near = said["nearest"]
    assert "sample 340" not in [each["id"] for each in near]
    assert {each["label"] for each in near} <= {"bad", "fine"}
    assert {each["time"] for each in near} == {"2019-05-27"}
    (lost,) = json.loads(run("--object", "sample 310", *KNOWN, "--json"))["objects"]
    assert {each["label"] for each in lost["nearest"]} <= {"bad", "fine"}
    known[40:41].to_csv("known.csv", index=False)  # nothing but itself
    (alone,) = json.loads(run("--object", "sample 340", *KNOWN, "--json"))["objects"]
    assert alone["nearest"] == []


def test_an_object_that_does_not_exist_is_named_with_few_others(run):
    said = " ".join(run("--object", "nothing like it", code=2).split())
    assert "; choose from sample 300, sample 301, sample 302, sample 303, sample 304 and 95 more" in said


def test_objects_are_explained_by_their_ids(run):
    said = json.loads(run("--object", "sample 307", "--object", "sample 301", *KNOWN, "--json"))["objects"]
    assert [each["object"] for each in said] == ["sample 307", "sample 301"]
    decisions = ICE.decide(FRAME[300:])
    for each, i in zip(said, (7, 1), strict=True):
        assert each["label"] == decisions.labels[i]
        assert each["accepted"] == decisions.accepted[i]
        assert each["nearest"][0]["id"].startswith("sample ")
        assert each["nearest"][0]["time"].startswith("2013-")
        assert each["score"]["method"] == "exact"
        named = [one["name"] for one in each["score"]["speak_for"] + each["score"]["speak_against"]]
        assert set(named) <= {"size", "vendor"}


def test_by_default_the_object_that_is_trusted_least(run):
    text = run(*KNOWN)
    decisions = ICE.decide(FRAME[300:])
    least = np.argmin(np.where(decisions.accepted, 2, decisions.credibility))
    assert text.startswith(f"sample {300 + least}\nDoubted: called ")
    assert "nearest known objects" in text
    assert "nearest" not in run()


def test_rows_stand_in_for_ids(run):
    save(ICE, "x.transcendent")
    FRAME[300:].to_csv("new.csv", index=False)
    assert "line 9" in run("--object", "7")


def test_a_budget_compares_all_objects_of_the_file(run):
    budget = RejectionBudget(clone(ICE), count=10).fit(FRAME[:300], LABELS[:300])
    save(budget, "x.transcendent")
    assert "least trusted of its period" in run("--id", "name")


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (["--object", "sample 3000"], 2, "--object: new.csv has no object 'sample 3000'"),
        (["--label", "verdict"], 2, "--label and --time name columns of --known FILE"),
        (["--known", "known.csv"], 2, "--label: name the column of --known"),
        (["--known", "known.csv", "--label", "verdikt"], 4, "no column 'verdikt'"),
        (["--known", "missing.csv", "--label", "verdict"], 2, "missing.csv"),
    ],
)
def test_errors_name_the_option(run, given, code, said):
    assert said in run(*given, code=code)
