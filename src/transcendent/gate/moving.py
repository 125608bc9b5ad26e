"""Features whose means have moved since the fit: sums of whole numbers, which add up exactly.

A value is taken relative to the mean of the fit, in units of a 1024th of its standard deviation, rounded.
Sums of these do not depend on the order of objects, nor on which process decided them.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, divide
from transcendent.decisions import Fitted
from transcendent.tables.layout import Layout

MAX_WATCHED = 512
_ONE_IN = 4
_FEW = 50  # columns of a frame
_STEPS = 1024  # in a standard deviation
_FARTHEST = float(1 << 20)  # steps: sums of 2^43 objects fit into 64 bits, those of a batch into a float
_LARGE = 1e300  # so that no mean overflows, which JSON could not say; NaN is not below it
_BEYOND_CHANCE = 4.5  # standard errors, which 512 features without drift exceed in 1 of 300 cases


class RowRange(NamedTuple):
    """Rows of a matrix or frame: every ``step``-th one from ``start`` to ``stop``."""

    rows: Any
    start: int
    stop: int
    step: int = 1

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(range(self.start, self.stop, self.step))

    @property
    def chosen(self) -> slice:
        """The rows, as a slice."""
        return slice(self.start, self.stop, self.step)

    @property
    def values(self) -> int:
        """The number of values to add up, about."""
        if sp.issparse(self.rows):
            return int(self.rows.indptr[self.stop] - self.rows.indptr[self.start]) // self.step
        return int(self.rows.shape[1]) * self.n

    def sample(self, name: str) -> "RowRange":
        """Return one row in four: which ones is drawn by a name, so that it is the same in every process."""
        first = zlib.crc32(name.encode(errors="replace")) % _ONE_IN
        return RowRange(self.rows, min(self.start + first, self.stop), self.stop, _ONE_IN)

    def entries(self) -> IntArray:
        """Return the positions of the entries of sparse rows."""
        starts, stops = (self.rows.indptr[self.start + i : self.stop + i : self.step] for i in (0, 1))
        lengths = stops - starts
        before = lengths.cumsum() - lengths
        return np.asarray(np.arange(lengths.sum()) + np.repeat(starts - before, lengths))


def parts_of(rows: Any, owners: IntArray) -> dict[int, RowRange]:
    """Return the rows of each owner; ``owners`` has an integer for each row, in ascending order."""
    if not len(owners):
        return {}
    if owners[0] == owners[-1]:
        return {int(owners[0]): RowRange(rows, 0, len(owners))}
    starts = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(owners)]
    return {int(owners[start]): RowRange(rows, start, stop) for start, stop in pairwise(starts)}


@dataclass(frozen=True)
class WatchedFeatures:
    """Features to compare with the fit: all of them, or those that vary most relative to their ranges.

    ``mean`` and ``deviation`` are those of the ``n_fit`` objects of the fit, ``width`` is the number of all
    features.
    """

    names: list[Any]
    positions: IntArray
    mean: FloatArray
    deviation: FloatArray
    width: int
    n_fit: int

    @classmethod
    def of(cls, layout: Layout, fitted: Fitted) -> "WatchedFeatures | None":
        """Return the features to watch, None if the artifact does not tell their means."""
        columns, n_fit = fitted.columns, fitted.n_rows
        if columns is None or columns.mean is None or len(columns.mean) != layout.width or not n_fit:
            return None
        mean, deviation = columns.mean, _not_zero(columns.deviation, columns.mean)
        numbers = np.array([layout.kinds.get(name, "number") == "number" for name in layout.names or ()])
        known = (np.abs(mean) < _LARGE) & (deviation < _LARGE) & (deviation > 1 / _LARGE)
        known &= numbers if len(numbers) else True
        positions = np.flatnonzero(known)
        if len(positions) > MAX_WATCHED:
            with np.errstate(over="ignore"):
                varies = divide(columns.deviation, columns.high - columns.low)
            order = np.argsort(-np.nan_to_num(varies[positions]), kind="stable")
            positions = np.sort(positions[order[:MAX_WATCHED]])
        if not len(positions):
            return None
        names = positions.tolist() if layout.names is None else [layout.names[j] for j in positions.tolist()]
        return cls(names, positions, mean[positions], deviation[positions], layout.width, n_fit)

    def sums(self, parts: Sequence[RowRange]) -> IntArray:
        """Return the number of rows in all parts, their sums by feature, and missing values by feature."""
        sparse = [part for part in parts if part.n and sp.issparse(part.rows)]
        dense = [part for part in parts if part.n and not sp.issparse(part.rows)]
        totals, missing = np.zeros((2, len(self.positions)))
        for some, add_up in ((sparse, self._sparse), (dense, self._dense)):
            if some:
                more, unknown = add_up(some)
                totals, missing = totals + more, missing + unknown
        n = sum(part.n for part in parts)
        return np.concatenate([[n], totals, missing]).astype(np.int64)

    def _dense(self, parts: Sequence[RowRange]) -> tuple[FloatArray, AnyArray]:
        values = np.concatenate(list(map(self._values, parts)), dtype=np.float64, casting="unsafe")
        steps = _rounded(values, self.mean, self._scale)
        totals: FloatArray = steps.sum(axis=0)
        if not np.isnan(totals).any():
            return totals, np.zeros(len(totals))
        unknown = np.isnan(steps)
        steps[unknown] = 0.0
        return steps.sum(axis=0), unknown.sum(axis=0)

    def _values(self, part: RowRange) -> AnyArray:
        """Return the watched features of dense rows."""
        rows, every = part.rows, len(self.positions) == self.width
        if hasattr(rows, "iloc"):
            if not every and self.width > _FEW:
                return np.asarray(rows.iloc[part.chosen, self.positions], dtype=np.float64)
            # A whole frame of numbers becomes an array ten times faster than some of its rows and columns,
            # and by to_numpy than by asarray. With text, it becomes objects: faster if there are few.
            rows = rows.to_numpy()
        values: AnyArray = rows[part.chosen]
        return values if every else values[:, self.positions]

    def _sparse(self, parts: Sequence[RowRange]) -> tuple[FloatArray, AnyArray]:
        """Add up the differences between what is stored and 0."""
        k, n = len(self.positions), sum(part.n for part in parts)
        pairs = [(each.rows, each.entries()) for each in parts]
        places = self._places[np.concatenate([rows.indices[entries] for rows, entries in pairs])]
        values = np.concatenate([rows.data[entries] for rows, entries in pairs], dtype=np.float64)
        if k < self.width:
            values, places = values[places >= 0], places[places >= 0]
        zero = _rounded(np.zeros(k), self.mean, self._scale)
        steps = _rounded(values, self.mean[places], self._scale[places])
        missing: AnyArray = np.zeros(k)
        if (unknown := np.isnan(steps)).any():
            missing = np.bincount(places[unknown], minlength=k)
            steps[unknown] = 0.0
        return np.bincount(places, steps - zero[places], minlength=k) + n * zero, missing

    @cached_property
    def _places(self) -> IntArray:
        """The place of each feature among those watched, -1 for others."""
        places = np.full(self.width, -1)
        places[self.positions] = np.arange(len(self.positions))
        return places

    @cached_property
    def _scale(self) -> FloatArray:
        return _STEPS / self.deviation

    def moved(self, sums: AnyArray, n: int = 10) -> list[dict[str, Any]]:
        """Return the features that moved beyond chance, the farthest first, or are missing now."""
        k = len(self.positions)
        if len(sums) != 1 + 2 * k or not sums[0]:
            return []
        known = sums[0] - sums[1 + k :]
        effect = divide(sums[1 : 1 + k], known * _STEPS)
        vanished = known == 0
        size = np.where(vanished, np.inf, np.abs(effect))
        is_moved = size > _BEYOND_CHANCE * np.sqrt(divide(np.ones(k), known) + 1 / self.n_fit)
        is_moved |= vanished
        order = [j for j in np.argsort(-size, kind="stable").tolist() if is_moved[j]][:n]
        return [
            {
                "feature": _as_text(self.names[j]),
                "moved": None if vanished[j] else round(float(effect[j]), 3),
                "fit": float(self.mean[j]),
                "now": None if vanished[j] else float(self.mean[j] + effect[j] * self.deviation[j]),
            }
            for j in order
        ]


def _rounded(values: FloatArray, mean: FloatArray, scale: FloatArray) -> FloatArray:
    """Change values to whole steps from the mean; NaN stays."""
    with np.errstate(over="ignore"):
        values -= mean
        values *= scale
    np.minimum(values, _FARTHEST, out=values)
    np.maximum(values, -_FARTHEST, out=values)
    return np.rint(values, out=values)


def _not_zero(deviation: FloatArray, mean: FloatArray) -> FloatArray:
    """Return deviations, with the size of the mean, or 1, for features that never varied."""
    size = np.where(mean == 0, 1.0, np.abs(mean))
    return np.where(deviation == 0, size, deviation)


def _as_text(name: Any) -> Any:
    """Return a name that PostgreSQL can store as JSON."""
    if type(name) is not str:
        return name
    return name.encode(errors="backslashreplace").decode().replace("\0", "")[:100]
