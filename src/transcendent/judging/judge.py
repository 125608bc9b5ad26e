"""The judge: a detector's answers in, decisions out."""

from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from transcendent._utils.arrays import (
    AnyArray,
    FloatArray,
    IntArray,
    abbreviate,
    as_labels,
    encode_labels,
    labels_to_fit,
    warn_of_other_order,
)
from transcendent.decisions import Answers, Decisions, Fitted, InWords, Learner, Rejector
from transcendent.judging.calibration import Calibration, CalibrationLabel, warn_if_coarse, warn_if_reversed
from transcendent.judging.doubt import kinds_of_doubt
from transcendent.judging.pvalues import Form, credibility_and_confidence
from transcendent.merging import Bag, Merging, check_absolute
from transcendent.thresholds import SearchLike
from transcendent.thresholds.exact import resolve_search


class ScoreEvaluator(Rejector, BaseEstimator):
    """An inductive evaluator for a detector's answers, without the detector itself.

    `Answers` hold labels and nonconformity scores, one column per class, higher = stranger. From class
    probabilities ``p`` pass ``-p``; from one suspicion score or probability ``s`` of the second of two
    classes pass ``np.column_stack([s, -s])``. Several scores of the same objects, stacked to (n, classes,
    members), are combined as `CombinedMeasure` combines its members.

    It has the attributes of `InductiveEvaluator` that need no detector. To recalibrate, fit again.

    Parameters
    ----------
    search, p_value, calibration_label
        As for `InductiveEvaluator`.
    weights, bag
        Weights of stacked scores, and the objects a merged score is ranked among; as for `CombinedMeasure`.
    absolute : tuple of int
        Positions of members, such as distances, whose scores have one scale for all classes. With
        ``bag="all"`` they are ranked among all calibration objects.

    Examples
    --------
    >>> import numpy as np
    >>> from transcendent import Answers, ScoreEvaluator
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 500)
    >>> suspicion = np.where(y == 1, 1.0, -1.0) + rng.normal(size=1000)
    >>> labels, scores = (suspicion > 0).astype(int), np.column_stack([suspicion, -suspicion])
    >>> vendor = ScoreEvaluator().fit(Answers(labels, scores), y)
    >>> vendor.decide(Answers([1, 1], [[3.0, -3.0], [0.01, -0.01]])).accepted
    array([ True, False])
    """

    judges_scores = can_rethreshold = has_p_values = True

    def __init__(
        self,
        *,
        search: SearchLike = "auto",
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

    def fit(self, X: Answers, y: Any, *, classes: Any = None) -> Self:
        """Calibrate on answers about objects that the detector was not trained on; ``y`` are true labels.

        ``classes`` are the labels of the columns of the scores, by default the sorted labels of ``y``.
        """
        for name in ("calibration_", "result_"):
            self.__dict__.pop(name, None)  # so that a failed fit does not mix old and new state
        answers = self.answer(X)
        warn_of_other_order(answers, y, stacklevel=3)
        y = labels_to_fit(y)
        if len(answers) != len(y):
            raise ValueError(f"there are {len(answers)} answers, but y has {len(y)} labels.")
        classes = np.unique(y) if classes is None else as_labels(classes, "classes")
        if len(np.unique(classes)) != len(classes) or len(classes) < 2:
            raise ValueError(f"at least two distinct classes are needed, not {abbreviate(classes)}.")
        actual, predicted = encode_labels(y, classes, "y"), encode_labels(answers.labels, classes, "labels")
        _check_shape(answers.scores, len(classes), *answers.scores.shape[2:])
        self.calibrate(answers.scores, actual, predicted, classes)
        warn_if_reversed([self.calibration_], stacklevel=3)
        self.rethreshold(self.search)
        warn_if_coarse([self.calibration_], stacklevel=3)
        return self

    def calibrate(self, scores: FloatArray, actual: IntArray, predicted: IntArray, classes: AnyArray) -> Self:
        """Store calibration objects; ``rethreshold`` then searches thresholds on them."""
        merging, n_members = None, scores.shape[2] if scores.ndim == 3 else 1
        self.absolute_ = check_absolute(self.absolute, n_members)
        if scores.ndim == 3:
            merging = Merging(self.weights, self.bag, self.absolute_)
            merging.check_members(n_members)
        self.classes_ = classes
        self.calibration_ = Calibration(
            classes, scores, actual, predicted, self.p_value, self.calibration_label, merging
        )
        return self

    @property
    def thresholds_(self) -> FloatArray:
        """Credibility threshold of each class."""
        return self.result_.credibility_thresholds

    def answer(self, X: Answers) -> Answers:
        """Return the answers unchanged; refuse anything else."""
        if not isinstance(X, Answers):
            raise TypeError("a ScoreEvaluator takes a detector's answers as rows: Answers(labels, scores).")
        return X

    def predict(self, X: Answers) -> AnyArray:
        """Return the detector's labels, accepted or not."""
        return np.asarray(self.classes_[self.check(X)[0]])

    def predict_p(self, X: Answers) -> FloatArray:
        """Return the (n, classes) p-values of a detector's answers."""
        _, scores = self.check(X)
        return self.calibration_.bags.p_values(self.calibration_.merge(scores), self.p_value)

    def decide(self, X: Answers) -> Decisions:
        """Decide which of the detector's answers to accept."""
        return replace(self.judge(*self.check(X)), index=X.index)

    def check(self, X: Answers) -> tuple[IntArray, FloatArray]:
        """Return labels as positions in ``classes_``, and scores of the same shape as in calibration."""
        check_is_fitted(self)
        answers = self.answer(X)
        _check_shape(answers.scores, *self.calibration_.scores.shape[1:])
        return encode_labels(answers.labels, self.classes_, "labels"), answers.scores

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
    def tells_doubt(self) -> bool:  # type: ignore[override]
        """Whether its decisions name kinds of doubt."""
        return self.calibration_.merging is not None or bool(self.absolute_)

    @property
    def can_be_monitored(self) -> bool:  # type: ignore[override]
        """Whether no subclass replaces ``decide``."""
        return type(self).decide is ScoreEvaluator.decide

    @property
    def fitted(self) -> Fitted:
        """The classes, itself as the judge, and the thresholds."""
        if not hasattr(self, "calibration_"):
            return super().fitted
        results = [self.result_] if hasattr(self, "result_") else []
        return replace(super().fitted, judges=[self], results=results, lacks_thresholds=not results)

    def in_words(self, n_classes: int) -> InWords:
        """Return how it judges, and which answers its thresholds reject."""
        search = resolve_search(self.search, n_classes)
        judges = "judges a detector's answers by its scores alone, compared with those of the training window"
        return InWords(judges, search.in_words, search.under_drift, search.promised_error)

    def what_learns(self, wanted: Learner) -> Literal["nothing"]:  # noqa: ARG002
        """Return ``"nothing"``: there are no models."""
        return "nothing"

    def rethreshold(self, search: SearchLike) -> Self:
        """Search new thresholds on the stored calibration objects.

        This also works after ``fit`` raised an `InfeasibleError`. A call that fails changes nothing.
        """
        if not hasattr(self, "calibration_"):
            raise NotFittedError("there are no calibration objects yet: call fit first.")
        search, calibration = resolve_search(search, len(self.classes_)), self.calibration_
        if search.held_out_seed is not None and self.calibration_label == "true":
            raise ValueError("calibration_label='true' leaks the answers: nothing can be guaranteed with it.")
        if search.held_out_seed != calibration.held_out_seed:
            calibration = replace(calibration, held_out_seed=search.held_out_seed)
            calibration.check_bags("GuaranteedSearch")
        self.result_ = calibration.search(search)
        self.calibration_, self.search_ = calibration, search
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "result_")


def _check_shape(scores: FloatArray, *expected: int) -> None:
    """Refuse scores for a different number of classes or members."""
    if scores.shape[1:] != expected:
        axes = ", ".join(("objects", "classes", "members")[: 1 + len(expected)])
        raise ValueError(f"scores must be ({axes}) = {(len(scores), *expected)}, got {scores.shape}.")
