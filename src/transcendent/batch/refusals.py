"""Decisions about the rows that a rejector takes, and its own reasons for refusing the others."""

from dataclasses import replace
from traceback import walk_tb
from typing import Any

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import BoolArray, IntArray, count_rows, take_rows
from transcendent.decisions import Decisions

_REFUSALS = (ValueError, TypeError, ArithmeticError, LookupError)
_LONGEST = 200
_LOOKED_AT = {"_assert_all_finite": "X", "_ensure_sparse_format": "sparse_container", "check_array": "array"}


def decide_rows(rejector: Any, X: Any) -> tuple[Decisions | None, dict[int, str]]:
    """Return decisions about all rows that ``decide`` takes, None if it takes none, and why not the others.

    All rows are decided at once. If that is refused, the rows that scikit-learn's checks blame are tried
    apart from the others, or, where something else refuses, the rows in halves, until all that are tried
    together are taken or blamed. So a row is refused if, and only if, ``decide`` refuses it alone.
    """
    n = count_rows(X)
    taken: list[tuple[IntArray, Decisions]] = []
    refused: dict[int, str] = {}
    untried = [np.arange(n)] if n else []
    while untried:
        rows = untried.pop()
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused, or was decided
                taken.append((rows, rejector.decide(X if len(rows) == n else take_rows(X, rows))))
        except _REFUSALS as error:
            blamed = _rows_blamed(error, len(rows))
            if blamed.all():
                refused |= dict.fromkeys(rows.tolist(), _reason(error))
            else:  # blamed by place: a detector that orders rows in its own way blames others
                untried += [rows[blamed], rows[~blamed]] if blamed.any() else np.array_split(rows, 2)
    return _joined(taken), refused


def _reason(error: Exception) -> str:
    """Return the first line of what was said, shortened."""
    said = str(error).strip().partition("\n")[0] or type(error).__name__
    return said if len(said) <= _LONGEST else f"{said[: _LONGEST - 1]}…"


def _joined(taken: list[tuple[IntArray, Decisions]]) -> Decisions | None:
    """Return the decisions in the order of their rows."""
    if len(taken) < 2:
        return taken[0][1] if taken else None
    order = np.argsort(np.concatenate([rows for rows, _ in taken]))
    each = [made.columns() for _, made in taken]
    columns = {name: np.concatenate([made[name] for made in each])[order] for name in each[0]}
    return replace(taken[0][1], **columns)  # type: ignore[arg-type]  # arrays all


def _rows_blamed(error: Exception, n: int) -> BoolArray:
    """Return which of n rows would be refused alone for the same reason, as far as the error tells.

    scikit-learn refuses an array as a whole. The stack the error came through still holds the array as the
    detector saw it: after the steps of a pipeline, and in the precision it works with. No row is blamed if
    other code refused, or if that array does not have one row for each of ours.
    """
    if n == 1:
        return np.ones(1, dtype=bool)
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        if frame.f_globals.get("__name__") != "sklearn.utils.validation":
            continue
        function = frame.f_code.co_name
        array: Any = frame.f_locals.get(_LOOKED_AT.get(function, ""))
        if getattr(array, "ndim", 0) == 2 and array.shape[0] == n:
            return _not_numbers(array) if function == "check_array" else _not_finite(array, _reason(error))
    return np.zeros(n, dtype=bool)


def _not_finite(array: Any, said: str) -> BoolArray:
    """Return which rows hold NaN, or infinity if that was said."""
    entries = array.tocoo() if sp.issparse(array) else None
    values = array if entries is None else entries.data
    wrong = values != values if "NaN" in said else np.isinf(values)
    if entries is None:
        return np.asarray(wrong.any(axis=1))
    rows = np.zeros(array.shape[0], dtype=bool)
    rows[entries.row[wrong]] = True
    return rows


def _not_numbers(array: Any) -> BoolArray:
    """Return which rows hold something that cannot be made a number."""
    columns = [array.iloc[:, j] if hasattr(array, "iloc") else array[:, j] for j in range(array.shape[1])]
    rows = np.zeros(array.shape[0], dtype=bool)
    for column in columns:
        if getattr(column.dtype, "kind", "O") not in "biuf":
            rows |= [not _is_number(cell) for cell in np.asarray(column, dtype=object)]
    return rows


def _is_number(cell: Any) -> bool:
    try:
        np.asarray([cell], dtype=object).astype(np.float64)
    except _REFUSALS:
        return False
    return True
