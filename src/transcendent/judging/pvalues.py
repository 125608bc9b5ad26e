"""From nonconformity scores to p-values, credibility and confidence.

The p-value of an object for class y is the share of calibration scores of class y that are at least as
strange as the object's own score for y. Three forms of it are offered:

``"paper"``
    ``#{α ≥ α_x} / n``: ties count, nothing is added, 0 is possible.
``"plus_one"``
    ``(#{α ≥ α_x} + 1) / (n + 1)``: the object joins its bag; valid under exchangeability.
``"smoothed"``
    ``(#{α > α_x} + u · (#{α = α_x} + 1)) / (n + 1)`` with u uniform and seeded: exactly uniform
    under exchangeability.

Scores that differ by rounding alone are ties. The last bits of a score depend on how many objects were
scored at once and on how many threads, so ``α ≥ α_x`` here means: not smaller by more than 2⁻³⁰ of the
scores' size (2⁻¹⁸ if they were computed in single precision). The size is that of ``α_x`` or, if larger,
the median size of the scores in the bag.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self, get_args

import numpy as np
from sklearn.utils import check_random_state

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, as_finite, chunks
from transcendent.errors import CalibrationError

Form = Literal["paper", "plus_one"]
"""The p-values that evaluators judge by; `p_values` has a third form."""

_CHUNK = 1 << 16
_ROWS = 1 << 20
_SAMPLE = 1 << 12
_DOUBLE = 2.0**-30
_SINGLE = 2.0**-18


def p_values(
    scores: Any,
    calibration_scores: Any,
    *,
    form: Literal["paper", "plus_one", "smoothed"] = "paper",
    random_state: Any = None,
) -> FloatArray:
    """Return the p-values of ``scores`` (one class) against the calibration scores of that class.

    Parameters
    ----------
    scores : array of shape (n,)
        Nonconformity scores to judge; higher is stranger.
    calibration_scores : array of shape (m,)
        Scores of calibration objects whose true label is the class in question, in any order.
    form : {"paper", "plus_one", "smoothed"}
        Which p-value of a score a, among n calibration scores: ``#{α ≥ a} / n``, which can be 0;
        ``(#{α ≥ a} + 1) / (n + 1)``, which is valid under exchangeability; or
        ``(#{α > a} + u · (#{α = a} + 1)) / (n + 1)`` with u uniform, which is exactly uniform then.
    random_state : int, RandomState or None
        Seeds the tie-breaking of the smoothed form.

    Examples
    --------
    >>> from transcendent.judging import p_values
    >>> p_values([0.1, 0.5, 0.9], [0.2, 0.5, 0.5, 0.8])
    array([1.  , 0.75, 0.  ])
    >>> p_values([0.1, 0.5, 0.9], [0.2, 0.5, 0.5, 0.8], form="plus_one")
    array([1. , 0.8, 0.2])
    """
    bag = np.sort(as_finite(calibration_scores, "calibration_scores", ndim=1))
    queries = as_finite(scores, "scores", ndim=1)
    if form == "smoothed":
        return _smoothed(queries, bag, check_random_state(random_state).random_sample(len(queries)))
    check_form(form, (*get_args(Form), "smoothed"))
    return _p_values_of_class(queries, bag, rounding(bag), form)


@dataclass(frozen=True)
class Rounding:
    """How much scores compared with a bag may differ by rounding alone."""

    relative: float
    size: float

    def lowered(self, scores: FloatArray) -> FloatArray:
        """Return the smallest values that tie with the scores, in the same order."""
        return scores - self.relative * np.maximum(np.abs(scores), self.size)

    def raised(self, scores: FloatArray) -> FloatArray:
        """Return the largest values that tie with the scores."""
        return scores + self.relative * np.maximum(np.abs(scores), self.size)


def rounding(bag: FloatArray) -> Rounding:
    """Estimate the rounding of a sorted bag; whole numbers do not reveal single precision."""
    some = bag[:: -(-len(bag) // _SAMPLE)]
    with np.errstate(over="ignore"):
        single = np.array_equal(some, some.astype(np.float32)) and not np.array_equal(some, np.rint(some))
    middle = len(some) // 2
    return Rounding(_SINGLE if single else _DOUBLE, float(np.partition(np.abs(some), middle)[middle]))


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
    """Sorted calibration scores, one bag per class: all that judging new scores needs.

    If ``pooled``, all classes share one bag: the score of every object for its own class.
    """

    classes: AnyArray
    scores: tuple[FloatArray, ...]
    pooled: bool = False

    @classmethod
    def of(cls, scores: FloatArray, codes: IntArray, classes: AnyArray, *, pooled: bool = False) -> Self:
        """Sort the scores of each class; ``codes`` are the true labels as positions in ``classes``."""
        _check_every_class(classes, np.bincount(codes, minlength=len(classes)))
        bags = tuple(np.sort(scores[codes == c, c]) for c in range(len(classes)))
        if pooled:
            bags = (np.sort(np.concatenate(bags)),) * len(classes)
        return cls(classes, bags, pooled)

    @property
    def counts(self) -> IntArray:
        """Number of calibration scores of each class; p-values move in steps of one over it."""
        return np.array([len(bag) for bag in self.scores])

    @cached_property
    def _roundings(self) -> list[Rounding]:
        return [rounding(bag) for bag in self.scores]

    def p_values(self, scores: FloatArray, form: Form = "paper") -> FloatArray:
        """Return the (n, classes) p-values of new objects' (n, classes) scores."""
        out = np.empty(scores.shape)
        for c in range(len(self.scores)):
            out[:, c] = self.p_values_of(c, scores[:, c], form)
        return out

    def p_values_of(self, code: int, scores: FloatArray, form: Form = "paper") -> FloatArray:
        """Return the p-values of new objects' scores for one class, given as its position."""
        return _p_values_of_class(scores, self.scores[code], self._roundings[code], form)

    def left_out_p_values(self, scores: FloatArray, codes: IntArray, form: Form = "paper") -> FloatArray:
        """Return (n, classes) p-values of the calibration objects, each compared with all others.

        The only member of a class has nothing to be compared with there: NaN.
        """
        out, everybody = self.p_values(scores, form), np.arange(len(codes))
        for c, bag in enumerate(self.scores):
            rows = everybody if self.pooled else np.flatnonzero(codes == c)
            in_bag, n = scores[rows, codes[rows]], len(bag)
            size, divisor = (n, n - 1) if form == "paper" else (n + 1, n)
            at_least = in_bag >= self._roundings[c].lowered(scores[rows, c])
            out[rows, c] = np.nan if n == 1 else np.rint(out[rows, c] * size - at_least) / divisor
        return out


def credibility_and_confidence(p: FloatArray, predicted: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the p-value of the predicted label, and one minus the largest of any other label."""
    rows = np.arange(len(p))
    credibility = p[rows, predicted]
    if p.shape[1] == 2:
        return credibility, 1.0 - p[rows, 1 - predicted]
    others = p.copy()
    others[rows, predicted] = -np.inf
    return credibility, 1.0 - others.max(axis=1)


def check_form(form: Any, forms: Sequence[str] = get_args(Form)) -> None:
    """Refuse a form of p-value that does not exist."""
    if form not in forms:
        raise ValueError(f"p-values come in the forms {tuple(forms)}, not {form!r}.")


def _check_every_class(classes: AnyArray, counts: IntArray) -> None:
    empty = classes[counts == 0].tolist()
    if empty:
        raise CalibrationError(
            f"no calibration object has the label {empty[0]!r}, so it has no p-values "
            f"(classes without calibration objects: {empty[:10]}). "
            "Give calibration data that holds every class the detector can answer with."
        )


def _p_values_of_class(queries: FloatArray, bag: FloatArray, noise: Rounding, form: str) -> FloatArray:
    """Return the p-values for one class, in chunks so that temporary arrays stay small."""
    n, out = len(bag), np.empty(len(queries))
    for rows in chunks(len(queries), max(_CHUNK, min(n // 64, _ROWS))):
        # Sorted queries walk through the bag in order: several times faster than jumping about in it.
        order = np.argsort(queries[rows])
        at_least = n - np.searchsorted(bag, noise.lowered(queries[rows][order]), side="left")
        out[rows][order] = at_least / n if form == "paper" else (at_least + 1) / (n + 1)
    return out


def _smoothed(queries: FloatArray, bag: FloatArray, uniforms: FloatArray) -> FloatArray:
    n, noise = len(bag), rounding(bag)
    at_least = n - np.searchsorted(bag, noise.lowered(queries), side="left")
    greater = n - np.searchsorted(bag, noise.raised(queries), side="right")
    return np.asarray((greater + uniforms * (at_least - greater + 1)) / (n + 1))
