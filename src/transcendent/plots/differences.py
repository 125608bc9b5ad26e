"""Display of differences between rejectors: a forest plot."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from transcendent._utils.arrays import FloatArray
from transcendent._utils.text import shorten
from transcendent.plots.base import BLUE, LARGE, SMALL, Display, dress
from transcendent.temporal.comparing import Comparison

_SHOWN = {
    "errors_caught": "errors caught",
    "f1_kept": "F1 of the kept",
    "f1_reviewed": "F1 once reviewed",
    "detections_rejected": "detections rejected",
}
_LONGEST = 48


@dataclass(eq=False)
class DifferenceDisplay(Display):
    """Differences of metrics between rejectors, with their intervals; an interval without 0 is conclusive.

    Attributes
    ----------
    names : tuple of str
        What was compared.
    metrics : tuple of str
        Names of the metrics.
    difference, low, high : arrays of shape (comparisons, metrics)
        Differences, and the ends of their intervals.

    Examples
    --------
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent import InductiveEvaluator, backtest
    >>> from transcendent.baselines import ProbabilityThresholds
    >>> from transcendent.datasets import make_stream
    >>> from transcendent.plots import DifferenceDisplay
    >>> from transcendent.temporal import compare
    >>> stream = make_stream(6000, n_periods=12, concept=0.5, random_state=0)
    >>> both = {"ICE": InductiveEvaluator(LinearSVC()), "sigmoid": ProbabilityThresholds(LinearSVC())}
    >>> result = backtest(both, stream.X, stream.y, stream.times, train="2020-05")
    >>> found = {str(rate): compare(result, result, rejectors=("ICE", "sigmoid"), at=rate)
    ...          for rate in (0.1, 0.2)}
    >>> DifferenceDisplay.from_comparisons(found).plot().difference.shape
    (2, 4)
    """

    names: tuple[str, ...]
    metrics: tuple[str, ...]
    difference: FloatArray
    low: FloatArray
    high: FloatArray

    _covers = True

    @classmethod
    def from_comparisons(cls, comparisons: Mapping[str, Comparison]) -> Self:
        """Take named comparisons; they must have the same metrics."""
        if not isinstance(comparisons, Mapping) or not comparisons:
            raise ValueError("pass a dict of comparisons by name, with at least one.")
        given = list(comparisons.values())
        metrics = tuple(name for name in _SHOWN if name in given[0].metrics)
        if any(not set(metrics) <= set(each.metrics) for each in given):
            raise ValueError("the comparisons have different metrics.")
        places = [[each.metrics.index(name) for name in metrics] for each in given]
        columns = [
            np.array([getattr(each, key)[at] for each, at in zip(given, places, strict=True)])
            for key in ("difference", "low", "high")
        ]
        return cls(tuple(comparisons), metrics, *columns)

    def _open(self, ax: Any) -> tuple[Any, ...]:
        self._layout = (self.metrics,)
        longest = min(_LONGEST, max(map(len, self.names)))
        self._size = (1.35 * len(self.metrics) + 0.06 * longest, 1.2 + 0.28 * len(self.names))
        return super()._open(ax)

    def _draw(self, *axes: Any) -> None:
        places = np.arange(len(self.names))[::-1]
        for j, (ax, metric) in enumerate(zip(axes, self.metrics, strict=True)):
            middle, low, high = self.difference[:, j], self.low[:, j], self.high[:, j]
            ax.axvline(0, color="0.5", linewidth=0.8)
            ax.hlines(places, low, high, color=BLUE, linewidth=1.6)
            ax.plot(middle, places, "o", color=BLUE, markersize=4)
            dress(ax, title=_SHOWN[metric].replace(" ", "\n", 1))
            ax.set_ylim(-0.7, len(places) - 0.3)
            names = [shorten(name, _LONGEST) for name in self.names] if j == 0 else []
            ax.set_yticks(places if j == 0 else [], names, fontsize=SMALL)
            ax.locator_params(axis="x", nbins=3)
            ax.xaxis.set_major_formatter(lambda value, _: f"{value:z.3g}".replace("-", "−"))
        axes[0].figure.supxlabel("difference, and its interval", fontsize=LARGE)
