"""The cross-conformal evaluator (CCE): one inductive evaluator per fold, and a vote among them."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from transcendent._utils import parallel
from transcendent._utils.arrays import AnyArray, FloatArray
from transcendent._utils.cells import locate_bad_value
from transcendent.decisions import DOUBTS, Decisions, InWords, p_values_of
from transcendent.evaluators.learning import LearningEvaluator
from transcendent.evaluators.splits import check_every_fold_can_calibrate, folds
from transcendent.evaluators.training import Training
from transcendent.judging.calibration import CalibrationLabel
from transcendent.judging.pvalues import Form, credibility_and_confidence
from transcendent.measures.base import Measure
from transcendent.thresholds import SearchLike


class CrossConformalEvaluator(LearningEvaluator):
    """Splits the rows into folds; each fold calibrates a detector fitted on all the others.

    The label of an object is the one most folds predict. A tie goes to the higher mean credibility among the
    folds that predict the label, then to class order. The label is accepted if at least ``quorum`` folds
    both predict and accept it. A larger quorum accepts less; changing it needs no new fit.

    Parameters
    ----------
    estimator : classifier
        The detector, fitted once for each fold.
    cv : int or splitter
        Number of stratified folds, or a scikit-learn splitter.
    quorum : int or None
        Number of folds that must both predict a label and accept it; by default more than half.
    n_jobs : int or None
        Number of processes that fit folds, and of threads that decide chunks of rows.
    measure, search, p_value, calibration_label, random_state, verbose
        As for `InductiveEvaluator`.

    Attributes
    ----------
    judges_ : list of ScoreEvaluator
        Calibration objects and thresholds of each fold; ``judges_[0].result_`` is what the first promises
        about its own decisions. No fold promises anything about the vote.
    thresholds_ : array of shape (folds, classes)
        Credibility thresholds.
    n_repeated_, n_left_out_ : int
        As for `InductiveEvaluator`, over all folds.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from transcendent import CrossConformalEvaluator
    >>> X, y = make_classification(2000, flip_y=0.1, random_state=0)
    >>> cce = CrossConformalEvaluator(LogisticRegression(), cv=5, random_state=0).fit(X[:1000], y[:1000])
    >>> lenient, strict = cce.decide(X[1000:], quorum=1), cce.decide(X[1000:], quorum=5)
    >>> bool(lenient.accepted.sum() >= strict.accepted.sum())
    True
    """

    has_votes = True

    def __init__(
        self,
        estimator: BaseEstimator,
        *,
        measure: Measure | Callable[[Any, Any], Any] | str = "auto",
        search: SearchLike = "auto",
        cv: Any = 10,
        quorum: int | None = None,
        p_value: Form = "paper",
        calibration_label: CalibrationLabel = "predicted",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = True,
    ) -> None:
        self.estimator = estimator
        self.measure = measure
        self.search = search
        self.cv = cv
        self.quorum = quorum
        self.p_value = p_value
        self.calibration_label = calibration_label
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @locate_bad_value
    def fit(self, X: Any, y: Any, **params: Any) -> Self:
        """Fit and calibrate one detector per fold; ``params`` are routed to the detector's ``fit``."""
        training = self._start_fit(X, y, params)
        codes = training.codes
        splits = list(folds(self.cv, codes, self.classes_, check_random_state(self.random_state))[0])
        check_every_fold_can_calibrate(splits, codes, self.classes_)
        check_quorum(self.quorum, len(splits))
        fitted = parallel.run(
            Training.fit_fold,
            splits,
            shared=(training,),
            total=len(splits),
            n_jobs=self.n_jobs,
            label="fitting folds",
            verbose=self.verbose,
        )
        return self._finish_fit(training, fitted)

    def in_words(self, n_classes: int) -> InWords:
        """Return how it judges the detector's answers, and which ones the vote rejects."""
        of_each = super().in_words(n_classes)
        return of_each._replace(rejects=f"what too few of them accept; each rejects {of_each.rejects}")

    def _judges_by(self) -> str:
        folds = self.cv if isinstance(self.cv, int) else "several"
        return (
            f"a vote of {folds} inductive conformal evaluators with {self._measure_in_words()} (a "
            "cross-conformal evaluator)"
        )

    @property
    def _new_class_stride(self) -> int:
        return len(self.calibration_rows_)

    @property
    def thresholds_(self) -> FloatArray:
        """(folds, classes) credibility thresholds."""
        check_is_fitted(self)
        return np.array([judge.thresholds_ for judge in self.judges_])

    def decide(self, X: Any, *, quorum: int | None = None) -> Decisions:
        """Label every object and say which labels to accept, with another ``quorum`` if one is given."""
        check_is_fitted(self)
        quorum = check_quorum(self.quorum if quorum is None else quorum, len(self.detectors_))
        pairs = list(zip(self.judges_, self.detectors_, strict=True))
        return self._decide(X, lambda rows: vote([j.judge(*d.answer(rows)) for j, d in pairs], quorum))


def check_quorum(quorum: int | None, k: int) -> int:
    """Return the quorum of k folds: the one given, or more than half."""
    if quorum is None:
        return k // 2 + 1
    if isinstance(quorum, bool) or not isinstance(quorum, int | np.integer) or not 1 <= quorum <= k:
        raise ValueError(f"quorum={quorum!r} must be an integer between 1 and the {k} folds.")
    return int(quorum)


def set_quorum(rejector: Any, quorum: int) -> None:
    """Give a cross-conformal evaluator another quorum."""
    if not isinstance(rejector, CrossConformalEvaluator):
        raise ValueError(f"{type(rejector).__name__} has no quorum: only a CrossConformalEvaluator has.")
    rejector.quorum = quorum


def vote(each: list[Decisions], quorum: int) -> Decisions:
    """Return the plurality label, its mean p-values, and the number of folds that predict and accept it."""
    classes, shape = each[0].classes, p_values_of(each[0]).shape
    rows, codes = np.arange(shape[0]), [np.searchsorted(classes, one.labels) for one in each]
    ballots, credibility, p = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for one, own in zip(each, codes, strict=True):
        ballots[rows, own] += 1
        credibility[rows, own] += one.credibility
        p += p_values_of(one)
    p /= len(each)
    leading = ballots == ballots.max(axis=1, keepdims=True)
    # Rounded, since the order of folds changes the last bit of a sum of equal credibilities.
    label = np.argmax(np.where(leading, credibility.round(9), -1.0), axis=1)
    votes = np.sum([(own == label) & one.accepted for one, own in zip(each, codes, strict=True)], axis=0)
    mean_credibility, confidence = credibility_and_confidence(p, label)
    return Decisions(
        labels=classes[label],
        accepted=votes >= quorum,
        credibility=mean_credibility,
        confidence=confidence,
        p_values=p,
        classes=classes,
        votes=votes,
        doubts=_most_common([one.doubts for one in each]),
    )


def _most_common(doubts: list[AnyArray | None]) -> AnyArray | None:
    """Return the kind of doubt that most folds have about each object; a tie goes to the first."""
    if doubts[0] is None:
        return None
    counts = np.stack([np.sum([own == kind for own in doubts], axis=0) for kind in range(len(DOUBTS))])
    return np.asarray(counts.argmax(axis=0), dtype=np.int8)
