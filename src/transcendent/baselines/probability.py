"""Thresholds on class probabilities: the usual first attempt at rejection."""

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import indexable
from sklearn.utils.validation import check_is_fitted

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray
from transcendent._utils.cells import pointing_out
from transcendent.baselines.base import CalibratedBaseline
from transcendent.decisions import Decisions, index_of
from transcendent.judging.pvalues import credibility_and_confidence, merge_ties, rounding
from transcendent.measures.base import Measure
from transcendent.measures.margin import Margin
from transcendent.measures.probability import Probability
from transcendent.measures.second_opinion import SecondOpinion
from transcendent.thresholds import Search
from transcendent.thresholds.base import check_promises_nothing
from transcendent.thresholds.exact import resolve_search


class ProbabilityThresholds(CalibratedBaseline):
    """Accepts an answer if its probability reaches a threshold of the answered class.

    It is fitted and calibrated on the rows that an `InductiveEvaluator` would use, with thresholds from the
    same search, but on probabilities. In the decisions ``credibility`` is the probability of the label and
    ``confidence`` one minus the largest of any other; there are no p-values.

    Parameters
    ----------
    estimator : classifier
        The detector. Without ``predict_proba``, a decision value d becomes (1 + d / (1 + |d|)) / 2: for two
        classes this gives the order of Platt's probabilities, and thresholds depend on the order alone.
    judge : classifier or None
        Classifier fitted on the same rows whose probability of the detector's label is used, for example
        ``VotingClassifier(..., voting="soft")``. By default the detector's own is used.
    search, calibration_size, random_state
        As for `InductiveEvaluator`.

    Attributes
    ----------
    evaluator_ : InductiveEvaluator
        Holds the fitted detector and the calibration objects.
    estimator_ : classifier
        The fitted detector.
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
        estimator: BaseEstimator,
        *,
        judge: BaseEstimator | None = None,
        search: Search | str = "auto",
        calibration_size: float = 0.34,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.judge = judge
        self.search = search
        self.calibration_size = calibration_size
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, times: Any = None) -> Self:
        """Fit the detector and its judge, and search thresholds; ``times`` make the latest rows calibrate."""
        self.__dict__.pop("result_", None)
        self._calibrate(X, y, times, measure=self._measure())
        calibration = self.evaluator_.calibration_
        p = self._probabilities(calibration.scores)
        search = resolve_search(self.search, len(self.classes_))
        check_promises_nothing(search, self)
        noise = replace(rounding(np.sort(calibration.scores, axis=None)), size=1.0)
        credibility, confidence = (
            merge_ties(value, noise) for value in credibility_and_confidence(p, calibration.predicted)
        )
        result = search.find_coded(
            calibration.actual, calibration.predicted, credibility, confidence, classes=self.classes_
        )
        self.result_ = replace(
            result,  # below all values that tie with those the thresholds were found at
            credibility_thresholds=noise.lowered(result.credibility_thresholds).clip(0),
            confidence_thresholds=noise.lowered(result.confidence_thresholds).clip(0),
        )
        return self

    def predict(self, X: Any) -> AnyArray:
        """The detector's labels, accepted or not."""
        check_is_fitted(self, "result_")
        return np.asarray(self.classes_[self._answer(X)[0]])

    def decide(self, X: Any) -> Decisions:
        """Label every object and say which labels to accept."""
        check_is_fitted(self, "result_")
        codes, p = self._answer(X)
        credibility, confidence = credibility_and_confidence(p, codes)
        return Decisions(
            labels=self.classes_[codes],
            accepted=self.result_.accepts(codes, credibility, confidence),
            credibility=credibility,
            confidence=confidence,
            classes=self.classes_,
            index=index_of(X),
        )

    def _measure(self) -> Measure:
        if self.judge is not None:
            return SecondOpinion(self.judge, Probability())
        return Probability() if hasattr(self.estimator, "predict_proba") else Margin()

    @pointing_out
    def _answer(self, X: Any) -> tuple[IntArray, FloatArray]:
        (rows,) = indexable(self.evaluator_._check_rows(X))
        codes, scores = self.evaluator_.detectors_[0].answer(rows)
        return codes, self._probabilities(scores)

    def _probabilities(self, scores: FloatArray) -> FloatArray:
        """Probabilities from scores, which are negated probabilities or decision values."""
        if not isinstance(self.evaluator_.measure_, Margin):
            return -scores
        return np.asarray((1 - scores / (1 + np.abs(scores))) / 2)
