"""The inductive conformal evaluator (ICE): one fit, calibrated on rows held back from it."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state

from transcendent._utils.arrays import take_rows
from transcendent._utils.cells import pointing_out
from transcendent.evaluators.base import OneDetectorEvaluator
from transcendent.evaluators.splits import check_share, chronological_split, stratified_split
from transcendent.judging.calibration import CalibrationLabel
from transcendent.judging.pvalues import Form
from transcendent.measures.auto import resolve_measure
from transcendent.measures.base import Measure
from transcendent.measures.detector import needs_rows
from transcendent.thresholds import Search


class InductiveEvaluator(OneDetectorEvaluator):
    """Fits the detector on part of the rows and calibrates on the rest: the cheapest evaluator.

    Parameters
    ----------
    estimator : classifier
        The detector. ``FrozenEstimator(detector)`` keeps a fitted one as it is: all rows calibrate
        (unless the measure has models of its own, which then learn from the rows that do not).
    measure : Measure, str or callable
        How strange an object looks for each class: a measure, its name (``"margin"``, ``"neighbour_ratio"``,
        ``"drift"``; seeded by ``random_state``), ``"auto"`` for the one that suits the detector, or a
        function ``(estimator, X) -> (n, classes)``.
    search : Search or str
        How thresholds are found: a search, or the name of an objective, such as ``"f1"`` for
        ``ExactSearch("f1")``: the best F1 of the kept objects with at most 15% rejected. ``"auto"`` is
        ``"f1"`` with two classes and ``"accuracy"`` with more.
    calibration_size : float
        Share of the rows that calibrates: a stratified random draw, or the most recent ones if ``fit``
        is given ``times``.
    p_value : {"paper", "plus_one"}
        Which p-value; see `transcendent.judging.p_values`.
    calibration_label : {"predicted", "true"}
        ``"true"`` leaks the answer into calibration as the paper's released code does; only to reproduce.
    random_state : int, RandomState or None
        Seeds the split and a measure given by its name; a detector that draws has a ``random_state`` of
        its own.
    n_jobs : int or None
        How many chunks of rows ``decide`` works on at once, in threads.
    verbose : bool
        Whether long work shows its progress on a terminal.

    Attributes
    ----------
    classes_ : array of shape (classes,)
        The labels there are, sorted.
    detectors_ : list of one Detector
        The fitted detector with its measure.
    judges_ : list of one ScoreEvaluator
        What judges its answers.
    estimator_ : classifier
        The fitted detector.
    measure_ : Measure
        The fitted measure; with ``"auto"`` this says which was picked.
    calibration_ : Calibration
        Scores, labels and p-values of the calibration objects.
    result_ : SearchResult
        Thresholds and what they promise.
    thresholds_ : array of shape (classes,)
        The credibility thresholds in it.
    search_ : Search
        The search last used.
    n_repeated_ : int
        Number of calibration objects of ``fit`` that equal a row that trained. A random split of rows with
        copies has many: they are draws like any others.
    n_left_out_ : int
        Number of new rows that the last ``learn`` left out, since they equal rows that calibrate.

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

    guarantees = True

    def __init__(
        self,
        estimator: BaseEstimator,
        *,
        measure: Measure | Callable[[Any, Any], Any] | str = "auto",
        search: Search | str = "auto",
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

    @pointing_out
    def fit(self, X: Any, y: Any, *, times: Any = None, **params: Any) -> Self:
        """Fit the detector, calibrate and search thresholds.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n, features)
            The rows.
        y : array of shape (n,)
            Their labels.
        times : array of shape (n,) or None
            When each row was seen; if given, the most recent rows calibrate.
        **params : dict
            Passed to the detector's ``fit`` through metadata routing.
        """
        training, codes = self._start_fit(X, y, params)
        check_share(self.calibration_size)
        frozen = isinstance(self.estimator, FrozenEstimator)
        if frozen and not needs_rows(resolve_measure(self.measure, self.estimator)):
            if times is not None:
                raise ValueError(
                    "times choose the rows that calibrate, but with a frozen detector all of them do: "
                    "pass the recent rows alone."
                )
            train, calibration = np.arange(0), np.arange(len(codes))
        elif times is not None:
            train, calibration = chronological_split(codes, self.classes_, self.calibration_size, times)
        else:
            generator = check_random_state(self.random_state)
            train, calibration = stratified_split(codes, self.classes_, self.calibration_size, generator)
        everything = len(calibration) == len(codes)
        with self._fitting():
            detector = training.fit(train)
            answer = detector.answer(training.X if everything else take_rows(training.X, calibration))
        return self._finish_fit(training, [detector], [answer], [calibration])

    @property
    def _one_in(self) -> int:
        return max(2, round(1 / self.calibration_size))
