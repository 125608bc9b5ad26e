"""For people who only have scores, labels and predictions: a vendor's black box."""

import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import column_or_1d
from sklearn.utils.validation import check_is_fitted

from transcendent.arrays import FloatArray, abbreviate, as_finite, encode_labels
from transcendent.decisions import Decisions
from transcendent.errors import CalibrationWarning
from transcendent.evaluators.calibration import (
    Calibration,
    CalibrationLabel,
    judge,
    resolve_search,
    warn_if_coarse,
)
from transcendent.pvalues import Form, draw_uniforms


class ScoreEvaluator(BaseEstimator):
    """An inductive evaluator that is given scores and answers instead of a detector.

    Scores are nonconformity, one column per class, higher = stranger. From class probabilities ``p`` pass
    ``-p``; from one suspicion score or probability ``s`` of the second of two classes pass
    ``np.column_stack([s, -s])``.

    Parameters and attributes are those of `InductiveEvaluator` that need no detector. To recalibrate, fit
    again.

    Examples
    --------
    >>> import numpy as np
    >>> from transcendent import ScoreEvaluator
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 500)
    >>> suspicion = np.where(y == 1, 1.0, -1.0) + rng.normal(size=1000)
    >>> scores, labels = np.column_stack([suspicion, -suspicion]), (suspicion > 0).astype(int)
    >>> vendor = ScoreEvaluator().fit(scores, y, labels)
    >>> vendor.decide([[3.0, -3.0], [0.01, -0.01]], [1, 1]).accepted
    array([ True, False])
    """

    def __init__(
        self,
        *,
        search: Any = "auto",
        p_value: Form = "paper",
        calibration_label: CalibrationLabel = "predicted",
        random_state: Any = None,
    ) -> None:
        self.search = search
        self.p_value = p_value
        self.calibration_label = calibration_label
        self.random_state = random_state

    def fit(self, scores: Any, y: Any, labels: Any, *, classes: Any = None) -> Self:
        """Calibrate on objects the detector was not trained on.

        Parameters
        ----------
        scores : array of shape (n, classes)
            Nonconformity, higher = stranger.
        y : array of shape (n,)
            True labels.
        labels : array of shape (n,)
            The detector's answers.
        classes : array or None
            The label of each column of ``scores``; by default the sorted labels of ``y``.
        """
        for name in ("calibration_", "result_"):
            self.__dict__.pop(name, None)  # a fit that fails leaves nothing half old, half new
        y, labels = column_or_1d(y), column_or_1d(labels)
        if not len(scores) == len(y) == len(labels):
            raise ValueError(
                f"scores, y and labels differ in length: {len(scores)}, {len(y)}, {len(labels)}."
            )
        self.classes_ = np.unique(y) if classes is None else column_or_1d(classes)
        if len(np.unique(self.classes_)) != len(self.classes_) or len(self.classes_) < 2:
            raise ValueError(f"at least two distinct classes are needed, not {abbreviate(self.classes_)}.")
        self.calibration_ = Calibration(
            classes=self.classes_,
            scores=self._check_scores(scores, len(y)),
            actual=encode_labels(y, self.classes_, "y"),
            predicted=encode_labels(labels, self.classes_, "labels"),
            form=self.p_value,
            label=self.calibration_label,
            random_state=self.random_state,
        )
        self.rethreshold(self.search)
        warn_if_coarse([self.calibration_], stacklevel=3)
        self._warn_if_reversed()
        return self

    @property
    def thresholds_(self) -> FloatArray:
        """Credibility threshold of each class."""
        return self.result_.credibility_thresholds

    def decide(self, scores: Any, labels: Any) -> Decisions:
        """Which of the detector's answers ``labels`` to accept, given its (n, classes) scores."""
        check_is_fitted(self, "result_")
        codes = encode_labels(labels, self.classes_, "labels")
        checked = self._check_scores(scores, len(codes))
        uniforms = draw_uniforms(self.p_value, checked.shape, self.random_state, new_objects=True)
        judged = judge(self.calibration_, self.result_, codes, checked, uniforms)
        return Decisions(
            labels=self.classes_[codes],
            accepted=judged.accepted,
            credibility=judged.credibility,
            confidence=judged.confidence,
            p_values=judged.p_values,
            classes=self.classes_,
        )

    def predict_p(self, scores: Any) -> FloatArray:
        """(n, classes) p-values of (n, classes) scores."""
        check_is_fitted(self, "result_")
        checked = self._check_scores(scores, len(scores))
        uniforms = draw_uniforms(self.p_value, checked.shape, self.random_state, new_objects=True)
        return self.calibration_.table.p_values(checked, self.p_value, uniforms)

    def rethreshold(self, search: Any) -> Self:
        """Search new thresholds on the stored calibration objects."""
        check_is_fitted(self, "calibration_")
        self.search_ = resolve_search(search, len(self.classes_))
        self.result_ = self.calibration_.search(self.search_)
        return self

    def _warn_if_reversed(self) -> None:
        """Columns have no common scale: each is asked whether its own members look the stranger ones."""
        scores, actual = self.calibration_.scores, self.calibration_.actual
        reversed_columns = [
            np.median(scores[actual == c, c]) > np.median(scores[actual != c, c])
            for c in range(len(self.classes_))
        ]
        if np.mean(reversed_columns) > 0.5:
            warnings.warn(
                "objects look stranger for their own class than others do. Scores are higher = stranger: "
                "from probabilities pass -p.",
                CalibrationWarning,
                stacklevel=3,
            )

    def _check_scores(self, scores: Any, n: int) -> FloatArray:
        checked = as_finite(scores, "scores", ndim=2)
        if checked.shape != (n, len(self.classes_)):
            raise ValueError(
                f"scores must be (objects, classes) = ({n}, {len(self.classes_)}), got {checked.shape}."
            )
        return checked
