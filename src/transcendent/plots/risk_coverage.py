"""A Display of rankings: error of the kept objects at every coverage."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from transcendent._utils.arrays import FloatArray
from transcendent._utils.text import shorten
from transcendent.metrics.ranking import RiskCoverage
from transcendent.plots.base import BLACK, COLOURS, LINES, MARKERS, Display, dress, legend_beside, with_note
from transcendent.temporal.result import Backtest

_CHOSEN = {"fillstyle": "none", "markeredgewidth": 1.8, "markersize": 10, "zorder": 3}


@dataclass(eq=False)
class RiskCoverageDisplay(Display):
    """Error among the kept objects if the same share of every period were kept, most trusted first.

    Where a curve is lower its rejector ranks better. The large marker is where a rejector's own thresholds
    put it; that can be off its curve, as thresholds are per class and keep other shares in other periods.

    Attributes
    ----------
    rejectors : tuple of str
        Whose rankings.
    coverage : array of shape (points,)
        Share that is kept, 0.01 to 1.
    risk : array of shape (rejectors, points)
        Error rate among those.
    aurc : array of shape (rejectors,)
        As in ``Backtest.summary``.
    chosen_coverage, chosen_risk : arrays of shape (rejectors,)
        What the rejectors' own thresholds gave; NaN if they kept nothing.

    Examples
    --------
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent import InductiveEvaluator, backtest
    >>> from transcendent.baselines import ProbabilityThresholds
    >>> from transcendent.datasets import make_stream
    >>> from transcendent.plots import RiskCoverageDisplay
    >>> stream = make_stream(6000, n_periods=12, concept=0.5, random_state=0)
    >>> rejectors = {"ICE": InductiveEvaluator(LinearSVC()), "sigmoid": ProbabilityThresholds(LinearSVC())}
    >>> result = backtest(rejectors, stream.X, stream.y, stream.times, train="2020-05")
    >>> display = RiskCoverageDisplay.from_backtest(result).plot()
    >>> display.risk.shape
    (2, 100)
    """

    rejectors: tuple[str, ...]
    coverage: FloatArray
    risk: FloatArray
    aurc: FloatArray
    chosen_coverage: FloatArray
    chosen_risk: FloatArray

    @classmethod
    def from_backtest(cls, result: Backtest, rejectors: Sequence[str] | None = None) -> Self:
        """Pool the periods' risk–coverage curves.

        Parameters
        ----------
        result : Backtest
            The backtest.
        rejectors : sequence of str or None
            Which of its rejectors; by default all.
        """
        names = tuple(result.answers if rejectors is None else rejectors)
        coverage = np.arange(1, 101) / 100
        risk = np.array([_pooled_risk(result.risk_coverage(name), coverage) for name in names])
        summary = result.summary()
        own = [summary["rejector"].tolist().index(name) for name in names]
        return cls(
            rejectors=names,
            coverage=coverage,
            risk=risk,
            aurc=summary["aurc"][own],
            chosen_coverage=1 - summary["rejection_rate"][own],
            chosen_risk=summary["error_kept"][own],
        )

    def _draw(self, *axes: Any) -> None:
        (ax,) = axes
        for i, name in enumerate(self.rejectors):
            colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
            ax.plot(
                self.coverage,
                self.risk[i],
                LINES[i % len(LINES)],
                color=colour,
                linewidth=1.4,
                marker=marker,
                markersize=3.5,
                markevery=(4 + 3 * i % 10, 10),
                label=f"{shorten(name, 24)}\nAURC {self.aurc[i]:.4f}",
            )
            ax.plot(self.chosen_coverage[i], self.chosen_risk[i], marker, color=colour, **_CHOSEN)
        ax.plot([], [], "o", color=BLACK, label="with its own\nthresholds", **_CHOSEN)
        ax.set_xlim(0, 1.02)
        ax.set_ylim(bottom=0)
        coverage = with_note(ax, "coverage: share of every period that is kept", self._note())
        dress(ax, x=coverage, y="error rate of the kept")
        legend_beside(ax)

    def _note(self) -> str:
        kept = ~np.isnan(self.chosen_risk)
        nothing = [name for name, some in zip(self.rejectors, kept, strict=True) if not some]
        return f"No large marker, as nothing was kept: {', '.join(nothing)}." if nothing else ""


def _pooled_risk(curves: Sequence[RiskCoverage], coverage: FloatArray) -> FloatArray:
    """Errors among the top shares of all periods over the objects in them; ties as in a random order."""
    errors, objects = np.zeros(len(coverage)), 0
    for curve in curves:
        n = len(curve.risk)
        cumulative = np.append(0.0, curve.risk * np.arange(1, n + 1))
        errors += np.interp(coverage * n, np.arange(n + 1), cumulative)
        objects += n
    return errors / (coverage * objects)
