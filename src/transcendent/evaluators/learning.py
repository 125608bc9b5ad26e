"""The base class of evaluators that learn from new labels."""

import warnings
from abc import ABC, abstractmethod
from copy import copy
from typing import Any, Literal, Self

import numpy as np
from sklearn.frozen import FrozenEstimator

from transcendent._utils import parallel
from transcendent._utils.arrays import AnyArray, abbreviate, stack_rows, warn_of_other_order
from transcendent._utils.cells import locate_bad_value
from transcendent._utils.checks import check_choices
from transcendent.decisions import Learner
from transcendent.errors import CopiesWarning
from transcendent.evaluators.base import ConformalEvaluator
from transcendent.evaluators.known import Roles
from transcendent.evaluators.training import Fold, LabelledRows, Training, cast_labels
from transcendent.measures.auto import resolve_measure
from transcendent.measures.base import Measure
from transcendent.measures.detector import needs_rows


class LearningEvaluator(ConformalEvaluator, ABC):
    """An evaluator that can learn: new rows train, and the calibration rows stay the same."""

    cv: Any = None
    can_learn = True
    learns_separately = True
    """Whether the detector and the models of the measure can learn without each other."""

    @locate_bad_value
    def learn(
        self, X: Any, y: Any, *, what: Learner = "judge", fitted: LabelledRows | None = None, **params: Any
    ) -> Self:
        """Learn from new labels; the calibration rows stay the same.

        New rows only train. Objects that were chosen for labelling do not represent the stream, so
        thresholds found on them would promise nothing. Thresholds are searched again with ``search_`` or, if
        there are new classes, with the search of the constructor. A call that fails changes nothing.

        Rows are recognised by their content: the same rows in any order give the same evaluator. (Equal rows
        with different metadata are distinguished by their order.)

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n, features)
            Every row given to ``fit`` and every row labelled since; only the latter if ``fitted`` is given.
            A new row that equals a calibration row of a detector does not train it; ``n_left_out_`` is the
            number of such rows.
        y : array of shape (n,)
            Their labels. If there is a new class, the detector must learn too. Some rows of a new class
            calibrate, and continue to do so in later calls.
        what : {"judge", "detector", "both"}
            What is refitted on old and new rows. ``"judge"``: the models of the measure, such as second
            opinions. ``"detector"``: the detector, and those models only if a pipeline transforms rows.
        fitted : pair (X, y) or None
            The rows given to ``fit`` and their labels, in any order, if they are not among ``X`` and ``y``.
        **params : dict
            Passed to the detector's ``fit`` through metadata routing, as for ``fit``, for all rows: those of
            ``fitted`` first.
        """
        learning, training, roles = self._start_learning(X, y, what, params, fitted)
        n = len(self.detectors_)
        folds = parallel.run(
            Training.fit_fold,
            zip(roles.train, roles.calibration, self.detectors_, [what] * n, strict=True),
            shared=(training,),
            total=n,
            n_jobs=self.n_jobs if n > 1 else 1,
            label="learning",
            verbose=self.verbose,
        )
        return self._finish_learning(learning, training, folds)

    def _start_learning(
        self, X: Any, y: Any, what: Learner, params: dict[str, Any], fitted: LabelledRows | None
    ) -> tuple[Self, Training, Roles]:
        """Return a copy of the evaluator that will learn, its training, and the roles of the rows."""
        warn_of_other_order(X, y, stacklevel=5)
        X, y, metadata = self._check_rows(X), cast_labels(y, self.classes_), self.fit_metadata_
        if fitted is not None:
            old, labels = fitted
            warn_of_other_order(old, labels, stacklevel=5)
            X = stack_rows(self._check_rows(old), X)
            y = np.concatenate([cast_labels(labels, self.classes_), y])
        if what != "judge" and sorted(params) != metadata:
            raise ValueError(f"fit was given metadata {metadata}: pass the same to learn, for all rows.")
        learning = copy(self)
        training = learning._start_fit(X, y, params)
        learning.fit_metadata_ = metadata  # of the detector, which may stay as it is
        self._check_can_learn(what)
        self._check_classes(training.classes, what)
        roles = self.known_rows_.assign(
            training.X, training.y, training.classes, self.calibration_rows_, self._new_class_stride
        )
        self._check_added_rows(training, roles)
        learning.known_rows_, learning.n_left_out_ = roles.known, int(roles.left_out.sum())
        if learning.n_left_out_ > self.n_left_out_:
            warnings.warn(
                f"{learning.n_left_out_:,} of the {roles.n_new:,} new rows equal rows that calibrate. They "
                "were left out: a model trained on them would look too good in calibration.",
                CopiesWarning,
                stacklevel=4,
            )
        return learning, training, roles

    @property
    @abstractmethod
    def _new_class_stride(self) -> int:
        """Return k: one in k rows of a class that ``fit`` has not seen calibrates, the others train."""

    def _finish_learning(self, learning: Self, training: Training, folds: list[Fold]) -> Self:
        """Calibrate a copy that has learnt, and adopt its state."""
        search = self.search_ if len(training.classes) == len(self.classes_) else self.search
        learning._calibrate(training, folds, search)
        self.__dict__.update(learning.__dict__)
        return self

    def what_learns(self, wanted: Learner) -> Learner | Literal["anew", "nothing"]:
        """Return what learns from new labels when ``wanted`` is requested.

        With a frozen detector only the judge learns, if it has models. With the folds of a splitter
        everything is refitted. Raises ``ValueError`` if ``wanted`` cannot learn alone.
        """
        if not self._has_numbered_folds or (wanted != "both" and not self.learns_separately):
            return super().what_learns(wanted)
        if wanted == "judge":
            _check_has_models(resolve_measure(self.measure, self.estimator))
        if wanted == "both" and isinstance(self.estimator, FrozenEstimator):
            return "judge" if needs_rows(resolve_measure(self.measure, self.estimator)) else "nothing"
        return wanted

    @property
    def _has_numbered_folds(self) -> bool:
        """Whether its folds, if it has any, do not come from a splitter."""
        return isinstance(self.cv, int | np.integer | str | None)

    def _check_can_learn(self, what: Learner) -> None:
        name, measure = type(self).__name__, self.detectors_[0].measure
        check_choices(Learner, what=what)
        if not hasattr(self, "known_rows_"):
            raise ValueError(f"this {name} was recalibrated with other rows: fit it again.")
        if not self._has_numbered_folds:
            raise ValueError(f"{name} can learn with a number of folds, not with cv={self.cv!r}.")
        if what != "judge" and isinstance(self.estimator, FrozenEstimator):
            way_out = "pass what='judge'" if needs_rows(measure) else f"{measure!r} has no models either"
            raise ValueError(f"the detector is frozen and cannot learn; {way_out}.")
        if what == "judge":
            _check_has_models(measure)

    def _check_classes(self, classes: AnyArray, what: Learner) -> None:
        """Refuse rows that lack a known class, and new classes that cannot be learnt."""
        if len(lost := np.setdiff1d(self.classes_, classes)):
            raise ValueError(f"y lacks {abbreviate(lost)}, known before: pass all rows so far, or fit again.")
        new = np.setdiff1d(classes, self.classes_)
        if what == "judge" and len(new):
            raise ValueError(
                f"y has {abbreviate(new)}, which the detector does not know. Leave these rows out, or let it "
                "learn them: what='both'."
            )
        if len(new) and self.search_.held_out_seed is not None:
            raise ValueError(
                f"y has {abbreviate(new)}, which the detector does not know. Its calibration rows would not "
                "be a random draw, so nothing can be guaranteed: leave these rows out, or fit again."
            )

    def _check_added_rows(self, training: Training, roles: Roles) -> None:
        """Refuse new classes with too few rows to train and to calibrate."""
        added = np.setdiff1d(training.classes, self.classes_)
        rows = np.unique(np.concatenate([*roles.calibration, *roles.train]))
        counts = np.array([np.sum(training.y[rows] == label) for label in added])
        if len(few := added[counts < (least := max(2, len(self.detectors_)))]):
            raise ValueError(
                f"y has too few different rows of {abbreviate(few)}, which the detector does not know yet: "
                f"training and calibration need {least}. Leave these rows out until there are more."
            )
        later = np.setdiff1d(training.classes, self.known_rows_.classes)
        calibrates = [np.isin(later, training.y[rows]) for rows in roles.calibration]
        if len(none := later[~np.all(calibrates, axis=0)]):
            each = " each detector" if len(calibrates) > 1 else ""
            raise ValueError(
                f"y has no rows of {abbreviate(none)} to calibrate{each}: rows that trained in an earlier "
                f"call cannot. Add at least {self._new_class_stride} new rows of each class, or fit again."
            )


def _check_has_models(measure: Measure) -> None:
    """Refuse a measure without models, which cannot learn."""
    if not needs_rows(measure):
        raise ValueError(f"{measure!r} has no models that learn; use measure='drift' or a SecondOpinion.")
