"""What the detector itself says about its certainty, through ``predict_proba``."""

from typing import Any

import numpy as np

from transcendent._utils.arrays import FloatArray
from transcendent.errors import MeasureError
from transcendent.measures.base import Measure


class Probability(Measure):
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
        """Negated class probabilities."""
        return -_probabilities(estimator, X)

    def left_out_scores(self, answers: Any, X: Any, y: Any) -> FloatArray:  # noqa: ARG002
        """Negated left-out probabilities."""
        return self.scores(answers, X)


class ProbabilityMargin(Measure):
    """Probability of the strongest other class minus that of the class in question."""

    def scores(self, estimator: Any, X: Any) -> FloatArray:
        """Differences of class probabilities, in [-1, 1]."""
        p = _probabilities(estimator, X)
        first, second = np.argmax(p, axis=1), np.partition(p, -2, axis=1)[:, -2]
        rows = np.arange(len(p))
        strongest_other = np.repeat(p[rows, first][:, None], p.shape[1], axis=1)
        strongest_other[rows, first] = second
        return strongest_other - p

    def left_out_scores(self, answers: Any, X: Any, y: Any) -> FloatArray:  # noqa: ARG002
        """Differences of left-out probabilities."""
        return self.scores(answers, X)


def _probabilities(estimator: Any, X: Any) -> FloatArray:
    if not hasattr(estimator, "predict_proba"):
        raise MeasureError(f"{type(estimator).__name__} has no predict_proba; take another measure.")
    return np.asarray(estimator.predict_proba(X), dtype=np.float64)
