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

    A measure may have models of its own, fitted on the detector's training rows. If the detector is a
    pipeline, the measure gets the last step as ``estimator``, and ``X`` are the transformed rows.
    """

    needs_rows: bool = False
    """Whether ``fit`` learns from rows. If not, a detector fitted elsewhere needs no training data here."""

    needs_rows_alone: bool = False
    """Whether ``fit`` ignores the detector, so that the measure stays valid when the detector is refitted."""

    absolute: bool = False
    """Whether the scores of all classes have one scale, so that they can be ranked together."""

    min_classes: int = 2
    """A combined measure leaves it out if there are fewer classes."""

    def fit(self, estimator: Any, X: Any, y: Any) -> Self:  # noqa: ARG002
        """Fit the measure's own models, if it has any, on the detector's training rows."""
        return self

    @abstractmethod
    def scores(self, estimator: Any, X: Any) -> FloatArray:
        """Return finite (n, classes) nonconformity scores, columns in the order of ``estimator.classes_``."""

    @property
    def in_words(self) -> str:
        """Its name, as part of a sentence."""
        return f"the measure {type(self).__name__}"

    @property
    def n_members(self) -> int | None:
        """Number of members of a combined measure, whose scores are (n, classes, members); else None."""
        return None

    @property
    def left_out_is_exact(self) -> bool:
        """Whether ``left_out_scores`` equal those of refits if the detector's left-out answers are exact."""
        return True

    def left_out_scores(self, answers: Any, X: Any, y: Any) -> FloatArray:  # noqa: ARG002
        """Return scores of the training rows, each as if detector and measure had been fitted without it.

        ``answers`` has the detector's methods, and returns its left-out answers about the rows. By default a
        measure has no left-out scores, and the detector is refitted.
        """
        raise NoShortcutError(f"{type(self).__name__} has no left_out_scores")

    def implied_labels(self, estimator: Any, scores: FloatArray) -> IntArray | None:  # noqa: ARG002
        """Return the detector's labels, as positions in the classes, if the scores determine them."""
        return None


class OutputMeasure(Measure):
    """A measure of the detector's outputs alone, so that left-out outputs give left-out scores."""

    def left_out_scores(self, answers: Any, X: Any, y: Any) -> FloatArray:  # noqa: ARG002
        """Return the scores of the detector's left-out answers."""
        return self.scores(answers, X)


class FunctionMeasure(Measure):
    """A plain function ``(estimator, X) -> (n, classes) scores`` as a measure."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function

    @property
    def in_words(self) -> str:
        """The name of the function."""
        return f"the measure {getattr(self.function, '__name__', self.function)}"

    def scores(self, estimator: Any, X: Any) -> FloatArray:
        """Call the function."""
        return np.asarray(self.function(estimator, X), dtype=np.float64)


def training_codes(estimator: Any, y: Any) -> IntArray:
    """Return labels as positions in the detector's classes; refuse a pipeline, which sees other rows."""
    if see_through(estimator)[0]:
        raise MeasureError(
            "fit a measure with the last step of a pipeline, on transformed rows: "
            "measure.fit(pipeline[-1], pipeline[:-1].transform(X), y)."
        )
    return encode_labels(y, estimator.classes_, "y")


def checked_scores(measure: Measure, scores: Any, shape: tuple[int, int]) -> FloatArray:
    """Return scores as float64; refuse a shape other than (objects, classes[, members]), NaN and infinity."""
    name = type(measure).__name__
    checked = np.asarray(scores, dtype=np.float64)
    expected = shape if measure.n_members is None else (*shape, measure.n_members)
    if checked.shape != expected:
        axes = ", ".join(("objects", "classes", "members")[: len(expected)])
        raise MeasureError(f"{name} gave scores of shape {checked.shape}, not ({axes}) = {expected}.")
    if not np.isfinite(checked).all():
        raise MeasureError(
            f"the scores of {name} contain NaN or infinity. Each object needs a finite score for each class: "
            "replace infinity by a large number, such as 1e300."
        )
    return checked
