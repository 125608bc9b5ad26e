"""What a measure is, and how an evaluator looks through a pipeline to the classifier at its end."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from inspect import getattr_static
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from transcendent.arrays import FloatArray, IntArray
from transcendent.errors import MeasureError, NoShortcutError


class Measure(BaseEstimator, ABC):
    """A nonconformity measure: how strange an object looks for each class, higher = stranger.

    A measure is fitted beside the detector, on the rows the detector was fitted on, so that it may hold
    models of its own. It is given the classifier itself: for a pipeline that is the last step, and ``X``
    is what the steps before it made of the rows.
    """

    needs_rows: bool = False
    """Whether ``fit`` learns from rows. If not, a detector fitted elsewhere needs no training data here."""

    def fit(self, estimator: Any, X: Any, y: Any) -> Self:  # noqa: ARG002
        """Learn what the measure needs from the detector's training rows."""
        return self

    @abstractmethod
    def scores(self, estimator: Any, X: Any) -> FloatArray:
        """(n, classes) nonconformity scores, columns in the order of ``estimator.classes_``."""

    def left_out_scores(self, answers: Any, X: Any, y: Any) -> FloatArray:  # noqa: ARG002
        """Scores of the rows it was fitted on, each as if detector and measure had been fitted without it.

        ``answers`` stands in for the detector and gives its left-out answers about the rows. A measure
        that cannot tell, as by default, leaves them to refitting.
        """
        raise NoShortcutError(f"{type(self).__name__} has no left_out_scores")

    def implied_labels(self, estimator: Any, scores: FloatArray) -> IntArray | None:  # noqa: ARG002
        """The detector's answers as positions in its classes, where its scores settle them; else None."""
        return None


class CallableMeasure(Measure):
    """A plain function ``(estimator, X) -> (n, classes) scores`` as a measure."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function

    def scores(self, estimator: Any, X: Any) -> FloatArray:
        """Call the function."""
        return np.asarray(self.function(estimator, X), dtype=np.float64)


def see_through(estimator: Any) -> tuple[list[Any], Any]:
    """The transformers before the classifier, and the classifier itself."""
    if isinstance(estimator, FrozenEstimator):
        return see_through(estimator.estimator)
    if hasattr(estimator, "best_estimator_"):
        return see_through(estimator.best_estimator_)
    if isinstance(estimator, Pipeline) and _predicts_as_pipelines_do(estimator):
        steps = [step for _, step in estimator.steps[:-1] if step not in (None, "passthrough")]
        inner, classifier = see_through(estimator.steps[-1][1])
        return steps + inner, classifier
    return [], estimator


def _predicts_as_pipelines_do(pipeline: Pipeline) -> bool:
    """Not so for subclasses with a ``predict`` of their own, such as pipelines that resample."""
    return getattr_static(type(pipeline), "predict") is getattr_static(Pipeline, "predict")


def transform(transformers: list[Any], X: Any) -> Any:
    """What the classifier at the end of a pipeline is given."""
    for transformer in transformers:
        X = transformer.transform(X)
    return X


def checked_scores(measure: Measure, scores: Any, shape: tuple[int, int]) -> FloatArray:
    """The measure's scores, refused by its name unless (objects, classes) and free of NaN."""
    name = type(measure).__name__
    checked = np.asarray(scores, dtype=np.float64)
    if checked.shape != shape:
        raise MeasureError(f"{name} gave scores of shape {checked.shape}, not (objects, classes) = {shape}.")
    if np.isnan(checked).any() or np.isneginf(checked).any():
        raise MeasureError(f"the scores of {name} contain NaN or -infinity; +infinity is the strangest.")
    return checked
