"""Digests of rows: equal for equal rows, however they are stored."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from transcendent._utils.arrays import stack_rows
from transcendent._utils.digests import float_type, number_digests, pair_up, row_digests

ROWS = np.array([[1.0, 0.0, 3.0], [0.0, -0.0, 2.0], [1.0, 0.0, 3.0], [0.0, 0.0, 0.0], [0.0, 2.0, 0.0]])


def groups(digests):
    return [digests.tolist().index(digest) for digest in digests.tolist()]


@pytest.mark.parametrize(
    "form",
    [
        np.asarray,
        np.asfortranarray,
        lambda rows: rows.astype(int),
        lambda rows: rows.astype(np.float32),
        lambda rows: rows.astype(object),
        lambda rows: rows.tolist(),
        lambda rows: pd.DataFrame(rows, columns=list("abc")),
        lambda rows: pd.DataFrame(rows, columns=list("abc")).astype({"b": "Int64", "c": object}),
        lambda rows: pl.DataFrame(rows, schema=list("abc")),
        lambda rows: pa.table(pd.DataFrame(rows, columns=list("abc"))),
        lambda rows: rows.reshape(5, 3, 1),
    ],
)
def test_equal_rows_have_equal_digests_in_every_dense_form(form):
    assert row_digests(form(ROWS)).tolist() == row_digests(ROWS).tolist()
    assert groups(row_digests(form(ROWS))) == [0, 1, 0, 3, 4]


def test_numpy_scalars_are_the_values_they_equal():
    plain = np.array([["a", 5, True, 0.5], ["b", 6, False, 0.25]], dtype=object)
    kinds = (np.str_, np.int64, np.bool_, np.float32)
    scalars = np.array([[kind(cell) for kind, cell in zip(kinds, row, strict=True)] for row in plain], object)
    assert row_digests(scalars).tolist() == row_digests(plain).tolist()


@pytest.mark.parametrize("kind", [np.int64, np.uint64, object])
def test_integers_that_floating_point_numbers_confuse_are_told_apart(kind):
    rows = np.array([[2**60, 1], [2**60 + 1, 1], [2**60, 1], [3, 1]], dtype=kind)
    for form in (rows, pd.DataFrame(rows, columns=["a", "b"])):
        assert groups(row_digests(form)) == [0, 1, 0, 3]


def twice(matrix):
    """The same matrix, with each entry in two halves."""
    parts = (np.repeat(matrix.data / 2, 2), np.repeat(matrix.indices, 2), matrix.indptr * 2)
    return sp.csr_matrix(parts, shape=matrix.shape)


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_matrix, sp.coo_array, sp.lil_matrix, sp.dok_array])
def test_equal_rows_have_equal_digests_in_every_sparse_form(form):
    expected = row_digests(sp.csr_matrix(ROWS))
    assert groups(expected) == [0, 1, 0, 3, 4]
    assert row_digests(form(ROWS)).tolist() == expected.tolist()
    assert row_digests(twice(sp.csr_matrix(ROWS))).tolist() == expected.tolist()
    with_zeros = sp.csr_matrix(ROWS)
    with_zeros.data[with_zeros.data == 2.0] = 0.0
    assert groups(row_digests(with_zeros)) == [0, 1, 0, 1, 1]


def test_numbers_count_in_the_type_that_is_asked_for():
    fine = ROWS / 7
    assert row_digests(fine.astype(np.float32)).tolist() != row_digests(fine).tolist()
    single = row_digests(fine.astype(np.float32), "float32")
    assert single.tolist() == row_digests(fine, "float32").tolist()
    assert float_type(fine.astype(np.float32)) == "float32"
    assert float_type(pd.DataFrame(fine).astype(np.float32)) == "float32"
    for rows in (fine, fine.tolist(), fine.astype(int), pd.DataFrame({"a": ["x"]}), pl.DataFrame(fine)):
        assert float_type(rows) == "float64"


def test_text_and_missing_values():
    frame = pd.DataFrame({"a": [1.0, np.nan, 1.0, 1.0], "b": ["x", None, "x", "y"]})
    digests = row_digests(frame)
    assert groups(digests) == [0, 1, 0, 3]
    assert row_digests(frame.assign(b=frame["b"].astype("category"))).tolist() == digests.tolist()
    assert row_digests(frame.to_numpy(dtype=object)).tolist() == digests.tolist()
    assert row_digests(frame.replace({np.nan: None})).tolist() == digests.tolist()
    dates = pd.DataFrame({"a": pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-01"])})
    assert groups(row_digests(dates)) == [0, 1, 0]


@pytest.mark.parametrize(
    "rows",
    [
        ["one text", "another", "one text"],
        pd.Series(["one text", "another", "one text"]),
        [{"a": 1, "b": 2}, {"a": 1}, {"b": 2.0, "a": 1}],
        [[1, 2], [1], [1, 2.0]],
        np.array(["one \udcff", "another", "one \udcff"]),
    ],
)
def test_rows_that_are_no_numbers(rows):
    assert groups(row_digests(rows)) == [0, 1, 0]


def test_rows_of_no_entries():
    assert len(row_digests(np.empty((0, 3)))) == len(row_digests(sp.csr_array((0, 3)))) == 0
    assert groups(row_digests(sp.csr_array((2, 3)))) == [0, 0]


def test_pairs_use_each_place_once():
    assert pair_up(np.array([5, 3, 5, 7]), np.array([7, 5, 4, 5, 5])).tolist() == [1, -1, 3, 0]
    assert pair_up(np.array([0, 0]), np.array([0])).tolist() == [0, -1]
    one, two = number_digests(row_digests(ROWS), row_digests(ROWS[[4, 0]]))
    assert two.tolist() == [one[4], one[0]]
    assert one[0] == one[2]


@pytest.mark.parametrize(
    "make", [list, np.array, pd.DataFrame, sp.csr_matrix, pl.from_dicts, pa.Table.from_pylist]
)
def test_stacked_rows_are_those_above_and_those_below(make):
    rows = [{"a": 1, "b": 0}, {"a": 2, "b": 5}, {"a": 3, "b": 7}]
    given = rows if make in (pl.from_dicts, pa.Table.from_pylist) else [list(row.values()) for row in rows]
    stacked = stack_rows(make(given[:1]), make(given[1:]))
    assert type(stacked) is type(make(given))
    np.testing.assert_array_equal(row_digests(stacked), row_digests(make(given)))
