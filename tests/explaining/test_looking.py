"""What looks prove."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom

from transcendent.explaining import looks_needed, may_differ, what_looks_prove


@given(st.integers(1, 1000), st.floats(0.5, 0.999))
def test_the_bound_is_that_of_clopper_and_pearson(opened, confidence):
    bound = may_differ(opened, confidence)
    assert bound == pytest.approx(beta.ppf(confidence, 1, opened))
    assert binom.pmf(0, opened, bound) == pytest.approx(1 - confidence)


@given(st.integers(1, 50), st.integers(1, 50))
def test_members_that_differ_weaken_it(opened, unlike):
    bound = may_differ(opened, unlike=unlike)
    assert binom.cdf(unlike, opened + unlike, bound) == pytest.approx(0.05)
    assert bound > may_differ(opened)


@given(st.floats(0.001, 0.99), st.floats(0.5, 0.999))
def test_the_number_of_looks_is_the_smallest(share, confidence):
    needed = looks_needed(share, confidence)
    assert may_differ(needed, confidence) <= share * (1 + 1e-12)
    assert needed == 1 or may_differ(needed - 1, confidence) > share * (1 - 1e-12)


def test_words():
    assert what_looks_prove(3) == "3 opened and alike: up to 63% may differ; 29 for 10%"
    assert what_looks_prove(29) == "29 opened and alike: up to 10% may differ"
    assert may_differ(0) == 1.0
    assert what_looks_prove(3, unlike=1) == "3 opened and alike, 1 not: up to 75% may differ"
    with pytest.raises(ValueError, match="unlike must be a number of members"):
        may_differ(1, unlike=-1)
    with pytest.raises(ValueError, match="opened must be a number of members"):
        may_differ(-1)
    with pytest.raises(ValueError, match="share must be strictly between"):
        looks_needed(0)
