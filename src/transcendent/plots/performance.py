"""Display of one rejector over time."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from transcendent._utils.arrays import AnyArray, FloatArray, divide
from transcendent._utils.text import shorten
from transcendent.plots import base
from transcendent.plots.base import Display
from transcendent.temporal.result import Backtest

METRIC_WORDS = {
    "f1": "F1",
    "error": "error rate",
    "fpr": "false positive rate",
    "fnr": "false negative rate",
    "share": "share of objects",
    "share_of_errors": "share of errors",
}
_MAX_CLASSES = 4
_CLASS_COLOURS = (base.GREEN, base.PURPLE, base.ORANGE, base.BLUE)
_HOLLOW = {"fillstyle": "none", "markeredgewidth": 0.8, "markersize": 3}


@dataclass(eq=False)
class PerformanceDisplay(Display):
    """A metric of kept, all and rejected objects over time, above the share rejected.

    Attributes
    ----------
    rejector, metric : str
        Names of the rejector and of the metric.
    periods : tuple of str
        The test periods.
    kept, baseline, rejected : arrays of shape (periods,)
        The metric of kept, all and rejected objects; NaN where it is undefined.
    rejection_rate : array of shape (periods,)
        Share of all objects that was rejected.
    classes : array of shape (classes,)
        The true classes shown: all if there are at most four, otherwise none.
    class_rejection_rate : array of shape (classes, periods)
        Share of each true class that was rejected.
    interval : array of shape (2, periods) or None
        Bounds of the 95% bootstrap interval of the kept objects' metric.

    Examples
    --------
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent import InductiveEvaluator, backtest
    >>> from transcendent.datasets import make_stream
    >>> from transcendent.plots import PerformanceDisplay
    >>> stream = make_stream(6000, n_periods=12, concept=0.5, random_state=0)
    >>> ice = InductiveEvaluator(LinearSVC())
    >>> result = backtest({"ICE": ice}, stream.X, stream.y, stream.times, train="2020-05")
    >>> display = PerformanceDisplay.from_backtest(result, "ICE").plot()
    >>> bool(display.kept[0] > display.kept[-1])
    True
    """

    rejector: str
    metric: str
    periods: tuple[str, ...]
    kept: FloatArray
    baseline: FloatArray
    rejected: FloatArray
    rejection_rate: FloatArray
    classes: AnyArray
    class_rejection_rate: FloatArray
    interval: FloatArray | None = None

    _layout = (("metric",), ("rejections",))
    _heights = (2.2, 1.0)

    @property
    def _name(self) -> str:  # type: ignore[override]
        return self.rejector

    @classmethod
    def from_backtest(
        cls, result: Backtest, rejector: str, metric: str = "f1", *, intervals: bool = False
    ) -> Self:
        """Take the metric of one rejector from a backtest.

        ``metric`` is a column of ``result.table``. ``intervals`` adds a bootstrap interval for the kept.
        """
        kept = result.series(rejector, metric, "kept")
        classes, of_class = result.classes[:0], np.empty((0, len(kept)))
        if len(result.classes) <= _MAX_CLASSES:
            kept_and_rejected = result.confusions[rejector].sum(axis=-1)
            classes = result.classes
            of_class = divide(kept_and_rejected[:, 1], kept_and_rejected.sum(axis=1)).T
        return cls(
            rejector=rejector,
            metric=metric,
            periods=result.periods,
            kept=kept,
            baseline=result.series(rejector, metric, "baseline"),
            rejected=result.series(rejector, metric, "rejected"),
            rejection_rate=result.series(rejector, "share", "rejected"),
            classes=classes,
            class_rejection_rate=of_class,
            interval=np.array(result.intervals(rejector, metric)[:2]) if intervals else None,
        )

    def _draw_bars(self, ax: Any) -> None:
        """Draw all bars as one area with gaps, which is many times faster than bars."""
        edges = np.arange(len(self.periods))[:, None] + (-0.4, 0.4, 0.5)
        heights = np.column_stack([self.rejection_rate] * 2 + [np.full(len(self.periods), np.nan)])
        ax.fill_between(
            edges.ravel(), 0, heights.ravel(), color="0.8", linewidth=0, label="all objects", zorder=1
        )

    def _draw(self, *axes: Any) -> None:
        upper, lower = axes
        at = np.arange(len(self.periods))
        upper.plot(at, self.kept, label="kept", **base.KEPT)
        upper.plot(at, self.baseline, "--", color=base.BLACK, linewidth=1.1, label="all objects")
        if len(lone := base.lone_points(self.baseline)):
            upper.plot(lone, self.baseline[lone], "_", color=base.BLACK, markersize=7)
        upper.plot(at, self.rejected, label="rejected", **base.REJECTED)
        if self.interval is not None:
            base.shade(upper, self.interval, base.BLUE, label="95% interval")
        self._draw_bars(lower)
        of_classes = {
            f"true class {shorten(c)}": rates
            for c, rates in zip(self.classes, self.class_rejection_rate, strict=True)
        }
        for i, (name, rates) in enumerate(of_classes.items()):
            lower.plot(at, rates, base.MARKERS[i], color=_CLASS_COLOURS[i], label=name, **_HOLLOW)
        series = {"kept": self.kept, "all": self.baseline, "rejected": self.rejected} | of_classes
        if self.metric not in ("objects", "errors"):
            base.show_shares(upper)
        base.show_shares(lower)
        base.dress(upper, y=METRIC_WORDS.get(self.metric, self.metric), title=self.rejector)
        base.dress(lower, y="share\nrejected")
        lower.set_xlabel(base.with_note(lower, "period", base.gaps(series, self.periods)))
        for ax in axes:
            base.show_periods(ax, self.periods)
        upper.tick_params(labelbottom=False)
