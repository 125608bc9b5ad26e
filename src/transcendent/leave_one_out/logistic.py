"""Logistic regression: Newton steps from the solution of all rows to that without a row."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError, cho_factor, cho_solve, lapack, solve_triangular
from scipy.special import expit, logsumexp, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.utils import check_array, compute_class_weight

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, encode_labels, take_rows
from transcendent.errors import NoShortcutError
from transcendent.leave_one_out.classes import block_slices, dense_blocks, unconnected
from transcendent.leave_one_out.convergence import check_converged
from transcendent.leave_one_out.registry import LeftOut, register

TOLERANCE = 1e-5
"""Of left-out decision values: steps are taken until a bound of the error, to first order, is below this."""

LARGEST_ORDER = 6_000
"""Of the Hessian: the number of columns (or of rows, if fewer) for two classes, more times for several."""

_POLISHED = 1e-10
_NEWTON_STEPS = 100
_ROUNDS = 15
_SPARSE = 0.1


@register(LogisticRegression, kind="approximate")
def logistic(model: Any, X: Any, y: AnyArray) -> LeftOut:
    """Step from the converged solution to those without one row, until `TOLERANCE` is estimated to be met."""
    _check_supported(model)
    basis = _basis(len(model.classes_))
    rows = check_array(X, accept_sparse="csr", dtype=np.float64)
    order = (min(rows.shape) + bool(model.fit_intercept)) * basis.shape[1]
    if order > LARGEST_ORDER:
        raise NoShortcutError(f"the Hessian is of order {order}, more than {LARGEST_ORDER}")
    codes, apart = encode_labels(y, model.classes_, "y"), unconnected(rows)
    weights = compute_class_weight(model.class_weight, classes=model.classes_, y=np.asarray(y))
    rows, coefficients = _compact(rows, model.coef_.T @ _projection(basis))
    penalty = np.ones(rows.shape[1])
    if model.fit_intercept:
        penalised = model.solver == "liblinear"
        scale = float(model.intercept_scaling) if penalised else 1.0
        rows = _with_column(rows, scale)
        penalty = np.append(penalty, float(penalised))
        coefficients = np.vstack([coefficients, model.intercept_ @ _projection(basis) / scale])
    problem = _Problem(rows, basis[codes], penalty, basis)
    leaving_out = _LeavingOut(problem, model.C * weights[codes], coefficients)
    check_converged(rows @ coefficients, leaving_out.outputs, codes)
    left_out = leaving_out.decisions()
    if not model.fit_intercept:
        left_out[apart] = 0.0
    if len(basis) == 2:
        chances = expit(np.hstack([-left_out, left_out]))
        return LeftOut(model.classes_, decision_function=left_out[:, 0], predict_proba=chances)
    decision = left_out @ basis.T
    return LeftOut(model.classes_, decision_function=decision, predict_proba=softmax(decision, axis=1))


def _check_supported(model: Any) -> None:
    penalty = getattr(model, "penalty", "deprecated")
    if penalty == "deprecated":
        penalty = f"l1_ratio={model.l1_ratio}" if model.l1_ratio else "l2"
    if penalty != "l2":
        raise NoShortcutError(f"penalties other than L2 are not supported: {penalty}")
    if np.isinf(model.C):
        raise NoShortcutError("C=inf, no penalty, is not supported")
    if model.class_weight == "balanced":
        raise NoShortcutError("class_weight='balanced' changes the weights of all rows when one is left out")
    one_vs_rest = model.solver == "liblinear" and len(model.classes_) > 2
    if one_vs_rest or getattr(model, "multi_class", "deprecated") not in ("deprecated", "auto"):
        raise NoShortcutError("several classes are supported as multinomial only")


def _basis(n_classes: int) -> FloatArray:
    """(classes, outputs): scores of the classes from as many numbers as are free.

    Two classes have scores 0 and f. Several have scores that sum to 0, as those of scikit-learn do; columns
    are orthonormal, so that the penalty stays what it is.
    """
    if n_classes == 2:
        return np.array([[0.0], [1.0]])
    steps = np.tril(np.ones((n_classes, n_classes)))[:, 1:]
    steps = np.linalg.qr(np.hstack([np.ones((n_classes, 1)), steps]))[0][:, 1:]
    return np.asarray(steps, dtype=np.float64)


def _projection(basis: FloatArray) -> FloatArray:
    """From what scikit-learn holds, one row for two classes, to the outputs."""
    return np.ones((1, 1)) if len(basis) == 2 else basis


def _with_column(rows: Any, value: float) -> Any:
    column = np.full((rows.shape[0], 1), value)
    return sp.hstack([rows, column], format="csr") if sp.issparse(rows) else np.hstack([rows, column])


def _compact(rows: Any, coefficients: FloatArray) -> tuple[Any, FloatArray]:
    """Rows of the same inner products with no more columns than rows, and coefficients of the same values.

    The L2 penalty does not see the difference.
    """
    if rows.shape[1] <= rows.shape[0]:
        return rows, coefficients
    products = rows @ rows.T
    products = products.toarray() if sp.issparse(products) else products
    factor, pivots, rank, _ = lapack.dpstrf(products, lower=1)
    factor, pivots = np.tril(factor)[:, :rank], pivots - 1
    compact = np.empty_like(factor)
    compact[pivots] = factor
    values = (rows @ coefficients)[pivots[:rank]]
    return compact, solve_triangular(factor[:rank], values, lower=True)


@dataclass(frozen=True)
class _Problem:
    """Penalised multinomial likelihood of coefficients (columns, outputs), rows weighed by costs."""

    rows: Any
    targets: FloatArray
    penalty: FloatArray
    basis: FloatArray

    def means(self, outputs: FloatArray) -> FloatArray:
        """Expected targets, for outputs of shape (rows, outputs, ...)."""
        if len(self.basis) == 2:
            with np.errstate(over="ignore"):  # several times as fast as expit
                return np.asarray(1 / (1 + np.exp(-outputs)))
        chances = softmax(np.einsum("km,nm...->nk...", self.basis, outputs), axis=1)
        means: FloatArray = np.einsum("km,nk...->nm...", self.basis, chances)
        return means

    def curvatures(self, outputs: FloatArray) -> FloatArray:
        """Derivatives of the means, an (outputs, outputs) matrix per row."""
        chances, means = softmax(outputs @ self.basis.T, axis=1), self.means(outputs)
        squares = np.einsum("nk,km,kl->nml", chances, self.basis, self.basis, optimize=True)
        curvatures: FloatArray = squares - means[:, :, None] * means[:, None, :]
        return curvatures

    def value(self, coefficients: FloatArray, outputs: FloatArray, costs: FloatArray) -> float:
        losses = logsumexp(outputs @ self.basis.T, axis=1) - (self.targets * outputs).sum(axis=1)
        return float(costs @ losses + self.penalty @ (coefficients**2).sum(axis=1) / 2)

    def hessian(self, weights: FloatArray) -> FloatArray:
        """Of order columns × outputs, from the weighed curvatures of the rows."""
        d, m = len(self.penalty), weights.shape[1]
        hessian = np.zeros((d, m, d, m))
        for a in range(m):
            for b in range(a, m):
                hessian[:, a, :, b] = _weighed_products(self.rows, weights[:, a, b])
                hessian[:, b, :, a] = hessian[:, a, :, b]
            hessian[np.arange(d), a, np.arange(d), a] += self.penalty
        return hessian.reshape(d * m, d * m)

    def minimise(self, coefficients: FloatArray, costs: FloatArray) -> tuple[FloatArray, Any]:
        """The best coefficients by Newton's method, and the factored Hessian there."""
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


