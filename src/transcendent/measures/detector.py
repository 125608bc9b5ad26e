"""A fitted classifier with the measure fitted beside it: rows in, labels and scores out."""

from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import column_or_1d

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, abbreviate, count_rows, encode_labels
from transcendent._utils.estimators import see_through, transform
from transcendent.errors import CalibrationError, MeasureError, NoShortcutError
from transcendent.leave_one_out.registry import Shortcut
from transcendent.measures.auto import resolve_measure
from transcendent.measures.base import Measure, checked_scores

CodedAnswers = tuple[IntArray, FloatArray]
"""Labels, as positions in the sorted classes, and (n, classes[, members]) scores in that order."""


class Detector(NamedTuple):
    """A fitted detector, which may be a pipeline, and the measure fitted beside it.

    Scores are rounded if ``in_single_precision``, because the detector computes them with no more digits.
    """

    estimator: Any
    measure: Measure
    in_single_precision: bool = False

    @classmethod
    def fit(cls, estimator: Any, measure: Any, X: Any, y: AnyArray, classes: AnyArray, **params: Any) -> Self:
        """Fit a clone of the detector (a frozen one stays as it is), and the measure beside it."""
        model = clone(estimator)
        if not isinstance(model, FrozenEstimator):
            model.fit(X, y, **params)
        transformers, classifier = see_through(model)
        _check_classes(classifier, classes)
        resolved = resolve_measure(measure, model)
        if needs_rows(resolved):
            resolved.fit(classifier, transform(transformers, X), y)
        return cls(model, resolved)

    def answer(self, X: Any) -> CodedAnswers:
        """Return labels and scores; a pipeline transforms the rows once for both."""
        transformers, classifier = see_through(self.estimator)
        rows = transform(transformers, X)
        classes = np.asarray(classifier.classes_)
        scores = self._checked(self.measure.scores(classifier, rows), classes, X, rows)
        codes = self.measure.implied_labels(classifier, scores)
        if codes is None:
            codes = encode_labels(column_or_1d(classifier.predict(rows)), classes, "predict")
        if len(codes) != len(scores):
            raise ValueError(
                f"{type(classifier).__name__} predicts {len(codes)} labels for {len(scores)} rows."
            )
        return _in_sorted_order(classes, codes, scores)

    def answer_left_out(self, shortcut: Shortcut, X: Any, y: AnyArray) -> CodedAnswers:
        """Return labels and scores of the training rows, each as if fitted without it."""
        transformers, classifier = see_through(self.estimator)
        rows = transform(transformers, X)
        answers = shortcut.function(classifier, rows, y)
        try:
            left_out = self.measure.left_out_scores(answers, rows, y)
            scores = self._checked(left_out, answers.classes_, X, rows)
        except MeasureError:
            kind, measure = type(classifier).__name__, type(self.measure).__name__
            raise NoShortcutError(f"the one for {kind} does not give what {measure} needs") from None
        codes = encode_labels(answers.predict(rows), answers.classes_, "predict")
        return _in_sorted_order(answers.classes_, codes, scores)

    def _checked(self, scores: Any, classes: AnyArray, X: Any, rows: Any) -> FloatArray:
        checked = checked_scores(self.measure, scores, (count_rows(rows), len(classes)))
        few_digits = self.in_single_precision or any(map(has_single_precision, (X, rows)))
        return round_to_single(checked) if few_digits else checked


def round_to_single(scores: FloatArray) -> FloatArray:
    """Round scores to single precision, except those too large for it."""
    with np.errstate(over="ignore"):
        rounded = scores.astype(np.float32).astype(np.float64)
    return np.where(np.isfinite(rounded), rounded, scores)


def needs_rows(measure: Measure) -> bool:
    """Return whether the measure must still be fitted on rows."""
    return measure.needs_rows and not isinstance(measure, FrozenEstimator)


def _check_classes(classifier: Any, classes: AnyArray) -> None:
    known = getattr(classifier, "classes_", None)
    if known is None:
        raise ValueError(f"{type(classifier).__name__} is not a fitted classifier: it has no classes_.")
    if unknown := np.setdiff1d(classes, known).tolist():
        raise CalibrationError(
            f"y has the label {unknown[0]!r}, which the detector does not know; it was fitted on "
            f"{abbreviate(np.asarray(known))}."
        )
    if unseen := np.setdiff1d(known, classes).tolist():
        raise CalibrationError(
            f"the detector can predict {unseen[0]!r}, but y has no object of that class to calibrate on."
        )


def _in_sorted_order(classes: AnyArray, codes: IntArray, scores: FloatArray) -> CodedAnswers:
    """Reorder positions and columns from the order of ``classes`` to that of the sorted classes."""
    order = np.argsort(classes)
    if np.array_equal(order, np.arange(len(classes))):
        return codes, scores
    return np.argsort(order)[codes], scores[:, order]


def has_single_precision(X: Any) -> bool:
    """Return whether all columns are in single or half precision."""
    kinds = [X.dtype] if hasattr(X, "dtype") else list(getattr(X, "dtypes", ()))
    return bool(kinds) and all(kind in (np.float32, np.float16) for kind in kinds)
