"""Linear SVM with squared hinge loss: low-rank corrections give the solution without a row."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from transcendent._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray, group_equal_rows
from transcendent.leave_one_out import shared
from transcendent.leave_one_out.convergence import check_converged
from transcendent.leave_one_out.registry import LeftOut, register
from transcendent.leave_one_out.shared import refuse_if, rows_at_once
from transcendent.leave_one_out.squared_hinge import Curvature, HingeProblem, RowCache, solve
from transcendent.leave_one_out.support_vectors import hinge

_ROUNDS = 30


@register(LinearSVC, kind="exact")
def linear_svm(svm: Any, X: Any, y: AnyArray) -> LeftOut:
    """Return left-out decision values for either loss, one class against the rest if there are several."""
    supported = svm.penalty == "l2" and svm.multi_class == "ovr"
    refuse_if(not supported, "LinearSVC has a shortcut only for penalty='l2' and multi_class='ovr'")
    rows, codes = shared.rows_and_codes(svm, X, y)
    of_class, targets = shared.class_costs(svm, y)[codes], shared.one_vs_rest(codes, len(svm.classes_))
    if svm.loss == "hinge":
        solve_class = partial(hinge, svm, rows, svm.decision_function(rows).reshape(targets.shape), codes)
    else:
        extended = shared.with_intercept(rows, svm.intercept_scaling, int(svm.fit_intercept))
        solve_class = partial(_squared_hinge, svm, extended, group_equal_rows(extended), codes)
    decision = np.empty(targets.shape)
    for k, target in enumerate(targets.T):
        # With several classes, liblinear weights the class but not the rest.
        cost = of_class if targets.shape[1] == 1 else np.where(target > 0, of_class, svm.C)
        decision[:, k] = solve_class(k, target, cost)
    return shared.linear_answers(svm, rows, decision)


def _squared_hinge(
    svm: Any,
    rows: Any,
    groups: tuple[IntArray, IntArray],
    codes: IntArray,
    k: int,
    target: FloatArray,
    cost: FloatArray,
) -> FloatArray:
    """Return the left-out decision values of class k; rows in a group are equal."""
    key, taken, members = np.unique(2 * groups[0] + (target > 0), return_index=True, return_inverse=True)
    copies = np.bincount(members).astype(float)
    problem = HingeProblem(rows[groups[1][key // 2]], target[taken], 2.0 * cost[taken], copies)
    weights = np.append(svm.coef_[k], np.atleast_1d(svm.intercept_)[k : k + 1] / svm.intercept_scaling)
    fitted = weights[: rows.shape[1]]
    w, f, inside, curvature = solve(problem, fitted)
    check_converged((problem.X @ fitted)[members], f[members], codes)
    left_out = f.copy()
    if inside.any():
        order = np.argsort(~inside, kind="stable")
        left_out[inside] = _Removals(problem.take(order), w, f[order], curvature).run()
    return left_out[members]


class _Removals:
    """Leaves out one copy of each row inside the margin; these rows come first.

    Let K = X H⁻¹ Xᵀ. Without row i of cost c the Hessian is H - c x xᵀ, and by the Sherman–Morrison formula
    all decision values move by K_i · pull with pull = -c residual / (1 - c K_ii). The division is safe:
    H ≥ I + c x xᵀ makes c K_ii < 1. Rows that cross the margin thereby enter or leave the Hessian too, by a
    system with one equation for each (Woodbury), until no other row crosses.

    By the Cauchy–Schwarz inequality, a solution that moves by d in the norm of H changes the decision value
    of row j by at most d √K_jj. Only rows that near to the margin are examined; d is checked at the end.
    """

    def __init__(self, problem: HingeProblem, w: FloatArray, f: FloatArray, curvature: Curvature) -> None:
        self.problem, self.w, self.f = problem, w, f
        self.inside = np.arange(len(f)) < len(curvature.weight)
        self.residual = problem.target - f
        self.kernel = curvature.kernel(problem.X)
        self.root = np.sqrt(np.maximum(self.kernel.squares, np.finfo(float).tiny))
        nearness = np.abs(1 - problem.target * f) / self.root
        self.order = np.argsort(nearness)
        self.nearness = nearness[self.order]

    def run(self) -> FloatArray:
        """Return the left-out decision values of the rows inside the margin."""
        rows = np.flatnonzero(self.inside)
        cost = self.problem.cost[rows]
        pull = -cost * self.residual[rows] / (1 - cost * self.kernel.squares[rows])
        first = np.abs(pull) * self.root[rows]
        room = first / 8  # how far corrections may move the solution
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
        """Yield rows to leave out together: those with similar numbers of rows in reach."""
        near = np.searchsorted(self.nearness, reach, side="right")
        start = 0
        while start < len(todo):
            alike = int(np.searchsorted(near, 1.5 * near[start] + 100, side="right"))
            stop = min(alike, start + min(256, rows_at_once(int(near[start]))))
            yield todo[start:stop]
            start = stop

    def _remove(self, rows: IntArray, pull: FloatArray, room: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return left-out decision values of some rows, and how far corrections move the solution.

        Only rows that can cross within ``room`` are examined: the values hold if no correction exceeds it.
        """
        values, moved = self.f[rows] + pull * self.kernel.squares[rows], np.zeros(len(rows))
        reach = np.max(np.abs(pull) * self.root[rows] + room)
        near = np.sort(self.order[: np.searchsorted(self.nearness, reach, side="right")])
        K = self.kernel.block(rows, near)
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
        cache = RowCache((len(near), len(near)), lambda some: self.kernel.block(near[some], near))
        for _ in range(_ROUNDS):
            unsettled = [todo[:0]]
            for some in _similar_sizes(todo, crossed):
                systems = _Systems(self, rows[some], K[some], crossed[some], near, cache)
                values[some], moved[some] = systems.own_value(), systems.moved(pull[some])
                now = self._crossed(rows[some], near, systems.values())
                unsettled.append(some[(now != crossed[some]).any(axis=1)])
                crossed[some] = now
            todo = np.concatenate(unsettled)
        for t in todo:
            values[t], moved[t] = self._refit(int(rows[t])), 0.0
        return values, moved

    def _crossed(self, rows: IntArray, near: IntArray, f: FloatArray) -> BoolArray:
        """Return which near rows change sides for each row left out; not the row itself without copies."""
        crossed: BoolArray = (self.problem.target[near] * f < 1) != self.inside[near]
        which, where = _positions(rows, near)
        alone = self.problem.copies[rows[which]] == 1
        crossed[which[alone], where[alone]] = False
        return crossed

    def _refit(self, row: int) -> float:
        """Return the decision value of a row for which the crossing rows do not settle."""
        copies = self.problem.copies.copy()
        copies[row] -= 1
        rest = replace(self.problem, copies=copies).take(copies > 0)
        return float((self.problem.X[[row]] @ solve(rest, self.w)[0])[0])


