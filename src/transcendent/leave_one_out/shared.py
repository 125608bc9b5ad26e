"""Helpers of the shortcuts: refusals, checked rows, blocks of rows, class weights, priors and answers."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import softmax
from sklearn.utils import check_array, compute_class_weight

from transcendent._utils.arrays import (
    AnyArray,
    BoolArray,
    FloatArray,
    IntArray,
    chunks,
    encode_labels,
    take_rows,
)
from transcendent.errors import NoShortcutError
from transcendent.leave_one_out.registry import LeftOut

_BLOCK, _LARGE = 1 << 20, 1 << 23
"""Entries of a block of rows, and of a block for large matrix products."""


def refuse_if(condition: Any, reason: str) -> None:
    """Raise `NoShortcutError` with the reason if the condition holds."""
    if condition:
        raise NoShortcutError(reason)


def rows_and_codes(model: Any, X: Any, y: AnyArray, *, sparse: bool = True) -> tuple[Any, IntArray]:
    """Return rows as a float64 array (or CSR matrix), and the positions of their labels in ``classes_``."""
    rows = check_array(X, accept_sparse="csr" if sparse else False, dtype=np.float64)
    return rows, encode_labels(y, model.classes_, "y")


def rows_at_once(width: int) -> int:
    """Return the number of rows with ``width`` entries in a large block."""
    return max(1, _LARGE // max(1, width))


def block_slices(n_rows: int, width: int) -> Iterator[slice]:
    """Yield slices of rows with about a million entries, ``width`` per row."""
    return chunks(n_rows, max(1, _BLOCK // max(1, width)))


def blocks(rows: Any) -> Iterator[tuple[slice, Any]]:
    """Yield consecutive rows, about a million entries at a time (non-zero ones of CSR rows)."""
    width = rows.nnz // rows.shape[0] if sp.issparse(rows) else rows.shape[1]
    for cut in block_slices(rows.shape[0], width):
        yield cut, take_rows(rows, cut)


def dense_blocks(rows: Any) -> Iterator[tuple[slice, FloatArray]]:
    """Yield consecutive rows as dense arrays of about a million entries."""
    for cut in block_slices(*rows.shape):
        yield cut, dense(take_rows(rows, cut))


def member_blocks(rows: FloatArray, members: IntArray) -> Iterator[FloatArray]:
    """Yield the dense rows at some positions, about a million entries at a time."""
    for cut in block_slices(len(members), rows.shape[1]):
        yield rows[members[cut]]


def dense(matrix: Any) -> FloatArray:
    """Return a dense or sparse matrix as an array."""
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix)


def mean_of(rows: FloatArray, members: IntArray) -> FloatArray:
    """Return the column means of the dense rows at some positions."""
    sums = (part.sum(axis=0) for part in member_blocks(rows, members))
    return sum(sums, start=np.zeros(rows.shape[1])) / len(members)


def with_intercept(rows: Any, value: float, n_columns: int = 1) -> Any:
    """Append columns of a constant, none or one, to the rows."""
    column = np.full((rows.shape[0], n_columns), value)
    return sp.hstack([rows, column], format="csr") if sp.issparse(rows) else np.hstack([rows, column])


def unconnected(rows: Any) -> BoolArray:
    """Return the mask of rows that share no column with another row.

    A linear model without an intercept and without such a row gives it exactly 0: rounding must not choose
    its label.
    """
    shared = (rows != 0).sum(axis=0) > 1
    return np.asarray(abs(rows) @ np.ravel(shared).astype(np.float64) == 0)


def class_costs(model: Any, y: AnyArray) -> FloatArray:
    """Return C times the weight of each class."""
    refuse_if(model.class_weight == "balanced", "class_weight='balanced' changes with the row left out")
    weights = compute_class_weight(model.class_weight, classes=model.classes_, y=np.asarray(y))
    return np.asarray(model.C * weights)


def one_vs_rest(codes: IntArray, n_classes: int) -> FloatArray:
    """Return targets ±1, one column per class, or a single column for two classes."""
    positive = np.array([1]) if n_classes == 2 else np.arange(n_classes)
    return np.where(codes[:, None] == positive, 1.0, -1.0)


def left_out_log_priors(codes: IntArray, n_classes: int, given: Any = None) -> FloatArray:
    """Return (n, classes) logarithms of the given priors, or of the class shares among the other rows."""
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


def linear_answers(model: Any, rows: Any, decision: FloatArray) -> LeftOut:
    """Return a linear model's answers from decision values: a column per class, or one for two classes."""
    if not model.fit_intercept:
        decision[unconnected(rows)] = 0.0
    return LeftOut(model.classes_, decision_function=decision[:, 0] if decision.shape[1] == 1 else decision)


def score_answers(scores: FloatArray) -> dict[str, FloatArray]:
    """Return ``decision_function`` and ``predict_proba`` from one log-likelihood per class."""
    decision = scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores
    return {"decision_function": decision, "predict_proba": softmax(scores, axis=1)}


def density_answers(log_priors: FloatArray, densities: FloatArray) -> dict[str, FloatArray]:
    """Return a generative model's answers from the log densities of the rows in each class."""
    joint = log_priors + densities
    return {
        "predict_joint_log_proba": joint,
        "predict_proba": softmax(joint, axis=1),
        "class_log_densities": densities,
    }
