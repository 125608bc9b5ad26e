"""From columns of Arrow to what a detector takes, without the rows it cannot take."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from transcendent.arrays import AnyArray, BoolArray, take_rows
from transcendent.extras import extra

_VALUES_AT_ONCE = 1 << 21
_FEWEST_ROWS, _MOST_ROWS = 1 << 4, 1 << 16

REASONS = (
    "",
    "a value is missing",
    "a value is NaN or infinite",
    "a column index is out of range",
    "a column index occurs twice",
    "columns and values differ in number",
)
_MISSING, _NOT_FINITE, _OUT_OF_RANGE, _TWICE, _UNEQUAL = range(1, len(REASONS))


@dataclass(frozen=True)
class Layout:
    """Which columns of a table hold the features, and what the detector expects of them.

    Attributes
    ----------
    columns : tuple of str
        One feature each, or one column that holds whole rows.
    whole : bool
        Whether it does: lists of fixed size, text, or lists of the columns that are not zero.
    values : str or None
        Lists of what is in those columns, instead of ones.
    width : int or None
        How many features the detector takes.
    named : bool
        Whether it was fitted on a frame, and is to be given one.
    allow_nan : bool
        Whether it takes missing values.
    """

    columns: tuple[str, ...]
    whole: bool
    values: str | None
    width: int | None
    named: bool
    allow_nan: bool

    def to_read(self) -> list[str]:
        """The columns that are needed."""
        return [*self.columns, *([self.values] if self.values else [])]

    def rows_at_once(self, group: Any) -> int:
        """So many that what is made of them takes some tens of megabytes, judged by one row group."""
        wanted = set(self.to_read())
        columns = map(group.column, range(group.num_columns))
        entries = sum(column.num_values for column in columns if _is_of(column.path_in_schema, wanted))
        per_row = max(1, entries // group.num_rows)
        return int(np.clip(_VALUES_AT_ONCE // per_row, _FEWEST_ROWS, _MOST_ROWS))

    def rows(self, batch: Any) -> tuple[Any, AnyArray]:
        """The rows the detector can take, and for each of the batch the position of a reason, 0 if none."""
        arrow = extra("pyarrow", "dask")
        faults = np.zeros(batch.num_rows, dtype=np.int8)
        if self.whole or not self.allow_nan:
            for name in self.to_read():
                column = batch.column(name)
                if column.null_count:
                    _mark(faults, _MISSING, column.is_null().to_numpy(zero_copy_only=False))
        sparse = self.whole and _holds_lists(batch.column(self.columns[0]))
        in_order = sparse and self._check_lists(batch, faults)
        if faults.any():
            batch = batch.filter(arrow.array(faults == 0))
        X = self._sparse(batch, in_order) if sparse else self._dense(batch)
        if not self.allow_nan and (undefined := _undefined_rows(X)) is not None:
            _mark(faults, _NOT_FINITE, undefined)
            X = take_rows(X, np.flatnonzero(~undefined))
        return X, faults

    def _dense(self, batch: Any) -> Any:
        if self.whole:
            column = batch.column(self.columns[0])
            if not extra("pyarrow", "dask").types.is_fixed_size_list(column.type):
                return column.to_numpy(zero_copy_only=False)
            flat = column.flatten().to_numpy(zero_copy_only=False)
            return flat.reshape(batch.num_rows, column.type.list_size)
        if self.named:
            return batch.select(list(self.columns)).to_pandas()
        chosen = [batch.column(name) for name in self.columns]
        narrow = all(column.type == extra("pyarrow", "dask").float32() for column in chosen)
        by_column = np.empty((len(chosen), batch.num_rows), dtype=np.float32 if narrow else np.float64)
        for into, column in zip(by_column, chosen, strict=True):
            into[:] = column.to_numpy(zero_copy_only=False)  # what is missing becomes NaN
        return by_column.T

    def _sparse(self, batch: Any, in_order: bool) -> Any:
        indices, indptr = _flat(batch.column(self.columns[0]))
        data = np.ones(len(indices)) if self.values is None else _flat(batch.column(self.values))[0]
        X = sp.csr_matrix(
            (np.asarray(data, dtype=np.float64), indices, indptr), shape=(batch.num_rows, self.width)
        )
        if not in_order:
            X = X.sorted_indices()
        X.has_canonical_format = True
        return X

    def _check_lists(self, batch: Any, faults: AnyArray) -> bool:
        """Note what is wrong with sparse rows; whether the indices of all of them are in order."""
        indices, indptr = _flat(batch.column(self.columns[0]), faults)
        if len(indices) and (indices.min() < 0 or indices.max() >= self.width):
            outside = (indices < 0) | (indices >= self.width)
            _mark(faults, _OUT_OF_RANGE, _have_any(outside, indptr))
        in_order = _ascend(indices, indptr)
        if not in_order:
            _mark(faults, _TWICE, _repeat(indices, indptr))
        if self.values is not None:
            ends = _flat(batch.column(self.values), faults)[1]
            _mark(faults, _UNEQUAL, np.diff(ends) != np.diff(indptr))
        return in_order


def _is_of(path: str, wanted: set[str]) -> bool:
    """Whether a leaf of the schema belongs to one of the columns, in whose names there may be dots."""
    return path in wanted or any(path[:i] in wanted for i, c in enumerate(path) if c == ".")


def _holds_lists(column: Any) -> bool:
    types = extra("pyarrow", "dask").types
    return bool(types.is_list(column.type) or types.is_large_list(column.type))


def _flat(column: Any, faults: AnyArray | None = None) -> tuple[AnyArray, AnyArray]:
    """All entries of a column of lists, and where the list of each row ends; missing entries are faults."""
    offsets = column.offsets.to_numpy()
    entries = column.values.slice(offsets[0], offsets[-1] - offsets[0])
    indptr = offsets - offsets[0]
    if faults is not None and entries.null_count:
        _mark(faults, _MISSING, _have_any(entries.is_null().to_numpy(zero_copy_only=False), indptr))
        entries = entries.fill_null(0)
    return entries.to_numpy(zero_copy_only=False), indptr


def _mark(faults: AnyArray, reason: int, wrong: BoolArray) -> None:
    """Note a reason for some of the rows that have none yet, of which ``wrong`` may be told alone."""
    rows = np.arange(len(faults)) if len(wrong) == len(faults) else np.flatnonzero(faults == 0)
    rows = rows[wrong]
    faults[rows[faults[rows] == 0]] = reason


def _have_any(entries: BoolArray, indptr: AnyArray) -> BoolArray:
    """Which rows have an entry that is True."""
    counts = np.concatenate([[0], np.cumsum(entries)])
    some: BoolArray = counts[indptr[1:]] > counts[indptr[:-1]]
    return some


def _ascend(indices: AnyArray, indptr: AnyArray) -> bool:
    """Whether the indices of every row ascend, none twice."""
    steps = indices[1:] > indices[:-1]
    starts = indptr[1:-1]
    steps[starts[(starts > 0) & (starts < len(indices))] - 1] = True
    return bool(steps.all())


def _repeat(indices: AnyArray, indptr: AnyArray) -> BoolArray:
    """Which rows have an index twice."""
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    order = np.lexsort((indices, rows))
    same = (indices[order][1:] == indices[order][:-1]) & (rows[order][1:] == rows[order][:-1])
    found = np.zeros(len(indptr) - 1, dtype=bool)
    found[rows[order][1:][same]] = True
    return found


def _undefined_rows(X: Any) -> BoolArray | None:
    """Which rows have a value that is NaN or infinite; None if none has, or there are no numbers."""
    if hasattr(X, "columns"):
        X = X.select_dtypes("float").to_numpy()
    values = X.data if sp.issparse(X) else X
    with np.errstate(over="ignore"):
        if values.dtype.kind != "f" or np.isfinite(np.sum(values, dtype=np.float64)):
            return None  # the sum is finite only if all are
    undefined = ~np.isfinite(values)
    if not undefined.any():
        return None
    return _have_any(undefined, X.indptr) if sp.issparse(X) else undefined.any(axis=1)
