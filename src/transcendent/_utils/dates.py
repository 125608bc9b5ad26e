"""Times as arrays that can be sorted, and dates in ISO 8601; other formats are refused."""

import re
from datetime import UTC, date, datetime
from typing import Any

import numpy as np

from transcendent._utils.arrays import AnyArray, IntArray, missing_rows

_FIRST_DATE = "1980"  # earlier ones stand for a missing date, such as 1970-01-01
_ISO = re.compile(r"\d{4}-?\d\d-?\d\d(?:[T ](?!24)\d\d[\d:]*(?:\.\d+)?(?:Z|[+-]\d\d:?(?:\d\d)?)?)?", re.ASCII)
_AS_NUMPY_READS_IT = re.compile(r"\d{4}(?:-\d\d(?:-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?)?)?", re.ASCII)


def as_times(times: Any, n: int) -> AnyArray:
    """Return times as an array that can be sorted; refuse anything unclear, so no model trains on the future.

    Text and dates become datetime64, with time zones converted to UTC. Numbers stay numbers.
    """
    when = np.asarray(times)
    if when.shape != (n,):
        raise ValueError(f"times must have one entry per row: {(n,)}, got {when.shape}.")
    to_parse = when.dtype.kind in "SUT" or (when.dtype.kind == "O" and _are_dates(when.tolist()))
    if to_parse:
        when = np.fromiter(map(_decoded, when.tolist()), dtype=object, count=n)
    if len(missing := missing_rows(when)):
        raise ValueError(
            f"times contains missing values: {len(missing):,} of {n:,}, the first at row {missing[0]}. Every "
            "row needs a time."
        )
    return _parse(when.tolist()) if to_parse else when


def as_dates(times: Any) -> AnyArray:
    """Return times as datetime64, no finer than microseconds; refuse anything but dates."""
    values = np.asarray(times)
    when = as_times(values, len(values))
    if when.dtype.kind != "M":
        raise ValueError(
            f"times must be dates to be split by calendar, not {when[:1].tolist()}. Numbers are not read as "
            "dates: pass 20240901 as text, and seconds since 1970 as "
            "numpy.array(seconds, dtype='datetime64[s]'). For numbers or names of periods, pass period=None."
        )
    if np.datetime_data(when.dtype)[0] in ("ns", "ps", "fs", "as"):
        when = when.astype("datetime64[us]")  # NumPy compares nanoseconds wrongly with years after 2262
    years = when.astype("datetime64[Y]").astype(np.int64) + 1970
    if len(wrong := np.flatnonzero((years < 1) | (years > 9999))):
        raise ValueError(
            f"times: row {wrong[0]} is in the year {years[wrong[0]]}. Is the unit of its number wrong?"
        )
    return when


def undated_rows(times: AnyArray) -> IntArray:
    """Return the positions of times that are missing, not dates, or dates before 1980 or after tomorrow."""
    dated = np.ones(len(times), dtype=bool)
    dated[missing_rows(times)] = False
    try:
        when = as_dates(times[dated])
    except ValueError:
        cells = times[dated].tolist()
        known = {time: is_date(time) for time in set(cells)}
        dated[dated] = [known[time] for time in cells]
        when = as_dates(times[dated])
    end = np.datetime64(datetime.now(UTC).date()) + 2
    dated[dated] = (when >= np.datetime64(_FIRST_DATE)) & (when < end)
    return np.flatnonzero(~dated)


def is_date(time: Any) -> bool:
    """Return whether a value is a date that `as_dates` reads."""
    try:
        text = _canonical(_decoded(time))
        return text is not None and not np.isnat(np.datetime64(text)) and not text.startswith("0000")
    except ValueError:
        return False


def looks_iso(text: str) -> bool:
    """Return whether a text is written as an ISO date, such as 2024-09 or 2024-09-01T12:30."""
    return _AS_NUMPY_READS_IT.fullmatch(text) is not None


def as_moment(text: str) -> datetime:
    """Return an ISO date or time, given as text, in UTC; refuse anything else."""
    try:
        found: datetime = as_dates([text]).astype("datetime64[us]")[0].item()
    except ValueError:
        raise ValueError(f"{text!r} is not a date or time such as 2026-11-01 or 2026-11-01T08:00Z.") from None
    return found.replace(tzinfo=UTC)


def first_and_last(times: AnyArray) -> tuple[Any, Any]:
    """Return the earliest and the latest time; NumPy's min and max do not accept text."""
    ordered = np.sort(times)
    return ordered[0], ordered[-1]


def _are_dates(times: list[Any]) -> bool:
    """Return whether any value is text, or all are dates."""
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
    if all(isinstance(time, str) and looks_iso(time) for time in times):
        texts: list[str | None] = times
    else:
        known = {time: _canonical(time) for time in set(times)}
        texts = [known[time] for time in times]
    if None in texts:
        row = texts.index(None)
        raise _not_iso(times[row], row)
    try:
        return np.array(texts, dtype="datetime64")
    except ValueError:
        for row, text in enumerate(texts):
            try:
                np.datetime64(text)
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


def _canonical(time: Any) -> str | None:
    """Rewrite a date so that NumPy reads it as ISO 8601: 20240901 is not a year; None for anything else."""
    if isinstance(time, np.datetime64):
        time = str(time)
    elif isinstance(time, date):
        time = time.isoformat()
    if isinstance(time, str) and _AS_NUMPY_READS_IT.fullmatch(time):
        return time
    if not isinstance(time, str) or not _ISO.fullmatch(time):
        return None
    try:
        moment = datetime.fromisoformat(time)
        return str(moment.date()) if len(time) <= 10 else str(_in_utc(moment, row=0).isoformat())
    except ValueError:
        return None


def _not_iso(time: Any, row: int) -> ValueError:
    hint = " If it is a month, write 2024-09." if re.fullmatch(r"\d{6}", str(time)) else ""
    return ValueError(
        "times given as text must be ISO dates such as 2024-09-01, 20240901, 2024-09 or "
        f"2024-09-01T12:30:00Z, not {time!r} (row {row}).{hint}"
    )
