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
    of_many = "3 drawn at random were all spyware. At worst 63% of all 40 members are not (95% sure)"
    assert what_looks_prove(3, label="spyware", members=40) == f"{of_many}; 29 looks make that 10%"
    assert what_looks_prove(3, label="spyware", members=29) == of_many.replace("40", "29")
    assert what_looks_prove(29).endswith("At worst 10% of all members differ (95% sure)")
    unlike = what_looks_prove(3, unlike=1)
    assert unlike == "3 drawn at random were alike, 1 was not. At worst 75% of all members differ (95% sure)"
    assert what_looks_prove(0) == "no member was opened yet"
    assert what_looks_prove(0, unlike=2) == "none of 2 drawn at random says what it is"
    assert may_differ(0) == 1.0


@pytest.mark.parametrize(("members", "said"), [
    (2, "2 drawn at random were all spyware: no other member is left"),
    (4, "2 drawn at random were all spyware. At worst 50% of all 4 members are not (95% sure)"),
])  # fmt: skip
def test_of_a_small_campaign_few_can_differ(members, said):
    assert what_looks_prove(2, label="spyware", members=members) == said


def test_numbers_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="unlike must be a number of members"):
        may_differ(1, unlike=-1)
    with pytest.raises(ValueError, match="opened must be a number of members"):
        may_differ(-1)
    with pytest.raises(ValueError, match="share must be strictly between"):
        looks_needed(0)
