"""Display of the results of each quorum."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from transcendent._utils.arrays import FloatArray, IntArray
from transcendent.metrics.performance import Subset
from transcendent.plots import base
from transcendent.plots.base import Display
from transcendent.temporal.result import Backtest


@dataclass(eq=False)
class QuorumDisplay(Display):
    """Results that each quorum of a cross-conformal evaluator would have given, from the votes of a backtest.

    Attributes
    ----------
    rejector : str
        Name of the evaluator.
    quorums : int array of shape (folds,)
        1 to the number of folds.
    default : int
        The default quorum: more than half of the folds.
    f1, precision, recall : arrays of shape (2, folds)
        Areas under time of the kept and of the rejected objects.
    rejection_rate : array of shape (folds,)
        Share of all objects that is rejected.
    undefined : array of shape (3, 2, folds)
        Share of periods in which each of these metrics is undefined. The area bridges them.

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

    @property
    def _name(self) -> str:  # type: ignore[override]
        return self.rejector

    @classmethod
    def from_backtest(cls, result: Backtest, rejector: str, *, folds: int | None = None) -> Self:
        """Count the votes of one evaluator of a backtest for every quorum.

        ``folds`` is the evaluator's number of folds, by default the largest number of votes for an object.
        """
        answer = result.answers_of(rejector)
        if answer.votes is None:
            raise ValueError(f"{rejector!r} has no votes: only a CrossConformalEvaluator has a quorum.")
        seen = int(answer.votes.max())
        k = max(seen, 1) if folds is None else folds
        if k < max(seen, 1):
            raise ValueError(f"folds={k}, but an object has {seen} votes: pass the cv of the evaluator.")
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
            ax.plot(self.quorums, kept, label="kept", **base.KEPT)
            ax.plot(self.quorums, rejected, label="rejected", **base.REJECTED)
            base.dress(ax, title=name)
        line = {"color": base.BLACK, "markersize": 3.5, "linewidth": 1.2}
        axes[-1].plot(self.quorums, self.rejection_rate, "s-", **line)
        base.dress(axes[-1], title="share rejected")
        for ax in axes:
            ax.axvline(self.default, color="0.6", linestyle="--", zorder=0, label="default quorum")
            ax.set_xticks(self.quorums[:: -(-len(self.quorums) // 5)])
            base.show_shares(ax)
            ax.label_outer()
        axes[0].set_ylabel("area under time")
        place = axes[0].figure
        label = base.with_note(place, f"quorum: folds of {self.rejector} that must agree", self._note())
        lines = dict.fromkeys([*place.get_supxlabel().splitlines(), *label.splitlines()])
        place.supxlabel("\n".join(lines), fontsize=base.LARGE)

    def _draw_legends(self, *axes: Any) -> None:
        base.legend_over(axes)

    def _note(self) -> str:
        worst = float(self.undefined.max())
        if not worst:
            return ""
        note = f"Metrics are undefined in up to {worst:.0%} of the periods, which are bridged."
        if np.isnan([self.f1, self.precision, self.recall]).any():
            note += " With fewer than two periods left there is a gap."
        return note
