"""Support vector machines with hinge loss: the solution is followed as the weight of a row goes to zero."""

from contextlib import suppress
from copy import copy
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from scipy.linalg import lapack
from sklearn.metrics.pairwise import linear_kernel, polynomial_kernel, rbf_kernel
from sklearn.svm import SVC
from sklearn.utils.multiclass import _ovr_decision_function

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, chunks, group_equal_rows
from transcendent.errors import NoShortcutError
from transcendent.leave_one_out import shared
from transcendent.leave_one_out.convergence import check_converged
from transcendent.leave_one_out.registry import LeftOut, register
from transcendent.leave_one_out.shared import refuse_if, rows_at_once
from transcendent.leave_one_out.support_path import (
    LOST,
    SINGULAR,
    Dual,
    Kernel,
    LostError,
    Path,
    Solution,
    Tableau,
    check_memory,
    coefficients,
    combine,
)

MAX_PRODUCT = 1e9
"""Largest product of C and the kernel of a row with itself. Free coefficients are about the inverse of that
kernel: beyond this, double precision cannot distinguish them from 0 or C."""

_ROUNDS = 10
_MAX_REFITS = 50


@register(SVC, kind="exact")
def support_vectors(svm: Any, X: Any, y: AnyArray) -> LeftOut:
    """Return left-out decision values of the converged solutions, one class against another.

    If no row is on the margin, the intercept is not unique. The middle of its range is used, as in libsvm
    (unless rounding keeps a coefficient off its bound there).
    """
    n_classes = len(svm.classes_)
    several = n_classes > 2
    unsupported = several and svm.decision_function_shape != "ovr"
    refuse_if(unsupported, "SVC has a shortcut only for decision_function_shape='ovr'")
    kernel, of_class = _kernel(svm), shared.class_costs(svm, y)
    rows, codes = shared.rows_and_codes(svm, X, y)  # with kernels that are refused, rows may not be numbers
    costs = of_class[codes]
    pairs = list(combinations(range(n_classes), 2))
    # Values are positive for the first class of a pair; scikit-learn negates them for two classes.
    pairwise = copy(svm).set_params(decision_function_shape="ovo").decision_function(rows)
    fitted = pairwise if several else -pairwise[:, None]
    values = np.empty((len(codes), len(pairs)))
    votes = np.zeros((len(codes), n_classes))
    for k, pair in enumerate(pairs):
        sides = (codes == pair[0]).astype(float) - (codes == pair[1])
        start = coefficients(svm, codes, *pair)
        values[:, k] = _decisions(kernel, rows, sides, costs, start, fitted[:, k], codes, svm)
        votes[np.arange(len(codes)), np.where(values[:, k] > 0, *pair)] += 1
    decision = _ovr_decision_function(values < 0, -values, n_classes) if several else -values[:, 0]
    highest = np.argmax(decision if svm.break_ties and several else votes, axis=1)
    return LeftOut(svm.classes_, svm.classes_[highest], decision_function=decision)


def hinge(
    svm: Any, rows: Any, fitted: FloatArray, codes: IntArray, k: int, sides: FloatArray, costs: FloatArray
) -> FloatArray:
    """Return left-out decision values of class k of a LinearSVC with hinge loss and a penalised intercept."""
    scaling = svm.intercept_scaling if svm.fit_intercept else 0.0

    def kernel(A: Any, B: Any) -> Any:
        return linear_kernel(A, B) + scaling**2

    start = np.where(sides * fitted[:, k] < 1, sides * costs, 0.0)
    return _decisions(kernel, rows, sides, costs, start, fitted[:, k], codes)


