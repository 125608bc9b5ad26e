"""Runs of every seed, results as Markdown, and figures."""

import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from joblib import Parallel, delayed
from kept import CACHE

sys.path.append(str(Path(__file__).parents[1]))  # a script finds only modules beside itself
from intervals import half_width as half_width
from intervals import interval as interval

PAGE = Path(__file__).parents[2] / "docs/evidence/benchmarks.md"
AT_15 = {"errors caught": "caught_at_15", "F1 kept": "f1_kept_at_15", "AURC": "aurc"}


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def intervals(runs: list[dict[str, float]], keys: Iterable[str]) -> list[str]:
    """One cell per key, over the runs."""
    return [interval([run[key] for run in runs]) for key in keys]


def run_all(run: Callable[..., Any], tasks: list[Any], seeds: Iterable[int]) -> dict[Any, list[Any]]:
    """For each task, a tuple, what ``run(*task, seed)`` gave with every seed; two at once."""
    pairs = list(product(seeds, tasks))
    results = Parallel(n_jobs=2)(delayed(run)(*task, seed) for seed, task in pairs)
    found: dict[Any, list[Any]] = {}
    for (_, task), result in zip(pairs, results, strict=True):
        found.setdefault(task, []).append(result)
    return found


def collect(found: dict[str, list[Any]], results: dict[str, Any]) -> None:
    """Add each result to the list under its name."""
    for name, result in results.items():
        found.setdefault(name, []).append(result)


def save(fig: Any, name: str) -> None:
    """As SVG for the page, and as PNG to look at."""
    for ax in fig.axes:
        ax.spines[["top", "right"]].set_visible(False)
    fig.savefig(PAGE.parents[1] / f"images/{name}.svg", metadata={"Date": None})
    CACHE.mkdir(parents=True, exist_ok=True)
    fig.savefig(CACHE / f"{name}.png", dpi=110)
    plt.close(fig)
