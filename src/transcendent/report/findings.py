"""What a backtest found, computed once: words, tables and figures only render it."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
from scipy.stats import binom, hypergeom

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray
from transcendent.plots.monitoring import EvidenceDisplay
from transcendent.plots.performance import PerformanceDisplay
from transcendent.plots.risk_coverage import RiskCoverageDisplay
from transcendent.temporal.auditing import Watched
from transcendent.temporal.result import Backtest

MOST_PERIODS = 160
MOST_DRAWN = 8
MOST_CLASSES = 20

_MOST_WITH_INTERVALS = 4
_CHANCE = 0.01
_FAR_ABOVE = 0.1


@dataclass(frozen=True)
class Counts:
    """Numbers of objects, and of those that are rejected, wrong, and both."""

    objects: int
    rejected: int
    errors: int
    caught: int


@dataclass(frozen=True)
class RejectorFigures:
    """One rejector in all periods together.

    ``all``, ``kept`` and ``kept_at_15`` are F1, or accuracy if there is no positive class; the other fields
    are columns of `Backtest.summary`. NaN is undefined.
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


@dataclass(frozen=True)
class Others:
    """The rejectors after the first at 15% rejected: shares of errors caught, and the best metric."""

    number: int
    least_caught: float
    most_caught: float
    best: RejectorFigures


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
class Course:
    """Values of a metric over time, each with its period: the first, last, lowest and highest."""

    first: tuple[float, str]
    last: tuple[float, str]
    lowest: tuple[float, str]
    highest: tuple[float, str]


@dataclass(frozen=True)
class OverTime:
    """One rejector by period: what is drawn, and what stands out. An undefined course is None."""

    display: PerformanceDisplay
    kept: Course | None
    all: Course | None
    least_rejected: float
    most_rejected: float


@dataclass(frozen=True)
class PeriodFigures:
    """The first rejector in one period, or in one group of periods."""

    counts: Counts
    f1_all: float
    f1_kept: float


@dataclass(frozen=True)
class Findings:
    """Everything a report states about a backtest; names are as given, to be made presentable.

    The page is about the first rejector: ``overall``, ``versus_chance``, ``unevenness``, ``by_class`` and
    ``by_period`` are its alone. ``step`` periods make one of ``by_period`` and of the figures.
    ``new_classes`` are those that no training row had.
    """

    unit: str
    metric: Literal["F1", "accuracy"]
    periods: tuple[str, ...]
    n_classes: int
    new_classes: frozenset[Any]
    positive: tuple[Any, ...]
    rejectors: tuple[RejectorFigures, ...]
    overall: Counts
    versus_chance: Literal["more", "fewer", "unclear"]
    others: Others | None
    unevenness: Unevenness | None
    by_class: tuple[tuple[Any, Counts], ...]
    other_classes: Counts | None
    positives: Counts | None
    step: int
    by_period: tuple[PeriodFigures, ...]
    over_time: tuple[OverTime, ...]
    risk: RiskCoverageDisplay
    monitors: dict[str, Watched]
    evidence: EvidenceDisplay | None
    manifest: dict[str, Any]


