"""Drift monitors that are fed with counts."""

import warnings
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from tests.monitoring.answers import objects
from transcendent import InductiveEvaluator, RejectionBudget, ScoreEvaluator
from transcendent.evaluators import base
from transcendent.monitoring import DriftMonitor


@pytest.fixture(scope="module")
def judge():
    return ScoreEvaluator().fit(*objects(np.random.default_rng(0), 2000))


def counted(monitor, answers):
    return Counter(monitor.observe(answers).cells.tolist())


def test_observing_decides_and_adds_nothing(judge):
    monitor, answers = DriftMonitor.of(judge), objects(np.random.default_rng(1), 300)[0]
    before, observed, decided = monitor.to_json(), monitor.observe(answers), judge.decide(answers)
    for name, column in decided.columns().items():
        assert np.array_equal(observed.columns()[name], column), name
    assert monitor.to_json() == before
    assert np.array_equal(observed.cells % 2 == 1, decided.rejected)
    some = observed[[5, 3]]
    assert some.cells.tolist() == observed.cells[[5, 3]].tolist()


@pytest.mark.parametrize("rows_in_a_chunk", [1 << 17, 64])
def test_rows_are_observed_as_they_are_decided_and_as_their_answers_are(monkeypatch, rows_in_a_chunk):
    for name in ("_MIN_CHUNK", "_MAX_CHUNK"):
        monkeypatch.setattr(base, name, rows_in_a_chunk)
    X, y = make_classification(1500, n_informative=6, n_classes=3, random_state=0)
    labels = np.array(["b", "c", "a"])[y]
    fitted = InductiveEvaluator(LogisticRegression(), random_state=0, verbose=False).fit(
        X[:1000], labels[:1000]
    )
    monitor, rows = DriftMonitor.of(fitted), X[1000:]
    observed, by_answers = monitor.observe(rows), monitor.observe(fitted.answer(rows))
    for name, column in fitted.decide(rows).columns().items():
        assert np.array_equal(observed.columns()[name], column), name
    for name, column in by_answers.columns().items():
        assert np.array_equal(observed.columns()[name], column), name
    framed = pd.DataFrame(rows, index=range(7, 507))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit had no names
        assert monitor.observe(framed).index.equals(framed.index)


def test_objects_one_by_one_and_as_counts_are_the_same_but_for_their_order(judge):
    answers = objects(np.random.default_rng(1), 2000, shift=0.6)[0]
    by_rows, by_counts = DriftMonitor.of(judge), DriftMonitor.of(judge)
    by_rows.update(answers)
    by_counts.update_counts(counted(by_counts, answers), seed=7)
    assert by_counts.n == by_rows.n == 2000
    assert by_counts.rejections.rejected == by_rows.rejections.rejected
    assert np.array_equal(by_counts._stream.counts, by_rows._stream.counts)
    assert by_counts.alarm is not None
    assert by_rows.alarm is not None


def test_counts_laid_out_are_an_update_in_that_order(judge):
    """An update with the objects in the drawn order gives the same state to the bit."""
    answers, monitor = objects(np.random.default_rng(2), 500)[0], DriftMonitor.of(judge)
    cells = np.sort(monitor.observe(answers).cells)
    drawn = np.random.default_rng([34, 0, 9]).permutation(cells)
    order = np.argsort(monitor.observe(answers).cells, kind="stable")
    place = np.empty(500, dtype=int)
    place[np.argsort(drawn, kind="stable")] = order
    by_rows = DriftMonitor.of(judge)
    by_rows.update(answers[place])
    monitor.update_counts(Counter(cells.tolist()), seed=9)
    assert monitor.to_json() == by_rows.to_json()


def test_sums_of_parts_are_the_whole_and_seeds_differ(judge):
    answers, one = objects(np.random.default_rng(3), 900)[0], DriftMonitor.of(judge)
    parts = [counted(one, answers[slice(i, None, 3)]) for i in range(3)]
    three, other = DriftMonitor.of(judge), DriftMonitor.of(judge)
    one.update_counts(counted(one, answers), seed=1)
    three.update_counts(sum(parts, Counter()), seed=1)
    other.update_counts(counted(one, answers), seed=2)
    assert three.to_json() == one.to_json() != other.to_json()


def test_impossible_counts_are_refused_and_none_change_nothing(judge):
    monitor = DriftMonitor.of(judge)
    before = monitor.to_json()
    for counts in ({-1: 1}, {2 * 2 * 1001: 1}, {5: -1}):
        with pytest.raises(ValueError, match="cells from 0 to 4003"):
            monitor.update_counts(counts, seed=0)
    for nothing in ({}, {5: 0}):
        monitor.update_counts(nothing, seed=0)
    assert monitor.to_json() == before


def test_of_a_budget_the_evaluator_is_observed():
    X, y = make_classification(1500, random_state=0)
    fitted = RejectionBudget(InductiveEvaluator(LogisticRegression(), random_state=0), rate=0.1)
    fitted.fit(X[:1000], y[:1000])
    observed = DriftMonitor.of(fitted).observe(X[1000:])
    assert np.array_equal(observed.accepted, fitted.rejector_.decide(X[1000:]).accepted)
