"""From nonconformity scores to p-values, credibility and confidence.

The p-value of an object for class y is the share of calibration scores of class y that are at least as
strange as the object's own score a for y.

Scores that differ by rounding alone are ties. The last bits of a score depend on the number of objects
scored at once and on the number of threads, so ``α ≥ a`` here means: not smaller by more than 2⁻³⁰ of the
scores' size (2⁻¹⁸ if they were computed in single precision). The size is that of ``a`` or, if larger, the
median size of the scores in the bag.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from sklearn.utils import check_random_state

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, as_finite, chunks
from transcendent._utils.checks import check_choices
from transcendent.errors import CalibrationError

Form = Literal["paper", "plus_one"]
"""The p-values that evaluators use."""
AnyForm = Literal["paper", "plus_one", "smoothed"]

_CHUNK = 1 << 16
_ROWS = 1 << 20
_SAMPLE = 1 << 12
_DOUBLE = 2.0**-30
_SINGLE = 2.0**-18


def p_values(
    scores: Any, calibration_scores: Any, *, p_value: AnyForm = "paper", random_state: Any = None
) -> FloatArray:
    """Return the p-values of ``scores`` (one class) against the calibration scores of that class.

    Parameters
    ----------
    scores : array of shape (n,)
        Nonconformity scores, higher = stranger.
    calibration_scores : array of shape (m,)
        Scores of calibration objects whose true label is the class in question, in any order.
    p_value : {"paper", "plus_one", "smoothed"}
        The form of the p-value of a score a: ``#{α ≥ a} / m``, which can be 0; ``(#{α ≥ a} + 1) / (m + 1)``,
        which is valid under exchangeability; or ``(#{α > a} + u · (#{α = a} + 1)) / (m + 1)`` with u
        uniform, which is exactly uniform under exchangeability.
    random_state : int, RandomState or None
        Seed for u.

    Examples
    --------
    >>> from transcendent.judging import p_values
    >>> p_values([0.1, 0.5, 0.9], [0.2, 0.5, 0.5, 0.8])
    array([1.  , 0.75, 0.  ])
    >>> p_values([0.1, 0.5, 0.9], [0.2, 0.5, 0.5, 0.8], p_value="plus_one")
    array([1. , 0.8, 0.2])
    """
    bag = np.sort(as_finite(calibration_scores, "calibration_scores", ndim=1))
    queries, noise = as_finite(scores, "scores", ndim=1), rounding(bag)
    check_choices(AnyForm, p_value=p_value)
    if p_value != "smoothed":
        return _p_values_of_class(queries, bag, noise, p_value)
    uniforms = check_random_state(random_state).random_sample(len(queries))
    at_least = len(bag) - np.searchsorted(bag, noise.lowered(queries), side="left")
    greater = len(bag) - np.searchsorted(bag, noise.raised(queries), side="right")
    return np.asarray((greater + uniforms * (at_least - greater + 1)) / (len(bag) + 1))


@dataclass(frozen=True)
class Rounding:
    """The largest difference that rounding alone can cause between scores."""

    relative: float
    size: float

    def lowered(self, scores: FloatArray) -> FloatArray:
        """Return the smallest values that tie with the scores, in the same order."""
        return scores - self.relative * np.maximum(np.abs(scores), self.size)

    def raised(self, scores: FloatArray) -> FloatArray:
        """Return the largest values that tie with the scores."""
        return scores + self.relative * np.maximum(np.abs(scores), self.size)


def rounding(bag: FloatArray) -> Rounding:
    """Estimate the rounding of the scores in a sorted bag."""
    sample = bag[:: -(-len(bag) // _SAMPLE)]
    with np.errstate(over="ignore"):
        # Whole numbers survive the cast in either precision, so they prove nothing.
        single = np.array_equal(sample, sample.astype(np.float32))
        single = single and not np.array_equal(sample, np.rint(sample))
    middle = len(sample) // 2
    return Rounding(_SINGLE if single else _DOUBLE, float(np.partition(np.abs(sample), middle)[middle]))


def merge_ties(values: FloatArray, noise: Rounding) -> FloatArray:
    """Return the values, with those that differ by rounding alone set to the smallest of them."""
    order = np.argsort(values)
    ordered = values[order]
    ends = np.searchsorted(ordered, noise.raised(ordered), side="right").tolist()
    merged, start = np.empty_like(values), 0
    while start < len(values):
        merged[order[start : ends[start]]] = ordered[start]
        start = ends[start]
    return merged


@dataclass(frozen=True)
class Bags:
    """Sorted calibration scores, one bag per class.

    If ``pooled``, all classes share one bag: the score of every object for its own class.
    """

    classes: AnyArray
    scores: tuple[FloatArray, ...]
    pooled: bool = False

    @classmethod
    def of(cls, scores: FloatArray, codes: IntArray, classes: AnyArray, *, pooled: bool = False) -> Self:
        """Sort the scores of each class; ``codes`` are the true labels as positions in ``classes``."""
        if empty := classes[np.bincount(codes, minlength=len(classes)) == 0].tolist():
            raise CalibrationError(
                f"no calibration object has the label {empty[0]!r}, so it has no p-values "
                f"(classes without calibration objects: {empty[:10]}). "
                "Pass calibration objects of every class that the detector can predict."
            )
        bags = tuple(np.sort(scores[codes == c, c]) for c in range(len(classes)))
        if pooled:
            bags = (np.sort(np.concatenate(bags)),) * len(classes)
        return cls(classes, bags, pooled)

    @property
    def counts(self) -> IntArray:
        """Number of calibration scores of each class; p-values are multiples of one over it."""
        return np.array([len(bag) for bag in self.scores])

    @cached_property
    def _roundings(self) -> list[Rounding]:
        return [rounding(bag) for bag in self.scores]

    def p_values(self, scores: FloatArray, p_value: Form = "paper") -> FloatArray:
        """Return the (n, classes) p-values of new objects' (n, classes) scores."""
        out = np.empty(scores.shape, order="F")
        for rows in _chunks(len(scores), max(self.counts)):
            order: Any = None
            for c, (bag, noise) in enumerate(zip(self.scores, self._roundings, strict=True)):
                queries = scores[rows, c]
                # Scores of two classes are often mirrored, and in order once they are in reverse order.
                mirrored = c == 1 and np.array_equal(queries, -scores[rows, 0])
                order = order[::-1] if mirrored else np.argsort(queries)
                out[rows, c][order] = _p_values_in_order(queries[order], bag, noise, p_value)
        return out

    def p_values_of(self, code: int, scores: FloatArray, p_value: Form = "paper") -> FloatArray:
        """Return the p-values of new objects' scores for one class, given as its position."""
        return _p_values_of_class(scores, self.scores[code], self._roundings[code], p_value)

    def left_out_p_values(self, scores: FloatArray, codes: IntArray, p_value: Form = "paper") -> FloatArray:
        """Return (n, classes) p-values of the calibration objects, each compared with all others.

        The only object of a class cannot be compared with others: its p-value is NaN.
        """
        out, all_rows = self.p_values(scores, p_value), np.arange(len(codes))
        for c, bag in enumerate(self.scores):
            rows = all_rows if self.pooled else np.flatnonzero(codes == c)
            in_bag, n = scores[rows, codes[rows]], len(bag)
            size, divisor = (n, n - 1) if p_value == "paper" else (n + 1, n)
            # Back to the count, minus one where the object's own score in the bag was counted.
            at_least = in_bag >= self._roundings[c].lowered(scores[rows, c])
            out[rows, c] = np.nan if n == 1 else np.rint(out[rows, c] * size - at_least) / divisor
        return out


def credibility_and_confidence(p: FloatArray, predicted: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the p-value of the predicted label, and one minus the largest of any other label."""
    if p.shape[1] == 2:  # several times faster
        second = predicted == 1
        return np.where(second, p[:, 1], p[:, 0]), 1.0 - np.where(second, p[:, 0], p[:, 1])
    rows = np.arange(len(p))
    credibility = p[rows, predicted]
    others = p.copy()
    others[rows, predicted] = -np.inf
    return credibility, 1.0 - others.max(axis=1)


def _p_values_of_class(queries: FloatArray, bag: FloatArray, noise: Rounding, p_value: str) -> FloatArray:
    """Return the p-values for one class, in chunks so that temporary arrays stay small."""
    out = np.empty(len(queries))
    for rows in _chunks(len(queries), len(bag)):
        order = np.argsort(queries[rows])
        out[rows][order] = _p_values_in_order(queries[rows][order], bag, noise, p_value)
    return out


def _p_values_in_order(ordered: FloatArray, bag: FloatArray, noise: Rounding, p_value: str) -> FloatArray:
    """Return the p-values of sorted scores, which read the bag several times faster than at random."""
    n = len(bag)
    at_least = n - np.searchsorted(bag, noise.lowered(ordered), side="left")
    return np.asarray(at_least / n if p_value == "paper" else (at_least + 1) / (n + 1))


def _chunks(n_queries: int, n_scores: int) -> Iterator[slice]:
    return chunks(n_queries, max(_CHUNK, min(n_scores // 64, _ROWS)))
