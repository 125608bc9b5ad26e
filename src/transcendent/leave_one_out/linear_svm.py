"""Linear SVM with squared hinge loss: what leaving a row out changes is solved for, not refitted."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy import linalg
from sklearn.svm import LinearSVC
from sklearn.utils import check_array
from sklearn.utils.extmath import row_norms

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
from transcendent.leave_one_out.support_vectors import hinge

MAX_ORDER = 12_000
"""Columns or rows inside the margin, whichever are fewer: a matrix of that order is inverted (1.2 GB)."""

MAX_CROSSED = 1 << 28
"""Rows inside the margin times rows outside, where columns are more than the former (2 GB)."""

MAX_CURVATURE = 1e11
"""Of the loss, summed over directions: beyond it, double precision does not give 1e-6 of a score."""

_BLOCK = 1 << 23
_PATIENCE = 30


@register(LinearSVC, kind="exact")
def linear_svm(svm: Any, X: Any, y: AnyArray) -> LeftOut:
    """Decision values of the squared hinge loss, one class against the rest if there are several."""
    if svm.penalty != "l2" or svm.multi_class != "ovr":
        raise NoShortcutError("LinearSVC has one for penalty='l2' and multi_class='ovr'")
    if svm.loss == "hinge":
        return hinge(svm, X, y)
    if svm.class_weight == "balanced":
        raise NoShortcutError("class_weight='balanced' changes with the row left out")
    codes = encode_labels(y, svm.classes_, "y")
    rows = check_array(X, accept_sparse="csr", dtype=np.float64)
    intercept = svm.intercept_scaling * np.ones((rows.shape[0], int(svm.fit_intercept)))
    rows = sp.hstack([rows, intercept], format="csr") if sp.issparse(rows) else np.hstack([rows, intercept])
    groups, first = group_equal_rows(rows)
    distinct = rows[first]
    columns = []
    for c in range(len(svm.coef_)):
        weights = np.append(svm.coef_[c], np.atleast_1d(svm.intercept_)[c : c + 1] / svm.intercept_scaling)
        positive = codes == (c if len(svm.coef_) > 1 else 1)
        key, members = np.unique(2 * groups + positive, return_inverse=True)
        problem = _Problem(
            distinct[key // 2],
            np.where(key % 2, 1.0, -1.0),
            np.where(key % 2, *_costs(svm, c)),
            np.bincount(members).astype(float),
        )
        columns.append(_left_out(problem, weights[: rows.shape[1]])[members])
    decision = columns[0] if len(columns) == 1 else np.column_stack(columns)
    if not svm.fit_intercept:
        decision[unconnected(rows)] = 0.0
    return LeftOut(svm.classes_, decision_function=decision)


def _costs(svm: Any, c: int) -> tuple[float, float]:
    """Twice the C of positive and of negative rows; of several classes, liblinear weighs the rest by 1."""
    weight = dict.fromkeys(svm.classes_.tolist(), 1.0) | (svm.class_weight or {})
    of_class = [2.0 * svm.C * weight[label] for label in svm.classes_.tolist()]
    return (of_class[1], of_class[0]) if len(of_class) == 2 else (of_class[c], 2.0 * svm.C)


@dataclass(frozen=True)
class _Problem:
    """Minimise ½|w|² + ½ Σ cost·copies·max(0, 1 − target·(X w))²; all rows differ."""

    X: Any
    target: FloatArray
    cost: FloatArray
    copies: FloatArray

    def value(self, w: FloatArray, f: FloatArray) -> float:
        slack = np.maximum(0.0, 1 - self.target * f)
        return float(w @ w + np.sum(self.cost * self.copies * slack**2)) / 2

    def gradient(self, w: FloatArray, f: FloatArray) -> FloatArray:
        slack = np.maximum(0.0, 1 - self.target * f)
        return np.asarray(w - self.X.T @ (self.cost * self.copies * slack * self.target))

    def take(self, rows: Any) -> "_Problem":
        return _Problem(self.X[rows], self.target[rows], self.cost[rows], self.copies[rows])


def _left_out(problem: _Problem, fitted: FloatArray) -> FloatArray:
    """Decision values of the rows, each with one copy of it left out, from the fitted weights."""
    w, f, inside, curvature = _solve(problem, fitted)
    check_converged(*(np.repeat(values, problem.copies.astype(int)) for values in (problem.X @ fitted, f)))
    left_out = f.copy()
    if inside.any():
        order = np.argsort(~inside, kind="stable")
        left_out[inside] = _Removals(problem.take(order), w, f[order], curvature).run()
    return left_out


def _solve(problem: _Problem, w: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray, "_Curvature"]:
    """The solution, its decision values, which rows are inside the margin, and H: Newton's method, finite."""
    f = problem.X @ w
    value = problem.value(w, f)
    while True:
        inside = problem.target * f < 1
        curvature = _curvature(problem.take(inside))
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
        if value >= before * (1 - 1e-14):  # the rows in doubt are on the margin, to the last bits
            if np.linalg.norm(problem.gradient(best, f_best)) > 1e-8 * np.linalg.norm(best):
                raise NoShortcutError("its solution cannot be computed accurately at this C")
            return best, f_best, inside, curvature
        w, f = trial, f_trial


