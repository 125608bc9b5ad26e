"""The cross-conformal evaluator (CCE): one inductive evaluator per fold, and a vote among them."""

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from transcendent._utils import parallel
from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, take_rows
from transcendent._utils.cells import pointing_out
from transcendent.decisions import DOUBTS, Decisions, p_values_of
from transcendent.evaluators.base import ConformalEvaluator
from transcendent.evaluators.splits import Split, check_every_fold_can_calibrate, folds
from transcendent.evaluators.training import Training
from transcendent.judging.calibration import CalibrationLabel
from transcendent.judging.pvalues import Form, credibility_and_confidence
from transcendent.measures.base import Measure
from transcendent.measures.detector import Answer, Detector
from transcendent.thresholds import Search


class CrossConformalEvaluator(ConformalEvaluator):
    """Splits the rows into folds; each fold calibrates a detector fitted on all the others.

    The label of an object is the one most folds predict. A tie goes to the higher mean credibility among the
    folds that predict the label, then to class order. It is accepted if at least ``quorum`` folds both
    predict that label and accept it. A larger quorum accepts less; another one needs no new fit.

    Parameters
    ----------
    estimator : classifier
        The detector, fitted once for each fold.
    measure : Measure, str or callable
        How strange an object looks for each class; see `InductiveEvaluator`.
    search : Search or str
        How thresholds are found; see `InductiveEvaluator`.
    cv : int or splitter
        Number of stratified folds, or a scikit-learn splitter.
    quorum : int or None
        How many folds must both predict a label and accept it, unless ``decide`` is given another number; by
        default more than half.
    p_value : {"paper", "plus_one"}
        Which p-value; see `transcendent.judging.p_values`.
    calibration_label : {"predicted", "true"}
        ``"true"`` leaks the answer into calibration as the paper's released code does; only to reproduce.
    random_state : int, RandomState or None
        Seeds the folds and a measure given by its name; a detector that draws has a ``random_state`` of
        its own.
    n_jobs : int or None
        How many folds are fitted at once, in processes, and how many chunks of rows are decided at once,
        in threads.
    verbose : bool
        Whether long work shows its progress on a terminal.

    Attributes
    ----------
    classes_ : array of shape (classes,)
        The labels there are, sorted.
    detectors_ : list of Detector
        Detector and measure of each fold.
    judges_ : list of ScoreEvaluator
        Calibration objects and thresholds of each fold; ``judges_[0].result_`` is what the first promises
        about its own decisions. The vote is another decision, about which no fold promises anything.
    thresholds_ : array of shape (folds, classes)
        Credibility thresholds.
    search_ : Search
        The search last used.
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

    quorum: int | None = None  # also of an artifact that was written before there was one

    def __init__(
        self,
        estimator: BaseEstimator,
        *,
        measure: Measure | Callable[[Any, Any], Any] | str = "auto",
        search: Search | str = "auto",
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

    @pointing_out
    def fit(self, X: Any, y: Any, **params: Any) -> Self:
        """Fit, calibrate and threshold one detector per fold; ``params`` go to their ``fit``, routed."""
        training, codes = self._start_fit(X, y, params)
        splits = list(folds(self.cv, codes, self.classes_, check_random_state(self.random_state))[0])
        check_every_fold_can_calibrate(splits, codes, self.classes_)
        check_quorum(self.quorum, len(splits))
        fitted = parallel.run(
            _fit_fold,
            ((i,) for i in range(len(splits))),
            shared=(training, splits),
            total=len(splits),
            n_jobs=self.n_jobs,
            label="fitting folds",
            verbose=self.verbose,
        )
        detectors, answers, rows = zip(*fitted, strict=True)
        return self._finish_fit(training, list(detectors), list(answers), list(rows))

    @property
    def _one_in(self) -> int:
        return len(self.calibration_rows_)

    @property
    def thresholds_(self) -> FloatArray:
        """(folds, classes) credibility thresholds."""
        check_is_fitted(self)
        return np.array([judge.thresholds_ for judge in self.judges_])

    def decide(self, X: Any, *, quorum: int | None = None) -> Decisions:
        """Label every object and say which labels to accept.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n, features)
            The rows to decide.
        quorum : int or None
            How many folds must both predict the label and accept it; by default the evaluator's own quorum.
        """
        check_is_fitted(self)
        quorum = check_quorum(self.quorum if quorum is None else quorum, len(self.detectors_))
        return self._in_chunks(X, partial(self._vote, quorum=quorum))

    def _vote(self, X: Any, quorum: int) -> Decisions:
        pairs = zip(self.judges_, self.detectors_, strict=True)
        return vote([judge.judge(*detector.answer(X)) for judge, detector in pairs], quorum)


def check_quorum(quorum: int | None, k: int) -> int:
    """Return the quorum of k folds: the one given, or more than half."""
    if quorum is None:
        return k // 2 + 1
    if isinstance(quorum, bool) or not isinstance(quorum, int | np.integer) or not 1 <= quorum <= k:
        raise ValueError(f"quorum={quorum!r} must be an integer between 1 and the {k} folds.")
    return int(quorum)


def _fit_fold(training: Training, splits: list[Split], i: int) -> tuple[Detector, Answer, IntArray]:
    train, test = splits[i]
    detector = training.fit(train)
    return detector, detector.answer(take_rows(training.X, test)), test


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
    # Rounded, since equal credibilities summed in another order differ in the last bit.
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
    """Return the kind of doubt that most folds have about each object; of a tie, the first."""
    if doubts[0] is None:
        return None
    counts = np.stack([np.sum([own == kind for own in doubts], axis=0) for kind in range(len(DOUBTS))])
    return np.asarray(counts.argmax(axis=0), dtype=np.int8)
