"""Metrics of kept and rejected objects, defined once: searches optimise them, backtests report them.

``F1() >= 0.8``, ``RejectionRate() <= 0.15`` and ``ErrorRate(of="rejected") >= 0.5`` are constraints; any
metric can be an objective. Whether more of it is better follows from the metric: a high F1 of the *kept*
objects is good, a high F1 of the *rejected* ones means that good answers were thrown away.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from transcendent._utils.arrays import (
    AnyArray,
    BoolArray,
    FloatArray,
    IntArray,
    abbreviate,
    divide,
    mean_of_defined,
)
from transcendent._utils.checks import check_choices
from transcendent._utils.text import suggestion

Subset = Literal["kept", "rejected"]
Sums = tuple[AnyArray, AnyArray]
"""Numerator and denominator of a ratio."""


@dataclass(frozen=True)
class Tally:
    """Counts of kept or of rejected objects by class, one row per trial, from which metrics are computed.

    The last axis are the classes, so ``kept.actual[..., 1]`` counts the kept objects of the second class.

    Attributes
    ----------
    correct : int array of shape (..., classes)
        Objects of the class that are predicted as it.
    actual : int array of shape (..., classes)
        Objects whose true label is the class.
    predicted : int array of shape (..., classes)
        Objects that are predicted as the class.
    """

    correct: IntArray
    actual: IntArray
    predicted: IntArray

    @classmethod
    def of(cls, confusion: AnyArray) -> "Tally":
        """Return the margins of (..., classes, classes) counts, true class by row, predicted by column."""
        correct = np.diagonal(confusion, axis1=-2, axis2=-1)
        return cls(correct, confusion.sum(axis=-1), confusion.sum(axis=-2))

    def __sub__(self, other: "Tally") -> "Tally":
        return Tally(
            self.correct - other.correct, self.actual - other.actual, self.predicted - other.predicted
        )


@dataclass(frozen=True, repr=False)
class Metric(ABC):
    """A number computed from the kept and the rejected objects; NaN where it is undefined.

    One of your own is a frozen dataclass with ``higher_is_better`` and ``value``. If it is one sum of counts
    over another, derive it from `Ratio`: the exact search then proves its thresholds best.
    """

    @property
    @abstractmethod
    def higher_is_better(self) -> bool:
        """Whether a search maximises it."""

    @abstractmethod
    def value(self, kept: Tally, rejected: Tally, classes: AnyArray) -> FloatArray:
        """Return the metric, one value per trial, from the counts of kept and rejected objects.

        ``classes`` are all labels, in the order of the last axis of the counts.
        """

    def __repr__(self) -> str:
        """Return the call that makes this metric, without the parameters at their defaults."""
        given = [f for f in fields(self) if getattr(self, f.name) != f.default]
        return f"{type(self).__name__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in given)})"

    def __ge__(self, bound: float) -> "Constraint":
        return Constraint(self, ">=", bound)

    def __le__(self, bound: float) -> "Constraint":
        return Constraint(self, "<=", bound)


@dataclass(frozen=True, repr=False)
class Ratio(Metric):
    """A metric that is one sum of counts over another, as the exact search needs.

    One of your own is a frozen dataclass with ``higher_is_better`` and ``sums``.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from transcendent import ExactSearch
    >>> from transcendent.metrics import Ratio
    >>> @dataclass(frozen=True, repr=False)
    ... class F2(Ratio):
    ...     higher_is_better = True
    ...     def sums(self, kept, rejected, classes):
    ...         return 5 * kept.correct[..., 1], 4 * kept.actual[..., 1] + kept.predicted[..., 1]
    >>> y, labels = [0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1, 0]
    >>> found = ExactSearch(F2(), max_rejection=0.2).find(y, labels, [.9, .8, .7, .1, .9, .8, .7, .2])
    >>> found.objective, round(found.value, 3), found.certified
    (F2(), 0.938, True)
    """

    @abstractmethod
    def sums(self, kept: Tally, rejected: Tally, classes: AnyArray) -> Sums:
        """Return numerator and denominator: integers, linear in the counts, 0 ≤ numerator ≤ denominator."""

    def value(self, kept: Tally, rejected: Tally, classes: AnyArray) -> FloatArray:
        """Return numerator over denominator, NaN for 0/0."""
        return divide(*self.sums(kept, rejected, classes))


class _OfSubset(Metric):
    """A metric of the kept or of the rejected objects."""

    of: Subset

    def __post_init__(self) -> None:
        check_choices(Subset, of=self.of)

    @property
    def higher_is_better(self) -> bool:
        """Whether it is computed from the kept objects, whose answers should be right."""
        return self.of == "kept"

    def _tally(self, kept: Tally, rejected: Tally, classes: AnyArray) -> Tally:  # noqa: ARG002
        return kept if self.of == "kept" else rejected


class _SubsetRatio(_OfSubset, Ratio):
    """A ratio of the counts of one subset."""

    @staticmethod
    @abstractmethod
    def ratio(tally: Tally) -> Sums:
        """Return numerator and denominator from the counts of the subset."""

    def sums(self, kept: Tally, rejected: Tally, classes: AnyArray) -> Sums:
        """Return numerator and denominator for the chosen subset."""
        return self.ratio(self._tally(kept, rejected, classes))


@dataclass(frozen=True, repr=False)
class _OfClass(_SubsetRatio):
    """A ratio of the counts of one class: ``pos_label``, by default the second of two."""

    pos_label: Any = None
    of: Subset = "kept"

    def _tally(self, kept: Tally, rejected: Tally, classes: AnyArray) -> Tally:
        c = position_of(self.pos_label, classes)
        if c is None:
            raise ValueError(
                f"{type(self).__name__} with {len(classes)} classes needs a pos_label: pass one of "
                f"{abbreviate(classes)}, or use Accuracy() or MacroF1()."
            )
        tally = super()._tally(kept, rejected, classes)
        return Tally(tally.correct[..., c], tally.actual[..., c], tally.predicted[..., c])


@dataclass(frozen=True, repr=False)
class F1(_OfClass):
    """Harmonic mean of precision and recall of the positive class.

    Parameters
    ----------
    pos_label : label or None
        The positive class; by default the second of two. With more classes it must be given.
    of : {"kept", "rejected"}
        Which objects it is computed from.
    """

    @staticmethod
    def ratio(tally: Tally) -> Sums:
        """Return twice the correct answers, and the answers plus the objects of the class."""
        return 2 * tally.correct, tally.actual + tally.predicted


@dataclass(frozen=True, repr=False)
class Precision(_OfClass):
    """Share of the objects predicted positive that are positive.

    Parameters
    ----------
    pos_label, of
        As for `F1`.
    """

    @staticmethod
    def ratio(tally: Tally) -> Sums:
        """Return the correct answers and all answers of the class."""
        return tally.correct, tally.predicted


@dataclass(frozen=True, repr=False)
class Recall(_OfClass):
    """Share of the positive objects in the subset that are predicted positive.

    Parameters
    ----------
    pos_label, of
        As for `F1`.
    """

    @staticmethod
    def ratio(tally: Tally) -> Sums:
        """Return the correct answers and the objects of the class."""
        return tally.correct, tally.actual


@dataclass(frozen=True, repr=False)
class Accuracy(_SubsetRatio):
    """Share of right answers.

    Parameters
    ----------
    of : {"kept", "rejected"}
        Which objects it is computed from.
    """

    of: Subset = "kept"

    @staticmethod
    def ratio(tally: Tally) -> Sums:
        """Return the right answers and all answers."""
        return tally.correct.sum(axis=-1), tally.actual.sum(axis=-1)


@dataclass(frozen=True, repr=False)
class ErrorRate(_SubsetRatio):
    """Share of wrong answers.

    Parameters
    ----------
    of : {"kept", "rejected"}
        Which objects it is computed from.
    """

    of: Subset = "kept"

    @property
    def higher_is_better(self) -> bool:
        """Whether it is computed from the rejected objects, whose answers should be wrong."""
        return self.of == "rejected"

    @staticmethod
    def ratio(tally: Tally) -> Sums:
        """Return the wrong answers and all answers."""
        total = tally.actual.sum(axis=-1)
        return total - tally.correct.sum(axis=-1), total


@dataclass(frozen=True, repr=False)
class RejectionRate(Ratio):
    """Share of all objects that are rejected."""

    higher_is_better = False

    def sums(self, kept: Tally, rejected: Tally, classes: AnyArray) -> Sums:  # noqa: ARG002
        """Return the rejected objects and all objects."""
        n_rejected = rejected.actual.sum(axis=-1)
        return n_rejected, n_rejected + kept.actual.sum(axis=-1)


@dataclass(frozen=True, repr=False)
class ClassRejectionRate(Ratio):
    """Share of the objects whose *true* label is ``label`` that are rejected.

    Parameters
    ----------
    label : label
        The class.
    """

    label: Any

    higher_is_better = False

    def sums(self, kept: Tally, rejected: Tally, classes: AnyArray) -> Sums:
        """Return the rejected objects and all objects of the class."""
        position = _position(self.label, classes, "label")
        n_rejected = rejected.actual[..., position]
        return n_rejected, n_rejected + kept.actual[..., position]


@dataclass(frozen=True, repr=False)
class MacroF1(_OfSubset):
    """Mean of the F1 scores of the classes that occur among the true or the predicted labels.

    Parameters
    ----------
    of : {"kept", "rejected"}
        Which objects it is computed from.
    """

    of: Subset = "kept"

    def value(self, kept: Tally, rejected: Tally, classes: AnyArray) -> FloatArray:
        """Return the mean over the classes that occur."""
        return mean_of_defined(divide(*F1.ratio(self._tally(kept, rejected, classes))))


@dataclass(frozen=True)
class Constraint:
    """A bound on a metric, between 0 and 1 for a ratio. An undefined metric satisfies no bound."""

    metric: Metric
    sense: Literal[">=", "<="]
    bound: float

    def __post_init__(self) -> None:
        bound = float(self.bound)
        if not math.isfinite(bound) or (isinstance(self.metric, Ratio) and not 0 <= bound <= 1):
            raise ValueError(
                f"{self.metric} lies between 0 and 1, so its bound must too, not {self.bound!r}."
            )
        object.__setattr__(self, "bound", bound)

    def __bool__(self) -> bool:
        raise TypeError(
            f"({self}) is a constraint, not a truth value. For two bounds on one metric pass two "
            "constraints: [RejectionRate() >= 0.1, RejectionRate() <= 0.2]."
        )

    def __str__(self) -> str:
        return f"{self.metric} {self.sense} {self.bound:g}"

    def satisfied(self, kept: Tally, rejected: Tally, classes: AnyArray) -> BoolArray:
        """Return whether each trial meets the bound; ratios are compared in integers, without rounding."""
        if isinstance(self.metric, Ratio):
            numerator, denominator = self.metric.sums(kept, rejected, classes)
            return np.asarray((self.slack(numerator, denominator) >= 0) & (denominator > 0))
        value = self.metric.value(kept, rejected, classes)
        return np.asarray(value >= self.bound if self.sense == ">=" else value <= self.bound)

    def slack(self, numerator: AnyArray, denominator: AnyArray) -> AnyArray:
        """Return a ratio's integer distance from the bound: 0 or more where the bound is met."""
        bound = Fraction(self.bound).limit_denominator(10**6)
        distance: AnyArray = bound.denominator * numerator - bound.numerator * denominator
        return distance if self.sense == ">=" else -distance


