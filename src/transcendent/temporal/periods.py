"""Periods of time, and splits of rows into training, calibration and test by time."""

import re
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from itertools import pairwise
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np

from transcendent._utils.arrays import AnyArray, BoolArray, IntArray, rows_by_code
from transcendent._utils.dates import as_dates, first_and_last
from transcendent.errors import ArgumentError

Calendar = Literal["year", "quarter", "month", "week", "day"]

_LONGEST_GAP = {"year": 20, "quarter": 80, "month": 240, "week": 1044, "day": 7305}


@dataclass(frozen=True)
class Periods:
    """The names of successive periods, and for each object the position of its period among them."""

    labels: tuple[str, ...]
    codes: IntArray

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def rows(self) -> list[IntArray]:
        """The positions of each period's objects, in order."""
        return rows_by_code(self.codes, len(self))

    @property
    def counts(self) -> IntArray:
        """The number of objects in each period."""
        return np.bincount(self.codes, minlength=len(self.labels))


@dataclass(frozen=True)
class TimeSplit:
    """Rows to train on, to calibrate on, and to test on by period.

    Attributes
    ----------
    train, calibration, test : int arrays
        Row positions in the order of time; ``calibration`` is empty unless a window for it was given.
    periods : Periods
        The periods of the test rows, as from `cut_periods`; positions are within ``test``.
    times : array of shape (n,)
        When each row was seen, as dates or names that sort.
    """

    train: IntArray
    calibration: IntArray
    test: IntArray
    periods: Periods
    times: AnyArray


def cut_periods(times: Any, period: Calendar | None = "month") -> Periods:
    """Cut time into calendar years, quarters, months, ISO weeks or days, or take ``times`` as periods.

    The result has ``labels``, the names of all periods from the first to the last, including empty ones;
    ``codes``, the position of each object's period; ``rows``, the positions of each period's objects; and
    ``counts``, their numbers. A gap of more than 20 years raises an error, since a date such as 9999-12-31 or
    1970-01-01 stands for a missing one.

    Parameters
    ----------
    times : array of shape (n,)
        Dates of NumPy, pandas or datetime, or ISO text (``2024-09-01``, ``20240901``, ``2024-09``,
        ``2024-09-01T12:30:00+02:00``); numbers are not dates. With ``period=None``, names or numbers that
        sort in the order of time.
    period : {"year", "quarter", "month", "week", "day"} or None
        Length of a period, aligned with the calendar (UTC). None takes ``times`` as the names of periods.

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
    return _cut_calendar(as_dates(times), period)


def time_split(
    times: Any, *, train: Any, calibration: Any = None, period: Calendar | None = "month"
) -> TimeSplit:
    """Split rows by time: train on the past, calibrate on what follows, test on the rest by period.

    Parameters
    ----------
    times : array of shape (n,)
        When each row was seen; as for `cut_periods`.
    train : time, (time, time) or array of bool
        The end of the training window (rows before it train, the rest are tested), its start and end, or a
        mask of its rows.
    calibration : time or None
        Rows of the training window from this time on calibrate instead of training.
    period : {"year", "quarter", "month", "week", "day"} or None
        Length of a test period; None takes ``times`` as the names of periods.

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
    trains, tested, end = _windows(when, train)
    calibrates = np.zeros(len(when), dtype=bool)
    if calibration is not None:
        calibrates = trains & (when >= _boundary(when, calibration, "calibration"))
    first = _in_order(when, trains & ~calibrates, "train", train=train)
    test = _in_order(when, tested, "test", train=train)
    second = (
        test[:0] if calibration is None else _in_order(when, calibrates, "calibrate", calibration=calibration)
    )
    periods = _cut_calendar(when[test], period, end, test) if period else cut_periods(when[test], None)
    if period:
        used = np.flatnonzero(trains | tested)
        numbers = _numbers(when[used], period)
        _check_gaps(when[used], numbers, int(numbers.min()), period, used)
    return TimeSplit(first, second, test, periods, when)


def training_rows(times: Any, train: Any, period: Calendar | None) -> IntArray:
    """Return the rows of a training window in the order of time, whether or not any come later."""
    when = as_dates(times) if period else _labels(times)
    return _in_order(when, _windows(when, train)[0], "train", train=train)


def in_order_of_time(times: AnyArray) -> AnyArray:
    """Return times as ``fit`` accepts them: names of periods become numbers in the same order."""
    return np.unique(times, return_inverse=True)[1] if times.dtype.kind == "U" else times


