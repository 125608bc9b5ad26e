"""What monitors saw over time."""

import math
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Self

import numpy as np

from transcendent._utils.arrays import FloatArray, IntArray
from transcendent._utils.extras import extra
from transcendent.monitoring import DriftMonitor, HarmMonitor
from transcendent.plots.base import (
    BLACK,
    BLUE,
    COLOURS,
    GREEN,
    MARKERS,
    VERMILLION,
    Display,
    dress,
    legend_above,
    show_periods,
)
from transcendent.temporal.result import Backtest

_BINS = 60
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(eq=False)
class MonitorDisplay(Display):
    """Evidence of drift with its alarm line, the share rejected, and the error of accepted answers.

    Attributes
    ----------
    objects : int array of shape (points,)
        How many objects had come.
    log10_value : array of shape (points,)
        Evidence then, as a power of ten.
    alarm_line : float
        Where the alarm is.
    alarm_at : int or None
        The object at which it was raised.
    rejected_until : int array of shape (bins,)
        How many objects had come at the end of each bin.
    rejection_rate : array of shape (bins,)
        Share rejected in each bin.
    calibrated, expected : float
        Share rejected in calibration, and the most that calibration explains.
    labels : int array of shape (batches,)
        How many accepted answers had been audited; empty without a `HarmMonitor`.
    error, low, high : arrays of shape (batches,)
        The error among accepted answers, and its interval.
    promised : float
        The error that was promised, NaN without a `HarmMonitor`.

    Examples
    --------
    >>> import numpy as np
    >>> from transcendent import ScoreEvaluator
    >>> from transcendent.monitoring import DriftMonitor
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 500)
    >>> suspicion = np.where(y == 1, 1.0, -1.0) + rng.normal(size=1000)
    >>> scores, labels = np.column_stack([suspicion, -suspicion]), (suspicion > 0).astype(int)
    >>> monitor = DriftMonitor.of(ScoreEvaluator().fit(scores, y, labels))
    >>> decisions = monitor.update_scores(scores, labels)
    >>> monitor.plot().alarm_line
    2.0
    """

    objects: IntArray
    log10_value: FloatArray
    alarm_line: float
    alarm_at: int | None
    rejected_until: IntArray
    rejection_rate: FloatArray
    calibrated: float
    expected: float
    labels: IntArray
    error: FloatArray
    low: FloatArray
    high: FloatArray
    promised: float

    @classmethod
    def from_monitors(cls, drift: DriftMonitor, harm: HarmMonitor | None = None) -> Self:
        """Compute from a monitor of drift and, if there is one, a monitor of harm."""
        if drift.n == 0:
            raise ValueError("the monitor has seen no objects yet.")
        points, at = drift.history.columns, drift.history.at
        ends = np.unique(np.linspace(0, len(at), min(_BINS, len(at)) + 1).astype(int))
        n, rejected = (np.concatenate([[0], column]) for column in (at, points["rejected"]))
        audit = {name: np.array(column) for name, column in (harm.history.columns if harm else {}).items()}
        none = np.empty(0)
        return cls(
            objects=at,
            log10_value=np.array(points["log_value"]) / math.log(10),
            alarm_line=math.log10(drift.settings.threshold),
            alarm_at=None if drift.alarm is None else drift.alarm.at,
            rejected_until=n[ends[1:]],
            rejection_rate=np.diff(rejected[ends]) / np.diff(n[ends]),
            calibrated=drift.rejections.calibrated,
            expected=drift.rejections.expected,
            labels=audit.get("labels", none.astype(np.intp)),
            error=audit.get("error", none),
            low=audit.get("low", none),
            high=audit.get("high", none),
            promised=math.nan if harm is None else harm.promised,
        )

    @property
    def _layout(self) -> tuple[tuple[str, ...], ...]:  # type: ignore[override]  # one panel less without harm
        panels = (("evidence",), ("rejected",), ("error",))
        return panels if len(self.labels) else panels[:2]

    @property
    def _heights(self) -> tuple[float, ...]:  # type: ignore[override]
        return (1.4, 1.0, 1.0)[: len(self._layout)]

    @property
    def _size(self) -> tuple[float, float]:  # type: ignore[override]
        return (7.0, 2.0 + 1.4 * len(self._layout))

    def _draw(self, *axes: Any) -> None:
        evidence, rejected, *error = axes
        self._draw_evidence(evidence)
        self._draw_rejected(rejected)
        rejected.sharex(evidence)
        rejected.xaxis.set_major_formatter(lambda n, _: f"{n:,.0f}")
        evidence.tick_params(labelbottom=False)
        if error:
            self._draw_error(error[0])

    def _draw_evidence(self, ax: Any) -> None:
        now = f"evidence, now {_power_of_ten(self.log10_value[-1])}"
        values = np.minimum(self.log10_value, _highest(self.alarm_line))
        ax.plot(self.objects, values, color=BLUE, linewidth=1.3, label=now)
        ax.axhline(self.alarm_line, color=VERMILLION, linestyle="--", linewidth=1, label="alarm")
        if self.alarm_at is not None:
            ax.axvline(self.alarm_at, color=VERMILLION, linewidth=1)
        _show_powers(ax, self.log10_value, self.alarm_line)
        dress(ax, y="evidence of drift")
        legend_above(ax)

    def _draw_rejected(self, ax: Any) -> None:
        ax.step(self.rejected_until, self.rejection_rate, where="pre", color=BLUE, label="rejected")
        ax.axhline(self.calibrated, color=GREEN, linewidth=1, label="in calibration")
        ax.axhline(self.expected, color=VERMILLION, linestyle="--", linewidth=1, label="most it explains")
        ax.set_ylim(0, min(1.03, 1.15 * max(self.rejection_rate.max(), self.expected)))
        dress(ax, x="objects", y="share rejected")
        legend_above(ax)

    def _draw_error(self, ax: Any) -> None:
        ax.fill_between(self.labels, self.low, self.high, color=BLUE, alpha=0.2, linewidth=0)
        ax.plot(self.labels, self.error, color=BLUE, linewidth=1.3, label="error of accepted answers")
        ax.axhline(self.promised, color=VERMILLION, linestyle="--", linewidth=1, label="promised")
        ax.set_ylim(0, min(1.03, 1.3 * max(self.high[len(self.high) // 10 :].max(), self.promised)))
        ax.xaxis.set_major_formatter(lambda n, _: f"{n:,.0f}")
        dress(ax, x="audited answers", y="error")
        legend_above(ax)


@dataclass(eq=False)
class EvidenceDisplay(Display):
    """Evidence of drift after each period of a backtest, for each monitored rejector.

    Attributes
    ----------
    rejectors : tuple of str
        Their names.
    periods : tuple of str
        The test periods.
    log10_value : array of shape (rejectors, periods)
        Evidence after each, as a power of ten; NaN where a period has no objects.
    alarm_line : float
        Where the alarm is.

    Examples
    --------
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent import InductiveEvaluator, backtest
    >>> from transcendent.datasets import make_stream
    >>> from transcendent.plots import EvidenceDisplay
    >>> stream = make_stream(6000, n_periods=12, concept=0.5, random_state=0)
    >>> ice = InductiveEvaluator(LinearSVC())
    >>> result = backtest({"ICE": ice}, stream.X, stream.y, stream.times, train="2020-05", monitor=100)
    >>> EvidenceDisplay.from_backtest(result).log10_value.shape
    (1, 8)
    """

    rejectors: tuple[str, ...]
    periods: tuple[str, ...]
    log10_value: FloatArray
    alarm_line: float

    _size = (7.0, 2.8)

    @classmethod
    def from_backtest(cls, result: Backtest) -> Self:
        """Take what the monitors of a backtest saw."""
        monitors = result.monitors
        if not monitors:
            raise ValueError("nothing was monitored: backtest(..., monitor=100) does that.")
        values = [
            [dict(zip(seen.periods, seen.log_value, strict=True)).get(p, math.nan) for p in result.periods]
            for seen in monitors.values()
        ]
        threshold = next(iter(monitors.values())).threshold
        return cls(tuple(monitors), result.periods, np.array(values) / math.log(10), math.log10(threshold))

    def _draw(self, *axes: Any) -> None:
        (ax,) = axes
        at = np.arange(len(self.periods))
        for name, values, colour, marker in zip(
            self.rejectors, self.log10_value, cycle(COLOURS), cycle(MARKERS), strict=False
        ):
            values = np.minimum(values, _highest(self.alarm_line))
            ax.plot(at, values, color=colour, marker=marker, markersize=3.2, linewidth=1.3, label=name)
        ax.axhline(self.alarm_line, color=BLACK, linestyle="--", linewidth=1, label="alarm")
        _show_powers(ax, self.log10_value, self.alarm_line)
        show_periods(ax, self.periods)
        dress(ax, y="evidence of drift")
        legend_above(ax)


def _highest(alarm_line: float) -> float:
    """Where the power axis ends: what is far above the alarm is drawn at its top."""
    return 2 * alarm_line + 2


def _show_powers(ax: Any, log10_value: FloatArray, alarm_line: float) -> None:
    """Make the y axis one of powers of ten around the alarm."""
    low, high = np.nanmin(log10_value), min(np.nanmax(log10_value), _highest(alarm_line))
    ax.set_ylim(min(low, -1) - 0.5, max(high, alarm_line) + 0.3)
    ax.yaxis.set_major_locator(extra("matplotlib.ticker", "plots").MaxNLocator(nbins=6, integer=True))
    ax.yaxis.set_major_formatter(lambda power, _: _power_of_ten(power))


def _power_of_ten(power: float) -> str:
    return "10" + f"{power:.0f}".translate(_RAISED)
