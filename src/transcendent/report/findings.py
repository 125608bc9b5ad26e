"""Findings of a backtest. Only this module reads the backtest; words, results and figures render findings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeVar

import numpy as np
from scipy.stats import binom, hypergeom

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, divide
from transcendent.plots.comparison import ComparisonDisplay
from transcendent.plots.monitoring import EvidenceDisplay
from transcendent.plots.performance import PerformanceDisplay
from transcendent.plots.risk_coverage import RiskCoverageDisplay
from transcendent.plots.staffing import StaffingDisplay
from transcendent.temporal.comparing import compare
from transcendent.temporal.repeated import RepeatedBacktest, mean_and_half
from transcendent.temporal.result import Backtest
from transcendent.temporal.watched import Watched

Difference = tuple[float, float, float]
"""A difference, and the ends of its interval."""

MAX_PERIODS = 160
MAX_DRAWN = 8
MAX_CLASSES = 20

_MAX_WITH_INTERVALS = 4
_ENOUGH_PERIODS = 6
_CHANCE = 0.01
_FAR_ABOVE = 0.1
_RATES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)


@dataclass(frozen=True)
class ErrorCounts:
    """Numbers of objects, of rejected objects, of errors, and of rejected errors."""

    objects: int
    rejected: int
    errors: int
    caught: int


@dataclass(frozen=True)
class RejectorFigures:
    """One rejector in all periods together.

    ``all``, ``kept`` and ``kept_at_15`` are F1, or accuracy if there is no positive class. ``of_classes`` is
    the share of each class that is rejected, ``of_classes_at_15`` if 15% of every period were. The other
    fields are columns of `Backtest.summary`. Undefined figures are NaN.
    """

    name: str
    all: float
    kept: float
    kept_at_15: float
    rejection_rate: float
    positives_rejected: float
    f1_baseline: float
    f1_kept: float
    error_baseline: float
    error_kept: float
    error_rejected: float
    errors_caught: float
    caught_at_15: float
    f1_kept_at_15: float
    aurc: float
    of_classes: FloatArray
    of_classes_at_15: FloatArray


@dataclass(frozen=True)
class Unevenness:
    """Periods in which far more was rejected than in the quieter ones."""

    periods: int
    of_periods: int
    limit: float
    highest: float
    highest_in: str
    quiet: float


@dataclass(frozen=True)
class RateFigures:
    """The first rejector, if it rejected the same share of every period."""

    rejection_rate: float
    errors_caught: float
    error_kept: float
    of_classes: FloatArray


@dataclass(frozen=True)
class PeriodFigures:
    """The first rejector in one period, or in one group of periods."""

    counts: ErrorCounts
    f1_all: float
    f1_kept: float


@dataclass(frozen=True)
class Findings:
    """Everything that a report states about a backtest, with names as they were given.

    ``overall``, ``busiest``, ``versus_chance``, ``unevenness``, ``at_rates``, ``by_class`` and ``by_period``
    are about the first rejector. An entry of ``by_period`` and a point of a figure stand for ``step``
    periods. No training row had one of ``new_classes``. ``busiest`` is the period with most rejected objects,
    and their number. All figures are means over ``seeds``; with several, ``halves`` has half of the 95%
    interval of each figure. ``differences`` has, by rejector and metric, what the first
    rejector has more than that one; it is empty if periods are few.
    """

    title: str | None
    seeds: tuple[int, ...]
    unit: str
    days: float | None
    minutes: float
    metric: Literal["F1", "accuracy"]
    periods: tuple[str, ...]
    classes: AnyArray
    class_sizes: IntArray
    new_classes: frozenset[Any]
    positive: tuple[Any, ...]
    rejectors: tuple[RejectorFigures, ...]
    halves: tuple[RejectorFigures, ...]
    in_words: dict[str, dict[str, Any]]
    overall: ErrorCounts
    busiest: tuple[str, int]
    versus_chance: Literal["more", "fewer", "unclear"]
    unevenness: Unevenness | None
    at_rates: tuple[RateFigures, ...]
    by_class: tuple[tuple[Any, ErrorCounts], ...]
    other_classes: ErrorCounts | None
    step: int
    by_period: tuple[PeriodFigures, ...]
    over_time: tuple[PerformanceDisplay, ...]
    comparison: ComparisonDisplay
    risk: RiskCoverageDisplay
    staffing: StaffingDisplay
    differences: dict[str, dict[str, Difference]]
    monitors: dict[str, list[Watched]]
    evidence: EvidenceDisplay | None
    manifest: dict[str, Any]

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)


def find(result: Backtest | RepeatedBacktest, minutes: float = 5.0) -> Findings:
    """Compute everything that a report states; it takes ``minutes`` to look at an object."""
    runs = dict(result.results) if isinstance(result, RepeatedBacktest) else {0: result}
    results, first = list(runs.values()), next(iter(runs.values()))
    names, positive, manifest = list(first.answers), first.positive, first.manifest
    step = -(-len(first.periods) // MAX_PERIODS)
    over_time = [_over_time([_of_one(one, name, step) for one in results]) for name in names[:MAX_DRAWN]]
    risk = _mean([RiskCoverageDisplay.from_backtest(one, names[:MAX_DRAWN]) for one in results])
    alone = [_of_one(one, names[0], step) for one in results]
    counts = _whole_mean([_error_counts(one.confusions[names[0]]) for one in alone])
    rejected, objects = _rejected_by_period(results, names[0])
    codes = np.searchsorted(first.classes, first.y)
    sizes = np.bincount(codes, minlength=len(first.classes))
    rejectors, halves = _all_figures(results, codes, sizes)
    of_classes = [ErrorCounts(*own) for own in counts.sum(axis=1).T.tolist()]
    largest = np.argsort(-counts[0].sum(axis=0), kind="stable")
    shown, rest = largest[:MAX_CLASSES], largest[MAX_CLASSES:]
    overall = ErrorCounts(*counts.sum(axis=(1, 2)).tolist())
    days, busiest = first.days, int(rejected.argmax())
    left_out = ("monitors", "in_words", "title")
    return Findings(
        title=manifest.get("title"),
        seeds=tuple(runs),
        unit=str(manifest.get("period") or "period"),
        days=days,
        minutes=minutes,
        metric="accuracy" if positive is None else "F1",
        periods=first.periods,
        classes=first.classes,
        class_sizes=sizes,
        new_classes=frozenset(manifest.get("new_classes", ())),
        positive=() if positive is None else (first.classes[positive],),
        rejectors=rejectors,
        halves=halves,
        in_words=manifest.get("in_words", {}),
        overall=overall,
        busiest=(first.periods[busiest], int(rejected[busiest])),
        versus_chance=_versus_chance(overall),
        unevenness=_unevenness(first.periods, rejected, objects),
        at_rates=tuple(
            _mean([_at_rate(one, names[0], rate, codes, sizes) for one in results]) for rate in _RATES
        ),
        by_class=tuple((first.classes[c], of_classes[c]) for c in shown),
        other_classes=ErrorCounts(*counts[:, :, rest].sum(axis=(1, 2)).tolist()) if len(rest) else None,
        step=step,
        by_period=_by_period(alone, counts.sum(axis=2)),
        over_time=tuple(over_time),
        comparison=ComparisonDisplay.of(over_time, positive),
        risk=risk,
        staffing=StaffingDisplay.of(risk, len(first.y), days, len(first.periods), minutes),
        differences=_differences(result, names) if len(first.periods) >= _ENOUGH_PERIODS else {},
        monitors={name: [one.monitors[name] for one in results] for name in first.monitors},
        evidence=_evidence(results, step) if first.monitors else None,
        manifest={key: value for key, value in manifest.items() if key not in left_out},
    )


def _differences(
    result: Backtest | RepeatedBacktest, names: Sequence[str]
) -> dict[str, dict[str, Difference]]:
    """Return what the first rejector gains over each other that is drawn."""
    found = {}
    for name in names[1:MAX_DRAWN]:
        compared = compare(result, result, rejectors=(names[0], name), at=0.15)
        columns = (compared.difference.tolist(), compared.low.tolist(), compared.high.tolist())
        found[name] = dict(zip(compared.metrics, zip(*columns, strict=True), strict=True))
    return found


_Shown = TypeVar("_Shown")


def _mean(values: Sequence[_Shown], of: Callable[[FloatArray], Any] = lambda a: a.mean(axis=0)) -> _Shown:
    """Return a dataclass whose numbers, and arrays of numbers, are the means over seeds."""
    first: Any = values[0]
    names = [field.name for field in fields(first) if _is_number(getattr(first, field.name))]
    stacked = {name: np.array([getattr(value, name) for value in values], dtype=float) for name in names}
    means = {name: found if (found := of(a)).ndim else found.item() for name, a in stacked.items()}
    shown: _Shown = replace(first, **means)
    return shown


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype.kind == "f")


def _whole_mean(counts: Sequence[IntArray]) -> IntArray:
    whole: IntArray = np.rint(np.mean(counts, axis=0)).astype(np.intp)
    return whole


def _of_one(result: Backtest, name: str, step: int) -> Backtest:
    """Return the backtest of one rejector, with every ``step`` periods merged."""
    answers = {name: result.answers[name]}
    if step == 1:
        return replace(result, answers=answers)
    return replace(result, answers=answers, periods=result.periods[::step], period=result.period // step)


def _over_time(alone: Sequence[Backtest]) -> PerformanceDisplay:
    """Return the mean over seeds, with the range over them, or else a bootstrap interval."""
    first = alone[0]
    (name,), metric = first.answers, "error" if first.positive is None else "f1"
    intervals = len(alone) == 1 and len(first.classes) <= _MAX_WITH_INTERVALS
    shown = [PerformanceDisplay.from_backtest(one, name, metric, intervals=intervals) for one in alone]
    if len(alone) == 1:
        return shown[0]
    kept = np.array([one.kept for one in shown])
    return replace(_mean(shown), interval=np.array([kept.min(axis=0), kept.max(axis=0)]))


def _evidence(results: Sequence[Backtest], step: int) -> EvidenceDisplay:
    """Return the evidence after each period or group of periods; the mean of logarithms over seeds."""
    mean = _mean([EvidenceDisplay.from_backtest(one) for one in results])
    return replace(mean, periods=mean.periods[::step], log10_value=mean.log10_value[:, ::step])


def _all_figures(
    results: Sequence[Backtest], codes: IntArray, sizes: IntArray
) -> tuple[tuple[RejectorFigures, ...], ...]:
    """Return the figures of every rejector and, of several seeds, half of the interval of each."""
    by_seed = [_figures_of_seed(result, codes, sizes) for result in results]
    of_rejectors = list(zip(*by_seed, strict=True))
    means = tuple(_mean(figures) for figures in of_rejectors)
    if len(results) == 1:
        return means, ()
    return means, tuple(_mean(f, lambda a: mean_and_half(np.moveaxis(a, 0, -1))[1]) for f in of_rejectors)


def _figures_of_seed(result: Backtest, codes: IntArray, sizes: IntArray) -> list[RejectorFigures]:
    summary = result.summary()
    return [
        _rejector_figures(result, name, summary, i, codes, sizes) for i, name in enumerate(result.answers)
    ]


def _rejector_figures(
    result: Backtest, name: str, summary: dict[str, AnyArray], i: int, codes: IntArray, sizes: IntArray
) -> RejectorFigures:
    row = {key: column[i].item() for key, column in summary.items()}
    if result.positive is None:
        at_15 = 1 - result.at_rejection(name, 0.15)["kept"]["error"]
        own = {"all": 1 - row["error_baseline"], "kept": 1 - row["error_kept"], "kept_at_15": at_15}
    else:
        own = {"all": row["f1_baseline"], "kept": row["f1_kept"], "kept_at_15": row["f1_kept_at_15"]}
    columns = {field.name: row[field.name] for field in fields(RejectorFigures) if field.name in row}
    return RejectorFigures(
        name=name,
        **own,
        **columns,
        of_classes=_rejected_of_classes(codes, result.answers[name].accepted, sizes),
        of_classes_at_15=_rejected_of_classes(codes, result.kept_at(name, 0.15), sizes),
    )


def _rejected_of_classes(codes: IntArray, kept: AnyArray, sizes: IntArray) -> FloatArray:
    """Return the share of each class that is rejected; NaN of a class without objects."""
    return divide(np.bincount(codes, 1.0 - kept, minlength=len(sizes)), sizes)


def _at_rate(result: Backtest, name: str, rate: float, codes: IntArray, sizes: IntArray) -> RateFigures:
    kept, wrong = result.kept_at(name, rate), result.answers[name].labels != result.y
    return RateFigures(
        rejection_rate=rate,
        errors_caught=float(divide(wrong @ (1 - kept), wrong.sum())),
        error_kept=float(divide(wrong @ kept, kept.sum())),
        of_classes=_rejected_of_classes(codes, kept, sizes),
    )


def _rejected_by_period(results: Sequence[Backtest], name: str) -> tuple[IntArray, IntArray]:
    """Return the numbers of rejected and of all objects of each period."""
    period, n = results[0].period, len(results[0].periods)
    rejected = [np.bincount(period[one.answers[name].rejected], minlength=n) for one in results]
    return _whole_mean(rejected), np.bincount(period, minlength=n)


def _error_counts(confusions: IntArray) -> IntArray:
    """Return the fields of `ErrorCounts` by period and true class, of shape (4, periods, classes)."""
    objects = confusions.sum(axis=(1, 3))
    rejected = confusions[:, 1].sum(axis=2)
    right = np.diagonal(confusions, axis1=2, axis2=3)
    return np.array([objects, rejected, objects - right.sum(axis=1), rejected - right[:, 1]])


def _versus_chance(o: ErrorCounts) -> Literal["more", "fewer", "unclear"]:
    """Return whether more errors are caught than by rejecting as many at random (hypergeometric)."""
    chance = hypergeom(o.objects, o.errors, o.rejected)
    if chance.sf(o.caught - 1) < _CHANCE:
        return "more"
    return "fewer" if chance.cdf(o.caught) < _CHANCE else "unclear"


def _unevenness(periods: Sequence[str], all_rejected: IntArray, all_objects: IntArray) -> Unevenness | None:
    """Find periods that chance does not explain, at twice or 10 points above the quietest quarter."""
    with_objects = np.flatnonzero(all_objects)
    rejected, objects = all_rejected[with_objects], all_objects[with_objects]
    rates = rejected / objects
    quiet = float(np.quantile(rates, 0.25))
    limit = max(2 * quiet, quiet + _FAR_ABOVE)
    by_chance = binom.sf(rejected - 1, objects, rejected.sum() / objects.sum())
    # Bonferroni: as many tests as periods.
    far = np.flatnonzero((rates >= limit) & (by_chance < _CHANCE / len(rates)))
    if not len(far):
        return None
    worst = far[np.argmax(rates[far])]
    return Unevenness(len(far), len(rates), limit, rates[worst], periods[with_objects[worst]], quiet)


def _by_period(alone: Sequence[Backtest], counts: IntArray) -> tuple[PeriodFigures, ...]:
    (name,) = alone[0].answers
    f1 = [
        np.mean([one.series(name, "f1", subset) for one in alone], axis=0).tolist()
        for subset in ("baseline", "kept")
    ]
    rows = zip(counts.T.tolist(), *f1, strict=True)
    return tuple(PeriodFigures(ErrorCounts(*own), f1_all, f1_kept) for own, f1_all, f1_kept in rows)
