"""Campaigns on the page: the newest rejects, their true labels, and names that cannot do harm."""

import json
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from tests.report.test_report import HOSTILE, Page, random_backtest
from transcendent import InductiveEvaluator
from transcendent.decisions import Answers
from transcendent.report import hindsight, render_report
from transcendent.report.hindsight import _purity, campaign_results, campaign_sentences, has_rows, look_back
from transcendent.temporal import Backtest, RepeatedBacktest, backtest

mpl.use("Agg")


@pytest.fixture
def undrawn(monkeypatch):
    monkeypatch.setattr("transcendent.report.figures._drawn", lambda *_: ("<svg></svg>",) * 2)


def rejecting(y, period, rejected=None, names=("benign", "malware")):
    """Return a backtest about objects with these labels and periods, all rejected by default."""
    result = random_backtest(len(y), 4, classes=names)
    (answer,) = result.answers.values()
    rejected = np.ones(len(y), dtype=bool) if rejected is None else rejected
    answers = {"ICE": replace(answer, accepted=~rejected)}
    return replace(result, y=np.array(names)[y], period=np.asarray(period), answers=answers)


def shown(result, X, names=None):
    found = look_back(result, X, names)
    results = campaign_results(found)
    cells = [[name, *(cell.text for cell in cells)] for name, cells in results.rows] if results else []
    return found, " ".join(campaign_sentences(found)), cells


def blocks():
    """Return 60 objects: 30 near each other, 10 equal to each other, and 20 like nothing else."""
    X = np.zeros((60, 200))
    X[:30, :40] = 1
    X[np.arange(30), 40 + np.arange(30) % 3] = 1
    X[30:40, 90:95] = 1
    X[np.arange(40, 60), np.arange(100, 120)] = 1
    return X


def test_sizes_periods_labels_and_features_are_those_of_the_campaigns():
    y = np.r_[np.ones(27, dtype=int), np.zeros(3, dtype=int), np.zeros(10, dtype=int), np.arange(20) % 2]
    period = np.sort(np.r_[np.repeat([0, 1], 15), np.full(10, 2), np.full(20, 3)])
    found, said, rows = shown(rejecting(y, period), blocks())
    assert (found.n_rejected, found.n_grouped, found.n_members, found.n_campaigns) == (60, 60, 40, 2)
    assert found.purity == 37 / 40
    assert 0.5 < found.by_chance < 0.8
    assert [row[1:8] for row in rows] == [
        ["30", "3", "2020-01", "2020-02", "malware", "90%", "0.05"],
        ["10", "1", "2020-03", "2020-03", "benign", "100%", "0.00"],
    ]
    assert rows[0][8].startswith("column 0, column 1, column 2 and ")
    assert said.startswith("67% of 60 objects that ICE rejected belong to 2 campaigns of two or more. In ")
    assert "In hindsight, 92.5% of these objects" in said
    assert "within a Jaccard distance of 0.1" in said


def test_accepted_objects_are_in_no_campaign_and_rows_are_found_in_the_data():
    rejected = np.arange(60) % 2 == 0
    y = (np.arange(60) % 4 == 0).astype(int)
    order = np.random.default_rng(0).permutation(200)[:60]
    X = np.zeros((200, 200))
    X[order] = blocks()
    result = replace(rejecting(y, np.zeros(60, dtype=int), rejected), rows=order)
    found, _, rows = shown(result, sp.coo_array(X))
    assert (found.n_rejected, found.n_members) == (30, 20)
    assert [row[1] for row in rows] == ["15", "5"]
    assert found.purity == (8 + 3) / 20  # every second rejected object is malware


def test_only_the_newest_are_grouped_and_the_page_says_so(monkeypatch):
    monkeypatch.setattr(hindsight, "MAX_OBJECTS", 35)
    result = rejecting(np.zeros(60, dtype=int), np.repeat([0, 3], 30))
    found, said, rows = shown(result, blocks())
    assert "of the newest 35 of 60 objects" in said
    assert [row[1] for row in rows] == ["10", "5"]
    assert [each.first for each in found.largest] == ["2020-04", "2020-01"]
    monkeypatch.setattr(hindsight, "MAX_VALUES", 12)
    assert look_back(result, sp.csr_array(blocks())).n_grouped == 12  # one feature each
    assert look_back(result, blocks()).n_grouped == 2  # 200 values each: too many, but a pair is grouped


def test_other_values_than_zeros_and_ones_are_grouped_by_exact_content_and_missing_ones_are_equal():
    frame = pd.DataFrame({"host": ["a", "b", None, "a"] * 15, "size": [1.5, 2.5, np.nan, 1.5] * 15})
    frame.loc[0, "size"] = 1.5000001
    found, said, rows = shown(rejecting(np.arange(60) % 2, np.zeros(60, dtype=int)), frame)
    assert "Exact content only: near content needs rows of zeros and ones." in said
    assert [row[1] for row in rows] == ["29", "15", "15"]
    assert {row[8] for row in rows[1:]} == {"host = 'b', size = 2.5", "host missing, size missing"}
    assert found.n_members == 59


