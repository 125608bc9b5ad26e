"""Two rejectors compared: differences of their metrics on the same objects, with paired intervals."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.stats import norm, t

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, chunks
from transcendent._utils.checks import check_shares
from transcendent._utils.extras import extra
from transcendent._utils.listing import Listing, decimals, figure
from transcendent._utils.text import counted
from transcendent.metrics.performance import SUBSETS, Subset, review_metrics, subset_metrics
from transcendent.metrics.ratios import position_of
from transcendent.temporal.repeated import RepeatedBacktest, mean_and_half
from transcendent.temporal.result import Backtest, as_frame

_METRICS: dict[str, tuple[str, Subset]] = {
    "errors_caught": ("share_of_errors", "rejected"),
    "f1_kept": ("f1", "kept"),
    "error_kept": ("error", "kept"),
    "rejection_rate": ("share", "rejected"),
    "f1_baseline": ("f1", "baseline"),
    "error_baseline": ("error", "baseline"),
}
_POSITIVES = ("positives_rejected", "detections_rejected", "positives_missed")
_BLOCK_CELLS = 1 << 22
_BLOCK, _FEWEST_BLOCKS, _FEWEST_RESAMPLES = 3, 6, 10


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Metrics of two rejectors, and the intervals of their differences.

    Attributes
    ----------
    names : tuple of str
        The rejectors.
    metrics : tuple of str
        Columns of `Backtest.summary`.
    values : array of shape (2, metrics)
        Those of each rejector, over the objects of all periods; means over the seeds.
    difference, low, high : arrays of shape (metrics,)
        First minus second, and the ends of its interval. NaN where a metric is undefined.
    said : str
        What was compared, and how, in a line.
    """

    names: tuple[str, str]
    metrics: tuple[str, ...]
    values: FloatArray
    difference: FloatArray
    low: FloatArray
    high: FloatArray
    said: str

    def summary(self) -> dict[str, AnyArray]:
        """Return columns with one row per metric."""
        first, second = self.values
        return {
            "metric": np.array(self.metrics),
            "first": first.copy(),
            "second": second.copy(),
            "difference": self.difference.copy(),
            "low": self.low.copy(),
            "high": self.high.copy(),
        }

    def to_frame(self, library: Literal["pandas", "polars"] = "pandas") -> Any:
        """Return the summary as a pandas or polars DataFrame."""
        return as_frame(self.summary(), library)

    def to_latex(self) -> str:
        """Return the summary as a LaTeX table, which needs the package booktabs."""
        return self._listing().as_latex()

    def plot(self, ax: Any = None) -> Any:
        """Draw the differences with their intervals; return the `DifferenceDisplay`."""
        display = extra("transcendent.plots", "plots").DifferenceDisplay
        return display.from_comparisons({f"{self.names[0]} − {self.names[1]}": self}).plot(ax)

    def __repr__(self) -> str:
        return f"{self.said}\n{self._listing().as_text()}"

    def _repr_html_(self) -> str:
        return self._listing().as_html(self.said)

    def _listing(self) -> Listing:
        rows = []
        for metric, *values, low, high in zip(
            self.metrics, *self.values, self.difference, self.low, self.high, strict=True
        ):
            places = max(decimals(value) for value in values)
            ends = " to ".join(figure(end, places) for end in (low, high))
            rows.append([metric, *(figure(value, places) for value in values), ends])
        return Listing(["", *self.names, "difference", "interval"], rows)


