"""Replay two years of Android apps through gates that share a budget's cutoff, beside a `StreamingBudget`.

TRANSCENDENT_DATA=... python benchmarks/gate/cutoff.py [--answers FILE.npz]

The rejector is the recommended one, fitted on 2012: a LinearSVC with ``measure="drift"``, held to 15%. The
apps of 2013 and 2014 come in the order of months; the order within a month is drawn. A gate moves the cutoff
after a number of objects of all gates; until then it decides by the one that it has. Each is also replayed
with three gates, and with one of them killed at every tenth move, before its counts are stored; and with
three and ten gates that move after their own objects, as many as the gates in the window say. Then ten
times as many apps come in a month, since 30,000 of the others are half a year. Last, the first 20,000 apps
are followed by a sample of them with twice as many of the least trusted.

``--answers`` stores what the rejector says about the apps, or reads it if the file exists.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.svm import LinearSVC

sys.path.append(str(Path(__file__).parents[2]))  # the replay is part of the tests

from tests.gate.replay import replay
from transcendent import InductiveEvaluator, StreamingBudget
from transcendent.datasets import load_apigraph
from transcendent.gate.cutoff import Rule, draws
from transcendent.gate.features import encode
from transcendent.gate.model import calibration_ranks

SEED, RATE, WINDOW, BLOCK, DAY, TIMES = 0, 0.15, 2000, 2000, 20_000, 10


def answers() -> dict[str, Any]:
    """Fit on 2012, and decide the apps of 2013 and 2014 in order."""
    apps = load_apigraph()
    years = apps.times.astype("datetime64[Y]").astype(int) + 1970
    ice = InductiveEvaluator(LinearSVC(C=0.1, random_state=SEED), measure="drift", random_state=SEED)
    ice.fit(apps.X[years == 2012], apps.y[years == 2012])
    rows = np.flatnonzero((years == 2013) | (years == 2014))
    order = np.random.default_rng(SEED).permutation(len(rows))
    rows = rows[order[np.argsort(apps.times[rows][order], kind="stable")]]
    said = ice.decide(apps.X[rows])
    return {
        "ranks": np.column_stack([said.ranking, said.second_ranking]),
        "wrong": said.labels != apps.y[rows],
        "draws": draws(b"secret", encode(apps.X[rows])),
        "before": calibration_ranks(ice),
        "months": apps.times[rows].astype("datetime64[M]").astype(int),
    }


def stream(ranks: Any) -> Any:
    """Return which objects a `StreamingBudget` rejects."""
    budget = StreamingBudget(None, rate=RATE, window=WINDOW)
    budget._start()
    return budget._rejected(ranks, len(ranks))


def shares(rejected: Any) -> Any:
    """Return the share rejected of every block of objects."""
    whole = len(rejected) // BLOCK * BLOCK
    return rejected[:whole].reshape(-1, BLOCK).mean(axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--answers", type=Path, help="file of the rejector's answers")
    file = parser.parse_args().answers
    found = dict(np.load(file)) if file and file.exists() else answers()
    if file and not file.exists():
        np.savez(file, **found)
    ranks, wrong, drawn = found["ranks"], found["wrong"], found["draws"]
    rule, like = Rule(RATE, WINDOW, found["before"]), stream(ranks)
    print(f"{len(ranks):,} apps, {wrong.mean():.1%} of the answers wrong; a budget of {RATE:.0%}\n")
    print(f"{'':32} {'rejected':>8} {'least':>8} {'most':>8} {'caught':>8} {'as stream':>10}")
    show("StreamingBudget", like, wrong, like)
    for every in (100, 400, 5000, 30000):
        show(f"1 gate, every {every:,}", replay(rule, ranks, drawn, every), wrong, like)
        for name, killed in (("3 gates", ()), ("one of 3 killed", range(4, 10**6, 10))):
            show(f"{name}, every {every:,}", replay(rule, ranks, drawn, every, 3, killed), wrong, like)
    for gates in (3, 10):
        show(f"{gates} gates, by their own counts", replay(rule, ranks, drawn, None, gates), wrong, like)
    rows = more_often(found["months"])
    print(f"\n{len(rows):,} apps\n")
    for every in (400, 5000, 30000):
        for name, gates in (("1 gate", 1), ("3 gates", 3)):
            show(
                f"{name}, every {every:,}", replay(rule, ranks[rows], drawn[rows], every, gates), wrong[rows]
            )
    overnight(rule, ranks, drawn)


def show(name: str, rejected: Any, wrong: Any, like: Any = None) -> None:
    """Print shares of the objects, of the blocks with the least and the most, and of the errors."""
    blocks = shares(rejected)
    same = "" if like is None else f"{(rejected == like).mean():10.2%}"
    print(
        f"{name:32} {rejected.mean():8.2%} {blocks.min():8.1%} {blocks.max():8.1%} "
        f"{rejected[wrong].mean():8.3f} {same}"
    )


def more_often(months: Any) -> Any:
    """Return rows of ten times as many apps: those of each month, drawn with replacement."""
    generator = np.random.default_rng(SEED)
    rows = (np.flatnonzero(months == month) for month in np.unique(months))
    return np.concatenate([generator.choice(each, TIMES * len(each)) for each in rows])


def overnight(rule: Rule, ranks: Any, drawn: Any) -> None:
    """Print the blocks before and after a night that doubles the share of doubtful objects."""
    order = np.lexsort(ranks[:DAY].T[::-1])
    doubtful, others = np.split(order, [int(RATE * DAY)])
    generator = np.random.default_rng(SEED)
    doubted = generator.random(DAY) < 2 * RATE
    later = np.where(doubted, generator.choice(doubtful, DAY), generator.choice(others, DAY))
    rows = np.concatenate([np.arange(DAY), later])
    print(f"\nOvernight from {RATE:.0%} to {2 * RATE:.0%} doubtful: shares of blocks of {BLOCK:,} since\n")
    for every in (400, 5000):
        rejected = replay(rule, ranks[rows], drawn[rows], every)[DAY:]
        over = np.cumsum(rejected) - RATE * np.arange(1, DAY + 1)
        blocks = " ".join(f"{share:.1%}" for share in shares(rejected))
        print(f"every {every:,}: {blocks}; at most {over.max():.0f} objects over the budget")


if __name__ == "__main__":
    main()
