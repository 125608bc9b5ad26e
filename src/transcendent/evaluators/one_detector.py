"""The base class of evaluators with one detector and one judge."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from sklearn.utils.validation import check_is_fitted

from transcendent._utils import parallel
from transcendent._utils.arrays import FloatArray, IntArray
from transcendent.decisions import Answers
from transcendent.evaluators.base import Columns
from transcendent.evaluators.learning import LearningEvaluator
from transcendent.judging.calibration import Calibration
from transcendent.measures.base import Measure
from transcendent.thresholds import SearchResult


class OneDetectorEvaluator(LearningEvaluator):
    """An evaluator with one detector and one judge."""

    def answer(self, X: Any) -> Answers:
        """Return the detector's labels and the measure's scores.

        A `ScoreEvaluator` judges such answers: ``judges_[0].decide(answer(X))`` equals ``decide(X)``.
        """
        return self.answers(X)[0]

    def judge_by(self, judge: Callable[[IntArray, FloatArray], Columns], X: Any) -> Columns:
        """Return the columns that ``judge`` makes of the detector's answers, in chunks of rows.

        It is called with labels, as positions in ``classes_``, and scores.
        """
        return self._in_chunks(X, lambda rows: judge(*self.detectors_[0].answer(rows)), "deciding")

    def _fitting(self) -> AbstractContextManager[None]:
        """Show that the detector is being fitted, if it takes long."""
        label = f"fitting {type(self.estimator).__name__} and its measure"
        return parallel.working(label, verbose=self.verbose)

    @property
    def estimator_(self) -> Any:
        """The fitted detector."""
        check_is_fitted(self)
        return self.detectors_[0].estimator

    @property
    def measure_(self) -> Measure:
        """The fitted measure, also the one that ``"auto"`` stands for."""
        check_is_fitted(self)
        return self.detectors_[0].measure

    @property
    def calibration_(self) -> Calibration:
        """The calibration objects: scores, labels and p-values."""
        check_is_fitted(self)
        return self.judges_[0].calibration_

    @property
    def result_(self) -> SearchResult:
        """The thresholds and what they promise."""
        check_is_fitted(self)
        return self.judges_[0].result_

    @property
    def thresholds_(self) -> FloatArray:
        """Credibility threshold of each class."""
        return self.result_.credibility_thresholds
