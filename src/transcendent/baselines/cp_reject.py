"""CP-Reject: a conformal classifier that limits the expected number of errors."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from transcendent._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from transcendent._utils.checks import check_shares
from transcendent._utils.estimators import detector_in_words
from transcendent._utils.text import as_percent
from transcendent.baselines.base import CalibratedBaseline
from transcendent.decisions import Decisions, InWords, index_of, p_values_of
from transcendent.measures.base import Measure


class CPReject(CalibratedBaseline):
    """Keeps as many answers of a batch as possible with at most k expected errors.

    After Linusson et al. (2018). Unlike an evaluator it predicts the class of the largest p-value, and judges
    a batch as a whole. The confidence of an object is one minus its second largest p-value. If the n objects
    of the batch are exchangeable with the calibration objects, at most n · (1 − c) of those with a confidence
    of at least c are expected to be wrong.

    Parameters
    ----------
    estimator : classifier
        The source of the p-values, fitted and calibrated as by `InductiveEvaluator`.
    max_errors : float or None
        The number k; None rejects a ``rejection_rate`` instead.
    rejection_rate : float
        Share of every batch to reject if ``max_errors`` is None. Credibility orders equally confident
        objects; objects that tie with the last one kept are kept, too.
    measure, calibration_size, random_state
        As for `InductiveEvaluator`.

    Attributes
    ----------
    evaluator_ : InductiveEvaluator
        The source of the p-values, ``(count + 1) / (n + 1)``.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from transcendent.baselines import CPReject
    >>> X, y = make_classification(3000, flip_y=0.1, random_state=0)
    >>> cp = CPReject(LogisticRegression(), max_errors=40, random_state=0).fit(X[:1500], y[:1500])
    >>> decisions = cp.decide(X[1500:])
    >>> wrong = decisions.labels != y[1500:]
    >>> int(decisions.accepted.sum()), int(wrong[decisions.accepted].sum())
    (524, 30)
    """

    depends_on_others = has_p_values = True

    def __init__(
        self,
        estimator: BaseEstimator,
        *,
        max_errors: float | None = None,
        rejection_rate: float = 0.15,
        measure: Measure | Callable[[Any, Any], Any] | str = "auto",
        calibration_size: float = 0.34,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.max_errors = max_errors
        self.rejection_rate = rejection_rate
        self.measure = measure
        self.calibration_size = calibration_size
        self.random_state = random_state

    def in_words(self, n_classes: int) -> InWords:  # noqa: ARG002
        """Return how it answers, and what it rejects of a batch."""
        least = f"the {as_percent(self.rejection_rate)} it is least confident of"
        if self.max_errors is not None:
            least = f"enough that at most {self.max_errors:g} errors are expected among the others"
        return InWords(
            f"answers with the class of the largest p-value that {detector_in_words(self.estimator)} gives "
            "(CP-Reject)",
            f"of each period {least}",
            "What it expects holds for objects like those of calibration; under drift more of the kept are "
            "wrong.",
        )

    def fit(self, X: Any, y: Any, *, times: Any = None) -> Self:
        """Fit the detector and calibrate; with ``times``, the most recent rows calibrate."""
        if self.max_errors is not None and not self.max_errors >= 0:
            raise ValueError(f"max_errors must be a number of errors or None, not {self.max_errors!r}.")
        check_shares(ends="included", rejection_rate=self.rejection_rate)
        self._calibrate(X, y, times, measure=self.measure, p_value="plus_one")
        return self

    def predict(self, X: Any) -> AnyArray:
        """Return the class of each object's largest p-value."""
        check_is_fitted(self, "evaluator_")
        return np.asarray(self.classes_[self._largest(X)[0]])

    def decide(self, X: Any) -> Decisions:
        """Label every object of the batch and keep the most confident."""
        check_is_fitted(self, "evaluator_")
        codes, p = self._largest(X)
        credibility = p[np.arange(len(p)), codes]
        second = np.partition(p, -2, axis=1)[:, -2]
        return Decisions(
            labels=self.classes_[codes],
            accepted=self._kept(second, credibility),
            credibility=credibility,
            confidence=1 - second,
            classes=self.classes_,
            p_values=p,
            ranked_by="confidence",
            index=index_of(X),
        )

    def _largest(self, X: Any) -> tuple[IntArray, FloatArray]:
        """Return positions of the largest p-values (the detector's label wins a tie), and all p-values."""
        answers = self.evaluator_.decide(X)
        p = p_values_of(answers)
        own = np.searchsorted(answers.classes, answers.labels)
        return np.where(answers.credibility >= p.max(axis=1), own, p.argmax(axis=1)), p

    def _kept(self, second: FloatArray, credibility: FloatArray) -> BoolArray:
        n = len(second)
        if self.max_errors is not None:
            return np.asarray(n * second <= self.max_errors + 1e-9)
        order = np.lexsort((-credibility, second))
        n_kept = int((1 - self.rejection_rate) * n + 1e-9)
        if n_kept == 0:
            return np.zeros(n, dtype=bool)
        last = order[n_kept - 1]
        as_sure = (second == second[last]) & (credibility >= credibility[last])
        return np.asarray((second < second[last]) | as_sure)
