"""Dates are read as ISO 8601, or refused."""

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest

from transcendent._utils.dates import as_dates, as_times, is_date, undated_rows
from transcendent.temporal import cut_periods


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024", "2024"),
        ("2024-09", "2024-09"),
        ("2024-09-01", "2024-09-01"),
        ("20240901", "2024-09-01"),
        (b"20240901", "2024-09-01"),
        ("2024-09-01 12:30", "2024-09-01T12:30"),
        ("20240901T123005Z", "2024-09-01T12:30:05"),
        ("2024-09-01T12:30:00+02:00", "2024-09-01T10:30"),
        ("2024-09-01T12-0130", "2024-09-01T13:30"),
        ("2024-09-01T12:30:00.123456789", "2024-09-01T12:30:00.123456"),
    ],
)
def test_iso_text(text, moment):
    for times in ([text], np.array([text]), np.array([text], dtype=object)):
        assert as_dates(times)[0] == as_times(times, 1)[0] == np.datetime64(moment)


NOT_ISO = """now today 24-09-01 1/9/2024 202409 240901 12024-09-01 2024-9-1 2024-13-01 20241301 2024-02-30
2024-W05 2024-09T12 2024-09-01T25:00 1725148800 ２０２４0901"""


@pytest.mark.parametrize("text", NOT_ISO.split())
def test_other_text_is_refused_with_its_row(text):
    with pytest.raises(ValueError, match=r"ISO dates such as 2024-09-01, .* \(row 1\)"):
        as_dates(["2024-09-01", text])


def test_eight_digits_are_a_day_not_a_year():
    days = [f"2020{month:02}{day:02}" for month in (1, 2, 3) for day in (1, 15)]
    assert cut_periods(days, "month").labels == ("2020-01", "2020-02", "2020-03")


@pytest.mark.parametrize(
    "numbers", [[20200101, 20200201], pd.Series([20200101], dtype="Int64"), [1.6e9], [np.int64(2020)]]
)
def test_numbers_are_not_taken_for_dates(numbers):
    with pytest.raises(ValueError, match=r"Numbers are not read as dates: pass 20240901 as text"):
        as_dates(numbers)
    assert as_times(numbers, len(numbers)).tolist() == list(numbers)


@pytest.mark.parametrize("missing", ["", "NaT", b"", None, float("nan"), pd.NA, pd.NaT])
def test_missing_times_are_counted(missing):
    for there in ("2024-09-01", date(2024, 9, 1), datetime(2024, 9, 1, tzinfo=UTC)):
        with pytest.raises(ValueError, match="missing values: 1 of 3, the first at row 1"):
            as_times(np.array([there, missing, there], dtype=object), 3)


def test_objects_and_text_of_one_moment():
    berlin = timezone(timedelta(hours=2))
    moments = [datetime(2024, 9, 1, 1, tzinfo=berlin), "2024-08-31T23:00Z", np.datetime64("2024-08-31T23")]
    assert np.unique(as_dates(np.array(moments, dtype=object))).tolist() == [datetime(2024, 8, 31, 23)]
    assert np.unique(as_times(np.array(moments[::2], dtype=object), 2)).tolist() == [
        datetime(2024, 8, 31, 23)
    ]


def test_nanoseconds_compare_with_any_year():
    """NumPy compares them after a cast that overflows."""
    when = as_dates(np.array(["2024-09-01T00:00:00.000000001"], dtype="datetime64[ns]"))
    assert when[0] < np.datetime64("9999-12-31")
    assert as_dates(["2024-09-01T00:00:00.123456789", "9999-12-31"])[1] == np.datetime64("9999-12-31")


def test_numbers_of_another_unit_are_noticed():
    with pytest.raises(ValueError, match="row 1 is in the year 54"):
        as_dates(np.array([1_600_000_000, 1_650_000_000_000]).astype("datetime64[s]"))


def test_a_moment_before_the_first_year_is_refused():
    early = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
    with pytest.raises(ValueError, match="row 0"):
        as_dates([early])


def test_spaces_around_a_date_do_no_harm():
    assert as_dates(np.array([" 2023-05-10 ", "2023-05-11"]))[0] == np.datetime64("2023-05-10")


def test_times_that_cannot_be_are_undated():
    later = datetime.now(UTC).date() + timedelta(days=3)
    times = ["2024-01", "", "2024-13", "1970-01-01", "2099-01-01", "31/12/2014", None, str(later), "2024-01"]
    assert undated_rows(np.array(times, dtype=object)).tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert undated_rows(np.array(["1979-12-31", "1980-01-01", "NaT"], dtype="datetime64[D]")).tolist() == [
        0,
        2,
    ]
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    assert undated_rows(np.array([f"{tomorrow}T12:00"])).tolist() == []


def test_what_is_not_a_date_is_found_among_many():
    times = [str(np.datetime64("2020-01-01T00:00") + i) for i in range(1000)]
    for i in (0, 17, 18, 500, 999):
        times[i] = (f"soon {i}", f"2020-13-0{i % 10}", i)[i % 3]
    times[700:760] = [f"{i}/01/2020" for i in range(60)]
    found = undated_rows(np.array(times, dtype=object))
    assert found.tolist() == [0, 17, 18, 500, *range(700, 760), 999]


@pytest.mark.parametrize(
    "time",
    [
        *(
            "2024",
            "0000-01-01",
            "2024-02-30",
            "20240901",
            "2024-09-01T24:00",
            "0001-01-01T00:00+09:00",
            "NaT",
            "",
        ),
        *(b"2024-09", b"\xff", None, 7, float("nan"), date(2024, 1, 1)),
        *(np.datetime64("2024-01"), np.datetime64("NaT"), np.datetime64(9000, "Y")),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=9))),
    ],
)
def test_a_date_is_what_as_dates_reads(time):
    try:
        as_dates(np.array([time], dtype=object))
    except ValueError:
        assert not is_date(time)
    else:
        assert is_date(time)
