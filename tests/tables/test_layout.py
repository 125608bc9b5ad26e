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


def test_a_description_is_the_same_layout_again():
    names = ["size", "family"]
    typed = Layout(
        2, names, {"size": "number", "family": "text"}, {"size": "float32", "family": "object|None"}
    )
    for layout in (Layout(3), Layout(2, names), typed):
        assert Layout.described(layout.description()) == layout
    documents = Layout.described({"count": None, "names": None})
    assert Layout.described(documents.description()) == documents
    assert documents.rows(np.array([["a text"]], dtype=object)).tolist() == ["a text"]
    frame = typed.rows(np.array([[1, None], [2.5, "zeus"]], dtype=object))
    assert (frame["size"].dtype, frame["family"].tolist()) == (np.float32, [None, "zeus"])


def test_booleans_of_a_file_are_those_of_the_fit():
    names = ["signed", "packed", "family"]
    kinds, dtypes = ["boolean", "boolean", "text"], ["object", "bool", "object"]
    layout = Layout(3, names, dict(zip(names, kinds, strict=True)), dict(zip(names, dtypes, strict=True)))
    pure = pd.DataFrame({"signed": [True, False], "packed": [True, False], "family": ["zeus", None]})
    odd = pd.DataFrame(
        {"signed": ["True", "maybe"], "packed": ["false", None], "family": [None, "True"]}, index=[5, 6]
    )
    given = layout.as_fitted(pure)
    assert [dtype.kind for dtype in given.dtypes] == ["O", "b", "O"]
    assert given["signed"].tolist() == [True, False]
    assert np.isnan(given["family"][1])
    given = layout.as_fitted(odd)
    assert given["signed"].tolist() == [True, "maybe"]
    assert given["packed"][5] is False
    assert np.isnan(given["packed"][6])
    assert given["family"][6] == "True"


def test_a_column_of_booleans_with_gaps_holds_no_text():
    frame = pd.DataFrame({"gaps": [True, None, False], "beside": [True, "maybe", None], "none": [None] * 3})
    assert Layout.of(frame).text == ["beside", "none"]
