"""Ridge regression on the labels: a left-out residual is the residual over one minus the leverage.

The identity (Allen, 1974; Golub, Heath and Wahba, 1979) follows from the Sherman–Morrison formula. It loses
digits only where a leverage is close to 1 or the matrix is nearly singular: both are refused.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError, blas, cho_solve, cholesky, lapack, solve_triangular
from sklearn.linear_model import RidgeClassifier

from transcendent._utils.arrays import AnyArray, FloatArray, take_rows
from transcendent.errors import NoShortcutError
from transcendent.leave_one_out import shared
from transcendent.leave_one_out.convergence import check_converged
from transcendent.leave_one_out.registry import LeftOut, register
from transcendent.leave_one_out.shared import block_slices, dense_blocks, refuse_if

MAX_ORDER = 15_000
"""Largest order of the matrix that is factored: the number of rows or of columns, whichever is smaller."""

_MAX_CONDITION = 1e10
_MAX_LEVERAGE = 1 - 1e-7
_ROUNDING = 1e-13
_SINGULAR = "the problem is nearly singular: raise alpha"


@register(RidgeClassifier, kind="exact")
def ridge(classifier: Any, X: Any, y: AnyArray) -> LeftOut:
    """Divide the residuals of the converged solution by one minus the leverages."""
    refuse_if(classifier.class_weight, "class_weight is not supported")
    refuse_if(classifier.positive, "positive=True is not supported")
    single = np.size(classifier.alpha) == 1 and np.all(classifier.alpha)
    refuse_if(not single, "an alpha of 0, or one per class, is not supported")
    rows, codes = shared.rows_and_codes(classifier, X, y)
    refuse_if(min(rows.shape) > MAX_ORDER, f"there are more than {MAX_ORDER} rows and columns")
    targets = shared.one_vs_rest(codes, len(classifier.classes_))
    # An intercept without penalty is equivalent to centring rows and targets.
    level = targets.mean(axis=0) if classifier.fit_intercept else np.zeros(targets.shape[1])
    above_level = _primal if rows.shape[1] < rows.shape[0] else _dual
    alpha = np.asarray(classifier.alpha, dtype=np.float64).item()
    fits, left_out = above_level(rows, targets - level, alpha, classifier.fit_intercept)
    check_converged(classifier.decision_function(rows).reshape(targets.shape), level + fits, codes)
    return shared.linear_answers(classifier, rows, level + left_out)


def _primal(rows: Any, targets: FloatArray, alpha: float, centred: bool) -> tuple[FloatArray, FloatArray]:
    """Return fits and left-out fits, (fit - leverage target) / (1 - leverage); columns × columns."""
    n, n_columns = rows.shape
    centre = np.ravel(rows.mean(axis=0)) if centred else np.zeros(n_columns)
    gram = np.zeros((n_columns, n_columns))
    for _, part in dense_blocks(rows):
        _add_products(gram, (part - centre).T)
    gram[np.diag_indices(n_columns)] += alpha
    factored = _Factored(gram)
    weights = factored.solve(rows.T @ targets)
    fits, left_out = np.empty_like(targets), np.empty_like(targets)
    for cut, part in dense_blocks(rows):
        deviations = part - centre
        # xᵀ (XᵀX + alpha)⁻¹ x, and 1 / n of the mean that the intercept follows
        leverages = (factored.squared_norms(deviations) + centred / n)[:, None]
        refuse_if(leverages.max() > _MAX_LEVERAGE, "a row is fitted by a coefficient of its own")
        own = leverages * targets[cut]
        fits[cut] = deviations @ weights
        rest = fits[cut] - own
        # Without a row that shares no column with others, its fit is 0: rounding must not choose its label.
        rest[np.abs(rest) <= _ROUNDING * np.abs(own)] = 0
        left_out[cut] = rest / (1 - leverages)
    return fits, left_out


def _dual(rows: Any, targets: FloatArray, alpha: float, centred: bool) -> tuple[FloatArray, FloatArray]:
    """Return fits and left-out fits, -Σ B_ij t_j / B_ii over j ≠ i with B = (kernel + alpha)⁻¹; rows × rows.

    This is target - (B t)_i / B_ii (Rifkin and Lippert, 2007) without the term j = i, which would cancel.
    """
    n = len(targets)
    kernel, share = _kernel(rows, centred), 0.0
    if centred:
        # The constant vector has eigenvalue 0, and targets and fits are orthogonal to it. A typical
        # eigenvalue keeps the matrix well conditioned; its share of B is subtracted again.
        eigenvalue = np.trace(kernel) / n
        kernel += eigenvalue / n
        share = 1 / (n * (eigenvalue + alpha))
    kernel[np.diag_indices(n)] += alpha
    inverse = _Factored(kernel).inverse()
    diagonal = np.diag(inverse).copy()
    inverse[np.diag_indices(n)] = share
    remainders = (diagonal - share)[:, None]
    left_out: FloatArray = -blas.dsymm(1.0, inverse, targets, lower=1) / remainders
    # Residuals are alpha (B t)_i, and left-out ones (B t)_i / B_ii.
    return targets - alpha * remainders * (targets - left_out), left_out


def _kernel(rows: Any, centred: bool) -> FloatArray:
    """Return the inner products of the rows, centred or not."""
    n, n_columns = rows.shape
    kernel = np.zeros((n, n))
    if not sp.issparse(rows):
        centre = rows.mean(axis=0) if centred else np.zeros(n_columns)
        for columns in block_slices(n_columns, n):
            _add_products(kernel, rows[:, columns] - centre[columns])
        return kernel
    columns = rows.T.tocsr()
    for cut in block_slices(n, n):
        kernel[cut] = (take_rows(rows, cut) @ columns).toarray()
    if centred:  # (I - 11ᵀ/n) K (I - 11ᵀ/n), since centred sparse rows would be dense
        means = kernel.mean(axis=0)
        kernel -= means
        kernel -= (means - means.mean())[:, None]
    return kernel


def _add_products(products: FloatArray, vectors: FloatArray) -> None:
    """Add the inner products of the vectors, in blocks."""
    for cut in block_slices(*products.shape):
        products[cut] += vectors[cut] @ vectors.T


class _Factored:
    """The Cholesky factor of a positive definite matrix, scaled to unit diagonal; overwrites the matrix."""

    def __init__(self, matrix: FloatArray) -> None:
        self.scale = np.sqrt(np.diag(matrix))
        matrix /= self.scale
        matrix /= self.scale[:, None]
        norm = lapack.dlange("1", matrix.T)
        try:
            self.factor = cholesky(matrix.T, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            raise NoShortcutError(_SINGULAR) from None
        refuse_if(lapack.dpocon(self.factor, norm, uplo="L")[0] * _MAX_CONDITION < 1, _SINGULAR)

    def solve(self, right: FloatArray) -> FloatArray:
        """Return the inverse times columns."""
        solved = cho_solve((self.factor, True), right / self.scale[:, None])
        return np.asarray(solved / self.scale[:, None])

    def squared_norms(self, rows: FloatArray) -> FloatArray:
        """Return xᵀ M⁻¹ x of each row x."""
        whitened = solve_triangular(self.factor, (rows / self.scale).T, lower=True, check_finite=False)
        return np.asarray((whitened**2).sum(axis=0))

    def inverse(self) -> FloatArray:
        """Return the lower triangle of the inverse, and overwrite the factor."""
        inverse: FloatArray = lapack.dpotri(self.factor, lower=1, overwrite_c=1)[0]
        inverse /= self.scale
        inverse /= self.scale[:, None]
        return inverse
