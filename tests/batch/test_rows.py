"""Rows from Arrow, set against a loop over Python lists."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from transcendent.batch.rows import REASONS, ArrowRows
from transcendent.tables.layout import Layout

WIDTH = 6
SPARSE = ArrowRows(Layout(WIDTH), ("x",), whole=True)
WITH_VALUES = ArrowRows(Layout(WIDTH), ("x",), whole=True, values="v")

indices = st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(-1, WIDTH)), max_size=5))
numbers = st.one_of(st.none(), st.just(float("nan")), st.just(float("inf")), st.floats(-5, 5))
values = st.one_of(st.none(), st.lists(numbers, max_size=5))


def fault_of(row, beside=()):
    """What is wrong with a sparse row, the first that applies."""
    if row is None or beside is None or None in row:
        return 1
    if any(not 0 <= i < WIDTH for i in row):
        return 2
    if len(set(row)) < len(row):
        return 3
    return 4 if beside != () and len(beside) != len(row) else 0


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
    missing, outside, twice, unequal, nameless = REASONS[1:]
    assert [REASONS[f] for f in faults] == ["", missing, missing, outside, outside, twice, ""]
    beside = pa.array([[1.0, np.nan], [1.0], [1.0]], pa.list_(pa.float64()))
    batch = pa.record_batch({"x": pa.array([[0, 1], [0, 1], [0]], pa.list_(pa.int32())), "v": beside})
    X, faults = WITH_VALUES.rows(batch)
    assert [REASONS[f] for f in faults] == ["", unequal, ""]
    np.testing.assert_array_equal(X.toarray()[:, :2], [[1.0, np.nan], [1.0, 0.0]])
    _, faults = WITH_VALUES.rows(batch.append_column("id", pa.array(["a", "b", None])), identifier="id")
    assert [REASONS[f] for f in faults] == ["", unequal, nameless]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, bool])
def test_columns_become_an_array(dtype):
    rng = np.random.default_rng(0)
    wanted = rng.integers(0, 2, (50, 3)).astype(dtype)
    batch = pa.record_batch({f"x{j}": wanted[:, j] for j in range(3)})
    X, faults = ArrowRows(Layout(3), ("x0", "x1", "x2")).rows(batch)
    np.testing.assert_array_equal(X, wanted)
    assert X.dtype == (np.float32 if dtype == np.float32 else np.float64)
    assert not faults.any()


@pytest.mark.parametrize("kind", ["columns", "vectors", "frame"])
def test_missing_and_infinite_values_are_left_to_the_detector(kind):
    rows = [[1.0, 2.0], [None, 2.0], [np.nan, 1.0], [np.inf, 1.0], [3.0, 4.0]]
    arrays = [pa.array(column) for column in zip(*rows, strict=True)]
    if kind == "vectors":
        flat = pa.array([value for row in rows for value in row])
        batch = pa.record_batch({"x": pa.FixedSizeListArray.from_arrays(flat, 2)})
        layout = ArrowRows(Layout(2), ("x",), whole=True)
    else:
        batch = pa.record_batch({"a": arrays[0], "b": arrays[1]})
        layout = ArrowRows(Layout(2, ("a", "b") if kind == "frame" else None), ("a", "b"))
    X, faults = layout.rows(batch)
    assert isinstance(X, pd.DataFrame) == (kind == "frame")
    assert not faults.any()
    np.testing.assert_array_equal(X, np.array(rows, dtype=float))


@pytest.mark.parametrize("dtype", [pa.int16(), pa.bool_()])
@pytest.mark.parametrize("whole", [False, True])
def test_what_is_missing_among_whole_numbers_becomes_nan(dtype, whole):
    column = pa.array([1, None, 0], pa.int16()).cast(dtype)
    batch = pa.record_batch({"x": pa.FixedSizeListArray.from_arrays(column, 1) if whole else column})
    X, faults = ArrowRows(Layout(1), ("x",), whole=whole).rows(batch)
    np.testing.assert_array_equal(X, [[1.0], [np.nan], [0.0]])
    assert not faults.any()


def test_frames_have_the_types_of_the_whole_file(tmp_path):
    """Pandas reads whole numbers as floats, and booleans as objects, if one of them is missing."""
    columns = {
        "gap": pa.array([1, 2, None], pa.int16()),
        "yes": pa.array([True, False, None]),
        "whole": pa.array([1, 2, 3], pa.int16()),
        "half": pa.array([0.5, 1.0, None], pa.float32()),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=2)
    frame = pd.read_parquet(tmp_path / "t.parquet")
    layout = ArrowRows(Layout(4, list(columns)), tuple(columns))
    with pq.ParquetFile(tmp_path / "t.parquet") as file:
        with_nulls = layout.columns_with_nulls(file.metadata)
        batches = list(file.iter_batches(2))
    assert with_nulls == {"gap", "yes"}
    for start, batch in zip((0, 2), batches, strict=True):
        pd.testing.assert_frame_equal(
            layout.rows(batch, with_nulls)[0], frame[start : start + 2].reset_index(drop=True)
        )


def test_a_feature_may_have_been_the_index_of_a_frame(tmp_path):
    frame = pd.DataFrame({"a": [1.5, 2.5], "b": [3.0, 4.0]})
    frame.set_index("a").to_parquet(tmp_path / "t.parquet")
    (batch,) = pq.ParquetFile(tmp_path / "t.parquet").iter_batches()
    X, _ = ArrowRows(Layout(2, ("a", "b")), ("a", "b")).rows(batch)
    pd.testing.assert_frame_equal(X, frame)


def test_missing_vectors_are_faults_even_where_nan_is_taken():
    batch = pa.record_batch({"x": pa.array([[1.0, 2.0], None, [3.0, None]], pa.list_(pa.float64(), 2))})
    X, faults = ArrowRows(Layout(2), ("x",), whole=True).rows(batch.slice(1))
    assert faults.tolist() == [1, 0]
    np.testing.assert_array_equal(X, [[3.0, np.nan]])


def test_text():
    batch = pa.record_batch({"mail": ["buy now", None, "hello"]})
    X, faults = ArrowRows(Layout(0), ("mail",), whole=True).rows(batch)
    assert X.tolist() == ["buy now", "hello"]
    assert faults.tolist() == [0, 1, 0]


def test_fewer_rows_at_once_the_longer_they_are(tmp_path):
    def rows_at_once(length):
        lists = pa.array([list(range(length))] * 9, pa.list_(pa.int32()))
        pq.write_table(pa.table({"x": lists, "other": range(9)}), tmp_path / "t.parquet")
        return SPARSE.rows_at_once(pq.read_metadata(tmp_path / "t.parquet").row_group(0))

    assert rows_at_once(1) == 1 << 16
    assert rows_at_once(1000) == (1 << 21) // 1000
    assert rows_at_once(1_000_000) == 1 << 4
    dotted = ArrowRows(Layout(2), ("a.b", "a.c"))
    pq.write_table(pa.table({"a.b": range(9), "a.c": range(9), "a": range(9)}), tmp_path / "t.parquet")
    group = pq.read_metadata(tmp_path / "t.parquet").row_group(0)
    assert dotted.rows_at_once(group) == 1 << 16
    wide = {f"v.{j}": np.zeros(3) for j in range(1 << 10)}
    pq.write_table(pa.table(wide), tmp_path / "t.parquet")
    group = pq.read_metadata(tmp_path / "t.parquet").row_group(0)
    assert ArrowRows(Layout(1 << 10), tuple(wide)).rows_at_once(group) == 1 << 11
