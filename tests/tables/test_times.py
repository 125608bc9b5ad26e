"""Dates in mixed formats."""

from datetime import UTC, datetime, timedelta
from time import process_time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transcendent._utils.dates import as_dates, undated_rows
from transcendent.tables.objects import Objects
from transcendent.tables.times import find_formats, with_iso_dates

MOMENTS = st.datetimes(datetime(1980, 1, 2), datetime(2026, 1, 1)).map(
    lambda time: time.replace(microsecond=0)
)
WRITTEN = {
    "ISO": lambda time: time.isoformat(),
    "zone": lambda time: time.replace(tzinfo=UTC).astimezone().isoformat(),
    "blanks": lambda time: f" {time.isoformat(' ')} ",
    **{
        f"1/{unit} s": lambda time, unit=unit: str(int(time.replace(tzinfo=UTC).timestamp()) * unit)
        for unit in (1, 10**3, 10**6, 10**9)
    },
    "format": lambda time: time.strftime("%d/%m/%Y %H:%M:%S"),
}


@given(st.lists(st.tuples(MOMENTS, st.sampled_from(sorted(WRITTEN))), min_size=1, max_size=20))
def test_a_moment_is_the_same_however_it_is_written(cells):
    times = np.array([WRITTEN[how](moment) for moment, how in cells], dtype=object)
    read = with_iso_dates(times, ["%d/%m/%Y %H:%M:%S"])
    assert not len(undated_rows(read))
    assert as_dates(read).astype("datetime64[s]").tolist() == [moment for moment, _ in cells]


@given(st.lists(MOMENTS, min_size=1, max_size=20), st.sampled_from([1, 10**3]))
def test_numbers_are_dates_too(moments, unit):
    seconds = [int(moment.replace(tzinfo=UTC).timestamp()) * unit for moment in moments]
    for numbers in (np.array(seconds), np.array([*map(float, seconds), np.nan])):
        read = with_iso_dates(numbers)
        assert as_dates(read[: len(moments)]).astype("datetime64[s]").tolist() == moments
        assert len(undated_rows(read)) == len(numbers) - len(moments)


@pytest.mark.parametrize("numbers", [[1, 2, 3], [2019.5, 2020.0], [1e30, 5.0], [-1709251200, 7]])
def test_numbers_of_periods_stay_numbers(numbers):
    times = np.array(numbers)
    assert with_iso_dates(times) is times


def test_what_is_not_a_date_stays_as_it_is_written():
    times = np.array(
        ["2024-09-01", "2099-01-01", "1900-01-01", "unknown", "12", None, "13/05/2024"], dtype=object
    )
    assert with_iso_dates(times).tolist() == times.tolist()
    assert undated_rows(times).tolist() == [1, 2, 3, 4, 5, 6]
    read = with_iso_dates(times, ["%d/%m/%Y"])
    assert undated_rows(read).tolist() == [1, 2, 3, 4, 5]
    assert read[3] == "unknown"


def test_dates_that_cannot_be():
    today = datetime.now(UTC).date()
    days = [str(today + timedelta(days=n)) for n in (0, 1, 2)] + ["1979-12-31", "1980-01-01"]
    assert undated_rows(np.array(days)).tolist() == [2, 3]
    assert undated_rows(np.array(days, dtype="datetime64[s]")).tolist() == [2, 3]


