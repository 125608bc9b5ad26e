"""The transductive conformal evaluator (TCE), exact and approximate."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from transcendent._utils import parallel
from transcendent._utils.arrays import FloatArray, IntArray, take_rows
from transcendent._utils.cells import pointing_out
from transcendent.errors import CalibrationError, NoShortcutError
from transcendent.evaluators.base import OneDetectorEvaluator
from transcendent.evaluators.splits import Split, check_every_row_is_left_out, folds
from transcendent.evaluators.training import Learner, Training
from transcendent.judging.calibration import CalibrationLabel
from transcendent.judging.pvalues import Form
from transcendent.leave_one_out.registry import find_shortcut
from transcendent.measures.base import Measure
from transcendent.measures.detector import Answer, Detector
from transcendent.thresholds import Search


class TransductiveEvaluator(OneDetectorEvaluator):
    """Every row trains and every row calibrates: each is scored by a model that did not see it.

    ``cv="loo"`` leaves out one row at a time (TCE). Where the detector has a shortcut, this follows from
    one fit; elsewhere the detector is refitted once per row. A number of folds leaves rows out in batches
    (approx-TCE). New objects are judged by one detector fitted on everything, against the pooled left-out
    scores.

    The attributes not listed are the same as for `InductiveEvaluator`.

    Parameters
    ----------
    estimator : classifier
        The detector.
    measure : Measure, str or callable
        How strange an object looks for each class; see `InductiveEvaluator`.
    search : Search or str
        How thresholds are found; see `InductiveEvaluator`.
    cv : "loo", int or splitter
        Leave-one-out, a number of stratified folds, or a scikit-learn splitter whose test parts cover each
        row once. ``sklearn.model_selection.LeaveOneOut()`` is leave-one-out without shortcuts.
    p_value : {"paper", "plus_one"}
        Which p-value; see `transcendent.judging.p_values`.
    calibration_label : {"predicted", "true"}
        ``"true"`` leaks the answer into calibration as the paper's released code does; only to reproduce.
    random_state : int, RandomState or None
        Seeds the folds and a measure given by its name; a detector that draws has a ``random_state`` of
        its own.
    n_jobs : int or None
        How many refits run at once, in processes, and how many chunks of rows are decided at once, in
        threads.
    verbose : bool
        Whether long work shows its progress on a terminal.

    Attributes
    ----------
    leave_one_out_ : {"exact", "approximate", "refit"}
        How rows were left out, with ``cv="loo"``.
    leave_one_out_reason_ : str
        Why they were refitted; empty if they were not.
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

    learns_apart = False

    def __init__(
        self,
        estimator: BaseEstimator,
        *,
        measure: Measure | Callable[[Any, Any], Any] | str = "auto",
        search: Search | str = "auto",
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

    @pointing_out
    def fit(self, X: Any, y: Any, **params: Any) -> Self:
        """Fit on everything and score every row left out; ``params`` go to the detector, routed."""
        training, codes = self._start_fit(X, y, params)
        everything = np.arange(len(codes))
        detector, answer = self._leave_out(training, codes, everything)
        return self._finish_fit(training, [detector], [answer], [everything])

    @pointing_out
    def learn(self, X: Any, y: Any, *, what: Learner = "judge", **params: Any) -> Self:
        """Learn from labels that came later; the rows that calibrated calibrate again.

        As for `InductiveEvaluator`, but that detector and measure learn together: for the rows that it leaves
        out there is no detector to keep.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n, features)
            The rows given to ``fit`` and all that were labelled since, in any order. A new row that equals
            one of ``fit`` does not train.
        y : array of shape (n,)
            Their labels.
        what : {"both"}
            What learns.
        **params : dict
            As for ``fit``.
        """
        if what != "both":
            raise ValueError("a TransductiveEvaluator keeps no detectors of left-out rows: what='both'.")
        learning, given, roles = self._start_learning(X, y, what, params)
        training = given.take(np.concatenate([*roles.calibration, *roles.train]))
        calibration = np.arange(len(roles.calibration[0]))
        codes = np.searchsorted(learning.classes_, training.y)
        detector, answer = learning._leave_out(training, codes, calibration)
        return self._finish_learning(learning, training, [detector], [answer], [calibration])

    @property
    def _one_in(self) -> int:
        return 1

    def _count_repeated(self) -> int:
        return int(self.known_rows_.copies().sum())

    def _leave_out(
        self, training: Training, codes: IntArray, calibration: IntArray
    ) -> tuple[Detector, Answer]:
        """Fit on everything, and score each of the rows that calibrate left out; the others always train."""
        for name in ("leave_one_out_", "leave_one_out_reason_"):
            self.__dict__.pop(name, None)
        check_every_row_is_left_out(codes, self.classes_)
        own, total = folds(self.cv, codes[calibration], self.classes_, check_random_state(self.random_state))
        others = np.setdiff1d(np.arange(len(codes)), calibration)
        splits = ((np.sort(np.append(calibration[train], others)), calibration[test]) for train, test in own)
        started = time.perf_counter()
        with self._fitting():
            detector = training.fit(np.arange(len(codes)))
        seconds = time.perf_counter() - started
        answer = self._shortcut(training, detector) if isinstance(self.cv, str) else None
        if answer is None:
            if isinstance(self.cv, str) and self.verbose:
                self._forecast(seconds, total)
            answer = self._refit(training, splits, total, calibration)
        else:
            answer = answer[0][calibration], answer[1][calibration]
        return detector, answer

    def _shortcut(self, training: Training, detector: Detector) -> Answer | None:
        """Return left-out labels and scores without refits, or None with the reason as an attribute."""
        try:
            shortcut = find_shortcut(detector.estimator, training.params)
            answer = detector.answer_left_out(shortcut, training.X, training.y)
        except NoShortcutError as reason:
            self.leave_one_out_, self.leave_one_out_reason_ = "refit", str(reason)
            return None
        self.leave_one_out_reason_ = ""
        self.leave_one_out_ = shortcut.kind if detector.measure.left_out_is_exact else "approximate"
        return answer

    def _forecast(self, seconds: float, total: int) -> None:
        """Announce how long the refits will take, if long."""
        forecast = seconds * total / effective_n_jobs(self.n_jobs)
        if forecast > 10:
            sys.stderr.write(
                f"no leave-one-out shortcut: {self.leave_one_out_reason_}. Refitting {total} times, about "
                f"{_duration(forecast)}; cv=10 would take {_duration(forecast * 10 / total)}.\n"
            )

    def _refit(self, training: Training, splits: Iterable[Split], total: int, left_out: IntArray) -> Answer:
        """Return labels and scores of the rows left out, in their order, from one fit per split."""
        # Many small refits go out in batches: one task each would cost more than the fits.
        size = 25 if total > 100 else 1
        parts = parallel.run(
            _score_left_out,
            ((batch,) for batch in _batches(splits, size)),
            shared=(training,),
            total=-(-total // size),
            n_jobs=self.n_jobs,
            label="scoring left-out rows",
            verbose=self.verbose,
        )
        rows, predicted, scores = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        if not np.array_equal(np.sort(rows), left_out):
            raise CalibrationError("the test parts of cv must cover every row exactly once.")
        order = np.argsort(rows)
        return predicted[order], scores[order]


def _score_left_out(training: Training, splits: list[Split]) -> tuple[IntArray, IntArray, FloatArray]:
    """Return rows, predicted labels and scores of each split's test rows, from a fit on its training rows."""
    rows, predicted, scores = [], [], []
    for train, test in splits:
        answer = training.fit(train).answer(take_rows(training.X, test))
        rows.append(test)
        predicted.append(answer[0])
        scores.append(answer[1])
    return np.concatenate(rows), np.concatenate(predicted), np.concatenate(scores)


def _batches(splits: Iterable[Split], size: int) -> Iterator[list[Split]]:
    iterator = iter(splits)
    while batch := list(islice(iterator, size)):
        yield batch


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"
