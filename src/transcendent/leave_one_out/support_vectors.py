"""Support vector machines with hinge loss: the solution without a row, followed from the one with it.

With signed coefficients β the dual is to minimise ½βᵀKβ − yᵀβ for low ≤ β ≤ high, and Σβ = 0 if there is an
intercept b that is not penalised. At the optimum the residuals e = Kβ + b − y are zero on the margin, where β
is free, ≥ 0 where β is low and ≤ 0 where it is high. While the coefficient of a row is driven to zero, the
optimum moves along straight lines, with a turn whenever a row enters or leaves the margin (Cauwenberghs and
Poggio, 2000).
"""

import warnings
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import linear_kernel, polynomial_kernel, rbf_kernel
from sklearn.svm import SVC
from sklearn.utils import check_array, compute_class_weight
from sklearn.utils.multiclass import _ovr_decision_function

from transcendent.arrays import (
    AnyArray,
    BoolArray,
    FloatArray,
    IntArray,
    chunks,
    encode_labels,
    group_equal_rows,
)
from transcendent.errors import NoShortcutError
from transcendent.leave_one_out.classes import unconnected
from transcendent.leave_one_out.convergence import check_converged
from transcendent.leave_one_out.registry import LeftOut, register

MAX_BYTES = 1 << 30
"""Of the kernel between the rows on the margin and all rows; a few times as much is used altogether."""

MAX_PRODUCT = 1e9
"""Of C and the kernel of a row with itself. Coefficients are about the inverse of the latter: beyond this,
double precision cannot tell them from 0 or C."""

_BLOCK_BYTES = 1 << 26
_SINGULAR = 1e-10  # relative to the kernel of a row with itself
_ROUNDS = 10
_MAX_SWAPPED = 100
_MAX_REFITS = 50
_LOST = "the rows on the margin determine the solution too badly at this C"

Kernel = Callable[[Any, Any], Any]


@register(SVC, kind="exact")
def support_vectors(svm: Any, X: Any, y: AnyArray) -> LeftOut:
    """Decision values of the converged solutions, one class against another.

    If no row is on the margin the intercept is not unique. This takes the middle of its range, as libsvm does
    unless rounding keeps a coefficient from its bound.
    """
    n_classes, codes = len(svm.classes_), encode_labels(y, svm.classes_, "y")
    if n_classes > 2 and svm.decision_function_shape != "ovr":
        raise NoShortcutError("SVC has one for decision_function_shape='ovr'")
    kernel, costs = _kernel(svm), _costs(svm, y)[codes]
    X = check_array(X, accept_sparse="csr", dtype=np.float64)
    pairs = list(combinations(range(n_classes), 2))
    fitted = _pairwise_values(svm, X)
    values = np.empty((len(codes), len(pairs)))
    votes = np.zeros((len(codes), n_classes))
    for k, pair in enumerate(pairs):
        sides = (codes == pair[0]).astype(float) - (codes == pair[1])
        start = _coefficients(svm, codes, *pair)
        values[:, k] = _decisions(kernel, X, sides, costs, start, fitted[:, k], svm)
        votes[np.arange(len(codes)), np.where(values[:, k] > 0, *pair)] += 1
    decision = -values[:, 0] if n_classes == 2 else _ovr_decision_function(values < 0, -values, n_classes)
    highest = np.argmax(decision if svm.break_ties and n_classes > 2 else votes, axis=1)
    return LeftOut(svm.classes_, svm.classes_[highest], decision_function=decision)


