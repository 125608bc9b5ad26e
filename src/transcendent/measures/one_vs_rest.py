"""Two-class measures applied to several classes."""

from typing import Any, Self

import numpy as np
from sklearn.base import clone

from transcendent._utils.arrays import FloatArray
from transcendent.measures.auto import resolve_measure
from transcendent.measures.base import Measure, training_codes


class OneVsRestMeasure(Measure):
    """One two-class model and one two-class measure per class; each scores its own class.

    Parameters
    ----------
    measure : Measure or str
        A measure for two-class classifiers, or its name.
    estimator : classifier or None
        The classifier to fit per class; by default a clone of the detector, or of a pipeline's last step.
    """

    needs_rows = True

    def __init__(self, measure: Measure | str, *, estimator: Any = None) -> None:
        self.measure = measure
        self.estimator = estimator

    def fit(self, estimator: Any, X: Any, y: Any) -> Self:
        """Fit one classifier and one measure per class, the class against the rest."""
        codes = training_codes(estimator, y)
        base = estimator if self.estimator is None else self.estimator
        self.estimators_, self.measures_ = [], []
        for c in range(len(estimator.classes_)):
            belongs = (codes == c).astype(int)
            model = clone(base).fit(X, belongs)
            self.estimators_.append(model)
            self.measures_.append(resolve_measure(self.measure, model).fit(model, X, belongs))
        return self

    def scores(self, estimator: Any, X: Any) -> FloatArray:  # noqa: ARG002
        """Return the score of each class from its own model."""
        pairs = zip(self.estimators_, self.measures_, strict=True)
        return np.column_stack([measure.scores(model, X)[:, 1] for model, measure in pairs])