class _Curvature(ABC):
    """H = I + Xᵀ diag(weight) X over the rows inside the margin, and K = X H⁻¹ Xᵀ over all."""

    def __init__(self, rows: _Problem) -> None:
        self.X, self.target, self.weight = rows.X, rows.target, rows.cost * rows.copies
        matrix = self._matrix()
        self.factor = linalg.cholesky(matrix.T, lower=True, overwrite_a=True, check_finite=False)

    @cached_property
    def inverse(self) -> FloatArray:
        """Of the matrix that was factored."""
        lower, _ = linalg.lapack.dpotri(self.factor, lower=1)
        return np.ascontiguousarray(lower + np.tril(lower, -1).T)

    def minimiser(self, w: FloatArray) -> FloatArray:
        """The solution if the rows inside the margin stay the same, from any ``w``.

        One step is enough in exact arithmetic; the others repair rounding, which a large cost magnifies.
        """
        for _ in range(3):
            w = w - self._solve(w - self.X.T @ (self.weight * (self.target - self.X @ w)))
        return w

    @abstractmethod
    def _matrix(self) -> FloatArray:
        """What is factored."""

    @abstractmethod
    def _solve(self, vector: FloatArray) -> FloatArray:
        """H⁻¹ times a vector."""

    @abstractmethod
    def kernel(self, X: Any) -> "_Kernel":
        """K of all rows, those inside the margin first."""


class _Kernel(ABC):
    """K = X H⁻¹ Xᵀ, in parts."""

    squares: FloatArray
    """Its diagonal."""

    @abstractmethod
    def part(self, rows: IntArray, columns: IntArray) -> FloatArray:
        """K between rows and columns, each with the rows inside the margin first."""


class _Primal(_Curvature):
    """For few columns: H itself is factored."""

    def _matrix(self) -> FloatArray:
        scaled = sp.diags_array(np.sqrt(self.weight)) @ self.X
        matrix = _dense(scaled.T @ scaled)
        matrix[np.diag_indices_from(matrix)] += 1.0
        return matrix

    def _solve(self, vector: FloatArray) -> FloatArray:
        return np.asarray(linalg.cho_solve((self.factor, True), vector, check_finite=False))

    def kernel(self, X: Any) -> "_Kernel":
        return _PrimalKernel(self, X)


class _PrimalKernel(_Kernel):
    def __init__(self, curvature: _Primal, X: Any) -> None:
        self.X, self.inverse = X, curvature.inverse
        self.squares = _quadratic_forms(X, self.inverse)

    def part(self, rows: IntArray, columns: IntArray) -> FloatArray:
        solved = np.ascontiguousarray((self.X[rows] @ self.inverse).T)
        return _transposed_product(self.X[columns], solved)


