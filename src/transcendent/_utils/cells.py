"""The place of the first value that a detector refuses."""

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import AnyArray, BoolArray, column_names, missing_rows, take_column

Method = TypeVar("Method", bound=Callable[..., Any])

_REFUSED = re.compile(
    r"Input (?:X )?contains (?:(?P<nan>NaN)|infinity or a value too large for dtype\('(?P<dtype>\w+)'\))"
    r"|could not convert string to float: (?P<text>.+)"
)
_PLACE = re.compile(r"(It|The first of [\d,]+) is in row \d+, column ")


def pointing_out(method: Method) -> Method:
    """Decorate a method so that its errors name the place of the first refused value in X."""

    @wraps(method)
    def pointing(self: Any, X: Any, *args: Any, **given: Any) -> Any:
        with pointing_into(X):
            return method(self, X, *args, **given)

    return cast("Method", pointing)


@contextmanager
def pointing_into(X: Any) -> Iterator[None]:
    """Add a line to errors about NaN, infinity or text that names the place in X."""
    try:
        with _saying_too_large():
            yield
    except ValueError as error:
        lines = [line for line in str(error).split("\n") if not _PLACE.match(line)]
        found = ((i, refused) for i, line in enumerate(lines, 1) if (refused := _REFUSED.search(line)))
        after, refused = next(found, (0, None))
        if refused and (place := _place(X, refused)):
            error.args = ("\n".join([*lines[:after], place, *lines[after:]]),)
        raise


@contextmanager
def _saying_too_large() -> Iterator[None]:
    """Raise what NumPy says about an integer of hundreds of digits as what it is: an error about X."""
    try:
        yield
    except OverflowError as error:
        if "int too large to convert to float" not in str(error):
            raise
        raise ValueError("Input X contains infinity or a value too large for dtype('float64').") from error


def check_names(X: Any) -> None:
    """Refuse a frame with two columns of one name."""
    names = getattr(X, "columns", None)
    if names is not None and not getattr(names, "is_unique", True):  # in other frames than pandas' they are
        twice = names[names.duplicated()][0]
        raise ValueError(f"X has {list(names).count(twice)} columns of the name {str(twice)!r}. Rename them.")


def _place(X: Any, refused: re.Match[str]) -> str | None:
    """Describe the place of the first refused value and their number; None if unknown."""
    table: Any = X if hasattr(X, "shape") else np.asarray(X, dtype=object)
    if len(table.shape) != 2:
        return None
    if sp.issparse(table):
        entries = table.tocsr().tocoo()
        wrong = _are_refused(entries.data, refused)
        rows, columns = entries.row[wrong], entries.col[wrong]
    else:
        each = (take_column(table, j) for j in range(table.shape[1]))
        rows, columns = np.nonzero(np.stack([_are_refused(column, refused) for column in each], axis=1))
    if not len(rows):
        return None
    which = "It" if len(rows) == 1 else f"The first of {len(rows):,}"
    names = column_names(X)
    name = f" ({names[columns[0]]!r})" if names else ""
    return f"{which} is in row {rows[0]}, column {columns[0]}{name}."


def _are_refused(values: AnyArray, refused: re.Match[str]) -> BoolArray:
    if refused["text"]:
        return np.array([repr(cell) == refused["text"] for cell in values.tolist()], dtype=bool)
    numbers = values
    if values.dtype.kind not in "biuf":
        numbers = np.array([_number(cell) or 0.0 for cell in values.tolist()])
        numbers[missing_rows(values)] = np.nan
    return np.isnan(numbers) if refused["nan"] else np.abs(numbers) > np.finfo(refused["dtype"]).max


def _number(cell: Any) -> float | None:
    try:
        return float(cell)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return None
