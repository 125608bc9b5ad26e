"""The cross-conformal evaluator (CCE): one inductive evaluator per fold, and a vote among them."""

from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

from transcendent import parallel
from transcendent.arrays import AnyArray, FloatArray, IntArray, take_rows
from transcendent.decisions import Decisions
from transcendent.evaluators.base import ConformalEvaluator, Detector, fit_detector
from transcendent.evaluators.calibration import CalibrationLabel
from transcendent.evaluators.splits import check_every_fold_can_calibrate, folds
from transcendent.pvalues import Form


class CrossConformalEvaluator(ConformalEvaluator):
    """Splits the rows into folds; each fold calibrates a detector fitted on all the others.

    The label of an object is the one most folds predict (ties: the higher mean credibility, then class
    order). It is accepted if at least ``quorum`` folds both predict that label and accept it. The quorum is
    chosen when deciding: a larger one accepts less, and nothing is refitted.

    Parameters
    ----------
    estimator, measure, search, p_value, calibration_label, random_state, verbose
        As for `InductiveEvaluator`.
    cv : int or splitter
        Number of stratified folds, or a scikit-learn splitter.
    n_jobs : int or None
        How many folds are fitted at once, in processes, and how many chunks of rows are decided at once,
        in threads.

    Attributes
    ----------
    classes_ : array
    detectors_ : list of CalibratedDetector
        Detector, measure, calibration objects and thresholds of each fold.
    thresholds_ : array of shape (folds, classes)

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from transcendent import CrossConformalEvaluator
    >>> X, y = make_classification(2000, flip_y=0.1, random_state=0)
    >>> cce = CrossConformalEvaluator(LogisticRegression(), cv=5, random_state=0).fit(X[:1000], y[:1000])
    >>> lenient, strict = cce.decide(X[1000:], quorum=1), cce.decide(X[1000:], quorum=5)
    >>> bool(lenient.accepted.sum() >= strict.accepted.sum())
    True
    """

    def __init__(
        self,
        estimator: Any,
        *,
        measure: Any = "auto",
        search: Any = "auto",
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

    def fit(self, X: Any, y: Any, **params: Any) -> Self:
        """Fit, calibrate and threshold one detector per fold; ``params`` go to their ``fit``, routed."""
        X, y, codes = self._start_fit(X, y)
        check_every_fold_can_calibrate(self.cv, codes, self.classes_)
        splits, total = folds(self.cv, codes, self.classes_, check_random_state(self.random_state))
        routed = self._routed(params)
        fitted = parallel.run(
            _fit_fold,
            ((self.estimator, self.measure, X, y, train, test, routed) for train, test in splits),
            total=total,
            n_jobs=self.n_jobs,
            label="fitting folds",
            verbose=self.verbose,
        )
        return self._finish_fit(
            [
                (detector, self._calibration(codes, scores, y[rows]))
                for detector, codes, scores, rows in fitted
            ]
        )

    @property
    def thresholds_(self) -> FloatArray:
        """(folds, classes) credibility thresholds."""
        return np.array([d.result.credibility_thresholds for d in self.detectors_])

    def decide(self, X: Any, *, quorum: int | None = None) -> Decisions:
        """Label every object and say which labels to accept.

        Parameters
        ----------
        X : rows
        quorum : int or None
            How many folds must both predict the label and accept it; by default more than half.
        """
        k = len(getattr(self, "detectors_", ()))
        chosen = k // 2 + 1 if quorum is None else quorum
        if k and not 1 <= chosen <= k:
            raise ValueError(f"quorum={quorum!r} must lie between 1 and the {k} folds.")
        return self._decide(X, chosen)


def _fit_fold(
    estimator: Any,
    measure: Any,
    X: Any,
    y: AnyArray,
    train: IntArray,
    test: IntArray,
    params: dict[str, Any],
) -> tuple[Detector, IntArray, FloatArray, IntArray]:
    detector = fit_detector(estimator, measure, X, y, train, params)
    return detector, *detector.answer(take_rows(X, test)), test
