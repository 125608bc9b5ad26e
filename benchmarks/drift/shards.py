"""What several databases lose to one, if each has a queue, a budget and a monitor of its own.

python benchmarks/drift/shards.py                    # about ten minutes
python benchmarks/drift/shards.py sizes budgets      # some of: sizes, budgets, queues, monitors

Objects are spread by a hash of their ids, which is as good as chance.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from alarms import TWO_CLASSES, calibrated, weakened
from gain import JUDGE, Decided, _since, measured
from rules import RATE, SEEDS, rules
from tables import collect, interval, markdown

from transcendent import StreamingBudget
from transcendent.monitoring import DriftMonitor

SHARDS = (1, 2, 8, 32)
A_DAY, PEAK, KEPT, DAYS = 500_000_000, 3, 0.15, 30
DECIDED, CONNECTION_INSERTS = 27_694, 100 / 12.8e-3
ITEM, IDENTITY, RANDOM_READS = 880, 154, 50_000
LOOKS = 100
QUIET, CHANGED, AT_ONCE = 20_000, 60_000, 500


def sizes() -> str:
    """From figures of two pages on operation: what each database has to hold and to write."""
    kept = A_DAY * KEPT
    rows = []
    for n in SHARDS:
        peak, held = kept * PEAK / 86_400 / n, kept * DAYS / n
        rows.append(
            [
                f"{n}",
                f"{peak:,.0f}",
                f"{peak / CONNECTION_INSERTS:.0%}",
                f"{held / 1e6:,.0f}",
                f"{held * ITEM / 1e9:,.0f}",
                f"{held * IDENTITY / 1e9:,.0f}",
                f"{peak / RANDOM_READS:.1%}",
            ]
        )
    gates = A_DAY * PEAK / 86_400 / DECIDED
    inputs = (
        f"{A_DAY:,} objects a day, {PEAK} times that at the peak, {KEPT:.0%} kept for {DAYS} days. Measured: "
        f"a gate decides {DECIDED:,} a second in batches of 100, a connection inserts "
        f"{CONNECTION_INSERTS:,.0f} items a second beside 11 million, an item takes {ITEM} bytes with its "
        f"event and content, {IDENTITY} "
        f"of them its identity. Given: a disk reads {RANDOM_READS:,} pages a second. So {gates:.1f} gates "
        "are busy at the peak."
    )
    head = ["databases", "items a second, at the peak, each", "of one connection", "million items, each"]
    return f"{inputs}\n\n{markdown([*head, 'GB', 'of them identities', 'page reads, of a disk'], rows)}"


def budgets() -> str:
    """A budget on arrival for each shard, and one for all."""
    found: dict[str, list[Any]] = {}
    for seed in SEEDS:
        result = _since(rules("raw", seed))
        for n in SHARDS:
            kept = np.empty(len(result.y))
            shard = _shards(len(result.y), n, seed)
            for own in (np.flatnonzero(shard == number) for number in range(n)):
                stream = StreamingBudget(Decided(), rate=RATE).fit(None, None)
                kept[own] = stream.decide(result.answers[JUDGE][own]).accepted
            collect(
                found, {f"{n}": measured(result, JUDGE, kept, slice(None)) | {"rejected": 1 - kept.mean()}}
            )
    keys = {"rejected": "rejected", "caught": "errors caught", "f1": "F1 kept", "malware": "malware rejected"}
    rows = [[n, *(interval([run[key] for run in runs]) for key in keys)] for n, runs in found.items()]
    return markdown(["budgets", *keys.values()], rows)


def queues() -> str:
    """The looks of a month go to the least trusted of all, or to those of each shard in equal shares."""
    found: dict[str, list[float]] = {}
    for seed in SEEDS:
        result = _since(rules("raw", seed))
        answers = result.answers[JUDGE]
        wrong = answers.labels != result.y
        for n in SHARDS:
            shard = _shards(len(result.y), n, seed)
            seen = []
            for period in range(len(result.periods)):
                for number in range(n):
                    own = np.flatnonzero((result.period == period) & (shard == number))
                    share = LOOKS // n + (number < LOOKS % n)
                    seen.append(own[np.argsort(answers.credibility[own], kind="stable")[:share]])
            looked = np.concatenate(seen)
            collect(found, {f"{n}": float(wrong[looked].sum() / wrong.sum())})
    return markdown(
        ["queues", f"errors found by {LOOKS} looks a month"], [[n, interval(of)] for n, of in found.items()]
    )


def monitors() -> str:
    """An alarm if one of n monitors has n times the evidence that one would need."""
    rows = []
    for n in SHARDS:
        delays, false, runs = [], 0, 40
        for run in range(runs):
            at = _alarm(n, run)
            false += 0 < at <= QUIET
            if at > QUIET:
                delays.append(at - QUIET)
        middle = f"{np.median(delays):,.0f}" if delays else "–"
        missed = runs - false - len(delays)
        rows.append([f"{n}", f"{false / runs:.3f}", middle, f"{missed / runs:.3f}"])
    return markdown(["monitors", "false alarms", "objects of all to the alarm, median", "missed"], rows)


def _alarm(n: int, seed: int) -> int:
    """After how many objects of all shards the first alarm is raised; 0 if never."""
    generator = np.random.default_rng((seed, n))
    judge = calibrated(generator)
    answers, y = TWO_CLASSES.objects(generator, QUIET + CHANGED)
    answers = weakened(answers, y, np.arange(len(y)) >= QUIET)
    watching = [DriftMonitor.of(judge, threshold=100 * n, random_state=(seed * 100 + i)) for i in range(n)]
    shard = generator.integers(n, size=len(y))
    for start in range(0, len(y), AT_ONCE):
        block = np.arange(start, start + AT_ONCE)
        for number, monitor in enumerate(watching):
            own = block[shard[block] == number]
            if len(own):
                monitor.update(answers[own])
        if any(monitor.alarm is not None for monitor in watching):
            return start + AT_ONCE
    return 0


def _shards(objects: int, n: int, seed: int) -> Any:
    return np.random.default_rng((seed, n)).integers(n, size=objects)


SECTIONS: tuple[Callable[[], str], ...] = (sizes, budgets, queues, monitors)

if __name__ == "__main__":
    known = {section.__name__: section for section in SECTIONS}
    for wanted in sys.argv[1:] or known:
        print(f"{wanted}\n\n{known[wanted]()}\n", flush=True)