def hinge(svm: Any, X: Any, y: AnyArray) -> LeftOut:
    """Decision values of a LinearSVC with hinge loss, one class against the rest if there are several."""
    codes, costs = encode_labels(y, svm.classes_, "y"), _costs(svm, y)
    X = check_array(X, accept_sparse="csr", dtype=np.float64)
    scaling = svm.intercept_scaling if svm.fit_intercept else 0.0

    def kernel(A: Any, B: Any) -> Any:
        return linear_kernel(A, B) + scaling**2

    fitted = svm.decision_function(X).reshape(len(codes), -1)
    decision = np.empty(fitted.shape)
    for k in range(fitted.shape[1]):
        sides, cost = np.where(codes == 1, 1.0, -1.0), costs[codes]
        if len(costs) > 2:  # liblinear weighs the class, but not the rest
            sides = np.where(codes == k, 1.0, -1.0)
            cost = np.where(codes == k, costs[k], svm.C)
        start = np.where(sides * fitted[:, k] < 1, sides * cost, 0.0)
        decision[:, k] = _decisions(kernel, X, sides, cost, start, fitted[:, k])
    if not svm.fit_intercept:
        decision[unconnected(X)] = 0.0
    return LeftOut(svm.classes_, decision_function=decision[:, 0] if len(costs) == 2 else decision)


def _pairwise_values(svm: Any, X: Any) -> FloatArray:
    """Decision values of each class (positive) against each later one."""
    values = copy(svm).set_params(decision_function_shape="ovo").decision_function(X)
    return np.asarray(-values[:, None] if values.ndim == 1 else values)


def _kernel(svm: Any) -> Kernel:
    if svm.kernel not in ("linear", "rbf", "poly") or (svm.kernel == "poly" and svm.coef0 < 0):
        raise NoShortcutError("SVC has one for the kernels 'linear', 'rbf' and 'poly' (with coef0 ≥ 0)")
    if svm.kernel == "linear":
        return partial(linear_kernel)
    if svm.gamma == "scale":
        raise NoShortcutError(f"gamma='scale' changes with the row left out; gamma={svm._gamma:.3g} does not")
    if svm.kernel == "rbf":
        return partial(rbf_kernel, gamma=svm._gamma)
    return partial(polynomial_kernel, degree=svm.degree, gamma=svm._gamma, coef0=svm.coef0)


def _costs(svm: Any, y: AnyArray) -> FloatArray:
    """C of each class."""
    if svm.class_weight == "balanced":
        raise NoShortcutError("class_weight='balanced' changes with the row left out")
    return np.asarray(svm.C * compute_class_weight(svm.class_weight, classes=svm.classes_, y=y))


def _coefficients(svm: Any, codes: IntArray, first: int, second: int) -> FloatArray:
    """Signed coefficients of all rows in libsvm's solution for two classes, positive for the first."""
    table = svm.dual_coef_.toarray() if sp.issparse(svm.dual_coef_) else svm.dual_coef_
    table = -table if len(svm.classes_) == 2 else table
    of_class, beta = codes[svm.support_], np.zeros(len(codes))
    for own, other in ((first, second - 1), (second, first)):
        beta[svm.support_[of_class == own]] = table[other, of_class == own]
    return beta


