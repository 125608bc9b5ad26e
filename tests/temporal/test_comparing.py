from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.stats import binom, t
from sklearn.metrics import f1_score
from sklearn.svm import LinearSVC

from transcendent import Decisions, InductiveEvaluator, backtest
from transcendent.baselines import ProbabilityThresholds
from transcendent.datasets import make_stream
from transcendent.plots import DifferenceDisplay
from transcendent.temporal import Backtest, RepeatedBacktest, compare

STREAM = make_stream(4000, n_periods=10, concept=0.5, random_state=0)
BOTH = {"ICE": InductiveEvaluator(LinearSVC()), "sigmoid": ProbabilityThresholds(LinearSVC())}
NAMES = ("ICE", "sigmoid")


def run(rejectors=BOTH, seeds=0):
    return backtest(rejectors, STREAM.X, STREAM.y, STREAM.times, train="2020-05", random_state=seeds)


@pytest.fixture(scope="module")
def result():
    return run()


@pytest.fixture(scope="module")
def repeated():
    return run(seeds=[0, 1, 2])


def literally(y, labels, accepted):
    """The metrics of objects, one by one."""
    wrong = labels != y
    return {
        "errors_caught": np.mean(~accepted[wrong]),
        "f1_kept": f1_score(y[accepted], labels[accepted]),
        "error_kept": wrong[accepted].mean(),
        "rejection_rate": np.mean(~accepted),
        "f1_baseline": f1_score(y, labels),
        "error_baseline": wrong.mean(),
        "f1_reviewed": f1_score(y, np.where(accepted, labels, y)),
        "positives_rejected": np.mean(~accepted[y == 1]),
        "detections_rejected": np.mean((~accepted & (labels == 1))[y == 1]),
        "positives_missed": np.mean((accepted & (labels != 1))[y == 1]),
    }


