"""Probabilities of forests are those of scikit-learn to the last bit, and so are its errors."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_classification
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from transcendent.measures.forest import _FEW, class_probabilities

X, Y = make_classification(400, 12, n_informative=6, n_classes=3, random_state=0)
FORESTS = [
    RandomForestClassifier(15, class_weight="balanced", random_state=0).fit(X, Y),
    ExtraTreesClassifier(20, min_samples_leaf=3, random_state=0).fit(X, Y),
    ExtraTreesClassifier(10, random_state=0).fit(sp.csr_matrix(X > 0.5, dtype=np.int64), Y > 0),
]


def outcome(predict, rows):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return predict(rows)
    except (ValueError, TypeError) as error:
        return type(error), str(error)


def assert_same(forest, rows):
    expected = outcome(forest.predict_proba, rows)
    found = outcome(lambda rows: class_probabilities(forest, rows), rows)
    assert type(found) is type(expected)
    assert np.array_equal(found, expected) if isinstance(expected, np.ndarray) else found == expected


@settings(max_examples=40)
@given(st.integers(0, 999), st.integers(1, 40), st.sampled_from(range(len(FORESTS))))
def test_bit_equal_for_every_form_of_rows(seed, n, which):
    rng = np.random.default_rng(seed)
    rows = np.where(rng.random((n, 12)) < 0.4, 0.0, rng.normal(size=(n, 12)) * 10.0 ** rng.integers(-3, 9))
    big = (rows > 0).astype(np.int64)
    wide = sp.csr_matrix(rows)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    forms = (
        rows,
        np.asfortranarray(rows),
        rows[:, ::-1],
        rows.astype(np.float32),
        rows > 0,
        big,
        sp.csr_matrix(rows),
        sp.csr_array(big),
        sp.csc_matrix(rows),
        sp.coo_array(rows),
        wide,
        pd.DataFrame(rows),
        rows.tolist(),
    )
    for form in forms:
        assert_same(FORESTS[which], form)


@pytest.mark.parametrize("forest", FORESTS)
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_values_that_a_forest_refuses(forest, value):
    rows = X[:3].copy()
    rows[1, 2] = value
    for form in (rows, sp.csr_matrix(rows)):
        assert_same(forest, form)


@pytest.mark.parametrize("forest", FORESTS)
def test_rows_of_another_shape(forest):
    narrow = X[:2, :5]
    for rows in (narrow, sp.csr_matrix(narrow), np.hstack([X, X]), X[0], X[:0], X[:2].astype(str)):
        assert_same(forest, rows)


def test_missing_values_that_a_forest_has_learnt():
    gaps = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
    forest = RandomForestClassifier(10, random_state=0).fit(gaps, Y)
    assert_same(forest, gaps[:30])
    assert_same(forest, X[:30])


def test_other_classifiers_answer_themselves():
    class Mine(RandomForestClassifier):
        def predict_proba(self, X):
            return np.zeros((len(X), 3))

    assert not class_probabilities(Mine(5, random_state=0).fit(X, Y), X[:4]).any()
    many = np.tile(X, (_FEW // len(X) + 1, 1))
    assert_same(FORESTS[0], many)
    named = RandomForestClassifier(5, random_state=0).fit(pd.DataFrame(X).rename(columns=str), Y)
    with pytest.warns(UserWarning, match="feature names"):
        class_probabilities(named, X[:2])
