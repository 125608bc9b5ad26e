"""Displays of a backtest: metrics over time, rankings, quorums."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray
from transcendent.metrics.performance import Subset
from transcendent.metrics.ranking import RiskCoverage
from transcendent.plots.base import (
    BLACK,
    BLUE,
    COLOURS,
    GREEN,
    LARGE,
    LINES,
    MARKERS,
    ORANGE,
    PURPLE,
    VERMILLION,
    Display,
    dress,
    gaps,
    hide_repeated_numbers,
    legend_beside,
    legend_over,
    shorten,
    show_periods,
    show_shares,
    with_note,
)
from transcendent.temporal.result import Backtest

_WORDS = {
    "f1": "F1",
    "error": "error rate",
    "fpr": "false positive rate",
    "fnr": "false negative rate",
    "share": "share of objects",
    "share_of_errors": "share of errors",
}
_COUNTS = ("objects", "errors")
_MOST_CLASSES = 4
_CLASS_COLOURS = (GREEN, PURPLE, ORANGE, BLUE)
_KEPT = {"color": BLUE, "linestyle": "-", "linewidth": 1.4, "marker": "o", "markersize": 3.2, "zorder": 3}
_REJECTED = {"color": VERMILLION, "linestyle": ":", "linewidth": 1.2, "marker": "x", "markersize": 3.8}
_HOLLOW = {"fillstyle": "none", "markeredgewidth": 0.8, "markersize": 3}
_CHOSEN = {"fillstyle": "none", "markeredgewidth": 1.8, "markersize": 10, "zorder": 3}


@dataclass(eq=False)
class PerformanceDisplay(Display):
    """A metric of the kept, of all and of the rejected objects over time, above what was rejected.

    Attributes
    ----------
    rejector, metric : str
        Whose decisions, and which metric.
    periods : tuple of str
        The test periods.
    kept, baseline, rejected : arrays of shape (periods,)
        The metric; NaN where it is undefined.
    rejection_rate : array of shape (periods,)
        Share of all objects that is rejected.
    classes : array of shape (classes,)
        The true classes shown: all if there are at most four, else none.
    class_rejection_rate : array of shape (classes, periods)
        Share of each true class that is rejected.
    interval : array of shape (2, periods) or None
        Ends of the 95% bootstrap interval of the kept objects' metric.

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

    _heights: ClassVar[tuple[float, ...]] = (2.2, 1.0)

    @classmethod
    def from_backtest(
        cls, result: Backtest, rejector: str, metric: str = "f1", *, intervals: bool = False
    ) -> Self:
        """Take one rejector's metric from a backtest.

        Parameters
        ----------
        result : Backtest
            The backtest.
        rejector : str
            The rejector's name in it.
        metric : str
            One of the columns of ``result.table``.
        intervals : bool
            Draw the 95% bootstrap interval of the kept objects' metric.
        """
        kept = result.series(rejector, metric, "kept")
        table = result.by_class
        own = table["rejector"] == rejector
        of_class = table["rejection_rate"][own].reshape(len(result.periods), len(result.classes)).T
        few = len(result.classes) <= _MOST_CLASSES
        return cls(
            rejector=rejector,
            metric=metric,
            periods=result.periods,
            kept=kept,
            baseline=result.series(rejector, metric, "baseline"),
            rejected=result.series(rejector, metric, "rejected"),
            rejection_rate=result.series(rejector, "share", "rejected"),
            classes=result.classes if few else result.classes[:0],
            class_rejection_rate=of_class if few else of_class[:0],
            interval=np.array(result.intervals(rejector, metric)[:2]) if intervals else None,
        )

    def _layout(self) -> list[list[str]]:
        return [["metric"], ["rejections"]]

    def _draw(self, *axes: Any) -> None:
        upper, lower = axes
        self._draw_metric(upper)
        self._draw_rejections(lower)
        series = {"kept": self.kept, "all": self.baseline, "rejected": self.rejected}
        series |= {self._name(i): rates for i, rates in enumerate(self.class_rejection_rate)}
        lower.set_xlabel(with_note(lower, "period", gaps(series, self.periods)))
        for ax in axes:
            show_periods(ax, self.periods)
        upper.tick_params(labelbottom=False)

    def _draw_metric(self, ax: Any) -> None:
        at = np.arange(len(self.periods))
        ax.plot(at, self.kept, label="kept", **_KEPT)
        ax.plot(at, self.baseline, "--", color=BLACK, linewidth=1.1, label="all objects")
        ax.plot(at, self.rejected, label="rejected", **_REJECTED)
        if self.interval is not None:
            ax.fill_between(at, *self.interval, color=BLUE, alpha=0.25, linewidth=0, label="95% interval")
        if self.metric not in _COUNTS:
            show_shares(ax)
        dress(ax, y=_WORDS.get(self.metric, self.metric), title=self.rejector)
        legend_beside(ax)

    def _draw_rejections(self, ax: Any) -> None:
        at = np.arange(len(self.periods))
        ax.fill_between([], [], [], color="0.8", label="all objects")  # a legend puts bars last
        ax.bar(at, self.rejection_rate, width=0.8, color="0.8")
        for i, rates in enumerate(self.class_rejection_rate):
            ax.plot(at, rates, MARKERS[i], color=_CLASS_COLOURS[i], label=self._name(i), **_HOLLOW)
        show_shares(ax)
        dress(ax, y="share\nrejected")
        legend_beside(ax)

    def _name(self, i: int) -> str:
        return f"true class {shorten(self.classes[i])}"


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
        at = [
            replace(result, answers={rejector: replace(answer, accepted=answer.votes >= q)}) for q in quorums
        ]
        subsets: tuple[Subset, Subset] = ("kept", "rejected")
        areas = [
            [[one.aut(rejector, metric, subset) for one in at] for subset in subsets]
            for metric in ("f1", "precision", "recall")
        ]
        f1, precision, recall = np.array([[[a.value for a in row] for row in pair] for pair in areas])
        share = [[[len(a.undefined) / a.periods for a in row] for row in pair] for pair in areas]
        return cls(
            rejector=rejector,
            quorums=quorums,
            default=k // 2 + 1,
            f1=f1,
            precision=precision,
            recall=recall,
            rejection_rate=np.array([np.mean(answer.votes < q) for q in quorums]),
            undefined=np.array(share),
        )

    def _layout(self) -> list[list[str]]:
        return [["f1", "precision", "recall", "rejection rate"]]

    def _draw(self, *axes: Any) -> None:
        areas = {"F1": self.f1, "precision": self.precision, "recall": self.recall}
        for ax, (name, (kept, rejected)) in zip(axes, areas.items(), strict=False):
            ax.plot(self.quorums, kept, label="kept", **_KEPT)
            ax.plot(self.quorums, rejected, label="rejected", **_REJECTED)
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


def _pooled_risk(curves: Sequence[RiskCoverage], coverage: FloatArray) -> FloatArray:
    """Errors among the top shares of all periods over the objects in them; ties as in a random order."""
    errors, objects = np.zeros(len(coverage)), 0
    for curve in curves:
        n = len(curve.risk)
        cumulative = np.append(0.0, curve.risk * np.arange(1, n + 1))
        errors += np.interp(coverage * n, np.arange(n + 1), cumulative)
        objects += n
    return errors / (coverage * objects)
