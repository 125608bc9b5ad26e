"""Find the rows that a rejector cannot decide, and in general the failing items among many, by halving."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from traceback import walk_tb
from typing import Any, NamedTuple

import numpy as np

from transcendent._utils.arrays import BoolArray, IntArray, count_rows, take_rows
from transcendent._utils.cells import are_infinite, are_missing, are_not_numbers, find_cells
from transcendent.decisions import Decisions

_REFUSALS = (ValueError, TypeError, ArithmeticError, LookupError)
_LONGEST = 200
_LOOKED_AT = {"_assert_all_finite": "X", "_ensure_sparse_format": "sparse_container", "check_array": "array"}


class Sifted(NamedTuple):
    """Rows with decisions about them, other rows with reasons for their refusal, and rows left unknown."""

    decided: list[tuple[IntArray, Decisions]]
    refused: dict[int, str]
    unknown: IntArray

    def joined(self) -> Decisions | None:
        """Return the decisions in the order of their rows; None without any."""
        if len(self.decided) < 2:
            return self.decided[0][1] if self.decided else None
        order = np.argsort(np.concatenate([rows for rows, _ in self.decided]))
        each = [made.columns() for _, made in self.decided]
        columns = {name: np.concatenate([made[name] for made in each])[order] for name in each[0]}
        return replace(self.decided[0][1], **columns, index=None)  # type: ignore[arg-type]  # all are arrays


def decide_rows(
    decide: Callable[[Any], Decisions],
    X: Any,
    max_calls: int | None = None,
    refusals: tuple[type[Exception], ...] = _REFUSALS,
) -> Sifted:
    """Decide all rows that ``decide`` accepts as input, and find out why it refuses the others.

    All rows are tried at once. If that fails, the rows that scikit-learn's checks blame are tried apart from
    the others; if no row is blamed, each half is. This is repeated until every row is decided or refused. So
    a row is refused if and only if ``decide`` refuses it alone. If ``max_calls`` is reached first, the
    remaining rows are unknown.
    """
    n = count_rows(X)
    decided: list[tuple[IntArray, Decisions]] = []
    refused: dict[int, str] = {}

    def fails(rows: IntArray) -> BoolArray | bool:
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # a row that overflows is refused, or decided
                decided.append((rows, decide(X if len(rows) == n else take_rows(X, rows))))
        except refusals as error:
            refused.update(dict.fromkeys(rows.tolist(), first_line(error)))
            return _rows_blamed(error, len(rows))
        return False

    failing, unknown = find_failing(n, fails, max_calls)
    return Sifted(decided, {row: refused[row] for row in failing}, unknown)


def find_failing(
    n: int,
    fails: Callable[[IntArray], BoolArray | bool],
    max_calls: int | None = None,
    *,
    largest_first: bool = True,
) -> tuple[list[int], IntArray]:
    """Return which of n items fail, and which are still unknown after ``max_calls``.

    ``fails`` tries some items together. It returns whether that fails or, if it can tell, which of them do:
    these are tried apart from the others. If it cannot tell, each half is tried.
    """
    parts, failing = deque([np.arange(n)] if n else []), []
    for _ in count() if max_calls is None else range(max_calls):
        if not parts:
            break
        part = parts.popleft()
        found = fails(part)
        if found is False:
            continue
        blamed = np.zeros(len(part), dtype=bool) if found is True else np.asarray(found)
        if len(part) == 1 or blamed.all():
            failing += part.tolist()
            continue
        smaller = [part[blamed], part[~blamed]] if blamed.any() else np.array_split(part, 2)
        if largest_first:
            parts.extend(smaller)
        else:
            parts.extendleft(reversed(smaller))
    return failing, np.concatenate([np.empty(0, dtype=np.intp), *parts])


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, shortened."""
    said = str(error).strip().partition("\n")[0] or type(error).__name__
    return said if len(said) <= _LONGEST else f"{said[: _LONGEST - 1]}…"


def _rows_blamed(error: Exception, n: int) -> BoolArray:
    """Return which of n rows would be refused alone for the same reason, as far as the error tells.

    scikit-learn refuses an array as a whole. The traceback still holds the array as the detector saw it:
    after the steps of a pipeline, and in the detector's precision. No row is blamed if other code raised the
    error, or if that array does not have n rows. Rows are blamed by position, so a detector that reorders
    rows blames the wrong ones.
    """
    blamed = np.zeros(n, dtype=bool)
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        if frame.f_globals.get("__name__") != "sklearn.utils.validation":
            continue
        function = frame.f_code.co_name
        array: Any = frame.f_locals.get(_LOOKED_AT.get(function, ""))
        if getattr(array, "ndim", 0) != 2 or array.shape[0] != n:
            continue
        if function == "check_array":
            blamed[find_cells(array, are_not_numbers)[0]] = True
        elif array.dtype.kind in "biuf":  # in object arrays, scikit-learn allows some missing values
            are_bad = are_missing if "NaN" in first_line(error) else are_infinite
            blamed[find_cells(array, are_bad)[0]] = True
        break
    return blamed
