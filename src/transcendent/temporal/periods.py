"""Time cut into periods, and rows split into training, calibration and test by time."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from transcendent.arrays import AnyArray, BoolArray, IntArray
from transcendent.evaluators.splits import as_times

Calendar = Literal["year", "quarter", "month", "week", "day"]


@dataclass(frozen=True)
class Periods:
    """Successive slices of time, and which of them each object falls into.

    Attributes
    ----------
    labels : tuple of str
        The periods from the first to the last, those without objects included.
    codes : int array of shape (n,)
        Position in ``labels`` of each object's period.
    """

    labels: tuple[str, ...]
    codes: IntArray

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def rows(self) -> list[IntArray]:
        """For each period the positions of its objects, in their order."""
        order = np.argsort(self.codes, kind="stable")
        return np.split(order, np.cumsum(self.counts)[:-1])

    @property
    def counts(self) -> IntArray:
        """Number of objects in each period."""
        return np.bincount(self.codes, minlength=len(self.labels))


@dataclass(frozen=True)
class TimeSplit:
    """Rows to train on, to calibrate on, and to test on, period by period.

    Attributes
    ----------
    train, calibration, test : int arrays
        Row positions; ``calibration`` is empty unless a calibration window was asked for.
    periods : Periods
        Those of the test rows; its positions count within ``test``.
    """

    train: IntArray
    calibration: IntArray
    test: IntArray
    periods: Periods


def cut_periods(times: Any, period: Calendar | None = "month") -> Periods:
    """Cut time into calendar years, quarters, months, ISO weeks or days, or take ``times`` as labels.

    Parameters
    ----------
    times : array of shape (n,)
        Dates as NumPy, pandas or datetime objects or ISO text; without a calendar ``period``, labels that
        sort in the order of time.
    period : {"year", "quarter", "month", "week", "day"} or None
        Length of a period, aligned with the calendar (UTC). None takes ``times`` as the periods' labels.

    Examples
    --------
    >>> from transcendent.temporal import cut_periods
    >>> periods = cut_periods(["2024-01-31", "2024-02-29", "2024-04-01"], "month")
    >>> periods.labels, periods.codes.tolist()
    (('2024-01', '2024-02', '2024-03', '2024-04'), [0, 1, 3])
    """
    if period is None:
        labels, codes = np.unique(_labels(times), return_inverse=True)
        return Periods(tuple(str(label) for label in labels.tolist()), codes)
    if period not in get_args(Calendar):
        raise ValueError(f"period must be one of {get_args(Calendar)} or None, not {period!r}.")
    numbers = _numbers(as_dates(times), period)
    if len(numbers) == 0:
        return Periods((), numbers)
    first, last = int(numbers.min()), int(numbers.max())
    return Periods(tuple(_name(n, period) for n in range(first, last + 1)), numbers - first)


def time_split(
    times: Any, *, train: Any, calibration: Any = None, period: Calendar | None = "month"
) -> TimeSplit:
    """Split rows by time: train on the past, calibrate on what follows, test on the rest by period.

    Parameters
    ----------
    times : array of shape (n,)
        When each row was seen; as for `cut_periods`.
    train : time, (time, time) or bool array
        The end of the training window (rows before it train, the rest are tested), its start and end, or a
        mask of the rows in it.
    calibration : time or None
        Rows of the training window from this time on calibrate instead.
    period : {"year", "quarter", "month", "week", "day"} or None
        Length of a test period; None takes ``times`` as the periods' labels.

    Examples
    --------
    >>> import numpy as np
    >>> from transcendent.temporal import time_split
    >>> days = np.arange("2023-01-01", "2024-04-01", dtype="datetime64[D]")
    >>> split = time_split(days, train="2024", calibration="2023-10", period="month")
    >>> len(split.train), len(split.calibration), split.periods.labels
    (273, 92, ('2024-01', '2024-02', '2024-03'))
    """
    when = as_dates(times) if period else _labels(times)
    trains, tested = _windows(when, train)
    calibrates = (
        trains & (when >= _boundary(when, calibration)) if calibration is not None else trains & False
    )
    for name, rows in (("train", trains & ~calibrates), ("test", tested)):
        if not rows.any():
            raise ValueError(
                f"no rows to {name} on with train={train!r}"
                + (f", calibration={calibration!r}" if calibration is not None else "")
                + f"; times run from {when.min()} to {when.max()}."
            )
    test = np.flatnonzero(tested)
    return TimeSplit(
        np.flatnonzero(trains & ~calibrates),
        np.flatnonzero(calibrates),
        test,
        cut_periods(when[test], period),
    )


def as_dates(times: Any) -> AnyArray:
    """Times as datetime64; a time zone is turned into UTC."""
    values = np.asarray(times)
    if values.dtype.kind == "O":
        values = np.array([_naive(t) for t in values.tolist()], dtype=object)
    when = as_times(values, len(values))
    if when.dtype.kind == "O":
        when = when.astype("datetime64[us]")
    if when.dtype.kind != "M":
        raise ValueError(
            f"times must be dates to be cut along the calendar, not {when.dtype}. "
            "For numbers or names of periods pass period=None."
        )
    return when


def _naive(time: Any) -> Any:
    if isinstance(time, datetime) and time.tzinfo is not None:
        return time.astimezone(UTC).replace(tzinfo=None)
    return time


def _labels(times: Any) -> AnyArray:
    labels = np.asarray(times)
    if labels.ndim != 1:
        raise ValueError(f"times must have one entry per row, got shape {labels.shape}.")
    if labels.dtype.kind == "O":
        labels = np.array(labels.tolist())
    if labels.dtype.kind == "O" or (labels.dtype.kind in "fmM" and np.isnan(labels).any()):
        raise ValueError("times contains missing values or mixed types; every row needs its period.")
    return labels


def _windows(when: AnyArray, train: Any) -> tuple[BoolArray, BoolArray]:
    if isinstance(train, tuple) and len(train) == 2:
        start, end = (_boundary(when, t) for t in train)
        return np.asarray((when >= start) & (when < end)), np.asarray(when >= end)
    mask = np.asarray(train)
    if mask.ndim == 0:
        before = np.asarray(when < _boundary(when, train))
        return before, ~before
    if mask.dtype != bool or mask.shape != when.shape:
        raise ValueError(
            f"train must be a time, two times or a mask of the {len(when)} rows, not an array of "
            f"{mask.dtype} of shape {mask.shape}."
        )
    return mask, ~mask


def _boundary(when: AnyArray, time: Any) -> Any:
    if when.dtype.kind != "M":
        return when.dtype.type(time) if when.dtype.kind in "iuf" else time
    try:
        return np.datetime64(_naive(time) if isinstance(time, datetime) else time)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{time!r} is not a date such as 2024-09-01: {error}.") from None


def _numbers(when: AnyArray, period: Calendar) -> IntArray:
    """Consecutive numbers of the calendar periods since 1970."""
    if period == "week":
        days = when.astype("datetime64[D]").astype(np.intp)
        return np.asarray((days + 3) // 7)  # 1970-01-01 was a Thursday; weeks begin on Monday
    unit, months = {"year": ("Y", 1), "quarter": ("M", 3), "month": ("M", 1), "day": ("D", 1)}[period]
    return np.asarray(when.astype(f"datetime64[{unit}]").astype(np.intp) // months)


def _name(number: int, period: Calendar) -> str:
    if period == "week":
        monday = date.fromordinal(date(1970, 1, 1).toordinal() + number * 7 - 3)
        year, week, _ = monday.isocalendar()
        return f"{year}-W{week:02}"
    if period == "quarter":
        return f"{1970 + number // 4}-Q{number % 4 + 1}"
    unit = {"year": "Y", "month": "M", "day": "D"}[period]
    return str(np.array(number).astype(f"datetime64[{unit}]"))
