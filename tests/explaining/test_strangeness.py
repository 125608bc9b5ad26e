"""Unexpected values come first, whatever the kind of rows."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from transcendent.explaining import KnownObjects
from transcendent.explaining.strangeness import strange_columns

RNG = np.random.default_rng(0)


def columns_of(found):
    return [each.column for each in found[0]]


@given(st.integers(0, 999), st.integers(2, 30))
def test_zeros_and_ones_are_counted_as_by_hand(seed, k):
    rng = np.random.default_rng(seed)
    near = (rng.random((k, 9)) < rng.random(9)).astype(float)
    row = (rng.random((1, 9)) < 0.5).astype(float)
    weights = rng.normal(size=9)
    usual = (near.sum(axis=0) > k / 2).astype(float)
    shared = (near == row).sum(axis=0)
    expected = [j for j in range(9) if row[0, j] != usual[j] and shared[j] + 0.5 <= (k + 1) / 4]
    expected.sort(key=lambda j: (shared[j], -weights[j] * (row[0, j] - usual[j])))
    for form in (np.asarray, sp.csr_matrix, pd.DataFrame):
        scored = []

        def scores(rows, scored=scored):
            scored.append(rows.shape[0])
            return np.asarray(rows @ weights)

        found, middle = strange_columns(form(row), form(near), scores, {}, 9)
        assert [each.column for each in found] == expected
        assert [each.n_alike for each in found] == shared[expected].tolist()
        effects = [weights[j] * (row[0, j] - usual[j]) for j in expected]
        assert [each.effect for each in found] == pytest.approx(effects)
        dense = middle.toarray() if sp.issparse(middle) else np.asarray(middle)
        np.testing.assert_array_equal(dense[0], usual)
        first, _ = strange_columns(form(row), form(near), scores, {}, 2)
        assert columns_of((first, None)) == expected[:2]
        assert [each.effect for each in first] == pytest.approx(effects[:2])
        ties = sum(shared[j] <= max(shared[expected[:2]]) for j in expected)
        assert scored == [1 + len(expected), 1 + ties]  # no more than needed


def test_a_number_that_its_other_numbers_do_not_explain():
    """Height and weight are both usual, but not together."""
    height = RNG.normal(170, 10, 2000)
    X = np.column_stack([height, 0.9 * height - 80 + RNG.normal(0, 2, 2000), RNG.normal(size=(2000, 3))])
    known = KnownObjects(X, np.zeros(2000))
    row = np.array([[158.0, 82.0, 0.1, -0.1, 0.2]])
    near = X[np.argsort(known.distances(row))[:25]]
    off = known.expectation(0.0).deviations(row, near)
    assert sorted(off, key=off.get)[-2:] in ([0, 1], [1, 0])
    assert min(off[0], off[1]) > 2 * max(off[2], off[3], off[4])


def test_texts_gaps_and_numbers_of_one_frame():
    near = pd.DataFrame(
        {"size": np.linspace(10, 12, 25), "word": ["x"] * 24 + ["y"], "gap": [1.0] * 24 + [np.nan]}
    )
    row = pd.DataFrame({"size": [99.0], "word": ["z"], "gap": [np.nan]})
    known = KnownObjects(near, np.zeros(25))
    off = known.expectation(0.0).deviations(row, near)
    assert set(off) == {0}  # gaps and flags are counted, not measured
    found, usual = strange_columns(row, near, None, off, 5)
    assert [(each.column, each.n_alike, each.effect) for each in found] == [
        (0, 0, None),
        (1, 0, None),
        (2, 1, None),
    ]
    assert usual["word"].tolist() == ["x"]


def test_few_objects_or_one_column_are_no_reason_to_fail():
    for X in (np.ones((1, 3)), RNG.normal(size=(3, 2)), RNG.normal(size=(50, 1)), np.full((30, 2), 7.5)):
        known = KnownObjects(X, np.zeros(len(X)))
        if known.metric == "columns":
            assert np.isfinite(list(known.expectation(0.0).deviations(X[:1] + 1, X).values())).all()
    with_gaps = np.where(RNG.random((40, 3)) < 0.3, np.nan, RNG.normal(size=(40, 3)))
    with_gaps[:, 2] = np.nan
    known = KnownObjects(with_gaps, np.zeros(40))
    row = np.array([[1.0, np.inf, 2.0]])
    assert np.isfinite(list(known.expectation(0.0).deviations(row, with_gaps).values())).all()