class _Systems:
    """One system of equations per row left out, for it and the rows that cross the margin with it.

    Adding weights S to these rows (negative ones remove them) changes H by Xᵀ S X. By the Woodbury formula,
    all decision values move by K e, where (S⁻¹ + K) e = target − f over these rows.
    """

    def __init__(
        self,
        removals: _Removals,
        rows: IntArray,
        K: FloatArray,
        crossed: BoolArray,
        near: IntArray,
        cache: RowCache,
    ) -> None:
        problem = removals.problem
        self.K, self.cache, self.f, self.f_own = K, cache, removals.f[near], removals.f[rows]
        weight, others = problem.cost[rows].copy(), crossed.copy()
        which, where = _positions(rows, near)
        gone = crossed[which, where]  # all copies of such a row leave the margin
        weight[which[gone]] *= problem.copies[rows[which[gone]]]
        others[which, where] = False
        union = np.flatnonzero(others.any(axis=0))
        between, places = cache.block(union, union), cache.places(union)
        self.system, column = np.nonzero(others[:, union])
        count = np.bincount(self.system, minlength=len(rows))
        self.slot = 1 + np.arange(len(column)) - np.repeat(np.cumsum(count) - count, count)
        self.place = places[column]
        # Equation 0 is the row itself; shorter systems are padded with e = 0.
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
        """Return the decision values of the rows left out."""
        return np.asarray(self.f_own + np.einsum("ti,ti->t", self.e, self.gram[:, 0, :]))

    def moved(self, pull: FloatArray) -> FloatArray:
        """Return how far the crossing rows move the solution (norm of H), beyond the row left out."""
        beyond = self.e.copy()
        beyond[:, 0] -= pull
        squares: FloatArray = np.einsum("ti,tij,tj->t", beyond, self.gram, beyond)
        return np.sqrt(np.maximum(squares, 0.0))

    def values(self) -> FloatArray:
        """Return the decision values of the near rows."""
        spread = sp.csr_array(
            (self.e[self.system, self.slot], (self.system, self.place)),
            shape=(len(self.e), len(self.cache.rows)),
        )
        f = spread @ self.cache.rows
        f += self.e[:, :1] * self.K
        f += self.f
        return np.asarray(f)


def _positions(rows: IntArray, near: IntArray) -> tuple[IntArray, IntArray]:
    """Return the positions of the rows that are among the (sorted) near ones, and their places there."""
    where = np.searchsorted(near, rows)
    which = np.flatnonzero(np.append(near, -1)[where] == rows)
    return which, where[which]


def _similar_sizes(todo: IntArray, crossed: BoolArray) -> Iterator[IntArray]:
    """Yield pieces of ``todo`` whose systems, padded to the largest, together stay small."""
    count = crossed[todo].sum(axis=1)
    order = np.argsort(count)
    while len(order):
        size = rows_at_once((int(count[order[-1]]) + 1) ** 2)
        yield todo[order[-size:]]
        order = order[:-size]