METRICS: dict[str, Metric] = {
    "f1": F1(),
    "precision": Precision(),
    "recall": Recall(),
    "accuracy": Accuracy(),
    "error": ErrorRate(),
    "macro_f1": MacroF1(),
    "rejection_rate": RejectionRate(),
}


def resolve_metric(metric: str | Metric) -> Metric:
    """Return a metric given by name or as itself."""
    if isinstance(metric, Metric):
        return metric
    if metric not in METRICS:
        raise ValueError(f"there is no metric {metric!r}{suggestion(str(metric), METRICS)}")
    return METRICS[metric]


def position_of(pos_label: Any, classes: AnyArray) -> int | None:
    """Return the position of ``pos_label``; without one, that of the second of two classes, or None.

    The second is that of the alphabet: capital letters do not matter.
    """
    if pos_label is None:
        return second_of_two(classes) if len(classes) == 2 else None
    return _position(pos_label, classes, "pos_label")


def second_of_two(classes: AnyArray) -> int:
    """Return the position of the second of two classes, of texts whatever their capital letters."""
    first, second = classes.tolist()
    if not isinstance(first, str) or not isinstance(second, str):
        return 1
    return int(first.casefold() <= second.casefold())


def _position(label: Any, classes: AnyArray, name: str) -> int:
    found = np.flatnonzero(classes == label)
    if len(found) == 0:
        raise ValueError(f"{name} {label!r} is not one of {abbreviate(classes)}.")
    return int(found[0])
