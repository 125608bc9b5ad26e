"""P-values that are independent and uniform as long as objects are exchangeable with calibration."""

from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np

from transcendent._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray, chunks
from transcendent.monitoring.state import check

_LEVELS = 1000
N_LEVELS = _LEVELS + 1
_BLOCK = 128  # counts within a block fit into a byte
_SALT = 2026  # ties are not broken by the random numbers that made data with the same seed
_EARLIER = np.tri(_BLOCK, k=-1, dtype=bool)


def to_levels(credibility: FloatArray) -> IntArray:
    """Return credibility as integers from 0 to 1000, whose counts need little memory."""
    return np.floor(credibility * _LEVELS).astype(np.intp)


class PValueStream(NamedTuple):
    """The rank of every object among the calibration and earlier objects with the same predicted label.

    The bag grows with the stream: only then are the p-values independent. Ties are broken at random.
    ``counts`` has the number of objects of each predicted label (row) and level (column; lower is stranger).
    """

    counts: IntArray
    bits: np.random.PCG64

    @classmethod
    def of(cls, codes: IntArray, levels: IntArray, n_classes: int, seed: int) -> "PValueStream":
        """Start with calibration objects: predicted labels, as positions in the classes, and levels."""
        counts = np.zeros((n_classes, N_LEVELS), dtype=np.int64)
        np.add.at(counts, (codes, levels), 1)
        return cls(counts, np.random.PCG64([_SALT, seed]))

    def update(self, codes: IntArray, levels: IntArray) -> FloatArray:
        """Return the p-values of new objects, in order of arrival, and add them to the counts."""
        p, uniforms = np.empty(len(codes)), np.random.Generator(self.bits).random(len(codes))
        for code, counts in enumerate(self.counts):
            own = np.flatnonzero(codes == code)
            for some in (own[rows] for rows in chunks(len(own), _BLOCK)):
                p[some] = _rank(counts, levels[some], uniforms[some])
        return p

    def resumed(self, state: Any, n: int) -> "PValueStream":
        """Return this new stream as it is after n objects, given its counts as lists."""
        counts = np.array(state)
        fits = counts.shape == self.counts.shape and counts.dtype.kind == "i"
        grown = fits and np.all(counts >= self.counts)
        added = sum((counts - self.counts).ravel().tolist()) if grown else -1  # int64 could overflow
        check(added == n, "its counts are not those of these classes")
        # Each object has drawn one random number, so their number is the position of the generator.
        return PValueStream(counts.astype(np.int64), deepcopy(self.bits).advance(n))


def _rank(counts: IntArray, levels: IntArray, uniforms: FloatArray) -> FloatArray:
    """Return the p-values of a block of objects with one label, and add them to its counts."""
    up_to, equal = counts.cumsum(), counts[levels]
    stranger, total = up_to[levels] - equal, up_to[-1] + np.arange(len(levels))
    level, earlier = levels.astype(np.int16), _EARLIER[: len(levels), : len(levels)]
    stranger += _count(earlier & (level < level[:, None]))
    equal += _count(earlier & (level == level[:, None]))
    np.add.at(counts, levels, 1)
    return np.asarray((stranger + uniforms * (equal + 1)) / (total + 1))


def _count(mask: BoolArray) -> AnyArray:
    """Return the number of true values in each row."""
    return np.asarray(np.add.reduce(mask.view(np.uint8), axis=1, dtype=np.uint8))