def find(result: Backtest) -> Findings:
    """Compute everything that a report states."""
    names, positive = list(result.answers), result.positive
    step = -(-len(result.periods) // MOST_PERIODS)
    merged = result
    if step > 1:
        merged = replace(result, periods=result.periods[::step], period=result.period // step)
    alone = {name: replace(merged, answers={name: merged.answers[name]}) for name in names[:MOST_DRAWN]}
    metric = "error" if positive is None else "f1"
    few = len(result.classes) <= _MOST_WITH_INTERVALS
    displays = [
        PerformanceDisplay.from_backtest(one, name, metric, intervals=few) for name, one in alone.items()
    ]
    first = alone[names[0]]
    summary, confusions = result.summary(), first.confusions[names[0]]
    risk = RiskCoverageDisplay.from_backtest(result, list(alone))
    rejectors = tuple(_rejector_figures(result, name, summary, i) for i, name in enumerate(names))
    counts = _counts(confusions)
    of_classes = [Counts(*own) for own in counts.sum(axis=1).T.tolist()]
    largest = np.argsort(-counts[0].sum(axis=0), kind="stable")
    shown, rest = largest[:MOST_CLASSES], largest[MOST_CLASSES:]
    overall = Counts(*counts.sum(axis=(1, 2)).tolist())
    return Findings(
        unit=str(result.manifest.get("period") or "period"),
        metric="accuracy" if positive is None else "F1",
        periods=result.periods,
        n_classes=len(result.classes),
        new_classes=frozenset(result.manifest.get("new_classes", ())),
        positive=() if positive is None else (result.classes[positive],),
        rejectors=rejectors,
        overall=overall,
        versus_chance=_versus_chance(overall),
        others=_others(rejectors[1:]),
        unevenness=_unevenness(result),
        by_class=tuple((result.classes[c], of_classes[c]) for c in shown),
        other_classes=Counts(*counts[:, :, rest].sum(axis=(1, 2)).tolist()) if len(rest) else None,
        positives=None if positive is None else of_classes[positive],
        step=step,
        by_period=_by_period(first, counts.sum(axis=2)),
        over_time=tuple(map(_over_time, displays)),
        risk=risk,
        monitors=result.monitors,
        evidence=EvidenceDisplay.from_backtest(merged) if result.monitors else None,
        manifest={key: value for key, value in result.manifest.items() if key != "monitors"},
    )


def _rejector_figures(result: Backtest, name: str, summary: dict[str, AnyArray], i: int) -> RejectorFigures:
    row = {key: column[i].item() for key, column in summary.items()}
    if result.positive is None:
        at_15 = 1 - result.at_rejection(name, 0.15)["kept"]["error"]
        own = {"all": 1 - row["error_baseline"], "kept": 1 - row["error_kept"], "kept_at_15": at_15}
    else:
        own = {"all": row["f1_baseline"], "kept": row["f1_kept"], "kept_at_15": row["f1_kept_at_15"]}
    columns = {field.name: row[field.name] for field in fields(RejectorFigures) if field.name in row}
    return RejectorFigures(name=name, **own, **columns)


def _counts(confusions: IntArray) -> IntArray:
    """(4, periods, classes): the fields of `Counts` by period and true class."""
    objects = confusions.sum(axis=(1, 3))
    rejected = confusions[:, 1].sum(axis=2)
    right = np.diagonal(confusions, axis1=2, axis2=3)
    return np.array([objects, rejected, objects - right.sum(axis=1), rejected - right[:, 1]])


def _versus_chance(o: Counts) -> Literal["more", "fewer", "unclear"]:
    """Whether more errors are caught than by rejecting as many at random: hypergeometric."""
    chance = hypergeom(o.objects, o.errors, o.rejected)
    if chance.sf(o.caught - 1) < _CHANCE:
        return "more"
    return "fewer" if chance.cdf(o.caught) < _CHANCE else "unclear"


def _others(others: tuple[RejectorFigures, ...]) -> Others | None:
    caught = [r.caught_at_15 for r in others if not math.isnan(r.caught_at_15)]
    defined = [r for r in others if not math.isnan(r.kept_at_15)]
    if not caught or not defined:
        return None
    return Others(len(others), min(caught), max(caught), max(defined, key=lambda r: r.kept_at_15))


def _unevenness(result: Backtest) -> Unevenness | None:
    """Beyond what chance allows, and twice or 10 points above the rate of the quietest quarter."""
    first = next(iter(result.answers.values()))
    n = len(result.periods)
    all_rejected = np.bincount(result.period[~first.accepted], minlength=n)
    all_objects = np.bincount(result.period, minlength=n)
    there = np.flatnonzero(all_objects)
    rejected, objects = all_rejected[there], all_objects[there]
    rates = rejected / objects
    quiet = float(np.quantile(rates, 0.25))
    limit = max(2 * quiet, quiet + _FAR_ABOVE)
    by_chance = binom.sf(rejected - 1, objects, rejected.sum() / objects.sum())
    far = np.flatnonzero((rates >= limit) & (by_chance < _CHANCE / len(there)))
    if not len(far):
        return None
    worst = far[np.argmax(rates[far])]
    return Unevenness(len(far), len(there), limit, rates[worst], result.periods[there[worst]], quiet)


def _by_period(alone: Backtest, counts: IntArray) -> tuple[PeriodFigures, ...]:
    (name,) = alone.answers
    f1 = [alone.series(name, "f1", subset).tolist() for subset in ("baseline", "kept")]
    rows = zip(counts.T.tolist(), *f1, strict=True)
    return tuple(PeriodFigures(Counts(*own), f1_all, f1_kept) for own, f1_all, f1_kept in rows)


def _over_time(display: PerformanceDisplay) -> OverTime:
    return OverTime(
        display,
        _course(display.kept, display.periods),
        _course(display.baseline, display.periods),
        float(np.nanmin(display.rejection_rate)),
        float(np.nanmax(display.rejection_rate)),
    )


def _course(values: FloatArray, periods: tuple[str, ...]) -> Course | None:
    there = np.flatnonzero(~np.isnan(values))
    if not len(there):
        return None
    at = (there[0], there[-1], there[np.argmin(values[there])], there[np.argmax(values[there])])
    return Course(*((float(values[i]), periods[i]) for i in at))
