"""Labelled rows with what is fitted on them, at first and when more labels have come."""

import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from sklearn.frozen import FrozenEstimator

from transcendent._utils.arrays import AnyArray, IntArray, abbreviate, as_labels, keys_of_any_rows, take_rows
from transcendent._utils.estimators import see_through
from transcendent.errors import CalibrationWarning
from transcendent.measures.auto import resolve_measure
from transcendent.measures.detector import Answer, Detector, needs_rows
from transcendent.rejectors import Traits

Learner = Literal["judge", "detector", "both"]


@dataclass(frozen=True)
class Training:
    """Labelled rows, with the detector and measure to fit on them."""

    estimator: Any
    measure: Any
    X: Any
    y: AnyArray
    classes: AnyArray
    params: dict[str, Any]

    def fit(self, rows: IntArray) -> Detector:
        """Fit a detector on the rows."""
        X, params = take_rows(self.X, rows), _of_rows(self.params, rows, len(self.y))
        return Detector.fit(self.estimator, self.measure, X, self.y[rows], self.classes, **params)

    def refit(self, rows: IntArray, earlier: Detector, what: Learner) -> Detector:
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


def learn_fold(
    training: Training, what: Learner, earlier: Detector, calibration: IntArray
) -> tuple[Detector, Answer]:
    """Fit what learns on all rows but those that calibrate, and answer these."""
    rows = np.setdiff1d(np.arange(len(training.y)), calibration)
    detector = training.refit(rows, earlier, what)
    return detector, detector.answer(take_rows(training.X, calibration))


def check_learning(evaluator: Any, training: Training, what: Learner) -> None:
    """Refuse to learn what cannot be learnt, and rows that do not begin with those of ``fit``."""
    _check_can_learn(evaluator, what)
    _check_first_rows(evaluator, training, what)
    _check_new_classes(evaluator, training, what)
    _warn_if_known(evaluator, training)


def check_has_models(measure: Any) -> None:
    """Refuse a measure without models, which cannot learn."""
    if not needs_rows(measure):
        raise ValueError(
            f"{measure!r} has no models of its own that could learn beside the detector; those of "
            "measure='drift' or a SecondOpinion could."
        )


def _check_can_learn(evaluator: Any, what: Learner) -> None:
    name, measure = type(evaluator).__name__, evaluator.detectors_[0].measure
    if what not in get_args(Learner):
        raise ValueError(f"what learns is one of {get_args(Learner)}, not {what!r}.")
    if not hasattr(evaluator, "calibration_rows_"):
        raise ValueError(
            f"this {name} was recalibrated with other rows, or saved before it could learn: fit it anew."
        )
    if not _has_numbered_folds(evaluator):
        raise ValueError(f"{name} learns with a number of folds, not with cv={evaluator.cv!r}.")
    if what != "judge" and isinstance(evaluator.estimator, FrozenEstimator):
        way_out = "what='judge' can" if needs_rows(measure) else f"and {measure!r} has no models that could"
        raise ValueError(f"the detector is frozen, so what={what!r} cannot be; {way_out}.")
    if what == "judge":
        check_has_models(measure)


def _check_first_rows(evaluator: Any, training: Training, what: Learner) -> None:
    n = evaluator.n_rows_
    each = zip(evaluator.detectors_, evaluator.judges_, evaluator.calibration_rows_, strict=True)
    if len(training.y) < n:
        raise ValueError(f"fit had {n:,} rows, which come first, and these are {len(training.y):,}.")
    for one in each:
        if (row := _first_other_row(training, *one, what)) is not None:
            raise ValueError(
                f"the first {n:,} rows must be those given to fit, in their order; row {row} is another, or "
                "has another label. Were they changed, sorted, or chosen otherwise?"
            )


def _check_new_classes(evaluator: Any, training: Training, what: Learner) -> None:
    if len(lost := np.setdiff1d(evaluator.classes_, training.classes)):
        raise ValueError(f"y lacks {abbreviate(lost)}, learnt before: give all labelled rows so far.")
    new = np.setdiff1d(training.classes, evaluator.classes_)
    if what == "judge" and len(new):
        raise ValueError(
            f"y has {abbreviate(new)}, which the detector does not know. Leave these rows out, or let it "
            "learn: what='both'."
        )
    if len(new) and evaluator.search_.apart is not None:
        raise ValueError(
            f"y has {abbreviate(new)}, which the detector does not know. Of these, chosen rows would "
            "calibrate, and nothing can be guaranteed: leave them out, or fit anew."
        )
    counts = np.array([np.sum(training.y == label) for label in new])
    if len(few := new[counts < (least := max(2, len(evaluator.detectors_)))]):
        raise ValueError(
            f"y has too few rows of {abbreviate(few)}, which the detector does not know yet: to train and "
            f"to calibrate it takes {least}. Leave these rows out until there are more."
        )


