from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transcendent.temporal import cut_periods, time_split

dates = st.lists(st.dates(date(1962, 1, 1), date(1981, 12, 31)), min_size=1, max_size=20)


def name(day, period):
    year, week, _ = day.isocalendar()
    return {
        "year": f"{day.year}",
        "quarter": f"{day.year}-Q{(day.month - 1) // 3 + 1}",
        "month": f"{day.year}-{day.month:02}",
        "week": f"{year}-W{week:02}",
        "day": day.isoformat(),
    }[period]


@given(dates, st.sampled_from(["year", "quarter", "month", "week", "day"]))
def test_every_object_is_in_its_calendar_period(days, period):
    periods = cut_periods(np.array(days, dtype="datetime64[D]"), period)
    assert [periods.labels[c] for c in periods.codes] == [name(day, period) for day in days]


@pytest.mark.slow
@given(dates, st.sampled_from(["year", "quarter", "month", "week"]))
def test_no_period_between_the_first_and_the_last_is_missing(days, period):
    periods = cut_periods(np.array(days, dtype="datetime64[D]"), period)
    every = {name(min(days) + timedelta(n), period) for n in range((max(days) - min(days)).days + 1)}
    assert set(periods.labels) == every
    assert len(periods.labels) == len(every)
    assert periods.counts.sum() == len(days)
    assert sorted(np.concatenate(periods.rows).tolist()) == list(range(len(days)))


def test_months_do_not_drift():
    periods = cut_periods(["2024-01-31", "2024-02-29", "2024-03-30", "2024-03-31"], "month")
    assert periods.labels == ("2024-01", "2024-02", "2024-03")
    assert periods.counts.tolist() == [1, 1, 2]


def test_the_same_moment_in_any_form():
    moment = datetime(2024, 5, 31, 23, 30, tzinfo=timezone(timedelta(hours=-2)))
    for times in (
        [moment],
        [moment.astimezone(UTC).replace(tzinfo=None)],
        pd.Series(pd.to_datetime([moment])),
        np.array(["2024-06-01T01:30"], dtype="datetime64[s]"),
        ["2024-06-01T01:30"],
    ):
        assert cut_periods(times, "month").labels == ("2024-06",)


def test_given_labels_are_taken_in_their_order():
    periods = cut_periods(["w02", "w10", "w02", "w01"], None)
    assert periods.labels == ("w01", "w02", "w10")
    assert periods.codes.tolist() == [1, 2, 1, 0]


@pytest.mark.parametrize(
    ("times", "period", "message"),
    [
        ([1, 2], "month", "pass period=None"),
        (["soon"], "month", "ISO dates"),
        (["2024-01-01"], "fortnight", "period must be one of"),
        (["2024-01-01", None], "month", "missing|ISO"),
        ([1.0, np.nan], None, "missing values"),
        ([[1, 2]], None, "one entry per row"),
        (np.array([2014, 2015], dtype=object), "year", "must be dates"),
        (["week-2", "week-10"], None, "puts 'week-10' before 'week-2'"),
        (["1", "2", "10"], None, "Pad their numbers"),
    ],
)
def test_bad_times_are_refused(times, period, message):
    with pytest.raises(ValueError, match=message):
        cut_periods(times, period)


DAYS = np.arange("2023-01-01", "2024-07-01", dtype="datetime64[D]")


def test_training_ends_where_testing_begins():
    for train in (
        "2024",
        "2024-01-01",
        date(2024, 1, 1),
        datetime(2024, 1, 1, tzinfo=UTC),
        np.datetime64("2024"),
    ):
        split = time_split(DAYS, train=train)
        assert DAYS[split.train].max() < np.datetime64("2024-01-01") <= DAYS[split.test].min()
        assert split.periods.labels[0] == "2024-01"
        assert len(split.train) + len(split.test) == len(DAYS)


def test_a_window_and_a_calibration_window():
    split = time_split(DAYS, train=("2023-03", "2024-01"), calibration="2023-11")
    assert str(DAYS[split.train[0]]) == "2023-03-01"
    assert str(DAYS[split.train[-1]]) == "2023-10-31"
    assert str(DAYS[split.calibration[0]]) == "2023-11-01"
    assert str(DAYS[split.test[0]]) == "2024-01-01"


def test_rows_come_in_the_order_of_time():
    order = np.random.default_rng(0).permutation(len(DAYS))
    split = time_split(DAYS[order], train="2024", calibration="2023-10")
    for rows in (split.train, split.calibration, split.test):
        assert np.all(np.diff(DAYS[order][rows]) > np.timedelta64(0, "D"))


