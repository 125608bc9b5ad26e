"""What a backtest says about one rejector, in a sentence that does not flatter it."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom, hypergeom

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray
from transcendent.report.words import counted, decimal, percent, plain, positive_name, two_decimals, unit_of
from transcendent.temporal.result import Backtest

_CHANCE = 0.01
_FEW_ERRORS = 20
_FAR_ABOVE = 0.1


@dataclass(frozen=True)
class Outcome:
    """What one rejector did to the objects of all periods together.

    Attributes
    ----------
    rejector, unit, metric : str
        Its name, what a period is called, and what answers are measured by: F1, or accuracy if there is no
        positive class.
    positive : str
        The positive class, empty if there is none.
    objects, rejected, errors, caught, periods : int
        How many there are.
    all, kept : float
        The metric of all and of the kept answers; NaN where it is undefined.
    caught_at_15, kept_at_15 : float
        Share of errors caught, and the metric of the kept, if 15% of every period were rejected.
    """

    rejector: str
    unit: str
    metric: str
    positive: str
    objects: int
    rejected: int
    errors: int
    caught: int
    periods: int
    all: float
    kept: float
    caught_at_15: float
    kept_at_15: float

    @property
    def rejection_rate(self) -> float:
        """Share of all objects that is rejected; so many errors are caught by rejecting at random."""
        return self.rejected / self.objects

    @property
    def share_caught(self) -> float:
        """Share of the errors that is rejected; NaN without errors."""
        return self.caught / self.errors if self.errors else math.nan


def outcome_of(result: Backtest, rejector: str, summary: dict[str, AnyArray]) -> Outcome:
    """Count what a rejector did; ``summary`` is the backtest's."""
    answer = result.answers_of(rejector)
    wrong = answer.labels != result.y
    own = list(result.answers).index(rejector)
    binary = result.positive is not None
    return Outcome(
        rejector=plain(rejector),
        unit=unit_of(result),
        metric="F1" if binary else "accuracy",
        positive=positive_name(result),
        objects=len(result.y),
        rejected=int((~answer.accepted).sum()),
        errors=int(wrong.sum()),
        caught=int((wrong & ~answer.accepted).sum()),
        periods=len(result.periods),
        all=float(summary["f1_baseline"][own] if binary else 1 - summary["error_baseline"][own]),
        kept=float(summary["f1_kept"][own] if binary else 1 - summary["error_kept"][own]),
        caught_at_15=float(summary["caught_at_15"][own]),
        kept_at_15=float(_kept_at_15(result, summary)[own]),
    )


def _kept_at_15(result: Backtest, summary: dict[str, AnyArray]) -> FloatArray:
    """F1, or without a positive class the accuracy, of what each rejector keeps at 15% rejected."""
    if result.positive is not None:
        return summary["f1_kept_at_15"]
    return np.array([1 - result.at_rejection(name, 0.15)["kept"]["error"] for name in result.answers])


def verdict(outcome: Outcome) -> str:
    """One sentence: how much was rejected, what it caught, against chance, and what it left."""
    o = outcome
    where = f"{counted(o.objects, 'object')} in {counted(o.periods, o.unit)}"
    if not o.errors:
        rejected = f"{percent(o.rejection_rate)} of them for nothing" if o.rejected else "none"
        return (
            f"The detector made no error among {where}: there was nothing to catch, and {o.rejector} would "
            f"have rejected {rejected}."
        )
    if not o.rejected:
        left = f"{o.metric} stays {decimal(o.all, 2)}" if o.all == o.all else _undefined(o, "all")
        return (
            f"{o.rejector} would have rejected none of {where}, and so caught none of the detector's "
            f"{counted(o.errors, 'error')}; {left}."
        )
    if o.rejected == o.objects:
        return (
            f"{o.rejector} would have rejected every one of {where}: all of the detector's "
            f"{counted(o.errors, 'error')}, but no answer is left, and {o.metric} of the kept is undefined."
        )
    return (
        f"{o.rejector} would have rejected {percent(o.rejection_rate)} of {where} and caught {_caught(o)}, "
        f"{_against_chance(o)}; {_metric(o)}."
    )