def _decisions(
    kernel: Kernel,
    X: Any,
    sides: FloatArray,
    costs: FloatArray,
    start: FloatArray,
    fitted: FloatArray,
    svm: Any = None,
) -> FloatArray:
    """Decision values of all rows, those on a side left out of the problem.

    It is solved from the coefficients ``start``; those of liblinear are guessed from the fitted values.
    """
    inside = np.flatnonzero(sides)
    groups, _ = group_equal_rows(X[inside])
    _, first, members = np.unique(2 * groups + (sides[inside] > 0), return_index=True, return_inverse=True)
    rows, copies = inside[first], np.bincount(members)
    bound = sides[rows] * costs[rows] * copies
    some = X[rows[:: 1 + len(rows) // 100]]
    dual = _Dual(
        *(X[rows], kernel, sides[rows], np.minimum(bound, 0.0), np.maximum(bound, 0.0)),
        scale=float(np.diag(kernel(some, some)).mean()) or 1.0,
        svm=svm,
    )
    product = dual.scale * float(np.abs(bound).max())
    if product > MAX_PRODUCT:
        raise NoShortcutError(
            f"C times the kernel of a row with itself is {product:.0e}, above {MAX_PRODUCT:.0e}: scale the "
            "features or lower C"
        )
    start = np.bincount(members, start[inside]).astype(np.float64)
    guess = None
    if svm is None:
        guess = (fitted - sides)[rows]
        start = _estimate(dual, start, guess)
    solution = _solve(dual, start, guess) or _solve(dual, dual.refitted().beta)
    if solution is None:
        raise NoShortcutError(_LOST)
    check_converged(fitted[inside], (solution.e + dual.y)[members])
    values = np.empty(len(sides))
    values[inside] = _left_out(dual, solution, copies)[members]
    outside, support = np.flatnonzero(sides == 0), np.flatnonzero(solution.beta)
    for part in chunks(len(outside), _block(len(support))):
        product = kernel(X[outside[part]], dual.X[support]) @ solution.beta[support]
        values[outside[part]] = product + solution.intercept
    return values


def _block(n: int) -> int:
    return max(1, _BLOCK_BYTES // (8 * max(1, n)))


def _check_memory(margin: IntArray, rows: FloatArray) -> None:
    if 8 * len(margin) * len(rows) > MAX_BYTES:
        raise NoShortcutError(
            f"the kernel of {len(margin)} rows on the margin would take over {MAX_BYTES} bytes"
        )


@dataclass(frozen=True)
class _Dual:
    """A problem with distinct rows; that of ``svm`` by libsvm, or else one without a free intercept."""

    X: Any
    kernel: Kernel
    y: FloatArray
    low: FloatArray
    high: FloatArray
    scale: float
    svm: Any

    @property
    def biased(self) -> bool:
        return self.svm is not None

    def rows(self, rows: IntArray) -> FloatArray:
        """Rows of the kernel matrix as the problem has them: libsvm's is in single precision."""
        return self.rounded(self.exact_rows(rows))

    def exact_rows(self, rows: IntArray) -> FloatArray:
        """Rows of the kernel matrix as decision values have them."""
        return np.asarray(self.kernel(self.X[rows], self.X)) if len(rows) else np.empty((0, len(self.y)))

    def rounded(self, values: FloatArray) -> FloatArray:
        return values.astype(np.float32).astype(np.float64) if self.biased else values

    def free(self, beta: FloatArray) -> BoolArray:
        return (self.low < beta) & (beta < self.high)

    def snapped(self, beta: FloatArray) -> FloatArray:
        """Coefficients with those at a bound, to rounding, exactly there."""
        tiny = 1e-12 * (self.high - self.low)
        beta = np.where(beta - self.low <= tiny, self.low, beta)
        return np.where(self.high - beta <= tiny, self.high, beta)

    def shift(self, beta: FloatArray, e: FloatArray, edge: int = 0) -> float:
        """What to add to the intercept: by the free rows, else the middle (edge: -1, 1) of its range."""
        if not self.biased:
            return 0.0
        free = self.free(beta)
        if free.any():
            return float(-e[free].mean())
        able = beta < self.high, beta > self.low
        if not (able[0].any() and able[1].any()):
            raise NoShortcutError(_LOST)
        least, most = -e[able[0]].min(), -e[able[1]].max()
        return float((least, (least + most) / 2, most)[edge + 1])

    def is_solved(self, beta: FloatArray, e: FloatArray, close: float = 1e-9) -> bool:
        """Whether it is optimal, to a share of the spread of decision values and to rounding."""
        wrong = np.maximum(np.where(beta < self.high, -e, 0.0), np.where(beta > self.low, e, 0.0)).max()
        unbalanced = self.scale * abs(beta.sum()) if self.biased else 0.0
        tolerance = close * (e + self.y).std() + 1e-12 + 1e-14 * self.scale * np.abs(beta).sum()
        return bool(max(wrong, unbalanced) <= tolerance)

    def solution(self, beta: FloatArray) -> "_Solution":
        """Coefficients that should solve it, with the intercept and the residuals."""
        beta = self.snapped(beta)
        e = _product(beta, self.rows) - self.y
        intercept = self.shift(beta, e)
        return _Solution(beta, intercept, e + intercept)

    def refitted(self) -> "_Solution":
        """What libsvm makes of it."""
        if self.svm is None:
            raise NoShortcutError(_LOST)
        beta, rows = np.zeros(len(self.y)), np.flatnonzero(self.low < self.high)
        max_iter = 100_000 + 100 * len(rows)
        svm = clone(self.svm).set_params(C=1.0, class_weight=None, tol=1e-10, max_iter=max_iter)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            svm.fit(self.X[rows], self.y[rows], sample_weight=(self.high - self.low)[rows])
        if svm.fit_status_:
            raise NoShortcutError(_LOST)
        beta[rows] = -_coefficients(svm, (self.y[rows] > 0).astype(np.intp), 0, 1)
        solution = self.solution(beta)
        if not self.is_solved(solution.beta, solution.e, close=1e-6):
            raise NoShortcutError(_LOST)
        return solution

    def without(self, row: int, kept: float) -> "_Dual":
        """The problem with a share of the copies of a row."""
        low, high = self.low.copy(), self.high.copy()
        low[row], high[row] = kept * low[row], kept * high[row]
        return replace(self, low=low, high=high)


@dataclass(frozen=True)
class _Solution:
    beta: FloatArray
    intercept: float
    e: FloatArray


class _LostError(Exception):
    """The optimum cannot be followed."""


def _solve(
    dual: _Dual, beta: FloatArray, guess: FloatArray | None = None, *, independent: bool = True
) -> _Solution | None:
    """The solution, followed from any coefficients, which solve another problem; None if that fails.

    ``guess`` may say what the residuals will about be. The rows on the margin can be had ``independent``.
    """
    with suppress(_LostError, np.linalg.LinAlgError):
        for _ in range(_ROUNDS):
            solution = dual.solution(beta)
            beta, e = solution.beta, solution.e
            margin, dependent, shifted = _on_margin(dual, beta, e, edge=-1)
            if dual.is_solved(beta, e) and not (independent and len(dependent)):
                return solution
            tableau = _Tableau(dual, margin)
            path = _Path(tableau, beta, shifted, guess)
            path.steps *= 5  # the start may be far away
            wrong = np.append(shifted[margin], beta.sum() if dual.biased else ())
            path.drive(tableau.responses(-(tableau.inverse @ wrong)[None], path.shift)[0])
            for row in dependent.tolist():
                path.turn(row)
            path.follow()
            beta, guess = path.beta(), None
    return None


def _product(beta: FloatArray, rows: Callable[[IntArray], FloatArray]) -> FloatArray:
    """βK, for one or several β."""
    support, total = np.flatnonzero(np.any(np.atleast_2d(beta) != 0, axis=0)), np.zeros(beta.shape)
    for part in chunks(len(support), _block(beta.shape[-1])):
        total += beta[..., support[part]] @ rows(support[part])
    return total


def _on_margin(
    dual: _Dual, beta: FloatArray, e: FloatArray, edge: int
) -> tuple[IntArray, IntArray, FloatArray]:
    """Independent rows on the margin, those that depend on them, and the residuals.

    A free intercept needs one row at least: if there is none, it is moved to an edge of its range.
    """
    free = np.flatnonzero(dual.free(beta))
    if len(free):
        return *_independent(dual, free), e
    if not dual.biased:
        return free, free, e
    e = e + dual.shift(beta, e, edge)
    able = np.flatnonzero(beta < dual.high if edge < 0 else beta > dual.low)
    return able[[np.argmin(np.abs(e[able]))]], free, e


def _independent(dual: _Dual, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Rows that can be on the margin together, and those that depend on them."""
    _check_memory(rows, dual.y)
    some = dual.X[rows]
    matrix = dual.rounded(np.asarray(dual.kernel(some, some))) + dual.scale * dual.biased
    _, order, rank, _ = lapack.dpstrf(matrix, tol=_SINGULAR * dual.scale)
    order = rows[order[: len(rows)] - 1]
    return order[:rank], order[rank:]


def _estimate(dual: _Dual, beta: FloatArray, e: FloatArray) -> FloatArray:
    """Coefficients of rows about on the margin that put them there, as far as they are independent."""
    near = np.flatnonzero(np.abs(e) < 1e-3)
    if not len(near):
        return beta
    near, _ = _independent(dual, near)
    rows, others = dual.rows(near), beta.copy()
    others[near] = 0.0
    others[near] = np.linalg.solve(rows[:, near], dual.y[near] - rows @ others)
    return np.clip(others, dual.low, dual.high)


def _left_out(dual: _Dual, solution: _Solution, copies: IntArray) -> FloatArray:
    """Decision values of the rows, each with one copy of it left out."""
    beta, e = solution.beta, solution.e
    values = _product(beta, dual.exact_rows) + solution.intercept
    kept = (copies - 1) / copies
    target = np.clip(beta, kept * dual.low, kept * dual.high)
    moved = np.flatnonzero(beta != target)
    free = dual.free(beta)
    if dual.biased and free.sum() <= 1:  # a row may determine the intercept, or its range, by being there
        for row in np.flatnonzero(beta == target).tolist():
            values[row] += dual.without(row, kept[row]).shift(beta, e)
    refits = 0
    edges = -np.sign(beta[moved]) * (dual.biased and not free.any())
    for edge in np.unique(edges):
        margin, _, shifted = _on_margin(dual, beta, e, int(edge))
        tableau = _Tableau(dual, margin)
        rows = moved[edges == edge]
        for part in chunks(len(rows), _block(len(beta))):
            betas = _driven(tableau, beta, shifted, rows[part], target[rows[part]])
            exact = dual.exact_rows(rows[part])
            rounding = exact - dual.rounded(exact)
            residuals = e + _product(betas - beta, dual.rows)
            for k, row in enumerate(rows[part].tolist()):
                rest = dual.without(row, kept[row])
                own, new = residuals[k] + rest.shift(betas[k], residuals[k]), betas[k]
                if not rest.is_solved(new, own):
                    again = _solve(rest, new, independent=False)
                    if again is None:
                        refits += 1
                        if refits > _MAX_REFITS:
                            raise NoShortcutError(_LOST)
                        again = rest.refitted()
                    own, new = again.e, again.beta
                values[row] = own[row] + dual.y[row] + new @ rounding[k]
    return values


def _driven(
    tableau: "_Tableau", beta: FloatArray, e: FloatArray, rows: IntArray, target: FloatArray
) -> FloatArray:
    """The coefficients if that of each of the rows is driven to its target; where that fails, somewhere."""
    tableau.keep(rows)
    betas = np.empty((len(rows), len(beta)))
    for k, row in enumerate(rows):
        path = _Path(tableau, beta, e)
        with suppress(_LostError, np.linalg.LinAlgError):
            path.leave(int(row), float(target[k] - beta[row]))
        betas[k] = path.beta()
        betas[k, row] = target[k]
        betas[k] = tableau.dual.snapped(betas[k])
    return betas


class _Tableau:
    """How the optimum responds to changes of single rows, as long as the margin stays the same.

    What moves is β of the rows on the margin and e of the others. A column tells by how much, if the quantity
    of its row that rests (e on the margin, β of the others) is changed by one.
    """

    def __init__(self, dual: _Dual, margin: IntArray) -> None:
        _check_memory(margin, dual.y)
        n, m = len(dual.y), len(margin)
        self.dual, self.margin = dual, margin
        self.kernel = np.ones((m + dual.biased, n))
        self.kernel[:m] = dual.rows(margin)
        matrix = np.zeros((m + dual.biased, m + dual.biased))
        matrix[:, :m], matrix[:m, m:] = self.kernel[:, margin], 1.0
        self.inverse = np.linalg.inv(matrix)
        self.place = np.full(n, -1)
        self.place[margin] = np.arange(m)
        self.kept: dict[int, FloatArray] = {}
        self.noise = np.random.default_rng(0).random(n)

    def responses(self, changes: FloatArray, direct: FloatArray) -> FloatArray:
        """What moves if the coefficients on the margin (and the intercept) change, and e directly."""
        moving = changes @ self.kernel + direct
        moving[:, self.margin] = changes[:, : len(self.margin)]
        return moving

    def keep(self, rows: IntArray) -> None:
        """Compute columns, all at once."""
        if 8 * len(self.place) * (len(self.kept) + len(rows)) > MAX_BYTES:
            self.kept.clear()
        place = self.place[rows]
        on = place >= 0
        changes, direct = -self.kernel[:, rows].T @ self.inverse, self.dual.rows(rows)
        changes[on], direct[on] = self.inverse[place[on]], 0.0
        self.kept.update(zip(rows.tolist(), self.responses(changes, direct), strict=True))

    def column(self, row: int) -> FloatArray:
        if row not in self.kept:
            self.keep(np.array([row]))
        return self.kept[row]


class _Path:
    """An optimum on the move: what moves of each row (see `_Tableau`), within limits, and what rests."""

    def __init__(
        self, tableau: _Tableau, beta: FloatArray, e: FloatArray, guess: FloatArray | None = None
    ) -> None:
        self.tableau, self.low, self.high = tableau, tableau.dual.low.copy(), tableau.dual.high.copy()
        self.margin = tableau.place >= 0
        self.resting = np.where(self.margin, 0.0, beta)
        self.lower, self.upper, self.size = np.empty((3, len(beta)))
        self._limit(slice(None))
        # Residuals start on the right side and without ties; ``shift`` is what takes them where they belong.
        start = e if guess is None else guess
        right = (self.lower <= start) & (start <= self.upper)
        apart = 1e-4 * tableau.noise * np.where(self.upper > 0, 1.0, -1.0)
        start = np.clip(np.where(right, start, -start * tableau.noise) + apart, self.lower, self.upper)
        self.moving = np.where(self.margin, beta, start)
        self.shift = np.where(self.margin, 0.0, e - start)
        self.swapped: list[int] = []
        self.columns = np.empty((_MAX_SWAPPED + 4, len(beta)))
        self.drives: list[tuple[FloatArray, float]] = []
        self.steps = 100 + len(beta)

    def beta(self) -> FloatArray:
        return np.where(self.margin, self.moving, self.resting)

    def leave(self, row: int, change: float) -> None:
        """Change the coefficient of a row, whatever its residual."""
        self.low[row], self.high[row] = -np.inf, np.inf
        if self.margin[row]:
            self.turn(row, float(np.sign(change)))
        self._limit(row)
        self.drive(change * self._response(row) + self.shift)
        self.follow()

    def drive(self, change: FloatArray) -> None:
        """Have what moves change so, by the tableau."""
        self.drives.append((change, 1.0))

    def follow(self) -> None:
        """Follow the optimum as it is driven, the last drive first."""
        while self.drives:
            drive, left = self.drives.pop()
            rate = self._rate(drive, self._weights(drive))
            step, row = self._first_to_stop(rate)
            if step >= left or left < 1e-10:
                self.moving += left * rate
                continue
            self._move(step, rate, row)
            self.drives.append((drive, left - step))
            self.turn(row)

    def turn(self, row: int, toward: float = 0.0) -> None:
        """Let a row enter or leave the margin."""
        if len(self.swapped) > _MAX_SWAPPED:
            self._rebuild()
        response = self._response(row)
        weights = self._weights(response)
        if row in self.swapped:
            pivot = weights[self.swapped.index(row)]
        else:
            pivot = response[row] + weights @ self.columns[: len(weights), row]
        scale = self.tableau.dual.scale
        if (pivot * scale if self.margin[row] else pivot / scale) > _SINGULAR:
            self._swap(row)
            return
        rate = self._rate(response, weights)
        rate[row] = 1.0
        self._swap(row)
        # The margin does not determine the optimum: it may move on at once, until another row is in the way.
        rate *= toward or (-1.0 if self.moving[row] == self.upper[row] else 1.0)
        step, other = self._first_to_stop(rate)
        if not np.isfinite(step):
            raise _LostError
        self._move(step, rate, other)
        self._swap(other)
        if self.margin[row] and pivot < -_SINGULAR * scale:
            # Rounding has made libsvm's matrix indefinite: the row's residual has moved too.
            self.drive(-step * rate[row] * pivot * self._response(row))

    def _response(self, row: int) -> FloatArray:
        """What moves, by the tableau, if what rests of a row is changed by one."""
        if row not in self.swapped:
            return self.tableau.column(row)
        response = np.zeros(len(self.moving))
        response[row] = -1.0
        return response

    def _weights(self, drive: FloatArray) -> FloatArray:
        """How what rests of the rows that have entered or left the margin responds."""
        columns = self.columns[: len(self.swapped)]
        return np.asarray(np.linalg.solve(columns[:, self.swapped].T, -drive[self.swapped]), dtype=np.float64)

    def _rate(self, drive: FloatArray, weights: FloatArray) -> FloatArray:
        """What moves, given these weights."""
        rate: FloatArray = drive + weights @ self.columns[: len(weights)]
        rate[self.swapped] = weights
        return rate

    def _first_to_stop(self, rate: FloatArray) -> tuple[float, int]:
        """How far until a row is at its limit, and which."""
        self.steps -= 1
        if self.steps < 0:
            raise _LostError
        room = np.where(rate > 0, self.upper, self.lower) - self.moving
        speed = np.abs(rate) / self.size
        moves = speed > 1e-13 * speed.max()  # the others do by rounding only
        steps = np.divide(room, rate, out=np.full(len(rate), np.inf), where=moves)
        row = int(np.argmin(steps))
        return max(float(steps[row]), 0.0), row

    def _move(self, step: float, rate: FloatArray, stopped: int) -> None:
        self.moving += step * rate
        self.moving[stopped] = (self.upper if rate[stopped] > 0 else self.lower)[stopped]

    def _swap(self, row: int) -> None:
        """Let what rests of a row move, and what moves rest."""
        self.moving[row], self.resting[row] = self.resting[row], self.moving[row]
        self.margin[row] = not self.margin[row]
        self._limit(row)
        if row not in self.swapped:
            self.columns[len(self.swapped)] = self.tableau.column(row)
            self.swapped.append(row)
            return
        k = self.swapped.index(row)
        self.columns[k] = self.columns[len(self.swapped) - 1]
        self.swapped[k] = self.swapped[-1]
        self.swapped.pop()

    def _limit(self, rows: int | slice) -> None:
        margin, beta, low, high = (a[rows] for a in (self.margin, self.resting, self.low, self.high))
        gone = high <= low
        self.size[rows] = np.where(margin, 1.0, self.tableau.dual.scale)
        self.lower[rows] = np.where(margin, low, np.where((beta > low) | gone, -np.inf, 0.0))
        self.upper[rows] = np.where(margin, high, np.where((beta < high) | gone, np.inf, 0.0))

    def _rebuild(self) -> None:
        self.drives = [(self._rate(drive, self._weights(drive)), left) for drive, left in self.drives]
        self.tableau, self.swapped = _Tableau(self.tableau.dual, np.flatnonzero(self.margin)), []
