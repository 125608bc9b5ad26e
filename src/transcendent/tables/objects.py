"""Objects: rows of features with their labels, times and ids."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import AnyArray, IntArray, count_rows, missing_rows, take_rows
from transcendent._utils.dates import first_and_last, undated_rows
from transcendent._utils.extras import extra


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
    """

    name: str
    X: Any
    y: AnyArray | None = None
    times: AnyArray | None = None
    ids: AnyArray | None = None

    def __post_init__(self) -> None:
        for what, values in (("labels", self.y), ("times", self.times), ("ids", self.ids)):
            if values is not None and np.shape(values) != (len(self),):
                raise ValueError(f"{self.name} has {len(self)} rows, but {what} of shape {np.shape(values)}.")

    def __len__(self) -> int:
        return count_rows(self.X)

    def take(self, rows: Any) -> "Objects":
        """Return the objects at some rows."""
        values = (None if values is None else values[rows] for values in (self.y, self.times, self.ids))
        return Objects(self.name, take_rows(self.X, rows), *values)

    def with_labels(self) -> "Objects":
        """Return the objects with a label."""
        return self if self.y is None else self._without(missing_rows(self.y))

    def complete(self, dates: bool) -> "Objects":
        """Return the objects with a label and a time, as far as the file has these columns."""
        known = self.with_labels()
        return known if known.times is None else known._without(without_time(known.times, dates))

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
        if self.y is None or self.times is None or not len(rows := without_time(self.times, dates)):
            return self
        y = self.y.astype(object)
        y[rows] = None
        return replace(self, y=y)

    def period(self) -> tuple[str, str] | None:
        """Return the times of the first and the last object."""
        if self.times is None:
            return None
        first, last = (
            str(time).removesuffix(".000000").removesuffix("T00:00:00") for time in first_and_last(self.times)
        )
        return first, last

    def labelled(self, hint: str) -> "Objects":
        """Return these objects; raise if they have no labels or no times."""
        for what, values in (("label", self.y), ("time", self.times)):
            if values is None:
                raise ValueError(f"{self.name} has no {what}s: {hint}")
        return self


def with_plain_labels(found: Objects) -> Objects:
    """Return the objects with None for missing labels."""
    texts = [] if found.y is None or found.y.dtype.kind not in "OS" else found.y.tolist()
    if any(isinstance(label, bytes) for label in texts):
        raise ValueError(f"{found.name}: labels must be numbers or text, not bytes.")
    if found.y is None or not len(missing := missing_rows(found.y)):
        return found
    known = np.delete(found.y, missing)
    if known.dtype.kind == "f" and np.all(known == np.rint(known)):
        known = known.astype(np.intp)  # integers cannot be NaN
    y = np.full(len(found), None, dtype=object)
    y[np.setdiff1d(np.arange(len(found)), missing)] = known.tolist()
    return replace(found, y=y)


def have(what: str, rows: IntArray, n: int) -> str:
    """Return a sentence that says how many of n rows have something, and which is the first."""
    if len(rows) == 1:
        return f"row {rows[0]} of {n:,} has {what}"
    return f"{len(rows):,} of {n:,} rows have {what}, the first is row {rows[0]}"


def stacked(above: Any, below: Any) -> Any:
    """Stack rows of one type."""
    if hasattr(above, "columns"):
        return extra("pandas", "cli").concat([above, below], ignore_index=True)
    return sp.vstack([above, below], format="csr") if sp.issparse(above) else np.concatenate([above, below])


def without_time(times: AnyArray, dates: bool) -> IntArray:
    """Return the rows whose time is missing or, if ``dates`` are required, not a date."""
    return undated_rows(times) if dates and times.dtype.kind not in "iuf" else missing_rows(times)
