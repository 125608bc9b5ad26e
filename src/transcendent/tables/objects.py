"""Objects: rows of features with their labels, times and ids."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from transcendent._utils.arrays import AnyArray, IntArray, count_rows, missing_rows, take_rows
from transcendent._utils.dates import as_dates, first_and_last, undated_rows
from transcendent.tables.times import with_iso_dates

_INEXACT = 2.0**53


@dataclass(frozen=True)
class Objects:
    """Rows of features, with labels, times and ids.

    Attributes
    ----------
    name : str
        Where they come from.
    X : array, sparse matrix or frame of n rows
        The features.
    y, times, ids : arrays of shape (n,) or None
        Labels, times when objects were seen, and ids; missing values are None.
    lines : array of shape (n,) or None
        The lines of a CSV file where rows begin, counted from 1; None for other files.
    feature_names : array or None
        The names of columns of a data set whose rows have none.
    """

    name: str
    X: Any
    y: AnyArray | None = None
    times: AnyArray | None = None
    ids: AnyArray | None = None
    lines: IntArray | None = None
    feature_names: AnyArray | None = None

    def __post_init__(self) -> None:
        for what, values in (
            ("labels", self.y),
            ("times", self.times),
            ("ids", self.ids),
            ("lines", self.lines),
        ):
            if values is not None and np.shape(values) != (len(self),):
                raise ValueError(f"{self.name} has {len(self)} rows, but {what} of shape {np.shape(values)}.")

    def __len__(self) -> int:
        return count_rows(self.X)

    def take(self, rows: Any) -> "Objects":
        """Return the objects at some rows."""
        each = (self.y, self.times, self.ids, self.lines)
        y, times, ids, lines = (None if values is None else values[rows] for values in each)
        return Objects(self.name, take_rows(self.X, rows), y, times, ids, lines, self.feature_names)

    def place(self, row: int) -> str:
        """Return where a row is in its file: the line of a CSV file, otherwise the row, counted from 0."""
        return f"row {row}" if self.lines is None else f"line {self.lines[row]}"

    def have(self, what: str, rows: IntArray) -> str:
        """Return a sentence that says how many rows have something, and where the first is."""
        if len(rows) == 1:
            return f"1 of {len(self):,} rows has {what}, in {self.place(rows[0])}"
        return f"{len(rows):,} of {len(self):,} rows have {what}, the first is {self.place(rows[0])}"

    def with_labels(self) -> "Objects":
        """Return the objects with a label."""
        return self if self.y is None else self._without(missing_rows(self.y))

    def complete(self, dates: bool) -> "Objects":
        """Return the objects with a label and a time, as far as the file has these columns."""
        known = self.with_labels()
        return known if known.times is None else known._without(without_time(known.times, dates))

    def left_out(self, dates: bool) -> dict[str, int]:
        """Return how many rows `complete` leaves out, by cause; a row without a time counts there only."""
        timeless = np.empty(0, np.intp) if self.times is None else without_time(self.times, dates)
        unlabelled = np.empty(0, np.intp) if self.y is None else missing_rows(self.y)
        counts = {
            "no label": len(np.setdiff1d(unlabelled, timeless)),
            "no date" if dates else "no time": len(timeless),
        }
        return {cause: n for cause, n in counts.items() if n}

    def _without(self, rows: IntArray) -> "Objects":
        """Return all but some rows; restore the type of labels and times once none is missing."""
        if not len(rows):
            return self
        kept = self.take(np.setdiff1d(np.arange(len(self)), rows))
        values = {"y": kept.y, "times": kept.times}
        known = {name: v for name, v in values.items() if v is not None and v.dtype == object}
        typed = {name: np.array(v.tolist()) for name, v in known.items() if not len(missing_rows(v))}
        return replace(kept, **typed)  # type: ignore[arg-type]

    def with_times(self, dates: bool) -> "Objects":
        """Return these objects without the labels of rows that have no valid time; see `without_time`."""
        return self if self.times is None else self.without_labels(without_time(self.times, dates))

    def without_labels(self, rows: IntArray) -> "Objects":
        """Return these objects without the labels of some rows."""
        if self.y is None or not len(rows):
            return self
        y = self.y.astype(object)
        y[rows] = None
        return replace(self, y=y)

    def with_iso_dates(self, formats: Sequence[str] = ()) -> "Objects":
        """Return these objects with dates in ISO 8601, and as datetime64 if every time is a date."""
        if self.times is None:
            return self
        times = with_iso_dates(self.times, formats)
        with suppress(ValueError):
            when = as_dates(times)
            times = times if len(undated_rows(when)) else when
        return replace(self, times=times)

    def period(self) -> tuple[str, str] | None:
        """Return the times of the first and the last object."""
        if self.times is None:
            return None
        are_dates = self.times.dtype.kind not in "iuf" and not len(undated_rows(self.times))
        times = as_dates(self.times) if are_dates else self.times
        first, last = (
            str(time).removesuffix(".000000").removesuffix("T00:00:00") for time in first_and_last(times)
        )
        return first, last

    def labelled(self, hint: str) -> "Objects":
        """Return these objects; raise if they have no labels or no times."""
        for what, values in (("label", self.y), ("time", self.times)):
            if values is None:
                raise ValueError(f"{self.name} has no {what}s: {hint}")
        return self


def with_plain_labels(found: Objects, missing_labels: Sequence[str] = ()) -> Objects:
    """Return the objects with None for missing labels, and for texts that stand for one."""
    texts = [] if found.y is None or found.y.dtype.kind not in "OS" else found.y.tolist()
    if any(isinstance(label, bytes) for label in texts):
        raise ValueError(f"{found.name}: labels must be numbers or text, not bytes.")
    if found.y is None:
        return found
    check_exact(found)
    missing = missing_rows(found.y)
    if missing_labels:
        missing = np.union1d(missing, np.flatnonzero(np.isin(found.y.astype(str), missing_labels)))
    if not len(missing):
        return found
    known = np.delete(found.y, missing)
    if known.dtype.kind == "f" and np.all(known == np.rint(known)):
        known = known.astype(np.intp)  # integers cannot be NaN
    y = np.full(len(found), None, dtype=object)
    y[np.setdiff1d(np.arange(len(found)), missing)] = known.tolist()
    return replace(found, y=y)


def check_exact(found: Objects) -> None:
    """Refuse labels that are infinite, or floats so large that different integers become the same one."""
    y = np.empty(0) if found.y is None or found.y.dtype.kind != "f" else found.y
    if len(rows := np.flatnonzero(np.abs(y) >= _INEXACT)):
        raise ValueError(
            f"{found.name}: the label in {found.place(rows[0])} is {y[rows[0]]:.17g}. As floats, labels must "
            "be below 2**53, beyond which different integers become the same: store labels as text."
        )


def without_time(times: AnyArray, dates: bool) -> IntArray:
    """Return the rows whose time is missing or, if ``dates`` are required, not a date."""
    return undated_rows(times) if dates and times.dtype.kind not in "iuf" else missing_rows(times)
