"""Displays of monitors over time."""

import math
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Self

import numpy as np

from transcendent._utils.arrays import FloatArray, IntArray
from transcendent._utils.extras import extra
from transcendent.monitoring import DriftMonitor, HarmMonitor
from transcendent.plots import base
from transcendent.plots.base import Display
from transcendent.temporal.result import Backtest

_BINS = 60
_LIMIT = {"color": base.VERMILLION, "linestyle": "--", "linewidth": 1}
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(eq=False)
class MonitorDisplay(Display):
    """Evidence of drift with its alarm line, the share rejected, and the error of accepted answers.

    Attributes
    ----------
    objects, log10_value : arrays of shape (points,)
        Number of objects so far, and the evidence at that point as a power of ten.
    alarm_line : float
        Evidence that raises the alarm, as a power of ten.
    alarm_at : int or None
        Number of objects at which the alarm was raised.
    rejected_until, rejection_rate : arrays of shape (bins,)
        Number of objects at the end of each bin, and the share rejected in it.
    calibrated, expected : float
        Share rejected in calibration, and the largest share expected without drift.
    watches_budget : bool
        Whether a budget decides, so that ``rejection_rate`` is what thresholds would reject.
    labels, error, low, high : arrays of shape (batches,)
        Number of accepted answers audited so far, the error among them, and its interval; empty without a
        `HarmMonitor`.
    promised : float
        The promised error; NaN without a `HarmMonitor`.

    Examples
    --------
    >>> import numpy as np
    >>> from transcendent import Answers, ScoreEvaluator
    >>> from transcendent.monitoring import DriftMonitor
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 500)
    >>> suspicion = np.where(y == 1, 1.0, -1.0) + rng.normal(size=1000)
    >>> answers = Answers((suspicion > 0).astype(int), np.column_stack([suspicion, -suspicion]))
    >>> monitor = DriftMonitor.of(ScoreEvaluator().fit(answers, y))
    >>> decisions = monitor.update(answers)
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
    watches_budget: bool
    labels: IntArray
    error: FloatArray
    low: FloatArray
    high: FloatArray
    promised: float

    _legend = staticmethod(base.legend_above)

    def __post_init__(self) -> None:
        panels = 3 if len(self.labels) else 2  # the error is known only after an audit
        self._layout = (("evidence",), ("rejected",), ("error",))[:panels]
        self._heights = (1.4, 1.0, 1.0)[:panels]
        self._size = (7.0, 2.0 + 1.4 * panels)

    @classmethod
    def from_monitors(cls, drift: DriftMonitor, harm: HarmMonitor | None = None) -> Self:
        """Take the history of a drift monitor and, if given, of a harm monitor."""
        if drift.n == 0:
            raise ValueError("the monitor has seen no objects yet: call update first.")
        points, at = drift.history.columns, drift.history.at
        ends = np.unique(np.linspace(0, len(at), min(_BINS, len(at)) + 1).astype(int))
        n, rejected = np.append(0, at), np.append(0, points["rejected"])
        audit = {} if harm is None else harm.history.columns
        audited = {key: np.array(audit.get(key, ())) for key in ("labels", "error", "low", "high")}
        return cls(
            objects=at,
            log10_value=np.array(points["log_value"]) / math.log(10),
            alarm_line=math.log10(drift.settings.threshold),
            alarm_at=None if drift.alarm is None else drift.alarm.at,
            rejected_until=n[ends[1:]],
            rejection_rate=np.diff(rejected[ends]) / np.diff(n[ends]),
            calibrated=drift.rejections.calibrated,
            expected=drift.rejections.expected,
            watches_budget=drift.watches_budget,
            promised=math.nan if harm is None else harm.promised,
            **audited,
        )

    def _draw(self, *axes: Any) -> None:
        evidence, rejected, *error = axes
        self._draw_evidence(evidence)
        self._draw_rejected(rejected)
        if not rejected.get_shared_x_axes().joined(rejected, evidence):
            rejected.sharex(evidence)
        rejected.xaxis.set_major_formatter("{x:,.0f}")
        evidence.tick_params(labelbottom=False)
        if error:
            self._draw_error(error[0])

    def _draw_evidence(self, ax: Any) -> None:
        label = f"evidence, now {_power_of_ten(self.log10_value[-1])}"
        values = np.minimum(self.log10_value, _highest(self.alarm_line))
        ax.plot(self.objects, values, color=base.BLUE, linewidth=1.3, label=label)
        ax.axhline(self.alarm_line, **_LIMIT, label="alarm")
        if self.alarm_at is not None:
            ax.axvline(self.alarm_at, color=base.VERMILLION, linewidth=1)
        _show_powers(ax, self.log10_value, self.alarm_line)
        base.dress(ax, y="evidence of drift")

    def _draw_rejected(self, ax: Any) -> None:
        ax.step(self.rejected_until, self.rejection_rate, where="pre", color=base.BLUE, label="rejected")
        ax.axhline(self.calibrated, color=base.GREEN, linewidth=1, label="in calibration")
        ax.axhline(self.expected, **_LIMIT, label="most it explains")
        ax.set_ylim(0, min(1.03, 1.15 * max(self.rejection_rate.max(), self.expected)))
        base.dress(ax, x="objects", y="below thresholds" if self.watches_budget else "share rejected")

    def _draw_error(self, ax: Any) -> None:
        ax.fill_between(self.labels, self.low, self.high, color=base.BLUE, alpha=0.2, linewidth=0)
        ax.plot(self.labels, self.error, color=base.BLUE, linewidth=1.3, label="error of accepted answers")
        ax.axhline(self.promised, **_LIMIT, label="promised")
        ax.set_ylim(0, min(1.03, 1.3 * max(self.high[len(self.high) // 10 :].max(), self.promised)))
        ax.xaxis.set_major_formatter("{x:,.0f}")
        base.dress(ax, x="audited answers", y="error")


@dataclass(eq=False)
class EvidenceDisplay(Display):
    """Evidence of drift after each period of a backtest, for each monitored rejector.

    Attributes
    ----------
    rejectors, periods : tuples of str
        Names of the rejectors, and the test periods.
    log10_value : array of shape (rejectors, periods)
        Evidence after each period, as a power of ten; NaN where a period has no objects.
    alarm_line : float
        Evidence that raises the alarm, as a power of ten.

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
    _legend = staticmethod(base.legend_above)

    @classmethod
    def from_backtest(cls, result: Backtest) -> Self:
        """Take the evidence of the monitors of a backtest."""
        monitors = result.monitors
        if not monitors:
            raise ValueError("nothing was monitored: call backtest(..., monitor=100).")
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
            self.rejectors, self.log10_value, cycle(base.COLOURS), cycle(base.MARKERS), strict=False
        ):
            values = np.minimum(values, _highest(self.alarm_line))
            ax.plot(at, values, color=colour, marker=marker, markersize=3.2, linewidth=1.3, label=name)
        ax.axhline(self.alarm_line, color=base.BLACK, linestyle="--", linewidth=1, label="alarm")
        _show_powers(ax, self.log10_value, self.alarm_line)
        base.show_periods(ax, self.periods)
        base.dress(ax, x="period", y="evidence of drift")


def _highest(alarm_line: float) -> float:
    """Return the end of the axis of evidence; larger values are drawn there."""
    return 2 * alarm_line + 2


def _show_powers(ax: Any, log10_value: FloatArray, alarm_line: float) -> None:
    """Show powers of ten on the y axis, with the alarm in view."""
    low, high = np.nanmin(log10_value), min(np.nanmax(log10_value), _highest(alarm_line))
    ax.set_ylim(min(low, -1) - 0.5, max(high, alarm_line) + 0.3)
    ax.yaxis.set_major_locator(extra("matplotlib.ticker", "plots").MaxNLocator(nbins=6, integer=True))
    ax.yaxis.set_major_formatter(lambda power, _: _power_of_ten(power))


def _power_of_ten(power: float) -> str:
    return "10" + f"{power:z.0f}".translate(_RAISED)