def _warn_if_known(evaluator: Any, training: Training) -> None:
    """Warn if most of the new rows equal some that calibrate: models would be judged by rows they saw."""
    calibration = np.unique(np.concatenate(evaluator.calibration_rows_))
    new = np.arange(evaluator.n_rows_, len(training.y))
    keys = keys_of_any_rows(take_rows(training.X, np.concatenate([new, calibration])))
    known = np.isin(keys[: len(new)], keys[len(new) :])
    if known.sum() > len(new) / 2:
        warnings.warn(
            f"{known.sum():,} of the {len(new):,} new rows equal rows that calibrate. What learns them "
            "looks better there than it is: give rows that came later.",
            CalibrationWarning,
            stacklevel=5,
        )


def in_known_type(y: Any, classes: AnyArray) -> AnyArray:
    """Return labels as the type of the classes; refuse those that it cannot hold."""
    labels = as_labels(y)
    if labels.dtype.kind == classes.dtype.kind != "O":
        return labels
    are_texts = isinstance(classes.tolist()[0], str)
    for label in np.asarray(y, dtype=object).ravel().tolist():
        is_text = isinstance(label, str)
        if is_text != are_texts or (not is_text and np.asarray(label).astype(classes.dtype) != label):
            raise ValueError(
                f"y has the label {label!r}, of another type than those of fit, {abbreviate(classes)}."
            )
    return np.array(labels.tolist()) if are_texts else labels.astype(classes.dtype)


def _first_other_row(
    training: Training, detector: Detector, judge: Any, rows: IntArray, what: Learner
) -> int | None:
    """Return the first of the rows that has not the label or, if a part is kept that saw it, score it had."""
    calibration, n = judge.calibration_, len(rows)
    other = training.y[rows] != calibration.classes[calibration.actual[:n]]
    if what != "both" and not other.any():
        _, scores = detector.answer(take_rows(training.X, rows))
        same = np.isclose(scores, calibration.scores[:n], rtol=1e-5, atol=1e-8)
        other = ~same.reshape(n, -1).all(axis=1)
    return int(rows[other].min()) if other.any() else None


def what_learns(rejector: Any, wanted: Learner) -> Learner | Literal["anew", "nothing"]:
    """Return which part of a rejector learns, if ``wanted`` is to.

    Beside a frozen detector only the judge learns, if it has models. Scores, and a frozen detector without
    models beside it, learn nothing. Other rejectors without ``learn`` are fitted anew. A judge or detector
    that cannot learn alone is refused.
    """
    if Traits.of(rejector).takes_labels:
        return "nothing"
    evaluator = getattr(rejector, "rejector", rejector)
    learns = hasattr(rejector, "learn") and _has_numbered_folds(evaluator)
    if wanted != "both" and not (learns and evaluator.learns_apart):
        raise ValueError(f"{type(evaluator).__name__} fits detector and judge together: learns='both'.")
    if not learns:
        return "anew"
    if wanted == "judge":
        check_has_models(resolve_measure(evaluator.measure, evaluator.estimator))
    if wanted == "both" and isinstance(evaluator.estimator, FrozenEstimator):
        return "judge" if needs_rows(resolve_measure(evaluator.measure, evaluator.estimator)) else "nothing"
    return wanted


def _has_numbered_folds(evaluator: Any) -> bool:
    """Whether its folds, if it has any, are not those of a splitter."""
    return isinstance(getattr(evaluator, "cv", "loo"), int | np.integer | str)


def every_kth_of_new_classes(codes: IntArray, n_old: int, first: int, k: int) -> IntArray:
    """Return every k-th row of each class that the old rows, which come first, do not have.

    More rows after these change nothing about them.
    """
    new = np.setdiff1d(codes, codes[:n_old])
    chosen = [np.flatnonzero(codes == c)[first::k] for c in new]
    return np.sort(np.concatenate([np.empty(0, dtype=np.intp), *chosen]))


def _of_rows(params: dict[str, Any], rows: IntArray, n: int) -> dict[str, Any]:
    """Take the rows of metadata that has one entry per row; pass the rest on."""
    return {
        name: take_rows(value, rows) if hasattr(value, "__len__") and len(value) == n else value
        for name, value in params.items()
    }
