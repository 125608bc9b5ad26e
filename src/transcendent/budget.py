"""Rejecting what analysts have time for: a share or a number of the objects of each period."""

from typing import Any, Literal, Self

from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils.validation import check_is_fitted

from transcendent.arrays import AnyArray
from transcendent.decisions import Decisions, check_budget
from transcendent.estimators import take_on_input


class RejectionBudget(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Holds a rejector to a budget: of every batch it decides, the least credible objects are rejected.

    Thresholds found in calibration reject more and more as the world moves. A budget needs no labels: each
    call of ``decide`` is one period, whose objects compete for the places in the quarantine.

    Parameters
    ----------
    rejector : rejector
        What labels and ranks the objects, such as an `InductiveEvaluator`.
    rate : float or None
        Share of a period's objects to reject.
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

    def __init__(self, rejector: Any, *, rate: float | None = None, count: int | None = None) -> None:
        self.rejector = rejector
        self.rate = rate
        self.count = count

    def __sklearn_tags__(self) -> Any:
        return take_on_input(super().__sklearn_tags__(), self.rejector)

    @property
    def ranked_by(self) -> Literal["credibility", "confidence"]:
        """What the rejector ranks by."""
        return "confidence" if getattr(self.rejector, "ranked_by", "") == "confidence" else "credibility"

    @property
    def evolves(self) -> bool:
        """Whether the rejector changes while it decides."""
        return bool(getattr(self.rejector, "evolves", False))

    def fit(self, X: Any, y: Any, **params: Any) -> Self:
        """Fit the rejector; ``params`` go to its ``fit``."""
        check_budget(self.rate, self.count)
        self.rejector_ = clone(self.rejector).fit(X, y, **params)
        for name in ("classes_", "n_features_in_", "feature_names_in_"):
            if hasattr(self.rejector_, name):
                setattr(self, name, getattr(self.rejector_, name))
        return self

    def predict(self, X: Any) -> AnyArray:
        """The detector's labels."""
        check_is_fitted(self)
        labels: AnyArray = self.rejector_.predict(X)
        return labels

    def decide(self, X: Any) -> Decisions:
        """Label the objects of a period, and reject as many of them as the budget allows."""
        check_is_fitted(self)
        decisions: Decisions = self.rejector_.decide(X)
        return decisions.within_budget(self.rate, count=self.count, ranked_by=self.ranked_by)