def test_periods_begin_where_training_ends():
    split = time_split(
        DAYS[(np.datetime64("2024") > DAYS) | (np.datetime64("2024-03-15") < DAYS)], train="2024"
    )
    assert split.periods.labels[:3] == ("2024-01", "2024-02", "2024-03")
    assert split.periods.counts[:2].tolist() == [0, 0]


def test_a_mask_and_labels():
    assert time_split(np.array([1, 2, 3, 4]), train=2.5, period=None).train.tolist() == [0, 1]
    weeks = np.repeat(np.arange(10), 3)
    assert len(time_split(weeks, train=4, period=None).train) == 12
    for mask in (weeks < 4, (weeks < 4).tolist()):
        assert len(time_split(weeks, train=mask, period=None).periods) == 6
    assert time_split(["a", "b", "c"], train="b", period=None).periods.labels == ("b", "c")


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("2020", "no rows to train on"),
        ("2030", "no rows to test on"),
        ("someday", "not a date"),
        (np.ones(3, dtype=bool), "a mask: "),
        (np.arange(len(DAYS)), "or a mask: an array or list with True or False for each of the"),
        (
            ["2023-03", "2024-01"],
            r"a tuple of two times \(start, end\), or .* It has type <U7 and shape \(2,\)",
        ),
    ],
)
def test_splits_that_cannot_be_are_refused(train, message):
    with pytest.raises(ValueError, match=message):
        time_split(DAYS, train=train)


def test_an_empty_calibration_window_is_refused():
    with pytest.raises(ValueError, match="no rows to calibrate on"):
        time_split(DAYS, train="2023-06", calibration="2023-08")


@pytest.mark.parametrize(
    ("wrong", "period", "empty"),
    [
        ("9999-12-31", "month", "95,705"),
        ("9999-12-31", "day", "2,912,"),
        ("9999-12-31", "year", "7,974"),
        ("1970-01-01", "month", "635"),
        ("0001-01-01", "week", "105,"),
    ],
)
def test_a_date_far_from_all_others_is_named(wrong, period, empty):
    times = DAYS.astype(str).astype(object)
    times[100] = wrong
    with pytest.raises(ValueError, match=rf"row 100 is at {wrong}: {empty}.* empty {period}s .* \(1 of "):
        cut_periods(times.tolist(), period)


def test_a_date_far_after_the_training_window_is_named_by_its_row():
    times = DAYS.copy()
    times[-3] = np.datetime64("9999-12-31")
    with pytest.raises(ValueError, match=f"row {len(DAYS) - 3} is at 9999-12-31"):
        time_split(times, train="2024")
    times[:-2] = np.datetime64("1970-01-01")
    with pytest.raises(ValueError, match=f"row {len(DAYS) - 2} is at 2024-06-29: .* empty days"):
        time_split(times, train="1971", period="day")


def test_a_date_far_before_the_training_window_is_named_by_its_row():
    times = DAYS.copy()
    times[-3:] = np.datetime64("1970-01-01")  # would train though they are the last
    with pytest.raises(ValueError, match=rf"row {len(DAYS) - 1} is at 1970-01-01.* \(3 of"):
        time_split(times, train="2024")


def test_years_without_objects_are_no_mistake():
    assert len(cut_periods(["2005-01-01", "2006-01-01", "2024-12-31"], "day")) == 7305


@pytest.mark.parametrize(
    ("times", "train"),
    [
        (np.arange(40), "30"),
        (np.arange(40), date(2024, 1, 1)),
        (np.arange(40), np.datetime64("2024")),
        (np.arange(40) / 4, ("3", "5")),
        ([f"w{i:02}" for i in range(40)], 30),
        ([f"w{i:02}" for i in range(40)], None),
    ],
)
def test_a_train_that_does_not_compare_with_the_times_is_refused(times, train):
    with pytest.raises(ValueError, match="does not compare with the times, which with period=None are"):
        time_split(times, train=train, period=None)


def test_a_boundary_may_be_a_number_of_any_kind():
    for train in (30, 30.0, np.int8(30), np.float32(30), np.array(30)):
        assert len(time_split(np.arange(40), train=train, period=None).train) == 30


def test_names_that_leave_nothing_to_train_on():
    with pytest.raises(ValueError, match="no rows to train on with 'a'; times run from b to c"):
        time_split(["b", "c"], train="a", period=None)
