"""Objects whose labels are known, and their distances from a new one."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.covariance import LedoitWolf
from sklearn.preprocessing import normalize

from transcendent._utils.arrays import (
    AnyArray,
    BoolArray,
    FloatArray,
    IntArray,
    as_labels,
    canonical_rows,
    chunks,
    count_rows,
    is_missing,
    of_kind,
    take_column,
    take_rows,
)
from transcendent.explaining.variants import as_rows, has_columns, numbers_of, usual_row

_SAMPLE = 10_000
_CELLS = 1 << 22
_LEARNT, _LEAST, _WIDEST = 5_000, 20, 300
_SAVES = 0.8

TELLS_USUAL = 50
"""Least number of known objects whose medians are called usual: a few may all be of one campaign."""


class Neighbour(NamedTuple):
    """A known object near another: its position among the known objects, and what is known of it."""

    position: int
    id: Any
    label: Any
    time: str | None
    distance: float


@dataclass(frozen=True, eq=False)
class KnownObjects:
    """Objects whose labels are known, to compare others with.

    They stay in memory, and the first comparison prepares them once. Rows that `explain` compares with them
    must have the same columns.

    Attributes
    ----------
    X : array, sparse matrix or frame of n rows
        The features.
    labels : array of shape (n,)
        The labels.
    times, ids : arrays of shape (n,) or None
        When the objects were seen, and their names.

    Examples
    --------
    >>> from transcendent.explaining import KnownObjects
    >>> known = KnownObjects([[0, 1, 1], [1, 1, 0]], ["malware", "goodware"], ids=["a.apk", "b.apk"])
    >>> len(known), known.metric
    (2, 'Jaccard')
    """

    X: Any
    labels: Any
    times: Any = None
    ids: Any = None
    _seen: "tuple[Any, KnownObjects] | None" = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        X = canonical_rows(as_rows(self.X))
        if count_rows(X) == 0:
            raise ValueError("there are no known objects: X has 0 rows.")
        values = {"labels": as_labels(self.labels, "labels"), "times": self.times, "ids": self.ids}
        for name, column in values.items():
            array = None if column is None else np.asarray(column)
            if array is not None and array.shape != (count_rows(X),):
                raise ValueError(f"{name} of {count_rows(X)} known objects have shape {array.shape}.")
            object.__setattr__(self, name, array)
        object.__setattr__(self, "X", X)

    def __len__(self) -> int:
        return count_rows(self.X)

    @property
    def metric(self) -> str:
        """The distance between rows.

        ``"Jaccard"`` for rows of zeros and ones, ``"cosine"`` for other sparse rows. Otherwise
        ``"columns"``: the mean over columns of 0 for equal values, 1 for different ones; numbers differ by
        their difference relative to the range of the middle 90%, at most 1.
        """
        return self._prepared.metric

    @cached_property
    def tells_usual(self) -> bool:
        """Whether they show what is usual: at least 50 objects, of two classes or more."""
        return len(self) >= TELLS_USUAL and len(set(self.labels.tolist())) > 1

    @cached_property
    def usual(self) -> Any:
        """One row with the usual value of each column: its median, or most common value."""
        step = -(-len(self) // _SAMPLE)
        return usual_row(take_rows(self.X, np.arange(0, len(self), step)))

    def distances(self, row: Any) -> FloatArray:
        """Return the distance of every known object from a row, between 0 and 1."""
        return self._prepared.distances(row)

    def with_label(self, label: Any) -> IntArray:
        """Return the positions of the objects with a label."""
        return np.flatnonzero(self.labels == label)

    def without_copies(self, positions: IntArray) -> tuple[IntArray, IntArray]:
        """Return positions of rows that differ, and for each given position the one among them that is equal.

        Rows of other values than zeros and ones all count as different.
        """
        place = getattr(self._prepared, "place", None)
        if place is None:
            return positions, np.arange(len(positions))
        _, first, which = np.unique(place[positions], return_index=True, return_inverse=True)
        return positions[first], which

    def expectation(self, label: Any) -> "Expectation | None":
        """Return what is expected of the numbers of a label; None unless distances are by columns."""
        if isinstance(self._prepared, _CommonColumns):
            return None
        if label not in self._expectations:
            self._expectations[label] = Expectation.of(self._prepared, self.with_label(label))
        return self._expectations[label]

    def neighbour(self, position: int, distance: float) -> Neighbour:
        """Return what is known of one of the objects."""
        own_id = None if self.ids is None else self.ids[position]
        time = None if self.times is None or is_missing(self.times[position]) else self.times[position]
        return Neighbour(
            position=int(position),
            id=own_id.item() if isinstance(own_id, np.generic) else own_id,
            label=self.labels[[position]].tolist()[0],
            time=None if time is None else str(time).removesuffix("T00:00:00").removesuffix(" 00:00:00"),
            distance=float(distance),
        )

    def seen_through(self, transformer: Any) -> "KnownObjects":
        """Return the same objects with transformed rows, such as texts as counts of words."""
        if self._seen is None or self._seen[0] is not transformer:
            rows = KnownObjects(transformer.transform(self.X), self.labels, self.times, self.ids)
            object.__setattr__(self, "_seen", (transformer, rows))  # of the last transformer
        assert self._seen is not None
        return self._seen[1]

    def of_kind(self, *, sparse: bool) -> "KnownObjects":
        """Return the same objects with rows of numbers as a sparse matrix, or not."""
        return self if sp.issparse(self.X) == sparse else self._of_other_kind

    @cached_property
    def _of_other_kind(self) -> "KnownObjects":
        rows = of_kind(self.X, sparse=not sp.issparse(self.X))
        return KnownObjects(rows, self.labels, self.times, self.ids)

    @cached_property
    def _expectations(self) -> "dict[Any, Expectation]":
        return {}

    @cached_property
    def _prepared(self) -> "_CommonColumns | _ColumnByColumn":
        if not has_columns(self.X):
            raise ValueError("the known objects have no columns: pass rows of features, not texts.")
        numbers = numbers_of(self.X)
        binary = numbers is not None and _is_binary(numbers)
        if binary or sp.issparse(numbers):
            return _CommonColumns.of(numbers, binary)
        return _ColumnByColumn.of(self.X)


def nearest(distances: FloatArray, k: int) -> IntArray:
    """Return the positions of the k smallest distances, ascending; ties in order."""
    k = min(k, len(distances))
    if k == 0:
        return np.empty(0, dtype=np.intp)
    # A partition alone would choose among ties at random.
    candidates = np.flatnonzero(distances <= np.partition(distances, k - 1)[k - 1])
    return candidates[np.argsort(distances[candidates], kind="stable")[:k]]


def _is_binary(numbers: Any) -> bool:
    values = numbers.data if sp.issparse(numbers) else numbers
    return bool(np.all((values == 0) | (values == 1)))


@dataclass(frozen=True)
class _CommonColumns:
    """Jaccard distances of rows of zeros and ones, or cosine distances of other sparse rows.

    Equal rows of zeros and ones are kept once: row i is ``rows[place[i]]``.
    """

    metric: str
    rows: Any
    sizes: FloatArray
    place: IntArray | None

    @classmethod
    def of(cls, numbers: Any, binary: bool) -> "_CommonColumns":
        rows = cls._scaled(numbers, binary)
        first, place = _equal_rows(rows) if binary else (None, None)
        rows = rows if first is None else rows[first]
        sizes = np.asarray(rows.sum(axis=1), dtype=np.float64).ravel()
        return cls("Jaccard" if binary else "cosine", rows, sizes, place)

    @staticmethod
    def _scaled(numbers: Any, binary: bool) -> Any:
        csr = sp.csr_array(numbers)
        # Two bytes are read faster than four, and count to 32,767.
        ones = np.int16 if csr.shape[1] < 1 << 15 else np.float32
        return (csr != 0).astype(ones) if binary else normalize(csr.astype(np.float32))

    def distances(self, row: Any) -> FloatArray:
        own = self._scaled(numbers_of(row), self.metric == "Jaccard")
        shared = (self.rows @ own.toarray()[0]).astype(np.float64)
        if self.metric == "cosine":
            return np.asarray(np.clip(1.0 - shared, 0.0, 1.0))
        union = self.sizes + float(own.sum()) - shared
        found: FloatArray = (union - shared) / np.maximum(union, 1.0)
        return found if self.place is None else found[self.place]


def _equal_rows(rows: Any) -> tuple[IntArray | None, IntArray | None]:
    """Return the first of each set of equal rows of zeros and ones, and each row's position among them.

    Both are None if that saves little.
    """
    rows.sort_indices()
    weights = np.random.default_rng(0).integers(1, 1 << 62, rows.shape[1])
    sums = rows.astype(np.int64) @ weights  # modulo 2**64
    _, first, place = np.unique(sums, return_index=True, return_inverse=True)
    if len(first) > _SAVES * len(sums):
        return None, None
    same = rows[first[place]]
    equal = np.array_equal(same.indptr, rows.indptr) and np.array_equal(same.indices, rows.indices)
    return (first, place) if equal else (None, None)


@dataclass(frozen=True)
class _ColumnByColumn:
    """The mean over columns of how much two values differ, between 0 and 1."""

    numbers: FloatArray
    spread: FloatArray
    texts: list[AnyArray]
    codes: list[dict[Any, int]]
    are_numbers: BoolArray
    metric: str = "columns"

    @classmethod
    def of(cls, X: Any) -> "_ColumnByColumn":
        columns = [take_column(X, j) for j in range(X.shape[1])]
        are_numbers = np.array([column.dtype.kind in "biuf" for column in columns], dtype=bool)
        floats = [columns[j].astype(np.float64) for j in np.flatnonzero(are_numbers)]
        others = [_keys(columns[j]) for j in np.flatnonzero(~are_numbers)]
        numbers = np.column_stack([np.empty((count_rows(X), 0)), *floats])
        codes = [{key: code for code, key in enumerate(dict.fromkeys(keys))} for keys in others]
        texts = [np.array([own[k] for k in keys]) for keys, own in zip(others, codes, strict=True)]
        return cls(numbers, _spread(numbers), texts, codes, are_numbers)

    def numbers_of(self, rows: Any) -> FloatArray:
        """Return the columns of numbers, NaN for missing ones."""
        columns = [take_column(rows, j) for j in np.flatnonzero(self.are_numbers).tolist()]
        return np.column_stack([np.empty((count_rows(rows), 0)), *map(_as_floats, columns)])

    def distances(self, row: Any) -> FloatArray:
        own = self.numbers_of(row)[0]
        keys = [_keys(take_column(row, j))[0] for j in np.flatnonzero(~self.are_numbers).tolist()]
        total = np.zeros(len(self.numbers))
        for rows in chunks(len(total), max(1, _CELLS // max(1, len(own)))):
            total[rows] = _differences(self.numbers[rows], own, self.spread).sum(axis=1)
        for texts, codes, key in zip(self.texts, self.codes, keys, strict=True):
            total += texts != codes.get(key, -1)
        return total / len(self.are_numbers)


@dataclass(frozen=True)
class Expectation:
    """What is expected of numbers, given the other numbers of an object and its neighbours."""

    known: _ColumnByColumn
    are_binary: BoolArray
    mean: FloatArray
    deviation: FloatArray
    precision: FloatArray | None

    @classmethod
    def of(cls, known: _ColumnByColumn, rows: IntArray) -> "Expectation":
        """Learn from some of the known objects; from few, or of many columns, only mean and deviation."""
        numbers = known.numbers[rows[:: -(-len(rows) // _LEARNT)]] if len(rows) else known.numbers[:0]
        finite = np.where(np.isfinite(numbers), numbers, np.nan)
        counts = np.maximum(np.sum(~np.isnan(finite), axis=0), 1)
        mean = np.nansum(finite, axis=0) / counts
        centred = np.where(np.isnan(finite), 0.0, finite - mean)
        deviation = np.sqrt(np.sum(centred**2, axis=0) / counts)
        deviation = np.where(deviation > 0, deviation, known.spread)
        many = len(numbers) >= _LEAST and 1 < numbers.shape[1] <= _WIDEST and centred.any()
        scaled = centred / deviation
        are_binary = np.all((numbers == 0) | (numbers == 1) | np.isnan(numbers), axis=0)
        return cls(known, are_binary, mean, deviation, LedoitWolf().fit(scaled).precision_ if many else None)

    def deviations(self, row: Any, near: Any) -> dict[int, float]:
        """Return by how many standard deviations the numbers of a row are off, by column.

        This is the geometric mean of two distances: from the median of the neighbours, relative to their
        spread, and from what the other numbers of the row lead one to expect. Zeros and ones, and missing
        numbers, have none.
        """
        own, others = self.known.numbers_of(row)[0], self.known.numbers_of(near)
        others = np.where(np.isfinite(others), others, self.mean)
        there = np.isfinite(own)
        own = np.where(there, own, self.mean)
        # A tenth of the deviation is added, since neighbours may be equal in a column.
        spread = np.sqrt(others.var(axis=0) + (0.1 * self.deviation) ** 2)
        off = np.abs(own - np.median(others, axis=0)) / spread
        if self.precision is not None:
            residual = self.precision @ ((own - self.mean) / self.deviation)
            off = np.sqrt(off * np.abs(residual) / np.sqrt(np.diag(self.precision)))
        columns = np.flatnonzero(self.known.are_numbers)
        return {int(columns[j]): float(off[j]) for j in np.flatnonzero(there & ~self.are_binary)}


def _differences(numbers: FloatArray, own: FloatArray, spread: FloatArray) -> FloatArray:
    """Return how much each number differs; missing from known counts 1, missing from missing 0."""
    missing, without = np.isnan(numbers), np.isnan(own)
    with np.errstate(invalid="ignore", over="ignore"):
        far = np.minimum(np.abs(numbers - own) / spread, 1.0)
    return np.where(missing | without, (missing != without).astype(np.float64), far)


def _spread(numbers: FloatArray) -> FloatArray:
    """Return the range of the middle 90% of each column; if that is 0, of all; if that is 0, too, 1."""
    sample = numbers[:: -(-len(numbers) // _SAMPLE)]
    kept = np.where(np.isfinite(sample), sample, np.nan)
    spread = np.ones(numbers.shape[1])
    for j, column in enumerate(kept.T):
        known = column[~np.isnan(column)]
        low, first, last, high = np.quantile(known, [0, 0.05, 0.95, 1]) if len(known) else (0, 0, 0, 0)
        spread[j] = last - first or high - low or 1.0
    return spread


def _as_floats(column: AnyArray) -> FloatArray:
    if column.dtype.kind in "biuf":
        return column.astype(np.float64)
    return np.array([np.nan if is_missing(value) else float(value) for value in column.tolist()])


def _keys(column: AnyArray) -> list[Any]:
    """Return values to compare for equality; None for missing ones."""
    return [None if is_missing(value) else value for value in column.tolist()]
