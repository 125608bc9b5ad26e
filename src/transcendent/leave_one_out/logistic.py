"""Logistic regression: Newton steps from the solution with all rows to the solution without a row.

One step is Pregibon's approximation (1981). It suffices where a bound of its error is small; the bound uses
that the logistic loss is self-concordant in the sense of Bach (2010).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError, cho_factor, cho_solve, lapack, solve_triangular
from scipy.special import expit, logsumexp, softmax
from sklearn.linear_model import LogisticRegression

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, take_rows
from transcendent.errors import NoShortcutError
from transcendent.leave_one_out import shared
from transcendent.leave_one_out.convergence import check_converged
from transcendent.leave_one_out.registry import LeftOut, register
from transcendent.leave_one_out.shared import block_slices, dense, refuse_if

TOLERANCE = 1e-5
"""Bound of the error of left-out decision values below which no more steps are taken."""

MAX_ORDER = 6_000
"""Largest order of the Hessian: columns (or rows, if fewer) times the free outputs."""

_POLISHED = 1e-10
_NEWTON_STEPS = 100
_ROUNDS = 15
_SPARSE = 0.1


@register(LogisticRegression, kind="approximate")
def logistic(model: Any, X: Any, y: AnyArray) -> LeftOut:
    """Step from the converged solution to those without one row, until errors are below `TOLERANCE`."""
    _check_supported(model)
    basis = _basis(len(model.classes_))
    # Scikit-learn has one row of coefficients for two classes, otherwise one per class.
    projection = np.ones((1, 1)) if len(basis) == 2 else basis
    rows, codes = shared.rows_and_codes(model, X, y)
    order = (min(rows.shape) + bool(model.fit_intercept)) * basis.shape[1]
    refuse_if(order > MAX_ORDER, f"the Hessian is of order {order}, more than {MAX_ORDER}")
    costs, isolated = shared.class_costs(model, y)[codes], shared.unconnected(rows)
    rows, coefficients = _compact(rows, model.coef_.T @ projection)
    penalty = np.ones(rows.shape[1])
    if model.fit_intercept:
        penalised = model.solver == "liblinear"
        scale = float(model.intercept_scaling) if penalised else 1.0
        rows = shared.with_intercept(rows, scale)
        penalty = np.append(penalty, float(penalised))
        coefficients = np.vstack([coefficients, model.intercept_ @ projection / scale])
    leaving_out = _LeavingOut(_LogisticProblem(rows, basis[codes], penalty, basis), costs, coefficients)
    check_converged(rows @ coefficients, leaving_out.outputs, codes)
    left_out = leaving_out.decisions()
    if not model.fit_intercept:
        left_out[isolated] = 0.0
    if len(basis) == 2:
        chances = expit(np.hstack([-left_out, left_out]))
        return LeftOut(model.classes_, decision_function=left_out[:, 0], predict_proba=chances)
    return LeftOut(model.classes_, **shared.score_answers(left_out @ basis.T))


def _check_supported(model: Any) -> None:
    penalty = getattr(model, "penalty", "deprecated")
    if penalty == "deprecated":
        penalty = f"l1_ratio={model.l1_ratio}" if model.l1_ratio else "l2"
    refuse_if(penalty != "l2", f"penalties other than L2 are not supported: {penalty}")
    refuse_if(np.isinf(model.C), "C=inf (no penalty) is not supported")
    one_vs_rest = model.solver == "liblinear" and len(model.classes_) > 2
    one_vs_rest |= getattr(model, "multi_class", "deprecated") not in ("deprecated", "auto")
    refuse_if(one_vs_rest, "several classes are supported only as multinomial")


def _basis(n_classes: int) -> FloatArray:
    """Return the (classes, outputs) matrix that gives the scores of the classes from the free outputs.

    Two classes have the scores 0 and f. The scores of several classes sum to 0, as in scikit-learn. The
    columns are orthonormal, so the penalty is the same for outputs as for scores.
    """
    if n_classes == 2:
        return np.array([[0.0], [1.0]])
    steps = np.tril(np.ones((n_classes, n_classes)))[:, 1:]
    return np.asarray(np.linalg.qr(np.hstack([np.ones((n_classes, 1)), steps]))[0][:, 1:], dtype=np.float64)


def _compact(rows: Any, coefficients: FloatArray) -> tuple[Any, FloatArray]:
    """Return rows with the same inner products and no more columns than rows, and their coefficients.

    Decision values and the L2 penalty depend on inner products alone, so a Cholesky factor of the matrix of
    inner products can replace the rows; pivoting makes it safe for linearly dependent rows.
    """
    if rows.shape[1] <= rows.shape[0]:
        return rows, coefficients
    factor, pivots, rank, _ = lapack.dpstrf(dense(rows @ rows.T), lower=1)
    factor, pivots = np.tril(factor)[:, :rank], pivots - 1
    compact = np.empty_like(factor)
    compact[pivots] = factor
    values = (rows @ coefficients)[pivots[:rank]]
    return compact, solve_triangular(factor[:rank], values, lower=True)


@dataclass(frozen=True)
class _LogisticProblem:
    """Σ cost · log-loss + ½ Σ penalty · coefficients², with coefficients of shape (columns, outputs)."""

    rows: Any
    targets: FloatArray
    penalty: FloatArray
    basis: FloatArray

    def means(self, outputs: FloatArray) -> FloatArray:
        """Return the expected targets for outputs of shape (rows, outputs, ...)."""
        if len(self.basis) == 2:
            with np.errstate(over="ignore"):  # several times as fast as expit
                return np.asarray(1 / (1 + np.exp(-outputs)))
        chances = softmax(np.einsum("km,nm...->nk...", self.basis, outputs), axis=1)
        return np.asarray(np.einsum("km,nk...->nm...", self.basis, chances))

    def curvatures(self, outputs: FloatArray) -> FloatArray:
        """Return the derivatives of the means: an (outputs, outputs) matrix per row."""
        chances, means = softmax(outputs @ self.basis.T, axis=1), self.means(outputs)
        # The covariance of the targets: E[t tᵀ] - E[t] E[t]ᵀ, where t is the row of the basis for a class.
        squares = np.einsum("nk,km,kl->nml", chances, self.basis, self.basis, optimize=True)
        return np.asarray(squares - means[:, :, None] * means[:, None, :])

    def value(self, coefficients: FloatArray, outputs: FloatArray, costs: FloatArray) -> float:
        losses = logsumexp(outputs @ self.basis.T, axis=1) - (self.targets * outputs).sum(axis=1)
        return float(costs @ losses + self.penalty @ (coefficients**2).sum(axis=1) / 2)

    def hessian(self, weights: FloatArray) -> FloatArray:
        """Return the Hessian, of order columns × outputs, from the rows' curvatures times their costs."""
        d, m = len(self.penalty), weights.shape[1]
        hessian = np.zeros((d, m, d, m))
        for a in range(m):
            for b in range(a, m):
                hessian[:, a, :, b] = _weighted_products(self.rows, weights[:, a, b])
                hessian[:, b, :, a] = hessian[:, a, :, b]
            hessian[np.arange(d), a, np.arange(d), a] += self.penalty
        return hessian.reshape(d * m, d * m)

    def minimise(self, coefficients: FloatArray, costs: FloatArray) -> tuple[FloatArray, Any]:
        """Return the best coefficients, by Newton's method with step halving, and the factored Hessian."""
        outputs = self.rows @ coefficients
        for _ in range(_NEWTON_STEPS):
            factor = _factored(self.hessian(costs[:, None, None] * self.curvatures(outputs)))
            slopes = self.rows.T @ (costs[:, None] * (self.means(outputs) - self.targets))
            gradient = slopes + self.penalty[:, None] * coefficients
            step = cho_solve(factor, gradient.ravel(), check_finite=False).reshape(gradient.shape)
            change = self.rows @ step
            if np.abs(change).max() <= _POLISHED * (1 + np.abs(outputs).max()):
                return coefficients - step, factor
            value, length = self.value(coefficients, outputs, costs), 1.0
            while (
                self.value(coefficients - length * step, outputs - length * change, costs) > value
                and length * np.abs(change).max() > TOLERANCE
            ):
                length /= 2
            coefficients = coefficients - length * step
            outputs = self.rows @ coefficients
        raise NoShortcutError("Newton's method does not converge: scale the features or lower C")


