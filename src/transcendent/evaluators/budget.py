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
from transcendent._utils.checks import check_shares
from transcendent._utils.estimators import copy_input_tags
from transcendent._utils.text import as_percent
from transcendent.decisions import (
    Budget,
    Decisions,
    Fitted,
    InWords,
    Learner,
    Rejector,
    check_budget,
    declared,
    is_rejector,
)
from transcendent.evaluators.base import copy_fitted_attributes
from transcendent.evaluators.training import LabelledRows
from transcendent.thresholds.base import refuse_guaranteed_search

_GOLDEN = (5**0.5 - 1) / 2


def _inside(budget: Any) -> Rejector:
    """Return the declarations of the wrapped rejector, of the fitted one if there is one."""
    return declared(getattr(budget, "rejector_", budget.rejector))


def _of_rejector(name: str) -> Any:
    """Return a property with the value that the wrapped rejector declares."""
    return property(lambda budget: getattr(_inside(budget), name))


class _BudgetBase(Rejector, ClassifierMixin, MetaEstimatorMixin, BaseEstimator, ABC):
    """A wrapper that keeps a rejector's labels and p-values, and rejects by a budget."""

    rejector: Any
    rate: Any
    window: Any = None

    depends_on_others = True
    judges_scores = _of_rejector("judges_scores")
    takes_times = _of_rejector("takes_times")
    can_learn = _of_rejector("can_learn")
    can_be_monitored = _of_rejector("can_be_monitored")
    has_p_values = _of_rejector("has_p_values")
    has_votes = _of_rejector("has_votes")
    tells_doubt = _of_rejector("tells_doubt")

    def __sklearn_tags__(self) -> Any:
        return copy_input_tags(super().__sklearn_tags__(), self.rejector)

    @property
    def fitted(self) -> Fitted:
        """The rejector's components and training rows."""
        return _inside(self).fitted

    @property
    def budget(self) -> Budget | None:  # type: ignore[override]
        """The fitted rejector, the share and the window."""
        return Budget(self.rejector_, self.rate, self.window) if hasattr(self, "rejector_") else None

    def what_learns(self, wanted: Learner) -> Any:
        """Return what learns from new labels, as the rejector declares."""
        return _inside(self).what_learns(wanted)

    def fit(self, X: Any, y: Any, **params: Any) -> Self:
        """Fit the rejector; ``params`` go to its ``fit``."""
        self._check_budget()
        if not is_rejector(self.rejector):
            raise TypeError(f"{self.rejector!r} is not a rejector, an instance with predict and decide.")
        refuse_guaranteed_search(getattr(self.rejector, "search", None), self)
        self.rejector_ = clone(self.rejector, safe=False).fit(X, y, **params)
        copy_fitted_attributes(self.rejector_, self)
        self._start()
        return self

    @available_if(lambda budget: budget.can_learn)  # type: ignore[untyped-decorator]
    def learn(
        self, X: Any, y: Any, *, what: Learner = "judge", fitted: LabelledRows | None = None, **params: Any
    ) -> Self:
        """Let the rejector learn from new labels, as its ``learn`` does; this starts a new stream."""
        check_is_fitted(self)
        given = params if fitted is None else {"fitted": fitted, **params}
        self.rejector_.learn(X, y, what=what, **given)
        copy_fitted_attributes(self.rejector_, self)
        self._start()
        return self

    def _start(self) -> None:
        """Reset the state of a stream."""

    @property
    def without_budget(self) -> Any:
        """The wrapped rejector, without a budget of its own."""
        inner = getattr(self, "rejector_", self.rejector)
        return inner.without_budget if isinstance(inner, Rejector) else inner

    def decide(self, X: Any) -> Decisions:
        """Label the objects, and reject those the budget allows."""
        check_is_fitted(self)
        return self.within_budget(self.rejector_.decide(X))

    @abstractmethod
    def within_budget(self, decisions: Decisions) -> Decisions:
        """Return the rejector's decisions with those rejected that the budget allows."""

    def in_words(self, n_classes: int) -> InWords:
        """Return how the rejector judges, and the budget."""
        inner = _inside(self).in_words(n_classes)
        judges = f"ranks objects as {type(self.rejector).__name__} does" if inner is None else inner.judges
        return InWords(
            judges,
            self._budget_in_words(),
            "The budget fixes how many are rejected, not how many errors pass: under drift the share "
            "to look at stays the same, and the error of the kept may grow.",
        )

    @abstractmethod
    def _budget_in_words(self) -> str:
        """Return what is rejected."""

    def predict(self, X: Any) -> AnyArray:
        """Return the detector's labels."""
        check_is_fitted(self)
        return np.asarray(self.rejector_.predict(X))

    @abstractmethod
    def _check_budget(self) -> None:
        """Refuse invalid parameters."""


