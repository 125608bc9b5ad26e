"""A Display of what each quorum would have given."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from transcendent._utils.arrays import FloatArray, IntArray
from transcendent.metrics.performance import Subset
from transcendent.plots.base import (
    BLACK,
    KEPT,
    LARGE,
    REJECTED,
    Display,
    dress,
    hide_repeated_numbers,
    legend_over,
    show_shares,
    with_note,
)
from transcendent.temporal.result import Backtest


@dataclass(eq=False)
class QuorumDisplay(Display):
    """What each quorum of a cross-conformal rejector would have given; nothing is decided anew.

    Attributes
    ----------
    rejector : str
        Whose votes.
    quorums : int array of shape (folds,)
        1 to the number of folds.
    default : int
        The quorum taken if none is given: more than half of the folds.
    f1, precision, recall : arrays of shape (2, folds)
        Areas under time of the kept and of the rejected objects.
    rejection_rate : array of shape (folds,)
        Share of all objects that is rejected.
    undefined : array of shape (3, 2, folds)
        Share of the periods in which each of these metrics is undefined, and bridged.

    Examples
    --------
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent import CrossConformalEvaluator, backtest
    >>> from transcendent.datasets import make_stream
    >>> from transcendent.plots import QuorumDisplay
    >>> stream = make_stream(6000, n_periods=12, concept=0.5, random_state=0)
    >>> cce = CrossConformalEvaluator(LinearSVC(), cv=5)
    >>> result = backtest({"CCE": cce}, stream.X, stream.y, stream.times, train="2020-05")
    >>> display = QuorumDisplay.from_backtest(result, "CCE", folds=5).plot()
    >>> bool((display.rejection_rate[1:] >= display.rejection_rate[:-1]).all())
    True
    """

    rejector: str
    quorums: IntArray
    default: int
    f1: FloatArray
    precision: FloatArray
    recall: FloatArray
    rejection_rate: FloatArray
    undefined: FloatArray

    _layout = (("f1", "precision", "recall", "rejection rate"),)

    @classmethod
    def from_backtest(cls, result: Backtest, rejector: str, *, folds: int | None = None) -> Self:
        """Count the votes of one rejector for every quorum.

        Parameters
        ----------
        result : Backtest
            The backtest.
        rejector : str
            The rejector's name in it.
        folds : int or None
            How many folds vote; by default the most votes any object got.
        """
        answer = result.answers_of(rejector)
        if answer.votes is None:
            raise ValueError(f"{rejector!r} has no votes: only a CrossConformalEvaluator has a quorum.")
        seen = int(answer.votes.max())
        k = max(seen, 1) if folds is None else folds
        if k < max(seen, 1):
            raise ValueError(f"folds={k}, but an object has {seen} votes.")
        quorums = np.arange(1, k + 1)
        values, undefined = np.empty((2, 3, 2, k))
        subsets: tuple[Subset, Subset] = ("kept", "rejected")
        for q in quorums:
            at = replace(result, answers={rejector: replace(answer, accepted=answer.votes >= q)})
            for m, metric in enumerate(("f1", "precision", "recall")):
                for s, subset in enumerate(subsets):
                    area = at.aut(rejector, metric, subset)
                    values[m, s, q - 1] = area.value
                    undefined[m, s, q - 1] = len(area.undefined) / area.periods
        rates = np.array([np.mean(answer.votes < q) for q in quorums])
        f1, precision, recall = values
        return cls(rejector, quorums, k // 2 + 1, f1, precision, recall, rates, undefined)

    def _draw(self, *axes: Any) -> None:
        areas = {"F1": self.f1, "precision": self.precision, "recall": self.recall}
        for ax, (name, (kept, rejected)) in zip(axes, areas.items(), strict=False):
            ax.plot(self.quorums, kept, label="kept", **KEPT)
            ax.plot(self.quorums, rejected, label="rejected", **REJECTED)
            dress(ax, title=name)
        axes[-1].plot(self.quorums, self.rejection_rate, "s-", color=BLACK, markersize=3.5, linewidth=1.2)
        dress(axes[-1], title="share rejected")
        for ax in axes:
            ax.axvline(self.default, color="0.6", linestyle="--", zorder=0, label="default quorum")
            ax.set_xticks(self.quorums[:: -(-len(self.quorums) // 5)])
            show_shares(ax)
        axes[0].set_ylabel("area under time")
        hide_repeated_numbers(axes)
        legend_over(axes)
        place = axes[0].figure
        quorum = with_note(place, f"quorum: folds of {self.rejector} that must agree", self._note())
        place.supxlabel(quorum, fontsize=LARGE)

    def _note(self) -> str:
        worst = float(self.undefined.max())
        if not worst:
            return ""
        gone = np.isnan([self.f1, self.precision, self.recall]).any()
        return f"Metrics are undefined in up to {worst:.0%} of the periods, which are bridged." + (
            " With fewer than two periods left there is a gap." if gone else ""
        )
