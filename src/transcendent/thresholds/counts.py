"""Counts of kept objects as a function of the thresholds, without touching the objects again."""

from abc import ABC, abstractmethod

import numpy as np

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray
from transcendent.metrics.ratios import Tally


class Counts(ABC):
    """Counts of a calibration set by predicted class.

    Attributes
    ----------
    total : Tally
        Margins of the whole calibration set.
    n_classes : int
        Number of classes.
    batch : int
        How many trials to count at once, so that memory stays bounded.
    """

    total: Tally
    n_classes: int
    batch: int

    def kept(self, thresholds: FloatArray) -> Tally:
        """Margins of what (trials, values, classes) thresholds keep; an object at a threshold is kept."""
        correct, actual, predicted = (
            np.zeros((len(thresholds), self.n_classes), dtype=np.intp) for _ in range(3)
        )
        for c in range(self.n_classes):
            kept = self._kept_of_class(c, thresholds[:, :, c])
            correct[:, c] = kept[:, c]
            predicted[:, c] = kept.sum(axis=1)
            actual += kept
        return Tally(correct, actual, predicted)

    @abstractmethod
    def _kept_of_class(self, c: int, thresholds: FloatArray) -> AnyArray:
        """(trials, classes) objects predicted c that (trials, values) thresholds keep, by true class."""


class LevelCounts(Counts):
    """One value per object (credibility or confidence): a trial costs one binary search per class.

    ``levels[c]`` are values of objects predicted c, ascending, and ``suffix[c][j]`` counts by true class
    those whose value is at least ``levels[c][j]``; the last row, all rejected, is zero.
    """

    def __init__(self, levels: list[FloatArray], suffix: list[AnyArray], total: Tally) -> None:
        self.levels, self.suffix, self.total = levels, suffix, total
        self.n_classes = len(levels)
        self.batch = max(1, (1 << 20) // self.n_classes)

    def _kept_of_class(self, c: int, thresholds: FloatArray) -> AnyArray:
        return self.suffix[c][np.searchsorted(self.levels[c], thresholds[:, 0])]


class CumulativeCounts(LevelCounts):
    """Counts at every distinct value, so of any threshold."""

    def __init__(self, predicted: IntArray, actual: IntArray, values: FloatArray, n_classes: int) -> None:
        rows_of = [np.flatnonzero(predicted == c) for c in range(n_classes)]
        steps = [_cumulate(values[rows], actual[rows], n_classes) for rows in rows_of]
        levels, suffix = zip(*steps, strict=True)
        super().__init__(list(levels), list(suffix), margins(predicted, actual, n_classes))


class JointCounts(Counts):
    """Two values per object, both thresholded: trials are counted together on the grid they span."""

    def __init__(self, predicted: IntArray, actual: IntArray, values: FloatArray, n_classes: int) -> None:
        self.n_classes = n_classes
        rows_of = [np.flatnonzero(predicted == c) for c in range(n_classes)]
        self.values = [values[rows] for rows in rows_of]
        self.actual = [actual[rows] for rows in rows_of]
        self.total = margins(predicted, actual, n_classes)
        self.batch = max(1, int(np.sqrt((1 << 22) / n_classes)))

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
    values = _known(values)
    if values.shape[1] == 1:
        return CumulativeCounts(predicted, actual, values[:, 0], n_classes)
    return JointCounts(predicted, actual, values, n_classes)


def boundary_counts(predicted: IntArray, actual: IntArray, values: FloatArray, n_classes: int) -> LevelCounts:
    """Counts at the lowest, the highest and every incorrect answer's value, and at the next value above each.

    They are all the thresholds worth trying where a correct answer more never hurts. An object whose value
    is NaN is kept by any threshold.
    """
    values = _known(values)
    rows_of = [np.flatnonzero(predicted == c) for c in range(n_classes)]
    steps = [_boundaries(c, values[rows], actual[rows], n_classes) for c, rows in enumerate(rows_of)]
    levels, suffix = zip(*steps, strict=True)
    return LevelCounts(list(levels), list(suffix), margins(predicted, actual, n_classes))


def _boundaries(c: int, values: FloatArray, actual: IntArray, n_classes: int) -> tuple[FloatArray, AnyArray]:
    """Of the objects predicted c: the boundaries, and the counts from each up, the last from infinity up."""
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
    """The values with 1 for NaN, which any threshold keeps."""
    return np.where(np.isnan(values), 1.0, values)


def _cumulate(values: FloatArray, actual: IntArray, n_classes: int) -> tuple[FloatArray, AnyArray]:
    """The distinct values in order, and the counts by true class from each up; the last, of none, is zero."""
    levels, level = np.unique(values, return_inverse=True)
    at_level = np.bincount(level * n_classes + actual, minlength=(len(levels) + 1) * n_classes)
    return levels, at_level.reshape(-1, n_classes)[::-1].cumsum(axis=0)[::-1]


def margins(predicted: IntArray, actual: IntArray, n_classes: int) -> Tally:
    """The counts of objects, from their labels as positions in the classes."""
    right = predicted == actual
    return Tally(
        np.bincount(actual[right], minlength=n_classes),
        np.bincount(actual, minlength=n_classes),
        np.bincount(predicted, minlength=n_classes),
    )
