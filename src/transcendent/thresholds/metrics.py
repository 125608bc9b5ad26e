"""What a search maximises and what it must respect, as small objects that combine.

``F1() >= 0.8``, ``RejectionRate() <= 0.15`` and ``Error(of="rejected") >= 0.5`` are constraints; any of the
metrics can be an objective. Whether more of it is better follows from the metric: high F1 of the *kept*
objects is good, high F1 of the *rejected* ones means that good answers were thrown away.
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
from transcendent.thresholds.counts import Tally

Subset = Literal["kept", "rejected"]


@dataclass(frozen=True, repr=False)
class Metric(ABC):
    """A number computed from the kept and the rejected objects; NaN where it is undefined."""

    def __post_init__(self) -> None:
        if getattr(self, "of", "kept") not in get_args(Subset):
            raise ValueError(f"of must be one of {get_args(Subset)}, not {getattr(self, 'of', None)!r}.")

    @property
    @abstractmethod
    def higher_is_better(self) -> bool:
        """Which way a search pushes it."""

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
    def parts(self, kept: Tally, rejected: Tally, classes: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Numerator and denominator: linear in the counts, with 0 ≤ numerator ≤ denominator."""

    def value(self, kept: Tally, rejected: Tally, classes: AnyArray) -> FloatArray:
        """Numerator over denominator, NaN where that is 0/0."""
        return divide(*self.parts(kept, rejected, classes))


@dataclass(frozen=True, repr=False)
class _OfPositive(Ratio):
    """A ratio about one class: ``pos_label``, by default the second of two."""

    pos_label: Any = None
    of: Subset = "kept"

    @property
    def higher_is_better(self) -> bool:
        return self.of == "kept"

    def parts(self, kept: Tally, rejected: Tally, classes: AnyArray) -> tuple[AnyArray, AnyArray]:
        tally = _choose(self.of, kept, rejected)
        p = self._position(classes)
        return self._ratio(tally.correct[..., p], tally.actual[..., p], tally.predicted[..., p])

    @abstractmethod
    def _ratio(self, correct: IntArray, actual: IntArray, predicted: IntArray) -> tuple[AnyArray, AnyArray]:
        """The ratio, from the positive class's counts."""

    def _position(self, classes: AnyArray) -> int:
        if self.pos_label is None:
            if len(classes) != 2:
                raise ValueError(
                    f"{type(self).__name__} with {len(classes)} classes needs a pos_label; name one of "
                    f"{abbreviate(classes)}, or use Accuracy() or MacroF1()."
                )
            return 1
        found = np.flatnonzero(classes == self.pos_label)
        if len(found) == 0:
            raise ValueError(f"pos_label {self.pos_label!r} is not one of {abbreviate(classes)}.")
        return int(found[0])


@dataclass(frozen=True, repr=False)
class F1(_OfPositive):
    """Harmonic mean of precision and recall of the positive class."""

    def _ratio(self, correct: IntArray, actual: IntArray, predicted: IntArray) -> tuple[AnyArray, AnyArray]:
        return 2 * correct, actual + predicted


@dataclass(frozen=True, repr=False)
class Precision(_OfPositive):
    """Share of the objects predicted positive that are."""

    def _ratio(self, correct: IntArray, actual: IntArray, predicted: IntArray) -> tuple[AnyArray, AnyArray]:  # noqa: ARG002
        return correct, predicted


@dataclass(frozen=True, repr=False)
class Recall(_OfPositive):
    """Share of the positive objects in the subset that are predicted so."""

    def _ratio(self, correct: IntArray, actual: IntArray, predicted: IntArray) -> tuple[AnyArray, AnyArray]:  # noqa: ARG002
        return correct, actual


@dataclass(frozen=True, repr=False)
class Accuracy(Ratio):
    """Share of right answers."""

    of: Subset = "kept"

    @property
    def higher_is_better(self) -> bool:
        """Of the kept."""
        return self.of == "kept"

    def parts(self, kept: Tally, rejected: Tally, classes: AnyArray) -> tuple[AnyArray, AnyArray]:  # noqa: ARG002
        """Right answers over all."""
        tally = _choose(self.of, kept, rejected)
        return tally.correct.sum(axis=-1), tally.actual.sum(axis=-1)


@dataclass(frozen=True, repr=False)
class Error(Ratio):
    """Share of wrong answers."""

    of: Subset = "kept"

    @property
    def higher_is_better(self) -> bool:
        """Of the rejected."""
        return self.of == "rejected"

    def parts(self, kept: Tally, rejected: Tally, classes: AnyArray) -> tuple[AnyArray, AnyArray]:  # noqa: ARG002
        """Wrong answers over all."""
        tally = _choose(self.of, kept, rejected)
        total = tally.actual.sum(axis=-1)
        return total - tally.correct.sum(axis=-1), total


@dataclass(frozen=True, repr=False)
class RejectionRate(Ratio):
    """Share of all objects that are rejected."""

    @property
    def higher_is_better(self) -> bool:
        """Never."""
        return False

    def parts(self, kept: Tally, rejected: Tally, classes: AnyArray) -> tuple[AnyArray, AnyArray]:  # noqa: ARG002
        """Rejected over all."""
        n_rejected = rejected.actual.sum(axis=-1)
        return n_rejected, n_rejected + kept.actual.sum(axis=-1)


@dataclass(frozen=True, repr=False)
class ClassRejectionRate(Ratio):
    """Share of the objects whose *true* label is ``label`` that are rejected."""

    label: Any

    @property
    def higher_is_better(self) -> bool:
        """Never."""
        return False

    def parts(self, kept: Tally, rejected: Tally, classes: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Rejected of the class over all of it."""
        found = np.flatnonzero(classes == self.label)
        if len(found) == 0:
            raise ValueError(f"label {self.label!r} is not one of {abbreviate(classes)}.")
        n_rejected = rejected.actual[..., found[0]]
        return n_rejected, n_rejected + kept.actual[..., found[0]]


@dataclass(frozen=True, repr=False)
class MacroF1(Metric):
    """Mean of the classes' F1 scores; a class that occurs in neither answers nor truth is left out."""

    of: Subset = "kept"

    @property
    def higher_is_better(self) -> bool:
        """Of the kept."""
        return self.of == "kept"

    def value(self, kept: Tally, rejected: Tally, classes: AnyArray) -> FloatArray:  # noqa: ARG002
        """The mean over the classes that occur."""
        tally = _choose(self.of, kept, rejected)
        return mean_of_defined(divide(2 * tally.correct, tally.actual + tally.predicted))


@dataclass(frozen=True)
class Constraint:
    """A bound on a metric. A metric that is undefined satisfies no bound."""

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
        raise ValueError(f"there is no metric {metric!r}; the names are {sorted(METRICS)}.")
    return METRICS[metric]


def _choose(of: Subset, kept: Tally, rejected: Tally) -> Tally:
    return kept if of == "kept" else rejected
