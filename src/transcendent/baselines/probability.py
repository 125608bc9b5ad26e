"""Thresholds on class probabilities: what most people try first."""

from typing import Any, Self

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from transcendent.arrays import AnyArray, FloatArray, encode_labels, take_rows
from transcendent.decisions import Decisions
from transcendent.errors import MeasureError
from transcendent.evaluators.base import DetectorWrapper, checked_rows, checked_training
from transcendent.evaluators.calibration import resolve_search
from transcendent.evaluators.splits import check_share, chronological_split, stratified_split
from transcendent.pvalues import credibility_and_confidence


class ProbabilityThresholds(DetectorWrapper):
    """Accepts an answer if its probability reaches a threshold of the answered class.

    The rows are split as `InductiveEvaluator` splits them, and the thresholds are found by the same search,
    on probabilities instead of p-values. In the decisions ``p_values`` are probabilities, ``credibility`` is
    that of the label.

    Parameters
    ----------
    estimator : classifier
        The detector. Without ``predict_proba`` its decision function is squashed to [0, 1]; for two classes
        that orders answers as Platt's probabilities would, and their order is all that thresholds depend on.
    judge : classifier or None
        Fitted on the same rows; *its* probability of the detector's label is thresholded, for example a
        ``VotingClassifier(..., voting="soft")``. By default the detector judges itself.
    search, calibration_size, random_state
        As for `InductiveEvaluator`.

    Attributes
    ----------
    estimator_, judge_ : classifiers
        The fitted detector and its judge.
    result_ : SearchResult
        The thresholds and what they promise.
    classes_ : array
        The labels there are.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent.baselines import ProbabilityThresholds
    >>> X, y = make_classification(2000, flip_y=0.1, random_state=0)
    >>> forest = RandomForestClassifier(random_state=0)
    >>> judged = ProbabilityThresholds(LinearSVC(), judge=forest, random_state=0).fit(X[:1000], y[:1000])
    >>> decisions = judged.decide(X[1000:])
    >>> right = decisions.labels == y[1000:]
    >>> bool(right[decisions.accepted].mean() > right[decisions.rejected].mean())
    True
    """

    def __init__(
        self,
        estimator: Any,
        *,
        judge: Any = None,
        search: Any = "auto",
        calibration_size: float = 0.34,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.judge = judge
        self.search = search
        self.calibration_size = calibration_size
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, times: Any = None) -> Self:
        """Fit the detector and its judge, and search thresholds on the rows held back.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n, features)
            The rows.
        y : array of shape (n,)
            Their labels.
        times : array of shape (n,) or None
            When each row was seen; if given, the most recent rows calibrate.
        """
        X, labels, codes = checked_training(self, X, y)
        check_share(self.calibration_size)
        if times is None:
            generator = check_random_state(self.random_state)
            train, rest = stratified_split(codes, self.classes_, self.calibration_size, generator)
        else:
            train, rest = chronological_split(codes, self.classes_, self.calibration_size, times)
        self.estimator_ = clone(self.estimator).fit(take_rows(X, train), labels[train])
        self.judge_ = self.estimator_
        if self.judge is not None:
            self.judge_ = clone(self.judge).fit(take_rows(X, train), labels[train])
        answers, p = self._answer(take_rows(X, rest))
        credibility, confidence = credibility_and_confidence(
            p, encode_labels(answers, self.classes_, "predict")
        )
        search = resolve_search(self.search, len(self.classes_))
        self.result_ = search.find(labels[rest], answers, credibility, confidence, classes=self.classes_)
        return self

    def predict(self, X: Any) -> AnyArray:
        """The detector's labels, accepted or not."""
        check_is_fitted(self, "result_")
        return np.asarray(self.estimator_.predict(checked_rows(self, X)))

    def decide(self, X: Any) -> Decisions:
        """Label every object and say which labels to accept."""
        check_is_fitted(self, "result_")
        labels, p = self._answer(checked_rows(self, X))
        codes = encode_labels(labels, self.classes_, "predict")
        credibility, confidence = credibility_and_confidence(p, codes)
        accepted = credibility >= self.result_.credibility_thresholds[codes]
        accepted &= confidence >= self.result_.confidence_thresholds[codes]
        return Decisions(
            labels=labels,
            accepted=accepted,
            credibility=credibility,
            confidence=confidence,
            p_values=p,
            classes=self.classes_,
        )

    def _answer(self, X: Any) -> tuple[AnyArray, FloatArray]:
        return np.asarray(self.estimator_.predict(X)), _probabilities(self.judge_, X)


def _probabilities(judge: Any, X: Any) -> FloatArray:
    """(n, classes) probabilities, or a decision function squashed to look like them."""
    if hasattr(judge, "predict_proba"):
        return np.asarray(judge.predict_proba(X), dtype=np.float64)
    if not hasattr(judge, "decision_function"):
        raise MeasureError(f"{type(judge).__name__} has neither predict_proba nor decision_function.")
    margin = np.asarray(judge.decision_function(X), dtype=np.float64)
    if margin.ndim == 1:
        positive = expit(margin)
        return np.column_stack([1 - positive, positive])
    squashed: FloatArray = softmax(margin, axis=1)
    return squashed
