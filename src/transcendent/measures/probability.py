"""Class probabilities of the detector, by its ``predict_proba``."""

from typing import Any

import numpy as np

from transcendent._utils.arrays import FloatArray
from transcendent.errors import MeasureError
from transcendent.measures.base import OutputMeasure
from transcendent.measures.forest import class_probabilities


class Probability(OutputMeasure):
    """Negated probability of the class: boosted trees, logistic regression, the output layer of a network.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> from transcendent.measures import Probability
    >>> coin = DummyClassifier(strategy="prior").fit([[0], [0], [0], [0]], [0, 0, 0, 1])
    >>> Probability().scores(coin, [[0]])
    array([[-0.75, -0.25]])
    """

    def scores(self, estimator: Any, X: Any) -> FloatArray:
        """Return negated class probabilities."""
        if not hasattr(estimator, "predict_proba"):
            raise MeasureError(f"{type(estimator).__name__} has no predict_proba; use another measure.")
        return -class_probabilities(estimator, X)


class ProbabilityMargin(Probability):
    """Probability of the strongest other class minus that of the class in question."""

    def scores(self, estimator: Any, X: Any) -> FloatArray:
        """Return differences of class probabilities, in [-1, 1]."""
        negated = super().scores(estimator, X)
        return negated - smallest_of_others(negated)


def smallest_of_others(values: FloatArray) -> FloatArray:
    """Return, for each class, the smallest value in the columns of the other classes."""
    rows, smallest = np.arange(len(values)), np.argmin(values, axis=1)
    others = np.repeat(values[rows, smallest][:, None], values.shape[1], axis=1)
    others[rows, smallest] = np.partition(values, 1, axis=1)[:, 1]
    return others
