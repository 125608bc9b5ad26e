"""Display of the errors caught against the number of objects that people look at."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from transcendent._utils.arrays import FloatArray
from transcendent._utils.text import shorten
from transcendent.plots import base
from transcendent.plots.base import Display
from transcendent.plots.risk_coverage import CHOSEN, RiskCoverageDisplay
from transcendent.temporal.result import Backtest

_SHOWN = 0.3  # at least this share of the objects is on the axis


@dataclass(eq=False)
class StaffingDisplay(Display):
    """The share of errors caught if people look at the least trusted objects of every period.

    Attributes
    ----------
    rejectors : tuple of str
        Names of the rejectors.
    unit : str
        What the looks are counted in: ``"day"``, or ``"period"`` if the periods are not a calendar's.
    minutes : float
        Minutes to look at one object.
    looks : array of shape (points,)
        Objects looked at in a unit of time, on average.
    objects : float
        Objects in a unit of time.
    caught : array of shape (rejectors, points)
        Share of all errors among these; NaN without errors.
    chosen_looks, chosen_caught : arrays of shape (rejectors,)
        The same for what each rejector itself rejects.

    Examples
    --------
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent import InductiveEvaluator, backtest
    >>> from transcendent.datasets import make_stream
    >>> from transcendent.plots import StaffingDisplay
    >>> stream = make_stream(6000, n_periods=12, concept=0.5, random_state=0)
    >>> ice = {"ICE": InductiveEvaluator(LinearSVC())}
    >>> result = backtest(ice, stream.X, stream.y, stream.times, train="2020-05")
    >>> display = StaffingDisplay.from_backtest(result, minutes=10).plot()
    >>> display.unit, display.caught.shape
    ('day', (1, 100))
    """

    rejectors: tuple[str, ...]
    unit: str
    minutes: float
    looks: FloatArray
    objects: float
    caught: FloatArray
    chosen_looks: FloatArray
    chosen_caught: FloatArray

    @classmethod
    def from_backtest(
        cls, result: Backtest, rejectors: Sequence[str] | None = None, *, minutes: float = 5.0
    ) -> Self:
        """Take the rankings of the named rejectors, or of all, from a backtest."""
        risk = RiskCoverageDisplay.from_backtest(result, rejectors)
        return cls.of(risk, len(result.y), result.days, len(result.periods), minutes)

    @classmethod
    def of(
        cls, risk: RiskCoverageDisplay, n: int, days: float | None, n_periods: int, minutes: float
    ) -> Self:
        """Turn shares of n objects, seen in some days or periods, into looks."""
        objects = n / (n_periods if days is None else days)
        error = risk.risk[:, -1:]
        with np.errstate(invalid="ignore"):
            caught = 1 - risk.risk * risk.coverage / error
            kept_errors = np.where(risk.chosen_coverage > 0, risk.chosen_risk, 0.0) * risk.chosen_coverage
            chosen = 1 - kept_errors / error[:, 0]
        return cls(
            rejectors=risk.rejectors,
            unit="period" if days is None else "day",
            minutes=minutes,
            looks=np.append(0.0, objects * (1 - risk.coverage[-2::-1])),
            objects=objects,
            caught=np.column_stack([np.zeros(len(caught)), caught[:, -2::-1]]),
            chosen_looks=objects * (1 - risk.chosen_coverage),
            chosen_caught=chosen,
        )

    def _draw(self, *axes: Any) -> None:
        (ax,) = axes
        end = min(self.objects, max(_SHOWN * self.objects, 1.2 * float(self.chosen_looks.max())))
        shown = self.looks <= end * (1 + 1e-9)
        for i, name in enumerate(self.rejectors):
            colour, marker = base.COLOURS[i % len(base.COLOURS)], base.MARKERS[i % len(base.MARKERS)]
            line = {"linewidth": 1.4, "linestyle": base.LINES[i % len(base.LINES)]}
            ax.plot(self.looks[shown], self.caught[i][shown], color=colour, label=shorten(name, 24), **line)
            ax.plot(self.chosen_looks[i], self.chosen_caught[i], marker, color=colour, **CHOSEN)
        ax.plot([], [], "o", color=base.BLACK, label="as it rejects", **CHOSEN)
        random = {"color": base.BLACK, "linestyle": ":", "linewidth": 1}
        ax.plot([0, end], [0, end / self.objects], **random, label="at random")
        ax.set_xlim(0, end)
        base.show_shares(ax)
        ax.xaxis.set_major_formatter(self._tick)
        base.dress(ax, x=f"objects looked at a {self.unit}, and the time for it", y="errors caught")

    def _tick(self, looks: float, _: Any) -> str:
        minutes = looks * self.minutes
        time = f"{minutes / 60:,.3g} h" if minutes >= 60 else f"{minutes:.2g} min"
        return f"{looks:,.4g}\n{time}" if looks else "0"