def compare(
    first: Backtest | RepeatedBacktest,
    second: Backtest | RepeatedBacktest,
    *,
    rejectors: tuple[str, str] | None = None,
    at: float | None = None,
    block: int | None = None,
    level: float = 0.95,
    n_resamples: int = 2000,
    random_state: int = 0,
) -> Comparison:
    """Compare two rejectors that decided the same objects.

    The interval says how the difference would vary with other months and other seeds, if those were like
    these; months that are unlike them may be different. Months vary as in a paired bootstrap: blocks of
    consecutive periods, which resemble each other, are drawn with replacement, the same for both rejectors.
    The interval is widened for the number of blocks, as Student's t is for that of observations. With several
    seeds, the half-width of Student's t over their differences is added in quadrature.

    Parameters
    ----------
    first, second : Backtest or RepeatedBacktest
        Results on the same test objects, repeated ones with the same seeds; of rejectors that were fitted on
        the same classes or on others. They may be the same result.
    rejectors : (str, str) or None
        A rejector of each; not needed for results of one rejector.
    at : float or None
        Share of every period that is rejected, least trusted first, in place of the rejectors' own decisions.
    block : int or None
        Length of the blocks, in periods; those without objects are left out. By default 3, or less so that
        there are at least six blocks.
    level : float
        Probability of the interval.
    n_resamples : int
        Number of bootstrap samples.
    random_state : int
        Seed of the draws.

    Examples
    --------
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent import InductiveEvaluator, backtest
    >>> from transcendent.baselines import ProbabilityThresholds
    >>> from transcendent.datasets import make_stream
    >>> from transcendent.temporal import compare
    >>> stream = make_stream(6000, n_periods=12, concept=0.5, random_state=0)
    >>> both = {"ICE": InductiveEvaluator(LinearSVC()), "sigmoid": ProbabilityThresholds(LinearSVC())}
    >>> result = backtest(both, stream.X, stream.y, stream.times, train="2020-05")
    >>> found = compare(result, result, rejectors=("ICE", "sigmoid"), at=0.15)
    >>> found.difference.shape
    (10,)
    """
    check_shares(ends="excluded", level=level)
    if at is not None:
        check_shares(ends="excluded", at=at)
    runs = _runs(first), _runs(second)
    names = _names(runs, rejectors)
    _check_pairs(*runs)
    one = next(iter(runs[0].values()))
    with_objects = np.unique(one.period)
    n_periods = len(with_objects)
    block = _length_of_blocks(block, n_periods)
    if not isinstance(n_resamples, int | np.integer) or n_resamples < _FEWEST_RESAMPLES:
        raise ValueError(
            f"n_resamples must be a number of at least {_FEWEST_RESAMPLES}, not {n_resamples!r}."
        )
    classes = np.unique(np.concatenate([run.classes for of in runs for run in of.values()]))
    counts = np.array(
        [
            [_counts(run, name, at, classes)[with_objects] for run in of.values()]
            for of, name in zip(runs, names, strict=True)
        ]
    )  # (2, seeds, periods, kept or rejected, true, predicted)
    positive = position_of(one.pos_label, classes)
    drawn = _drawn_periods(n_periods, block, n_resamples, np.random.default_rng(random_state))
    values = _metrics(counts.sum(axis=2), positive)
    some = chunks(n_resamples, max(1, _BLOCK_CELLS * n_periods // counts.size))
    summed = (np.einsum("rp,bsp...->bsr...", drawn[rows], counts) for rows in some)
    means = np.concatenate([_metrics(part, positive).mean(axis=1) for part in summed], axis=1)
    mean, of_seeds = values.mean(axis=1), values[0] - values[1]
    difference, tail = mean[0] - mean[1], (1 - level) / 2
    ends = np.quantile(means[0] - means[1], [tail, 1 - tail], axis=0)
    away = np.abs(ends - difference) * _widening(n_periods / block, level)
    half = mean_and_half(of_seeds.T, level)[1] if len(of_seeds) > 1 else 0.0  # one seed has none
    low, high = np.hypot(away, half) * [[-1.0], [1.0]] + difference
    if names[0] == names[1] and first is not second:
        names = (f"{names[0]} (first)", f"{names[1]} (second)")
    said = _said(runs[0], names, at, block, level)
    low, high = (np.round(end, 12) + 0.0 for end in (low, high))  # no -0
    return Comparison(names, _names_of_metrics(one), mean, difference, low, high, said)


def _length_of_blocks(given: int | None, n_periods: int) -> int:
    """Return the number of periods of a block; raise unless there are two blocks."""
    if n_periods < 2:
        raise ValueError("one period has no intervals: compare needs at least two with objects.")
    if given is None:
        return max(1, min(_BLOCK, n_periods // _FEWEST_BLOCKS))
    whole = isinstance(given, int | np.integer) and not isinstance(given, bool)
    if not whole or not 1 <= given <= n_periods // 2:
        raise ValueError(
            f"block must be a number of periods from 1 to {n_periods // 2}, so that two blocks are in the "
            f"{n_periods} periods with objects, not {given!r}."
        )
    return int(given)


def _widening(n_blocks: float, level: float) -> float:
    """Return by how much a bootstrap's interval of a mean of few numbers is too narrow."""
    wide = t.ppf((1 + level) / 2, n_blocks - 1) / norm.ppf((1 + level) / 2)
    return float(wide * np.sqrt(n_blocks / (n_blocks - 1)))


def _runs(result: Backtest | RepeatedBacktest) -> Mapping[Any, Backtest]:
    if isinstance(result, RepeatedBacktest):
        return result.results
    if not isinstance(result, Backtest):
        raise TypeError(f"compare needs results of backtest, not {type(result).__name__}.")
    return {result.manifest.get("random_state"): result}


def _names(runs: tuple[Mapping[Any, Backtest], ...], rejectors: tuple[str, str] | None) -> tuple[str, str]:
    own = [list(next(iter(of.values())).answers) for of in runs]
    if rejectors is None:
        if any(len(names) != 1 for names in own):
            raise ValueError(f"name a rejector of each result: rejectors=({own[0][0]!r}, {own[1][-1]!r}).")
        rejectors = (own[0][0], own[1][0])
    if isinstance(rejectors, str) or len(rejectors) != 2:
        raise ValueError(f"rejectors must be two names, not {rejectors!r}.")
    for of, name in zip(runs, rejectors, strict=True):
        next(iter(of.values())).answers_of(name)
    return rejectors


def _check_pairs(first: Mapping[Any, Backtest], second: Mapping[Any, Backtest]) -> None:
    """Raise unless both have decided the same objects, with the same seeds."""
    if max(len(first), len(second)) > 1 and list(first) != list(second):
        raise ValueError(f"the results have other seeds: {list(first)} and {list(second)}.")
    for one, other in zip(first.values(), second.values(), strict=True):
        same = one.periods == other.periods and np.array_equal(one.period, other.period)
        if (
            not same
            or not np.array_equal(one.rows, other.rows)
            or not np.array_equal(one.y, other.y)
            or one.pos_label != other.pos_label
        ):
            raise ValueError("the results are of other objects, periods or labels, and cannot be paired.")


def _counts(run: Backtest, name: str, at: float | None, classes: AnyArray) -> AnyArray:
    """Return counts of each period: (periods, kept or rejected, true classes, predicted classes)."""
    own = run.confusions[name] if at is None else run.confusions_at(name, at)
    place = np.searchsorted(classes, run.classes)
    counts = np.zeros((*own.shape[:2], len(classes), len(classes)), own.dtype)
    counts[..., place[:, None], place] = own
    return counts


def _drawn_periods(n: int, block: int, n_resamples: int, generator: np.random.Generator) -> IntArray:
    """Return how often each period is in each sample of blocks; the last one is followed by the first."""
    starts = generator.integers(n, size=(n_resamples, -(-n // block)))
    drawn = (starts[..., None] + np.arange(block)).reshape(n_resamples, -1)[:, :n] % n
    samples = np.repeat(np.arange(n_resamples), n)
    return np.bincount(samples * n + drawn.ravel(), minlength=n_resamples * n).reshape(n_resamples, n)


def _names_of_metrics(result: Backtest) -> tuple[str, ...]:
    return (*_METRICS, "f1_reviewed", *(() if result.positive is None else _POSITIVES))


def _metrics(counts: AnyArray, positive: int | None) -> FloatArray:
    """Return the metrics of (..., 2, classes, classes) counts, along a new last axis."""
    columns = subset_metrics(counts, positive)
    found = [columns[key][..., SUBSETS.index(subset)] for key, subset in _METRICS.values()]
    return np.stack([*found, *review_metrics(counts, positive).values()], axis=-1)


def _said(
    runs: Mapping[Any, Backtest], names: tuple[str, str], at: float | None, block: int, level: float
) -> str:
    one = next(iter(runs.values()))
    limit = "" if at is None else f" with {at:.0%} of each period rejected"
    seeds = f", {counted(len(runs), 'seed')}" if len(runs) > 1 else ""
    return (
        f"{names[0]} minus {names[1]}{limit}: {counted(len(one.y), 'object')}, "
        f"{counted(len(one.periods), 'period')}{seeds}; {level:.0%} intervals, blocks of {block}"
    )