def _weighed_products(rows: Any, weights: FloatArray) -> FloatArray:
    """Sum of the outer products of the rows."""
    if sp.issparse(rows) and rows.nnz < _SPARSE * rows.shape[0] * rows.shape[1]:
        products: FloatArray = (rows.T @ (sp.diags_array(weights) @ rows)).toarray()
        return products
    products = np.zeros((rows.shape[1], rows.shape[1]))
    for cut, part in dense_blocks(rows):
        products += part.T @ (weights[cut, None] * part)
    return products


def _factored(hessian: FloatArray) -> Any:
    try:
        return cho_factor(hessian.T, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        raise NoShortcutError("the problem is nearly singular: scale the features or lower C") from None


class _LeavingOut:
    """Decision values of rows at the solutions without them.

    Without row i the outputs of all rows change by δ, such that δ = K q, where K holds what a unit of slope
    at one row changes at another, q_i is all of the slope of row i and q_j of other rows what the
    curvature at the solution overestimates of their slopes' change. Row i itself is solved for.
    """

    def __init__(self, problem: _Problem, costs: FloatArray, coefficients: FloatArray) -> None:
        self.problem, self.costs = problem, costs
        self.coefficients, self.factor = problem.minimise(coefficients, costs)
        self.outputs = problem.rows @ self.coefficients
        self.means = problem.means(self.outputs)
        self.weights = costs[:, None, None] * problem.curvatures(self.outputs)
        self.slopes = costs[:, None] * (self.means - problem.targets)
        self.spread = 1.0 if len(problem.basis) == 2 else np.sqrt(2.0)

    def decisions(self) -> FloatArray:
        """(rows, outputs) left-out decision values."""
        n, m = self.outputs.shape
        kernels = np.empty((n, m, m))
        for cut in block_slices(n, len(self.problem.penalty) * m * m):
            kernels[cut] = self._respond(np.arange(cut.start, cut.stop))[2]
        changes, errors = self._one_step(kernels)
        far = np.flatnonzero(~(errors <= TOLERANCE))
        for cut in block_slices(len(far), n * m):
            changes[far[cut]] = self._iterate(far[cut])
        decisions: FloatArray = self.outputs + changes
        for i in np.flatnonzero(np.isnan(changes).any(axis=1)):
            decisions[i] = self._refit(int(i))
        return decisions

    def _one_step(self, kernels: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Changes by one Newton step, and bounds of their errors.

        Curvatures change by a factor of at most exp(t) where scores change by t, and scores of other rows by
        at most the length of the step in the metric of the Hessian times that of the row.
        """
        without = np.linalg.solve(np.eye(kernels.shape[1]) - kernels @ self.weights, kernels)
        changes = np.einsum("nml,nl->nm", without, self.slopes)
        own, left = np.linalg.norm(kernels, axis=(1, 2)), np.linalg.norm(without, axis=(1, 2))
        with np.errstate(all="ignore"):
            length = np.sqrt((changes * self.slopes).sum(axis=1))
            t = self.spread * length * np.sqrt(left / own * own.max())
            errors = np.sqrt(left) * length * np.expm1(t) * np.exp(t)
        errors[~self.slopes.any(axis=1)] = 0
        return changes, errors

    def _respond(self, left_out: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Rows, how coefficients respond to a unit of slope at them, (columns, outputs, rows, outputs), and
        how their own outputs do, (rows, outputs, outputs)."""
        part = take_rows(self.problem.rows, left_out)
        part = part.toarray() if sp.issparse(part) else part
        (b, d), m = part.shape, self.outputs.shape[1]
        units = np.zeros((d, m, b, m))
        for a in range(m):
            units[:, a, :, a] = part.T
        responses = self._solve(units.reshape(d * m, b * m)).reshape(d, m, b, m)
        return part, responses, np.einsum("bd,dmbl->bml", part, responses, optimize=True)

    def _solve(self, right: FloatArray) -> FloatArray:
        solved: FloatArray = cho_solve(self.factor, right, check_finite=False)
        return solved

    def _iterate(self, left_out: IntArray) -> FloatArray:
        """Changes of the own outputs of rows left out, NaN where the steps do not converge."""
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
            slopes = self.slopes[taken] + np.einsum("bml,bl->bm", self.weights[taken], own)
            steps = others.reshape(d, m, b) + np.einsum("dmbl,bl->dmb", responses[:, :, active], slopes)
            moved = (problem.rows @ steps.reshape(d, m * b)).reshape(n, m, b)
            excess, largest = self._excess(moved, taken)
            new_pulls = (problem.rows.T @ excess.reshape(n, m * b)).reshape(d * m, b)
            change = self._solve(new_pulls - pulls)
            own_pull = np.einsum("bd,dmb->bm", part[active], change.reshape(d, m, b))
            own_change = np.einsum("bml,bl->bm", implicit[active], own_pull)
            squares = ((new_pulls - pulls) * change).sum(axis=0)
            squares += np.einsum("bm,bml,bl->b", own_change, self.weights[taken], own_pull)
            # The next change is shorter by as much as curvatures have changed; those after it, again.
            factor = np.minimum(1, 2 * np.expm1(np.minimum(1, largest)))
            going = ~(reach[active] * np.sqrt(squares) * factor <= TOLERANCE)
            result[active[~going]] = (own + own_change)[~going]
            if not going.any():
                break
            active, own = active[going], (own + own_change)[going]
            pulls, others = new_pulls[:, going], (others + change)[:, going]
        return result

    def _excess(self, moved: FloatArray, left_out: IntArray) -> tuple[FloatArray, FloatArray]:
        """What curvatures overestimate of the changes of slopes, and the largest change of a score."""
        outputs = self.outputs[:, :, None]
        bends = self.problem.means(outputs + moved)
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
        decision: FloatArray = np.ravel(take_rows(self.problem.rows, np.array([left_out])) @ coefficients)
        return decision
