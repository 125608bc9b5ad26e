"""The judge: scores and answers in, decisions out."""

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from transcendent._utils.arrays import (
    AnyArray,
    FloatArray,
    IntArray,
    abbreviate,
    as_finite,
    as_labels,
    encode_labels,
    labels_to_fit,
    warn_of_other_order,
)
from transcendent.decisions import Decisions
from transcendent.judging.calibration import (
    Calibration,
    CalibrationLabel,
    warn_if_coarse,
    warn_if_reversed,
)
from transcendent.judging.doubt import kinds_of_doubt
from transcendent.judging.merging import Bag, Merging, check_absolute
from transcendent.judging.pvalues import Form, credibility_and_confidence
from transcendent.thresholds import Search
from transcendent.thresholds.exact import resolve_search


class ScoreEvaluator(BaseEstimator):
    """An inductive evaluator that is given scores and answers instead of a detector.

    Scores are nonconformity, one column per class, higher = stranger. From class probabilities ``p`` pass
    ``-p``; from one suspicion score or probability ``s`` of the second of two classes pass
    ``np.column_stack([s, -s])``. Several scores of the same objects, stacked to (n, classes, members), are
    combined as `CombinedMeasure` combines its members.

    The attributes are the ones of `InductiveEvaluator` that need no detector. To recalibrate, fit again.

    Parameters
    ----------
    search : Search or str
        How thresholds are found; see `InductiveEvaluator`.
    p_value : {"paper", "plus_one"}
        Which p-value; see `transcendent.judging.p_values`.
    calibration_label : {"predicted", "true"}
        ``"true"`` leaks the answer into calibration as the paper's released code does; only to reproduce.
    weights : array of shape (members,) or None
        How much each member of stacked scores counts: equally if None.
    bag : {"class", "all"}
        Which calibration objects a merged score is ranked among; see `CombinedMeasure`.
    absolute : tuple of int
        Positions of members, such as distances, whose scores are on one scale for all classes; with
        ``bag="all"`` they are ranked among all calibration objects.

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

    absolute: Any = ()  # also of an artifact that was written before there was any
    absolute_: tuple[int, ...] = ()

    def __init__(
        self,
        *,
        search: Search | str = "auto",
        p_value: Form = "paper",
        calibration_label: CalibrationLabel = "predicted",
        weights: Any = None,
        bag: Bag = "class",
        absolute: Any = (),
    ) -> None:
        self.search = search
        self.p_value = p_value
        self.calibration_label = calibration_label
        self.weights = weights
        self.bag = bag
        self.absolute = absolute

    def fit(self, scores: Any, y: Any, labels: Any, *, classes: Any = None) -> Self:
        """Calibrate on objects the detector was not trained on.

        Parameters
        ----------
        scores : array of shape (n, classes) or (n, classes, members)
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
        warn_of_other_order(scores, y, stacklevel=3)
        y, labels = labels_to_fit(y), as_labels(labels, "labels")
        if not len(scores) == len(y) == len(labels):
            raise ValueError(
                f"scores, y and labels differ in length: {len(scores)}, {len(y)}, {len(labels)}."
            )
        classes = np.unique(y) if classes is None else as_labels(classes, "classes")
        if len(np.unique(classes)) != len(classes) or len(classes) < 2:
            raise ValueError(f"at least two distinct classes are needed, not {abbreviate(classes)}.")
        actual, predicted = encode_labels(y, classes, "y"), encode_labels(labels, classes, "labels")
        n_members = np.shape(scores)[2] if np.ndim(scores) == 3 else None
        checked = _check_scores(scores, len(y), len(classes), n_members)
        self.calibrate(checked, actual, predicted, classes)
        warn_if_reversed([self.calibration_], stacklevel=3)
        self.rethreshold(self.search)
        warn_if_coarse([self.calibration_], stacklevel=3)
        return self

    def calibrate(self, scores: FloatArray, actual: IntArray, predicted: IntArray, classes: AnyArray) -> Self:
        """Take calibration objects, without thresholds: ``rethreshold`` searches them."""
        merging = None
        n_members = scores.shape[2] if scores.ndim == 3 else 1
        self.absolute_ = check_absolute(self.absolute, n_members)
        if scores.ndim == 3:
            merging = Merging(self.weights, self.bag, self.absolute_)
            merging.check_members(n_members)
        self.classes_ = classes
        self.calibration_ = Calibration(
            classes=classes,
            scores=scores,
            actual=actual,
            predicted=predicted,
            form=self.p_value,
            label=self.calibration_label,
            merging=merging,
        )
        return self

    @property
    def thresholds_(self) -> FloatArray:
        """Credibility threshold of each class."""
        return self.result_.credibility_thresholds

    def decide(self, scores: Any, labels: Any) -> Decisions:
        """Decide which of the detector's answers ``labels`` to accept, given scores as in ``fit``."""
        return self.judge(*self.check(scores, labels))

    def check(self, scores: Any, labels: Any) -> tuple[IntArray, FloatArray]:
        """Return answers as positions in ``classes_``, and scores like those that calibrated."""
        check_is_fitted(self)
        codes = encode_labels(labels, self.classes_, "labels")
        return codes, self._check_like_calibration(scores, len(codes))

    def judge(self, codes: IntArray, scores: FloatArray) -> Decisions:
        """Decide about answers given as positions in ``classes_``."""
        calibration, merging, members = self.calibration_, self.calibration_.merging, None
        if merging is not None:
            members = calibration.member_p_values(scores)
            scores = merging.scores(members)
        p = calibration.bags.p_values(scores, self.p_value)
        credibility, confidence = credibility_and_confidence(p, codes)
        seen = p[:, :, None] if members is None else members
        return Decisions(
            labels=self.classes_[codes],
            accepted=self.result_.accepts(codes, credibility, confidence),
            credibility=credibility,
            confidence=confidence,
            p_values=p,
            classes=self.classes_,
            doubts=kinds_of_doubt(seen, self.absolute_) if self.tells_doubt else None,
        )

    @property
    def tells_doubt(self) -> bool:
        """Whether decisions say which kind of doubt there is."""
        return self.calibration_.merging is not None or bool(self.absolute_)

    def predict_p(self, scores: Any) -> FloatArray:
        """Return the (n, classes) p-values of scores as in ``fit``."""
        check_is_fitted(self)
        return self._p_values(self._check_like_calibration(scores, len(scores)))

    def rethreshold(self, search: Search | str) -> Self:
        """Search new thresholds on the stored calibration objects.

        Also after a ``fit`` that ended in an `InfeasibleError`. A call that fails changes nothing.
        """
        if not hasattr(self, "calibration_"):
            raise NotFittedError("there are no calibration objects yet: call fit first.")
        search, calibration = resolve_search(search, len(self.classes_)), self.calibration_
        if search.apart is not None and self.calibration_label == "true":
            raise ValueError("calibration_label='true' leaks the answers: nothing can be guaranteed with it.")
        if search.apart != calibration.apart:
            calibration = replace(calibration, apart=search.apart)
            calibration.check_bags("GuaranteedSearch")
        self.result_ = calibration.search(search)
        self.calibration_, self.search_ = calibration, search
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "result_")

    def _p_values(self, scores: FloatArray) -> FloatArray:
        return self.calibration_.bags.p_values(self.calibration_.merge(scores), self.p_value)

    def _check_like_calibration(self, scores: Any, n: int) -> FloatArray:
        n_classes, *n_members = self.calibration_.scores.shape[1:]
        return _check_scores(scores, n, n_classes, *n_members)


def _check_scores(scores: Any, n: int, n_classes: int, n_members: int | None = None) -> FloatArray:
    shape = (n, n_classes) if n_members is None else (n, n_classes, n_members)
    if np.ndim(scores) == 1 and n_classes == 2:
        raise ValueError(
            "scores need a column for each class. If s is higher the more an object looks like the second of "
            "two, pass numpy.column_stack([s, -s])."
        )
    checked = as_finite(scores, "scores", ndim=len(shape))
    if checked.shape != shape:
        axes = ", ".join(("objects", "classes", "members")[: len(shape)])
        raise ValueError(f"scores must be ({axes}) = {shape}, got {checked.shape}.")
    return checked
