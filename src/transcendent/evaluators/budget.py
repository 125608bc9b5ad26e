"""Budgets: reject a share or a number of the objects of a period, or of a stream."""

from abc import ABC, abstractmethod
from dataclasses import replace
from math import ceil
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from transcendent._utils.arrays import AnyArray, BoolArray, FloatArray
from transcendent._utils.estimators import take_on_input
from transcendent.decisions import Decisions, check_budget
from transcendent.evaluators.training import Learner
from transcendent.rejectors import Traits, adopt_input
from transcendent.thresholds.base import check_promises_nothing

_GOLDEN = (5**0.5 - 1) / 2


class _Budget(ClassifierMixin, MetaEstimatorMixin, BaseEstimator, ABC):
    """A wrapper that keeps a rejector's labels and p-values, and decides anew what is rejected."""

    rejector: Any

    def __sklearn_tags__(self) -> Any:
        return take_on_input(super().__sklearn_tags__(), self.rejector)

    def fit(self, X: Any, y: Any, **params: Any) -> Self:
        """Fit the rejector; ``params`` go to its ``fit``."""
        self._check_budget()
        check_promises_nothing(getattr(self.rejector, "search", None), self)
        self.rejector_ = clone(self.rejector).fit(X, y, **params)
        adopt_input(self, self.rejector_)
        self._start()
        return self

    @available_if(lambda budget: hasattr(budget.rejector, "learn"))  # type: ignore[untyped-decorator]
    def learn(self, X: Any, y: Any, *, what: Learner = "judge", **params: Any) -> Self:
        """Let the rejector learn from new labels; a stream starts anew."""
        check_is_fitted(self)
        self.rejector_.learn(X, y, what=what, **params)
        adopt_input(self, self.rejector_)
        self._start()
        return self

    def _start(self) -> None:
        """Begin to count, where anything is counted."""

    def predict(self, X: Any) -> AnyArray:
        """Return the detector's labels."""
        check_is_fitted(self)
        labels: AnyArray = self.rejector_.predict(X)
        return labels

    @abstractmethod
    def _check_budget(self) -> None:
        """Refuse invalid parameters."""


class RejectionBudget(_Budget):
    """Holds a rejector to a budget: of every period it decides, the least credible objects are rejected.

    Thresholds found in calibration reject more and more as the world moves. A budget needs no labels: each
    call of ``decide`` is one period, whose objects compete for the places in the quarantine. An object
    decided with others, or alone, may therefore be decided otherwise. A period too small for its budget is
    refused: a share must be at least one object, and any budget must leave one. `StreamingBudget` decides
    objects as they come.

    Parameters
    ----------
    rejector : rejector
        What labels and ranks the objects, such as an `InductiveEvaluator`.
    rate : float or None
        Share of a period's objects to reject, rounded to the nearest whole number of objects.
    count : int or None
        Number of a period's objects to reject, instead of a share.

    Attributes
    ----------
    rejector_ : rejector
        The fitted rejector; its own thresholds remain in ``rejector_.decide``.
    classes_ : array of shape (classes,)
        The labels there are.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent import InductiveEvaluator, RejectionBudget
    >>> X, y = make_classification(2000, flip_y=0.1, random_state=0)
    >>> ice = InductiveEvaluator(LinearSVC(), random_state=0)
    >>> held = RejectionBudget(ice, count=80).fit(X[:1000], y[:1000])
    >>> int(held.decide(X[1000:]).rejected.sum())
    80
    """

    depends_on_others = True

    def __init__(self, rejector: Any, *, rate: float | None = None, count: int | None = None) -> None:
        self.rejector = rejector
        self.rate = rate
        self.count = count

    @property
    def evolves(self) -> bool:
        """Whether the rejector changes while it decides."""
        return Traits.of(self.rejector).evolves

    def decide(self, X: Any, *labels: Any) -> Decisions:
        """Label the objects of a period, and reject as many of them as the budget allows.

        For a `ScoreEvaluator` X holds scores, and ``labels`` are the detector's answers.
        """
        check_is_fitted(self)
        decisions: Decisions = self.rejector_.decide(X, *labels)
        return decisions.within_budget(self.rate, count=self.count)

    def _check_budget(self) -> None:
        check_budget(self.rate, self.count)


