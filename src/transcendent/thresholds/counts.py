"""Counts of kept objects as a function of the thresholds, without touching the objects again."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, chunks
from transcendent.metrics.ratios import Tally

_CHUNK = 1 << 22


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

    They are all the thresholds worth trying where a correct answer more never hurts. Only incorrect answers
    are held in memory, and sorted; the correct ones, which may be memory-mapped, pass by in chunks. An object
    whose value is NaN is kept by any threshold.
    """
    survey = _survey(predicted, actual, values, n_classes)
    boundaries = [_Boundaries(c, survey) for c in range(n_classes)]
    for rows in chunks(len(values), _CHUNK):
        part, answers = _known(values[rows]), predicted[rows]
        right = answers == actual[rows]
        for c, boundary in enumerate(boundaries):
            boundary.pass_by(np.sort(part[right & (answers == c)]))
    levels, suffix = zip(*(boundary.steps() for boundary in boundaries), strict=True)
    return LevelCounts(list(levels), list(suffix), Tally.of(survey.confusion.T))


@dataclass(frozen=True)
class _Survey:
    """The incorrect answers, and of every predicted class the true labels and the range of values."""

    predicted: IntArray
    actual: IntArray
    values: FloatArray
    confusion: AnyArray
    lowest: FloatArray
    highest: FloatArray


def _survey(predicted: IntArray, actual: IntArray, values: FloatArray, n_classes: int) -> _Survey:
    confusion = np.zeros((n_classes, n_classes), dtype=np.intp)
    lowest, highest = np.full(n_classes, np.inf), np.full(n_classes, -np.inf)
    wrong: list[tuple[AnyArray, ...]] = []
    for rows in chunks(len(values), _CHUNK):
        answers, truth, part = predicted[rows].astype(np.intp), actual[rows], _known(values[rows])
        cells = np.bincount(answers * n_classes + truth, minlength=n_classes * n_classes)
        confusion += cells.reshape(n_classes, n_classes)
        np.minimum.at(lowest, answers, part)
        np.maximum.at(highest, answers, part)
        missed = answers != truth
        wrong.append((answers[missed], truth[missed], part[missed]))
    answers, truth, part = (np.concatenate(column) for column in zip(*wrong, strict=True))
    return _Survey(answers, truth, part, confusion, lowest, highest)


class _Boundaries:
    """The counts of one predicted class at and right above some probes, from sorted chunks of its objects."""

    def __init__(self, c: int, survey: _Survey) -> None:
        rows = np.flatnonzero(survey.predicted == c)
        n_classes = len(survey.confusion)
        self.c = c
        self.wrong_levels, self.wrong = _cumulate(survey.values[rows], survey.actual[rows], n_classes)
        ends = [survey.lowest[c], survey.highest[c]] if survey.confusion[c].any() else []
        self.probes = np.unique(np.concatenate([self.wrong_levels, ends, [np.inf]]))
        self.at_least, self.above = (np.zeros(len(self.probes), dtype=np.intp) for _ in range(2))
        self.next = np.full(len(self.probes), np.inf)

    def pass_by(self, correct: FloatArray) -> None:
        """Take in the sorted values of some correct answers."""
        beyond = np.searchsorted(correct, self.probes, side="right")
        self.at_least += len(correct) - np.searchsorted(correct, self.probes)
        self.above += len(correct) - beyond
        self.next = np.minimum(self.next, np.append(correct, np.inf)[beyond])

    def steps(self) -> tuple[FloatArray, AnyArray]:
        """Levels, and the counts from each up; those from infinity up are the zeros at the end."""
        beyond = np.searchsorted(self.wrong_levels, self.probes, side="right")
        at = self.wrong[np.searchsorted(self.wrong_levels, self.probes)]
        after = self.wrong[beyond]
        at[:, self.c] += self.at_least
        after[:, self.c] += self.above
        following = np.minimum(self.next, np.append(self.wrong_levels, np.inf)[beyond])
        levels, first = np.unique(np.concatenate([self.probes, following]), return_index=True)
        return levels[:-1], np.concatenate([at, after])[first]


def _known(values: FloatArray) -> FloatArray:
    """The values with 1 for NaN, which any threshold keeps."""
    return np.where(np.isnan(values), 1.0, values)


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
