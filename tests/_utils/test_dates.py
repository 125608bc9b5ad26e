"""Dates are read as ISO 8601, or refused."""

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest

from transcendent._utils.dates import as_dates, as_times
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
