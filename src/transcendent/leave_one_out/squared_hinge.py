"""Squared hinge loss: the solution of a linear SVM, and how decision values respond to weights of rows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy import linalg
from sklearn.utils.extmath import row_norms

from transcendent._utils.arrays import BoolArray, FloatArray, IntArray, chunks
from transcendent.leave_one_out.shared import dense, refuse_if, rows_at_once

MAX_ORDER = 12_000
"""Largest order of the matrix that is inverted (1.2 GB): columns or rows inside the margin, if fewer."""

MAX_CROSSED = 1 << 28
"""Rows inside the margin times rows outside, if there are more columns than rows inside (2 GB)."""

MAX_CURVATURE = 1e11
"""Largest trace of the Hessian of the loss: beyond it, double precision gives scores no longer to 1e-6."""

_TOO_CURVED = (
    "C times the squared rows is so large that rounding errors would show: scale the features or lower C"
)


@dataclass(frozen=True)
class HingeProblem:
    """Minimise ½|w|² + ½ Σ cost·copies·max(0, 1 − target·(X w))²; all rows differ."""

    X: Any
    target: FloatArray
    cost: FloatArray
    copies: FloatArray

    def value(self, w: FloatArray, f: FloatArray) -> float:
        """Return the objective at w with the decision values f."""
        slack = np.maximum(0.0, 1 - self.target * f)
        return float(w @ w + np.sum(self.cost * self.copies * slack**2)) / 2

    def gradient(self, w: FloatArray, f: FloatArray) -> FloatArray:
        """Return the gradient of the objective."""
        slack = np.maximum(0.0, 1 - self.target * f)
        return np.asarray(w - self.X.T @ (self.cost * self.copies * slack * self.target))

    def take(self, rows: Any) -> "HingeProblem":
        """Return the problem with some of the rows."""
        return HingeProblem(self.X[rows], self.target[rows], self.cost[rows], self.copies[rows])


def solve(problem: HingeProblem, w: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray, "Curvature"]:
    """Solve by Newton's method with step halving.

    The objective is quadratic as long as the same rows are inside the margin, so finitely many steps reach
    the exact solution (Mangasarian, 2002). Returns the solution, its decision values, the mask of the rows
    inside the margin, and the curvature.
    """
    f = problem.X @ w
    value = problem.value(w, f)
    while True:
        inside = problem.target * f < 1
        curvature = Curvature(problem.take(inside))
        best = curvature.minimiser(w)
        f_best = problem.X @ best
        if np.array_equal(problem.target * f_best < 1, inside):
            return best, f_best, inside, curvature
        length, before = 1.0, value
        while True:
            trial, f_trial = w + length * (best - w), f + length * (f_best - f)
            value = problem.value(trial, f_trial)
            if value < before or length < 1e-6:
                break
            length /= 2
        if value >= before * (1 - 1e-14):  # rounding decides which rows are inside
            refuse_if(
                np.linalg.norm(problem.gradient(best, f_best)) > 1e-8 * np.linalg.norm(best),
                "its solution cannot be computed accurately at this C: scale the features or lower C",
            )
            return best, f_best, inside, curvature
        w, f = trial, f_trial


class Curvature:
    """The Hessian H = I + Xᵀ diag(weight) X of the objective, over the rows inside the margin.

    For few columns (``primal``) H itself is factored. For few rows A⁻¹ = X Xᵀ + diag(1 / weight) is factored,
    and H⁻¹ = I - Xᵀ A X (Woodbury). The eigenvalues of H are at least 1, so its inverse is never singular.
    """

    def __init__(self, rows: HingeProblem) -> None:
        self.X, self.target, self.weight = rows.X, rows.target, rows.cost * rows.copies
        n, width = rows.X.shape
        self.primal = width <= n
        too_large = f"{n} rows inside the margin and {width} columns are both above {MAX_ORDER}"
        refuse_if(min(n, width) > MAX_ORDER, too_large)
        refuse_if(np.sum(self.weight * row_norms(rows.X, squared=True)) > MAX_CURVATURE, _TOO_CURVED)
        if self.primal:
            scaled = sp.diags_array(np.sqrt(self.weight)) @ self.X
            matrix = dense(scaled.T @ scaled)
        else:
            matrix = dense(self.X @ self.X.T)
        matrix[np.diag_indices_from(matrix)] += 1.0 if self.primal else 1.0 / self.weight
        self.factor = linalg.cholesky(matrix.T, lower=True, overwrite_a=True, check_finite=False)

    @cached_property
    def inverse(self) -> FloatArray:
        """Inverse of the factored matrix."""
        lower, _ = linalg.lapack.dpotri(self.factor, lower=1)
        return np.ascontiguousarray(lower + np.tril(lower, -1).T)

    def minimiser(self, w: FloatArray) -> FloatArray:
        """Return the solution if the rows inside the margin stay the same, from any ``w``.

        One step is enough in exact arithmetic; the others reduce rounding errors, which large costs magnify.
        """
        for _ in range(3):
            w = w - self._solve(w - self.X.T @ (self.weight * (self.target - self.X @ w)))
        return w

    def kernel(self, X: Any) -> "_PrimalKernel | _DualKernel":
        """Return K = X H⁻¹ Xᵀ of all rows, those inside the margin first."""
        return _PrimalKernel(self, X) if self.primal else _DualKernel(self, X)

    def _solve(self, vector: FloatArray) -> FloatArray:
        """Return H⁻¹ times a vector."""
        right = vector if self.primal else self.X @ vector
        solved = linalg.cho_solve((self.factor, True), right, check_finite=False)
        return np.asarray(solved if self.primal else vector - self.X.T @ solved)


class _PrimalKernel:
    """K = X H⁻¹ Xᵀ from H⁻¹; ``squares`` is its diagonal."""

    def __init__(self, curvature: Curvature, X: Any) -> None:
        self.X, self.inverse = X, curvature.inverse
        self.squares = _quadratic_forms(X, self.inverse)

    def block(self, rows: IntArray, columns: IntArray) -> FloatArray:
        """Return K between rows and columns."""
        solved = np.ascontiguousarray((self.X[rows] @ self.inverse).T)
        return _transposed_product(self.X[columns], solved)


class _DualKernel:
    """K = X H⁻¹ Xᵀ from A.

    ``across`` holds K between rows inside and outside the margin, ``beyond`` those rows of K outside it that
    were needed so far.
    """

    def __init__(self, curvature: Curvature, X: Any) -> None:
        self.inverse, self.weight, self.inside = curvature.inverse, curvature.weight, curvature.X
        self.outside = X[len(self.weight) :]
        self.inside_t, self.outside_t = (
            sp.csr_array(rows.T) if sp.issparse(rows) else rows.T for rows in (self.inside, self.outside)
        )
        size = self.inside.shape[0], self.outside.shape[0]
        crossed = f"{size[0]} rows inside the margin times {size[1]} outside"
        refuse_if(size[0] * size[1] > MAX_CROSSED, f"{crossed} is above {MAX_CROSSED:,}")
        # Between inside and outside: X₁ H⁻¹ X₂ᵀ = (I - X₁ X₁ᵀ A) X₁ X₂ᵀ = W⁻¹ A X₁ X₂ᵀ.
        self.across = np.empty(size)
        for cut in self._cuts(size[0]):
            self.across[cut] = self._outwards(self.inverse[cut] / self.weight[cut, None])
        self.beyond = RowCache((size[1], size[1]), self._beyond)
        own = (1.0 - np.diag(self.inverse) / self.weight) / self.weight  # the diagonal of `_within`
        self.squares = np.concatenate([own, self._outer_squares()])

    def block(self, rows: IntArray, columns: IntArray) -> FloatArray:
        """Return K between rows and columns, each with those inside the margin first."""
        n, kernel = len(self.weight), np.empty((len(rows), len(columns)))
        r, c = np.count_nonzero(rows < n), np.count_nonzero(columns < n)
        kernel[:r, :c] = self._within(rows[:r], columns[:c])
        kernel[:r, c:] = self.across[np.ix_(rows[:r], columns[c:] - n)]
        kernel[r:, :c] = self.across[np.ix_(columns[:c], rows[r:] - n)].T
        kernel[r:, c:] = self.beyond.block(rows[r:] - n, columns[c:] - n)
        return kernel

    def _within(self, a: IntArray, b: IntArray) -> FloatArray:
        """Return K between rows inside the margin.

        With W = diag(weight) and X Xᵀ = A⁻¹ - W⁻¹, K = X Xᵀ - X Xᵀ A X Xᵀ becomes W⁻¹ - W⁻¹ A W⁻¹. This form
        has no products of large numbers that nearly cancel.
        """
        kernel = -self.inverse[np.ix_(a, b)] / (self.weight[a, None] * self.weight[b])
        same = a[:, None] == b
        kernel[same] += np.broadcast_to(1.0 / self.weight[b], kernel.shape)[same]
        return kernel

    def _outer_squares(self) -> FloatArray:
        """Return the diagonal of K outside the margin: |x|² - x X₁ᵀ A X₁ xᵀ, with A X₁ X₂ᵀ = W ``across``."""
        squares = np.asarray(row_norms(self.outside, squared=True))
        for cut in chunks(len(squares), rows_at_once(len(self.weight))):
            products = dense(self.outside[cut] @ self.inside_t)
            squares[cut] -= np.einsum("oi,io->o", products * self.weight, self.across[:, cut])
        return squares

    def _outwards(self, combinations: FloatArray) -> FloatArray:
        """Return the products of combinations of the rows inside with the rows outside."""
        return _transposed_product(self.outside, self.inside.T @ np.ascontiguousarray(combinations.T))

    def _beyond(self, o: IntArray) -> FloatArray:
        """Return rows of K outside the margin: X₂ X₂ᵀ - X₂ X₁ᵀ A X₁ X₂ᵀ."""
        kernel = np.empty((len(o), self.outside.shape[0]))
        for cut in self._cuts(len(o)):
            direct = dense(self.outside[o[cut]] @ self.outside_t)
            kernel[cut] = direct - self._outwards((self.weight[:, None] * self.across[:, o[cut]]).T)
        return kernel

    def _cuts(self, n: int) -> Iterator[slice]:
        return chunks(n, rows_at_once(self.inside.shape[1]))


class RowCache:
    """Rows of a matrix, each computed when first needed."""

    def __init__(self, shape: tuple[int, int], compute: Callable[[IntArray], FloatArray]) -> None:
        self.compute, self.place = compute, np.full(shape[0], -1)
        self.filled, self.room = 0, np.empty((0, shape[1]))

    @property
    def rows(self) -> FloatArray:
        """Rows computed so far."""
        return self.room[: self.filled]

    def places(self, wanted: IntArray) -> IntArray:
        """Return the positions of the wanted rows in ``rows``, and compute those that are new."""
        new = wanted[self.place[wanted] < 0]
        if len(new):
            computed, end = self.compute(new), self.filled + len(new)
            if end > len(self.room):
                grown = np.empty((2 * end, self.room.shape[1]))
                grown[: self.filled] = self.rows
                self.room = grown
            self.room[self.filled : end] = computed
            self.place[new] = np.arange(self.filled, end)
            self.filled = end
        return self.place[wanted]

    def block(self, wanted: IntArray, columns: IntArray) -> FloatArray:
        """Return some columns of the wanted rows."""
        places = self.places(wanted)  # first: it may replace ``rows``
        return self.rows[np.ix_(places, columns)]


def _quadratic_forms(X: Any, matrix: FloatArray) -> FloatArray:
    """Return xᵀ M x of each row x."""
    if not sp.issparse(X):
        cuts = chunks(X.shape[0], rows_at_once(X.shape[1]))
        return np.concatenate([np.einsum("ij,ij->i", X[cut] @ matrix, X[cut]) for cut in cuts])
    # Rows with the same number of non-zeros are computed together, from the entries of M at these alone.
    forms, lengths, flat = np.zeros(X.shape[0]), np.diff(X.indptr), np.ravel(matrix)
    for length in np.unique(lengths[lengths > 0]):
        alike = np.flatnonzero(lengths == length)
        for cut in chunks(len(alike), rows_at_once(int(length) ** 2)):
            at = X.indptr[alike[cut], None] + np.arange(length)
            index, data = X.indices[at].astype(np.intp), X.data[at]
            part = flat.take(index[:, :, None] * len(matrix) + index[:, None, :])
            forms[alike[cut]] = (data[:, None, :] @ part @ data[:, :, None])[:, 0, 0]
    return forms


def _transposed_product(X: Any, Y: FloatArray) -> FloatArray:
    """Return (X Y)ᵀ, in blocks small enough to be transposed in the processor's cache."""
    product = np.empty((Y.shape[1], X.shape[0]))
    for cut in chunks(X.shape[0], max(1, (1 << 17) // max(1, Y.shape[1]))):
        product[:, cut] = (X[cut] @ Y).T
    return product
