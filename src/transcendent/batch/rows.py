"""Rows for a detector from Arrow columns."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import AnyArray, BoolArray
from transcendent._utils.extras import extra
from transcendent.batch.plan import Part, footer_digest
from transcendent.tables.layout import Layout, ascend

_VALUES_AT_ONCE = 1 << 21
_FEWEST_ROWS, _MOST_ROWS = 1 << 4, 1 << 16
_BYTES_AHEAD = 1 << 25
_WITHOUT_NAN = ("BOOLEAN", "INT32", "INT64")

REASONS = (
    "",
    "a value is missing",
    "a column index is out of range",
    "a column index occurs twice",
    "columns and values differ in number",
    "the id is missing",
)
_MISSING, _OUT_OF_RANGE, _TWICE, _UNEQUAL, _NAMELESS = range(1, len(REASONS))


@dataclass(frozen=True)
class ArrowRows:
    """Reads the rows of a layout from Arrow columns.

    ``columns`` hold one feature each. If ``whole``, there is one column, which holds whole rows: lists of
    fixed size, text, or lists of the positions that are not zero. ``values`` is then the column with lists of
    the values at these positions, instead of ones.
    """

    layout: Layout
    columns: tuple[str, ...]
    whole: bool = False
    values: str | None = None

    @property
    def framed(self) -> bool:
        """Whether rows are a data frame."""
        return self.layout.names is not None and not self.whole

    def to_read(self) -> list[str]:
        """Return the columns that hold the rows."""
        return [*self.columns, *([self.values] if self.values else [])]

    def batches(
        self, opened: Any, part: Part, identifier: str | None, *, ahead: bool = False
    ) -> Iterator[tuple[int, Any, Any, AnyArray]]:
        """Yield small batches of a part: the first row's number in the file, the batch, and its `rows`.

        With ``ahead``, pages are fetched together and while others are decided, tens of megabytes at a time.
        """
        _check_unchanged(opened, part)
        parquet = extra("pyarrow.parquet", "dask")
        with parquet.ParquetFile(opened, page_checksum_verification=True, pre_buffer=ahead) as file:
            columns = list(dict.fromkeys([*self.to_read(), *([identifier] if identifier else [])]))
            if missing := set(columns).difference(file.schema_arrow.names):
                raise ValueError(f"there is no column {min(missing)!r}.")
            row, metadata, groups = part.first_row, file.metadata, range(part.first, part.stop)
            with_nulls = self.columns_with_nulls(metadata)
            size = self.rows_at_once(next(filter(lambda g: g.num_rows, map(metadata.row_group, groups))))
            for some in _together(metadata, groups) if ahead else [groups]:
                for batch in file.iter_batches(size, row_groups=some, columns=columns, use_threads=False):
                    yield row, batch, *self.rows(batch, with_nulls, identifier)
                    row += batch.num_rows
        if row != part.first_row + part.rows:
            raise ValueError(f"the footer counts {part.rows:,} rows, but there are {row - part.first_row:,}.")
        _check_unchanged(opened, part)

    def rows_at_once(self, group: Any) -> int:
        """Return the number of rows whose arrays take tens of megabytes, estimated from one row group."""
        wanted = set(self.to_read())
        columns = map(group.column, range(group.num_columns))
        entries = sum(column.num_values for column in columns if _is_of(column.path_in_schema, wanted))
        per_row = max(1, entries // max(1, group.num_rows))
        return int(np.clip(_VALUES_AT_ONCE // per_row, _FEWEST_ROWS, _MOST_ROWS))

    def columns_with_nulls(self, metadata: Any) -> frozenset[str]:
        """Return the columns that pandas reads as another type because the file has nulls in them.

        With these, a frame of a few rows gets the same types as a frame of the whole file. Row groups without
        statistics count as having nulls.
        """
        if not self.framed or not metadata.num_row_groups:
            return frozenset()
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        columns, wanted = map(groups[0].column, range(metadata.num_columns)), set(self.columns)
        at = {
            j: column.path_in_schema
            for j, column in enumerate(columns)
            if column.path_in_schema in wanted and column.physical_type in _WITHOUT_NAN
        }
        return frozenset(name for j, name in at.items() if any(_may_have_nulls(g.column(j)) for g in groups))

    def rows(
        self, batch: Any, with_nulls: frozenset[str] = frozenset(), identifier: str | None = None
    ) -> tuple[Any, AnyArray]:
        """Return the rows to decide, and for each row of the batch its position in `REASONS`.

        Position 0 means that the row is to be decided. The others have no id, or cannot be put into an array.
        NaN, infinity and text are left to the detector, which may handle them.
        """
        faults = np.zeros(batch.num_rows, dtype=np.int8)
        if identifier is not None:
            nameless = batch.column(identifier).is_null(nan_is_null=True)
            _mark(faults, _NAMELESS, nameless.to_numpy(zero_copy_only=False))
        if self.whole:
            for name in self.to_read():
                column = batch.column(name)
                if column.null_count:
                    _mark(faults, _MISSING, column.is_null().to_numpy(zero_copy_only=False))
        sparse = self.whole and are_lists(batch.column(self.columns[0]).type)
        in_order = sparse and self._check_lists(batch, faults)
        if faults.any():
            batch = batch.filter(extra("pyarrow", "dask").array(faults == 0))
        if sparse:
            return self._sparse(batch, in_order), faults
        if self.whole:
            return self._vectors(batch.column(self.columns[0])), faults
        return self._frame(batch, with_nulls) if self.framed else self._array(batch), faults

    def _vectors(self, column: Any) -> AnyArray:
        """Return texts, or the rows of lists of fixed size."""
        if not extra("pyarrow", "dask").types.is_fixed_size_list(column.type):
            texts: AnyArray = column.to_numpy(zero_copy_only=False)
            return texts
        flat = column.flatten()
        values = flat.to_numpy(zero_copy_only=False).astype(_precision([flat.type]), copy=False)
        return np.reshape(values, (len(column), column.type.list_size))

    def _frame(self, batch: Any, with_nulls: frozenset[str]) -> Any:
        frame = batch.select(list(self.columns)).to_pandas()
        if tuple(frame.columns) != self.columns:  # pandas made the frame's index of a feature
            frame = frame.reset_index()[list(self.columns)]
        kinds = {name: frame[name].dtype for name in with_nulls}
        as_in_file = {
            name: object if kind.kind == "b" else np.float64
            for name, kind in kinds.items()
            if isinstance(kind, np.dtype) and kind.kind in "biu"
        }
        return frame.astype(as_in_file) if as_in_file else frame

    def _array(self, batch: Any) -> AnyArray:
        chosen = [batch.column(name) for name in self.columns]
        by_column = np.empty((len(chosen), batch.num_rows), _precision([column.type for column in chosen]))
        for into, column in zip(by_column, chosen, strict=True):
            into[:] = column.to_numpy(zero_copy_only=False)  # missing values become NaN
        return by_column.T

    def _sparse(self, batch: Any, in_order: bool) -> Any:
        indices, indptr = _flat(batch.column(self.columns[0]))
        data = np.ones(len(indices)) if self.values is None else _flat(batch.column(self.values))[0]
        X = sp.csr_matrix(
            (np.asarray(data, dtype=np.float64), indices, indptr), shape=(batch.num_rows, self.layout.width)
        )
        if not in_order:
            X = X.sorted_indices()
        X.has_canonical_format = True
        return X

    def _check_lists(self, batch: Any, faults: AnyArray) -> bool:
        """Mark faulty sparse rows, and return whether the indices of all rows are in order."""
        indices, indptr = _flat(batch.column(self.columns[0]), faults)
        if len(indices) and (indices.min() < 0 or indices.max() >= self.layout.width):
            outside = (indices < 0) | (indices >= self.layout.width)
            _mark(faults, _OUT_OF_RANGE, _have_any(outside, indptr))
        in_order = ascend(indices, indptr)
        if not in_order:
            _mark(faults, _TWICE, _repeat(indices, indptr))
        if self.values is not None:
            ends = _flat(batch.column(self.values))[1]
            _mark(faults, _UNEQUAL, np.diff(ends) != np.diff(indptr))
        return in_order


def _check_unchanged(opened: Any, part: Part) -> None:
    if footer_digest(opened) != part.file.footer:
        raise ValueError("the file has changed since the run began.")


def _is_of(path: str, wanted: set[str]) -> bool:
    """Return whether a leaf of the schema belongs to one of the columns; their names may contain dots."""
    return path in wanted or any(path[:i] in wanted for i, c in enumerate(path) if c == ".")


def _together(metadata: Any, groups: range) -> Iterator[list[int]]:
    """Yield runs of row groups, each of about as many bytes as are fetched at once, or one larger group."""
    some: list[int] = []
    size = 0
    for group in groups:
        size += metadata.row_group(group).total_byte_size
        some.append(group)
        if size >= _BYTES_AHEAD:
            yield some
            some, size = [], 0
    if some:
        yield some


def _may_have_nulls(column: Any) -> bool:
    statistics = column.statistics
    return statistics is None or not statistics.has_null_count or statistics.null_count > 0


def _precision(types: list[Any]) -> type[np.floating[Any]]:
    """Return the type of an array of these columns, which does not depend on their values."""
    return np.float32 if all(kind == extra("pyarrow", "dask").float32() for kind in types) else np.float64


def are_lists(kind: Any) -> bool:
    """Return whether an Arrow type is a list of any length."""
    types = extra("pyarrow", "dask").types
    return bool(types.is_list(kind) or types.is_large_list(kind))


def _flat(column: Any, faults: AnyArray | None = None) -> tuple[AnyArray, AnyArray]:
    """Return all entries of a column of lists, and the row boundaries; mark rows with missing entries."""
    offsets = column.offsets.to_numpy()
    entries = column.values.slice(offsets[0], offsets[-1] - offsets[0])
    indptr = offsets - offsets[0]
    if faults is not None and entries.null_count:
        _mark(faults, _MISSING, _have_any(entries.is_null().to_numpy(zero_copy_only=False), indptr))
        entries = entries.fill_null(0)
    return entries.to_numpy(zero_copy_only=False), indptr


def _mark(faults: AnyArray, reason: int, wrong: BoolArray) -> None:
    """Set the reason for rows that have none yet."""
    faults[wrong & (faults == 0)] = reason


def _have_any(entries: BoolArray, indptr: AnyArray) -> BoolArray:
    """Return which rows have an entry that is True."""
    counts = np.concatenate([[0], np.cumsum(entries)])
    some: BoolArray = counts[indptr[1:]] > counts[indptr[:-1]]
    return some


def _repeat(indices: AnyArray, indptr: AnyArray) -> BoolArray:
    """Return which rows have an index twice."""
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    order = np.lexsort((indices, rows))
    rows, indices = rows[order], indices[order]
    same = (indices[1:] == indices[:-1]) & (rows[1:] == rows[:-1])
    return np.isin(np.arange(len(indptr) - 1), rows[1:][same])
