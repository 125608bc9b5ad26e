"""Cells of X that are missing, infinite or not numbers, and the position of the first one in errors."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, TypeVar, cast

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import AnyArray, BoolArray, IntArray, column_names, is_missing, take_column

Method = TypeVar("Method", bound=Callable[..., Any])

_REFUSED = re.compile(
    r"Input (?:X )?contains (?:(?P<nan>NaN)|infinity or a value too large for dtype\('(?P<dtype>\w+)'\))"
    r"|could not convert string to float: (?P<text>.+)"
)
_POSITION = re.compile(r"(It|The first of [\d,]+) is in (row|line) \d+, column ")


def find_cells(X: Any, are_bad: Callable[[AnyArray], BoolArray]) -> tuple[IntArray, IntArray]:
    """Return the rows and the columns of bad cells, row by row; none if X has no columns, such as texts.

    ``are_bad`` is called with a column, the entries of a sparse matrix, or a whole array of numbers.
    """
    cells: Any = X if hasattr(X, "shape") else np.asarray(X, dtype=object)
    if len(cells.shape) != 2:
        return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
    if sp.issparse(cells):
        csr = cells.tocsr()
        entries = np.flatnonzero(are_bad(csr.data))
        return np.searchsorted(csr.indptr, entries, side="right") - 1, csr.indices[entries]
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
        bad = are_bad(cells)
    else:
        bad = np.zeros(cells.shape, dtype=bool)
        for j in range(cells.shape[1]):
            bad[:, j] = are_bad(take_column(cells, j))
    rows, columns = np.nonzero(bad)
    return rows, columns


def are_missing(values: AnyArray) -> BoolArray:
    """Return which values are NaN, None, NaT or NA, or text such as "nan"."""
    if values.dtype.kind in "biuf":
        return np.isnan(values)
    return _of_each(lambda cell: is_missing(cell) or math.isnan(as_number(cell) or 0.0), values)


def are_infinite(values: AnyArray, dtype: str = "float64") -> BoolArray:
    """Return which values are infinite, or too large for the type."""
    largest = np.float64(np.finfo(dtype).max)
    if values.dtype.kind in "biuf":
        return np.asarray(np.abs(values) > largest)
    return _of_each(lambda cell: abs(as_number(cell) or 0.0) > float(largest), values)


def are_not_numbers(values: AnyArray) -> BoolArray:
    """Return which values cannot be converted to a number."""
    if values.dtype.kind in "mM":
        return np.ones(values.shape, dtype=bool)
    return _of_each(lambda cell: as_number(cell) is None, values)


def as_number(cell: Any) -> float | None:
    """Return a cell as a number, as NumPy converts it, or None if that fails."""
    try:
        return math.nan if cell is None else float(cell)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return None


def _of_each(is_bad: Callable[[Any], bool], values: AnyArray) -> BoolArray:
    """Apply a test to each value; numbers are never bad."""
    if values.dtype.kind in "biuf":
        return np.zeros(values.shape, dtype=bool)
    return np.fromiter(map(is_bad, values.tolist()), dtype=bool, count=len(values))


def column_in_words(column: int, names: Sequence[str] | None) -> str:
    """Return the number of a column, and its name if it has one."""
    return f"{column} ({names[column]!r:.80})" if names else str(column)


def locate_bad_value(method: Method) -> Method:
    """Decorate a method so that its errors name the position of the first bad value in X."""

    @wraps(method)
    def wrapper(self: Any, X: Any, *args: Any, **given: Any) -> Any:
        with locating_bad_value(X):
            return method(self, X, *args, **given)

    return cast("Method", wrapper)


@contextmanager
def locating_bad_value(X: Any, lines: IntArray | None = None) -> Iterator[None]:
    """Add a line with the position in X, or in the ``lines`` of its file, to errors about bad values."""
    try:
        yield
    except OverflowError as error:
        if "int too large to convert to float" not in str(error):
            raise
        message = "Input X contains infinity or a value too large for dtype('float64')."
        # scikit-learn would raise this error if NumPy had not raised first.
        raise ValueError(_with_position(message, X, lines)) from error
    except ValueError as error:
        if (message := _with_position(str(error), X, lines)) != str(error):
            error.args = (message,)
        raise


def _with_position(message: str, X: Any, at: IntArray | None) -> str:
    """Return an error's text with the number of bad values and the position of the first, if found."""
    lines = [line for line in message.split("\n") if not _POSITION.match(line)]
    found = ((i, refused) for i, line in enumerate(lines, 1) if (refused := _REFUSED.search(line)))
    after, refused = next(found, (0, None))
    if refused is None:
        return message
    if text := refused["text"]:
        rows, columns = find_cells(X, partial(_of_each, lambda cell: repr(cell) == text))
    elif refused["nan"]:
        rows, columns = find_cells(X, are_missing)
    else:
        rows, columns = find_cells(X, partial(are_infinite, dtype=refused["dtype"]))
    if not len(rows):
        return message
    which = "It" if len(rows) == 1 else f"The first of {len(rows):,}"
    place = f"row {rows[0]}" if at is None else f"line {at[rows[0]]}"
    position = f"{which} is in {place}, column {column_in_words(columns[0], column_names(X))}."
    return "\n".join([*lines[:after], position, *lines[after:]])


def check_names(X: Any) -> None:
    """Refuse a frame with duplicate column names."""
    names = getattr(X, "columns", None)
    if names is not None and not getattr(names, "is_unique", True):  # only pandas allows duplicates
        twice = names[names.duplicated()][0]
        raise ValueError(f"X has {list(names).count(twice)} columns named {str(twice)!r}. Rename them.")
