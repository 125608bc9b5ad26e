"""Display of rankings: error of the kept objects at every coverage."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from transcendent._utils.arrays import FloatArray
from transcendent._utils.text import shorten
from transcendent.metrics.ranking import RiskCoverage
from transcendent.plots.base import BLACK, COLOURS, LINES, MARKERS, Display, dress, with_note
from transcendent.temporal.result import Backtest

CHOSEN = {"fillstyle": "none", "markeredgewidth": 1.8, "markersize": 10, "zorder": 3}


@dataclass(eq=False)
class RiskCoverageDisplay(Display):
    """Error among the kept objects if every period kept the same share, most trusted first.

    A lower curve is a better ranking. The large marker shows what the rejector itself kept. It can be off the
    curve, since thresholds are per class and keep different shares in different periods.

    Attributes
    ----------
    rejectors : tuple of str
        Names of the rejectors.
    coverage : array of shape (points,)
        Share of objects that is kept, 0.01 to 1.
    risk : array of shape (rejectors, points)
        Error rate among the kept objects.
    aurc : array of shape (rejectors,)
        Area under the curve, as in ``Backtest.summary``.
    chosen_coverage, chosen_risk : arrays of shape (rejectors,)
        Coverage and risk of what the rejectors themselves keep; risk is NaN if that is nothing.

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
        """Pool the risk–coverage curves of all periods, for the named rejectors or for all."""
        names = tuple(result.answers if rejectors is None else rejectors)
        coverage = np.arange(1, 101) / 100
        risk = np.array([_pooled_risk(result.risk_coverage(name), coverage) for name in names])
        summary = result.summary()
        rows = [summary["rejector"].tolist().index(name) for name in names]
        return cls(
            rejectors=names,
            coverage=coverage,
            risk=risk,
            aurc=summary["aurc"][rows],
            chosen_coverage=1 - summary["rejection_rate"][rows],
            chosen_risk=summary["error_kept"][rows],
        )

    def _draw(self, *axes: Any) -> None:
        (ax,) = axes
        for i, name in enumerate(self.rejectors):
            colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
            label = f"{shorten(name, 24)}\nAURC {self.aurc[i]:.4f}"
            style = {"color": colour, "linewidth": 1.4, "linestyle": LINES[i % len(LINES)]}
            markers = {"marker": marker, "markersize": 3.5, "markevery": (4 + 3 * i % 10, 10)}
            ax.plot(self.coverage, self.risk[i], label=label, **style, **markers)
            ax.plot(self.chosen_coverage[i], self.chosen_risk[i], marker, color=colour, **CHOSEN)
        ax.plot([], [], "o", color=BLACK, label="as it rejects", **CHOSEN)
        ax.set_xlim(0, 1.02)
        ax.set_ylim(bottom=0)
        coverage = with_note(ax, "coverage: share of every period that is kept", self._note())
        dress(ax, x=coverage, y="error rate of the kept")

    def _note(self) -> str:
        names = [name for name, risk in zip(self.rejectors, self.chosen_risk, strict=True) if np.isnan(risk)]
        return f"No large marker, since nothing was kept: {', '.join(names)}." if names else ""


def _pooled_risk(curves: Sequence[RiskCoverage], coverage: FloatArray) -> FloatArray:
    """Return the error rate among the most trusted share of every period, with ties in random order."""
    errors, objects = np.zeros(len(coverage)), 0
    for curve in curves:
        n = len(curve.risk)
        cumulative = np.append(0.0, curve.risk * np.arange(1, n + 1))
        errors += np.interp(coverage * n, np.arange(n + 1), cumulative)
        objects += n
    return errors / (coverage * objects)
