"""The interface of a nonconformity measure."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from transcendent._utils.arrays import FloatArray, IntArray, encode_labels
from transcendent._utils.estimators import see_through
from transcendent.errors import MeasureError, NoShortcutError


class Measure(BaseEstimator, ABC):
    """A nonconformity measure: how strange an object looks for each class, higher = stranger.

    A measure is fitted beside the detector, on the rows the detector was fitted on, so that it may hold
    models of its own. It is given the classifier itself: for a pipeline that is the last step, and ``X``
    is what the steps before it made of the rows.
    """

    needs_rows: bool = False
    """Whether ``fit`` learns from rows. If not, a detector fitted elsewhere needs no training data here."""

    needs_rows_alone: bool = False
    """Whether ``fit`` learns from rows and labels only, whatever the detector, and so may outlive it."""

    absolute: bool = False
    """Whether scores of different classes are on one scale, so that they may be ranked together."""

    min_classes: int = 2
    """With fewer classes, a combined measure leaves it out."""

    def fit(self, estimator: Any, X: Any, y: Any) -> Self:  # noqa: ARG002
        """Learn what the measure needs from the detector's training rows."""
        return self

    @abstractmethod
    def scores(self, estimator: Any, X: Any) -> FloatArray:
        """Return finite (n, classes) nonconformity scores, columns in the order of ``estimator.classes_``."""

    @property
    def n_members(self) -> int | None:
        """Number of members of a combined measure, whose scores are (n, classes, members); else None."""
        return None

    @property
    def left_out_is_exact(self) -> bool:
        """Whether ``left_out_scores`` equal those of refits, given exact left-out answers of the detector."""
        return True

    def left_out_scores(self, answers: Any, X: Any, y: Any) -> FloatArray:  # noqa: ARG002
        """Return scores of the training rows, each as if detector and measure had been fitted without it.

        ``answers`` stands in for the detector and gives its left-out answers about the rows. A measure
        that cannot tell, as by default, leaves them to refitting.
        """
        raise NoShortcutError(f"{type(self).__name__} has no left_out_scores")

    def implied_labels(self, estimator: Any, scores: FloatArray) -> IntArray | None:  # noqa: ARG002
        """Return the answers as positions in the classes if the scores determine them, else None."""
        return None


class FunctionMeasure(Measure):
    """A plain function ``(estimator, X) -> (n, classes) scores`` as a measure."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function

    def scores(self, estimator: Any, X: Any) -> FloatArray:
        """Call the function."""
        return np.asarray(self.function(estimator, X), dtype=np.float64)


def training_codes(estimator: Any, y: Any) -> IntArray:
    """Return labels as positions in the detector's classes; refuse a pipeline, whose rows are not those."""
    if see_through(estimator)[0]:
        raise MeasureError(
            "a measure is fitted beside the last step of a pipeline, on rows as it sees them: "
            "measure.fit(pipeline[-1], pipeline[:-1].transform(X), y)."
        )
    return encode_labels(y, estimator.classes_, "y")


def checked_scores(measure: Measure, scores: Any, shape: tuple[int, int]) -> FloatArray:
    """Return the scores; refuse another shape than (objects, classes[, members]), NaN and infinity."""
    name = type(measure).__name__
    checked = np.asarray(scores, dtype=np.float64)
    expected = shape if measure.n_members is None else (*shape, measure.n_members)
    if checked.shape != expected:
        axes = ", ".join(("objects", "classes", "members")[: len(expected)])
        raise MeasureError(f"{name} gave scores of shape {checked.shape}, not ({axes}) = {expected}.")
    if not np.isfinite(checked).all():
        raise MeasureError(
            f"the scores of {name} contain NaN or infinity. Each object needs a finite score for each class; "
            "a large number, such as 1e300, is as strange."
        )
    return checked
