"""The columns of training rows: their types, ranges, means and standard deviations."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import (
    AnyArray,
    FloatArray,
    chunks,
    column_names,
    divide,
    is_missing,
    take_column,
)

_MAX_CELLS = 1 << 20
_TEXT_TYPES = ("str", "string", "category")


@dataclass(frozen=True)
class FittedColumns:
    """The columns that an evaluator was fitted on.

    Attributes
    ----------
    kinds : list of str
        ``"number"``, ``"boolean"``, ``"text"`` or ``"other"`` for each column of a frame; empty for others.
    dtypes : list of str
        The types of these columns; ``"object|None"`` if missing values are None instead of NaN.
    low, high : array of shape (columns,)
        The smallest and the largest number of each column, 0 included if rows are sparse; NaN if it has none.
    mean, deviation : array of shape (columns,) or None
        The mean and the standard deviation of the finite numbers of each column; NaN if it has none. None in
        artifacts that do not have them.
    """

    kinds: list[str]
    dtypes: list[str]
    low: FloatArray
    high: FloatArray
    mean: FloatArray | None = None
    deviation: FloatArray | None = None

    @classmethod
    def of(cls, X: Any) -> "FittedColumns | None":
        """Return the columns of rows, None if rows have no columns of known types, such as texts."""
        if sp.issparse(X):
            return cls([], [], *_sparse_range(X), *_sparse_moments(X))
        if column_names(X) is None:
            array = np.asarray(X) if isinstance(X, np.ndarray | list | tuple) else np.empty(0)
            numbers = array.ndim == 2 and array.dtype.kind in "biuf"
            return cls([], [], *_range(array), *_moments(array)) if numbers else None
        columns = [take_column(X, j) for j in range(X.shape[1])]
        types = [str(dtype) for dtype in X.dtypes] if hasattr(X, "iloc") else [""] * len(columns)
        kinds, dtypes = zip(*map(_kind_and_type, columns, types), strict=True) if columns else ((), ())
        rows = [_numbers(*each)[:, None] for each in zip(columns, kinds, strict=True)]
        found = [(*_range(each), *_moments(each)) for each in rows]
        ranges = (np.concatenate([np.empty(0), *(each[i] for each in found)]) for i in range(4))
        return cls(list(kinds), list(dtypes), *ranges)


def _kind_and_type(column: AnyArray, dtype: str) -> tuple[str, str]:
    """Return the kind of a column, and the type that its values are given again."""
    if column.dtype.kind == "b":
        return "boolean", "bool"
    if column.dtype.kind in "iuf":
        return ("other" if dtype == "category" else "number"), column.dtype.name
    cells = column.tolist() if column.dtype.kind in "OUT" else [column]
    missing = [cell for cell in cells if type(cell) is not str and is_missing(cell)] if len(cells) else []
    types = {type(cell) for cell in cells} - {type(cell) for cell in missing}
    marked = "object|None" if any(cell is None for cell in missing) else "object"
    if types <= {bool, np.bool_} and types:
        return "boolean", marked
    if types and all(issubclass(each, int | float | np.number) for each in types - {bool}):
        return ("other" if dtype == "category" else "number"), "float64"
    if types <= {str, np.str_}:
        return "text", dtype if dtype in _TEXT_TYPES else marked
    return "other", str(column.dtype)


def _numbers(column: AnyArray, kind: str) -> FloatArray:
    """Return the numbers of a column, NaN for other values."""
    if kind not in ("number", "boolean"):
        return np.full(len(column), np.nan)
    if column.dtype.kind != "O":
        return column.astype(np.float64)
    return np.array([np.nan if is_missing(cell) else float(cell) for cell in column], dtype=np.float64)


def _range(numbers: AnyArray) -> tuple[FloatArray, FloatArray]:
    values = numbers.astype(np.float64, copy=False)
    if not len(values):
        return np.full(values.shape[1], np.nan), np.full(values.shape[1], np.nan)
    return np.fmin.reduce(values), np.fmax.reduce(values)


def _moments(numbers: AnyArray) -> tuple[FloatArray, FloatArray]:
    mean = _mean(numbers, np.zeros(numbers.shape[1]), 1)
    return mean, np.sqrt(_mean(numbers, mean, 2))


def _mean(numbers: AnyArray, centre: FloatArray, power: int) -> FloatArray:
    """Return the mean of the powers of distances from a centre, of the finite numbers in each column."""
    n, total = np.zeros((2, len(centre)))
    for rows in chunks(len(numbers), max(1, _MAX_CELLS // max(len(centre), 1))):
        part = numbers[rows].astype(np.float64, copy=False)
        known = np.isfinite(part)
        n += known.sum(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            total += np.where(known, (part - centre) ** power, 0.0).sum(axis=0)
    return divide(total, n)


def _sparse_moments(X: Any) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation of each column, with the zeros that are not stored."""
    n, width = X.shape
    known = np.isfinite(X.data) if X.dtype.kind in "biuf" else np.zeros(len(X.data), dtype=bool)
    values, columns = X.data[known].astype(np.float64), X.indices[known]
    stored = np.bincount(columns, minlength=width)
    zeros = n - np.bincount(X.indices, minlength=width)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = divide(np.bincount(columns, values, minlength=width), stored + zeros)
        squares = np.bincount(columns, (values - mean[columns]) ** 2, minlength=width) + zeros * mean**2
        return mean, np.sqrt(divide(squares, stored + zeros))


def _sparse_range(X: Any) -> tuple[FloatArray, FloatArray]:
    low, high = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    if X.dtype.kind in "biuf":
        np.fmin.at(low, X.indices, X.data)
        np.fmax.at(high, X.indices, X.data)
    return low, high
