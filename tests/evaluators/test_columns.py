"""The types and ranges of the columns of a fit."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from transcendent.evaluators import columns
from transcendent.evaluators.columns import FittedColumns

COLUMNS = {
    "whole": ([3, 1, 2], "number", "int64"),
    "share": ([0.5, np.nan, -2.0], "number", "float64"),
    "small": (np.array([1, 2, 3], dtype=np.float32), "number", "float32"),
    "nullable": (pd.array([1, None, 5], dtype="Int64"), "number", "float64"),
    "signed": ([True, False, True], "boolean", "bool"),
    "packed": (pd.Series([True, None, False], dtype=object), "boolean", "object|None"),
    "family": (pd.Series(["a", None, "b"], dtype=object), "text", "object|None"),
    "other": (pd.Series(["a", np.nan, "b"], dtype=object), "text", "object"),
    "coded": (pd.Categorical(["x", None, "y"]), "text", "category"),
    "string": (pd.array(["x", None, "y"], dtype="string"), "text", "string"),
    "day": (pd.to_datetime(["2026-01-01"] * 3), "other", None),
    "codes": (pd.Categorical([1, 2, 1]), "other", None),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_the_kind_and_type_of_a_column(name):
    values, kind, dtype = COLUMNS[name]
    found = FittedColumns.of(pd.DataFrame({name: values}))
    assert found.kinds == [kind]
    assert dtype is None or found.dtypes == [dtype]


def test_ranges_ignore_missing_values_and_text():
    frame = pd.DataFrame({"a": [1.0, np.nan, -3.0], "b": ["x", "y", "z"], "c": [np.nan] * 3})
    found = FittedColumns.of(frame)
    np.testing.assert_array_equal(found.low, [-3, np.nan, np.nan])
    np.testing.assert_array_equal(found.high, [1, np.nan, np.nan])
    dense = np.array([[1.0, 5.0], [2.0, np.nan]])
    assert (FittedColumns.of(dense).low.tolist(), FittedColumns.of(dense.tolist()).high.tolist()) == (
        [1, 5],
        [2, 5],
    )
    sparse = FittedColumns.of(sp.csr_matrix([[1.0, 0.0], [2.0, -1.0]]))
    assert (sparse.low.tolist(), sparse.high.tolist()) == ([0, -1], [2, 0])


def test_other_frames_have_types_too_and_texts_have_none():
    columns = {"a": [1, 2], "b": ["x", None], "c": [True, False]}
    for frame in (pl.DataFrame(columns), pa.table(columns)):
        assert FittedColumns.of(frame).kinds == ["number", "text", "boolean"]
    for rows in (["a text", "another"], np.array([["a", 1]], dtype=object)):
        assert FittedColumns.of(rows) is None


def test_means_and_deviations_are_those_of_finite_numbers(monkeypatch):
    monkeypatch.setattr(columns, "_MAX_CELLS", 100)
    rng = np.random.default_rng(0)
    dense = rng.normal(5, 2, (300, 4)) * (rng.random((300, 4)) < 0.5)
    known = dense.copy()
    dense[3, 1], known[3, 1] = np.inf, np.nan
    dense[4:9, 2] = known[4:9, 2] = np.nan
    framed = pd.DataFrame(dense, columns=list("abcd"))
    forms = [dense, dense.astype(np.float32), framed, sp.csr_matrix(dense), framed.assign(kind="exe")]
    for rows in forms:
        found = FittedColumns.of(rows)
        np.testing.assert_allclose(found.mean[:4], np.nanmean(known, axis=0), rtol=1e-6)
        np.testing.assert_allclose(found.deviation[:4], np.nanstd(known, axis=0), rtol=1e-6)
    assert np.isnan(found.mean[4])
    huge = FittedColumns.of(np.array([[1e308], [1e308], [-1.0]]))
    assert not np.isfinite(huge.mean[0])
