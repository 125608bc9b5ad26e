"""Labelled rows with what is fitted on them, at first and when more labels have come."""

import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

import numpy as np
from sklearn.frozen import FrozenEstimator

from transcendent._utils.arrays import AnyArray, IntArray, abbreviate, as_labels, take_rows
from transcendent._utils.estimators import see_through
from transcendent.errors import CopiesWarning
from transcendent.evaluators.known import Roles
from transcendent.measures.auto import resolve_measure
from transcendent.measures.detector import Answer, Detector, needs_rows
from transcendent.rejectors import Traits

Learner = Literal["judge", "detector", "both"]

_MOST_COPIES = 0.1


@dataclass(frozen=True)
class Training:
    """Labelled rows, with the detector and measure to fit on them."""

    estimator: Any
    measure: Any
    X: Any
    y: AnyArray
    classes: AnyArray
    params: dict[str, Any]

    def take(self, rows: IntArray) -> Self:
        """Return some of the rows, in the order given."""
        params = _of_rows(self.params, rows, len(self.y))
        return replace(self, X=take_rows(self.X, rows), y=self.y[rows], params=params)

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
    training: Training, what: Learner, earlier: Detector, train: IntArray, calibration: IntArray
) -> tuple[Detector, Answer]:
    """Fit what learns on some rows, and answer those that calibrate."""
    detector = training.refit(train, earlier, what)
    return detector, detector.answer(take_rows(training.X, calibration))


def check_learning(evaluator: Any, training: Training, what: Learner) -> None:
    """Refuse to learn what cannot be learnt."""
    _check_can_learn(evaluator, what)
    _check_new_classes(evaluator, training, what)


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
    if not hasattr(evaluator, "known_rows_"):
        raise ValueError(
            f"this {name} was recalibrated with other rows, or saved before rows were known by what they "
            "hold: fit it anew."
        )
    if not _has_numbered_folds(evaluator):
        raise ValueError(f"{name} learns with a number of folds, not with cv={evaluator.cv!r}.")
    if what != "judge" and isinstance(evaluator.estimator, FrozenEstimator):
        way_out = "what='judge' can" if needs_rows(measure) else f"and {measure!r} has no models that could"
        raise ValueError(f"the detector is frozen, so what={what!r} cannot be; {way_out}.")
    if what == "judge":
        check_has_models(measure)


def _check_new_classes(evaluator: Any, training: Training, what: Learner) -> None:
    if len(lost := np.setdiff1d(evaluator.classes_, training.classes)):
        raise ValueError(
            f"y lacks {abbreviate(lost)}, learnt before: give all labelled rows so far, or fit anew."
        )
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


def check_added_classes(evaluator: Any, training: Training, roles: Roles) -> None:
    """Refuse classes that the detector does not know yet with too few rows to train and to calibrate."""
    added = np.setdiff1d(training.classes, evaluator.classes_)
    rows = np.unique(np.concatenate([*roles.calibration, *roles.train]))
    counts = np.array([np.sum(training.y[rows] == label) for label in added])
    if len(few := added[counts < (least := max(2, len(evaluator.detectors_)))]):
        raise ValueError(
            f"y has too few different rows of {abbreviate(few)}, which the detector does not know yet: to "
            f"train and to calibrate it takes {least}. Leave these rows out until there are more."
        )
    later = np.setdiff1d(training.classes, evaluator.known_rows_.classes)
    calibrates = [np.isin(later, training.y[rows]) for rows in roles.calibration]
    if len(none := later[~np.all(calibrates, axis=0)]):
        each = " each detector" if len(calibrates) > 1 else ""
        raise ValueError(
            f"y has no rows of {abbreviate(none)} that could calibrate{each}: those that trained in an "
            f"earlier call cannot. Add new rows, at least {evaluator._one_in} of each class, or fit anew."
        )


def warn_of_copies(roles: Roles, stacklevel: int) -> None:
    """Warn that rows did not train since they equal some that calibrate."""
    warnings.warn(
        f"{roles.left_out.sum():,} of the {roles.n_new:,} new rows equal rows that calibrate. They were left "
        "out: what is trained on them looks better in calibration than it is.",
        CopiesWarning,
        stacklevel=stacklevel,
    )


def warn_if_not_independent(evaluator: Any, stacklevel: int) -> None:
    """Warn that a promise rests on many rows that equal other rows of ``fit``."""
    if evaluator.search_.apart is None or not hasattr(evaluator, "known_rows_"):
        return
    (rows,) = evaluator.calibration_rows_  # where something is promised, there is one detector
    copies = evaluator.known_rows_.copies()[rows]
    if copies.mean() > _MOST_COPIES:
        warnings.warn(
            f"{copies.sum():,} of the {len(rows):,} rows that calibrate equal another row of fit. Repeated "
            f"rows are not independent: what {type(evaluator.search_).__name__} promises may not hold for "
            "objects that do not repeat in the same way. Keep one of each before fit.",
            CopiesWarning,
            stacklevel=stacklevel,
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


def _of_rows(params: dict[str, Any], rows: IntArray, n: int) -> dict[str, Any]:
    """Take the rows of metadata that has one entry per row; pass the rest on."""
    return {
        name: take_rows(value, rows) if hasattr(value, "__len__") and len(value) == n else value
        for name, value in params.items()
    }
