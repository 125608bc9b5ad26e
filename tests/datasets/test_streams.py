"""Each dial of a stream moves what it says, and leaves the rest alone."""

import numpy as np
import pytest
from scipy.stats import binomtest, ks_2samp, kstest, norm

from transcendent.datasets import make_stream

SHARE = 0.3
SIGNAL = 0.98
PATTERNS = ["gradual", "sudden", "recurring", "new_class"]
FARTHEST_Z = 4.5
LEAST_P = 1e-5


def stream(n_objects=60_000, **arguments):
    return make_stream(n_objects, **{"random_state": 0, "positive_share": SHARE, **arguments})


def months(dataset):
    elapsed = dataset.times.astype("datetime64[M]") - np.datetime64("2020-01")
    return elapsed.astype(int)


def month(dataset, number):
    return dataset[months(dataset) == number]


def positive_probability(X, angle=0.0, share=SHARE):
    """P(y = 1 | x) by the formula of the docstring, for another class share by Bayes' rule."""
    signal = X[:, 0] * np.cos(angle) + X[:, 1] * np.sin(angle)
    start = norm.cdf((SIGNAL * signal - norm.ppf(1 - SHARE)) / np.sqrt(1 - SIGNAL**2))
    positive, negative = start * share / SHARE, (1 - start) * (1 - share) / (1 - SHARE)
    return positive / (positive + negative)


def largest_z(dataset, probability):
    """How far labels are from the probabilities, overall and along any of the features."""
    directions = np.column_stack([np.ones(len(dataset)), dataset.X])
    off = directions.T @ (dataset.y - probability)
    return np.abs(off / np.sqrt((directions**2).T @ (probability * (1 - probability)))).max()


def same_features(some, others):
    return min(ks_2samp(some[:, i], others[:, i]).pvalue for i in range(some.shape[1])) > LEAST_P


def standard_normal(X):
    """Each feature, the products of any two, and two sums."""
    products = (X.T @ X / len(X) - np.eye(X.shape[1])) * np.sqrt(len(X) / 2)
    lines = [*X.T, (X[:, 0] + X[:, 1]) / np.sqrt(2), (X[:, 0] - X[:, 1]) / np.sqrt(2)]
    return np.abs(products).max() < FARTHEST_Z and min(kstest(x, "norm").pvalue for x in lines) > LEAST_P


def has_share(y, share):
    return binomtest(int(np.sum(y)), len(y), share).pvalue > LEAST_P


@pytest.mark.parametrize("pattern", PATTERNS[:3])
def test_a_stream_without_drift_is_stationary(pattern):
    objects = stream(pattern=pattern)
    for number in range(12):
        part = month(objects, number)
        assert standard_normal(part.X)
        assert has_share(part.y, SHARE)
        assert largest_z(part, positive_probability(part.X)) < FARTHEST_Z


@pytest.mark.slow
def test_labels_follow_the_formula():
    """Many objects, so that a slope or a quantile off by a hundredth shows."""
    objects = stream(1_000_000, n_periods=2, n_features=4)
    assert largest_z(objects, positive_probability(objects.X)) < FARTHEST_Z
    assert standard_normal(objects.X)


def test_covariate_moves_one_feature_and_nothing_else():
    still, moved = stream(), stream(covariate=0.8)
    others = [0, 1, *range(3, 10)]
    assert np.array_equal(moved.y, still.y)
    assert np.array_equal(moved.X[:, others], still.X[:, others])
    assert np.allclose(moved.X[:, 2] - still.X[:, 2], 3 * 0.8 * months(moved) / 11)


def test_covariate_leaves_the_rule():
    last = month(stream(covariate=1), 11)
    assert not standard_normal(last.X)
    assert has_share(last.y, SHARE)
    assert largest_z(last, positive_probability(last.X)) < FARTHEST_Z


def test_prior_moves_the_class_shares_and_nothing_within_classes():
    objects = stream(prior=1)
    first, last = month(objects, 0), month(objects, 11)
    assert has_share(first.y, SHARE)
    assert not has_share(last.y, SHARE)
    assert has_share(last.y, 3 / 3.7)
    for label in (0, 1):
        assert same_features(first.X[first.y == label], last.X[last.y == label])
    assert not same_features(first.X, last.X)
    assert largest_z(last, positive_probability(last.X)) > FARTHEST_Z
    assert largest_z(last, positive_probability(last.X, share=3 / 3.7)) < FARTHEST_Z


