"""Display of several rejectors over time in one figure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from transcendent._utils.arrays import FloatArray
from transcendent._utils.text import shorten
from transcendent.plots import base
from transcendent.plots.base import Display
from transcendent.plots.performance import METRIC_WORDS, PerformanceDisplay
from transcendent.temporal.repeated import RepeatedBacktest, mean_and_half
from transcendent.temporal.result import Backtest

_GREY = "0.6"


@dataclass(eq=False)
class ComparisonDisplay(Display):
    """A metric of what each rejector keeps over time, above the shares it rejects.

    Attributes
    ----------
    rejectors : tuple of str
        Names of the rejectors.
    metric : str
        Name of the metric.
    periods : tuple of str
        The test periods.
    kept, rejection_rate : arrays of shape (rejectors, periods)
        The metric of the kept objects, NaN where it is undefined, and the share of all objects rejected.
    baseline : array of shape (periods,)
        The metric of all objects, by the first rejector's detector.
    positive : label or None
        The positive class; None if there is none, or if there are more than four classes.
    positives_rejected : array of shape (rejectors, periods)
        Share of the positive class that is rejected; empty without one.
    interval : array of shape (rejectors, 2, periods) or None
        Bounds of the 95% interval of ``kept``: over seeds, or a bootstrap's.
    seeds : int
        Number of seeds whose means are shown.
    baseline_of : str
        The rejector whose detector ``baseline`` is of, if others have another one; else empty.

    Examples
    --------
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent import InductiveEvaluator, backtest
    >>> from transcendent.baselines import CPReject
    >>> from transcendent.datasets import make_stream
    >>> from transcendent.plots import ComparisonDisplay
    >>> stream = make_stream(6000, n_periods=12, concept=0.5, random_state=0)
    >>> rejectors = {"ICE": InductiveEvaluator(LinearSVC()), "CP-Reject": CPReject(LinearSVC())}
    >>> result = backtest(rejectors, stream.X, stream.y, stream.times, train="2020-05")
    >>> ComparisonDisplay.from_backtest(result).plot().kept.shape
    (2, 8)
    """

    rejectors: tuple[str, ...]
    metric: str
    periods: tuple[str, ...]
    kept: FloatArray
    rejection_rate: FloatArray
    baseline: FloatArray
    positive: Any
    positives_rejected: FloatArray
    interval: FloatArray | None = None
    seeds: int = 1
    baseline_of: str = ""

    def __post_init__(self) -> None:
        panels = 2 if self.positive is None else 3
        self._layout = (("metric",), ("rejected",), ("positives",))[:panels]
        self._heights = (2.2, 1.0, 1.0)[:panels]
        self._size = (7.0, 2.6 + 0.9 * (panels - 1))

    @classmethod
    def from_backtest(
        cls,
        result: Backtest,
        rejectors: Sequence[str] | None = None,
        metric: str = "f1",
        *,
        intervals: bool = False,
    ) -> Self:
        """Take a metric of the named rejectors, or of all, from a backtest.

        ``intervals`` adds bootstrap intervals for the kept.
        """
        names = tuple(result.answers if rejectors is None else rejectors)
        if not names:
            raise ValueError("there is no rejector to draw: name at least one.")
        each = [PerformanceDisplay.from_backtest(result, name, metric, intervals=intervals) for name in names]
        whole = cls.of(each, result.positive)
        return replace(whole, interval=np.array([one.interval for one in each]) if intervals else None)

    @classmethod
    def from_repeated(
        cls, repeated: RepeatedBacktest, rejectors: Sequence[str] | None = None, metric: str = "f1"
    ) -> Self:
        """Take means over the seeds, and the 95% intervals of those of the kept (Student's t).

        A mean is NaN where the metric is undefined for a seed. With one seed there are no intervals.
        """
        each = [cls.from_backtest(result, rejectors, metric) for result in repeated.results.values()]
        kept = np.stack([one.kept for one in each], axis=-1)
        interval = None
        if len(each) > 1:
            mean, half = mean_and_half(kept)
            interval = np.stack([mean - half, mean + half], axis=1)
        means = {
            name: np.mean([getattr(one, name) for one in each], axis=0)
            for name in ("kept", "rejection_rate", "baseline", "positives_rejected")
        }
        return replace(each[0], **means, interval=interval, seeds=len(each))

    @classmethod
    def of(cls, displays: Sequence[PerformanceDisplay], positive: int | None) -> Self:
        """Put the displays of single rejectors together; ``positive`` is the position of its class."""
        first = displays[0]
        alike = [np.array_equal(first.baseline, each.baseline, equal_nan=True) for each in displays]
        at = [] if positive is None or not len(first.classes) else [positive]
        return cls(
            rejectors=tuple(display.rejector for display in displays),
            metric=first.metric,
            periods=first.periods,
            kept=np.array([display.kept for display in displays]),
            rejection_rate=np.array([display.rejection_rate for display in displays]),
            baseline=first.baseline,
            positive=first.classes[positive] if at else None,
            positives_rejected=np.array([d.class_rejection_rate[at].ravel() for d in displays]),
            baseline_of="" if all(alike) else first.rejector,
        )

    def _draw(self, *axes: Any) -> None:
        upper, *shares = axes
        at = np.arange(len(self.periods))
        whose = f"all objects, {shorten(self.baseline_of, 24)}" if self.baseline_of else "all objects"
        upper.plot(at, self.baseline, "--", color=base.BLACK, linewidth=1.1, label=whose)
        panels = zip(axes, (self.kept, self.rejection_rate, self.positives_rejected), strict=False)
        if self.interval is not None:
            for i, bounds in enumerate(self.interval):
                base.shade(upper, bounds, base.COLOURS[i % len(base.COLOURS)])
        for ax, values in panels:
            for i, name in enumerate(self.rejectors):
                colour, line = base.COLOURS[i % len(base.COLOURS)], base.LINES[i % len(base.LINES)]
                marker = {"marker": base.MARKERS[i % len(base.MARKERS)], "markersize": 2.8}
                label = shorten(name, 24) if ax is upper else None
                ax.plot(at, values[i], line, color=colour, linewidth=1.3, label=label, **marker)
            base.show_periods(ax, self.periods)
        if self.interval is not None:
            base.shade(upper, np.empty((2, 0)), _GREY, label="95% interval")
        title = f"mean of {self.seeds} seeds" if self.seeds > 1 else ""
        base.dress(upper, y=f"{METRIC_WORDS.get(self.metric, self.metric)}\nof the kept", title=title)
        name = shorten(self.positive, 10)
        rejected = (
            "share\nrejected",
            f"rejected of\n{name if isinstance(self.positive, str) else f'class {name}'}",
        )
        for ax, words in zip(shares, rejected, strict=False):
            ax.set_ylim(0, 1.1 * ax.get_ylim()[1])
            base.dress(ax, y=words)
        for ax in axes[:-1]:
            ax.tick_params(labelbottom=False)
        note = base.gaps(dict(zip(self.rejectors, self.kept, strict=True)), self.periods)
        axes[-1].set_xlabel(base.with_note(axes[-1], "period", note))