def _kernel(svm: Any) -> Kernel:
    supported = svm.kernel in ("linear", "rbf", "poly") and not (svm.kernel == "poly" and svm.coef0 < 0)
    refuse_if(not supported, "SVC has a shortcut only for the kernels 'linear', 'rbf' and 'poly' (coef0 ≥ 0)")
    if svm.kernel == "linear":
        return partial(linear_kernel)
    changing = f"gamma='scale' changes with the row left out; gamma={svm._gamma:.3g} would not"
    refuse_if(svm.gamma == "scale", changing)
    if svm.kernel == "rbf":
        return partial(rbf_kernel, gamma=svm._gamma)
    return partial(polynomial_kernel, degree=svm.degree, gamma=svm._gamma, coef0=svm.coef0)


def _decisions(
    kernel: Kernel,
    X: Any,
    sides: FloatArray,
    costs: FloatArray,
    start: FloatArray,
    fitted: FloatArray,
    codes: IntArray,
    svm: Any = None,
) -> FloatArray:
    """Return decision values of all rows for one problem, left-out ones where ``sides`` is not 0.

    The solver starts from the coefficients ``start``; for liblinear, from a guess by the fitted values.
    """
    inside = np.flatnonzero(sides)
    groups, _ = group_equal_rows(X[inside])
    _, first, members = np.unique(2 * groups + (sides[inside] > 0), return_index=True, return_inverse=True)
    rows, copies = inside[first], np.bincount(members)
    bound = sides[rows] * costs[rows] * copies
    some = X[rows[:: 1 + len(rows) // 100]]
    scale = float(np.diag(kernel(some, some)).mean()) or 1.0
    dual = Dual(X[rows], kernel, sides[rows], np.minimum(bound, 0.0), np.maximum(bound, 0.0), scale, svm)
    product = scale * float(np.abs(bound).max())
    too_large = f"C times the kernel of a row with itself is {product:.0e}, above {MAX_PRODUCT:.0e}"
    refuse_if(product > MAX_PRODUCT, f"{too_large}: scale the features or lower C")
    start, guess = np.bincount(members, start[inside]).astype(np.float64), None
    if svm is None:
        guess = (fitted - sides)[rows]
        start = _estimate(dual, start, guess)
    solution = _solve(dual, start, guess) or _solve(dual, dual.refitted().beta)
    if solution is None:
        raise NoShortcutError(LOST)
    check_converged(fitted[inside], (solution.e + dual.y)[members], codes[inside])
    values = np.empty(len(sides))
    values[inside] = _left_out(dual, solution, copies)[members]
    outside, support = np.flatnonzero(sides == 0), np.flatnonzero(solution.beta)
    for part in chunks(len(outside), rows_at_once(len(support))):
        product = kernel(X[outside[part]], dual.X[support]) @ solution.beta[support]
        values[outside[part]] = product + solution.intercept
    return values


def _solve(
    dual: Dual, beta: FloatArray, guess: FloatArray | None = None, *, independent: bool = True
) -> Solution | None:
    """Return the solution found from the coefficients of a related problem; None if that fails.

    ``guess`` may give approximate residuals; ``independent`` requires independent rows on the margin.
    """
    with suppress(LostError, np.linalg.LinAlgError):
        for _ in range(_ROUNDS):
            solution = dual.solution(beta)
            beta, e = solution.beta, solution.e
            margin, dependent, shifted = _on_margin(dual, beta, e, edge=-1)
            if dual.is_solved(beta, e) and not (independent and len(dependent)):
                return solution
            tableau = Tableau(dual, margin)
            path = Path(tableau, beta, shifted, guess)
            path.steps *= 5  # the start may be far away
            wrong = np.append(shifted[margin], beta.sum() if dual.biased else ())
            path.drive(tableau.responses(-(tableau.inverse @ wrong)[None], path.shift)[0])
            for row in dependent.tolist():
                path.turn(row)
            path.follow()
            beta, guess = path.beta(), None
    return None


def _on_margin(
    dual: Dual, beta: FloatArray, e: FloatArray, edge: int
) -> tuple[IntArray, IntArray, FloatArray]:
    """Return independent rows on the margin, rows that depend on them, and the residuals.

    A free intercept needs at least one row on the margin. If there is none, the intercept is moved to an edge
    of its range, which puts a row there.
    """
    free = np.flatnonzero(dual.free(beta))
    if len(free):
        return *_independent(dual, free), e
    if not dual.biased:
        return free, free, e
    e = e + dual.shift(beta, e, edge)
    able = np.flatnonzero(beta < dual.high if edge < 0 else beta > dual.low)
    return able[[np.argmin(np.abs(e[able]))]], free, e


def _independent(dual: Dual, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return rows that can be on the margin together, and rows that depend on them.

    Pivoted Cholesky factorisation takes the row that the others explain least, until they explain the rest.
    """
    check_memory(rows, dual.y)
    some = dual.X[rows]
    matrix = dual.rounded(np.asarray(dual.kernel(some, some))) + dual.scale * dual.biased
    _, order, rank, _ = lapack.dpstrf(matrix, tol=SINGULAR * dual.scale)
    order = rows[order[: len(rows)] - 1]
    return order[:rank], order[rank:]


def _estimate(dual: Dual, beta: FloatArray, e: FloatArray) -> FloatArray:
    """Return coefficients that put the rows close to the margin exactly on it, if they are independent."""
    near = np.flatnonzero(np.abs(e) < 1e-3)
    if not len(near):
        return beta
    near, _ = _independent(dual, near)
    rows, others = dual.rows(near), beta.copy()
    others[near] = 0.0
    others[near] = np.linalg.solve(rows[:, near], dual.y[near] - rows @ others)
    return np.clip(others, dual.low, dual.high)


def _left_out(dual: Dual, solution: Solution, copies: IntArray) -> FloatArray:
    """Return the decision values of the rows, each with one of its copies left out."""
    beta, e = solution.beta, solution.e
    values = combine(beta, dual.exact_rows) + solution.intercept
    kept = (copies - 1) / copies
    target = np.clip(beta, kept * dual.low, kept * dual.high)
    moved = np.flatnonzero(beta != target)
    free = dual.free(beta)
    if dual.biased and free.sum() <= 1:  # a row may determine the intercept, or its range
        for row in np.flatnonzero(beta == target).tolist():
            values[row] += dual.without(row, kept[row]).shift(beta, e)
    refits = 0
    edges = -np.sign(beta[moved]) * (dual.biased and not free.any())
    for edge in np.unique(edges):
        margin, _, shifted = _on_margin(dual, beta, e, int(edge))
        tableau = Tableau(dual, margin)
        rows = moved[edges == edge]
        for part in chunks(len(rows), rows_at_once(len(beta))):
            betas = _driven(tableau, beta, shifted, rows[part], target[rows[part]])
            exact = dual.exact_rows(rows[part])
            rounding = exact - dual.rounded(exact)
            residuals = e + combine(betas - beta, dual.rows)
            for k, row in enumerate(rows[part].tolist()):
                rest = dual.without(row, kept[row])
                own, new = residuals[k] + rest.shift(betas[k], residuals[k]), betas[k]
                if not rest.is_solved(new, own):
                    again = _solve(rest, new, independent=False)
                    if again is None:
                        refits += 1
                        refuse_if(refits > _MAX_REFITS, LOST)
                        again = rest.refitted()
                    own, new = again.e, again.beta
                values[row] = own[row] + dual.y[row] + new @ rounding[k]
    return values


def _driven(
    tableau: Tableau, beta: FloatArray, e: FloatArray, rows: IntArray, target: FloatArray
) -> FloatArray:
    """Return all coefficients for each row driven to its target; not optimal where the path is lost."""
    tableau.keep(rows)
    betas = np.empty((len(rows), len(beta)))
    for k, row in enumerate(rows):
        path = Path(tableau, beta, e)
        with suppress(LostError, np.linalg.LinAlgError):
            path.leave(int(row), float(target[k] - beta[row]))
        betas[k] = path.beta()
        betas[k, row] = target[k]
        betas[k] = tableau.dual.snapped(betas[k])
    return betas
