"""The dual problem of a support vector machine with hinge loss, and the path of its optimum.

Minimise ½βᵀKβ − yᵀβ for low ≤ β ≤ high, with Σβ = 0 if there is an intercept b without penalty. At the
optimum the residuals e = Kβ + b − y are 0 on the margin, where β is free, ≥ 0 where β is low and ≤ 0 where it
is high. While the coefficient of a row goes to zero, the optimum moves along straight lines and turns
whenever a row enters or leaves the margin (Cauwenberghs and Poggio, Incremental and Decremental Support
Vector Machine Learning, 2000). Rounding errors along a path do no harm: its end is checked against these
conditions, and the problem is solved again where they fail.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from transcendent._utils.arrays import BoolArray, FloatArray, IntArray, chunks
from transcendent.leave_one_out.shared import dense, refuse_if, rows_at_once

MAX_BYTES = 1 << 30
"""Largest kernel between the rows on the margin and all rows; a few times as much memory is used in all."""

SINGULAR = 1e-10
"""A row depends on others on the margin if they explain its kernel with itself up to this share."""

LOST = (
    "the solution is ill-conditioned at this C: scale the features, raise max_iter, lower tol or choose "
    "another C"
)

_MAX_SWAPPED = 100

Kernel = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Dual:
    """A problem with distinct rows: libsvm's for ``svm``, or one without a free intercept if it is None."""

    X: Any
    kernel: Kernel
    y: FloatArray
    low: FloatArray
    high: FloatArray
    scale: float
    svm: Any

    @property
    def biased(self) -> bool:
        """Whether there is an intercept that is not penalised."""
        return self.svm is not None

    def rows(self, rows: IntArray) -> FloatArray:
        """Return rows of the kernel matrix of the problem, which libsvm holds in single precision."""
        return self.rounded(self.exact_rows(rows))

    def exact_rows(self, rows: IntArray) -> FloatArray:
        """Return rows of the kernel matrix in the precision of decision values."""
        return np.asarray(self.kernel(self.X[rows], self.X)) if len(rows) else np.empty((0, len(self.y)))

    def rounded(self, values: FloatArray) -> FloatArray:
        """Return values of the kernel rounded to the precision of the problem."""
        return values.astype(np.float32).astype(np.float64) if self.biased else values

    def free(self, beta: FloatArray) -> BoolArray:
        """Return the mask of the coefficients between their bounds."""
        return (self.low < beta) & (beta < self.high)

    def snapped(self, beta: FloatArray) -> FloatArray:
        """Return coefficients, with those within rounding of a bound exactly on it."""
        tiny = 1e-12 * (self.high - self.low)
        beta = np.where(beta - self.low <= tiny, self.low, beta)
        return np.where(self.high - beta <= tiny, self.high, beta)

    def shift(self, beta: FloatArray, e: FloatArray, edge: int = 0) -> float:
        """Return the intercept's correction by the free rows, or to the middle (edge: -1, 1) of its range."""
        if not self.biased:
            return 0.0
        free = self.free(beta)
        if free.any():
            return float(-e[free].mean())
        able = beta < self.high, beta > self.low
        refuse_if(not (able[0].any() and able[1].any()), LOST)
        least, most = -e[able[0]].min(), -e[able[1]].max()
        return float((least, (least + most) / 2, most)[edge + 1])

    def is_solved(self, beta: FloatArray, e: FloatArray, close: float = 1e-9) -> bool:
        """Return whether β is optimal, up to rounding and a share of the spread of decision values."""
        wrong = np.maximum(np.where(beta < self.high, -e, 0.0), np.where(beta > self.low, e, 0.0)).max()
        unbalanced = self.scale * abs(beta.sum()) if self.biased else 0.0
        tolerance = close * (e + self.y).std() + 1e-12 + 1e-14 * self.scale * np.abs(beta).sum()
        return bool(max(wrong, unbalanced) <= tolerance)

    def solution(self, beta: FloatArray) -> "Solution":
        """Return coefficients that should be optimal, with their intercept and residuals."""
        beta = self.snapped(beta)
        e = combine(beta, self.rows) - self.y
        intercept = self.shift(beta, e)
        return Solution(beta, intercept, e + intercept)

    def refitted(self) -> "Solution":
        """Solve the problem again with libsvm."""
        refuse_if(self.svm is None, LOST)
        beta, rows = np.zeros(len(self.y)), np.flatnonzero(self.low < self.high)
        max_iter = 100_000 + 100 * len(rows)
        svm = clone(self.svm).set_params(C=1.0, class_weight=None, tol=1e-10, max_iter=max_iter)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            svm.fit(self.X[rows], self.y[rows], sample_weight=(self.high - self.low)[rows])
        refuse_if(svm.fit_status_, LOST)
        beta[rows] = -coefficients(svm, (self.y[rows] > 0).astype(np.intp), 0, 1)
        solution = self.solution(beta)
        refuse_if(not self.is_solved(solution.beta, solution.e, close=1e-6), LOST)
        return solution

    def without(self, row: int, kept: float) -> "Dual":
        """Return the problem with only a share of the copies of a row."""
        low, high = self.low.copy(), self.high.copy()
        low[row], high[row] = kept * low[row], kept * high[row]
        return replace(self, low=low, high=high)


