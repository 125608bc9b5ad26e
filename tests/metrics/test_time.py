import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transcendent.metrics import area_under_time


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30))
def test_is_the_published_formula_where_every_period_is_defined(values):
    n = len(values)
    expected = sum((values[k] + values[k + 1]) / 2 for k in range(n - 1)) / (n - 1)
    found = area_under_time(values)
    assert found.value == pytest.approx(expected)
    assert found.undefined == ()


def test_undefined_periods_are_bridged_and_reported():
    found = area_under_time([np.nan, 0.8, np.nan, 0.4, np.nan])
    assert found.value == pytest.approx(0.6)
    assert found.undefined == (0, 2, 4)


@pytest.mark.parametrize("values", [[], [0.5], [np.nan, 0.5], [np.nan] * 3])
def test_fewer_than_two_defined_periods_have_no_area(values):
    assert np.isnan(area_under_time(values).value)


def test_a_table_is_refused():
    with pytest.raises(ValueError, match="one per period"):
        area_under_time([[1.0, 0.5]])
