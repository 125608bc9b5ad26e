"""Calibration scores that are seen once and not kept: p-values between bounds, from a few kilobytes."""

from typing import Any, Self

import numpy as np

from transcendent.arrays import FloatArray, IntArray, as_finite, as_labels, encode_labels
from transcendent.errors import CalibrationError
from transcendent.extras import extra

__all__ = ["ScoreSketch"]


class ScoreSketch:
    """One quantile sketch of calibration scores per class (KLL, of the package ``datasketches``).

    Sketches are updated with chunks of any size, merged across workers, and pickled. The share of scores
    below a given one is known up to ``rank_error``: 0 while a class has so few scores that all are kept, then
    about 2.3 / k^0.97, whatever the scores are and however many. That is the library's figure: the 99th
    percentile of the largest error, as its authors measured it over thousands of sketches. So the bounds
    hold for a p-value with a probability of 99% over the sketch's own random choices, which cannot be seeded.
    P-values that are certain and exact at any size: `ScoreEvaluator.fit` with ``folder``.

    Parameters
    ----------
    classes : array
        The label of each column of scores.
    k : int
        Size of each sketch: about 3 · k scores are kept. At most 65535.

    Examples
    --------
    >>> from transcendent.sketches import ScoreSketch
    >>> sketch = ScoreSketch(["ham", "spam"])
    >>> sketch = sketch.update([[0.1, 0.9], [0.3, 0.7], [0.8, 0.2]], ["ham", "ham", "spam"])
    >>> low, high = sketch.p_value_bounds([[0.2, 0.8]])
    >>> low, high
    (array([[0.5, 0. ]]), array([[0.5, 0. ]]))
    """

    def __init__(self, classes: Any, *, k: int = 4096) -> None:
        self.classes = np.asarray(classes)
        self._sketches = [_library().kll_doubles_sketch(k) for _ in self.classes]

    def update(self, scores: Any, y: Any) -> Self:
        """Take in (n, classes) scores, higher = stranger, of objects with the true labels ``y``."""
        checked, codes = self._check(scores), encode_labels(as_labels(y), self.classes, "y")
        if len(checked) != len(codes):
            raise ValueError(f"scores and y differ in length: {len(checked)}, {len(codes)}.")
        for c, sketch in enumerate(self._sketches):
            sketch.update(checked[codes == c, c])
        return self

    def merge(self, other: "ScoreSketch") -> Self:
        """Take in what another sketch of the same classes has seen."""
        if not np.array_equal(self.classes, other.classes):
            raise ValueError(
                f"sketches of different classes: {self.classes.tolist()} and {other.classes.tolist()}."
            )
        for mine, theirs in zip(self._sketches, other._sketches, strict=True):
            mine.merge(theirs)
        return self

    @property
    def counts(self) -> IntArray:
        """Number of calibration scores of each class."""
        return np.array([sketch.n for sketch in self._sketches])

    @property
    def rank_error(self) -> FloatArray:
        """Of each class, how far a share of its scores may be off, with a probability of 99%."""
        return np.array([_rank_error(sketch) for sketch in self._sketches])

    def p_value_bounds(self, scores: Any) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds of the (n, classes) p-values, in the form ``"paper"``, of new scores."""
        checked = self._check(scores)
        low, high = np.empty(checked.shape), np.empty(checked.shape)
        for c, sketch in enumerate(self._sketches):
            if sketch.is_empty():
                raise CalibrationError(f"no score of class {self.classes.tolist()[c]!r} has been seen.")
            low[:, c], high[:, c] = _bounds(sketch, checked[:, c])
        return low, high

    def _check(self, scores: Any) -> FloatArray:
        checked = as_finite(scores, "scores", ndim=2)
        if checked.shape[1] != len(self.classes):
            raise ValueError(f"scores must have {len(self.classes)} columns, got {checked.shape[1]}.")
        return checked

    def __getstate__(self) -> dict[str, Any]:
        return {"classes": self.classes, "sketches": [sketch.serialize() for sketch in self._sketches]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.classes = state["classes"]
        self._sketches = [_library().kll_doubles_sketch.deserialize(content) for content in state["sketches"]]


def _bounds(sketch: Any, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The share of scores at least as high, less and plus the error; the lowest and highest are known."""
    n, error = sketch.n, _rank_error(sketch)
    items, weights = np.array(sorted(sketch)).T
    at_least = n - np.concatenate([[0.0], np.cumsum(weights)])[np.searchsorted(items, scores)]
    least = np.where(scores <= sketch.get_min_value(), n, scores <= sketch.get_max_value()) / n
    most = np.where(scores > sketch.get_max_value(), 0, n - (scores > sketch.get_min_value())) / n
    return np.clip(at_least / n - error, least, most), np.clip(at_least / n + error, least, most)


def _rank_error(sketch: Any) -> float:
    return float(sketch.normalized_rank_error(False)) if sketch.is_estimation_mode() else 0.0


def _library() -> Any:
    return extra("datasketches", "sketch")
