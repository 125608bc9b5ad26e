import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from transcendent.errors import CalibrationError
from transcendent.judging import pvalues
from transcendent.judging.pvalues import (
    Bags,
    Rounding,
    credibility_and_confidence,
    merge_ties,
    p_values,
)

# Few distinct values make ties; the neighbours of 1 differ from it by rounding alone.
few_values = st.sampled_from([-1.0, 0.0, 0.5, 1.0, np.nextafter(1.0, 2.0), np.nextafter(1.0, 0.0), 3.0])
any_values = st.floats(-1e300, 1e300, allow_nan=False)
score_lists = st.lists(few_values | any_values, min_size=1, max_size=40)


@np.errstate(over="ignore")
def rounding_of(score, bag):
    """How far a score may be off by rounding alone."""
    single = all(float(np.float32(a)) == a for a in bag) and not all(a == round(a) for a in bag)
    return (2.0**-18 if single else 2.0**-30) * max(abs(score), sorted(map(abs, bag))[len(bag) // 2])


def naive(score, bag, form="paper", u=None, *, left_out=None):
    """By definition; ``left_out`` is a member of the bag that does not count."""
    noise = rounding_of(score, bag)
    others = [a for i, a in enumerate(bag) if i != left_out]
    at_least = sum(1 for a in others if a >= score - noise)
    greater = sum(1 for a in others if a > score + noise)
    if form == "paper":
        return at_least / len(others)
    if form == "plus_one":
        return (at_least + 1) / (len(others) + 1)
    return (greater + u * (at_least - greater + 1)) / (len(others) + 1)


@given(score_lists, score_lists)
def test_p_values_equal_the_definition(scores, bag):
    for form in ("paper", "plus_one"):
        expected = [naive(s, bag, form) for s in scores]
        assert p_values(scores, bag, p_value=form).tolist() == expected


@given(score_lists, score_lists, st.integers(0, 1000))
def test_smoothed_p_values_equal_the_definition_and_are_seeded(scores, bag, seed):
    uniforms = np.random.RandomState(seed).random_sample(len(scores))
    expected = [naive(s, bag, "smoothed", u) for s, u in zip(scores, uniforms, strict=True)]
    got = p_values(scores, bag, p_value="smoothed", random_state=seed)
    assert got == pytest.approx(expected, abs=1e-15)


@given(hnp.arrays(float, st.integers(1, 30), elements=st.integers(-9, 9)), st.integers(-9, 9))
def test_p_values_only_see_the_order_of_scores(bag, score):
    for monotone in (lambda a: 2 * a + 1, lambda a: a**3, np.exp, np.arctan):
        transformed = p_values(monotone(np.array([float(score)])), monotone(bag))
        assert transformed.tolist() == p_values([score], bag).tolist()


@given(
    hnp.arrays(float, st.tuples(st.integers(2, 25), st.just(3)), elements=few_values),
    st.data(),
    st.sampled_from(["paper", "plus_one"]),
)
def test_calibration_objects_are_left_out_of_their_own_bag(scores, data, form):
    n = len(scores)
    codes = np.array(data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)))
    codes[: min(n, 3)] = np.arange(min(n, 3))
    if len(np.unique(codes)) < 3:
        return
    got = Bags.of(scores, codes, np.arange(3)).left_out_p_values(scores, codes, form)
    for i in range(n):
        for c in range(3):
            members = [j for j in range(n) if codes[j] == c]
            if members == [i]:
                assert np.isnan(got[i, c])
            else:
                own = members.index(i) if i in members else None
                expected = naive(scores[i, c], scores[members, c].tolist(), form, left_out=own)
                assert got[i, c] == pytest.approx(expected, abs=1e-14)


def test_chunks_do_not_change_anything(monkeypatch):
    rng = np.random.default_rng(0)
    scores, bag = rng.normal(size=1000), rng.normal(size=77)
    whole = {f: p_values(scores, bag, p_value=f, random_state=1) for f in ("paper", "plus_one", "smoothed")}
    monkeypatch.setattr(pvalues, "_CHUNK", 13)
    for form, expected in whole.items():
        assert p_values(scores, bag, p_value=form, random_state=1).tolist() == expected.tolist()


