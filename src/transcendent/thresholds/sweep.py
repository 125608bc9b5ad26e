"""The inner maximisations of the exact search, on integer gains per candidate threshold."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from transcendent._utils.arrays import AnyArray, FloatArray

_NONE = np.iinfo(np.int64).min


class Pair(NamedTuple):
    """The best candidates of two classes, and what they gain together."""

    gain: int
    first: int
    second: int


@dataclass(frozen=True)
class PairLimits:
    """Which candidates of two classes may go together.

    With candidate i of the first class, the second may take candidates up to ``last[i]`` (constraints that
    only get harder with higher thresholds), and of these only such with ``worth[j] >= least[i]`` (the one
    constraint that is not so).
    """

    last: AnyArray
    least: AnyArray | None = None
    worth: AnyArray | None = None

    @classmethod
    def of(
        cls,
        needs: Sequence[tuple[AnyArray, AnyArray]],
        monotone: Sequence[bool],
        required: Sequence[int],
        sizes: tuple[int, int],
    ) -> "PairLimits":
        """From constraints ``first[i] + second[j] >= required``."""
        last = np.full(sizes[0], sizes[1] - 1)
        least = worth = None
        for (first, second), falls, amount in zip(needs, monotone, required, strict=True):
            if falls:
                last = np.minimum(last, np.searchsorted(-second, first - amount, side="right") - 1)
            else:
                least, worth = amount - first, second
        return cls(last, least, worth)


def best_pair(
    gain_first: AnyArray, gain_second: AnyArray, limits: PairLimits, kept: tuple[AnyArray, AnyArray]
) -> Pair | None:
    """Maximise the sum of gains, among equals (without ``worth``) keep most; None if nothing is allowed."""
    if limits.least is not None and limits.worth is not None:
        reached = prefix_maxima(gain_second, limits.worth, limits.last + 1, limits.least)
    else:
        running = np.maximum.accumulate(gain_second)
        reached = np.where(limits.last >= 0, running[limits.last], _NONE)
    total = np.where(reached != _NONE, gain_first + reached, _NONE)
    best = int(total.max())
    if best == _NONE:
        return None
    ties = np.flatnonzero(total == best)
    if limits.worth is None:
        seconds = np.searchsorted(running, reached[ties])
        pick = int(np.argmax(kept[0][ties] + kept[1][seconds]))
        return Pair(best, int(ties[pick]), int(seconds[pick]))
    first = int(ties[np.argmax(kept[0][ties])])
    return Pair(best, first, _second_of(first, gain_second, int(reached[first]), limits))


def _second_of(first: int, gains: AnyArray, wanted: int, limits: PairLimits) -> int:
    """The lowest allowed candidate of the second class that gains as much as wanted."""
    assert limits.least is not None
    assert limits.worth is not None
    stop = int(limits.last[first]) + 1
    fits = (gains[:stop] == wanted) & (limits.worth[:stop] >= limits.least[first])
    return int(np.argmax(fits))


def prefix_maxima(gains: AnyArray, worth: AnyArray, lengths: AnyArray, least: AnyArray) -> AnyArray:
    """For each query, the largest of the first ``length`` gains whose worth is at least ``least``.

    A prefix is cut into blocks of sizes that are powers of two; in each block the entries are sorted by
    worth and carry a running maximum of their gains. O((n + queries) log² n), all in NumPy.
    """
    n = len(gains)
    depth = int(np.ceil(np.log2(n))) if n > 1 else 0
    size = 1 << depth
    lengths = np.where(lengths == n, size, lengths)  # the padding below is never worth anything
    ranks, needed = _ranks(worth, least)
    n_ranks = int(ranks.max()) + 2
    ranks = np.concatenate([ranks, np.full(size - n, n_ranks - 1)])
    gains = np.concatenate([gains, np.full(size - n, _NONE)])
    by_rank = np.argsort(ranks, kind="stable")
    out = np.full(len(lengths), _NONE)
    for level in range(depth + 1):
        queries = np.flatnonzero(lengths >> level & 1)
        if len(queries) == 0:
            continue
        order = by_rank[np.argsort(by_rank >> level, kind="stable")]
        running = np.maximum.accumulate(gains[order].reshape(-1, 1 << level), axis=1).ravel()
        keys = (order >> level) * n_ranks + ranks[order]
        block = (lengths[queries] >> level) - 1
        position = np.searchsorted(keys, block * n_ranks + needed[queries]) - 1
        inside = position >= block << level
        hits = queries[inside]
        out[hits] = np.maximum(out[hits], running[position[inside]])
    return out


def _ranks(worth: AnyArray, least: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Ranks of worth from the highest down, and for each query how many ranks are worth enough."""
    distinct, inverse = np.unique(-worth, return_inverse=True)
    return inverse, np.searchsorted(distinct, -least, side="right")