def at_same_rate(outcome: Outcome) -> str:
    """What it would have given at 15% rejected per period, where rejectors can be compared."""
    o = outcome
    caught = "no errors to catch" if not o.errors else f"{percent(o.caught_at_15)} of the errors caught"
    kept = f"{o.metric} of the kept answers {decimal(o.kept_at_15, 2)}"
    if math.isnan(o.kept_at_15):
        kept = _undefined(o, "kept")
    return f"At 15% rejected in every {o.unit}, where rejectors can be compared: {caught}, {kept}."


def against_others(result: Backtest, outcome: Outcome, summary: dict[str, AnyArray]) -> str:
    """How the other rejectors do at that same rate; nothing if there are none."""
    names = list(result.answers)[1:]
    if not names:
        return ""
    caught = summary["caught_at_15"][1:]
    values = _kept_at_15(result, summary)[1:]
    if np.isnan(values).all() or np.isnan(caught).all():
        return ""
    best = int(np.nanargmax(values))
    if len(names) == 1:
        return (
            f"At that rate {plain(names[0])} catches {percent(caught[0])} of the errors and keeps "
            f"{outcome.metric} {decimal(values[0], 2)}."
        )
    span = f"{percent(np.nanmin(caught))} to {percent(np.nanmax(caught))}"
    return (
        f"At that rate the {len(names)} others catch {span} of the errors; the best {outcome.metric} they "
        f"keep is {decimal(values[best], 2)} ({plain(names[best])})."
    )


def uneven(result: Backtest, rejector: str) -> str:
    """Says so if in some periods far more was rejected than in the quieter ones; else nothing."""
    rejected, objects = _rejected_by_period(result, rejector)
    there = np.flatnonzero(objects)
    rates = rejected[there] / objects[there]
    quiet = float(np.quantile(rates, 0.25))
    limit = max(2 * quiet, quiet + _FAR_ABOVE)
    by_chance = binom.sf(rejected[there] - 1, objects[there], rejected.sum() / objects.sum())
    far = np.flatnonzero((rates >= limit) & (by_chance < _CHANCE / len(there)))
    if not len(far):
        return ""
    unit, worst = unit_of(result), far[np.argmax(rates[far])]
    return (
        f"Not evenly: in {len(far):,} of {counted(len(there), unit)} it would have rejected {percent(limit)} "
        f"or more, up to {percent(rates[worst])} in {plain(result.periods[there[worst]])}, while in a "
        f"quarter of the {unit}s it rejected {percent(quiet)} or less."
    )


def _rejected_by_period(result: Backtest, rejector: str) -> tuple[IntArray, FloatArray]:
    n = len(result.periods)
    rejected = np.bincount(result.period[~result.answers_of(rejector).accepted], minlength=n)
    return rejected, np.bincount(result.period, minlength=n).astype(np.float64)


def _caught(o: Outcome) -> str:
    if o.errors < _FEW_ERRORS:
        return f"{o.caught} of the detector's {counted(o.errors, 'error')}"
    return f"{percent(o.share_caught)} of the detector's {o.errors:,} errors"


def _against_chance(o: Outcome) -> str:
    """Rejecting as many at random catches a hypergeometric number of the errors."""
    chance = hypergeom(o.objects, o.errors, o.rejected)
    at_random = percent(o.rejection_rate)
    if chance.sf(o.caught - 1) < _CHANCE:
        return f"against {at_random} if as many were rejected at random"
    if chance.cdf(o.caught) < _CHANCE:
        return f"fewer than the {at_random} to be expected if as many were rejected at random"
    return f"not clearly more than the {at_random} to be expected if as many were rejected at random"


def _metric(o: Outcome) -> str:
    if math.isnan(o.all):
        return _undefined(o, "all")
    if math.isnan(o.kept):
        return f"{_undefined(o, 'kept')}, against {decimal(o.all, 2)} of all"
    kept, everything = two_decimals(o.kept, o.all)
    if o.kept > o.all:
        return f"{o.metric} of the kept answers is {kept} against {everything} of all"
    if o.kept < o.all:
        word = "but" if o.share_caught > o.rejection_rate else "and"
        return f"{word} {o.metric} of the kept answers is {kept}, lower than the {everything} of all"
    return f"{o.metric} of the kept answers is {kept}, the same as of all"


def _undefined(o: Outcome, subset: str) -> str:
    if subset == "all":
        return f"F1 is undefined, as class {o.positive} neither occurs nor is predicted"
    return f"F1 of the kept answers is undefined, as none of them is or is called class {o.positive}"