def test_concept_turns_the_rule_and_nothing_else():
    still, turned = stream(), stream(concept=1)
    assert np.array_equal(turned.y, still.y)
    assert np.array_equal(turned.X[:, 2:], still.X[:, 2:])
    for number in (0, 5, 11):
        part = month(turned, number)
        assert standard_normal(part.X)
        assert has_share(part.y, SHARE)
        assert largest_z(part, positive_probability(part.X, number / 11 * np.pi / 2)) < FARTHEST_Z
    assert largest_z(part, positive_probability(part.X)) > FARTHEST_Z
    assert same_features(part.X[part.y == 0][:, [0]], part.X[part.y == 1][:, [0]])


def test_dials_act_together_as_documented():
    last = month(stream(covariate=0.5, prior=0.5, concept=0.5), 11)
    odds = SHARE / (1 - SHARE) * 10**0.5
    share = odds / (1 + odds)
    assert has_share(last.y, share)
    assert largest_z(last, positive_probability(last.X, np.pi / 4, share)) < FARTHEST_Z
    assert abs(last.X[:, 2].mean() - 1.5) < FARTHEST_Z / np.sqrt(len(last))


def shifts(pattern, n_periods=12):
    arguments = {"n_objects": 1200, "n_periods": n_periods, "pattern": pattern}
    still, moved = stream(**arguments), stream(covariate=1, **arguments)
    old = still.y < 2
    return [
        (moved.X[old, 2] - still.X[old, 2])[months(still)[old] == number].mean() / 3
        for number in range(n_periods)
    ]


@pytest.mark.parametrize(
    ("pattern", "strengths"),
    [
        ("gradual", np.arange(12) / 11),
        ("sudden", [0] * 6 + [1] * 6),
        ("recurring", [0, 0.25, 0.75, 1, 0.75, 0.25] * 2),
        ("new_class", [0] * 6 + [1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1]),
    ],
)
def test_patterns(pattern, strengths):
    assert np.allclose(shifts(pattern), strengths)


@pytest.mark.parametrize(
    ("pattern", "strengths"),
    [
        ("gradual", [0, 0.5, 1]),
        ("sudden", [0, 1, 1]),
        ("recurring", [0, 0.25, 0.75]),
        ("new_class", [0, 0.5, 1]),
    ],
)
def test_patterns_of_few_periods(pattern, strengths):
    assert np.allclose(shifts(pattern, 3), strengths)


def test_a_new_class_appears_in_the_middle_and_grows():
    objects = stream(pattern="new_class")
    for number in range(12):
        part = month(objects, number)
        assert has_share(part.y == 2, max(0, number - 5) / 6 * 0.3)
        old = part[part.y < 2]
        assert standard_normal(old.X)
        assert has_share(old.y, SHARE)
        assert largest_z(old, positive_probability(old.X)) < FARTHEST_Z
    new = part.X[part.y == 2]
    assert standard_normal(new - 4 * (np.arange(10) == 3))


@pytest.mark.parametrize("pattern", PATTERNS[:3])
def test_the_other_patterns_have_two_classes(pattern):
    assert set(stream(1000, pattern=pattern, concept=1, prior=1, covariate=1).y) == {0, 1}


def test_times_lie_in_their_months():
    objects = stream(1003, n_periods=14, start="2019-11")
    assert len(objects) == len(objects.times) == 1003
    assert objects.X.shape == (1003, 10)
    assert np.all(objects.times[1:] >= objects.times[:-1])
    names, counts = np.unique(objects.times.astype("datetime64[M]"), return_counts=True)
    assert names.tolist() == np.arange("2019-11", "2021-01", dtype="datetime64[M]").tolist()
    assert set(counts) == {71, 72}


@pytest.mark.parametrize("share", [0.02, 0.5, 0.9])
def test_other_class_shares(share):
    assert has_share(stream(positive_share=share).y, share)


def test_streams_are_reproducible():
    one, same, other = stream(500), stream(500), stream(500, random_state=1)
    assert np.array_equal(one.X, same.X)
    assert np.array_equal(one.y, same.y)
    assert np.array_equal(one.times, same.times)
    assert not np.array_equal(one.X, other.X)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_objects": 11}, r"n_objects must be at least n_periods \(12\), got 11"),
        ({"n_periods": 1}, "n_periods must be at least 2, got 1"),
        ({"n_features": 3}, "n_features must be at least 4, got 3"),
        ({"positive_share": 0}, "positive_share must be strictly between 0 and 1"),
        ({"positive_share": 1.0}, "positive_share must be strictly between"),
        ({"pattern": "cyclic"}, "pattern must be one of gradual, sudden, recurring, new_class, got 'cyclic'"),
        ({"covariate": 1.1}, "covariate must be from 0"),
        ({"prior": -0.1}, "prior must be from 0"),
        ({"concept": float("nan")}, "concept must be from 0"),
        ({"start": "NaT"}, "start must be a month such as 2020-01, got 'NaT'"),
        ({"start": "soon"}, "start must be a month such as 2020-01, got 'soon'"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        stream(**change)
