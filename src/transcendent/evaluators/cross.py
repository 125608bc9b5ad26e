"""The cross-conformal evaluator (CCE): one inductive evaluator per fold, and a vote among them."""

from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from transcendent import parallel
from transcendent.arrays import FloatArray, IntArray, take_rows
from transcendent.cells import pointing_out
from transcendent.decisions import Decisions
from transcendent.evaluators.base import Detector, FoldedEvaluator, Training
from transcendent.evaluators.splits import Split, check_every_fold_can_calibrate, folds


class CrossConformalEvaluator(FoldedEvaluator):
    """Splits the rows into folds; each fold calibrates a detector fitted on all the others.

    The label of an object is the one most folds predict. A tie goes to the higher mean credibility among the
    folds that predict the label, then to class order. It is accepted if at least ``quorum`` folds both
    predict that label and accept it. The quorum is chosen when deciding: a larger one accepts less, and
    nothing is refitted.

    Parameters other than ``cv`` and ``n_jobs`` are those of `InductiveEvaluator`.

    Parameters
    ----------
    cv : int or splitter
        Number of stratified folds, or a scikit-learn splitter.
    n_jobs : int or None
        How many folds are fitted at once, in processes, and how many chunks of rows are decided at once,
        in threads.

    Attributes
    ----------
    classes_ : array of shape (classes,)
        The labels there are, sorted.
    detectors_ : list of CalibratedDetector
        Detector, measure, calibration objects and thresholds of each fold:
        ``detectors_[0].result`` is what the first fold promises.
    thresholds_ : array of shape (folds, classes)
        Credibility thresholds.
    search_ : Search
        The search last used.

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

    @pointing_out
    def fit(self, X: Any, y: Any, **params: Any) -> Self:
        """Fit, calibrate and threshold one detector per fold; ``params`` go to their ``fit``, routed."""
        training, codes = self._start_fit(X, y, params)
        splits = list(folds(self.cv, codes, self.classes_, check_random_state(self.random_state))[0])
        check_every_fold_can_calibrate(splits, codes, self.classes_)
        fitted = parallel.run(
            _fit_fold,
            ((i,) for i in range(len(splits))),
            shared=(training, splits),
            total=len(splits),
            n_jobs=self.n_jobs,
            label="fitting folds",
            verbose=self.verbose,
        )
        return self._finish_fit(
            [
                (detector, self._calibration(detector.measure, predicted, scores, training.y[rows]))
                for detector, predicted, scores, rows in fitted
            ]
        )

    @property
    def thresholds_(self) -> FloatArray:
        """(folds, classes) credibility thresholds."""
        check_is_fitted(self, "detectors_")
        return np.array([d.result.credibility_thresholds for d in self.detectors_])

    def decide(self, X: Any, *, quorum: int | None = None) -> Decisions:
        """Label every object and say which labels to accept.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n, features)
            The rows to decide.
        quorum : int or None
            How many folds must both predict the label and accept it; by default more than half.
        """
        check_is_fitted(self, "detectors_")
        k = len(self.detectors_)
        if quorum is None:
            quorum = k // 2 + 1
        if not isinstance(quorum, int | np.integer) or not 1 <= quorum <= k:
            raise ValueError(f"quorum={quorum!r} must be an integer between 1 and the {k} folds.")
        return self._decide(X, int(quorum))


def _fit_fold(
    training: Training, splits: list[Split], i: int
) -> tuple[Detector, IntArray, FloatArray, IntArray]:
    train, test = splits[i]
    detector = training.fit(train)
    return detector, *detector.answer(take_rows(training.X, test)), test
