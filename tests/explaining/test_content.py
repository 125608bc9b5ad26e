"""Content is the same whatever its form."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from transcendent.explaining import content_keys
from transcendent.explaining.content import Content

VALUES = st.sampled_from([0.0, -0.0, 1.0, -1.5, np.nan, np.inf, 3e-300])


def shuffled_with_duplicates(X, rng):
    """Return the same matrix with entries in random order, some of them stored as two halves or as zeros."""
    rows, columns = np.nonzero(np.ones_like(X))
    values = X[rows, columns]
    twice = rng.random(len(values)) < 0.5
    halves = np.where(twice, values / 2, values)
    rows, columns, values = (
        np.concatenate([first, second[twice]])
        for first, second in [(rows, rows), (columns, columns), (halves, halves)]
    )
    order = np.lexsort((rng.random(len(rows)), rows))
    ends = np.searchsorted(rows[order], np.arange(len(X) + 1))
    return sp.csr_array((values[order], columns[order], ends), shape=X.shape)


@given(
    arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=VALUES), st.integers(0, 99)
)
def test_dense_sparse_and_frames_have_the_same_keys(X, seed):
    keys = content_keys(X)
    rng = np.random.default_rng(seed)
    names = [f"f{j}" for j in range(X.shape[1])]
    for form in (
        sp.csr_array(X),
        sp.csc_matrix(X),
        sp.coo_array(X),
        shuffled_with_duplicates(X, rng),
        np.asfortranarray(X),
        X.tolist(),
        X.astype(object),
        pd.DataFrame(X, columns=names),
        pd.DataFrame(X, columns=names).convert_dtypes(),
        pl.DataFrame(X, schema=names),
    ):
        assert content_keys(form).tolist() == keys.tolist()
    assert [content_keys(X[[i]])[0] for i in range(len(X))] == keys.tolist()


@given(arrays(np.float64, (6, 3), elements=VALUES))
def test_keys_are_equal_exactly_where_rows_are(X):
    keys = content_keys(X)
    for i in range(len(X)):
        for j in range(len(X)):
            assert (keys[i] == keys[j]) == np.array_equal(X[i], X[j], equal_nan=True)


def test_text_missing_values_and_large_integers():
    frame = pd.DataFrame(
        {
            "text": ["a", "a", None, np.nan, "1", "b"],
            "number": [1, 1.0, 1, 1, 1, 1],
            "kind": pd.Categorical(["x", "x", "y", "y", "x", "x"]),
        }
    )
    keys = content_keys(frame)
    assert keys[0] == keys[1]
    assert keys[2] == keys[3]
    assert len(set(keys)) == 4
    assert keys.tolist() == content_keys(pl.from_pandas(frame)).tolist()
    assert keys.tolist() == content_keys(frame.to_numpy(dtype=object)).tolist()
    assert content_keys([[1]])[0] != content_keys(np.array([["1"]], dtype=object))[0]
    large = np.array([[2**53 + 1, 0], [2**53 + 2, 0], [2**53 + 3, 0]])
    assert len(set(content_keys(large))) == 3
    assert content_keys(large).tolist() == content_keys(sp.csr_array(large)).tolist()


def test_texts_alone_and_no_rows():
    keys = content_keys(np.array(["one text", "another", "one text"]))
    assert keys[0] == keys[2] != keys[1]
    assert len(content_keys(np.empty((0, 3)))) == 0
    assert len(content_keys(sp.csr_array((0, 3)))) == 0


def test_zeros_and_ones_are_told_row_by_row():
    X = np.array([[0, 1, 1], [0, 0, 0], [0, 2, 1], [0, np.nan, 1], [0, -1, 1]])
    content = Content.of(X)
    assert content.are_binary().tolist() == [True, True, False, False, False]
    assert content.are_empty().tolist() == [False, True, False, False, False]
    doubled = sp.csr_array((np.ones(2), [0, 0], [0, 2]), shape=(1, 3))
    assert not Content.of(doubled).are_binary()[0]
    assert Content.of(pd.DataFrame({"a": [True, False], "b": [1, 0]})).are_binary().all()


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_items_are_pairs_of_columns_and_values(form):
    items = Content.of(form(np.array([[1.0, 0, 5], [1, 2, 5], [3, 2, np.nan]]))).items()
    named = [
        {(int(items.columns[item]), items.values[item]) for item in items.rows[[row]].indices}
        for row in range(2)
    ]
    assert named == [{(0, 1.0), (2, 5.0)}, {(0, 1.0), (1, 2.0), (2, 5.0)}]
    assert sum(np.isnan(value) for value in items.values) == 1


def test_items_of_text():
    content = Content.of(pd.DataFrame({"a": ["x", "y", "x", None], "b": ["x", "x", "y", "y"]}))
    items = content.items()
    assert items.rows.sum(axis=0).tolist() == [1.0, 2.0, 1.0, 2.0, 2.0]
    assert [value for value in items.values if isinstance(value, str)] == ["x", "y", "x", "y"]
