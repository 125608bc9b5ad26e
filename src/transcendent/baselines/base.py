"""The base class of baselines that are fitted like an inductive evaluator."""

from dataclasses import replace
from typing import Any

from sklearn.utils.validation import check_is_fitted

from transcendent.decisions import Fitted
from transcendent.evaluators.base import DetectorWrapper, copy_fitted_attributes
from transcendent.evaluators.inductive import InductiveEvaluator
from transcendent.judging.pvalues import Form
from transcendent.thresholds.exact import ExactSearch


class CalibratedBaseline(DetectorWrapper):
    """A rejector that is fitted and calibrated like an `InductiveEvaluator`, but decides in its own way."""

    calibration_size: float
    random_state: Any
    evaluator_: InductiveEvaluator

    takes_times = True

    @property
    def estimator_(self) -> Any:
        """The fitted detector."""
        check_is_fitted(self, "evaluator_")
        return self.evaluator_.estimator_

    @property
    def fitted(self) -> Fitted:
        """The evaluator's components and training rows, with the thresholds in use here."""
        if not hasattr(self, "evaluator_"):
            return super().fitted
        results = [self.result_] if hasattr(self, "result_") else []
        return replace(self.evaluator_.fitted, results=results)

    def _calibrate(self, X: Any, y: Any, times: Any, *, measure: Any, p_value: Form = "paper") -> None:
        """Fit the evaluator and copy its attributes; a fit that fails leaves no old ones behind."""
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
        copy_fitted_attributes(evaluator, self)
        self.evaluator_ = evaluator