def test_no_campaigns_one_object_all_equal_and_nothing_rejected():
    many, none = np.zeros(4, dtype=int), np.zeros(4, dtype=bool)
    found, said, rows = shown(rejecting(many, many), np.eye(4))
    assert (found.n_campaigns, rows) == (0, [])
    assert np.isnan(found.purity)
    assert said.startswith(
        "There are no campaigns among 4 objects that ICE rejected: no two belong together."
    )
    assert look_back(rejecting(many, many, none), np.eye(4)) is None
    assert look_back(rejecting(many, many, np.arange(4) == 2), np.eye(4)) is None
    found, said, rows = shown(rejecting(many, many), np.ones((4, 3)))
    assert [row[1:] for row in rows] == [["4", "1", "2020-01", "2020-01", "benign", "100%", "0.00", "–"]]
    assert said.startswith("100% of 4 objects that ICE rejected belong to 1 campaign of two or more.")
    assert "drawn at random, 100% would" in said
    found, _, rows = shown(rejecting(many, many), np.zeros((4, 3)))  # no feature at all
    assert found.n_members == 4


def test_rows_of_another_backtest_are_refused(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=900)
    X = (rng.random((900, 12)) < 0.3 + 0.4 * y[:, None]).astype(float)
    times = np.repeat(np.arange("2024-01", "2024-10", dtype="datetime64[M]"), 100)
    labels = y.astype(object)
    labels[::50] = None  # rows that are left out do not shift the others
    given = {"train": "2024-05", "verbose": False, "allow": ["duplicates", "few_positives"]}
    ice = InductiveEvaluator(LogisticRegression())
    result = backtest(ice, X, labels, times, **given, unlabelled="drop", folder=tmp_path)
    for one in (result, Backtest.load(tmp_path), RepeatedBacktest({3: result, 4: result})):
        assert has_rows(one, X)
        found = look_back(one, X)
        assert found.n_rejected == result.answers["InductiveEvaluator"].rejected.sum()
    assert found.seed == 3
    assert "rejected with seed 3" in campaign_sentences(found)[0]
    changed = X.copy()
    changed[result.rows[5], 0] = 7
    other_order = X[rng.permutation(900)]
    for wrong in (changed, other_order, X[:500], X.astype(np.float32), Answers(y, X[:, :2])):
        assert not has_rows(result, wrong)
        with pytest.raises(ValueError, match="does not have the rows that were tested"):
            look_back(result, wrong)


@pytest.mark.usefixtures("undrawn")
def test_hostile_names_labels_and_values_are_text_on_the_page():
    y, period = np.zeros(60, dtype=int), np.zeros(60, dtype=int)
    result = rejecting(y, period, names=(HOSTILE, f"z{HOSTILE}"))
    result = replace(result, periods=tuple(f"{i}{HOSTILE}" for i in range(4)))
    names = [f"\x1b[31m{HOSTILE}\ud800{{{{ 7 * 7 }}}}{i}" for i in range(200)]
    texts = pd.DataFrame({HOSTILE: [f"{HOSTILE}{i // 20}" for i in range(60)]})
    for X, given in ((blocks(), names), (texts, None)):
        page = render_report(result, X=X, names=given)
        section = page[page.index("Campaigns among the rejected") : page.index("<h2>In numbers")]
        page.encode()
        assert "<script" not in page.lower()
        assert "&lt;script&gt;" in section
        assert "\x1b" not in page
        assert section.count("<tr>") > 2
        Page(page)


@pytest.mark.usefixtures("undrawn")
def test_without_rows_there_is_no_section():
    result = rejecting(np.zeros(60, dtype=int), np.zeros(60, dtype=int))
    assert "Campaigns among" not in render_report(result)
    page = render_report(result, X=blocks())
    assert page.count("<table") == page.count("<caption") == 5
    assert json.dumps(Page(page).attributes("id")).count("campaigns-caption") == 1
    assert "Campaigns among" not in render_report(
        replace(
            result,
            answers=rejecting(
                np.zeros(60, dtype=int), np.zeros(60, dtype=int), np.zeros(60, dtype=bool)
            ).answers,
        ),
        X=blocks(),
    )


def test_purity_is_that_of_a_count_by_hand():
    assert _purity(np.array([0, 0, 1, 2, 2, 5]), np.array([3, 3])) == 4 / 6
    assert _purity(np.array([1, 0]), np.array([2])) == 0.5