@dataclass(frozen=True)
class Solution:
    """Coefficients, the intercept and the residuals."""

    beta: FloatArray
    intercept: float
    e: FloatArray


class LostError(Exception):
    """The optimum cannot be followed."""


def coefficients(svm: Any, codes: IntArray, first: int, second: int) -> FloatArray:
    """Return signed coefficients of all rows in libsvm's solution for two classes, positive for the first."""
    dual_coef = dense(-svm.dual_coef_ if len(svm.classes_) == 2 else svm.dual_coef_)
    of_class, beta = codes[svm.support_], np.zeros(len(codes))
    for own, other in ((first, second - 1), (second, first)):
        beta[svm.support_[of_class == own]] = dual_coef[other, of_class == own]
    return beta


def combine(beta: FloatArray, rows: Callable[[IntArray], FloatArray]) -> FloatArray:
    """Return βK for one or several β."""
    support, total = np.flatnonzero(np.any(np.atleast_2d(beta) != 0, axis=0)), np.zeros(beta.shape)
    for part in chunks(len(support), rows_at_once(beta.shape[-1])):
        total += beta[..., support[part]] @ rows(support[part])
    return total


def check_memory(margin: IntArray, rows: FloatArray) -> None:
    """Raise `NoShortcutError` if the kernel between the margin and all rows would be too large."""
    too_large = f"the kernel of {len(margin)} rows on the margin would take over {MAX_BYTES} bytes"
    refuse_if(8 * len(margin) * len(rows) > MAX_BYTES, too_large)


class Tableau:
    """Responses of the optimum to changes of single rows, as long as the same rows are on the margin.

    The moving quantities are β of the rows on the margin and e of the others; the resting ones are e on the
    margin and β of the others. A column holds the response of all moving quantities to a unit change of the
    resting quantity of one row. It follows from e = 0 on the margin (and Σβ = 0), which is a linear system in
    the β of these rows (and the intercept).
    """

    def __init__(self, dual: Dual, margin: IntArray) -> None:
        check_memory(margin, dual.y)
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
        """Return the response to changes of β on the margin (and of the intercept), and of e directly."""
        moving = changes @ self.kernel + direct
        moving[:, self.margin] = changes[:, : len(self.margin)]
        return moving

    def keep(self, rows: IntArray) -> None:
        """Compute the columns of several rows at once."""
        if 8 * len(self.place) * (len(self.kept) + len(rows)) > MAX_BYTES:
            self.kept.clear()
        place = self.place[rows]
        on = place >= 0
        # A change of β off the margin moves e by K, and β on the margin by -M⁻¹ K, which keeps e = 0 there. A
        # change of e on the margin moves β there by M⁻¹.
        changes, direct = -self.kernel[:, rows].T @ self.inverse, self.dual.rows(rows)
        changes[on], direct[on] = self.inverse[place[on]], 0.0
        self.kept.update(zip(rows.tolist(), self.responses(changes, direct), strict=True))

    def column(self, row: int) -> FloatArray:
        """Return the response to a unit change of the resting quantity of a row."""
        if row not in self.kept:
            self.keep(np.array([row]))
        return self.kept[row]


