"""Distance to the decision boundary of a classifier with a ``decision_function``."""

from typing import Any

import numpy as np
from sklearn.svm import LinearSVC

from transcendent._utils.arrays import FloatArray, IntArray
from transcendent.errors import MeasureError
from transcendent.measures.base import OutputMeasure


class Margin(OutputMeasure):
    """Negated signed distance to the hyperplane, on the side of the class in question.

    For the predicted class of a two-class detector this is the paper's negated absolute distance. With
    several classes each class has its own one-vs-rest decision value. Linear, polynomial and RBF SVMs,
    ridge, SGD and logistic regression all qualify.

    Examples
    --------
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent.measures import Margin
    >>> X, y = [[-2.0], [-1.0], [1.0], [2.0]], ["ham", "ham", "spam", "spam"]
    >>> svm = LinearSVC().fit(X, y)
    >>> Margin().scores(svm, [[1.5]]).round(2)
    array([[ 1.2, -1.2]])
    """

    def scores(self, estimator: Any, X: Any) -> FloatArray:
        """Return negated decision values, one column per class."""
        if not hasattr(estimator, "decision_function"):
            raise MeasureError(f"{type(estimator).__name__} has no decision_function; use another measure.")
        rows = _by_column_in_doubles(estimator, X)
        decision = np.asarray(estimator.decision_function(rows), dtype=np.float64)
        if decision.ndim == 1:
            return np.column_stack([decision, -decision])
        # Three classes also have three pairs, so the number of columns alone cannot tell.
        pairwise = getattr(estimator, "decision_function_shape", "ovr") == "ovo"
        if pairwise or decision.shape[1] != len(estimator.classes_):
            raise MeasureError(
                f"{type(estimator).__name__}.decision_function gives {decision.shape[1]} columns for "
                f"{len(estimator.classes_)} classes; set decision_function_shape='ovr'."
            )
        return -decision

    def implied_labels(self, estimator: Any, scores: FloatArray) -> IntArray | None:
        """Return the class with the highest decision value, which is what ``LinearSVC`` predicts."""
        if getattr(type(estimator), "predict", None) is not LinearSVC.predict:
            return None
        if scores.shape[1] == 2:  # ten times faster
            return (scores[:, 1] < scores[:, 0]).astype(np.intp)
        return np.asarray(np.argmin(scores, axis=1))


def _by_column_in_doubles(estimator: Any, X: Any) -> Any:
    """Return float32 rows that lie by column in the precision of the coefficients.

    Their product turns rows into that precision as well, but reorders them first, which takes longer.
    """
    if not isinstance(X, np.ndarray) or X.dtype != np.float32 or X.flags.c_contiguous:
        return X
    coefficients = getattr(estimator, "coef_", None)
    return X.astype(np.float64) if getattr(coefficients, "dtype", None) == np.float64 else X
