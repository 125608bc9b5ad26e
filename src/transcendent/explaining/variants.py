"""Rows of any kind: their usual values, and copies of one row with some values replaced."""

from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import (
    AnyArray,
    FloatArray,
    IntArray,
    column_names,
    count_rows,
    is_missing,
    missing_rows,
    stack_rows,
    take_column,
)


def has_columns(X: Any) -> bool:
    """Return whether rows have columns whose values can be replaced; texts have none."""
    return sp.issparse(X) or column_names(X) is not None or (isinstance(X, np.ndarray) and X.ndim == 2)


def numbers_of(X: Any) -> Any:
    """Return rows of numbers as an array or CSR; None if a column holds anything else."""
    if sp.issparse(X):
        return X
    if isinstance(X, np.ndarray):
        return X if X.dtype.kind in "biuf" else None
    columns = [take_column(X, j) for j in range(X.shape[1])]
    return np.column_stack(columns) if columns and all(c.dtype.kind in "biuf" for c in columns) else None


def usual_row(X: Any) -> Any:
    """Return one row with the lower median of each column of numbers, and the most common other value.

    Every value is one of the column's, so types stay as they are.
    """
    if sp.issparse(X):
        return _usual_sparse(X)
    places = np.array([_usual_place(take_column(X, j)) for j in range(X.shape[1])], dtype=np.intp)
    if isinstance(X, np.ndarray):
        return X[places, np.arange(X.shape[1])][None]
    return _assembled(X, [places[j : j + 1] for j in range(X.shape[1])])


def variants(row: Any, other: Any, groups: Sequence[IntArray]) -> Any:
    """Return a copy of ``row`` for each group of columns, with values of ``other`` in these columns."""
    if sp.issparse(row):
        return _sparse_variants(row, other, groups)
    if isinstance(row, np.ndarray):
        rows = np.repeat(row.astype(np.result_type(row, other)), len(groups), axis=0)
        for i, columns in enumerate(groups):
            rows[i, columns] = other[0, columns]
        return rows
    sources = np.zeros((row.shape[1], len(groups)), dtype=np.intp)
    for i, columns in enumerate(groups):
        sources[columns, i] = 1
    return _assembled(stack_rows(row, other), list(sources))


def differing(row: Any, other: Any) -> IntArray:
    """Return the columns in which two rows differ; missing values are equal to each other."""
    if sp.issparse(row):
        return np.unique((sp.csr_array(row) != sp.csr_array(other)).indices).astype(np.intp)
    mine, theirs = cells(row, 0), cells(other, 0)
    return np.array(
        [j for j, pair in enumerate(zip(mine, theirs, strict=True)) if differ(*pair)], dtype=np.intp
    )


def cells(X: Any, i: int) -> list[Any]:
    """Return the values of a row as plain values; None for missing ones."""
    if sp.issparse(X):
        return list(X[[i]].toarray()[0].tolist())
    return [plain(take_column(X, j)[i]) for j in range(X.shape[1])]


def cell(X: Any, i: int, j: int) -> Any:
    """Return a value of rows as a plain value; None if it is missing."""
    return plain(X[i, j] if sp.issparse(X) else take_column(X, j)[i])


def plain(value: Any) -> Any:
    """Return a value as a number, boolean or text of Python; None if it is missing."""
    if is_missing(value):
        return None
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, str | int | float) else str(value)


def differ(one: Any, other: Any) -> bool:
    """Return whether two plain values differ."""
    return bool(type(one) is not type(other) and (one is None or other is None)) or one != other


def dense_columns(X: Any, columns: IntArray) -> FloatArray:
    """Return some columns of rows of numbers as floats."""
    if sp.issparse(X):
        # Slicing rows of CSR by columns costs as much as there are columns: CSC is quicker for few.
        return np.asarray(sp.csc_array(X)[:, columns].toarray(), dtype=np.float64)
    return np.asarray(X[:, columns], dtype=np.float64)


def _usual_sparse(X: Any) -> Any:
    filled = np.bincount(X.indices, minlength=X.shape[1])
    columns = np.flatnonzero(filled > X.shape[0] / 2)  # the median of all others is 0
    values = np.sort(dense_columns(X, columns), axis=0)[(X.shape[0] - 1) // 2]
    entries = (values, (np.zeros(len(columns), dtype=np.intp), columns))
    return type(X)(sp.coo_array(entries, shape=(1, X.shape[1])))


def _usual_place(column: AnyArray) -> int:
    """Return the position of a usual value of a column."""
    missing = missing_rows(column)
    if column.dtype.kind in "biuf":
        known = len(column) - len(missing)
        order = np.argsort(column, kind="stable")  # NaN last
        return int(order[(known - 1) // 2] if known >= len(missing) else missing[0])
    texts = [None if is_missing(value) else value for value in column.tolist()]
    return texts.index(Counter(texts).most_common(1)[0][0])


def _sparse_variants(row: Any, other: Any, groups: Sequence[IntArray]) -> Any:
    parts = []
    for columns in groups:
        kept = ~np.isin(row.indices, columns)
        new = np.isin(other.indices, columns)
        indices = np.concatenate([row.indices[kept], other.indices[new]])
        data = np.concatenate([row.data[kept], other.data[new]])
        order = np.argsort(indices)
        parts.append((data[order], indices[order]))
    ends = np.cumsum([0, *(len(indices) for _, indices in parts)])
    data, indices = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    return type(row)((data, indices, ends), shape=(len(groups), row.shape[1]))


def _assembled(X: Any, sources: Sequence[IntArray]) -> Any:
    """Return a frame whose column j has the values of the rows ``sources[j]`` of column j of a frame."""
    library: Any = import_module(type(X).__module__.partition(".")[0])
    names = column_names(X) or []
    if hasattr(X, "iloc"):
        columns = [X.iloc[:, j].take(rows).reset_index(drop=True) for j, rows in enumerate(sources)]
        return library.concat(columns, axis=1)
    if hasattr(X, "column_names"):
        return library.table([X.column(j).take(rows) for j, rows in enumerate(sources)], names=names)
    return library.DataFrame([X.to_series(j).gather(rows) for j, rows in enumerate(sources)])


def as_rows(X: Any) -> Any:
    """Return lists of lists as an array; other rows unchanged."""
    if isinstance(X, list | tuple) and count_rows(X) and isinstance(X[0], list | tuple | np.ndarray):
        array = np.asarray(X)
        return array if array.dtype.kind in "biuf" else np.asarray(X, dtype=object)
    return X