class Path:
    """A moving optimum: the moving quantity of each row (see `Tableau`), its limits, and the resting one.

    Rows that entered or left the margin since the tableau was computed are ``swapped``: a small linear system
    corrects its responses (Woodbury), and the tableau is computed again after `_MAX_SWAPPED` of them.
    """

    def __init__(
        self, tableau: Tableau, beta: FloatArray, e: FloatArray, guess: FloatArray | None = None
    ) -> None:
        self.tableau, self.low, self.high = tableau, tableau.dual.low.copy(), tableau.dual.high.copy()
        self.margin = tableau.place >= 0
        self.resting = np.where(self.margin, 0.0, beta)
        self.lower, self.upper, self.size = np.empty((3, len(beta)))
        self._limit(slice(None))
        # Residuals start on the right side and without ties; ``shift`` moves them to their true values.
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
        """Return the coefficients of all rows."""
        return np.where(self.margin, self.moving, self.resting)

    def leave(self, row: int, change: float) -> None:
        """Change the coefficient of a row, regardless of its residual."""
        self.low[row], self.high[row] = -np.inf, np.inf
        if self.margin[row]:
            self.turn(row, float(np.sign(change)))
        self._limit(row)
        self.drive(change * self._response(row) + self.shift)
        self.follow()

    def drive(self, change: FloatArray) -> None:
        """Add a change of the moving quantities, by the tableau, that `follow` will make."""
        self.drives.append((change, 1.0))

    def follow(self) -> None:
        """Follow the optimum along its drives, the last one first."""
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
        """Move a row onto the margin or off it."""
        if len(self.swapped) > _MAX_SWAPPED:
            self.drives = [(self._rate(drive, self._weights(drive)), left) for drive, left in self.drives]
            self.tableau, self.swapped = Tableau(self.tableau.dual, np.flatnonzero(self.margin)), []
        response = self._response(row)
        weights = self._weights(response)
        if row in self.swapped:
            pivot = weights[self.swapped.index(row)]
        else:
            pivot = response[row] + weights @ self.columns[: len(weights), row]
        scale = self.tableau.dual.scale
        if (pivot * scale if self.margin[row] else pivot / scale) > SINGULAR:
            self._swap(row)
            return
        rate = self._rate(response, weights)
        rate[row] = 1.0
        self._swap(row)
        # The margin does not determine the optimum: it moves on at no cost until another row stops it.
        rate *= toward or (-1.0 if self.moving[row] == self.upper[row] else 1.0)
        step, other = self._first_to_stop(rate)
        if not np.isfinite(step):
            raise LostError
        self._move(step, rate, other)
        self._swap(other)
        if self.margin[row] and pivot < -SINGULAR * scale:
            # Rounding made libsvm's matrix indefinite: the row's residual moved too.
            self.drive(-step * rate[row] * pivot * self._response(row))

    def _response(self, row: int) -> FloatArray:
        """Return the response, by the tableau, to a unit change of the resting quantity of a row."""
        if row not in self.swapped:
            return self.tableau.column(row)
        response = np.zeros(len(self.moving))
        response[row] = -1.0
        return response

    def _weights(self, drive: FloatArray) -> FloatArray:
        """Return the response of the resting quantities of the swapped rows."""
        columns = self.columns[: len(self.swapped)]
        return np.asarray(np.linalg.solve(columns[:, self.swapped].T, -drive[self.swapped]), dtype=np.float64)

    def _rate(self, drive: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the rate of the moving quantities for a drive and its weights."""
        rate: FloatArray = drive + weights @ self.columns[: len(weights)]
        rate[self.swapped] = weights
        return rate

    def _first_to_stop(self, rate: FloatArray) -> tuple[float, int]:
        """Return the distance until the first row reaches its limit, and that row."""
        self.steps -= 1
        if self.steps < 0:
            raise LostError
        room = np.where(rate > 0, self.upper, self.lower) - self.moving
        speed = np.abs(rate) / self.size
        moves = speed > 1e-13 * speed.max()  # the others move only by rounding
        steps = np.divide(room, rate, out=np.full(len(rate), np.inf), where=moves)
        row = int(np.argmin(steps))
        return max(float(steps[row]), 0.0), row

    def _move(self, step: float, rate: FloatArray, stopped: int) -> None:
        self.moving += step * rate
        self.moving[stopped] = (self.upper if rate[stopped] > 0 else self.lower)[stopped]

    def _swap(self, row: int) -> None:
        """Exchange the moving and the resting quantity of a row."""
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
