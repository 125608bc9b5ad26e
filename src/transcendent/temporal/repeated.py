"""A backtest repeated with several seeds: the means of its metrics, and their intervals."""

import re
import textwrap
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from scipy.stats import t as student

from transcendent._utils.arrays import AnyArray, FloatArray, chunks
from transcendent._utils.extras import extra
from transcendent._utils.listing import Listing, decimals, figure
from transcendent._utils.text import WIDTH, shorten, some, visible
from transcendent.temporal.result import Backtest, as_frame, headline, shown_groups

_SEED = re.compile(r"seed-(-?\d+)")
_LEVEL = 0.95
_MAX_BESIDE = 4
_ROOM_FOR_METRICS = 24


@dataclass(frozen=True, eq=False, repr=False)
class RepeatedBacktest:
    """The results of one backtest with several seeds.

    Attributes
    ----------
    results : dict of Backtest
        The result of each seed.

    Examples
    --------
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent import InductiveEvaluator, backtest
    >>> from transcendent.datasets import make_stream
    >>> stream = make_stream(6000, n_periods=12, concept=0.5, random_state=0)
    >>> ice = {"ICE": InductiveEvaluator(LinearSVC())}
    >>> repeated = backtest(ice, stream.X, stream.y, stream.times, train="2020-05", random_state=[0, 1, 2])
    >>> repeated.results[1].series("ICE", "f1", "kept").shape
    (8,)
    """

    results: dict[int, Backtest]

    def summary(self) -> dict[str, AnyArray]:
        """Return columns with one row per rejector and column of `Backtest.summary`.

        ``mean`` is over the seeds, and ``low`` and ``high`` are the ends of its 95% interval (Student's t).
        The interval covers chance in fitting and calibrating; all seeds decide on the same test objects. NaN
        where a metric is undefined for a seed.
        """
        values = self._values()
        mean, half = mean_and_half(np.stack(list(values.values()), axis=1))
        names, metrics = list(self._first.answers), list(values)
        return {
            "rejector": np.repeat(names, len(metrics)),
            "metric": np.tile(metrics, len(names)),
            "mean": mean.ravel(),
            "low": (mean - half).ravel(),
            "high": (mean + half).ravel(),
        }

    def to_frame(self, library: Literal["pandas", "polars"] = "pandas") -> Any:
        """Return the summary as a pandas or polars DataFrame."""
        return as_frame(self.summary(), library)

    def to_latex(self) -> str:
        """Return means and intervals as a LaTeX table, which needs the package booktabs."""
        return self._listing(list(self._first.answers)).as_latex()

    def plot(self, rejectors: Sequence[str] | None = None, metric: str = "f1", *, ax: Any = None) -> Any:
        """Draw means over the seeds and their 95% intervals over time; return the `ComparisonDisplay`.

        Parameters
        ----------
        rejectors : list of str or None
            The rejectors; by default all.
        metric : str
            One of the columns of a backtest's ``table``.
        ax : matplotlib Axes, sequence of them or None
            Where to draw; by default a new figure. The ``axes_`` of another display: over it.
        """
        display = extra("transcendent.plots", "plots").ComparisonDisplay
        names = [rejectors] if isinstance(rejectors, str) else rejectors
        return display.from_repeated(self, names, metric).plot(ax)

    @classmethod
    def load(cls, folder: Any) -> Self:
        """Read the runs of all seeds from a folder that `backtest` wrote."""
        numbers = sorted(int(name[1]) for p in Path(folder).iterdir() if (name := _SEED.fullmatch(p.name)))
        if len(numbers) < 2:
            raise FileNotFoundError(
                f"{folder} is not a repeated backtest: it has no folders seed-0, seed-1, …"
            )
        for seed in numbers:
            if not (Path(folder) / f"seed-{seed}/manifest.json").exists():
                raise FileNotFoundError(f"{folder}/seed-{seed} has no finished backtest: run it again.")
        results = {seed: Backtest.load(Path(folder) / f"seed-{seed}") for seed in numbers}
        first = _common_settings(results[numbers[0]])
        for seed, result in results.items():
            if _common_settings(result) != first:
                raise ValueError(f"{folder}: seed-{seed} and seed-{numbers[0]} are different backtests.")
        return cls(results)

    def __repr__(self) -> str:
        names = list(self._first.answers)
        room = (WIDTH - _ROOM_FOR_METRICS) // min(len(names), _MAX_BESIDE) - 2
        listings = [self._listing(names[beside], room) for beside in chunks(len(names), _MAX_BESIDE)]
        lines = [textwrap.fill(visible(line), WIDTH) for line in self._headlines()]
        return "\n".join([*lines, "\n\n".join(listing.as_text() for listing in listings)])

    def _repr_html_(self) -> str:
        title, note = self._headlines()
        return self._listing(list(self._first.answers)).as_html(title, [note])

    @property
    def title(self) -> str | None:
        """The title that was given to `backtest`, if any."""
        return self._first.title

    @property
    def _first(self) -> Backtest:
        return next(iter(self.results.values()))

    def _values(self) -> dict[str, FloatArray]:
        """Return an array of shape (rejectors, seeds) for each column of the summary."""
        summaries = [result.summary() for result in self.results.values()]
        return {key: np.transpose([s[key] for s in summaries]) for key in summaries[0] if key != "rejector"}

    def _headlines(self) -> tuple[str, str]:
        seeds = some([str(seed) for seed in self.results], 10)
        return (
            f"{len(self.results)} seeds ({seeds}): {headline(self._first)}",
            "mean over seeds ± half of its 95% interval (Student's t)",
        )

    def _listing(self, names: Sequence[str], room: int | None = None) -> Listing:
        values, all_names = self._values(), list(self._first.answers)
        own = [all_names.index(name) for name in names]
        rows = []
        for group, keys in shown_groups(self._first.pos_label).items():
            for key, text in keys.items():
                mean, half = mean_and_half(values[key][own])
                rows.append([f"{group} {text}".strip(), *map(_with_half, mean, half)])
        return Listing(["", *(name if room is None else shorten(name, room) for name in names)], rows)


def repeat(run: Callable[[int, Any], Backtest], seeds: Collection[Any], folder: Any) -> RepeatedBacktest:
    """Run a backtest once for each seed, each in its own subfolder of ``folder``, if any."""
    numbers = [index(seed) for seed in seeds]
    if len(set(numbers)) < max(2, len(numbers)):
        raise ValueError(f"random_state must be one seed or several different ones, not {list(seeds)!r}.")
    folders = [None if folder is None else Path(folder) / f"seed-{seed}" for seed in numbers]
    return RepeatedBacktest({seed: run(seed, own) for seed, own in zip(numbers, folders, strict=True)})


def _common_settings(result: Backtest) -> dict[str, Any]:
    """Return the settings that the runs of all seeds must share."""
    kept = ("train", "period", "pos_label", "chronological", "retrain", "unlabelled", "data")
    return {"rejectors": list(result.answers)} | {key: result.manifest.get(key) for key in kept}


def mean_and_half(values: FloatArray, level: float = _LEVEL) -> tuple[FloatArray, FloatArray]:
    """Return means over the last axis, and half the widths of their intervals."""
    n = values.shape[-1]
    error = values.std(axis=-1, ddof=1) / np.sqrt(n)
    return values.mean(axis=-1), student.ppf((1 + level) / 2, n - 1) * error


def _with_half(mean: float, half: float) -> str:
    return "–" if np.isnan(mean) else f"{figure(mean)} ± {figure(half, decimals(mean))}"
