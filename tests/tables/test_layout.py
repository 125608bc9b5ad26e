"""The columns of rows: numbers, text and booleans beside missing values."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

from transcendent.tables.layout import Layout


def test_cells_of_every_kind_become_a_frame():
    layout = Layout(4, ["size", "family", "signed", "packed"], {
        "family": "text", "signed": "boolean", "packed": "boolean",
    })  # fmt: skip
    cells = np.array([[1, "zeus", True, None], [None, None, False, True]], dtype=object)
    frame = layout.rows(cells)
    assert list(frame.columns) == layout.names
    assert frame["size"].dtype == np.float64
    np.testing.assert_array_equal(frame["size"], [1.0, np.nan])
    assert frame["family"].iloc[0] == "zeus"
    assert frame["family"].isna().tolist() == [False, True]
    assert frame["signed"].dtype == bool
    assert frame["packed"].tolist() == [None, True]
    with pytest.raises(ValueError, match="could not convert string to float: 'big'"):
        layout.rows(np.array([["big", "a", True, True]], dtype=object))


def test_numbers_are_an_array_or_a_frame():
    cells = np.arange(6.0).reshape(2, 3)
    assert Layout(3).rows(cells) is cells
    frame = Layout(3, list("abc")).rows(cells)
    pd.testing.assert_frame_equal(frame, pd.DataFrame(cells, columns=list("abc")))


def test_the_layout_of_rows():
    columns = {"a": [1, 2], "b": [True, False], "c": ["x", "y"], "d": [0.5, None]}
    frame = pd.DataFrame(columns)
    kinds = {"a": "number", "b": "boolean", "c": "text", "d": "number"}
    assert Layout.of(frame) == Layout(4, list("abcd"), kinds)
    assert Layout.of(frame).text == ["c"]
    assert Layout.of(frame.convert_dtypes()).kinds == kinds
    assert Layout.of(pl.DataFrame(columns)) == Layout(4, list("abcd"))
    for rows in (np.zeros((2, 3)), sp.csr_matrix((2, 3))):
        assert Layout.of(rows) == Layout(3)
    assert Layout.of(np.array(["a text", "another"])) == Layout(0)
