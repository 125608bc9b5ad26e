"""How features changed since training."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from scipy.stats import entropy

from transcendent._utils.arrays import FloatArray, IntArray, take_rows
from transcendent._utils.text import shorten
from transcendent.plots.base import (
    BLACK,
    BLUE,
    SMALL,
    VERMILLION,
    Display,
    dress,
    gaps,
    hide_repeated_numbers,
    legend_over,
    show_periods,
    show_shares,
    with_note,
)
from transcendent.temporal.periods import TimeSplit

_MOST_POINTS = 2000
_LOG_FROM = 100


@dataclass(frozen=True, eq=False)
class CovariateShift:
    """How often features occur in training and in each period, and how far apart that is.

    Attributes
    ----------
    periods : tuple of str
        The test periods.
    training : array of shape (features,)
        Share of the training rows in which each feature is not zero.
    frequencies : array of shape (periods, features)
        The same for each period; NaN for a period without rows.
    divergence : array of shape (periods,)
        Kullback–Leibler divergence in bits, KL(period || training), between the distributions of occurrences
        over features: counts plus 1/2, normalised. NaN for a period without rows.
    """

    periods: tuple[str, ...]
    training: FloatArray
    frequencies: FloatArray
    divergence: FloatArray


def covariate_shift(X: Any, split: TimeSplit) -> CovariateShift:
    """Compare how often features occur in each period with how often they do in training.

    Parameters
    ----------
    X : array, frame or sparse matrix of shape (n, features)
        The rows that were split; a sparse matrix stays sparse.
    split : TimeSplit
        Which rows train, and which are tested in which period. Calibration rows are left out.

    Examples
    --------
    >>> from transcendent.datasets import make_stream
    >>> from transcendent.plots import covariate_shift
    >>> from transcendent.temporal import time_split
    >>> stream = make_stream(6000, n_periods=12, covariate=1, random_state=0)
    >>> shift = covariate_shift(stream.X > 1, time_split(stream.times, train="2020-05"))
    >>> shift.periods[0], shift.divergence[[0, -1]].round(3)
    ('2020-05', array([0.072, 0.272]))
    """
    X = X.tocsr() if sp.issparse(X) else X
    rows = [split.test[within] for within in split.periods.rows]
    trained = _occurrences(X, split.train)
    frequencies = np.full((len(rows), len(trained)), np.nan)
    divergence = np.full(len(rows), np.nan)
    for i, of_period in enumerate(rows):
        if len(of_period):
            counts = _occurrences(X, of_period)
            frequencies[i] = counts / len(of_period)
            divergence[i] = entropy(counts + 0.5, trained + 0.5, base=2)
    return CovariateShift(split.periods.labels, trained / len(split.train), frequencies, divergence)


@dataclass(eq=False)
class CovariateShiftDisplay(Display):
    """Divergence of the features from training over time, and their frequencies then and now.

    Attributes
    ----------
    periods : tuple of str
        The test periods.
    divergence : array of shape (periods,)
        KL(period || training) in bits; see `CovariateShift`.
    n_features : int
        How many features there are.
    ranks : int array of shape (points,)
        Ranks by frequency in training, from 1; at most 2000 of them.
    training : array of shape (points,)
        Frequency in training of the features of these ranks.
    shown : int array of shape (panels,)
        Positions of the first, middle and last period with rows.
    frequencies : array of shape (panels, points)
        The features' frequencies in those.
    changes : tuple of str
        Which features rose and fell most until each of those, and by how much.

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
        """Compute `covariate_shift`, and what to show of it.

        Parameters
        ----------
        X, split
            As for `covariate_shift`.
        feature_names : sequence of str or None
            The features' names, by default their numbers.
        """
        shift = covariate_shift(X, split)
        n = len(shift.training)
        if feature_names is not None and len(feature_names) != n:
            raise ValueError(f"there are {len(feature_names)} feature_names for {n} features.")
        there = np.flatnonzero(~np.isnan(shift.divergence))
        shown = np.unique(there[[0, len(there) // 2, -1]])
        ranks = np.unique(np.geomspace(1, n, _MOST_POINTS).round().astype(np.intp))
        ranks = ranks if n > _MOST_POINTS else np.arange(1, n + 1)
        order = np.argsort(-shift.training, kind="stable")[ranks - 1]
        return cls(
            periods=shift.periods,
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
        hide_repeated_numbers(panels)
        legend_over(axes)

    def _draw_divergence(self, ax: Any) -> None:
        at = np.arange(len(self.periods))
        ax.plot(at, self.divergence, "o-", color=BLUE, markersize=3.2, linewidth=1.4)
        ax.plot(
            self.shown, self.divergence[self.shown], "s", color=VERMILLION, markersize=5, label="shown below"
        )
        ax.set_ylim(bottom=0)
        note = gaps({"divergence": self.divergence}, self.periods)
        if len(self.ranks) < self.n_features:
            note += f" {len(self.ranks):,} of {self.n_features:,} features are drawn below."
        dress(ax, x=with_note(ax, "period", note), y="divergence from\ntraining (bits)")
        show_periods(ax, self.periods)

    def _draw_frequencies(self, ax: Any, i: int) -> None:
        dots = {"markersize": 2.5, "color": VERMILLION, "rasterized": True}  # thousands of them
        ax.plot(self.ranks, self.frequencies[i], ".", label="in the period", **dots)
        ax.plot(self.ranks, self.training, "-", color=BLACK, linewidth=1.4, label="in training")
        if self.n_features > _LOG_FROM:
            ax.set_xscale("log")
        show_shares(ax)
        ranks = f"features by rank; most changed:\n{self.changes[i]}"
        dress(ax, x=ranks, title=self.periods[self.shown[i]])
        ax.xaxis.label.set_fontsize(SMALL)


def _occurrences(X: Any, rows: IntArray) -> FloatArray:
    """In how many rows each feature is not zero."""
    part = take_rows(X, rows)
    if not sp.issparse(part):
        return np.asarray(np.count_nonzero(np.asarray(part), axis=0), dtype=np.float64)
    there = part.indices[part.data != 0]
    return np.asarray(np.bincount(there, minlength=part.shape[1]), dtype=np.float64)


def _changes(difference: FloatArray, names: Sequence[str] | None) -> str:
    """What rose most and what fell most, a line each."""
    lines = []
    for i in (int(np.argmax(difference)), int(np.argmin(difference))):
        name = f"feature {i}" if names is None else shorten(names[i], 22)
        lines.append(f"{difference[i]:+.2f} {name}")
    return "\n".join(lines)
