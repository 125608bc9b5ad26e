"""P-values that are independent and uniform as long as objects are exchangeable with calibration."""

from typing import Any, NamedTuple

import numpy as np

from transcendent._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray, chunks

_LEVELS = 1000
_BLOCK = 128  # so that counts within a block fit into a byte
_SALT = 2026  # so that ties are not broken by numbers that made the data
_EARLIER = np.tri(_BLOCK, k=-1, dtype=bool)


def to_levels(credibility: FloatArray) -> IntArray:
    """Return credibility as whole numbers from 0 to 1000, so that counts of them take little memory."""
    return np.floor(credibility * _LEVELS).astype(np.intp)


class PValueStream(NamedTuple):
    """Ranks every object among the calibration objects and all earlier ones with the same predicted label.

    The bag grows with the stream: only then are the p-values independent. Ties are broken at random.

    Attributes
    ----------
    counts : int array of shape (classes, levels)
        How many objects there were of each predicted label and level; lower is stranger.
    generator : Generator
        Breaks ties.
    """

    counts: IntArray
    generator: np.random.Generator

    @classmethod
    def of(cls, codes: IntArray, levels: IntArray, n_classes: int, seed: int) -> "PValueStream":
        """Start with calibration objects: predicted labels, as positions in the classes, and levels."""
        counts = np.zeros((n_classes, _LEVELS + 1), dtype=np.int64)
        np.add.at(counts, (codes, levels), 1)
        return cls(counts, np.random.default_rng([_SALT, seed]))

    def update(self, codes: IntArray, levels: IntArray) -> FloatArray:
        """Return the p-values of new objects, in order of arrival, and take them in."""
        p, uniforms = np.empty(len(codes)), self.generator.random(len(codes))
        for code, counts in enumerate(self.counts):
            own = np.flatnonzero(codes == code)
            for some in (own[rows] for rows in chunks(len(own), _BLOCK)):
                p[some] = _take_in(counts, levels[some], uniforms[some])
        return p

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain numbers and text."""
        state = self.generator.bit_generator.state
        return {"counts": self.counts.tolist(), "generator": _in_text(state)}

    def resumed(self, state: dict[str, Any], n: int) -> "PValueStream":
        """Return the stream that had this state after n objects, and started as this one did."""
        counts = np.array(state["counts"])
        is_count = counts.shape == self.counts.shape and counts.dtype.kind == "i"
        if (
            not is_count
            or np.any(counts < self.counts)
            or sum(map(int, counts.ravel() - self.counts.ravel())) != n
        ):
            raise ValueError("this state is damaged: its counts are not those of these classes.")
        generator = np.random.default_rng(0)
        generator.bit_generator.state = _from_text(state["generator"])
        return PValueStream(counts.astype(np.int64), generator)


def _take_in(counts: IntArray, levels: IntArray, uniforms: FloatArray) -> FloatArray:
    """Return the p-values of a block of objects with one label, and count them."""
    up_to, equal = counts.cumsum(), counts[levels]
    stranger, total = up_to[levels] - equal, up_to[-1] + np.arange(len(levels))
    level, earlier = levels.astype(np.int16), _EARLIER[: len(levels), : len(levels)]
    stranger += _count(earlier & (level < level[:, None]))
    equal += _count(earlier & (level == level[:, None]))
    np.add.at(counts, levels, 1)
    return np.asarray((stranger + uniforms * (equal + 1)) / (total + 1))


def _count(which: BoolArray) -> AnyArray:
    """Return how many are true in each row."""
    return np.asarray(np.add.reduce(which.view(np.uint8), axis=1, dtype=np.uint8))


def _in_text(state: Any) -> Any:
    """Return the state with whole numbers as text: other readers of JSON would round the long ones."""
    if isinstance(state, dict):
        return {key: _in_text(value) for key, value in state.items()}
    return str(state) if isinstance(state, int) else state


def _from_text(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: value if key == "bit_generator" else _from_text(value) for key, value in state.items()}
    if type(state) is not str or not state.isdecimal():
        raise ValueError(f"this state is damaged: its generator holds {state!r:.40}.")
    return int(state)