@dataclass(frozen=True)
class Relaxation:
    """No choice reaches more than ``bound``; the choices met on the way, each allowed by the constraint."""

    bound: float
    choices: list[list[int]]


def relax(
    numerators: Sequence[AnyArray], denominators: Sequence[AnyArray], need: Sequence[AnyArray]
) -> Relaxation | None:
    """Bound Σ numerator / Σ denominator over one candidate per class with Σ need ≥ 1; None if impossible.

    The constraint moves into the objective with a multiplier, so that classes become independent;
    Dinkelbach's iteration then runs on mixtures of two choices, which can only do better than the truth.
    """
    if sum(int(column.max()) for column in need) < 1:
        return None
    ratio, choices, excess = -1.0, [], np.inf
    for _ in range(100):
        gains = [n - ratio * d for n, d in zip(numerators, denominators, strict=True)]
        ends, excess = _multiplier(gains, need)
        choices.append(ends[0].choice)
        n, d = _mixture(ends, numerators), _mixture(ends, denominators)
        if d <= 0 and ratio < 0:
            return None  # λ = −1 maximises N + D: nothing is defined
        if d <= 0 or n / d <= ratio:
            break
        ratio = n / d
    return Relaxation(ratio + max(excess, 0.0), choices)


@dataclass(frozen=True)
class _End:
    """What the classes choose on their own at one multiplier, and how much they exceed the need by."""

    choice: list[int]
    excess: float
    weight: float = 1.0


def _multiplier(gains: Sequence[FloatArray], need: Sequence[AnyArray]) -> tuple[list[_End], float]:
    """The tightest multiplier: the choices on both sides of it, mixed to meet the need, and their value."""
    free = _choose(gains, need, 0.0)
    if free.excess >= 0:
        return [free], _value(gains, need, 0.0)
    low, high = 0.0, 1.0
    while _choose(gains, need, high).excess < 0:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if _choose(gains, need, middle).excess < 0:
            low = middle
        else:
            high = middle
    above, below = _choose(gains, need, high), _choose(gains, need, low)
    share = above.excess / (above.excess - below.excess)
    ends = [_End(above.choice, above.excess, 1 - share), _End(below.choice, below.excess, share)]
    return ends, min(_value(gains, need, low), _value(gains, need, high))


def _choose(gains: Sequence[FloatArray], need: Sequence[AnyArray], multiplier: float) -> _End:
    choice = [int(np.argmax(g + multiplier * h)) for g, h in zip(gains, need, strict=True)]
    return _End(choice, sum(int(h[j]) for h, j in zip(need, choice, strict=True)) - 1)


def _value(gains: Sequence[FloatArray], need: Sequence[AnyArray], multiplier: float) -> float:
    best = sum(float(np.max(g + multiplier * h)) for g, h in zip(gains, need, strict=True))
    return best - multiplier


def _mixture(ends: Sequence[_End], columns: Sequence[AnyArray]) -> float:
    return sum(
        end.weight * sum(int(column[j]) for column, j in zip(columns, end.choice, strict=True))
        for end in ends
    )