class _Dual(_Curvature):
    """For few rows inside the margin: A⁻¹ = X Xᵀ + diag(1 / weight) is factored; H⁻¹ = I - Xᵀ A X."""

    def _matrix(self) -> FloatArray:
        matrix = _dense(self.X @ self.X.T)
        matrix[np.diag_indices_from(matrix)] += 1.0 / self.weight
        return matrix

    def _solve(self, vector: FloatArray) -> FloatArray:
        inner = linalg.cho_solve((self.factor, True), self.X @ vector, check_finite=False)
        return np.asarray(vector - self.X.T @ inner)

    def kernel(self, X: Any) -> "_Kernel":
        return _DualKernel(self, X)


class _DualKernel(_Kernel):
    """From A: within the margin K is known, across it is computed at once, beyond it row by row."""

    def __init__(self, curvature: _Dual, X: Any) -> None:
        self.inverse, self.weight, self.inside = curvature.inverse, curvature.weight, curvature.X
        self.outside = X[len(self.weight) :]
        self.inside_t, self.outside_t = (_transposed(rows) for rows in (self.inside, self.outside))
        size = self.inside.shape[0], self.outside.shape[0]
        if size[0] * size[1] > MAX_CROSSED:
            raise NoShortcutError(
                f"{size[0]} rows inside the margin times {size[1]} outside is above {MAX_CROSSED:,}"
            )
        self.across = np.empty(size)
        for cut in self._cuts(size[0]):
            self.across[cut] = self._outwards(self.inverse[cut] / self.weight[cut, None])
        self.beyond = _RowCache((size[1], size[1]), self._beyond)
        own = (1.0 - np.diag(self.inverse) / self.weight) / self.weight
        self.squares = np.concatenate([own, self._outer_squares()])

    def part(self, rows: IntArray, columns: IntArray) -> FloatArray:
        n, kernel = len(self.weight), np.empty((len(rows), len(columns)))
        r, c = np.count_nonzero(rows < n), np.count_nonzero(columns < n)
        kernel[:r, :c] = self._within(rows[:r], columns[:c])
        kernel[:r, c:] = self.across[np.ix_(rows[:r], columns[c:] - n)]
        kernel[r:, :c] = self.across[np.ix_(columns[:c], rows[r:] - n)].T
        kernel[r:, c:] = self.beyond.part(rows[r:] - n, columns[c:] - n)
        return kernel

    def _within(self, a: IntArray, b: IntArray) -> FloatArray:
        """diag(1 / weight) - A / (weight weightᵀ); the difference H⁻¹ stands for would lose digits."""
        kernel = -self.inverse[np.ix_(a, b)] / (self.weight[a, None] * self.weight[b])
        same = a[:, None] == b
        kernel[same] += np.broadcast_to(1.0 / self.weight[b], kernel.shape)[same]
        return kernel

    def _outer_squares(self) -> FloatArray:
        squares = np.asarray(row_norms(self.outside, squared=True))
        for cut in chunks(len(squares), max(1, _BLOCK // len(self.weight))):
            products = _dense(self.outside[cut] @ self.inside_t)
            squares[cut] -= np.einsum("oi,io->o", products * self.weight, self.across[:, cut])
        return squares

    def _outwards(self, combinations: FloatArray) -> FloatArray:
        """Products of combinations of the rows inside with the rows outside."""
        return _transposed_product(self.outside, self.inside.T @ np.ascontiguousarray(combinations.T))

    def _beyond(self, o: IntArray) -> FloatArray:
        kernel = np.empty((len(o), self.outside.shape[0]))
        for cut in self._cuts(len(o)):
            direct = _dense(self.outside[o[cut]] @ self.outside_t)
            kernel[cut] = direct - self._outwards((self.weight[:, None] * self.across[:, o[cut]]).T)
        return kernel

    def _cuts(self, n: int) -> Iterator[slice]:
        return chunks(n, max(1, _BLOCK // self.inside.shape[1]))


def _curvature(rows: _Problem) -> _Curvature:
    n, width = rows.X.shape
    if min(n, width) > MAX_ORDER:
        raise NoShortcutError(f"{n} rows inside the margin and {width} columns are both above {MAX_ORDER}")
    if np.sum(rows.cost * rows.copies * row_norms(rows.X, squared=True)) > MAX_CURVATURE:
        raise NoShortcutError("C times the squared rows is so large that rounding errors would show")
    return _Primal(rows) if width <= n else _Dual(rows)


class _Removals:
    """Leaves one copy of each row inside the margin out; these rows come first.

    With K = X H⁻¹ Xᵀ, taking weight off row i pulls all decision values along K_i. Rows that thereby cross
    the margin are taken in or out too, by a system of as many equations, until no other row crosses. How
    far the solution moves bounds which rows can: those are looked at, and the bound is checked at the end.
    """

    def __init__(self, problem: _Problem, w: FloatArray, f: FloatArray, curvature: _Curvature) -> None:
        self.problem, self.w, self.f = problem, w, f
        self.inside = np.arange(len(f)) < len(curvature.weight)
        self.residual = problem.target - f
        self.kernel = curvature.kernel(problem.X)
        self.root = np.sqrt(np.maximum(self.kernel.squares, np.finfo(float).tiny))
        nearness = np.abs(1 - problem.target * f) / self.root
        self.order = np.argsort(nearness)
        self.nearness = nearness[self.order]

    def run(self) -> FloatArray:
        """Left-out decision values of the rows inside the margin."""
        rows = np.flatnonzero(self.inside)
        cost = self.problem.cost[rows]
        pull = -cost * self.residual[rows] / (1 - cost * self.kernel.squares[rows])
        first = np.abs(pull) * self.root[rows]
        room = first / 8  # for corrections to move the solution by
        values, todo = np.empty(len(pull)), np.arange(len(pull))
        while len(todo):
            todo = todo[np.argsort((first + room)[todo])]
            failed = []
            for block in self._blocks(todo, (first + room)[todo]):
                values[block], moved = self._remove(rows[block], pull[block], room[block])
                beyond = moved > room[block]
                failed.append(block[beyond])
                room[block[beyond]] = 1.2 * moved[beyond]
            todo = np.concatenate(failed)
        return values

    def _blocks(self, todo: IntArray, reach: FloatArray) -> Iterator[IntArray]:
        """Rows to leave out at once: those with about as many rows in reach."""
        near = np.searchsorted(self.nearness, reach, side="right")
        start = 0
        while start < len(todo):
            alike = int(np.searchsorted(near, 1.5 * near[start] + 100, side="right"))
            stop = min(alike, start + min(256, max(1, _BLOCK // max(1, near[start]))))
            yield todo[start:stop]
            start = stop

    def _remove(self, rows: IntArray, pull: FloatArray, room: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Left-out decision values of some rows, and how far corrections move the solution (norm of H).

        They hold if that is within ``room``: only rows that this lets cross are looked at.
        """
        values, moved = self.f[rows] + pull * self.kernel.squares[rows], np.zeros(len(rows))
        reach = np.max(np.abs(pull) * self.root[rows] + room)
        near = np.sort(self.order[: np.searchsorted(self.nearness, reach, side="right")])
        K = self.kernel.part(rows, near)
        f = pull[:, None] * K
        f += self.f[near]
        crossed = self._crossed(rows, near, f)
        todo = np.flatnonzero(crossed.any(axis=1))
        f -= self.problem.target[near]
        f /= self.root[near]
        may_cross = np.abs(f, out=f) <= room[:, None]
        may_cross |= crossed
        kept = np.flatnonzero(may_cross[todo].any(axis=0))
        near, K, crossed = near[kept], K[:, kept], crossed[:, kept]
        table = _RowCache((len(near), len(near)), lambda some: self.kernel.part(near[some], near))
        for _ in range(_PATIENCE):
            unsettled = [todo[:0]]
            for some in _similar_sizes(todo, crossed):
                systems = _Systems(self, rows[some], K[some], crossed[some], near, table)
                values[some], moved[some] = systems.own_value(), systems.moved(pull[some])
                now = self._crossed(rows[some], near, systems.values())
                unsettled.append(some[(now != crossed[some]).any(axis=1)])
                crossed[some] = now
            todo = np.concatenate(unsettled)
        for t in todo:
            values[t], moved[t] = self._refit(int(rows[t])), 0.0
        return values, moved

    def _crossed(self, rows: IntArray, near: IntArray, f: FloatArray) -> BoolArray:
        """Which of the near rows change sides for each row left out; not itself if it has no copies."""
        crossed: BoolArray = (self.problem.target[near] * f < 1) != self.inside[near]
        which, where = _positions(rows, near)
        alone = self.problem.copies[rows[which]] == 1
        crossed[which[alone], where[alone]] = False
        return crossed

    def _refit(self, row: int) -> float:
        """The decision value of a row for which crossings do not settle."""
        copies = self.problem.copies.copy()
        copies[row] -= 1
        rest = replace(self.problem, copies=copies).take(copies > 0)
        return float((self.problem.X[[row]] @ _solve(rest, self.w)[0])[0])


class _RowCache:
    """Rows of a matrix, computed when first asked for."""

    def __init__(self, shape: tuple[int, int], compute: Callable[[IntArray], FloatArray]) -> None:
        self.compute, self.place = compute, np.full(shape[0], -1)
        self.filled, self.room = 0, np.empty((0, shape[1]))

    @property
    def rows(self) -> FloatArray:
        """Those computed so far."""
        return self.room[: self.filled]

    def places(self, wanted: IntArray) -> IntArray:
        """Where in ``rows`` the wanted ones are."""
        new = wanted[self.place[wanted] < 0]
        if len(new):
            computed = self.compute(new)
            end = self.filled + len(new)
            if end > len(self.room):
                grown = np.empty((2 * end, self.room.shape[1]))
                grown[: self.filled] = self.rows
                self.room = grown
            self.room[self.filled : end] = computed
            self.place[new] = np.arange(self.filled, end)
            self.filled = end
        return self.place[wanted]

    def part(self, wanted: IntArray, columns: IntArray) -> FloatArray:
        """Some columns of the wanted rows."""
        places = self.places(wanted)
        return self.rows[np.ix_(places, columns)]


class _Systems:
    """One system of equations per row left out: the row itself, and the rows that cross the margin with it.

    (S⁻¹ + K) e = target − f over these rows, with S the weights put on (entering) or taken off (leaving).
    Then all decision values move by K e.
    """

    def __init__(
        self,
        removals: _Removals,
        rows: IntArray,
        K: FloatArray,
        crossed: BoolArray,
        near: IntArray,
        table: _RowCache,
    ) -> None:
        problem = removals.problem
        self.K, self.table, self.f, self.f_own = K, table, removals.f[near], removals.f[rows]
        weight, others = problem.cost[rows].copy(), crossed.copy()
        which, where = _positions(rows, near)
        gone = crossed[which, where]  # its copies leave the margin with it
        weight[which[gone]] *= problem.copies[rows[which[gone]]]
        others[which, where] = False
        union = np.flatnonzero(others.any(axis=0))
        between, places = table.part(union, union), table.places(union)
        self.system, column = np.nonzero(others[:, union])
        count = np.bincount(self.system, minlength=len(rows))
        self.slot = 1 + np.arange(len(column)) - np.repeat(np.cumsum(count) - count, count)
        self.place = places[column]
        # Equation 0 is the row itself; a system with fewer equations than others is filled up with e = 0.
        shape = (len(rows), 1 + int(count.max(initial=0)))
        taken, real = np.zeros(shape, dtype=np.intp), np.zeros(shape, dtype=bool)
        taken[self.system, self.slot], real[self.system, self.slot] = column, True
        self.gram = np.zeros((*shape, shape[1]))
        if len(union):
            both = real[:, :, None] & real[:, None, :]
            self.gram = between[taken[:, :, None], taken[:, None, :]] * both
            self.gram[:, 0, :] = self.gram[:, :, 0] = np.take_along_axis(K[:, union], taken, axis=1) * real
        self.gram[:, 0, 0] = removals.kernel.squares[rows]
        moving = near[union[column]]
        change = (problem.cost * problem.copies)[moving] * np.where(removals.inside[moving], -1.0, 1.0)
        matrix, right, diagonal = self.gram.copy(), np.zeros(shape), np.ones(shape)
        diagonal[self.system, self.slot], diagonal[:, 0] = 1.0 / change, -1.0 / weight
        right[self.system, self.slot], right[:, 0] = removals.residual[moving], removals.residual[rows]
        matrix[:, np.arange(shape[1]), np.arange(shape[1])] += diagonal
        self.e = np.linalg.solve(matrix, right[:, :, None])[:, :, 0]

    def own_value(self) -> FloatArray:
        """Decision values of the rows left out."""
        change: FloatArray = np.einsum("ti,ti->t", self.e, self.gram[:, 0, :])
        return self.f_own + change

    def moved(self, pull: FloatArray) -> FloatArray:
        """How far the crossings move the solution, beyond what the row itself does."""
        beyond = self.e.copy()
        beyond[:, 0] -= pull
        squares: FloatArray = np.einsum("ti,tij,tj->t", beyond, self.gram, beyond)
        return np.sqrt(np.maximum(squares, 0.0))

    def values(self) -> FloatArray:
        """Decision values of the near rows."""
        spread = sp.csr_array(
            (self.e[self.system, self.slot], (self.system, self.place)),
            shape=(len(self.e), len(self.table.rows)),
        )
        f = spread @ self.table.rows
        f += self.e[:, :1] * self.K
        f += self.f
        return np.asarray(f)


def _positions(rows: IntArray, near: IntArray) -> tuple[IntArray, IntArray]:
    """Which of the rows are among the (sorted) near ones, and where."""
    where = np.minimum(np.searchsorted(near, rows), max(len(near) - 1, 0))
    which = np.flatnonzero(near[where] == rows) if len(near) else np.arange(0)
    return which, where[which]


def _similar_sizes(todo: IntArray, crossed: BoolArray) -> Iterator[IntArray]:
    """Parts of ``todo`` whose systems of equations together stay small, padded to the largest."""
    count = crossed[todo].sum(axis=1)
    order = np.argsort(count)
    while len(order):
        size = max(1, _BLOCK // (int(count[order[-1]]) + 1) ** 2)
        yield todo[order[-size:]]
        order = order[:-size]


def _quadratic_forms(X: Any, matrix: FloatArray) -> FloatArray:
    """xᵀ M x of each row."""
    if not sp.issparse(X):
        cuts = chunks(X.shape[0], max(1, _BLOCK // X.shape[1]))
        return np.concatenate([np.einsum("ij,ij->i", X[cut] @ matrix, X[cut]) for cut in cuts])
    # Rows with as many non-zeros together: their part of M is gathered, never M times a row.
    forms, lengths, flat = np.zeros(X.shape[0]), np.diff(X.indptr), np.ravel(matrix)
    for length in np.unique(lengths[lengths > 0]):
        alike = np.flatnonzero(lengths == length)
        for cut in chunks(len(alike), max(1, _BLOCK // int(length) ** 2)):
            at = X.indptr[alike[cut], None] + np.arange(length)
            index, data = X.indices[at].astype(np.intp), X.data[at]
            part = flat.take(index[:, :, None] * len(matrix) + index[:, None, :])
            forms[alike[cut]] = (data[:, None, :] @ part @ data[:, :, None])[:, 0, 0]
    return forms


def _transposed_product(X: Any, Y: FloatArray) -> FloatArray:
    """(X Y)ᵀ, in parts that are transposed in the processor's cache."""
    product = np.empty((Y.shape[1], X.shape[0]))
    for cut in chunks(X.shape[0], max(1, (1 << 17) // max(1, Y.shape[1]))):
        product[:, cut] = (X[cut] @ Y).T
    return product


def _transposed(matrix: Any) -> Any:
    return sp.csr_array(matrix.T) if sp.issparse(matrix) else matrix.T


def _dense(matrix: Any) -> FloatArray:
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix)