def _labels(times: Any) -> AnyArray:
    labels = np.asarray(times)
    if labels.ndim != 1:
        raise ValueError(f"times must have one entry per row, got shape {labels.shape}.")
    if labels.dtype.kind == "O":
        labels = np.array(labels.tolist())
    if labels.dtype.kind == "O" or (labels.dtype.kind in "fmM" and np.isnan(labels).any()):
        raise ValueError("times has missing values or mixed types: give every row its period.")
    if labels.dtype.kind == "U" and (out_of_order := _misplaced(np.unique(labels).tolist())):
        raise ValueError(
            f"names of periods sort as text, which puts {out_of_order[0]!r} before {out_of_order[1]!r}. Pad "
            "their numbers with zeros, or use numbers or dates."
        )
    return labels


def _misplaced(names: list[str]) -> tuple[str, str] | None:
    """Return two names that differ only in their numbers, if the larger number comes first."""
    numbered = [(re.sub(r"\d+", "0", n), [int(d) for d in re.findall(r"\d+", n)], n) for n in names]
    numbered.sort(key=lambda each: each[0])  # stable, so names of one form stay in text order
    for (form, numbers, name), (next_form, next_numbers, next_name) in pairwise(numbered):
        if form == next_form and numbers > next_numbers:
            return name, next_name
    return None


def _windows(when: AnyArray, train: Any) -> tuple[BoolArray, BoolArray, Any]:
    """Return the rows that train, the rows to test, and the end of training (None for a mask)."""
    if isinstance(train, tuple) and len(train) == 2:
        start, end = (_boundary(when, t) for t in train)
        return np.asarray((when >= start) & (when < end)), np.asarray(when >= end), end
    mask = np.asarray(train)
    if mask.ndim == 0:
        end = _boundary(when, train)
        return np.asarray(when < end), np.asarray(when >= end), end
    if mask.dtype != bool or mask.shape != when.shape:
        raise ValueError(
            "train must be a time, a tuple of two times (start, end), or a mask: an array or list with True "
            f"or False for each of the {len(when)} rows. It has type {mask.dtype} and shape {mask.shape}."
        )
    return mask, ~mask, None


def _boundary(when: AnyArray, time: Any, argument: str = "train") -> Any:
    if when.dtype.kind != "M":
        time = time.item() if isinstance(time, np.ndarray | np.generic) else time
        kind, names = (str, "names") if when.dtype.kind == "U" else (Real, "numbers")
        if not isinstance(time, kind):
            raise ArgumentError(
                argument,
                f"{time!r} does not compare with the times, which with period=None are {names} of periods: "
                f"use one such as {when[0].item()!r}.",
            )
        return time
    try:
        return as_dates([time])[0]
    except ValueError:
        raise ArgumentError(argument, f"{time!r} is not a date: write 2024-09-01 or 2024-09.") from None


def _in_order(when: AnyArray, chosen: BoolArray, purpose: str, **given: Any) -> IntArray:
    """Return the positions of the chosen rows in the order of time; raise if the argument leaves none."""
    rows = np.flatnonzero(chosen)
    if len(rows) == 0:
        (argument, value), (first, last) = *given.items(), first_and_last(when)
        message = f"no rows to {purpose} on with {value!r}; times run from {first} to {last}."
        raise ArgumentError(argument, message)
    return rows[np.argsort(when[rows], kind="stable")]


def _cut_calendar(
    when: AnyArray, period: Calendar, start: Any = None, rows: IntArray | None = None
) -> Periods:
    """Cut periods from that of ``start``, or of the first object, on; errors name objects by ``rows``."""
    if period not in get_args(Calendar):
        raise ValueError(f"period must be one of {get_args(Calendar)} or None, not {period!r}.")
    numbers = _numbers(when, period)
    if len(numbers) == 0:
        return Periods((), numbers)
    first = int(numbers.min()) if start is None else int(_numbers(np.array([start]), period)[0])
    _check_gaps(when, numbers, first, period, np.arange(len(when)) if rows is None else rows)
    return Periods(tuple(_name(n, period) for n in range(first, int(numbers.max()) + 1)), numbers - first)


def _check_gaps(when: AnyArray, numbers: IntArray, first: int, period: Calendar, rows: IntArray) -> None:
    """Raise on a gap that only a wrong date leaves, and name the row on the side with fewer rows."""
    order = np.argsort(numbers, kind="stable")
    steps = np.diff(numbers[order], prepend=first)
    after = int(np.argmax(steps))
    if steps[after] <= _LONGEST_GAP[period]:
        return
    outliers = order[after:] if after == 0 or 2 * after > len(order) else order[:after][::-1]
    raise ValueError(
        f"row {rows[outliers[0]]} is at {when[outliers[0]]}: {steps[after] - 1:,} empty {period}s between "
        f"it and the others. Correct its time, or leave out such rows ({len(outliers):,} of {len(when):,})."
    )


def _numbers(when: AnyArray, period: Calendar) -> IntArray:
    """Return the number of calendar periods since 1970."""
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
