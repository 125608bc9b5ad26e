"""What columns seem to hold."""

import pandas as pd
import pytest

from transcendent.experiments.looks import holds_dates
from transcendent.experiments.proposing import by_name, guess_time

SIZES = [*map(str, range(1900, 2100)), "n/a", "12.5 kb"]  # text, because of the last two


@pytest.mark.parametrize(
    ("name", "cells", "dates"),
    [
        ("size kb", SIZES, False),
        ("size kb", ["1559347200", "1561939200"], False),
        ("Seen", ["2019", "2020", "unknown"], True),
        ("First Seen", ["1559347200", "1561939200", "-"], True),
        ("when", ["20240901", "20240902", "-"], True),
        ("when", ["2024-09-01", "27/05/2019", "12"], True),
        ("when", pd.to_datetime(["2024-09-01"]).date, True),
        ("when", [2019, 2020], False),
    ],
)
def test_numbers_are_dates_only_in_columns_named_like_times(name, cells, dates):
    assert holds_dates(pd.Series(list(cells), name=name)) == dates


def test_a_column_of_sizes_is_not_proposed_for_dates():
    frame = pd.DataFrame({"size kb": SIZES, "day": ["27/05/2019", "2019-01-02"] * (len(SIZES) // 2)})
    assert guess_time(frame) == "day"
    assert guess_time(frame[["size kb"]]) is None
    assert by_name(pd.DataFrame(columns=["x", "First-Seen "]), ("first_seen",)) == "First-Seen "
