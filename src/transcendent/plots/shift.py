"""Display of how the features changed since training."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from transcendent._utils.arrays import FloatArray, IntArray
from transcendent._utils.text import shorten
from transcendent.monitoring.movers import covariate_shift
from transcendent.plots import base
from transcendent.plots.base import Display
from transcendent.temporal.periods import TimeSplit

_MAX_POINTS = 2000
_LOG_FROM = 100


@dataclass(eq=False)
class CovariateShiftDisplay(Display):
    """Divergence of the features from training over time, and their frequencies in some periods.

    Attributes
    ----------
    periods : tuple of str
        The test periods.
    divergence : array of shape (periods,)
        KL(period || training) in bits; see `CovariateShift`.
    n_features : int
        Number of features.
    ranks, training : arrays of shape (points,)
        Ranks of features by frequency in training, from 1 and at most 2000, and these frequencies.
    shown : int array of shape (panels,)
        Positions of the first, middle and last period with rows.
    frequencies : array of shape (panels, points)
        Frequencies of the same features in those periods.
    changes : tuple of str
        For each of those periods, the features that rose and fell most since training, and by how much.

    Examples
    --------
    >>> from transcendent.datasets import make_stream
    >>> from transcendent.plots import CovariateShiftDisplay
    >>> from transcendent.temporal import time_split
    >>> stream = make_stream(6000, n_periods=12, covariate=1, random_state=0)
    >>> split = time_split(stream.times, train="2020-05")
    >>> display = CovariateShiftDisplay.from_data(stream.X > 1, split).plot()
    >>> print(display.changes[-1])
    +0.71 feature 2
    -0.03 feature 5
    """

    periods: tuple[str, ...]
    divergence: FloatArray
    n_features: int
    ranks: IntArray
    training: FloatArray
    shown: IntArray
    frequencies: FloatArray
    changes: tuple[str, ...]

    _size = (7.0, 4.4)
    _heights = (1.0, 1.3)

    def __post_init__(self) -> None:
        panels = tuple(str(i) for i in self.shown)
        self._layout = (("divergence",) * len(panels), panels)

    @classmethod
    def from_data(cls, X: Any, split: TimeSplit, *, feature_names: Any = None) -> Self:
        """Compute `covariate_shift`, and choose what to show.

        Parameters
        ----------
        X : array, frame or sparse matrix of shape (n, features)
            The rows that were split; a sparse matrix stays sparse.
        split : TimeSplit
            The training rows, and the test rows of each period. Calibration rows are not used.
        feature_names : sequence of str or None
            Names of the features; by default their positions.
        """
        shift = covariate_shift(X, split.train, [split.test[rows] for rows in split.periods.rows])
        n = len(shift.training)
        if feature_names is not None and len(feature_names) != n:
            raise ValueError(f"X has {n} features, but there are {len(feature_names)} feature_names.")
        with_rows = np.flatnonzero(~np.isnan(shift.divergence))
        shown = np.unique(with_rows[[0, len(with_rows) // 2, -1]])
        ranks = np.arange(1, n + 1)
        if n > _MAX_POINTS:
            ranks = np.unique(np.geomspace(1, n, _MAX_POINTS).round().astype(np.intp))
        order = np.argsort(-shift.training, kind="stable")[ranks - 1]
        return cls(
            periods=split.periods.labels,
            divergence=shift.divergence,
            n_features=n,
            ranks=ranks,
            training=shift.training[order],
            shown=shown,
            frequencies=shift.frequencies[np.ix_(shown, order)],
            changes=tuple(_changes(shift.frequencies[i] - shift.training, feature_names) for i in shown),
        )

    def _draw(self, *axes: Any) -> None:
        over_time, *panels = axes
        self._draw_divergence(over_time)
        for i, ax in enumerate(panels):
            self._draw_frequencies(ax, i)
        panels[0].set_ylabel("share of rows\nwith the feature")
        for ax in panels:
            ax.label_outer()

    def _draw_legends(self, *axes: Any) -> None:
        base.legend_over(axes)

    def _draw_divergence(self, ax: Any) -> None:
        at = np.arange(len(self.periods))
        ax.plot(at, self.divergence, "o-", color=base.BLUE, markersize=3.2, linewidth=1.4)
        marked = {"color": base.VERMILLION, "markersize": 5, "label": "shown below"}
        ax.plot(self.shown, self.divergence[self.shown], "s", **marked)
        ax.set_ylim(bottom=0)
        note = base.gaps({"divergence": self.divergence}, self.periods)
        if len(self.ranks) < self.n_features:
            note += f" {len(self.ranks):,} of {self.n_features:,} features are drawn below."
        base.dress(ax, x=base.with_note(ax, "period", note), y="divergence from\ntraining (bits)")
        base.show_periods(ax, self.periods)

    def _draw_frequencies(self, ax: Any, i: int) -> None:
        # Thousands of dots would make a vector file large.
        dots = {"markersize": 2.5, "color": base.VERMILLION, "rasterized": True}
        ax.plot(self.ranks, self.frequencies[i], ".", label="in the period", **dots)
        ax.plot(self.ranks, self.training, "-", color=base.BLACK, linewidth=1.4, label="in training")
        if self.n_features > _LOG_FROM:
            ax.set_xscale("log")
        base.show_shares(ax)
        label = f"features by rank; most changed:\n{self.changes[i]}"
        base.dress(ax, x=label, title=self.periods[self.shown[i]])
        ax.xaxis.label.set_fontsize(base.SMALL)


def _changes(difference: FloatArray, names: Sequence[str] | None) -> str:
    """Return the features that rose and fell most, one per line."""
    lines = []
    for i in (int(np.argmax(difference)), int(np.argmin(difference))):
        name = f"feature {i}" if names is None else shorten(names[i], 22)
        lines.append(f"{difference[i]:+.2f} {name}")
    return "\n".join(lines)
