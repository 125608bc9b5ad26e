"""Dates that are not written in ISO 8601: seconds or milliseconds since 1970, and named formats."""

import calendar
import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from transcendent._utils.arrays import AnyArray
from transcendent._utils.dates import is_date, looks_iso

_NUMBER = re.compile(r"\d{8,19}(?:\.\d{1,9})?", re.ASCII)
_UNITS = (1, 10**3, 10**6, 10**9)  # of a second; the years from 1980 on never overlap
_FIRST = datetime(1980, 1, 1, tzinfo=UTC).timestamp()
_SWAPPED = {"%d/%m/%Y": "%m/%d/%Y", "%d-%m-%Y": "%m-%d-%Y"}
_DAYS = (
    "%Y/%m/%d",
    *_SWAPPED,
    *_SWAPPED.values(),
    "%d.%m.%Y",
    "%d %b %Y",
    "%d-%b-%Y",
    "%b %d, %Y",
    "%d %B %Y",
    "%B %d, %Y",
)
_CLOCKS = ("", " %H:%M", " %H:%M:%S")
_OTHERS = ("%Y%m%d%H%M%S", "%a, %d %b %Y %H:%M:%S %z")
_LOOKED_AT = 1000
_TWO_DIGITS = {f"{n:{fill}}": f"{n:02}" for n in range(62) for fill in ("", "2", "02")} | {
    name.lower(): f"{n:02}"  # the names begin with an empty one: a part that a format lacks is 00
    for names in (calendar.month_abbr, calendar.month_name)
    for n, name in enumerate(names)
}
_PARTS = {  # as `datetime.strptime` matches them
    "Y": r"(?P<Y>\d\d\d\d)",
    "m": r"(?P<m>1[0-2]|0[1-9]|[1-9])",
    "d": r"(?P<d>3[0-1]|[1-2]\d|0[1-9]|[1-9]| [1-9])",
    "H": r"(?P<H>2[0-3]|[0-1]\d|\d)",
    "M": r"(?P<M>[0-5]\d|\d)",
    "S": r"(?P<S>6[0-1]|[0-5]\d|\d)",
    "b": f"(?P<m>{'|'.join(filter(None, calendar.month_abbr))})",
    "B": f"(?P<m>{'|'.join(filter(None, calendar.month_name))})",
}


class FoundFormats(NamedTuple):
    """Formats that read dates, and pairs of formats of which it is unclear which one does."""

    formats: list[str]
    unclear: list[tuple[str, str]]


def with_iso_dates(times: AnyArray, formats: Sequence[str] = ()) -> AnyArray:
    """Return times with other dates rewritten in ISO 8601; what is not a date stays as it is.

    Dates are texts in one of the ``formats`` of `datetime.strptime`, and numbers that are seconds since 1970,
    or thousandths, millionths or billionths of them, in a year from 1980 to today. Numbers of which most are
    not dates stay numbers.
    """
    if times.dtype.kind not in "iufOSUT":
        return times
    cells = times.tolist()
    known = {cell: _rewritten(cell, formats) for cell in set(cells)}
    found = np.fromiter((known[cell] for cell in cells), dtype=object, count=len(cells))
    if times.dtype.kind in "iuf":
        dated = sum(isinstance(cell, str) for cell in found)
        return found if 2 * dated > np.count_nonzero(~np.isnan(times)) else times
    changed = any(known[cell] is not cell for cell in known)
    return found if changed else times


def is_format(form: str) -> bool:
    """Return whether `datetime.strptime` has all letters of a format, each once."""
    try:
        datetime.strptime(datetime(2024, 11, 28, tzinfo=UTC).strftime(form), form)
    except (ValueError, re.error):
        return False
    return True


