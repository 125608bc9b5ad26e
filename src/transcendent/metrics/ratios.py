"""Metrics of kept and rejected objects, defined once: searches optimise them, backtests report them.

``F1() >= 0.8``, ``RejectionRate() <= 0.15`` and ``Error(of="rejected") >= 0.5`` are constraints; any metric
can be an objective. Whether more of it is better follows from the metric: a high F1 of the *kept* objects is
good, a high F1 of the *rejected* ones means that good answers were thrown away.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, Literal, get_args

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
from transcendent._utils.text import suggestion

Subset = Literal["kept", "rejected"]
Parts = tuple[AnyArray, AnyArray]
"""Numerator and denominator of a ratio."""


@dataclass(frozen=True)
class Tally:
    """The margins of confusion matrices, (..., classes) each: all that any metric here needs."""

    correct: IntArray
    actual: IntArray
    predicted: IntArray

    @classmethod
    def of(cls, confusion: AnyArray) -> "Tally":
        """The margins of (..., classes, classes) counts, true class by row, predicted by column."""
        correct = np.diagonal(confusion, axis1=-2, axis2=-1)
        return cls(correct, confusion.sum(axis=-1), confusion.sum(axis=-2))

    def of_class(self, c: int) -> "Tally":
        """The counts of one class."""
        return Tally(self.correct[..., c], self.actual[..., c], self.predicted[..., c])

    def __sub__(self, other: "Tally") -> "Tally":
        return Tally(
            self.correct - other.correct, self.actual - other.actual, self.predicted - other.predicted
        )


@dataclass(frozen=True, repr=False)
class Metric(ABC):
    """A number computed from the kept and the rejected objects; NaN where it is undefined."""

    @property
    @abstractmethod
    def higher_is_better(self) -> bool:
        """Whether a search maximises it."""

    @abstractmethod
    def value(self, kept: Tally, rejected: Tally, classes: AnyArray) -> FloatArray:
        """The metric, one value per trial."""

    def __repr__(self) -> str:
        """As it was written: only what differs from the defaults."""
        given = [f for f in fields(self) if getattr(self, f.name) != f.default]
        return f"{type(self).__name__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in given)})"

    def __ge__(self, bound: float) -> "Constraint":
        return Constraint(self, ">=", bound)

    def __le__(self, bound: float) -> "Constraint":
        return Constraint(self, "<=", bound)


@dataclass(frozen=True, repr=False)
class Ratio(Metric):
    """A metric that is one sum of counts over another, which is what an exact search can work with."""

    @abstractmethod
    def parts(self, kept: Tally, rejected: Tally, classes: AnyArray) -> Parts:
        """Numerator and denominator: linear in the counts, with 0 ≤ numerator ≤ denominator."""

    def value(self, kept: Tally, rejected: Tally, classes: AnyArray) -> FloatArray:
        """Numerator over denominator, NaN where that is 0/0."""
        return divide(*self.parts(kept, rejected, classes))


class _OfSubset(Metric):
    """A metric of the kept or of the rejected objects."""

    of: Subset

    def __post_init__(self) -> None:
        if self.of not in get_args(Subset):
            raise ValueError(f"of must be one of {get_args(Subset)}, not {self.of!r}.")

    @property
    def higher_is_better(self) -> bool:
        """Whether it is about the kept objects, which should be answered well."""
        return self.of == "kept"

    def _chosen(self, kept: Tally, rejected: Tally) -> Tally:
        return kept if self.of == "kept" else rejected


class _SubsetRatio(_OfSubset, Ratio):
    """A ratio of the counts of one subset."""

    @staticmethod
    @abstractmethod
    def ratio(tally: Tally) -> Parts:
        """Numerator and denominator, from the counts alone."""

    def parts(self, kept: Tally, rejected: Tally, classes: AnyArray) -> Parts:  # noqa: ARG002
        """Numerator and denominator for the chosen subset."""
        return self.ratio(self._chosen(kept, rejected))


@dataclass(frozen=True, repr=False)
class _OfClass(_SubsetRatio):
    """A ratio about one class: ``pos_label``, by default the second of two."""

    pos_label: Any = None
    of: Subset = "kept"

    def parts(self, kept: Tally, rejected: Tally, classes: AnyArray) -> Parts:
        """Numerator and denominator for the positive class in the chosen subset."""
        position = position_of(self.pos_label, classes)
        if position is None:
            raise ValueError(
                f"{type(self).__name__} with {len(classes)} classes needs a pos_label; name one of "
                f"{abbreviate(classes)}, or use Accuracy() or MacroF1()."
            )
        return self.ratio(self._chosen(kept, rejected).of_class(position))


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
    def ratio(tally: Tally) -> Parts:
        """Twice the correct answers over the answers and the objects."""
        return 2 * tally.correct, tally.actual + tally.predicted


@dataclass(frozen=True, repr=False)
class Precision(_OfClass):
    """Share of the objects predicted positive that are.

    Parameters
    ----------
    pos_label : label or None
        The positive class; by default the second of two. With more classes it must be given.
    of : {"kept", "rejected"}
        Which objects it is computed from.
    """

    @staticmethod
    def ratio(tally: Tally) -> Parts:
        """Correct answers over answers."""
        return tally.correct, tally.predicted


@dataclass(frozen=True, repr=False)
class Recall(_OfClass):
    """Share of the positive objects in the subset that are predicted so.

    Parameters
    ----------
    pos_label : label or None
        The positive class; by default the second of two. With more classes it must be given.
    of : {"kept", "rejected"}
        Which objects it is computed from.
    """

    @staticmethod
    def ratio(tally: Tally) -> Parts:
        """Correct answers over objects."""
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
    def ratio(tally: Tally) -> Parts:
        """Right answers over all."""
        return tally.correct.sum(axis=-1), tally.actual.sum(axis=-1)


@dataclass(frozen=True, repr=False)
class Error(_SubsetRatio):
    """Share of wrong answers.

    Parameters
    ----------
    of : {"kept", "rejected"}
        Which objects it is computed from.
    """

    of: Subset = "kept"

    @property
    def higher_is_better(self) -> bool:
        """Whether it is about the rejected objects, which should hold the wrong answers."""
        return self.of == "rejected"

    @staticmethod
    def ratio(tally: Tally) -> Parts:
        """Wrong answers over all."""
        total = tally.actual.sum(axis=-1)
        return total - tally.correct.sum(axis=-1), total


@dataclass(frozen=True, repr=False)
class RejectionRate(Ratio):
    """Share of all objects that are rejected."""

    higher_is_better = False

    def parts(self, kept: Tally, rejected: Tally, classes: AnyArray) -> Parts:  # noqa: ARG002
        """Rejected over all."""
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

    def parts(self, kept: Tally, rejected: Tally, classes: AnyArray) -> Parts:
        """Rejected of the class over all of it."""
        position = _find(self.label, classes, "label")
        n_rejected = rejected.actual[..., position]
        return n_rejected, n_rejected + kept.actual[..., position]


@dataclass(frozen=True, repr=False)
class MacroF1(_OfSubset):
    """Mean of the classes' F1 scores; a class that occurs in neither answers nor truth is left out.

    Parameters
    ----------
    of : {"kept", "rejected"}
        Which objects it is computed from.
    """

    of: Subset = "kept"

    def value(self, kept: Tally, rejected: Tally, classes: AnyArray) -> FloatArray:  # noqa: ARG002
        """The mean over the classes that occur."""
        return mean_of_defined(divide(*F1.ratio(self._chosen(kept, rejected))))


@dataclass(frozen=True)
class Constraint:
    """A bound on a metric. A metric that is undefined satisfies no bound.

    Parameters
    ----------
    metric : Metric
        What is bounded.
    sense : {">=", "<="}
        Whether the bound is a lower or an upper one.
    bound : float
        The bound, between 0 and 1 for a ratio.
    """

    metric: Metric
    sense: Literal[">=", "<="]
    bound: float

    def __post_init__(self) -> None:
        bound = float(self.bound)
        if not math.isfinite(bound) or (isinstance(self.metric, Ratio) and not 0 <= bound <= 1):
            raise ValueError(f"{self.metric} lies between 0 and 1; it cannot be bounded by {self.bound!r}.")
        object.__setattr__(self, "bound", bound)

    def __bool__(self) -> bool:
        raise TypeError(
            f"({self}) is a constraint, not a truth value. For two bounds on one metric pass two "
            "constraints: [RejectionRate() >= 0.1, RejectionRate() <= 0.2]."
        )

    def __str__(self) -> str:
        return f"{self.metric} {self.sense} {self.bound:g}"

    def satisfied(self, kept: Tally, rejected: Tally, classes: AnyArray) -> BoolArray:
        """Whether it holds, one answer per trial: in integers for ratios, so equality is equality."""
        if isinstance(self.metric, Ratio):
            numerator, denominator = self.metric.parts(kept, rejected, classes)
            return np.asarray((self.slack(numerator, denominator) >= 0) & (denominator > 0))
        value = self.metric.value(kept, rejected, classes)
        return np.asarray(value >= self.bound if self.sense == ">=" else value <= self.bound)

    def slack(self, numerator: AnyArray, denominator: AnyArray) -> AnyArray:
        """A ratio's integer distance from its bound, non-negative where the bound is met."""
        bound = Fraction(self.bound).limit_denominator(10**6)
        distance: AnyArray = bound.denominator * numerator - bound.numerator * denominator
        return distance if self.sense == ">=" else -distance


METRICS: dict[str, Metric] = {
    "f1": F1(),
    "precision": Precision(),
    "recall": Recall(),
    "accuracy": Accuracy(),
    "error": Error(),
    "macro_f1": MacroF1(),
    "rejection_rate": RejectionRate(),
}


def resolve_metric(metric: str | Metric) -> Metric:
    """A metric from its name or itself."""
    if isinstance(metric, Metric):
        return metric
    if metric not in METRICS:
        raise ValueError(f"there is no metric {metric!r}{suggestion(str(metric), METRICS)}")
    return METRICS[metric]


def position_of(pos_label: Any, classes: AnyArray) -> int | None:
    """Position of the positive class: the one named, else the second of two, else None."""
    if pos_label is None:
        return 1 if len(classes) == 2 else None
    return _find(pos_label, classes, "pos_label")


def _find(label: Any, classes: AnyArray, name: str) -> int:
    found = np.flatnonzero(classes == label)
    if len(found) == 0:
        raise ValueError(f"{name} {label!r} is not one of {abbreviate(classes)}.")
    return int(found[0])
