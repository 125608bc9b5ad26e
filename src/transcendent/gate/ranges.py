"""Numbers far outside the range that the fit saw: a note in the answer, which changes no decision."""

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import AnyArray, FloatArray
from transcendent.evaluators.columns import FittedColumns
from transcendent.tables.layout import Layout

_MAX_NAMED = 5


class Ranges:
    """The ranges of the features in a fit, widened to each side; without them, nothing is outside.

    The later objects of any stream exceed some range a little, the more often the more features there are. So
    a range is widened by its own width.
    """

    def __init__(self, layout: Layout, columns: FittedColumns | None) -> None:
        self._names = layout.names
        self._low = self._high = np.full(layout.width, np.nan)
        if columns is not None and len(columns.low) == layout.width:
            self._low, self._high = _widened(columns.low, columns.high)
        numbers = np.array([layout.kinds.get(name, "number") == "number" for name in layout.names or ()])
        # Comparisons with NaN are False.
        self._numbers = np.flatnonzero(~np.isnan(self._low) & (numbers if len(numbers) else True))

    def outside(self, rows: Any) -> dict[int, list[Any]]:
        """Return the first features of each row that are outside, by name or position."""
        if not len(self._numbers):
            return {}
        found: dict[int, list[Any]] = {}
        for row, column in zip(*(each.tolist() for each in self._cells(rows)), strict=True):
            names = found.setdefault(row, [])
            if len(names) < _MAX_NAMED:
                names.append(column if self._names is None else self._names[column])
        return found

    def _cells(self, rows: Any) -> tuple[AnyArray, AnyArray]:
        """Return the rows and columns of numbers that are outside, row by row."""
        if not sp.issparse(rows):
            every = slice(None) if len(self._numbers) == len(self._low) else self._numbers
            few = rows.iloc[:, every] if hasattr(rows, "iloc") else rows[:, every]
            i, j = np.nonzero(self._are_outside(np.asarray(few, dtype=np.float64), every))
            return i, self._numbers[j]
        bad = np.flatnonzero(self._are_outside(rows.data, rows.indices))
        i, j = np.searchsorted(rows.indptr, bad, side="right") - 1, rows.indices[bad]
        if len(self._not_zero):  # zeros that are not stored
            k, absent = np.nonzero(rows[:, self._not_zero].toarray() == 0)
            i, j = np.append(i, k), np.append(j, self._not_zero[absent])
            order = np.lexsort((j, i))
            i, j = i[order], j[order]
        return i, j

    def _are_outside(self, numbers: FloatArray, columns: AnyArray | slice) -> AnyArray:
        return (numbers < self._low[columns]) | (numbers > self._high[columns])

    @cached_property
    def _not_zero(self) -> AnyArray:
        """The columns for which 0 is outside."""
        return np.flatnonzero((self._low > 0) | (self._high < 0))


def _widened(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return ranges widened by their width, or by its size if all numbers were the same, or by 1 around 0."""
    with np.errstate(over="ignore"):
        width = high - low
        width = np.where(width == 0, np.abs(high), width)
        width = np.where(width == 0, 1.0, width)
        return low - width, high + width
