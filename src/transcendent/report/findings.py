"""Findings of a backtest. Only this module reads the backtest; words, results and figures render findings."""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
from scipy.stats import binom, hypergeom

from transcendent._utils.arrays import AnyArray, IntArray
from transcendent.plots.monitoring import EvidenceDisplay
from transcendent.plots.performance import PerformanceDisplay
from transcendent.plots.risk_coverage import RiskCoverageDisplay
from transcendent.temporal.result import Backtest
from transcendent.temporal.watched import Watched

MAX_PERIODS = 160
MAX_DRAWN = 8
MAX_CLASSES = 20

_MAX_WITH_INTERVALS = 4
_CHANCE = 0.01
_FAR_ABOVE = 0.1


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

    ``all``, ``kept`` and ``kept_at_15`` are F1, or accuracy if there is no positive class. The other fields
    are columns of `Backtest.summary`. Undefined figures are NaN.
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
class Unevenness:
    """Periods in which far more was rejected than in the quieter ones."""

    periods: int
    of_periods: int
    limit: float
    highest: float
    highest_in: str
    quiet: float


@dataclass(frozen=True)
class PeriodFigures:
    """The first rejector in one period, or in one group of periods."""

    counts: ErrorCounts
    f1_all: float
    f1_kept: float


@dataclass(frozen=True)
class Findings:
    """Everything that a report states about a backtest, with names as they were given.

    ``overall``, ``versus_chance``, ``unevenness``, ``by_class`` and ``by_period`` are about the first
    rejector. An entry of ``by_period`` and a point of a figure stand for ``step`` periods. No training row
    had one of ``new_classes``.
    """

    unit: str
    metric: Literal["F1", "accuracy"]
    periods: tuple[str, ...]
    n_classes: int
    new_classes: frozenset[Any]
    positive: tuple[Any, ...]
    rejectors: tuple[RejectorFigures, ...]
    overall: ErrorCounts
    versus_chance: Literal["more", "fewer", "unclear"]
    unevenness: Unevenness | None
    by_class: tuple[tuple[Any, ErrorCounts], ...]
    other_classes: ErrorCounts | None
    positives: ErrorCounts | None
    step: int
    by_period: tuple[PeriodFigures, ...]
    over_time: tuple[PerformanceDisplay, ...]
    risk: RiskCoverageDisplay
    monitors: dict[str, Watched]
    evidence: EvidenceDisplay | None
    manifest: dict[str, Any]


def find(result: Backtest) -> Findings:
    """Compute everything that a report states."""
    names, positive = list(result.answers), result.positive
    step = -(-len(result.periods) // MAX_PERIODS)
    merged = result
    if step > 1:
        merged = replace(result, periods=result.periods[::step], period=result.period // step)
    alone = {name: replace(merged, answers={name: merged.answers[name]}) for name in names[:MAX_DRAWN]}
    metric = "error" if positive is None else "f1"
    few = len(result.classes) <= _MAX_WITH_INTERVALS
    over_time = [
        PerformanceDisplay.from_backtest(one, name, metric, intervals=few) for name, one in alone.items()
    ]
    first = alone[names[0]]
    summary, confusions = result.summary(), first.confusions[names[0]]
    risk = RiskCoverageDisplay.from_backtest(result, list(alone))
    rejectors = tuple(_rejector_figures(result, name, summary, i) for i, name in enumerate(names))
    counts = _error_counts(confusions)
    of_classes = [ErrorCounts(*own) for own in counts.sum(axis=1).T.tolist()]
    largest = np.argsort(-counts[0].sum(axis=0), kind="stable")
    shown, rest = largest[:MAX_CLASSES], largest[MAX_CLASSES:]
    overall = ErrorCounts(*counts.sum(axis=(1, 2)).tolist())
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
        unevenness=_unevenness(result),
        by_class=tuple((result.classes[c], of_classes[c]) for c in shown),
        other_classes=ErrorCounts(*counts[:, :, rest].sum(axis=(1, 2)).tolist()) if len(rest) else None,
        positives=None if positive is None else of_classes[positive],
        step=step,
        by_period=_by_period(first, counts.sum(axis=2)),
        over_time=tuple(over_time),
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


def _unevenness(result: Backtest) -> Unevenness | None:
    """Find periods that chance does not explain, at twice or 10 points above the quietest quarter."""
    rejects = next(iter(result.answers.values())).rejected
    with_objects, of_period, objects = np.unique(result.period, return_inverse=True, return_counts=True)
    rejected = np.bincount(of_period[rejects], minlength=len(objects))
    rates = rejected / objects
    quiet = float(np.quantile(rates, 0.25))
    limit = max(2 * quiet, quiet + _FAR_ABOVE)
    by_chance = binom.sf(rejected - 1, objects, rejected.sum() / objects.sum())
    # Bonferroni: as many tests as periods.
    far = np.flatnonzero((rates >= limit) & (by_chance < _CHANCE / len(rates)))
    if not len(far):
        return None
    worst = far[np.argmax(rates[far])]
    period = result.periods[with_objects[worst]]
    return Unevenness(len(far), len(rates), limit, rates[worst], period, quiet)


def _by_period(alone: Backtest, counts: IntArray) -> tuple[PeriodFigures, ...]:
    (name,) = alone.answers
    f1 = [alone.series(name, "f1", subset).tolist() for subset in ("baseline", "kept")]
    rows = zip(counts.T.tolist(), *f1, strict=True)
    return tuple(PeriodFigures(ErrorCounts(*own), f1_all, f1_kept) for own, f1_all, f1_kept in rows)
