"""What baselines around a detector share: the fit and the calibration objects of an inductive evaluator."""

from typing import Any

from sklearn.utils.validation import check_is_fitted

from transcendent.evaluators.base import DetectorWrapper
from transcendent.evaluators.inductive import InductiveEvaluator
from transcendent.judging.pvalues import Form
from transcendent.thresholds.exact import ExactSearch


class CalibratedBaseline(DetectorWrapper):
    """A rejector that splits, fits and calibrates as `InductiveEvaluator` does, and judges in its own way."""

    calibration_size: float
    random_state: Any
    evaluator_: InductiveEvaluator

    @property
    def estimator_(self) -> Any:
        """The fitted detector."""
        check_is_fitted(self, "evaluator_")
        return self.evaluator_.estimator_

    def _calibrate(self, X: Any, y: Any, times: Any, *, measure: Any, p_value: Form = "paper") -> None:
        keep_all = ExactSearch("rejection_rate", max_rejection=None)
        for name in ("evaluator_", "classes_", "n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)  # a fit that fails leaves nothing half old, half new
        evaluator = InductiveEvaluator(
            self.estimator,
            measure=measure,
            search=keep_all,
            calibration_size=self.calibration_size,
            p_value=p_value,
            random_state=self.random_state,
        ).fit(X, y, times=times)
        for name in ("classes_", "n_features_in_", "feature_names_in_"):
            if hasattr(evaluator, name):
                setattr(self, name, getattr(evaluator, name))
        self.evaluator_ = evaluator
