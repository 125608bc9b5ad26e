"""Experiments as Python calls them."""

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from transcendent import experiments, load
from transcendent.datasets import make_stream
from transcendent.errors import ArgumentError

TOML = """
[data]
file = "objects.csv"
label = "y"
time = "seen"
[split]
train = "2024-06"
[detector]
class = "sklearn.svm.LinearSVC"
[rejectors.ICE]
measure = "neighbour_ratio"
"""
STREAM = make_stream(1200, n_features=20, start="2024-01", random_state=0)
FRAME = pd.DataFrame(STREAM.X).add_prefix("f").assign(y=STREAM.y, seen=STREAM.times.astype("datetime64[s]"))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("objects.csv", index=False)
    FRAME[800:].sample(100, random_state=0).to_csv("labelled.csv", index=False)
    Path("objects.toml").write_text(TOML)
    return tmp_path


def test_the_session_of_the_page(here):
    page = (Path(__file__).parents[2] / "docs/reference/command_line.md").read_text()
    (block,) = re.findall(r"### From Python.*?```python\n(.*?)```", page, re.DOTALL)
    FRAME[800:].assign(f0=FRAME["f0"][800:] + 1).head(100).to_csv("labelled.csv", index=False)
    names = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(block, names)
    rows = FRAME[[name for name in FRAME if name.startswith("f")]]
    accepted = load("gate.transcendent").decide(rows).accepted
    again = experiments.read("objects.toml").fit(train="2025").rejector
    np.testing.assert_array_equal(accepted, again.decide(rows).accepted)
    assert names["result"].periods[0] == "2024-06"
    assert sorted(path.name for path in here.iterdir()) == [
        *("gate.transcendent", "labelled.csv", "objects.csv", "objects.toml")
    ]


def test_a_budget_calibrates_on_the_most_recent_rows_and_is_monitored(here):
    held = TOML.replace("[split]", "[split]\nchronological = true") + "budget = 0.1\n"
    Path("objects.toml").write_text(
        f'monitor = 20\ntitle = "Mail of 2024"\n{held}[rejectors.alone]\ntype = "ICE"\n'
    )
    experiment = experiments.read("objects.toml")
    fitted = experiment.fit("ICE")
    rows = fitted.rejector.rejector_.calibration_rows_[0]
    assert len(rows) == round(0.34 * len(fitted.rows))
    assert rows.min() == len(fitted.rows) - len(rows)  # rows are in the order of time
    result = experiment.backtest()
    assert (result.title, sorted(result.monitors)) == ("Mail of 2024", ["ICE", "alone"])
    assert result.manifest["chronological"] is True


def test_what_is_in_the_data(here):
    found = experiments.read("objects.toml").check()
    assert (found["objects"], found["features"], found["problems"]) == (1200, STREAM.X.shape[1], [])
    assert found["training"] + found["test"] == 1200
    assert len(found["periods"]) == 12


def test_a_fit_says_what_it_left_out(here):
    experiment = experiments.read("objects.toml")
    fitted = experiment.fit()
    assert fitted.n_left_out == 1200 - len(fitted.rows)
    assert experiment.fit(train=fitted.take_all)[4:] == (0, None)


def test_arguments_are_named(here):
    experiment = experiments.read("objects.toml")
    fitted = experiment.fit().rejector
    for argument, call in {
        "rejector": lambda: experiment.fit("CCE"),
        "train": lambda: experiment.fit(train="soon"),
        "what": lambda: experiment.learn(fitted, "labelled.csv", what="all"),
        "labels": lambda: experiment.learn(fitted, "objects.csv"),
        "label": lambda: experiments.propose("objects.csv", label="z"),
        "file": lambda: experiments.propose("objects.toml"),
    }.items():
        with pytest.raises(ArgumentError, match=f"^{argument}: "):
            call()


def test_columns_in_another_order_are_learnt_by_name(here):
    learnt = []
    fits = [experiments.read("objects.toml").fit().rejector for _ in range(2)]
    for fitted, columns in zip(fits, (FRAME.columns, FRAME.columns[::-1]), strict=True):
        FRAME[columns].to_csv("objects.csv", index=False)
        learnt.append(experiments.read("objects.toml").learn(fitted, "labelled.csv"))
    rows = FRAME[[name for name in FRAME if name.startswith("f")]]
    (one, n, _), (other, m, _) = learnt
    assert n == m == 100
    np.testing.assert_array_equal(one.decide(rows).p_values, other.decide(rows).p_values)