class RejectionBudget(_BudgetBase):
    """Holds a rejector to a budget: it rejects the least credible objects of every period.

    Thresholds found in calibration reject more and more as objects drift. A budget needs no labels. Each
    call of ``decide`` is one period, whose objects are ranked against each other: the decision about an
    object depends on the others. A period must be large enough to reject and to keep at least one object;
    `StreamingBudget` decides objects one by one.

    Parameters
    ----------
    rejector : rejector
        The source of labels and ranks, such as an `InductiveEvaluator`.
    rate : float or None
        Share of a period's objects to reject, rounded to a whole number.
    count : int or None
        Number of a period's objects to reject, instead of a share.
    by_class : bool
        Whether the same share of each predicted class is rejected. It keeps more answers of a rare class,
        and catches fewer errors; for budgets above 15%.

    Attributes
    ----------
    rejector_ : rejector
        The fitted rejector; ``rejector_.decide`` still uses its own thresholds.

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

    evolves = _of_rejector("evolves")

    def __init__(
        self, rejector: Any, *, rate: float | None = None, count: int | None = None, by_class: bool = False
    ) -> None:
        self.rejector = rejector
        self.rate = rate
        self.count = count
        self.by_class = by_class

    def within_budget(self, decisions: Decisions) -> Decisions:
        """Return decisions about the objects of a period with as many rejected as the budget allows."""
        return decisions.within_budget(self.rate, count=self.count, by_class=self.by_class)

    def _budget_in_words(self) -> str:
        many = f"{self.count:,} objects" if self.rate is None else as_percent(self.rate)
        same = ", the same share of each predicted class" if self.by_class else ""
        return f"of each period the {many} that it trusts least{same}"

    def _check_budget(self) -> None:
        check_budget(self.rate, self.count)


class StreamingBudget(_BudgetBase):
    """Holds a rejector to a budget while objects come one by one, or in batches of any size.

    An object is rejected if it is among the least credible share of the last ``window`` objects, itself
    included. The share starts at ``rate``. It grows while the stream has rejected less than its budget, and
    shrinks while it has rejected more. So the budget holds for any stream, even under drift and with ties.
    After any number of objects,

        abs(rejected - rate * decided) < window * min(rate, 1 - rate) + 1

    A longer window compares with more objects, but reacts more slowly to change.

    Of objects that tie in credibility and confidence, a share is rejected, spread evenly. A decision depends
    on earlier objects, never on later ones or on how the stream is cut into calls. ``decide`` changes the
    state: ``decided_``, ``rejected_`` and ``recent_``. ``fit`` starts a new stream, also when a backtest
    refits; ``predict`` changes nothing.

    Parameters
    ----------
    rejector : rejector
        The source of labels and ranks, such as an `InductiveEvaluator`.
    rate : float
        Share of the objects to reject.
    window : int
        Number of objects to compare with, itself included; enough to reject and to keep at least one.

    Attributes
    ----------
    rejector_ : rejector
        The fitted rejector; ``rejector_.decide`` still uses its own thresholds.
    decided_, rejected_ : int
        Number of objects decided and rejected so far.
    recent_ : array of shape (at most window - 1, 2)
        Credibility and confidence of the last objects, or the reverse if the rejector ranks by confidence.

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

    evolves = True

    def __init__(self, rejector: Any, *, rate: float, window: int = 1000) -> None:
        self.rejector = rejector
        self.rate = rate
        self.window = window

    def _start(self) -> None:
        self.decided_, self.rejected_, self.recent_ = 0, 0, np.empty((0, 2))

    def within_budget(self, decisions: Decisions) -> Decisions:
        """Return decisions about the next objects, in order, with those rejected that the budget allows."""
        new = np.column_stack([decisions.ranking, decisions.second_ranking])
        trust = np.concatenate([self.recent_, new])
        rejected = self._rejected(trust, len(new))
        self.decided_ += len(new)
        self.rejected_ += int(rejected.sum())
        self.recent_ = trust[-(self.window - 1) :].copy()
        return replace(decisions, accepted=~rejected)

    def _check_budget(self) -> None:
        check_shares(ends="excluded", rate=self.rate)
        least = ceil(round(1 / min(self.rate, 1 - self.rate), 9))
        if not isinstance(self.window, int | np.integer) or self.window < least:
            raise ValueError(
                f"window={self.window!r} is too short for rate={self.rate}: to reject and to keep at least "
                f"one object it must be an integer of at least {least}."
            )

    def _budget_in_words(self) -> str:
        return (
            f"{as_percent(self.rate)} of the objects as they come: those that it trusts least among the last "
            f"{self.window:,}"
        )

    def _rejected(self, trust: FloatArray, n_new: int) -> BoolArray:
        """Return which of the last ``n_new`` objects are rejected, given the trust in all objects."""
        ranks = np.unique(trust, axis=0, return_inverse=True)[1].reshape(-1)
        n_old, total = len(trust) - n_new, self.rejected_
        rejected = np.zeros(n_new, dtype=bool)
        for i in range(n_new):
            end = n_old + i
            before, own, decided = ranks[max(0, end - self.window + 1) : end], ranks[end], self.decided_ + i
            lower, tied = np.count_nonzero(before < own), np.count_nonzero(before == own)
            share = share_to_reject(self.rate, self.window, decided, total)
            # Multiples of the golden ratio modulo 1 spread evenly: among ties, exactly the share is rejected.
            turn = (decided + 1) * _GOLDEN % 1
            rejected[i] = lower + turn * (tied + 1) < share * (len(before) + 1)
            total += int(rejected[i])
        return rejected


def share_to_reject(rate: float, window: int, decided: int, rejected: int) -> float:
    """Return the share to reject next: 0 once a window's budget is overspent, 1 once one is unspent.

    In between, the odds of ``rate`` are multiplied by (1 + saved) / (1 - saved).
    """
    saved = (rate * decided - rejected) / (window * min(rate, 1 - rate))
    saved = min(max(saved, -1.0), 1.0)
    reject, keep = rate * (1 + saved), (1 - rate) * (1 - saved)
    return reject / (reject + keep)
