"""Distances of known objects are what naive loops give."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from transcendent.explaining import KnownObjects
from transcendent.explaining.known_objects import nearest

RNG = np.random.default_rng(0)


@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 999))
def test_jaccard_of_zeros_and_ones(n, width, seed):
    rows = (np.random.default_rng(seed).random((n + 1, width)) < 0.4).astype(float)
    sets = [set(np.flatnonzero(row)) for row in rows]
    expected = [1 - len(own & sets[-1]) / len(own | sets[-1]) if own | sets[-1] else 0.0 for own in sets[:-1]]
    for form in (np.asarray, sp.csr_matrix, sp.csc_array, pd.DataFrame):
        known = KnownObjects(form(rows[:-1]), np.zeros(n))
        assert known.metric == "Jaccard"
        np.testing.assert_allclose(known.distances(form(rows[-1:])), expected, atol=1e-6)


@given(st.integers(2, 60), st.integers(1, 5), st.integers(0, 999))
def test_copies_have_the_same_distance(n, width, seed):
    """With few columns almost all rows have copies, and are kept once."""
    rng = np.random.default_rng(seed)
    rows = (rng.random((n, width)) < 0.5).astype(float)
    known = KnownObjects(sp.csr_matrix(rows), np.zeros(n))
    row = (rng.random((1, width)) < 0.5).astype(float)
    shared, union = np.minimum(rows, row).sum(axis=1), np.maximum(rows, row).sum(axis=1)
    expected = np.where(union > 0, 1 - shared / np.maximum(union, 1), 0.0)
    np.testing.assert_allclose(known.distances(sp.csr_matrix(row)), expected, atol=1e-12)


def test_sums_that_are_equal_by_chance_keep_rows_apart(monkeypatch):
    class Unlucky:
        def integers(self, low, _high, size):
            return np.full(size, low)

    rows = np.eye(8)
    monkeypatch.setattr(np.random, "default_rng", lambda _: Unlucky())
    known = KnownObjects(rows, np.zeros(8))
    assert known.distances(rows[:1]).tolist() == [0.0, *[1.0] * 7]


def test_cosine_of_other_sparse_rows():
    rows = RNG.poisson(1.0, (20, 6)).astype(float)
    known = KnownObjects(sp.csr_matrix(rows[:-1]), np.zeros(19))
    assert known.metric == "cosine"
    own = rows[-1] / np.linalg.norm(rows[-1])
    norms = np.linalg.norm(rows[:-1], axis=1)
    expected = 1 - (rows[:-1] @ own) / np.where(norms > 0, norms, 1)
    np.testing.assert_allclose(known.distances(sp.csr_matrix(rows[-1:])), expected, atol=1e-6)


def test_columns_of_numbers_and_texts():
    """By hand: texts are equal or not, numbers differ relative to the middle 90%, gaps equal gaps."""
    frame = pd.DataFrame(
        {
            "size": [*np.linspace(0, 100, 101), np.nan],
            "word": [*["x"] * 51, *["y"] * 50, None],
            "flag": [True, *[False] * 101],
        }
    )
    known = KnownObjects(frame, np.zeros(102))
    assert known.metric == "columns"
    far = known.distances(pd.DataFrame({"size": [45.0], "word": ["x"], "flag": [False]}))
    assert far[0] == pytest.approx((45 / 90 + 0 + 1) / 3)
    assert far[45] == 0
    assert far[100] == pytest.approx((55 / 90 + 1 + 0) / 3)
    assert far[101] == pytest.approx((1 + 1 + 0) / 3)
    gaps = known.distances(pd.DataFrame({"size": [np.nan], "word": [None], "flag": [False]}))
    assert gaps[101] == 0
    assert gaps[1] == pytest.approx(2 / 3)
    assert known.distances(pd.DataFrame({"size": [1e300], "word": ["new"], "flag": [True]}))[
        0
    ] == pytest.approx(2 / 3)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.integers(1, 40))
def test_the_nearest_come_in_order_and_ties_by_position(distances, k):
    expected = sorted(range(len(distances)), key=lambda i: (distances[i], i))[:k]
    assert nearest(np.array(distances, dtype=float), k).tolist() == expected


def test_what_is_known_of_an_object():
    times = np.array(["2013-04", "NaT"], dtype="datetime64[M]")
    known = KnownObjects([[0.0], [2.0]], np.array([0, 1]), times, np.array(["a", "b"]))
    assert tuple(known.neighbour(0, 0.5)) == (0, "a", 0, "2013-04", 0.5)
    assert tuple(known.neighbour(1, 0.5)) == (1, "b", 1, None, 0.5)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (([[1.0]], []), "labels of 1 known objects"),
        (([[1.0], [2.0]], ["a", "b"], [1]), "times of 2 known objects"),
        (([[1.0], [2.0]], ["a", "b"], None, [[1], [2]]), "ids of 2 known objects"),
        (([[1.0], [2.0]], ["a", None]), "missing labels"),
        ((np.empty((0, 2)), []), "no known objects"),
    ],
)
def test_refuses_columns_that_do_not_fit(given, said):
    with pytest.raises(ValueError, match=said):
        KnownObjects(*given)
