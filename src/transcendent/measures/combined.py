"""A measure that merges several measures of the same objects."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

from transcendent._utils.arrays import FloatArray, IntArray
from transcendent._utils.estimators import seeded
from transcendent.errors import MeasureError
from transcendent.measures.auto import resolve_measure
from transcendent.measures.base import Measure, checked_scores
from transcendent.measures.names import from_name
from transcendent.merging import Bag, Merging


class CombinedMeasure(Measure):
    """Measures of different kinds, merged by their p-values.

    Each member scores every object. Calibration turns the scores of each member into p-values, merges them
    into one score per class by Fisher's rule (the sum of -log p), and ranks that score among those of the
    calibration objects, which gives a p-value again. It is never too low, and usually at most a few steps
    too high, compared with ranking all calibration objects anew beside each new object. The detector's
    labels do not change.

    Parameters
    ----------
    measures : list
        The members: measures, their names, functions, or ``"auto"`` for the one that suits the detector.
    weights : array of shape (members,) or None
        The weight of each member; None weighs all equally.
    bag : {"class", "all"}
        The calibration objects that a merged score is ranked among. ``"class"``: those of the class in
        question, so that p-values are valid for every class. ``"all"``: all objects, each scored for its own
        class. P-values are then valid for the classes together, have equally fine steps for rare classes, and
        can be ranked across classes, as under a budget.
    random_state : int, RandomState or None
        Seed for every member whose own ``random_state`` is None.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent import CombinedMeasure, InductiveEvaluator
    >>> from transcendent.measures import NeighbourRatio, SecondOpinion
    >>> X, y = make_classification(1000, flip_y=0.1, random_state=0)
    >>> both = CombinedMeasure(["auto", SecondOpinion(RandomForestClassifier(20)), NeighbourRatio()])
    >>> ice = InductiveEvaluator(LinearSVC(), measure=both, random_state=0).fit(X, y)
    >>> ice.calibration_.scores.shape  # objects, classes, members
    (340, 2, 3)
    """

    def __init__(
        self, measures: Sequence[Any], *, weights: Any = None, bag: Bag = "class", random_state: Any = None
    ) -> None:
        self.measures = measures
        self.weights = weights
        self.bag = bag
        self.random_state = random_state

    @property
    def in_words(self) -> str:
        """The number of measures."""
        return f"{len(self.measures)} measures together"

    @property
    def needs_rows(self) -> bool:  # type: ignore[override]
        """Whether any member learns from rows; ``"auto"`` may stand for one that does."""
        return any(_of(member, "needs_rows", member == "auto") for member in self.measures)

    @property
    def needs_rows_alone(self) -> bool:  # type: ignore[override]
        """Whether every member learns from rows alone."""
        return all(_of(member, "needs_rows_alone", False) for member in self.measures)

    @property
    def n_members(self) -> int:
        """Number of members, without those that need more classes."""
        return len(self._kept)

    @property
    def merging(self) -> Merging:
        """The rule that merges the members."""
        Merging(self.weights, self.bag).check_members(len(self.measures))
        kept = self._kept
        weights = None if self.weights is None else [float(self.weights[m]) for m in kept]
        absolute = [m for m, place in enumerate(kept) if _of(self.measures[place], "absolute", False)]
        return Merging(weights, self.bag, tuple(absolute))

    def fit(self, estimator: Any, X: Any, y: Any) -> Self:
        """Fit every member."""
        self.merging  # noqa: B018  # refuses bad parameters before anything is fitted
        self.n_classes_ = len(estimator.classes_)
        members = self._resolved(estimator)
        if self.random_state is not None:
            seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
            members = [seeded(member, seed) for member in members]
        self.measures_ = [member.fit(estimator, X, y) if member.needs_rows else member for member in members]
        return self

    def scores(self, estimator: Any, X: Any) -> FloatArray:
        """Return (n, classes, members) scores."""
        scored = ((member, member.scores(estimator, X)) for member in self._members(estimator))
        return _stacked(scored, len(estimator.classes_))

    @property
    def left_out_is_exact(self) -> bool:
        """Whether the left-out scores of all members are exact."""
        return all(member.left_out_is_exact for member in getattr(self, "measures_", ()))

    def left_out_scores(self, answers: Any, X: Any, y: Any) -> FloatArray:
        """Return (n, classes, members) left-out scores, if every member has them."""
        scored = ((member, member.left_out_scores(answers, X, y)) for member in self._members(answers))
        return _stacked(scored, len(answers.classes_))

    def implied_labels(self, estimator: Any, scores: FloatArray) -> IntArray | None:
        """Return the detector's answers if the scores of a member determine them, else None."""
        for m, member in enumerate(self._members(estimator)):
            if (codes := member.implied_labels(estimator, scores[:, :, m])) is not None:
                return codes
        return None

    @property
    def _kept(self) -> list[int]:
        """Positions of the measures that do not need more classes; of all before ``fit``."""
        n_classes = getattr(self, "n_classes_", np.inf)
        return [m for m, member in enumerate(self.measures) if _of(member, "min_classes", 2) <= n_classes]

    def _members(self, estimator: Any) -> list[Measure]:
        """Return the fitted members, or fresh ones if none needs a fit."""
        fitted: list[Measure] | None = getattr(self, "measures_", None)
        return self._resolved(estimator) if fitted is None else fitted

    def _resolved(self, estimator: Any) -> list[Measure]:
        """Return a fresh member for each of the measures."""
        members = [resolve_measure(self.measures[place], estimator) for place in self._kept]
        if not members or any(member.n_members is not None for member in members):
            raise MeasureError("a combined measure needs members, none of them a combined measure itself.")
        return members


def _of(member: Any, attribute: str, default: Any) -> Any:
    """Return an attribute of a member, which may also be a name or a function."""
    return getattr(from_name(member), attribute, default)


def _stacked(scored: Iterable[tuple[Measure, FloatArray]], n_classes: int) -> FloatArray:
    """Return the scores of all members as one array."""
    pairs = list(scored)
    shape = (len(pairs[0][1]), n_classes)
    return np.stack([checked_scores(member, scores, shape) for member, scores in pairs], axis=-1)
