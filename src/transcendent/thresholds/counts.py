"""Counts of kept objects as a function of the thresholds, without touching the objects again."""

from abc import ABC, abstractmethod

import numpy as np

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, rows_by_code
from transcendent.metrics.ratios import Tally


class Counts(ABC):
    """Counts of a calibration set by predicted class; any threshold keeps an object whose value is NaN.

    ``total`` holds the counts of all objects. ``batch`` trials are counted at once, to bound the memory.
    """

    batch: int

    def __init__(self, predicted: IntArray, actual: IntArray, n_classes: int) -> None:
        self.n_classes = n_classes
        self.total = margins(predicted, actual, n_classes)

    def kept(self, thresholds: FloatArray) -> Tally:
        """Count what (trials, values, classes) thresholds keep; an object at its threshold is kept."""
        correct, actual, predicted = np.zeros((3, len(thresholds), self.n_classes), dtype=np.intp)
        for c in range(self.n_classes):
            kept = self._kept_of_class(c, thresholds[:, :, c])
            correct[:, c] = kept[:, c]
            predicted[:, c] = kept.sum(axis=1)
            actual += kept
        return Tally(correct, actual, predicted)

    @abstractmethod
    def _kept_of_class(self, c: int, thresholds: FloatArray) -> AnyArray:
        """Count, by true class, the objects predicted c that each of (trials, values) thresholds keeps."""


class LevelCounts(Counts):
    """One value per object (credibility or confidence): a trial costs one binary search per class.

    ``levels[c]`` are values of objects predicted c, ascending. ``suffix[c][j]`` counts by true class the
    objects whose value is at least ``levels[c][j]``; its last row, for all rejected, is zero.

    The levels are all values or, with ``boundaries``, the lowest, the highest and those of incorrect answers,
    each with the next value above it. No other is worth trying if one more correct answer never hurts.
    """

    def __init__(
        self,
        predicted: IntArray,
        actual: IntArray,
        values: FloatArray,
        n_classes: int,
        *,
        boundaries: bool = False,
    ) -> None:
        super().__init__(predicted, actual, n_classes)
        self.batch = max(1, (1 << 20) // n_classes)
        self.levels: list[FloatArray] = []
        self.suffix: list[AnyArray] = []
        values = _known(values)
        for c, rows in enumerate(rows_by_code(predicted, n_classes)):
            of_class = values[rows], actual[rows], n_classes
            levels, suffix = _boundaries(c, *of_class) if boundaries else _cumulate(*of_class)
            self.levels.append(levels)
            self.suffix.append(suffix)

    def _kept_of_class(self, c: int, thresholds: FloatArray) -> AnyArray:
        return self.suffix[c][np.searchsorted(self.levels[c], thresholds[:, 0])]


class JointCounts(Counts):
    """Two values per object, both thresholded: trials are counted together on the grid they span."""

    def __init__(self, predicted: IntArray, actual: IntArray, values: FloatArray, n_classes: int) -> None:
        super().__init__(predicted, actual, n_classes)
        self.batch = max(1, int(np.sqrt((1 << 22) / n_classes)))
        values, rows_of = _known(values), rows_by_code(predicted, n_classes)
        self.values, self.actual = [values[rows] for rows in rows_of], [actual[rows] for rows in rows_of]

    def _kept_of_class(self, c: int, thresholds: FloatArray) -> AnyArray:
        # A histogram over the grid of the trials' thresholds, summed from its far corner.
        edges, ranks = zip(*(np.unique(column, return_inverse=True) for column in thresholds.T), strict=True)
        passed = [np.searchsorted(e, v, side="right") for e, v in zip(edges, self.values[c].T, strict=True)]
        shape = (len(edges[0]) + 1, len(edges[1]) + 1, self.n_classes)
        cells = np.ravel_multi_index((passed[0], passed[1], self.actual[c]), shape)
        grid = np.bincount(cells, minlength=int(np.prod(shape))).reshape(shape)
        corner = grid[::-1, ::-1].cumsum(axis=0).cumsum(axis=1)[::-1, ::-1]
        return np.asarray(corner[ranks[0] + 1, ranks[1] + 1])


def count(predicted: IntArray, actual: IntArray, values: FloatArray, n_classes: int) -> Counts:
    """Count objects with one or two values each: ``values`` is (n, 1) or (n, 2)."""
    if values.shape[1] == 1:
        return LevelCounts(predicted, actual, values[:, 0], n_classes)
    return JointCounts(predicted, actual, values, n_classes)


def _boundaries(c: int, values: FloatArray, actual: IntArray, n_classes: int) -> tuple[FloatArray, AnyArray]:
    """Return the boundaries of objects predicted c, and the counts from each up, with a last row of 0."""
    wrong = actual != c
    correct = np.sort(values[~wrong])
    wrong_levels, suffix = _cumulate(values[wrong], actual[wrong], n_classes)
    ends = [values.min(), values.max()] if len(values) else []
    probes = np.unique(np.concatenate([wrong_levels, ends]))
    above = (np.append(v, np.inf)[np.searchsorted(v, probes, side="right")] for v in (correct, wrong_levels))
    levels = np.unique(np.concatenate([probes, np.minimum(*above), [np.inf]]))
    counts = suffix[np.searchsorted(wrong_levels, levels)]
    counts[:, c] += len(correct) - np.searchsorted(correct, levels)
    return levels[:-1], counts


def _known(values: FloatArray) -> FloatArray:
    return np.where(np.isnan(values), 1.0, values)


def _cumulate(values: FloatArray, actual: IntArray, n_classes: int) -> tuple[FloatArray, AnyArray]:
    """Return the distinct values, and the counts by true class from each up, with a last row of 0."""
    levels, level = np.unique(values, return_inverse=True)
    at_level = np.bincount(level * n_classes + actual, minlength=(len(levels) + 1) * n_classes)
    return levels, at_level.reshape(-1, n_classes)[::-1].cumsum(axis=0)[::-1]


def margins(predicted: IntArray, actual: IntArray, n_classes: int) -> Tally:
    """Count objects, from their labels as positions in the classes."""
    right = predicted == actual
    return Tally(
        np.bincount(actual[right], minlength=n_classes),
        np.bincount(actual, minlength=n_classes),
        np.bincount(predicted, minlength=n_classes),
    )
