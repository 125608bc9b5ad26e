"""Labelled rows with what is fitted on them, at first and when more labels have come."""

from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, Literal, get_args

import numpy as np
from sklearn.frozen import FrozenEstimator

from transcendent._utils.arrays import AnyArray, IntArray, abbreviate, as_labels, take_rows
from transcendent._utils.estimators import see_through
from transcendent.measures.auto import resolve_measure
from transcendent.measures.detector import Answer, Detector, needs_rows

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
    name = type(evaluator).__name__
    if what not in get_args(Learner):
        raise ValueError(f"what learns is one of {get_args(Learner)}, not {what!r}.")
    if not hasattr(evaluator, "calibration_rows_"):
        raise ValueError(
            f"this {name} was recalibrated with other rows, or saved before it could learn: fit it anew."
        )
    if not isinstance(getattr(evaluator, "cv", "loo"), int | np.integer | str):
        raise ValueError(f"{name} learns with a number of folds, not with cv={evaluator.cv!r}.")
    n, classes = evaluator.n_rows_, evaluator.classes_
    each = zip(evaluator.detectors_, evaluator.judges_, evaluator.calibration_rows_, strict=True)
    if len(training.y) < n or not all(_calibrated_on(training, *one, what) for one in each):
        raise ValueError(f"X and y begin with the {n:,} rows given to fit, in their order; these do not.")
    if len(lost := np.setdiff1d(classes, training.classes)):
        raise ValueError(f"y lacks {abbreviate(lost)}, learnt before: give all labelled rows so far.")
    new = np.setdiff1d(training.classes, classes)
    if what != "judge" and isinstance(evaluator.estimator, FrozenEstimator):
        raise ValueError(f"the detector is frozen, so what={what!r} cannot be; what='judge' can.")
    if what == "judge" and len(new):
        raise ValueError(
            f"y has {abbreviate(new)}, which the detector does not know. Leave these rows out, or let it "
            "learn: what='both'."
        )
    if what == "judge" and not needs_rows(measure := evaluator.detectors_[0].measure):
        raise ValueError(
            f"{measure!r} has no models of its own that could learn beside the detector; those of "
            "drift_measure() or a SecondOpinion could."
        )


def in_known_type(y: Any, classes: AnyArray) -> AnyArray:
    """Return labels as the type of the classes; refuse those that it cannot hold."""
    labels = as_labels(y)
    if labels.dtype.kind == classes.dtype.kind:
        return labels
    number = "biuf"
    if (labels.dtype.kind in number) == (classes.dtype.kind in number):
        cast = labels.astype(classes.dtype)
        if np.array_equal(cast, labels):
            return cast
    raise ValueError(f"y has labels such as {labels[:1].tolist()}, but fit had {abbreviate(classes)}.")


def _calibrated_on(training: Training, detector: Detector, judge: Any, rows: IntArray, what: Learner) -> bool:
    """Whether these rows have the labels, and if a part is kept that has seen others, the scores they had."""
    calibration, n = judge.calibration_, len(rows)
    if not np.array_equal(training.y[rows], calibration.classes[calibration.actual[:n]]):
        return False
    if what == "both":
        return True
    _, scores = detector.answer(take_rows(training.X, rows))
    return bool(np.allclose(scores, calibration.scores[:n], rtol=1e-5, atol=1e-8))


def what_learns(rejector: Any, wanted: Learner) -> Learner | Literal["anew", "nothing"]:
    """Return what of a rejector can learn of that which is to learn.

    Beside a frozen detector only the judge learns, if it has models. Scores, and a frozen detector without
    models beside it, learn nothing. Other rejectors without ``learn`` are fitted anew. A judge or detector
    that cannot learn alone is refused.
    """
    evaluator = getattr(rejector, "rejector", rejector)
    by_number = isinstance(getattr(evaluator, "cv", "loo"), int | np.integer | str)
    learns = hasattr(rejector, "learn") and by_number
    if not hasattr(evaluator, "estimator") and not learns and "labels" in signature(evaluator.fit).parameters:
        return "nothing"
    if wanted != "both" and not (learns and evaluator.learns_apart):
        raise ValueError(f"{type(evaluator).__name__} fits detector and judge together: learns='both'.")
    if not learns:
        return "anew"
    if wanted == "both" and isinstance(evaluator.estimator, FrozenEstimator):
        return "judge" if needs_rows(resolve_measure(evaluator.measure, evaluator.estimator)) else "nothing"
    return wanted


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
