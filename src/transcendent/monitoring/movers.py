"""Features that moved since training: by their means, and by how often they occur."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import log_ndtr
from scipy.stats import entropy

from transcendent._utils.arrays import (
    AnyArray,
    FloatArray,
    IntArray,
    chunks,
    column_names,
    divide,
    missing_rows,
    take_column,
    take_rows,
)
from transcendent._utils.listing import Listing
from transcendent.monitoring.state import as_numbers, check, check_fields

_MAX_CELLS = 1 << 20
_FAR = 1e150  # its square is still finite


class Movers(NamedTuple):
    """The features whose means moved most; `DriftMonitor.movers` describes the columns."""

    names: AnyArray
    effect: FloatArray
    training: FloatArray
    now: FloatArray
    p_values: FloatArray

    def __str__(self) -> str:
        columns = zip(self.names.tolist(), *self[1:], strict=True)
        rows = [
            [str(name), f"{d:+.2f}", f"{before:.4g}", f"{now:.4g}", f"{p:.1g}"]
            for name, d, before, now, p in columns
        ]
        return Listing(["feature", "moved by", "training", "now", "p-value"], rows).as_text()


@dataclass
class Moments:
    """Number, sum and sum of squares of each feature's values, without missing and infinite ones.

    Values are taken relative to an origin near them, since sums of large squares lose small differences. Rows
    are added one after the other, so results do not depend on the size of batches.
    """

    origin: FloatArray
    n: FloatArray
    total: FloatArray
    squares: FloatArray

    def update(self, rows: Any) -> None:
        """Add rows of numbers."""
        if sp.issparse(rows):
            self._update_sparse(rows)
            return
        for part in chunks(len(rows), max(1, _MAX_CELLS // max(len(self.n), 1))):
            values = np.clip(np.asarray(rows[part], dtype=np.float64) - self.origin, -_FAR, _FAR)
            known = np.isfinite(rows[part])
            self.n += known.sum(axis=0)
            values = np.where(known, values, 0.0)
            self.total = np.add.accumulate(np.vstack([self.total, values]))[-1]
            self.squares = np.add.accumulate(np.vstack([self.squares, values**2]))[-1]

    def _update_sparse(self, rows: Any) -> None:
        csr = sp.csr_array(rows, copy=True)
        csr.sum_duplicates()
        known = np.isfinite(csr.data)
        values, columns = np.clip(csr.data[known].astype(np.float64), -_FAR, _FAR), csr.indices[known]
        np.add.at(self.total, columns, values)
        np.add.at(self.squares, columns, values**2)
        self.n += csr.shape[0] - np.bincount(csr.indices[~known], minlength=len(self.n))

    @property
    def mean(self) -> FloatArray:
        """Mean of each feature; NaN without values."""
        return self.origin + divide(self.total, self.n)

    @property
    def variance(self) -> FloatArray:
        """Variance of each feature."""
        return np.maximum(divide(self.squares, self.n) - divide(self.total, self.n) ** 2, 0.0)


@dataclass
class Features:
    """The names or positions of features, with their moments in training and since then."""

    names: list[Any]
    training: Moments
    now: Moments

    @classmethod
    def of(cls, X: Any) -> "Features":
        """Start with training rows, or rows like them."""
        names, rows = _numbers(X)
        if rows.shape[0] < 2:
            raise ValueError("X has fewer than two rows: pass more to compare features with.")
        first = np.zeros(len(names)) if sp.issparse(rows) else np.nan_to_num(rows[0], posinf=0, neginf=0)
        training, now = (Moments(first, *np.zeros((3, len(first)))) for _ in range(2))
        training.update(rows)
        return cls(names, training, now)

    def update(self, X: Any) -> None:
        """Add objects."""
        rows = _numbers(X, self.names)[1]
        if rows.shape[1] != len(self.names):
            raise ValueError(f"X has {rows.shape[1]} features, the monitor started with {len(self.names)}.")
        if sp.issparse(rows) and self.now.origin.any():
            rows = rows.toarray()
        self.now.update(rows)

    def movers(self, n: int) -> Movers:
        """Return the features that moved most."""
        before, now = self.training, self.now
        spread = np.sqrt((before.variance + now.variance) / 2)
        moved = now.mean - before.mean
        with np.errstate(divide="ignore", invalid="ignore"):
            effect = np.where(moved == 0, 0.0, moved / spread)
            z = moved / np.sqrt(before.variance * (1 / before.n + 1 / now.n))
            p = 2 * np.exp(log_ndtr(-np.abs(z))) * len(moved)
        vanished = (before.n > 0) & (now.n == 0)  # a feature that is now always missing comes first
        size = np.where(vanished, np.inf, np.abs(np.nan_to_num(effect, posinf=np.inf, neginf=-np.inf)))
        first = np.argsort(-size, kind="stable")[:n]
        names = np.array(self.names)[first]
        p = np.where(moved == 0, 1.0, np.minimum(p, 1.0))
        return Movers(names, effect[first], before.mean[first], now.mean[first], p[first])

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain numbers."""
        training, now = ([array.tolist() for array in vars(m).values()] for m in (self.training, self.now))
        return {"names": self.names, "training": training, "now": now}

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> "Features":
        """Return the features with this state."""
        check_fields(state, "names", "training", "now")
        names = state["names"]
        named = type(names) is list and all(type(name) in (str, int) for name in names)
        check(named, "its features have no names")
        training, now = (
            Moments(*(as_numbers(values, len(names), when) for values in state[when]))
            for when in ("training", "now")
        )
        for m in (training, now):
            possible = (m.n >= 0) & (np.abs(m.total) <= _FAR * m.n)
            possible &= (m.squares >= 0) & (m.squares <= _FAR * (_FAR * m.n))
            check(possible.all(), "its sums are not those of its features")
        return cls(names, training, now)