class StreamingBudget(_Budget):
    """Holds a rejector to a budget while objects come one by one, or in batches of any size.

    An object is rejected if it is among the least credible of the last ``window`` objects, itself included.
    How large a share of them that is starts at ``rate``; it grows while the stream has rejected less than
    its budget, and shrinks while it has rejected more. So the budget holds whatever the stream does, drift
    and ties included. After any number of objects,

        abs(rejected - rate * decided) < window * min(rate, 1 - rate) + 1

    A longer window compares with more objects, and follows a change more slowly.

    Objects that tie, in credibility and in confidence, take turns. What is decided about an object depends
    on those before it, never on those after it or on how the stream is cut into calls.
    ``decide`` changes the state, which is the three attributes ``decided_``, ``rejected_`` and ``recent_``.
    ``fit`` starts a new stream, also where a backtest refits; ``predict`` changes nothing.

    Parameters
    ----------
    rejector : rejector
        What labels and ranks the objects, such as an `InductiveEvaluator`.
    rate : float
        Share of the objects to reject.
    window : int
        Number of objects one is compared with, itself included. It must hold a budget of at least one object,
        and leave one.

    Attributes
    ----------
    rejector_ : rejector
        The fitted rejector; its own thresholds remain in ``rejector_.decide``.
    classes_ : array of shape (classes,)
        The labels there are.
    decided_, rejected_ : int
        Number of objects decided and rejected so far.
    recent_ : array of shape (at most window - 1, 2)
        What ranked the last objects: credibility and confidence, or the reverse if the rejector ranks by
        confidence.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent import InductiveEvaluator, StreamingBudget
    >>> X, y = make_classification(2000, flip_y=0.1, random_state=0)
    >>> ice = InductiveEvaluator(LinearSVC(), random_state=0)
    >>> stream = StreamingBudget(ice, rate=0.1, window=200).fit(X[:1000], y[:1000])
    >>> rejected = [stream.decide(row).rejected[0] for row in X[1000:].reshape(-1, 1, 20)]
    >>> int(sum(rejected))
    100
    """

    evolves = depends_on_others = True

    def __init__(self, rejector: Any, *, rate: float, window: int = 1000) -> None:
        self.rejector = rejector
        self.rate = rate
        self.window = window

    def _start(self) -> None:
        self.decided_, self.rejected_, self.recent_ = 0, 0, np.empty((0, 2))

    def decide(self, X: Any, *labels: Any) -> Decisions:
        """Label the next objects of the stream, in order, and reject those the budget allows.

        For a `ScoreEvaluator` X holds scores, and ``labels`` are the detector's answers.
        """
        check_is_fitted(self)
        decisions: Decisions = self.rejector_.decide(X, *labels)
        new = np.column_stack([decisions.ranking, decisions.second_ranking])
        trust = np.concatenate([self.recent_, new])
        rejected = self._rejected(trust, len(new))
        self.decided_ += len(new)
        self.rejected_ += int(rejected.sum())
        self.recent_ = trust[-(self.window - 1) :].copy()
        return replace(decisions, accepted=~rejected)

    def _check_budget(self) -> None:
        check_budget(self.rate, None)
        if not 0 < self.rate < 1:
            raise ValueError(f"rate is a share between 0 and 1, neither of them included, not {self.rate!r}.")
        least = ceil(round(1 / min(self.rate, 1 - self.rate), 9))
        if not isinstance(self.window, int | np.integer) or self.window < least:
            raise ValueError(
                f"window={self.window!r} is too short for rate={self.rate}: a number of objects of which "
                f"the budget rejects one or more, and leaves one or more, so {least} at least."
            )

    def _rejected(self, trust: FloatArray, n_new: int) -> BoolArray:
        """Return which of the last ``n_new`` are rejected, given the trust in these and earlier ones."""
        ranks = np.unique(trust, axis=0, return_inverse=True)[1].reshape(-1)
        n_old, total = len(trust) - n_new, self.rejected_
        rejected = np.zeros(n_new, dtype=bool)
        for i in range(n_new):
            end = n_old + i
            before, own, decided = ranks[max(0, end - self.window + 1) : end], ranks[end], self.decided_ + i
            lower, tied = np.count_nonzero(before < own), np.count_nonzero(before == own)
            share = self._share(decided, total)
            # Multiples of the golden ratio spread evenly: of objects that all tie, the share is rejected.
            turn = (decided + 1) * _GOLDEN % 1
            rejected[i] = lower + turn * (tied + 1) < share * (len(before) + 1)
            total += int(rejected[i])
        return rejected

    def _share(self, decided: int, rejected: int) -> float:
        """Return the share to reject: 0 once a window's budget is overspent, 1 once one is unspent.

        In between, the odds of ``rate`` are multiplied by (1 + saved) / (1 - saved).
        """
        saved = (self.rate * decided - rejected) / (self.window * min(self.rate, 1 - self.rate))
        reject, keep = self.rate * (1 + saved), (1 - self.rate) * (1 - saved)
        return reject / (reject + keep)
