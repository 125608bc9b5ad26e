"""The inner maximisations of the exact search, over the integer gain of each candidate threshold."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from transcendent._utils.arrays import AnyArray, FloatArray

_NONE = np.iinfo(np.int64).min


class Pair(NamedTuple):
    """The best candidates of two classes, and the sum of their gains."""

    gain: int
    first: int
    second: int


@dataclass(frozen=True)
class PairLimits:
    """Which candidates of two classes are allowed together.

    Candidate i of the first class allows the candidates of the second up to ``last[i]``, by the constraints
    that only get harder with higher thresholds. The one other constraint, if there is one, gives ``least``
    and ``worth``: candidate j must have ``worth[j] >= least[i]``.
    """

    last: AnyArray
    other: tuple[AnyArray, AnyArray] | None


def best_pair(
    gain_first: AnyArray, gain_second: AnyArray, limits: PairLimits, kept: tuple[AnyArray, AnyArray]
) -> Pair | None:
    """Return the pair with the largest sum of gains, or None if no pair is allowed.

    Without an ``other`` constraint, ties go to the pair that keeps most.
    """
    running = np.maximum.accumulate(gain_second)
    if limits.other is None:
        reached = np.where(limits.last >= 0, running[limits.last], _NONE)
    else:
        least, worth = limits.other
        reached = prefix_maxima(gain_second, worth, limits.last + 1, least)
    summed = np.where(reached != _NONE, gain_first + reached, _NONE)
    best = int(summed.max())
    if best == _NONE:
        return None
    ties = np.flatnonzero(summed == best)
    if limits.other is None:
        seconds = np.searchsorted(running, reached[ties])
        pick = int(np.argmax(kept[0][ties] + kept[1][seconds]))
        return Pair(best, int(ties[pick]), int(seconds[pick]))
    first = int(ties[np.argmax(kept[0][ties])])
    allowed = slice(int(limits.last[first]) + 1)
    fits = (gain_second[allowed] == reached[first]) & (worth[allowed] >= least[first])
    return Pair(best, first, int(np.argmax(fits)))


def prefix_maxima(gains: AnyArray, worth: AnyArray, lengths: AnyArray, least: AnyArray) -> AnyArray:
    """Return for each query the largest of the first ``length`` gains whose worth is at least ``least``.

    A prefix is a sequence of blocks whose sizes are powers of two. In each block the entries are sorted by
    worth, with a running maximum of their gains, so a block costs one binary search. All queries together
    take O((n + queries) log² n).
    """
    n = len(gains)
    depth = int(np.ceil(np.log2(n))) if n > 1 else 0
    size = 1 << depth
    lengths = np.where(lengths == n, size, lengths)  # the padding below has the lowest worth
    distinct, ranks = np.unique(-worth, return_inverse=True)  # from the highest down
    needed = np.searchsorted(distinct, -least, side="right")
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


def relax(
    numerators: Sequence[AnyArray], denominators: Sequence[AnyArray], need: Sequence[AnyArray]
) -> tuple[float, list[list[int]]] | None:
    """Bound Σ numerator / Σ denominator over one candidate per class with Σ need ≥ 1; None if impossible.

    A Lagrange multiplier moves the constraint into the objective, so that each class is maximised on its own.
    Dinkelbach's iteration then runs on mixtures of two choices. The best mixture is at least as good as the
    best choice: hence the bound. Choices met on the way, all of them allowed, are returned too.
    """
    if sum(int(column.max()) for column in need) < 1:
        return None
    ratio, choices, excess = -1.0, [], np.inf
    for _ in range(100):
        gains = [n - ratio * d for n, d in zip(numerators, denominators, strict=True)]
        ends, excess = _multiplier(gains, need)
        choices.append(ends[0][1])
        n, d = (
            sum(weight * total(columns, chosen) for weight, chosen in ends)
            for columns in (numerators, denominators)
        )
        if d <= 0 and ratio < 0:
            return None  # at λ = −1 the gain is N + D: its maximum is 0 only if all are 0/0
        if d <= 0 or n / d <= ratio:
            break
        ratio = n / d
    return ratio + max(excess, 0.0), choices


def _multiplier(
    gains: Sequence[FloatArray], need: Sequence[AnyArray]
) -> tuple[list[tuple[float, list[int]]], float]:
    """Find the tightest multiplier by bisection.

    Return the choices on both sides of it, with the weights at which their mixture just meets the need, and
    an upper bound of the gain.
    """
    free = _choose(gains, need, 0.0)
    if free.excess >= 0:
        return [(1.0, free.chosen)], free.value
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
    return [(1 - share, above.chosen), (share, below.chosen)], min(below.value, above.value)


class _Choice(NamedTuple):
    """The best candidate of each class at one multiplier, their sum of ``need`` less 1, and their value."""

    chosen: list[int]
    excess: int
    value: float


def _choose(gains: Sequence[FloatArray], need: Sequence[AnyArray], multiplier: float) -> _Choice:
    penalised = [g + multiplier * h for g, h in zip(gains, need, strict=True)]
    chosen = [int(np.argmax(column)) for column in penalised]
    best = sum(float(column[j]) for column, j in zip(penalised, chosen, strict=True))
    return _Choice(chosen, total(need, chosen) - 1, best - multiplier)


def total(columns: Sequence[AnyArray], chosen: Sequence[int]) -> int:
    """Return the sum over classes of one entry of each column."""
    return sum(int(column[j]) for column, j in zip(columns, chosen, strict=True))
