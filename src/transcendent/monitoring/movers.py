"""Which features moved: effect sizes against training, beside their significance."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import log_ndtr

from transcendent._utils.arrays import (
    AnyArray,
    FloatArray,
    chunks,
    column_names,
    divide,
    missing_rows,
    take_column,
)
from transcendent._utils.tables import Table
from transcendent.monitoring.state import as_numbers, check_fields

_CELLS = 1 << 20
_FAR = 1e150  # its square is a number


class Movers(NamedTuple):
    """Features whose means moved most, the farthest first.

    Attributes
    ----------
    names : array of shape (n,)
        Their names, or positions.
    effect : array of shape (n,)
        New mean minus that of training, in standard deviations of both (Cohen's d).
    training, now : arrays of shape (n,)
        The means.
    p_values : array of shape (n,)
        Chance of a move so far without drift (normal approximation), times the number of features.
    """

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
        return Table(["feature", "moved by", "training", "now", "p-value"], rows).as_text()


@dataclass
class Moments:
    """Number, sum and sum of squares of each feature's values; missing and infinite ones do not count.

    Values are seen from a point near them, since sums of large squares lose what differs. Rows are added one
    after the other, so that the size of batches does not change a bit.
    """

    origin: FloatArray
    n: FloatArray
    total: FloatArray
    squares: FloatArray

    @classmethod
    def of_none(cls, origin: FloatArray) -> "Moments":
        """Start with nothing."""
        return cls(origin, *np.zeros((3, len(origin))))

    def update(self, rows: Any) -> None:
        """Take in rows of numbers."""
        if sp.issparse(rows):
            self._update_sparse(rows)
            return
        for part in chunks(len(rows), max(1, _CELLS // max(len(self.n), 1))):
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
        """Mean of each feature, NaN if it has no values."""
        return self.origin + divide(self.total, self.n)

    @property
    def variance(self) -> FloatArray:
        """Variance of each feature."""
        return np.maximum(divide(self.squares, self.n) - divide(self.total, self.n) ** 2, 0.0)


@dataclass
class Features:
    """The features of training and of the objects since.

    Attributes
    ----------
    names : list
        Their names, or positions.
    training, now : Moments
        Of rows such as those trained on, and of the objects since.
    """

    names: list[Any]
    training: Moments
    now: Moments

    @classmethod
    def of(cls, X: Any) -> "Features":
        """Start from rows such as those trained on."""
        names, rows = _numbers(X)
        if rows.shape[0] < 2:
            raise ValueError("features are compared with two rows at least; X has fewer.")
        first = np.zeros(len(names)) if sp.issparse(rows) else np.nan_to_num(rows[0], posinf=0, neginf=0)
        training = Moments.of_none(first)
        training.update(rows)
        return cls(names, training, Moments.of_none(first))

    def update(self, X: Any) -> None:
        """Take in objects."""
        rows = _numbers(X, self.names)[1]
        if rows.shape[1] != len(self.names):
            raise ValueError(
                f"X has {rows.shape[1]} features, and the monitor started with {len(self.names)}."
            )
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
        vanished = (before.n > 0) & (now.n == 0)  # all missing: nothing can move farther
        size = np.where(vanished, np.inf, np.abs(np.nan_to_num(effect, posinf=np.inf, neginf=-np.inf)))
        first = np.argsort(-size, kind="stable")[:n]
        names = np.array(self.names)[first]
        p = np.where(moved == 0, 1.0, np.minimum(p, 1.0))
        return Movers(names, effect[first], before.mean[first], now.mean[first], p[first])

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain numbers."""
        moments = {
            name: [array.tolist() for array in (m.origin, m.n, m.total, m.squares)]
            for name, m in (("training", self.training), ("now", self.now))
        }
        return {"names": self.names, **moments}

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> "Features":
        """Return the features that had this state."""
        check_fields(state, "names", "training", "now")
        names = state["names"]
        if type(names) is not list or not all(type(name) in (str, int) for name in names):
            raise ValueError("this state is damaged: its features have no names.")
        training, now = (
            Moments(*(as_numbers(values, len(names), part) for values in state[part]))
            for part in ("training", "now")
        )
        for moments in (training, now):
            n, low, high = moments.n, -_FAR * moments.n, _FAR * moments.n
            sums = np.all((moments.total >= low) & (moments.total <= high) & (moments.squares >= 0))
            if np.any(n < 0) or not sums or np.any(moments.squares > _FAR * high):
                raise ValueError("this state is damaged: its sums are not those of its features.")
        return cls(names, training, now)


def _numbers(X: Any, names: list[Any] | None = None) -> tuple[list[Any], Any]:
    """Return names and values of the columns that hold numbers, or of those that are named."""
    if (known := column_names(X)) is None:
        rows = X if sp.issparse(X) else np.asarray(X, dtype=np.float64)
        return list(range(rows.shape[1])), rows
    wanted = known if names is None else names
    columns = {name: _as_numbers(take_column(X, known.index(name))) for name in wanted if name in known}
    numbers = {name: column for name, column in columns.items() if column is not None}
    return list(numbers), np.column_stack([np.empty((len(X), 0)), *numbers.values()])


def _as_numbers(column: AnyArray) -> FloatArray | None:
    """Return a column as floats with NaN for what is missing; None if it holds something else."""
    if column.dtype.kind == "O" and not any(isinstance(value, str) for value in column.tolist()):
        column = column.copy()
        column[missing_rows(column)] = np.nan
    try:
        return column.astype(np.float64) if column.dtype.kind in "biufO" else None
    except (TypeError, ValueError):
        return None
