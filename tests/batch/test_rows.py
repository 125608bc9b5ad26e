"""Rows from Arrow, set against a loop over Python lists."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from transcendent.batch.rows import REASONS, Layout

WIDTH = 6
SPARSE = Layout(("x",), True, None, WIDTH, False, False)
WITH_VALUES = Layout(("x",), True, "v", WIDTH, False, False)

indices = st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(-1, WIDTH)), max_size=5))
numbers = st.one_of(st.none(), st.just(float("nan")), st.just(float("inf")), st.floats(-5, 5))
values = st.one_of(st.none(), st.lists(numbers, max_size=5))


def fault_of(row, beside=()):
    """What is wrong with a sparse row, the first that applies."""
    if row is None or beside is None or None in row or None in beside:
        return 1
    if any(not 0 <= i < WIDTH for i in row):
        return 3
    if len(set(row)) < len(row):
        return 4
    if beside != () and len(beside) != len(row):
        return 5
    return 0 if np.isfinite(list(beside)).all() else 2


def dense_of(row, beside):
    out = np.zeros(WIDTH)
    out[row] = beside
    return out


@given(st.lists(indices, min_size=1, max_size=20), st.integers(0, 5), st.booleans())
def test_sparse_rows_are_those_of_a_loop(rows, skip, large):
    kind = pa.large_list(pa.int64()) if large else pa.list_(pa.int32())
    batch = pa.record_batch({"x": pa.array([[0]] * skip + rows, kind)}).slice(skip)
    X, faults = SPARSE.rows(batch)
    assert [f > 0 for f in faults] == [fault_of(row) > 0 for row in rows]
    expected = [dense_of(row, 1.0) for row in rows if not fault_of(row)]
    assert X.shape == (len(expected), WIDTH)
    np.testing.assert_array_equal(X.toarray(), np.reshape(expected, (-1, WIDTH)))
    assert sp.csr_matrix(X.toarray()).nnz == X.nnz
    assert all(np.all(np.diff(X.indices[a:b]) > 0) for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True))


@given(st.lists(st.tuples(indices, values), min_size=1, max_size=20))
def test_values_go_with_their_columns(rows):
    first, second = (list(column) for column in zip(*rows, strict=True))
    batch = pa.record_batch(
        {"x": pa.array(first, pa.list_(pa.int32())), "v": pa.array(second, pa.list_(pa.float64()))}
    )
    X, faults = WITH_VALUES.rows(batch)
    expected = [fault_of(row, beside) for row, beside in rows]
    assert [f > 0 for f in faults] == [f > 0 for f in expected]
    dense = [dense_of(*pair) for pair, fault in zip(rows, expected, strict=True) if not fault]
    np.testing.assert_array_equal(X.toarray(), np.reshape(dense, (-1, WIDTH)))


def test_each_fault_has_its_reason():
    rows = [[0, 1], None, [0, None], [0, 6], [-1], [2, 2], [3, 1]]
    batch = pa.record_batch({"x": pa.array(rows, pa.list_(pa.int32()))})
    _, faults = SPARSE.rows(batch)
    missing, outside, twice = REASONS[1], REASONS[3], REASONS[4]
    assert [REASONS[f] for f in faults] == ["", missing, missing, outside, outside, twice, ""]
    beside = pa.array([[1.0, np.nan], [1.0], [1.0]], pa.list_(pa.float64()))
    batch = pa.record_batch({"x": pa.array([[0, 1], [0, 1], [0]], pa.list_(pa.int32())), "v": beside})
    X, faults = WITH_VALUES.rows(batch)
    assert [REASONS[f] for f in faults] == [REASONS[2], REASONS[5], ""]
    assert X.shape == (1, WIDTH)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, bool])
def test_columns_become_an_array(dtype):
    rng = np.random.default_rng(0)
    wanted = rng.integers(0, 2, (50, 3)).astype(dtype)
    batch = pa.record_batch({f"x{j}": wanted[:, j] for j in range(3)})
    X, faults = Layout(("x0", "x1", "x2"), False, None, 3, False, False).rows(batch)
    np.testing.assert_array_equal(X, wanted)
    assert X.dtype == (np.float32 if dtype == np.float32 else np.float64)
    assert not faults.any()


@pytest.mark.parametrize("allow_nan", [True, False])
@pytest.mark.parametrize("kind", ["columns", "vectors", "frame"])
def test_missing_and_infinite_values(kind, allow_nan):
    rows = [[1.0, 2.0], [None, 2.0], [np.nan, 1.0], [np.inf, 1.0], [3.0, 4.0]]
    arrays = [pa.array(column) for column in zip(*rows, strict=True)]
    if kind == "vectors":
        flat = pa.array([value for row in rows for value in row])
        batch = pa.record_batch({"x": pa.FixedSizeListArray.from_arrays(flat, 2)})
        layout = Layout(("x",), True, None, 2, False, allow_nan)
    else:
        batch = pa.record_batch({"a": arrays[0], "b": arrays[1]})
        layout = Layout(("a", "b"), False, None, 2, kind == "frame", allow_nan)
    X, faults = layout.rows(batch)
    assert isinstance(X, pd.DataFrame) == (kind == "frame")
    if allow_nan:
        assert not faults.any()
        np.testing.assert_array_equal(X, np.array(rows, dtype=float))
    else:
        assert [f > 0 for f in faults] == [False, True, True, True, False]
        np.testing.assert_array_equal(X, [[1.0, 2.0], [3.0, 4.0]])


def test_missing_vectors_are_faults_even_where_nan_is_taken():
    batch = pa.record_batch({"x": pa.array([[1.0, 2.0], None, [3.0, None]], pa.list_(pa.float64(), 2))})
    X, faults = Layout(("x",), True, None, 2, False, True).rows(batch.slice(1))
    assert faults.tolist() == [1, 0]
    np.testing.assert_array_equal(X, [[3.0, np.nan]])


def test_large_finite_values_are_no_faults():
    """Their sum overflows, which says nothing of them."""
    X = np.full((4, 2), 1e308)
    batch = pa.record_batch({"a": X[:, 0], "b": X[:, 1]})
    assert not Layout(("a", "b"), False, None, 2, False, False).rows(batch)[1].any()


def test_text():
    batch = pa.record_batch({"mail": ["buy now", None, "hello"]})
    X, faults = Layout(("mail",), True, None, None, False, False).rows(batch)
    assert X.tolist() == ["buy now", "hello"]
    assert faults.tolist() == [0, 1, 0]


def test_fewer_rows_at_once_the_longer_they_are(tmp_path):
    import pyarrow.parquet as pq

    def rows_at_once(length):
        lists = pa.array([list(range(length))] * 9, pa.list_(pa.int32()))
        pq.write_table(pa.table({"x": lists, "other": range(9)}), tmp_path / "t.parquet")
        return SPARSE.rows_at_once(pq.read_metadata(tmp_path / "t.parquet").row_group(0))

    assert rows_at_once(1) == 1 << 16
    assert rows_at_once(1000) == (1 << 21) // 1000
    assert rows_at_once(1_000_000) == 1 << 4
    dotted = Layout(("a.b", "a.c"), False, None, 2, False, False)
    pq.write_table(pa.table({"a.b": range(9), "a.c": range(9), "a": range(9)}), tmp_path / "t.parquet")
    group = pq.read_metadata(tmp_path / "t.parquet").row_group(0)
    assert dotted.rows_at_once(group) == 1 << 16
    wide = {f"v.{j}": np.zeros(3) for j in range(1 << 10)}
    pq.write_table(pa.table(wide), tmp_path / "t.parquet")
    group = pq.read_metadata(tmp_path / "t.parquet").row_group(0)
    assert Layout(tuple(wide), False, None, 1 << 10, False, False).rows_at_once(group) == 1 << 11