def test_nor_do_the_longer_ones_of_large_bags(monkeypatch):
    rng = np.random.default_rng(0)
    scores, bag = rng.normal(size=1000), rng.normal(size=3000)
    whole = p_values(scores, bag)
    monkeypatch.setattr(pvalues, "_CHUNK", 1)
    for most in (17, 1 << 20):
        monkeypatch.setattr(pvalues, "_ROWS", most)
        assert p_values(scores, bag).tolist() == whole.tolist()


def steps(size, *, count=100):
    return (1.0 + np.arange(count) * size).tolist()


@pytest.mark.parametrize(
    ("scores", "told_apart"),
    [
        (steps(2.0**-50), False),  # some last bits of double precision
        (steps(2.0**-28), True),
        (
            np.float32(np.pi) * np.float32(steps(2.0**-22, count=10)),
            False,
        ),  # of single precision
        (np.float32(np.pi) * np.float32(steps(2.0**-16)), True),
        (np.arange(10.0**6, 10**6 + 100), True),  # whole numbers, exact in any precision
        (np.append(steps(2.0**-28), [1e9] + [1e300] * 20), True),  # wild scores do not blur the others
    ],
)
def test_rounding_makes_ties_and_no_more(scores, told_apart):
    p = p_values(scores, scores)
    expected = [np.mean(np.asarray(scores) >= score) for score in scores] if told_apart else [1.0] * len(p)
    assert p.tolist() == expected


def test_ties_that_rounding_has_parted_are_merged():
    values = np.array([0.3, 0.1 + 0.2, 0.7, 0.1, np.nextafter(0.1, 1), np.nextafter(0.1, 0)])
    merged = merge_ties(values, Rounding(2.0**-30, 1.0))
    assert merged.tolist() == [0.3, 0.3, 0.7, *[np.nextafter(0.1, 0)] * 3]


def test_ties_do_not_chain():
    """Each of many confident answers is within rounding of the next, and far from the first."""
    values = np.sort(np.random.default_rng(0).beta(20, 1, 20_000).astype(np.float32)).astype(float)
    merged = merge_ties(values, Rounding(2.0**-18, 1.0))
    assert np.all(values - merged <= 2.0**-17)
    assert np.all(merged <= values)


@given(
    hnp.arrays(float, st.tuples(st.integers(1, 20), st.integers(2, 5)), elements=st.floats(0, 1)), st.data()
)
def test_credibility_and_confidence(p, data):
    n, k = p.shape
    predicted = np.array(data.draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n)))
    credibility, confidence = credibility_and_confidence(p, predicted)
    for i in range(n):
        assert credibility[i] == p[i, predicted[i]]
        assert confidence[i] == 1 - max(p[i, c] for c in range(k) if c != predicted[i])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_unusable_scores_are_refused(bad):
    with pytest.raises(ValueError, match="scores contains NaN or infinity"):
        p_values([0.0, bad], [1.0])
    with pytest.raises(ValueError, match="calibration_scores contains NaN or infinity"):
        p_values([0.0], [1.0, bad])


def test_large_finite_scores_are_not_taken_for_infinite():
    assert p_values([1.7e308, 1.7e308], [1.7e308, 1.7e308]).tolist() == [1.0, 1.0]


def test_empty_and_misshapen_input_is_refused():
    with pytest.raises(ValueError, match="calibration_scores is empty"):
        p_values([1.0], [])
    with pytest.raises(ValueError, match="1 dimension"):
        p_values([[1.0]], [1.0])
    with pytest.raises(ValueError, match="p_value must be one of"):
        p_values([1.0], [1.0], p_value="exact")


def test_a_class_without_scores_is_named():
    with pytest.raises(CalibrationError, match="'worm'"):
        Bags.of(np.zeros((2, 2)), np.array([0, 0]), np.array(["ok", "worm"]))
