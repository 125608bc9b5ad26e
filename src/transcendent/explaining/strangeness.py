"""The values of an object that set it apart from its nearest accepted neighbours."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import log_ndtr

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, chunks, is_missing, take_column
from transcendent.explaining.variants import dense_columns, differing, usual_row, variants

Scores = Callable[[Any], FloatArray]
"""How strange rows are for a label; higher = stranger."""

_CELLS = 1 << 22
_LEAST_BITS = 2.0  # a chance of one in four


class Strange(NamedTuple):
    """A column with an unusual value.

    ``n_alike`` is the number of neighbours whose value is as far from the usual one, or the same text.
    ``effect`` is by how much the score would fall with the usual value, None if there is no score.
    """

    column: int
    n_alike: int
    effect: float | None


def strange_columns(
    row: Any, near: Any, scores: Scores | None, deviations: Mapping[int, float], n: int
) -> tuple[list[Strange], Any]:
    """Return the ``n`` columns with the most unexpected values, and the usual row of the neighbours.

    The most unexpected come first; among equally unexpected ones, those that make the object strangest.
    ``deviations`` has the numbers of standard deviations by which values are off. Where there is none, it
    counts how many neighbours share the value.
    """
    usual, k = usual_row(near), near.shape[0]
    columns = differing(row, usual)
    alike = _count_alike(row, usual, near, columns)
    bits = -np.log2((alike + 0.5) / (k + 1))
    for place, column in enumerate(columns.tolist()):
        if column in deviations:
            bits[place] = -(np.log(2) + log_ndtr(-deviations[column])) / np.log(2)
    # Effects take long, so they are found only of the first n and of those that tie with them.
    unusual = bits >= max(_LEAST_BITS, np.sort(bits)[-n:].min(initial=np.inf))
    columns, alike, bits = columns[unusual], alike[unusual], bits[unusual]
    effects = None if scores is None else _effects(row, usual, columns, scores)
    order = np.lexsort((-bits,) if effects is None else (-effects, -bits))
    found = [
        Strange(int(columns[j]), int(alike[j]), None if effects is None else float(effects[j]))
        for j in order[:n]
    ]
    return found, usual


def _effects(row: Any, usual: Any, columns: IntArray, scores: Scores) -> FloatArray:
    groups = [columns[:0], *columns[:, None]]
    cuts = chunks(len(groups), max(1, _CELLS // row.shape[1]))
    own, *replaced = np.concatenate([scores(variants(row, usual, groups[cut])) for cut in cuts])
    return np.asarray(own - np.array(replaced), dtype=np.float64)


def _count_alike(row: Any, usual: Any, near: Any, columns: IntArray) -> IntArray:
    """Return how many neighbours have the value of a row in each column, or one as far from the usual one."""
    if sp.issparse(row):
        own, middle = (dense_columns(each, columns)[0] for each in (row, usual))
        return _as_far(dense_columns(near, columns), own, middle)
    return np.array(
        [_alike(*(take_column(rows, j) for rows in (row, usual, near))) for j in columns], np.intp
    )


def _alike(own: AnyArray, usual: AnyArray, near: AnyArray) -> int:
    value, middle = own[0], usual[0]
    if near.dtype.kind in "biuf" and not is_missing(value) and not is_missing(middle):
        return int(_as_far(near.astype(np.float64)[:, None], np.array([float(value)]), float(middle))[0])
    if is_missing(value):
        return sum(map(is_missing, near.tolist()))
    return sum(not is_missing(other) and other == value for other in near.tolist())


def _as_far(near: FloatArray, own: FloatArray, middle: Any) -> IntArray:
    return np.asarray(np.sum(np.abs(near - middle) >= np.abs(own - middle), axis=0), dtype=np.intp)