def _weighted_products(rows: Any, weights: FloatArray) -> FloatArray:
    """Return the weighted sum of the outer products of the rows."""
    if sp.issparse(rows) and rows.nnz < _SPARSE * rows.shape[0] * rows.shape[1]:
        return dense(rows.T @ (sp.diags_array(weights) @ rows))
    products = np.zeros((rows.shape[1], rows.shape[1]))
    for cut, part in shared.dense_blocks(rows):
        products += part.T @ (weights[cut, None] * part)
    return products


def _factored(hessian: FloatArray) -> Any:
    try:
        return cho_factor(hessian.T, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        raise NoShortcutError("the problem is nearly singular: scale the features or lower C") from None


class _LeavingOut:
    """Decision values of rows at the solutions without them.

    Without row i all outputs change by δ = K q, where K = X H⁻¹ Xᵀ is the response of the outputs to a unit
    of slope at each row. q_i is the whole slope of row i. q_j is the error of the linear prediction of the
    slope of row j: it is small and found by iteration. Row i itself needs no iteration: its weight is removed
    from the Hessian by the Woodbury formula, (I - K_ii W_i)⁻¹ K_ii.
    """

    def __init__(self, problem: _LogisticProblem, costs: FloatArray, coefficients: FloatArray) -> None:
        self.problem, self.costs = problem, costs
        self.coefficients, self.factor = problem.minimise(coefficients, costs)
        self.outputs = problem.rows @ self.coefficients
        self.means = problem.means(self.outputs)
        self.weights = costs[:, None, None] * problem.curvatures(self.outputs)
        self.slopes = costs[:, None] * (self.means - problem.targets)
        self.spread = 1.0 if len(problem.basis) == 2 else np.sqrt(2.0)

    def decisions(self) -> FloatArray:
        """Return the (rows, outputs) left-out decision values."""
        n, m = self.outputs.shape
        kernels = np.empty((n, m, m))
        for cut in block_slices(n, len(self.problem.penalty) * m * m):
            kernels[cut] = self._respond(np.arange(cut.start, cut.stop))[2]
        changes, errors = self._one_step(kernels)
        far = np.flatnonzero(~(errors <= TOLERANCE))
        for cut in block_slices(len(far), n * m):
            changes[far[cut]] = self._iterate(far[cut])
        decisions = np.asarray(self.outputs + changes)
        for i in np.flatnonzero(np.isnan(changes).any(axis=1)):
            decisions[i] = self._refit(int(i))
        return decisions

    def _one_step(self, kernels: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the changes by one Newton step, and bounds of their errors.

        Curvatures change by a factor of at most exp(t) if scores change by t (self-concordance). By the
        Cauchy–Schwarz inequality, scores of other rows change by at most the length of the step in the metric
        of the Hessian times the length of the row in the metric of its inverse.
        """
        without = np.linalg.solve(np.eye(kernels.shape[1]) - kernels @ self.weights, kernels)
        changes = np.einsum("nml,nl->nm", without, self.slopes)
        own, left = np.linalg.norm(kernels, axis=(1, 2)), np.linalg.norm(without, axis=(1, 2))
        with np.errstate(all="ignore"):
            # With H the Hessian without the row, the step is H⁻¹ x g: its squared length is gᵀ xᵀ H⁻¹ x g.
            length = np.sqrt((changes * self.slopes).sum(axis=1))
            t = self.spread * length * np.sqrt(left / own * own.max())
            errors = np.sqrt(left) * length * np.expm1(t) * np.exp(t)
        errors[~self.slopes.any(axis=1)] = 0
        return changes, errors

    def _respond(self, left_out: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return rows, and the responses of coefficients and own outputs to a unit of slope at each.

        The responses are (columns, outputs, rows, outputs) and (rows, outputs, outputs).
        """
        part = dense(take_rows(self.problem.rows, left_out))
        (b, d), m = part.shape, self.outputs.shape[1]
        units = np.zeros((d, m, b, m))
        for a in range(m):
            units[:, a, :, a] = part.T
        solved = cho_solve(self.factor, units.reshape(d * m, b * m), check_finite=False)
        responses = solved.reshape(d, m, b, m)
        return part, responses, np.einsum("bd,dmbl->bml", part, responses, optimize=True)

    def _iterate(self, left_out: IntArray) -> FloatArray:
        """Return the changes of the rows' own outputs, NaN where the steps do not converge."""
        problem, (n, m), d = self.problem, self.outputs.shape, len(self.problem.penalty)
        result = np.full((len(left_out), m), np.nan)
        part, responses, kernels = self._respond(left_out)
        start = np.einsum("bml,bl->bm", kernels, self.slopes[left_out])
        implicit = np.linalg.inv(np.eye(m) - kernels @ self.weights[left_out])
        reach = np.sqrt(np.linalg.norm(implicit @ kernels, axis=(1, 2)))
        active, own = np.arange(len(left_out)), np.einsum("bml,bl->bm", implicit, start)
        pulls, others = np.zeros((2, d * m, len(left_out)))
        for _ in range(_ROUNDS):
            b, taken = len(active), left_out[active]
            # (H - x_i W_i x_iᵀ) δ = x_i slope_i is solved as H δ = x_i (slope_i + W_i δ_i).
            slopes = self.slopes[taken] + np.einsum("bml,bl->bm", self.weights[taken], own)
            steps = others.reshape(d, m, b) + np.einsum("dmbl,bl->dmb", responses[:, :, active], slopes)
            moved = (problem.rows @ steps.reshape(d, m * b)).reshape(n, m, b)
            excess, largest = self._excess(moved, taken)
            new_pulls = (problem.rows.T @ excess.reshape(n, m * b)).reshape(d * m, b)
            change = cho_solve(self.factor, new_pulls - pulls, check_finite=False)
            own_pull = np.einsum("bd,dmb->bm", part[active], change.reshape(d, m, b))
            own_change = np.einsum("bml,bl->bm", implicit[active], own_pull)
            squares = ((new_pulls - pulls) * change).sum(axis=0)
            squares += np.einsum("bm,bml,bl->b", own_change, self.weights[taken], own_pull)
            # Each further change is shorter than the last by the relative change of the curvatures.
            factor = np.minimum(1, 2 * np.expm1(np.minimum(1, largest)))
            unsettled = ~(reach[active] * np.sqrt(squares) * factor <= TOLERANCE)
            result[active[~unsettled]] = (own + own_change)[~unsettled]
            if not unsettled.any():
                break
            active, own = active[unsettled], (own + own_change)[unsettled]
            pulls, others = new_pulls[:, unsettled], (others + change)[:, unsettled]
        return result

    def _excess(self, moved: FloatArray, left_out: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the errors of the linear prediction of slopes, and the largest change of a score."""
        # -cost (mean(f + δ) - mean(f)) + W δ, built in place
        bends = self.problem.means(self.outputs[:, :, None] + moved)
        bends -= self.means[:, :, None]
        bends *= -self.costs[:, None, None]
        bends += self.weights * moved if moved.shape[1] == 1 else np.matmul(self.weights, moved)
        sizes = np.abs(moved[:, 0]) if moved.shape[1] == 1 else np.linalg.norm(moved, axis=1)
        positions = np.arange(len(left_out))
        bends[left_out, :, positions] = 0
        sizes[left_out, positions] = 0
        return bends, self.spread * sizes.max(axis=0)

    def _refit(self, left_out: int) -> FloatArray:
        costs = self.costs.copy()
        costs[left_out] = 0
        coefficients, _ = self.problem.minimise(self.coefficients, costs)
        return np.ravel(take_rows(self.problem.rows, np.array([left_out])) @ coefficients)
