"""For people who only have scores, labels and predictions: a vendor's black box."""

import warnings
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from transcendent.arrays import (
    AnyArray,
    FloatArray,
    abbreviate,
    as_finite,
    as_labels,
    distinct,
    encode_labels,
)
from transcendent.decisions import Decisions
from transcendent.errors import CalibrationWarning
from transcendent.evaluators.calibration import (
    Calibration,
    CalibrationLabel,
    judge,
    resolve_search,
    warn_if_coarse,
)
from transcendent.evaluators.in_folder import CalibrationInFolder, store_codes
from transcendent.merging import Bag, Merging, Rule
from transcendent.pvalues import Form, draw_uniforms


class ScoreEvaluator(BaseEstimator):
    """An inductive evaluator that is given scores and answers instead of a detector.

    Scores are nonconformity, one column per class, higher = stranger. From class probabilities ``p`` pass
    ``-p``; from one suspicion score or probability ``s`` of the second of two classes pass
    ``np.column_stack([s, -s])``. Several scores of the same objects, stacked to (n, classes, parts), are
    combined as `CombinedMeasure` combines its parts.

    Parameters and attributes are those of `InductiveEvaluator` that need no detector, and ``rule``,
    ``weights`` and ``bag`` those of `CombinedMeasure`. To recalibrate, fit again.

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

    rule: Rule = "fisher"  # also here, for files that were written before there were parts
    weights: Any = None
    bag: Bag = "class"

    def __init__(
        self,
        *,
        search: Any = "auto",
        p_value: Form = "paper",
        calibration_label: CalibrationLabel = "predicted",
        random_state: Any = None,
        rule: Rule = "fisher",
        weights: Any = None,
        bag: Bag = "class",
    ) -> None:
        self.search = search
        self.p_value = p_value
        self.calibration_label = calibration_label
        self.random_state = random_state
        self.rule = rule
        self.weights = weights
        self.bag = bag

    def fit(
        self, scores: Any, y: Any, labels: Any, *, classes: Any = None, folder: str | Path | None = None
    ) -> Self:
        """Calibrate on objects the detector was not trained on.

        Parameters
        ----------
        scores : array of shape (n, classes) or (n, classes, parts)
            Nonconformity, higher = stranger.
        y : array of shape (n,)
            True labels.
        labels : array of shape (n,)
            The detector's answers.
        classes : array or None
            The label of each column of ``scores``; by default the sorted labels of ``y``.
        folder : path or None
            For more objects than fit in memory: arguments may be memory-mapped, they are read in chunks, and
            what is kept of them is memory-mapped files in this folder. The numbers are the same.
            Thresholds take memory in proportion to the incorrect answers if searched by `ExactSearch` with
            metrics of kept objects and limits on rejection; anything else loads all values.
            ``joblib.parallel_config("threading", n_jobs=...)`` around the call spreads the work over threads.
        """
        for name in ("calibration_", "result_"):
            self.__dict__.pop(name, None)  # a fit that fails leaves nothing half old, half new
        y, labels = as_labels(y), as_labels(labels, "labels")
        if not len(scores) == len(y) == len(labels):
            raise ValueError(
                f"scores, y and labels differ in length: {len(scores)}, {len(y)}, {len(labels)}."
            )
        self.classes_ = distinct(y) if classes is None else as_labels(classes, "classes")
        if len(np.unique(self.classes_)) != len(self.classes_) or len(self.classes_) < 2:
            raise ValueError(f"at least two distinct classes are needed, not {abbreviate(self.classes_)}.")
        n_parts = np.shape(scores)[2] if np.ndim(scores) == 3 else None
        merging = Merging(self.rule, self.weights, self.bag)
        if n_parts is not None:
            merging.check_parts(n_parts)
        settings = {"form": self.p_value, "label": self.calibration_label, "random_state": self.random_state}
        if folder is None:
            self.calibration_ = Calibration(
                classes=self.classes_,
                scores=self._check_scores(scores, len(y), n_parts),
                actual=encode_labels(y, self.classes_, "y"),
                predicted=encode_labels(labels, self.classes_, "labels"),
                merging=None if n_parts is None else merging,
                **settings,
            )
        else:
            self.calibration_ = self._calibrate_in(Path(folder), scores, y, labels, settings)
        self.rethreshold(self.search)
        warn_if_coarse([self.calibration_], stacklevel=3)
        self._warn_if_reversed()
        return self

    @property
    def thresholds_(self) -> FloatArray:
        """Credibility threshold of each class."""
        return self.result_.credibility_thresholds

    def decide(self, scores: Any, labels: Any) -> Decisions:
        """Which of the detector's answers ``labels`` to accept, given scores as in ``fit``."""
        check_is_fitted(self, "result_")
        codes = encode_labels(labels, self.classes_, "labels")
        checked = self._check_scores(scores, len(codes), self._n_parts)
        uniforms = draw_uniforms(self.p_value, checked.shape[:2], self.random_state, new_objects=True)
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
        """(n, classes) p-values of scores as in ``fit``."""
        check_is_fitted(self, "result_")
        checked = self._check_scores(scores, len(scores), self._n_parts)
        uniforms = draw_uniforms(self.p_value, checked.shape[:2], self.random_state, new_objects=True)
        return self.calibration_.table.p_values(self.calibration_.merge(checked), self.p_value, uniforms)

    def rethreshold(self, search: Any) -> Self:
        """Search new thresholds on the stored calibration objects.

        Also after a ``fit`` that ended in an `InfeasibleError`. A call that fails changes nothing.
        """
        check_is_fitted(self, "calibration_")
        search = resolve_search(search, len(self.classes_))
        self.result_ = self.calibration_.search(search)
        self.search_ = search
        return self

    def _calibrate_in(
        self, folder: Path, scores: Any, y: AnyArray, labels: AnyArray, settings: dict[str, Any]
    ) -> Calibration:
        scores = np.asarray(scores)
        self._check_shape(scores, [len(y), len(self.classes_)], "objects, classes")
        if self.p_value == "smoothed" and not isinstance(self.random_state, Integral):
            raise ValueError(
                "smoothed p-values in a folder are to be drawn the same again: give an integer random_state, "
                f"not {self.random_state!r}."
            )
        folder.mkdir(parents=True, exist_ok=True)
        return CalibrationInFolder(
            classes=self.classes_,
            scores=scores,
            actual=store_codes(folder / "actual.npy", y, self.classes_, "y"),
            predicted=store_codes(folder / "predicted.npy", labels, self.classes_, "labels"),
            folder=folder,
            **settings,
        )

    def _warn_if_reversed(self) -> None:
        """Columns have no common scale: each is asked whether its own members look the stranger ones."""
        if np.mean(self.calibration_.reversed_columns()) > 0.5:
            warnings.warn(
                "objects look stranger for their own class than others do. Scores are higher = stranger: "
                "from probabilities pass -p.",
                CalibrationWarning,
                stacklevel=3,
            )

    @property
    def _n_parts(self) -> int | None:
        shape = self.calibration_.scores.shape
        return shape[2] if len(shape) == 3 else None

    def _check_scores(self, scores: Any, n: int, n_parts: int | None) -> FloatArray:
        shape, axes = [n, len(self.classes_)], "objects, classes"
        if n_parts is not None:
            shape, axes = [*shape, n_parts], axes + ", parts"
        checked = as_finite(scores, "scores", ndim=len(shape))
        self._check_shape(checked, shape, axes)
        return checked

    @staticmethod
    def _check_shape(scores: AnyArray, shape: list[int], axes: str) -> None:
        if list(scores.shape) != shape:
            raise ValueError(f"scores must be ({axes}) = {tuple(shape)}, got {scores.shape}.")
