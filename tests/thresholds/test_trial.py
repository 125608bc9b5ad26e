import numpy as np
import pytest

from transcendent import GridSearch, QuartileSearch, RandomSearch
from transcendent.thresholds.base import Incumbent
from transcendent.thresholds.counts import JointCounts


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 500)
    labels = np.where(rng.random(500) < 0.8, y, 1 - y)
    return y, labels, np.where(y == labels, rng.random(500) ** 0.5, rng.random(500))


def test_random_search_stops_without_an_update(problem):
    patient = RandomSearch(trials=50_000, patience=None, random_state=0).find(*problem)
    hasty = RandomSearch(trials=50_000, patience=200, random_state=0).find(*problem)
    assert patient.trials == 50_001
    assert hasty.trials < 10_000
    assert hasty.value <= patient.value


@pytest.mark.parametrize("patience", [None, 1, 7, 100])
def test_the_incumbent_is_that_of_the_papers_loop(problem, patience):
    y, labels, credibility = problem
    search = RandomSearch(trials=3000)
    instance = search._problem(y, labels, credibility[:, None], np.arange(2))
    thresholds = np.random.default_rng(1).random((3000, 1, 2))
    goodness, kept, _ = instance.evaluate(thresholds)
    best, best_kept, choice, since, trials = -np.inf, -1, None, 0, 0
    for i in range(3000):
        trials += 1
        if goodness[i] > best or (goodness[i] == best and kept[i] > best_kept and np.isfinite(best)):
            best, best_kept, choice, since = goodness[i], kept[i], i, 0
        else:
            since += 1
        if patience is not None and since == patience:
            break
    incumbent = Incumbent()
    for start in range(0, 3000, 333):
        if not incumbent.consider(instance, thresholds[start : start + 333], patience):
            break
    assert incumbent.goodness == best
    assert incumbent.trials == trials
    if choice is not None:
        assert incumbent.thresholds.tolist() == thresholds[choice].tolist()


def test_a_grid_that_would_never_end_is_refused(problem):
    with pytest.raises(ValueError, match=r"101\^2 trials"):
        GridSearch(max_trials=10_000).find(*problem)


def test_joint_counts_agree_with_counting():
    rng = np.random.default_rng(2)
    y, labels = rng.integers(0, 3, (2, 300))
    values = rng.integers(0, 11, (300, 2)) / 10
    thresholds = rng.integers(0, 11, (50, 2, 3)) / 10
    tally = JointCounts(labels, y, values, 3).kept(thresholds)
    for t in range(50):
        kept = (values >= thresholds[t][:, labels].T).all(axis=1)
        assert tally.actual[t].tolist() == np.bincount(y[kept], minlength=3).tolist()
        assert tally.predicted[t].tolist() == np.bincount(labels[kept], minlength=3).tolist()
        assert tally.correct[t].tolist() == np.bincount(y[kept & (y == labels)], minlength=3).tolist()


@pytest.mark.parametrize("statistic", ["q1", "median", "q3", "mean"])
@pytest.mark.parametrize("of", ["correct", "incorrect", "all"])
def test_quartiles_are_those_of_the_group(problem, statistic, of):
    y, labels, credibility = problem
    group = {"correct": y == labels, "incorrect": y != labels, "all": y >= 0}[of]
    found = QuartileSearch(statistic, of=of).find(y, labels, credibility)
    for c in range(2):
        members = credibility[group & (labels == c)]
        expected = (
            members.mean()
            if statistic == "mean"
            else np.quantile(members, {"q1": 0.25, "median": 0.5, "q3": 0.75}[statistic])
        )
        assert found.credibility_thresholds[c] == pytest.approx(expected)


def test_no_incorrect_answer_means_no_rejection():
    y = [0, 0, 1, 1]
    found = QuartileSearch(of="incorrect").find(y, y, [0.1, 0.2, 0.3, 0.4])
    assert found.credibility_thresholds.tolist() == [0, 0]
    with pytest.raises(ValueError, match="statistic must be one of"):
        QuartileSearch("q2").find(y, y, [0.1, 0.2, 0.3, 0.4])