def _numbers(X: Any, names: list[Any] | None = None) -> tuple[list[Any], Any]:
    """Return names and values of the columns that hold numbers, all or the named ones."""
    if (known := column_names(X)) is None:
        rows = X if sp.issparse(X) else np.asarray(X, dtype=np.float64)
        return list(range(rows.shape[1])), rows
    wanted = known if names is None else names
    columns = {name: _as_floats(take_column(X, known.index(name))) for name in wanted if name in known}
    numbers = {name: column for name, column in columns.items() if column is not None}
    return list(numbers), np.column_stack([np.empty((len(X), 0)), *numbers.values()])


def _as_floats(column: AnyArray) -> FloatArray | None:
    """Return a column as floats, NaN for missing values; None if it holds other values than numbers."""
    if column.dtype.kind == "O" and not any(isinstance(value, str) for value in column.tolist()):
        column = column.copy()
        column[missing_rows(column)] = np.nan
    try:
        return column.astype(np.float64) if column.dtype.kind in "biufO" else None
    except (TypeError, ValueError):
        return None


class CovariateShift(NamedTuple):
    """The frequencies of features in training and in each period, and their divergence.

    Attributes
    ----------
    training : array of shape (features,)
        Share of the training rows in which each feature is not zero.
    frequencies : array of shape (periods, features)
        The same for each period; NaN for a period without rows.
    divergence : array of shape (periods,)
        Kullback–Leibler divergence in bits, KL(period || training), between the distributions of occurrences
        over features: counts plus 1/2, normalised. NaN for a period without rows.
    """

    training: FloatArray
    frequencies: FloatArray
    divergence: FloatArray


def covariate_shift(X: Any, training: IntArray, periods: Sequence[IntArray]) -> CovariateShift:
    """Compare how often features occur in each period and in training.

    Parameters
    ----------
    X : array, frame or sparse matrix of shape (n, features)
        All rows; a sparse matrix stays sparse.
    training : int array
        Positions of the rows that train.
    periods : sequence of int arrays
        Positions of the rows of each period.

    Examples
    --------
    >>> from transcendent.datasets import make_stream
    >>> from transcendent.monitoring import covariate_shift
    >>> from transcendent.temporal import time_split
    >>> stream = make_stream(6000, n_periods=12, covariate=1, random_state=0)
    >>> split = time_split(stream.times, train="2020-05")
    >>> periods = [split.test[rows] for rows in split.periods.rows]
    >>> covariate_shift(stream.X > 1, split.train, periods).divergence[[0, -1]].round(3)
    array([0.072, 0.272])
    """
    X = X.tocsr() if sp.issparse(X) else X
    trained = _occurrences(X, training)
    frequencies = np.full((len(periods), len(trained)), np.nan)
    divergence = np.full(len(periods), np.nan)
    for i, rows in enumerate(periods):
        if len(rows):
            counts = _occurrences(X, rows)
            frequencies[i] = counts / len(rows)
            divergence[i] = entropy(counts + 0.5, trained + 0.5, base=2)
    return CovariateShift(trained / len(training), frequencies, divergence)


def _occurrences(X: Any, rows: IntArray) -> FloatArray:
    """Return the number of rows in which each feature is not zero."""
    chosen = take_rows(X, rows)
    if not sp.issparse(chosen):
        return np.asarray(np.count_nonzero(np.asarray(chosen), axis=0), dtype=np.float64)
    nonzero: IntArray = chosen.indices[chosen.data != 0]
    return np.bincount(nonzero, minlength=chosen.shape[1]).astype(np.float64)
