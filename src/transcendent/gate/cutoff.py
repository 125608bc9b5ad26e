"""The cutoff that holds a gate to a budget: pure rules, without a database or a clock.

Gates count what they decide in intervals. From the intervals of the last window, and from what was over- or
underspent so far, the next cutoff is made.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np

from transcendent._utils.arrays import BoolArray, FloatArray, IntArray
from transcendent.decisions import Decisions
from transcendent.evaluators.budget import share_to_reject
from transcendent.gate.features import encode

MAX_SAMPLE = 4096
"""Limit on the ranks of an interval that are stored."""
OBJECTS = 400
"""Objects of all gates after which the cutoff moves before a second has passed."""
_START = 0.1  # share of a window up to which calibration objects stand in for objects that have not come yet


class Interval(NamedTuple):
    """Objects that a gate decided between two moves of its cutoff.

    ``ranks`` of shape (m, 2) are their ranks and second ranks in ascending order, or a sample of them.
    ``lag`` is the number of objects of all gates that were counted after the counts that the cutoff of these
    was made from. ``gate`` identifies the gate.
    """

    ranks: FloatArray
    decided: int
    rejected: int
    lag: int
    gate: UUID | None = None


class Cutoff(NamedTuple):
    """Rejects objects that rank below it, and a share of those that tie with it.

    If ``rank`` is None, all objects tie. ``decided`` and ``rejected`` are the counts that it was made from.
    """

    number: int
    rank: float | None
    second: float | None
    share: float
    decided: int = 0
    rejected: int = 0

    def rejects(
        self, ranking: FloatArray, second: FloatArray, draws_of: Callable[[IntArray], FloatArray]
    ) -> BoolArray:
        """Return which objects are rejected; ``draws_of`` returns the draws of those at some places."""
        below, tied = np.zeros(len(ranking), dtype=bool), np.ones(len(ranking), dtype=bool)
        if self.rank is not None and self.second is not None:
            same = ranking == self.rank
            below = (ranking < self.rank) | (same & (second < self.second))
            tied = same & (second == self.second)
        places = np.flatnonzero(tied)
        if self.share >= 1:
            below[places] = True
        elif self.share > 0 and len(places):
            below[places] = draws_of(places) < self.share
        return below


def draws(secret: bytes, contents: Iterable[bytes]) -> FloatArray:
    """Return a number in [0, 1) for the content of each object, which nobody can predict without the secret.

    It depends on nothing else: a sender cannot draw again by sending an object again, or by another id.
    """
    hashes = (hashlib.blake2b(each, key=secret, person=b"cutoff", digest_size=8) for each in contents)
    return np.array([(int.from_bytes(each.digest(), "big") >> 11) * 2.0**-53 for each in hashes])


def decide_by(cutoff: Cutoff, rows: Any, decisions: Decisions, secret: bytes) -> Decisions:
    """Return a rejector's decisions about rows, but with what the cutoff rejects."""
    rejected = cutoff.rejects(
        decisions.ranking, decisions.second_ranking, lambda places: draws(secret, encode(rows, places))
    )
    return replace(decisions, accepted=~rejected)


def sample_ranks(ranks: FloatArray) -> FloatArray:
    """Return pairs of ranks in ascending order; if they are many, evenly spaced ones."""
    order = np.lexsort((ranks[:, 1], ranks[:, 0]))
    if len(order) > MAX_SAMPLE:
        order = order[((np.arange(MAX_SAMPLE) + 0.5) * len(order) / MAX_SAMPLE).astype(int)]
    return np.asarray(ranks[order])


class Rule(NamedTuple):
    """A budget: the share to reject, and the number of last objects to compare with.

    ``before`` are the ranks of calibration objects, in place of objects that a new stream lacks.
    """

    rate: float
    window: int
    before: FloatArray


def next_cutoff(rule: Rule, last: Cutoff | None, intervals: Sequence[Interval]) -> tuple[Cutoff, int]:
    """Return the next cutoff, and the number of intervals that it was made from.

    ``intervals`` are given newest first: those that ``last`` was made from, and one more.
    """
    decided, rejected = (last.decided, last.rejected) if last else (0, 0)
    if intervals:
        decided, rejected = decided + intervals[0].decided, rejected + intervals[0].rejected
    size, samples, counts = _window(rule, intervals)
    used = min(len(samples), len(intervals))
    share = share_to_reject(rule.rate, size, decided, rejected)
    if not samples or share in (0, 1):
        return Cutoff(0, None, None, share, decided, rejected), used
    return Cutoff(0, *_quantile(share, samples, counts), decided, rejected), used


def objects_until_move(intervals: Iterable[Interval]) -> int:
    """Return the number of its own objects after which each gate that counted in the window moves."""
    return max(1, OBJECTS // max(1, len({each.gate for each in intervals})))


def _window(rule: Rule, intervals: Sequence[Interval]) -> tuple[int, list[FloatArray], list[int]]:
    """Return the size of the window, samples of ranks, and the number of objects that each stands for.

    The window is at least twice as long as the largest lag in it. A shorter one would be spent, and more than
    spent, before anything is counted: the cutoff would swing between all and nothing.
    """
    size, total, samples, counts = rule.window, 0, [], []
    for each in intervals:
        if total >= size:
            break
        size = max(size, 2 * each.lag)
        samples.append(each.ranks)
        counts.append(min(each.decided, size - total))
        total += counts[-1]
    if len(rule.before) and total < rule.window * _START:
        samples.append(rule.before)
        counts.append(math.ceil(rule.window * _START) - total)
    return size, samples, counts


def _quantile(
    share: float, samples: Sequence[FloatArray], counts: Sequence[int]
) -> tuple[float, float, float]:
    """Return the pair of ranks with a share of the objects below it, and the share of its ties to add."""
    sizes = [len(each) for each in samples]
    ranks = np.concatenate(samples)
    weights = np.repeat(np.divide(counts, sizes), sizes)
    order = np.lexsort((ranks[:, 1], ranks[:, 0]))
    ranks, weights = ranks[order], weights[order]
    reached = np.cumsum(weights)
    target = share * reached[-1]
    rank, second = ranks[min(int(np.searchsorted(reached, target)), len(ranks) - 1)]
    tied = (ranks[:, 0] == rank) & (ranks[:, 1] == second)
    below = weights[: int(np.argmax(tied))].sum()
    return float(rank), float(second), float(np.clip((target - below) / weights[tied].sum(), 0, 1))
