"""The transductive conformal evaluator (TCE), exact and approximate."""

import sys
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from transcendent._utils import parallel
from transcendent._utils.arrays import FloatArray, IntArray, take_rows
from transcendent._utils.cells import locate_bad_value
from transcendent.decisions import Learner
from transcendent.errors import CalibrationError, NoShortcutError
from transcendent.evaluators.one_detector import OneDetectorEvaluator
from transcendent.evaluators.splits import Split, check_class_sizes, folds
from transcendent.evaluators.training import Fold, LabelledRows, Training
from transcendent.judging.calibration import CalibrationLabel
from transcendent.judging.pvalues import Form
from transcendent.leave_one_out.registry import find_shortcut
from transcendent.measures.base import Measure
from transcendent.measures.detector import CodedAnswers, Detector
from transcendent.thresholds import SearchLike


class TransductiveEvaluator(OneDetectorEvaluator):
    """Trains and calibrates on every row: each row is scored by a model fitted without it.

    ``cv="loo"`` leaves out one row at a time (TCE). If the detector has a leave-one-out shortcut, one fit is
    enough; otherwise it is refitted once per row. A number of folds leaves rows out in batches (approx-TCE).
    New objects are judged by one detector fitted on all rows, against the left-out scores of all rows.

    Attributes that are not listed are those of `InductiveEvaluator`.

    Parameters
    ----------
    estimator : classifier
        The detector.
    cv : "loo", int or splitter
        Leave-one-out, a number of stratified folds, or a scikit-learn splitter whose test sets cover each
        row once. ``sklearn.model_selection.LeaveOneOut()`` is leave-one-out without shortcuts.
    n_jobs : int or None
        Number of processes that refit, and of threads that decide chunks of rows.
    measure, search, p_value, calibration_label, random_state, verbose
        As for `InductiveEvaluator`.

    Attributes
    ----------
    leave_one_out_ : {"exact", "approximate", "refit"}
        How rows were left out, with ``cv="loo"``.
    leave_one_out_reason_ : str
        Why the detector was refitted; empty if it was not.
    n_repeated_ : int
        Number of rows that equal another one.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from transcendent import TransductiveEvaluator
    >>> X, y = make_classification(200, flip_y=0.1, random_state=0)
    >>> tce = TransductiveEvaluator(GaussianNB(), cv="loo").fit(X, y)
    >>> len(tce.calibration_.scores), tce.measure_, tce.leave_one_out_
    (200, Density(), 'exact')
    """

    leave_one_out_: str
    leave_one_out_reason_: str

    learns_separately = False

    def __init__(
        self,
        estimator: BaseEstimator,
        *,
        measure: Measure | Callable[[Any, Any], Any] | str = "auto",
        search: SearchLike = "auto",
        cv: Any = 10,
        p_value: Form = "paper",
        calibration_label: CalibrationLabel = "predicted",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = True,
    ) -> None:
        self.estimator = estimator
        self.measure = measure
        self.search = search
        self.cv = cv
        self.p_value = p_value
        self.calibration_label = calibration_label
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _judges_by(self) -> str:
        kind = "a transductive" if self.cv == "loo" else "an approximately transductive"
        return (
            f"{self._measure_in_words()}, compared with all training objects, each scored by a detector "
            f"fitted without it ({kind} conformal evaluator)"
        )

    @locate_bad_value
    def fit(self, X: Any, y: Any, **params: Any) -> Self:
        """Fit on all rows and score each row left out; ``params`` are routed to the detector's ``fit``."""
        training = self._start_fit(X, y, params)
        return self._finish_fit(training, [self._leave_out(training, np.arange(len(training.y)))])

    @locate_bad_value
    def learn(
        self, X: Any, y: Any, *, what: Learner = "judge", fitted: LabelledRows | None = None, **params: Any
    ) -> Self:
        """Learn from new labels, as an `InductiveEvaluator` does, but always with ``what="both"``.

        The detectors fitted without single rows are not kept, so the measure cannot learn alone.
        """
        if what != "both":
            raise ValueError("a TransductiveEvaluator keeps no detectors of left-out rows: pass what='both'.")
        learning, labelled, roles = self._start_learning(X, y, what, params, fitted)
        training = labelled.take(np.concatenate([*roles.calibration, *roles.train]))
        fold = learning._leave_out(training, np.arange(len(roles.calibration[0])))
        return self._finish_learning(learning, training, [fold])

    @property
    def _new_class_stride(self) -> int:
        return 1

    def _count_repeated(self) -> int:
        return int(self.known_rows_.copies().sum())

    def _leave_out(self, training: Training, calibration: IntArray) -> Fold:
        """Fit on all rows, and score each calibration row left out; the other rows always train."""
        for name in ("leave_one_out_", "leave_one_out_reason_"):
            self.__dict__.pop(name, None)
        codes, purpose = training.codes, "so that a model without one of them still knows the class"
        check_class_sizes(codes, self.classes_, 2, purpose)
        own, total = folds(self.cv, codes[calibration], self.classes_, check_random_state(self.random_state))
        others = np.setdiff1d(np.arange(len(codes)), calibration)
        splits = ((np.sort(np.append(calibration[train], others)), calibration[test]) for train, test in own)
        started = time.perf_counter()
        with self._fitting():
            detector = training.fit(np.arange(len(codes)))
        seconds = time.perf_counter() - started
        answer = self._shortcut(training, detector, calibration) if isinstance(self.cv, str) else None
        if answer is None:
            if isinstance(self.cv, str) and self.verbose:
                self._forecast(seconds, total)
            answer = self._refit(training, splits, total, calibration)
        return detector, answer, calibration

    def _shortcut(self, training: Training, detector: Detector, rows: IntArray) -> CodedAnswers | None:
        """Return left-out labels and scores of rows without refits, or None, with the reason as attribute."""
        try:
            shortcut = find_shortcut(detector.estimator, training.params)
            labels, scores = detector.answer_left_out(shortcut, training.X, training.y)
        except NoShortcutError as reason:
            self.leave_one_out_, self.leave_one_out_reason_ = "refit", str(reason)
            return None
        self.leave_one_out_reason_ = ""
        self.leave_one_out_ = shortcut.kind if detector.measure.left_out_is_exact else "approximate"
        return labels[rows], scores[rows]

    def _forecast(self, seconds: float, total: int) -> None:
        """Print how long the refits will take, if that is more than ten seconds."""
        forecast = seconds * total / effective_n_jobs(self.n_jobs)
        if forecast > 10:
            sys.stderr.write(
                f"no leave-one-out shortcut: {self.leave_one_out_reason_}. Refitting {total} times, about "
                f"{_duration(forecast)}; cv=10 would take {_duration(forecast * 10 / total)}.\n"
            )

    def _refit(self, training: Training, splits: Iterable[Split], total: int, rows: IntArray) -> CodedAnswers:
        """Return labels and scores of the rows, each left out of one fit."""
        # Many small refits are sent in batches: a task for each would cost more than the fit.
        size, remaining = 25 if total > 100 else 1, iter(splits)
        batches = iter(lambda: list(islice(remaining, size)), [])
        answers = parallel.run(
            _score_left_out,
            ((batch,) for batch in batches),
            shared=(training,),
            total=-(-total // size),
            n_jobs=self.n_jobs,
            label="scoring left-out rows",
            verbose=self.verbose,
        )
        tested, predicted, scores = (np.concatenate(columns) for columns in zip(*answers, strict=True))
        if not np.array_equal(np.sort(tested), rows):
            raise CalibrationError("the test sets of cv must cover every row exactly once.")
        order = np.argsort(tested)
        return predicted[order], scores[order]


def _score_left_out(training: Training, splits: list[Split]) -> tuple[IntArray, IntArray, FloatArray]:
    """Return rows, predicted labels and scores of each split's test rows, from a fit on its training rows."""
    answers = [training.fit(train).answer(take_rows(training.X, test)) for train, test in splits]
    predicted, scores = zip(*answers, strict=True)
    return np.concatenate([test for _, test in splits]), np.concatenate(predicted), np.concatenate(scores)


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"
