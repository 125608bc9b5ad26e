"""Bad cells, found in rows of every form."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from transcendent._utils.cells import (
    are_infinite,
    are_missing,
    are_not_numbers,
    as_number,
    column_in_words,
    find_cells,
)

ROWS = np.array([[0, np.nan, 2], [np.inf, 4, np.nan], [6, 7, -np.inf], [9, 1e39, 11]])
FORMS = {
    "array": lambda rows: rows,
    "single precision": lambda rows: np.clip(
        rows, -1e38, 1e38, where=np.isfinite(rows), out=rows.copy()
    ).astype(np.float32),
    "lists": lambda rows: rows.tolist(),
    "objects": lambda rows: rows.astype(object),
    "csr": sp.csr_matrix,
    "csc": sp.csc_array,
    "pandas": lambda rows: pd.DataFrame(rows, columns=list("abc")),
    "polars": lambda rows: pl.DataFrame(rows, schema=list("abc")),
    "arrow": lambda rows: pa.table({name: rows[:, j] for j, name in enumerate("abc")}),
}


def found(X, are_bad):
    rows, columns = find_cells(X, are_bad)
    return [*zip(rows.tolist(), columns.tolist(), strict=True)]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_bad_cells_are_found_row_by_row(form):
    X = form(ROWS)
    assert found(X, are_missing) == [(0, 1), (1, 2)]
    assert found(X, are_infinite) == [(1, 0), (2, 2)]
    assert found(X, are_not_numbers) == []


def test_too_large_for_a_type():
    assert found(ROWS, lambda values: are_infinite(values, "float32")) == [(1, 0), (2, 2), (3, 1)]


def test_cells_that_are_no_numbers():
    cells = np.array([[1, "1e1", " 7 "], [None, "seven", pd.NA], ["nan", 10**400, [1]]], dtype=object)
    assert found(cells, are_not_numbers) == [(1, 1), (1, 2), (2, 2)]
    assert found(cells, are_missing) == [(1, 0), (1, 2), (2, 0)]
    assert found(cells, are_infinite) == [(2, 1)]
    assert as_number("1_0") == 10
    assert as_number("ten") is None


@pytest.mark.parametrize(
    "X", [["a text"], np.array(["nan", "b"]), pd.DataFrame(index=[0, 1]), np.empty((0, 3))]
)
def test_rows_without_cells_have_no_bad_ones(X):
    assert found(X, are_missing) == []


def test_columns_in_words():
    assert column_in_words(1, ["a", "b"]) == "1 ('b')"
    assert column_in_words(1, None) == "1"
    assert len(column_in_words(0, ["a" * 1000])) < 90
