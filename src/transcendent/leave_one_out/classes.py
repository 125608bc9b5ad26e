"""What several shortcuts share: rows in blocks, means and priors of classes, rows apart from others."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import BoolArray, FloatArray, IntArray, chunks, take_rows

_BLOCK = 1 << 20


def blocks(rows: Any) -> Iterator[tuple[slice, Any]]:
    """Consecutive rows, about a million entries at a time (of CSR rows, non-zero ones)."""
    width = rows.nnz // rows.shape[0] if sp.issparse(rows) else rows.shape[1]
    for cut in block_slices(rows.shape[0], width):
        yield cut, take_rows(rows, cut)


def dense_blocks(rows: Any) -> Iterator[tuple[slice, FloatArray]]:
    """Consecutive rows as dense arrays of about a million entries."""
    for cut in block_slices(*rows.shape):
        part = take_rows(rows, cut)
        yield cut, part.toarray() if sp.issparse(part) else part


def member_blocks(rows: FloatArray, members: IntArray) -> Iterator[FloatArray]:
    """The same of the dense rows at some positions."""
    for cut in block_slices(len(members), rows.shape[1]):
        yield rows[members[cut]]


def block_slices(n_rows: int, width: int) -> Iterator[slice]:
    """Slices of rows that hold about a million entries if each row holds ``width``."""
    return chunks(n_rows, max(1, _BLOCK // max(1, width)))


def mean_of(rows: FloatArray, members: IntArray) -> FloatArray:
    """Column means of the dense rows at some positions."""
    total = np.zeros(rows.shape[1])
    for part in member_blocks(rows, members):
        total += part.sum(axis=0)
    return total / len(members)


def left_out_log_priors(codes: IntArray, n_classes: int, given: Any = None) -> FloatArray:
    """(n, classes) logarithms of given priors, or of the shares of the classes among the other rows."""
    n = len(codes)
    priors = np.empty((n, n_classes))
    if given is not None:
        priors[:] = np.asarray(given, dtype=np.float64)
    else:
        priors[:] = np.bincount(codes, minlength=n_classes)
        priors[np.arange(n), codes] -= 1
        priors /= n - 1
    with np.errstate(divide="ignore"):
        return np.log(priors)


def unconnected(rows: Any) -> BoolArray:
    """Rows that share no column with another row.

    A linear model without an intercept that has not seen such a row gives it exactly 0: rounding must not
    choose its label.
    """
    shared = (rows != 0).sum(axis=0) > 1
    return np.asarray(abs(rows) @ np.ravel(shared).astype(np.float64) == 0)


def decision_values(scores: FloatArray) -> FloatArray:
    """What ``decision_function`` makes of a score per class."""
    return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores
