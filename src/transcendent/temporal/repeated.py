"""A backtest repeated with several seeds: means of its figures, and how far chance moves them."""

import re
import textwrap
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from scipy.stats import t as student

from transcendent._utils.arrays import AnyArray, FloatArray
from transcendent._utils.extras import extra
from transcendent._utils.tables import Table, decimals, figure
from transcendent._utils.text import WIDTH, shorten, some, visible
from transcendent.temporal.result import Backtest, headline, shown_groups

_SEED = re.compile(r"seed-(-?\d+)")
_LEVEL = 0.95
_MOST_BESIDE = 4
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
        """Columns of the table with one row per rejector and column of `Backtest.summary`.

        ``mean`` is over the seeds, ``low`` and ``high`` are the ends of its 95% interval (Student's t). They
        say what chance in fitting and calibrating does; all seeds decide the same test objects. NaN where a
        figure is undefined for a seed.
        """
        values = self._values()
        mean, half = _mean_and_half(np.stack(list(values.values()), axis=1))
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
        if library not in ("pandas", "polars"):
            raise ValueError(f"frames are of 'pandas' or 'polars', not {library!r}.")
        return extra(library, "frames").DataFrame(self.summary())

    def to_latex(self) -> str:
        """Return means and intervals as a LaTeX table, for documents that use the package booktabs."""
        return self._shown(list(self._first.answers)).as_latex()

    @classmethod
    def load(cls, folder: Any) -> Self:
        """Read the runs of all seeds that `backtest` wrote into a folder."""
        numbers = sorted(int(name[1]) for p in Path(folder).iterdir() if (name := _SEED.fullmatch(p.name)))
        if len(numbers) < 2:
            raise FileNotFoundError(f"{folder} has no folders seed-0, seed-1, … of a repeated backtest.")
        for seed in numbers:
            if not (Path(folder) / f"seed-{seed}/manifest.json").exists():
                raise FileNotFoundError(f"{folder}/seed-{seed} holds no finished backtest.")
        results = {seed: Backtest.load(Path(folder) / f"seed-{seed}") for seed in numbers}
        runs = {seed: _what_was_run(result) for seed, result in results.items()}
        for seed, run in runs.items():
            if run != runs[numbers[0]]:
                raise ValueError(f"{folder}/seed-{seed} and seed-{numbers[0]} are of different backtests.")
        return cls(results)

    def __repr__(self) -> str:
        names = list(self._first.answers)
        room = (WIDTH - _ROOM_FOR_METRICS) // min(len(names), _MOST_BESIDE) - 2
        parts = [names[i : i + _MOST_BESIDE] for i in range(0, len(names), _MOST_BESIDE)]
        tables = "\n\n".join(self._shown(part, room).as_text() for part in parts)
        return "\n".join([*(textwrap.fill(visible(line), WIDTH) for line in self._said()), tables])

    def _repr_html_(self) -> str:
        title, note = self._said()
        return self._shown(list(self._first.answers)).as_html(title, [note])

    @property
    def _first(self) -> Backtest:
        return next(iter(self.results.values()))

    def _values(self) -> dict[str, FloatArray]:
        """Arrays of shape (rejectors, seeds), one for each column of the summary."""
        summaries = [result.summary() for result in self.results.values()]
        return {key: np.transpose([s[key] for s in summaries]) for key in summaries[0] if key != "rejector"}

    def _said(self) -> tuple[str, str]:
        seeds = some([str(seed) for seed in self.results], 10)
        return (
            f"{len(self.results)} seeds ({seeds}): {headline(self._first)}",
            "mean over seeds ± half of its 95% interval (Student's t)",
        )

    def _shown(self, names: Sequence[str], room: int | None = None) -> Table:
        values, all_names = self._values(), list(self._first.answers)
        own = [all_names.index(name) for name in names]
        rows = []
        for group, keys in shown_groups(self._first.pos_label).items():
            for key, text in keys.items():
                mean, half = _mean_and_half(values[key][own])
                rows.append([f"{group} {text}".strip(), *map(_with_half, mean, half)])
        return Table(["", *(name if room is None else shorten(name, room) for name in names)], rows)


def repeat(run: Callable[[int, Any], Backtest], seeds: Collection[Any], folder: Any) -> RepeatedBacktest:
    """Run a backtest once for each seed, in a subfolder of its own if there is a folder."""
    numbers = [index(seed) for seed in seeds]
    if len(set(numbers)) < max(2, len(numbers)):
        raise ValueError(f"random_state is one seed, or several that differ, not {list(seeds)!r}.")
    folders = [None if folder is None else Path(folder) / f"seed-{seed}" for seed in numbers]
    return RepeatedBacktest({seed: run(seed, own) for seed, own in zip(numbers, folders, strict=True)})


def _what_was_run(result: Backtest) -> dict[str, Any]:
    """What the runs of all seeds have in common."""
    kept = ("train", "period", "pos_label", "chronological", "retrain", "unlabelled", "data")
    return {"rejectors": list(result.answers)} | {key: result.manifest.get(key) for key in kept}


def _mean_and_half(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Means over the last axis, and half the widths of their intervals."""
    n = values.shape[-1]
    error = values.std(axis=-1, ddof=1) / np.sqrt(n)
    return values.mean(axis=-1), student.ppf((1 + _LEVEL) / 2, n - 1) * error


def _with_half(mean: float, half: float) -> str:
    return "–" if np.isnan(mean) else f"{figure(mean)} ± {figure(half, decimals(mean))}"
