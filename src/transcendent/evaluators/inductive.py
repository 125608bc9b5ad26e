"""The inductive conformal evaluator (ICE): one fit, calibrated on held-out rows."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state

from transcendent._utils.cells import locate_bad_value
from transcendent._utils.checks import check_shares
from transcendent._utils.text import as_percent
from transcendent.evaluators.one_detector import OneDetectorEvaluator
from transcendent.evaluators.splits import chronological_split, stratified_split
from transcendent.judging.calibration import CalibrationLabel
from transcendent.judging.pvalues import Form
from transcendent.measures.auto import resolve_measure
from transcendent.measures.base import Measure
from transcendent.measures.detector import needs_rows
from transcendent.thresholds import SearchLike


class InductiveEvaluator(OneDetectorEvaluator):
    """Fits the detector on some of the rows and calibrates on the rest: the cheapest evaluator.

    Parameters
    ----------
    estimator : classifier
        The detector. ``FrozenEstimator(detector)`` keeps a fitted one as it is: all rows calibrate, unless
        the measure has models of its own to train.
    measure : Measure, str or callable
        How strange an object looks for each class: a measure, its name (``"margin"``, ``"neighbour_ratio"``,
        ``"drift"``; seeded by ``random_state``), ``"auto"`` for the one that suits the detector, or a
        function ``(estimator, X) -> (n, classes)``.
    search : Search, Metric or str
        How thresholds are found: a search, or a metric or its name, such as ``F1()`` or ``"f1"`` for
        ``ExactSearch("f1")``: the best F1 of the kept objects with at most 15% rejected. ``"auto"`` is
        ``"f1"`` with two classes and ``"accuracy"`` with more.
    calibration_size : float
        Share of the rows that calibrate: a stratified random draw or, with ``times``, the most recent ones.
    p_value : {"paper", "plus_one"}
        The form of p-values; see `transcendent.judging.p_values`.
    calibration_label : {"predicted", "true"}
        ``"true"`` leaks the answer into calibration, as the paper's released code does: for comparison only.
    random_state : int, RandomState or None
        Seed for the split or folds, and for a measure given by its name; the detector has its own.
    n_jobs : int or None
        Number of threads that decide chunks of rows.
    verbose : bool
        Whether long work shows its progress on a terminal.

    Attributes
    ----------
    judges_ : list of one ScoreEvaluator
        The judge of the detector's answers.
    search_ : Search
        The search last used.
    n_repeated_ : int
        Number of calibration objects of ``fit`` that equal a training row. If rows have copies, a random
        split leaves many on both sides.
    n_left_out_ : int
        Number of new rows that the last ``learn`` left out, because they equal calibration rows.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent import InductiveEvaluator
    >>> X, y = make_classification(2000, flip_y=0.1, random_state=0)
    >>> ice = InductiveEvaluator(LinearSVC(C=0.1), random_state=0).fit(X[:1000], y[:1000])
    >>> ice.measure_
    Margin()
    >>> decisions = ice.decide(X[1000:])
    >>> right = decisions.labels == y[1000:]
    >>> bool(right[decisions.accepted].mean() > right[decisions.rejected].mean())
    True
    """

    guarantees = takes_times = True

    @property
    def can_be_monitored(self) -> bool:  # type: ignore[override]
        """Whether no subclass replaces ``decide``."""
        return type(self).decide is InductiveEvaluator.decide

    def __init__(
        self,
        estimator: BaseEstimator,
        *,
        measure: Measure | Callable[[Any, Any], Any] | str = "auto",
        search: SearchLike = "auto",
        calibration_size: float = 0.34,
        p_value: Form = "paper",
        calibration_label: CalibrationLabel = "predicted",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = True,
    ) -> None:
        self.estimator = estimator
        self.measure = measure
        self.search = search
        self.calibration_size = calibration_size
        self.p_value = p_value
        self.calibration_label = calibration_label
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @locate_bad_value
    def fit(self, X: Any, y: Any, *, times: Any = None, **params: Any) -> Self:
        """Fit the detector, calibrate and search thresholds.

        With ``times``, one per row, the most recent rows calibrate. ``params`` are metadata for the detector.
        """
        training = self._start_fit(X, y, params)
        codes = training.codes
        check_shares(ends="excluded", calibration_size=self.calibration_size)
        frozen = isinstance(self.estimator, FrozenEstimator)
        if frozen and not needs_rows(resolve_measure(self.measure, self.estimator)):
            if times is not None:
                raise ValueError(
                    "times choose the rows that calibrate, but with a frozen detector all of them do: "
                    "leave times out and pass only the recent rows."
                )
            train, calibration = np.arange(0), np.arange(len(codes))
        elif times is not None:
            train, calibration = chronological_split(codes, self.classes_, self.calibration_size, times)
        else:
            generator = check_random_state(self.random_state)
            train, calibration = stratified_split(codes, self.classes_, self.calibration_size, generator)
        with self._fitting():
            fold = training.fit_fold(train, calibration)
        return self._finish_fit(training, [fold])

    def _judges_by(self) -> str:
        return (
            f"{self._measure_in_words()}, compared with {as_percent(self.calibration_size)} of the training "
            "objects, held out for that (an inductive conformal evaluator)"
        )

    @property
    def _new_class_stride(self) -> int:
        return max(2, round(1 / self.calibration_size))
