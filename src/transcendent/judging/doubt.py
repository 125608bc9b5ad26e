"""The kind of doubt about an answer, from the p-values of a combined measure's members."""

import numpy as np

from transcendent._utils.arrays import AnyArray, FloatArray
from transcendent.decisions import DOUBTS

_RARE = 0.05

_BETWEEN, _NOTHING_KNOWN, _DISAGREE = range(len(DOUBTS))


def kinds_of_doubt(p: FloatArray, absolute: tuple[int, ...]) -> AnyArray:
    """Return positions in ``DOUBTS``, given (n, classes, members) p-values.

    An object is like nothing known if, by a member that measures an absolute distance, every class has a
    p-value below 0.05. Opinions disagree if there is no class to which all other members give their highest
    p-value. All other doubt is between classes.
    """
    opinions = np.delete(p, absolute, axis=2) if absolute else p
    agree = np.any(np.all(opinions == opinions.max(axis=1, keepdims=True), axis=2), axis=1)
    doubts = np.where(agree, _BETWEEN, _DISAGREE).astype(np.int8)
    for member in absolute:
        doubts[p[:, :, member].max(axis=1) < _RARE] = _NOTHING_KNOWN
    return doubts
