"""Counts of kept objects as a function of the thresholds, without touching the objects again."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from transcendent.arrays import AnyArray, FloatArray, IntArray


@dataclass(frozen=True)
class Tally:
    """The margins of confusion matrices, (..., classes) each: all that any metric here needs."""

    correct: IntArray
    actual: IntArray
    predicted: IntArray

    def __sub__(self, other: "Tally") -> "Tally":
        return Tally(
            self.correct - other.correct, self.actual - other.actual, self.predicted - other.predicted
        )


class Counts(Protocol):
    """What a search asks of a calibration set."""

    @property
    def total(self) -> Tally:
        """Margins of the whole calibration set."""
        ...

    @property
    def batch(self) -> int:
        """How many trials to ask for at once, so that memory stays bounded."""
        ...

    def kept(self, thresholds: FloatArray) -> Tally:
        """Margins of what (trials, values, classes) thresholds keep; an object at a threshold is kept."""
        ...


class CumulativeCounts:
    """One value per object (credibility or confidence): a trial costs one binary search per class.

    ``levels[c]`` are the distinct values of objects predicted c, ascending, and ``suffix[c][j]`` counts by
    true class those whose value is at least ``levels[c][j]``; the last row, all rejected, is zero.
    """

    def __init__(self, predicted: IntArray, actual: IntArray, values: FloatArray, n_classes: int) -> None:
        self.n_classes = n_classes
        self.levels: list[FloatArray] = []
        self.suffix: list[AnyArray] = []
        for c in range(n_classes):
            rows = np.flatnonzero(predicted == c)
            levels, suffix = _cumulate(values[rows], actual[rows], n_classes)
            self.levels.append(levels)
            self.suffix.append(suffix)
        self.total = margins(predicted, actual, n_classes)
        self.batch = max(1, (1 << 20) // n_classes)

    def kept(self, thresholds: FloatArray) -> Tally:
        """One row per trial of (trials, 1, classes) thresholds."""
        trials = len(thresholds)
        correct, actual, predicted = (np.zeros((trials, self.n_classes), dtype=np.intp) for _ in range(3))
        for c, (levels, suffix) in enumerate(zip(self.levels, self.suffix, strict=True)):
            kept = suffix[np.searchsorted(levels, thresholds[:, 0, c])]
            correct[:, c] = kept[:, c]
            predicted[:, c] = kept.sum(axis=1)
            actual += kept
        return Tally(correct, actual, predicted)


class JointCounts:
    """Two values per object, both thresholded: trials are counted together on the grid they span."""

    def __init__(self, predicted: IntArray, actual: IntArray, values: FloatArray, n_classes: int) -> None:
        self.n_classes = n_classes
        rows_of = [np.flatnonzero(predicted == c) for c in range(n_classes)]
        self.values = [values[rows] for rows in rows_of]
        self.actual = [actual[rows] for rows in rows_of]
        self.total = margins(predicted, actual, n_classes)
        self.batch = max(1, int(np.sqrt((1 << 22) / n_classes)))

    def kept(self, thresholds: FloatArray) -> Tally:
        """One row per trial of (trials, 2, classes) thresholds."""
        trials = len(thresholds)
        correct, actual, predicted = (np.zeros((trials, self.n_classes), dtype=np.intp) for _ in range(3))
        for c in range(self.n_classes):
            kept = self._kept_of_class(c, thresholds[:, :, c])
            correct[:, c] = kept[:, c]
            predicted[:, c] = kept.sum(axis=1)
            actual += kept
        return Tally(correct, actual, predicted)

    def _kept_of_class(self, c: int, thresholds: FloatArray) -> AnyArray:
        """A histogram over the grid of the trials' thresholds, summed from its far corner."""
        edges, ranks = zip(*(np.unique(column, return_inverse=True) for column in thresholds.T), strict=True)
        passed = [np.searchsorted(e, v, side="right") for e, v in zip(edges, self.values[c].T, strict=True)]
        shape = (len(edges[0]) + 1, len(edges[1]) + 1, self.n_classes)
        cells = np.ravel_multi_index((passed[0], passed[1], self.actual[c]), shape)
        grid = np.bincount(cells, minlength=int(np.prod(shape))).reshape(shape)
        corner = grid[::-1, ::-1].cumsum(axis=0).cumsum(axis=1)[::-1, ::-1]
        kept: AnyArray = corner[ranks[0] + 1, ranks[1] + 1]
        return kept


def count(predicted: IntArray, actual: IntArray, values: FloatArray, n_classes: int) -> Counts:
    """The counts for objects with one or two values each: ``values`` is (n, 1) or (n, 2).

    An object whose value is NaN is kept by any threshold.
    """
    values = np.where(np.isnan(values), 1.0, values)
    if values.shape[1] == 1:
        return CumulativeCounts(predicted, actual, values[:, 0], n_classes)
    return JointCounts(predicted, actual, values, n_classes)


def _cumulate(values: FloatArray, actual: IntArray, n_classes: int) -> tuple[FloatArray, AnyArray]:
    if len(values) == 0:
        return values, np.zeros((1, n_classes), dtype=np.intp)
    order = np.argsort(values)
    ordered = values[order]
    first = np.empty(len(ordered), dtype=bool)
    first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    level = np.cumsum(first) - 1
    n_levels = int(level[-1]) + 1
    at_level = np.bincount(level * n_classes + actual[order], minlength=(n_levels + 1) * n_classes)
    suffix = at_level.reshape(n_levels + 1, n_classes)[::-1].cumsum(axis=0)[::-1]
    return ordered[first], suffix


def margins(predicted: IntArray, actual: IntArray, n_classes: int) -> Tally:
    """The counts of objects, from their labels as positions in the classes."""
    right = predicted == actual
    return Tally(
        np.bincount(actual[right], minlength=n_classes),
        np.bincount(actual, minlength=n_classes),
        np.bincount(predicted, minlength=n_classes),
    )
