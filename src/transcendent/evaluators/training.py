"""Fit a detector and its measure on labelled rows, at first and when it learns."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.frozen import FrozenEstimator

from transcendent._utils.arrays import AnyArray, IntArray, abbreviate, as_labels, take_rows
from transcendent._utils.estimators import see_through
from transcendent.decisions import Learner
from transcendent.measures.detector import CodedAnswers, Detector

Fold = tuple[Detector, CodedAnswers, IntArray]
"""A fitted detector, its answers about its calibration rows, and the positions of these rows."""
LabelledRows = tuple[Any, Any]
"""Rows and their labels, as ``fit`` takes them."""


@dataclass(frozen=True)
class Training:
    """Labelled rows, and the detector and measure to fit on them."""

    estimator: Any
    measure: Any
    X: Any
    y: AnyArray
    classes: AnyArray
    params: dict[str, Any]

    @property
    def codes(self) -> IntArray:
        """The labels as positions in ``classes``."""
        return np.searchsorted(self.classes, self.y)

    def take(self, rows: IntArray) -> Self:
        """Return some of the rows, in the order given, with their metadata."""
        params = {
            name: take_rows(value, rows) if hasattr(value, "__len__") and len(value) == len(self.y) else value
            for name, value in self.params.items()
        }
        return replace(self, X=take_rows(self.X, rows), y=self.y[rows], params=params)

    def fit(self, rows: IntArray) -> Detector:
        """Fit a detector on the rows."""
        own = self.take(rows)
        return Detector.fit(self.estimator, self.measure, own.X, own.y, self.classes, **own.params)

    def fit_fold(
        self, train: IntArray, calibration: IntArray, earlier: Detector | None = None, what: Learner = "both"
    ) -> Fold:
        """Fit a detector, or refit what learns, on some rows; return it with its answers about others."""
        detector = self.fit(train) if earlier is None else self._refit(train, earlier, what)
        everything = np.array_equal(calibration, np.arange(len(self.y)))
        X = self.X if everything else take_rows(self.X, calibration)
        return detector, detector.answer(X), calibration

    def _refit(self, rows: IntArray, earlier: Detector, what: Learner) -> Detector:
        """Fit what learns on the rows, and keep the rest of an earlier detector."""
        if what == "judge":
            keeping = replace(self, estimator=FrozenEstimator(earlier.estimator))
            return keeping.fit(rows)._replace(estimator=earlier.estimator)
        transformers, classifier = see_through(earlier.estimator)
        same = not transformers and np.array_equal(classifier.classes_, self.classes)
        if what == "detector" and same and earlier.measure.needs_rows_alone:
            keeping = replace(self, measure=FrozenEstimator(earlier.measure))
            return keeping.fit(rows)._replace(measure=earlier.measure)
        return self.fit(rows)


def cast_labels(y: Any, classes: AnyArray) -> AnyArray:
    """Return labels in the type of the classes; refuse labels that it cannot represent."""
    labels = as_labels(y)
    if labels.dtype.kind == classes.dtype.kind != "O":
        return labels
    are_texts = isinstance(classes.tolist()[0], str)
    for label in np.asarray(y, dtype=object).ravel().tolist():
        is_text = isinstance(label, str)
        if is_text != are_texts or (not is_text and np.asarray(label).astype(classes.dtype) != label):
            raise ValueError(f"y has the label {label!r}, of another type than {abbreviate(classes)} in fit.")
    return np.array(labels.tolist()) if are_texts else labels.astype(classes.dtype)