def naive(results, block, n_resamples, random_state):
    """The same draws of months, every sample made of objects; widened for few, and for the seeds."""
    starts = np.random.default_rng(random_state)
    first = results[0]
    n, found = len(first.periods), []
    starts = starts.integers(n, size=(n_resamples, -(-n // block)))
    every = [list(range(n))]
    drawn = [[(start + i) % n for start in each for i in range(block)][:n] for each in starts]
    for periods in every + drawn:
        rows = np.concatenate([np.flatnonzero(first.period == period) for period in periods])
        of_seeds = []
        for result in results:
            one, two = (
                literally(first.y[rows], answer.labels[rows], answer.accepted[rows])
                for answer in (result.answers[name] for name in NAMES)
            )
            of_seeds.append([one[key] - two[key] for key in one])
        found.append(of_seeds)
    point, resampled = np.array(found[0]), np.mean(found[1:], axis=1)
    blocks, seeds = n / block, len(results)
    months = np.abs(np.quantile(resampled, [0.025, 0.975], axis=0) - point.mean(axis=0))
    months *= t.ppf(0.975, blocks - 1) / 1.959963984540054 * np.sqrt(blocks / (blocks - 1))
    of_seeds = t.ppf(0.975, seeds - 1) * point.std(axis=0, ddof=1) / np.sqrt(seeds) if seeds > 1 else 0
    away = np.sqrt(months**2 + of_seeds**2)
    return point.mean(axis=0) - away[0], point.mean(axis=0) + away[1]


@pytest.mark.parametrize("block", [1, 3])
def test_intervals_are_those_of_a_naive_bootstrap(result, repeated, block):
    for given, results in ((result, [result]), (repeated, list(repeated.results.values()))):
        found = compare(given, given, rejectors=NAMES, block=block, n_resamples=12, random_state=3)
        low, high = naive(results, block, 12, 3)
        np.testing.assert_allclose(found.low, low, atol=1e-12)
        np.testing.assert_allclose(found.high, high, atol=1e-12)


def errors(rng, wrong, m=400):
    """Two rejectors that reject nothing; each has its own share of wrong answers in every month."""
    n = m * len(wrong[0])
    period, y = np.repeat(np.arange(len(wrong[0])), m), np.tile([0, 1], n // 2)
    answers = {}
    for name, shares in zip(NAMES, wrong, strict=True):
        chosen = [rng.permutation(m) < round(share * m) for share in shares]
        labels = np.where(np.concatenate(chosen), 1 - y, y)
        answers[name] = Decisions(labels, np.ones(n, bool), rng.random(n), np.zeros(n), np.array([0, 1]))
    periods = tuple(f"{i:02}" for i in range(len(wrong[0])))
    return Backtest(periods, period, np.arange(n), y, answers, np.array([0, 1]), 1, {"period": "month"})


@pytest.mark.parametrize("runs", [60, pytest.param(600, marks=pytest.mark.full)])
@pytest.mark.parametrize(("n", "seeds"), [(4, 1), (6, 1), (12, 1), (30, 1), (12, 2), (12, 5), (30, 3)])
def test_intervals_cover_with_few_months_and_few_seeds(n, seeds, runs):
    """Months differ if there is one seed, else seeds do."""
    rng, covered = np.random.default_rng(n + seeds), 0
    for _ in range(runs):
        months = rng.normal(0, 0.03, n) * (seeds == 1)
        made = {
            seed: errors(rng, (np.full(n, 0.3), 0.3 + months + rng.normal(0, 0.03) * (seeds > 1)))
            for seed in range(seeds)
        }
        given = RepeatedBacktest(made) if seeds > 1 else made[0]
        found = compare(given, given, rejectors=NAMES, n_resamples=300)
        place = found.metrics.index("error_baseline")
        covered += found.low[place] <= 0 <= found.high[place]
    assert covered >= binom.ppf(0.001, runs, 0.93)


def test_other_classes_in_training_change_no_metric(result):
    """One run knew a third class, that nobody was tested on, and comes before the others."""
    other = replace(
        result,
        classes=np.array([-1, 0, 1]),
        answers={
            name: replace(answer, classes=np.array([-1, 0, 1]), p_values=None)
            for name, answer in result.answers.items()
        },
    )
    one, two = (compare(result, each, rejectors=NAMES) for each in (result, other))
    np.testing.assert_array_equal(one.values, two.values)
    np.testing.assert_array_equal(one.low, two.low)


@pytest.mark.parametrize("at", [None, 0.15, 0.4])
def test_values_are_those_of_the_summary(result, at):
    found = compare(result, result, rejectors=NAMES, at=at, n_resamples=10)
    for name, values in zip(NAMES, found.values, strict=True):
        mine = dict(zip(found.metrics, values, strict=True))
        if at is None:
            summary = result.summary()
            place = summary["rejector"].tolist().index(name)
            expected = {key: summary[key][place] for key in mine}
        else:
            pooled = result.at_rejection(name, at)
            expected = {
                "errors_caught": pooled["rejected"]["share_of_errors"],
                "f1_kept": pooled["kept"]["f1"],
                "error_kept": pooled["kept"]["error"],
                "rejection_rate": at,
            }
        for key, value in expected.items():
            assert mine[key] == pytest.approx(value, abs=0.002 if key == "rejection_rate" else 1e-12)
    np.testing.assert_allclose(found.difference, found.values[0] - found.values[1])


def test_a_rejector_does_not_differ_from_itself(repeated):
    found = compare(repeated, repeated, rejectors=("ICE", "ICE"))
    assert not found.difference.any()
    assert not found.low.any()
    assert not found.high.any()


def test_turned_round_the_signs_change(result):
    one = compare(result, result, rejectors=NAMES)
    other = compare(result, result, rejectors=NAMES[::-1])
    np.testing.assert_allclose(one.difference, -other.difference)
    np.testing.assert_allclose(one.low, -other.high, atol=1e-12)


def test_periods_without_objects_change_nothing(result):
    """A sample of nothing but empty periods would have no metrics, and no interval."""
    later = result.period >= 2
    gaps = tuple(f"nothing {i}" for i in range(6))
    gappy = replace(
        result,
        periods=(*result.periods[:2], *gaps, *result.periods[2:]),
        period=result.period + len(gaps) * later,
    )
    whole, other = (compare(one, one, rejectors=NAMES) for one in (result, gappy))
    np.testing.assert_array_equal(whole.low, other.low)
    np.testing.assert_array_equal(whole.high, other.high)


def test_paired_intervals_are_narrower_than_those_apart():
    """Months are good and bad for both alike, so most of what varies is not in the difference."""
    stream = make_stream(6000, n_periods=12, concept=1.0, random_state=1)
    two = {"C=1": InductiveEvaluator(LinearSVC()), "C=.5": InductiveEvaluator(LinearSVC(C=0.5))}
    result = backtest(two, stream.X, stream.y, stream.times, train="2020-05")
    found = compare(result, result, rejectors=("C=1", "C=.5"), at=0.15)
    key = found.metrics.index("error_kept")
    each = [result.intervals(name, "error", "kept")[2] for name in two]
    assert found.high[key] - found.low[key] < min(high - low for low, high in each)


def test_results_of_one_rejector_need_no_names():
    first, second = (run({name: BOTH[name]}) for name in NAMES)
    found = compare(first, second)
    assert found.names == NAMES
    together = run()
    np.testing.assert_array_equal(found.difference, compare(together, together, rejectors=NAMES).difference)


def test_one_name_in_two_results_is_told_apart(result):
    other = run(seeds=1)
    found = compare(result, other, rejectors=("ICE", "ICE"))
    assert found.names == ("ICE (first)", "ICE (second)")
    assert compare(result, result, rejectors=("ICE", "ICE")).names == ("ICE", "ICE")


def test_what_cannot_be_paired_is_refused(result, repeated):
    with pytest.raises(ValueError, match="name a rejector of each result"):
        compare(result, result)
    with pytest.raises(ValueError, match="there is no rejector 'margin'"):
        compare(result, result, rejectors=("ICE", "margin"))
    with pytest.raises(ValueError, match="two names"):
        compare(result, result, rejectors="IC")
    with pytest.raises(ValueError, match="other seeds"):
        compare(repeated, run(seeds=[0, 1, 5]), rejectors=NAMES)
    with pytest.raises(ValueError, match="other seeds"):
        compare(result, repeated, rejectors=NAMES)
    with pytest.raises(ValueError, match="other objects"):
        compare(result, replace(result, y=1 - result.y), rejectors=NAMES)
    with pytest.raises(TypeError, match="results of backtest, not dict"):
        compare({}, result)
    moved = replace(result, period=np.where(result.period == 1, 0, result.period))
    with pytest.raises(ValueError, match="other objects"):
        compare(result, moved, rejectors=NAMES)
    alone = months(result, 2, 1)
    with pytest.raises(ValueError, match="one period has no intervals"):
        compare(alone, alone, rejectors=NAMES)
    with pytest.raises(ValueError, match="n_resamples must be"):
        compare(result, result, rejectors=NAMES, n_resamples=1)
    for block in (0, 5, 1.5, True):
        with pytest.raises(ValueError, match="block must be a number of periods from 1 to"):
            compare(result, result, rejectors=NAMES, block=block)
    with pytest.raises(ValueError, match="at must"):
        compare(result, result, rejectors=NAMES, at=15)


def test_it_is_shown_and_drawn(result, repeated):
    found = compare(repeated, repeated, rejectors=NAMES, at=0.15)
    assert "ICE minus sigmoid with 15% of each period rejected" in repr(found)
    assert "3 seeds; 95% intervals, blocks of 1" in repr(found)
    assert "<table" in found._repr_html_()
    assert found.to_frame()["metric"].tolist() == list(found.metrics)
    assert "toprule" in found.to_latex()
    display = found.plot()
    assert display.difference.shape == (1, 4)
    other = compare(result, result, rejectors=NAMES)
    both = DifferenceDisplay.from_comparisons({"all seeds": found, "one seed": other}).plot()
    assert len(both.axes_) == 4
    np.testing.assert_array_equal(both.low[1], other.low[[0, 1, 2, 6]])
    for none in ({}, [found], found):
        with pytest.raises(ValueError, match="a dict of comparisons by name"):
            DifferenceDisplay.from_comparisons(none)
    plt.close("all")


def months(result, first, n):
    """Some months of a result."""
    rows = np.flatnonzero((result.period >= first) & (result.period < first + n))
    return replace(
        result,
        periods=result.periods[first : first + n],
        period=result.period[rows] - first,
        rows=result.rows[rows],
        y=result.y[rows],
        answers={name: answer[rows] for name, answer in result.answers.items()},
    )


def test_intervals_of_some_months_cover_what_holds_for_all():
    stream = make_stream(42_000, n_periods=420, random_state=0)
    result = backtest(BOTH, stream.X, stream.y, stream.times, train="2021-09", verbose=False)
    n, key, covered = 20, "errors_caught", []
    true = compare(result, result, rejectors=NAMES, at=0.2)
    true = true.difference[true.metrics.index(key)]
    for first in range(0, 400, n):
        part = months(result, first, n)
        found = compare(part, part, rejectors=NAMES, at=0.2, n_resamples=500, random_state=first)
        place = found.metrics.index(key)
        covered.append(found.low[place] <= true <= found.high[place])
    assert sum(covered) >= binom.ppf(0.001, len(covered), 0.93)


def test_repeated_runs_are_kept_in_order(repeated):
    turned = RepeatedBacktest(dict(reversed(repeated.results.items())))
    with pytest.raises(ValueError, match="other seeds"):
        compare(repeated, turned, rejectors=NAMES)