@pytest.mark.parametrize(
    ("times", "formats", "unclear"),
    [
        (["13/05/2024", "01/02/2024", "2024-01-01", "unknown", "1709251200"], ["%d/%m/%Y"], []),
        (["05/13/2024", "1/2/2024"], ["%m/%d/%Y"], []),
        (["05/13/2024 10:00", "1/2/2024"], ["%m/%d/%Y", "%m/%d/%Y %H:%M"], []),
        (["03/05/2024", "01/02/2024"], [], [("%d/%m/%Y", "%m/%d/%Y")]),
        (["03/15/2024", "21/02/2024"], [], [("%d/%m/%Y", "%m/%d/%Y")]),
        (["5 Mar 2024", "6 May 2024", "31.12.2023 01:02:03"], ["%d %b %Y", "%d.%m.%Y %H:%M:%S"], []),
        (["Tue, 05 Mar 2024 10:00:00 +0100", "20240305101112", None, 7.0], None, []),
        (["C:\\\\1", "v1.2", "none"], [], []),
    ],
)
def test_formats_are_found_if_they_are_clear(times, formats, unclear):
    found = find_formats(times)
    assert found.unclear == unclear
    if formats is not None:
        assert found.formats == formats
    read = with_iso_dates(np.array(times, dtype=object), found.formats)
    assert formats != [] or read.tolist() == times
    assert formats is not None or undated_rows(read).tolist() == [2, 3]


FORMATS = [
    "%d/%m/%Y",
    "%m-%d-%Y %H:%M",
    "%d%m%Y",
    "%Y%m%d%H%M%S",
    "%d %b %Y %H:%M:%S",
    "%B %d, %Y",
    "%a, %d %b %Y %H:%M:%S %z",
    "%d.%m.%Y %I %p",
    "%d.%m.%y",
    "%b %Y",
    "on %Y/%m/%d (100%%)",
]
ODD = ["31/02/2024", "29/02/2023", "1/2/2024", " 1/2/2024 ", "4122024", "01-02-2024 10:60", "20240305101160"]
ODD += [
    "5  mar 2024 1:2:3",
    "MAY 5, 2024",
    "00/01/2024",
    "01/01/0000",
    "today",
    "",
    "01/02/2024x",
    "1/02/202",
]


def read_one_by_one(text, formats):
    """The first format that `strptime` reads a text with decides."""
    for form in formats:
        try:
            moment = datetime.strptime(text.strip(), form)
        except ValueError:
            continue
        return (moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment).isoformat()
    return text


@given(
    st.lists(st.tuples(MOMENTS, st.sampled_from(FORMATS)), max_size=15),
    st.lists(st.sampled_from(ODD), max_size=5),
    st.permutations(FORMATS),
)
def test_formats_read_what_strptime_reads(cells, odd, formats):
    texts = [moment.replace(tzinfo=UTC).strftime(form) for moment, form in cells] + odd
    read = with_iso_dates(np.array(texts, dtype=object), formats[:4])
    named = [read_one_by_one(text, formats[:4]) for text in texts]
    epochs = with_iso_dates(np.array(named, dtype=object))
    assert read.tolist() == epochs.tolist()


def test_many_different_times_in_mixed_formats_are_read_quickly():
    moments = [datetime(2013, 1, 1) + timedelta(minutes=97 * n) for n in range(30_000)]
    shapes = ("%Y-%m-%dT%H:%M:%S", "%d/%m/%Y %H:%M:%S", "%d %b %Y %H:%M:%S")
    texts = np.array([moment.strftime(shapes[n % 3]) for n, moment in enumerate(moments)], dtype=object)
    started = process_time()
    formats = find_formats(texts).formats
    read = Objects("table", np.zeros((len(texts), 1)), times=texts).with_iso_dates(formats)
    assert sorted(formats) == sorted(shapes[1:])
    assert read.times.astype("datetime64[s]").tolist() == moments
    assert not len(undated_rows(texts[::3]))
    assert len(undated_rows(texts)) == 20_000
    assert process_time() - started < 2.5


def test_one_date_among_many_decides_which_order_is_clear():
    same = [f"{1 + n % 12:02}/{1 + n // 12 % 12:02}/{2000 + n // 144}" for n in range(3000)]
    assert find_formats(same).unclear == [("%d/%m/%Y", "%m/%d/%Y")]
    assert find_formats([*same, "13/05/2024"]).formats == ["%d/%m/%Y"]
    both = find_formats([*same, "13/05/2024", "05/13/2024"])
    assert both == ([], [("%d/%m/%Y", "%m/%d/%Y")])
