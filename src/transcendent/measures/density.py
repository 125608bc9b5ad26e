"""The density of an object under a generative detector's model of each class."""

from typing import Any

import numpy as np
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.naive_bayes import ComplementNB

from transcendent._utils.arrays import FloatArray
from transcendent.errors import MeasureError
from transcendent.measures.base import OutputMeasure

_MAX_SCORE = 1e300


class Density(OutputMeasure):
    """Negated log density of the object within the class: naive Bayes and QDA.

    Unlike a posterior probability it stays low for an object that is unlikely under *every* class.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from transcendent.measures import Density
    >>> X, y = [[-1.0], [1.0], [9.0], [11.0]], [0, 0, 1, 1]
    >>> bayes = GaussianNB().fit(X, y)
    >>> Density().scores(bayes, [[0.0], [5.0]]).round(1)
    array([[ 0.9, 50.9],
           [13.4, 13.4]])
    """

    def scores(self, estimator: Any, X: Any) -> FloatArray:
        """Return negated log densities within the classes, without the priors of the classes.

        A prior would shift a column, and changes when a row of a small class is left out. A density of 0, or
        too small for a float, gets the highest score: 1e300.
        """
        with np.errstate(over="ignore"):
            return np.minimum(_negated_log_density(estimator, X), _MAX_SCORE)


def _negated_log_density(estimator: Any, X: Any) -> FloatArray:
    if isinstance(estimator, QuadraticDiscriminantAnalysis):
        return _quadratic(estimator, X)
    if hasattr(estimator, "class_log_densities"):
        return -np.asarray(estimator.class_log_densities(X), dtype=np.float64)
    if hasattr(estimator, "predict_joint_log_proba"):
        return _log_priors(estimator) - np.asarray(estimator.predict_joint_log_proba(X), dtype=np.float64)
    raise MeasureError(
        f"{type(estimator).__name__} has no class densities; Density supports naive Bayes and QDA."
    )


def _log_priors(bayes: Any) -> FloatArray:
    """Return the priors that the joint log densities of naive Bayes include."""
    if isinstance(bayes, ComplementNB):
        return np.zeros(1)
    if hasattr(bayes, "class_prior_"):
        return np.log(np.asarray(bayes.class_prior_, dtype=np.float64))
    return np.asarray(getattr(bayes, "class_log_prior_", 0.0), dtype=np.float64)


def _quadratic(qda: Any, X: Any) -> FloatArray:
    rows = np.asarray(X, dtype=np.float64)
    columns = []
    for mean, rotation, scaling in zip(qda.means_, qda.rotations_, qda.scalings_, strict=True):
        whitened = (rows - mean) @ (rotation / np.sqrt(scaling))
        columns.append(0.5 * (np.sum(whitened**2, axis=1) + np.sum(np.log(scaling))))
    return np.column_stack(columns)