def find_formats(times: Iterable[Any]) -> FoundFormats:
    """Return the formats of texts that are not dates otherwise.

    Of formats that differ in the order of day and month, one is chosen if only it reads all texts of either.
    """
    texts = dict.fromkeys(time.strip() for time in times if isinstance(time, str))
    other = [text for text in texts if not looks_iso(text) and re.search(r"\d", text)]
    rest = [text for text in other if not is_date(_rewritten(text, ()))]
    some = rest[:: 1 + len(rest) // _LOOKED_AT]
    read = {day: {clock: _read(some, day + clock) for clock in _CLOCKS} for day in _DAYS}
    read |= {whole: {"": _read(some, whole)} for whole in _OTHERS}
    unclear = []
    for one, swapped in _SWAPPED.items():
        clocks = [clock for clock in _CLOCKS if read[one][clock] | read[swapped][clock]]
        first, second = (
            set().union(*(_read(rest, day + clock) for clock in clocks)) for day in (one, swapped)
        )
        if first <= second:
            read[one] = {}
        if second <= first:
            read[swapped] = {}
        if (first or second) and (first == second or (first - second and second - first)):
            unclear.append((one, swapped))
            read[one] = read[swapped] = {}
    return FoundFormats(
        _fewest({day + clock: found for day in read for clock, found in read[day].items()}), unclear
    )


def _fewest(read: dict[str, set[str]]) -> list[str]:
    """Return formats that read all texts that any format reads, the most frequent first."""
    chosen: list[str] = []
    while read:
        best = max(read, key=lambda form: len(read[form]))
        done = read.pop(best)
        if not done:
            break
        chosen.append(best)
        read = {form: found - done for form, found in read.items()}
    return chosen


def _read(texts: list[str], form: str) -> set[str]:
    read = _reader(form)
    return {text for text in texts if read(text) is not None}


def _rewritten(cell: Any, formats: Sequence[str]) -> Any:
    """Return a date in ISO 8601; other cells unchanged, and None for numbers that are missing."""
    if isinstance(cell, bool) or not isinstance(cell, str | int | float):
        return cell
    if isinstance(cell, float):
        if math.isnan(cell):
            return None
        cell = int(cell) if cell.is_integer() else cell
    text = str(cell).strip()
    for form in formats:
        if (moment := _reader(form)(text)) is not None:
            return moment
    if not _NUMBER.fullmatch(text):
        return cell
    end = (datetime.now(UTC) + timedelta(days=1)).timestamp()
    for unit in _UNITS:
        if _FIRST <= (seconds := float(text) / unit) <= end:
            return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()
    return text if is_date(text) else cell  # 20240901, given as a number


@lru_cache
def _reader(form: str) -> Callable[[str], str | None]:
    """Return a function that reads a date as `datetime.strptime` does, and returns it in ISO 8601.

    It is several times as fast for formats of numbers and names of months.
    """
    letters = re.findall(r"%(.?)", form)
    parts = ["m" if letter in "bB" else letter for letter in letters]
    if not set(letters) <= _PARTS.keys() or not {*"Ymd"} <= set(parts) or len(set(parts)) < len(parts):
        return lambda text: _parsed(text, form)
    pattern = "".join(
        _PARTS[word[1]] if word[0] == "%" else r"\s+" if word.isspace() else re.escape(word)
        for word in re.findall(r"%.|\s+|[^%\s]+", form)
    )
    absent = "".join(f"(?P<{part}>)" for part in "HMS" if part not in parts)
    match, two = re.compile(pattern + absent, re.IGNORECASE | re.ASCII).match, _TWO_DIGITS

    def read(text: str) -> str | None:
        if (found := match(text)) is None or found.end() != len(text):
            return None
        year, month, day, hour, minute, second = found.group("Y", "m", "d", "H", "M", "S")
        moment = f"{year}-{two[month.lower()]}-{two[day]}T{two[hour]}:{two[minute]}:{two[second]}"
        try:
            datetime.fromisoformat(moment)
        except ValueError:  # such as 31 February
            return None
        return moment

    return read


def _parsed(text: str, form: str) -> str | None:
    try:
        moment = datetime.strptime(text, form)  # dates without a zone are in UTC
        moment = moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    except (ValueError, OverflowError):
        return None
    return moment.isoformat()
