"""Times as arrays that sort, and dates in ISO 8601; nothing is guessed."""

import re
import warnings
from datetime import UTC, date, datetime
from typing import Any

import numpy as np

from transcendent._utils.arrays import AnyArray, IntArray, missing_rows

_ISO = re.compile(
    r"(?P<year>\d{4})(?:-(?P<month>\d\d)(?:-(?P<day>\d\d))?|(?P<basic_month>\d\d)(?P<basic_day>\d\d))?"
    r"(?:[T ](?P<hour>\d\d)(?::?(?P<minute>\d\d)(?::?(?P<second>\d\d)(?:\.(?P<fraction>\d{1,6})\d*)?)?)?"
    r"(?:Z|(?P<zone>[+-]\d\d)(?::?(?P<zone_minute>\d\d))?)?)?",
    re.ASCII,
)
_AS_NUMPY_READS_IT = re.compile(r"\d{4}(?:-\d\d(?:-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?)?)?", re.ASCII)


def as_times(times: Any, n: int) -> AnyArray:
    """Return times as an array that sorts; refuse the rest, since a silent mistake trains on the future.

    Text and date objects become datetime64, time zones converted to UTC; numbers stay numbers.
    """
    when = np.asarray(times)
    if when.shape != (n,):
        raise ValueError(f"times must have one entry per row: {(n,)}, got {when.shape}.")
    to_parse = when.dtype.kind in "SUT" or (when.dtype.kind == "O" and _are_dates(when.tolist()))
    if to_parse:
        when = np.array([_decoded(time) for time in when.tolist()], dtype=object)
    if len(missing := missing_rows(when)):
        raise ValueError(
            f"times contains missing values: {len(missing):,} of {n:,}, the first at row {missing[0]}. Every "
            "row needs its time."
        )
    return _parse(when.tolist()) if to_parse else when


def as_dates(times: Any) -> AnyArray:
    """Return times as datetime64, no finer than microseconds; refuse anything but dates."""
    values = np.asarray(times)
    when = as_times(values, len(values))
    if when.dtype.kind != "M":
        raise ValueError(
            f"times must be dates to be cut along the calendar, not {when[:1].tolist()}. Numbers are not "
            "taken for dates: give 20240901 as text, and seconds since 1970 as "
            "numpy.array(seconds, dtype='datetime64[s]'). For numbers or names of periods pass period=None."
        )
    if np.datetime_data(when.dtype)[0] in ("ns", "ps", "fs", "as"):
        when = when.astype("datetime64[us]")  # NumPy compares nanoseconds with years after 2262 wrongly
    years = when.astype("datetime64[Y]").astype(np.int64) + 1970
    if len(wrong := np.flatnonzero((years < 1) | (years > 9999))):
        raise ValueError(
            f"times: row {wrong[0]} is in the year {years[wrong[0]]}. Were numbers of another unit converted?"
        )
    return when


def undated_rows(times: AnyArray) -> IntArray:
    """Return the positions of times that are missing or no dates."""
    missing = missing_rows(times)
    if times.dtype.kind == "M":
        return missing
    try:
        as_dates(np.delete(times, missing))
    except ValueError:
        wrong = {time for time in set(np.delete(times, missing).tolist()) if not is_date(time)}
        return np.union1d(missing, np.flatnonzero([time in wrong for time in times.tolist()]))
    return missing


def is_date(time: Any) -> bool:
    """Return whether a value is a date that `as_dates` reads."""
    try:
        as_dates(np.array([time], dtype=object))
    except ValueError:
        return False
    return True


def first_and_last(times: AnyArray) -> tuple[Any, Any]:
    """Return the earliest and the latest time, also of text, for which NumPy has no minimum."""
    ordered = np.sort(times)
    return ordered[0], ordered[-1]


def _are_dates(times: list[Any]) -> bool:
    """Return whether the values are text, or all dates."""
    return any(isinstance(time, str | bytes) for time in times) or all(
        isinstance(time, date | np.datetime64 | None) for time in times
    )


def _decoded(time: Any) -> Any:
    text = time.decode() if isinstance(time, bytes) else time
    text = text.strip() if isinstance(text, str) else text
    return None if isinstance(text, str) and text in ("", "NaT") else text


def _parse(times: list[Any]) -> AnyArray:
    if not any(isinstance(time, str) for time in times):
        return np.array([_in_utc(time, row) for row, time in enumerate(times)], dtype="datetime64[us]")
    texts = [
        time if isinstance(time, str) and _AS_NUMPY_READS_IT.fullmatch(time) else _canonical(time, row)
        for row, time in enumerate(times)
    ]
    try:
        return _to_numpy(texts)
    except ValueError:
        for row, text in enumerate(texts):
            try:
                _to_numpy([text])
            except ValueError:
                raise _not_iso(times[row], row) from None
        raise


def _in_utc(time: Any, row: int) -> Any:
    if not isinstance(time, datetime) or time.tzinfo is None:
        return time
    try:
        return time.astimezone(UTC).replace(tzinfo=None)
    except OverflowError:
        raise _not_iso(time, row) from None


def _to_numpy(texts: list[str]) -> AnyArray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # NumPy's, that it converts time zones to UTC
        return np.array(texts, dtype="datetime64")


def _canonical(time: Any, row: int) -> str:
    """Rewrite a date so that NumPy reads it as ISO 8601 means it: 20240901 is not a year."""
    if isinstance(time, np.datetime64):
        time = str(time)
    elif isinstance(time, date):
        time = time.isoformat()
    found = _ISO.fullmatch(time) if isinstance(time, str) else None
    if found is None:
        raise _not_iso(time, row)
    month, day = found["month"] or found["basic_month"], found["day"] or found["basic_day"]
    text = "-".join(part for part in (found["year"], month, day) if part)
    if found["hour"] is None:
        return text
    if day is None:
        raise _not_iso(time, row)
    text += f"T{found['hour']}:{found['minute'] or '00'}:{found['second'] or '00'}"
    if found["fraction"]:
        text += f".{found['fraction']}"
    if found["zone"]:
        text += f"{found['zone']}:{found['zone_minute'] or '00'}"
    return text


def _not_iso(time: Any, row: int) -> ValueError:
    hint = " Is it a month? That is written 2024-09." if re.fullmatch(r"\d{6}", str(time)) else ""
    return ValueError(
        "times given as text must be ISO dates such as 2024-09-01, 20240901, 2024-09 or "
        f"2024-09-01T12:30:00Z, not {time!r} (row {row}).{hint}"
    )
