import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from transcendent.errors import TemporalBiasError, TemporalBiasWarning
from transcendent.temporal import cut_periods, downsample, find_biases, time_split
from transcendent.temporal.bias import report_biases

MONTHS = np.repeat(np.arange("2023-01", "2025-01", dtype="datetime64[M]"), 200)
N = len(MONTHS)
X = np.random.default_rng(0).normal(size=(N, 4))
Y = np.tile([0] * 9 + [1], N // 10)
SPLIT = time_split(MONTHS, train="2024")


def names(*, rows=X, y=Y, split=SPLIT, **options):
    return [bias.name for bias in find_biases(rows, y, split, **options)]


def test_a_sound_split_is_silent():
    assert names(class_ratio={1: 0.1}) == []
    report_biases(find_biases(X, Y, SPLIT))


def test_training_after_test():
    mixed = time_split(MONTHS, train=np.random.default_rng(0).random(N) < 0.2)
    assert names(split=mixed) == ["training_after_test"]
    one_row_late = np.arange(N) < N // 2
    one_row_late[-1] = True
    assert names(split=time_split(MONTHS, train=one_row_late)) == ["training_after_test"]
    with pytest.raises(
        TemporalBiasError, match=r"training_after_test: 1 of .* up to 2024-12, testing begins"
    ):
        report_biases(find_biases(X, Y, time_split(MONTHS, train=one_row_late)))


def test_a_training_window_that_touches_the_test_is_fine():
    same_month = np.arange(N) < N // 2 + 50
    assert names(split=time_split(MONTHS, train=same_month)) == []


@pytest.mark.parametrize(("malware_from", "refused"), [("2023-08", False), ("2023-10", True)])
def test_classes_from_different_windows(malware_from, refused):
    y = Y.copy()
    y[(np.datetime64("2024-01") > MONTHS)] = 0
    late = (np.datetime64(malware_from) <= MONTHS) & (np.datetime64("2024-01") > MONTHS)
    y[late & (np.arange(N) % 5 == 0)] = 1
    if refused:  # benign only from before
        y[late] = 1
    (bias,) = find_biases(X, y, SPLIT)
    assert (bias.name, bias.refuses) == ("class_windows", refused)
    assert "training" in bias.message


def test_classes_from_different_windows_in_the_test():
    y = Y.copy()
    y[(np.datetime64("2024-01") <= MONTHS) & (np.datetime64("2024-09") > MONTHS)] = 0
    assert names(y=y) == ["class_windows", "few_positives"]


def test_a_class_ratio_that_is_not_the_deployments():
    assert names(class_ratio={1: 0.2}) == ["class_ratio"]
    assert names(class_ratio={1: 0.05}) == ["class_ratio"]
    assert names(class_ratio={1: 0.11}) == []
    assert names() == []
    assert names(y=1 - Y, class_ratio={0: 0.05}) == names(y=1 - Y, class_ratio={1: 0.95}) == ["class_ratio"]
    with pytest.raises(ValueError, match="'spam', which is not one of"):
        names(class_ratio={"spam": 0.2})
    with pytest.raises(ValueError, match="shares between 0 and 1"):
        names(class_ratio={1: 90})
    with pytest.raises(TypeError, match="a dict such as"):
        names(class_ratio=0.1)


@pytest.mark.slow
def test_chance_among_few_positives_is_no_different_window():
    rng = np.random.default_rng(0)
    for _ in range(100):
        y = np.zeros(N, dtype=int)
        y[rng.choice(N // 2, 3, replace=False)] = 1
        assert "class_windows" not in names(y=y, pos_label=1)


def test_texts_with_other_time_zones_are_compared_as_moments():
    times = ["2024-06-30T18:00:00-05:00", "2024-07-01T08:00:00+05:00"] * 100
    split = time_split(times, train="2024-07-01T00:00:00+00:00", period="day")
    assert names(rows=X[:200], y=np.arange(200) % 4 // 2, split=split) == []


@pytest.mark.parametrize(
    "form", ["dense", "sparse", "integers", "pandas", "polars", "texts", "lists", "dicts", "cubes", "cells"]
)
def test_duplicates_across_the_split(form):
    polars = pytest.importorskip("polars")
    forms = {
        "dense": np.asarray,
        "sparse": sp.csr_matrix,
        "integers": lambda rows: np.rint(rows * 1e6).astype(int),
        "pandas": pd.DataFrame,
        "polars": polars.DataFrame,
        "texts": lambda rows: [" ".join(map(str, row)) for row in rows],
        "lists": lambda rows: rows.tolist(),
        "dicts": lambda rows: [dict(enumerate(row)) for row in rows.tolist()],
        "cubes": lambda rows: rows.reshape(-1, 2, 2),
        "cells": lambda rows: pd.DataFrame({"cell": rows.tolist()}),
    }
    assert names(rows=forms[form](X)) == []
    repeated = X.copy()
    repeated[-100:] = X[:100]
    (bias,) = find_biases(forms[form](repeated), Y, SPLIT)
    assert bias.name == "duplicates"
    assert "100 of 2,400 test rows (4.2%)" in bias.message


def test_duplicates_within_the_test_alone_are_no_matter():
    repeated = X.copy()
    repeated[-100:] = X[-1]
    assert names(rows=repeated) == []


def test_duplicates_with_missing_values_are_found():
    repeated = X.copy()
    repeated[:, 0] = np.nan
    repeated[-100:] = repeated[:100]
    assert names(rows=repeated) == ["duplicates"]


def test_too_few_positives_in_a_period():
    y = Y.copy()
    march = np.flatnonzero(np.datetime64("2024-03") == MONTHS)
    y[march] = 0
    y[march[:9]] = 1
    (bias,) = find_biases(X, y, SPLIT)
    assert bias.name == "few_positives"
    assert "2024-03 (9)" in bias.message
    y[march[9]] = 1
    assert names(y=y) == []


def test_an_empty_period_has_nothing_to_be_few_of():
    rows = np.datetime64("2024-03") != MONTHS
    split = time_split(MONTHS[rows], train="2024")
    assert names(rows=X[rows], y=Y[rows], split=split) == []


def test_several_classes_are_checked_without_a_positive_one():
    y = np.arange(N) % 7
    assert names(y=y) == []
    assert names(y=y, pos_label=3) == []
    few = np.flatnonzero(np.datetime64("2024-05") != MONTHS)
    few = np.sort(np.append(few, np.flatnonzero(np.datetime64("2024-05") == MONTHS)[:9]))
    split = time_split(MONTHS[few], train="2024")
    (bias,) = find_biases(X[few], y[few], split)
    assert "fewer than 10 objects in 2024-05 (9)" in bias.message


def test_what_is_allowed_is_passed_over():
    mixed = time_split(MONTHS, train=np.random.default_rng(0).random(N) < 0.2)
    biases = find_biases(X, Y, mixed, class_ratio={1: 0.5})
    with pytest.warns(TemporalBiasWarning, match="class_ratio: 10"):
        report_biases(biases, allow=["training_after_test"])
    report_biases(biases, allow=["training_after_test", "class_ratio"])
    report_biases([bias for bias in biases if bias.refuses], allow="training_after_test")
    with pytest.raises(ValueError, match="no biases named"):
        report_biases(biases, allow=["class_ratios"])


@given(st.lists(st.integers(0, 2), min_size=4, max_size=60), st.floats(0.05, 0.95), st.integers(0, 5))
def test_downsampling_reaches_the_share_and_drops_no_more_than_it_must(labels, share, seed):
    y = np.array([*labels, 1, 0])
    rows = downsample(y, {1: share}, random_state=seed)
    assert np.array_equal(rows, np.unique(rows))
    ours, others = np.sum(y[rows] == 1), np.sum(y[rows] != 1)
    total, rest = np.sum(y == 1), np.sum(y != 1)
    assert ours == total or others == rest
    odds = share / (1 - share)
    if ours < total:
        assert ours == max(1, round(others * odds))
    elif others < rest:
        assert others == max(1, round(ours / odds))
    else:  # nothing to drop: half an object off at most
        assert abs(ours - others * odds) <= 0.5 or abs(others - ours / odds) <= 0.5 or min(ours, others) == 1


def test_downsampling_within_groups_is_seeded():
    rows = downsample(Y, {1: 0.05}, groups=MONTHS, random_state=3)
    for month in np.unique(MONTHS):
        assert np.mean(Y[rows][MONTHS[rows] == month]) == pytest.approx(0.05, abs=0.005)
    assert np.array_equal(rows, downsample(Y, {1: 0.05}, groups=MONTHS, random_state=3))
    assert not np.array_equal(rows, downsample(Y, {1: 0.05}, groups=MONTHS, random_state=4))


def test_downsampling_takes_periods_and_leaves_groups_of_one_kind():
    periods = cut_periods(MONTHS, "month")
    by_array = downsample(Y, {1: 0.05}, groups=MONTHS, random_state=3)
    np.testing.assert_array_equal(downsample(Y, {1: 0.05}, groups=periods, random_state=3), by_array)
    y = np.where(np.datetime64("2024-03") == MONTHS, 0, Y)
    assert np.sum(MONTHS[downsample(y, {1: 0.5}, groups=periods)] == np.datetime64("2024-03")) == 200
    with pytest.raises(ValueError, match="one entry per row"):
        downsample(Y, {1: 0.05}, groups=[1])


@pytest.mark.parametrize("ratio", [{1: 0.0}, {1: 1.0}, {0: 0.5, 1: 0.5}, {7: 0.5}])
def test_downsampling_refuses_what_cannot_be(ratio):
    with pytest.raises(ValueError, match=r"share|one class|not one of"):
        downsample(Y, ratio)
