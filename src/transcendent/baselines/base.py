"""The fit that baselines around a detector share: that of an inductive evaluator."""

from typing import Any

from sklearn.utils.validation import check_is_fitted

from transcendent.evaluators.base import DetectorWrapper
from transcendent.evaluators.inductive import InductiveEvaluator
from transcendent.judging.pvalues import Form
from transcendent.rejectors import adopt_input
from transcendent.thresholds.exact import ExactSearch


class CalibratedBaseline(DetectorWrapper):
    """A rejector that splits, fits and calibrates as `InductiveEvaluator` does, with decisions of its own."""

    calibration_size: float
    random_state: Any
    evaluator_: InductiveEvaluator

    @property
    def estimator_(self) -> Any:
        """The fitted detector."""
        check_is_fitted(self, "evaluator_")
        return self.evaluator_.estimator_

    def _calibrate(self, X: Any, y: Any, times: Any, *, measure: Any, p_value: Form = "paper") -> None:
        """Fit the evaluator and take over its attributes; a fit that fails leaves no old ones behind."""
        for name in ("evaluator_", "classes_", "n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
        evaluator = InductiveEvaluator(
            self.estimator,
            measure=measure,
            search=ExactSearch("rejection_rate", max_rejection=None),
            calibration_size=self.calibration_size,
            p_value=p_value,
            random_state=self.random_state,
        ).fit(X, y, times=times)
        adopt_input(self, evaluator)
        self.evaluator_ = evaluator
