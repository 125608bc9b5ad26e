"""Thresholds on class probabilities: the usual first attempt at rejection."""

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from transcendent._utils.arrays import AnyArray, FloatArray
from transcendent._utils.estimators import detector_in_words
from transcendent.baselines.base import CalibratedBaseline
from transcendent.decisions import Decisions, InWords
from transcendent.judging.pvalues import credibility_and_confidence, merge_ties, rounding
from transcendent.measures.margin import Margin
from transcendent.measures.probability import Probability
from transcendent.measures.second_opinion import SecondOpinion
from transcendent.thresholds import SearchLike
from transcendent.thresholds.base import refuse_guaranteed_search
from transcendent.thresholds.exact import resolve_search


class ProbabilityThresholds(CalibratedBaseline):
    """Accepts an answer if its probability reaches a threshold of the answered class.

    It uses the same rows and the same search as an `InductiveEvaluator`, but searches thresholds on
    probabilities. In its decisions ``credibility`` is the probability of the label and ``confidence`` one
    minus the largest probability of any other label; there are no p-values.

    Parameters
    ----------
    estimator : classifier
        The detector. Without ``predict_proba``, a decision value d becomes (1 + d / (1 + |d|)) / 2: for two
        classes this has the order of Platt's probabilities, and thresholds depend only on the order.
    judge : classifier or None
        The classifier, fitted on the same rows, that gives the probability of the detector's label, such as
        ``VotingClassifier(..., voting="soft")``; by default the detector itself.
    search, calibration_size, random_state
        As for `InductiveEvaluator`.

    Attributes
    ----------
    evaluator_ : InductiveEvaluator
        The fitted detector and the calibration objects.
    result_ : SearchResult
        The thresholds and what they promise.

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
        search: SearchLike = "auto",
        calibration_size: float = 0.34,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.judge = judge
        self.search = search
        self.calibration_size = calibration_size
        self.random_state = random_state

    def in_words(self, n_classes: int) -> InWords:
        """Return whose probabilities judge, and which answers thresholds on them reject."""
        search, judge = resolve_search(self.search, n_classes), self.judge
        whose = "their" if judge is None else f"the {detector_in_words(judge)}'s"
        judges = f"judges the answers of {detector_in_words(self.estimator)} by {whose} probability"
        return InWords(judges, search.in_words.replace("credibility", "probability"), search.under_drift)

    def fit(self, X: Any, y: Any, *, times: Any = None) -> Self:
        """Fit the detector and its judge, and search thresholds; with ``times``, recent rows calibrate."""
        self.__dict__.pop("result_", None)
        own = Probability() if hasattr(self.estimator, "predict_proba") else Margin()
        measure = own if self.judge is None else SecondOpinion(self.judge, Probability())
        self._calibrate(X, y, times, measure=measure)
        calibration = self.evaluator_.calibration_
        actual, predicted = calibration.actual, calibration.predicted
        p = self._probabilities(calibration.scores)
        search = resolve_search(self.search, len(self.classes_))
        refuse_guaranteed_search(search, self)
        noise = replace(rounding(np.sort(calibration.scores, axis=None)), size=1.0)
        values = [merge_ties(value, noise) for value in credibility_and_confidence(p, predicted)]
        result = search.find_coded(actual, predicted, *values, classes=self.classes_)
        self.result_ = replace(
            result,  # below all values that tie with the thresholds, so that ties are accepted
            credibility_thresholds=noise.lowered(result.credibility_thresholds).clip(0),
            confidence_thresholds=noise.lowered(result.confidence_thresholds).clip(0),
        )
        return self

    def predict(self, X: Any) -> AnyArray:
        """Return the detector's labels, accepted or not."""
        check_is_fitted(self, "result_")
        return self.evaluator_.answer(X).labels

    def decide(self, X: Any) -> Decisions:
        """Label every object and say which labels to accept."""
        check_is_fitted(self, "result_")
        answers = self.evaluator_.answer(X)
        codes = np.searchsorted(self.classes_, answers.labels)
        credibility, confidence = credibility_and_confidence(self._probabilities(answers.scores), codes)
        return Decisions(
            labels=answers.labels,
            accepted=self.result_.accepts(codes, credibility, confidence),
            credibility=credibility,
            confidence=confidence,
            classes=self.classes_,
            index=answers.index,
        )

    def _probabilities(self, scores: FloatArray) -> FloatArray:
        """Return probabilities from scores, which are negated probabilities or decision values."""
        if not isinstance(self.evaluator_.measure_, Margin):
            return -scores
        return np.asarray((1 - scores / (1 + np.abs(scores))) / 2)
