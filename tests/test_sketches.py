import pickle
import sys

import numpy as np
import pytest
from scipy.stats import binom

from transcendent.errors import CalibrationError, MissingExtraError
from transcendent.pvalues import p_values
from transcendent.sketches import ScoreSketch

K = 200  # coarse, so that errors are there to be seen


def draw(rng, name, n):
    if name == "normal":
        return rng.normal(size=n)
    if name == "heavy tail":
        return rng.standard_cauchy(n)
    if name == "ascending":
        return np.arange(n, dtype=float)
    if name == "ties":
        return rng.integers(0, 7, n).astype(float)
    return np.where(rng.random(n) < 0.9, 0.5, rng.random(n))  # one value has nearly all


DISTRIBUTIONS = ["normal", "heavy tail", "ascending", "ties", "one value"]


def sketch_of(bag):
    return ScoreSketch([0], k=K).update(bag[:, None], np.zeros(len(bag)))


def missed(sketch, bag, probes):
    """How many exact p-values are outside their bounds."""
    low, high = (bound[:, 0] for bound in sketch.p_value_bounds(probes[:, None]))
    exact = p_values(probes, bag)
    assert np.all((low >= 0) & (low <= high) & (high <= 1))
    assert np.all(high - low <= 2 * sketch.rank_error[0] + 1e-12)
    return int(np.sum((exact < low) | (exact > high)))


def allowed(failures, trials):
    """Whether so many failures can be, if each has a probability of at most 1%."""
    return binom.sf(failures - 1, trials, 0.01) > 1e-6


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_bounds_hold_as_often_as_promised_at_a_million_scores(name):
    """Every sketch is asked at many ranks at once, and fails if it fails at any."""
    rng = np.random.default_rng(0)
    bag = draw(rng, name, 1_000_000)
    probes = np.concatenate([rng.choice(bag, 300), draw(rng, name, 100), [bag.min() - 1, bag.max() + 1]])
    assert allowed(sum(missed(sketch_of(bag), bag, probes) > 0 for _ in range(10)), 10)


def test_one_probe_of_many_sketches():
    rng = np.random.default_rng(1)
    failures = 0
    for _ in range(1000):
        bag = rng.normal(size=20_000)
        failures += missed(sketch_of(bag), bag, rng.normal(size=1))
    assert allowed(failures, 1000)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_merged_sketches_keep_their_promise(name):
    rng = np.random.default_rng(2)
    parts = [draw(rng, name, n) for n in (1, 50, 100_000, 200_000)]
    bag, probes, failures = np.concatenate(parts), rng.choice(np.concatenate(parts), 300), 0
    for _ in range(10):
        merged = ScoreSketch([0], k=K)
        for part in parts:
            merged.merge(pickle.loads(pickle.dumps(sketch_of(part))))  # as workers would send them
        assert merged.counts.tolist() == [len(bag)]
        failures += missed(merged, bag, probes) > 0
    assert allowed(failures, 10)


def test_few_scores_are_exact_and_ends_are_known():
    rng = np.random.default_rng(3)
    bag, y = rng.integers(0, 20, 150).astype(float), np.arange(150) % 2
    probes = np.arange(-1.0, 22.0)
    small = ScoreSketch([0, 1], k=K).update(np.column_stack([bag, -bag]), y)
    low, high = small.p_value_bounds(np.column_stack([probes, -probes]))
    assert small.rank_error.tolist() == [0, 0]
    assert low.tolist() == high.tolist()
    assert low[:, 0].tolist() == p_values(probes, bag[y == 0]).tolist()
    assert low[:, 1].tolist() == p_values(-probes, -bag[y == 1]).tolist()
    large = sketch_of(rng.random(100_000))
    assert large.rank_error == pytest.approx(2.296 / K**0.9723, rel=1e-3)
    low, high = large.p_value_bounds([[-1.0], [2.0]])
    assert low.tolist() == high.tolist() == [[1], [0]]


def test_ranks_are_those_of_the_library():
    sketch = sketch_of(np.random.default_rng(4).random(50_000).round(3))
    probes = np.linspace(0.05, 0.95, 50).round(3)
    low, high = sketch.p_value_bounds(probes[:, None])
    (library,) = sketch._sketches
    assert (low[:, 0] + high[:, 0]) / 2 == pytest.approx([1 - library.get_rank(probe) for probe in probes])


def test_bad_input_is_refused():
    sketch = ScoreSketch(["ham", "spam"])
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="NaN or infinity"):
            sketch.update([[bad, 0.0]], ["ham"])
    with pytest.raises(ValueError, match="differ in length: 1, 2"):
        sketch.update([[0.0, 0.0]], ["ham", "spam"])
    with pytest.raises(ValueError, match="2 columns, got 3"):
        sketch.update(np.zeros((1, 3)), ["ham"])
    with pytest.raises(ValueError, match="outside the classes"):
        sketch.update(np.zeros((1, 2)), ["eggs"])
    with pytest.raises(ValueError, match="different classes"):
        sketch.merge(ScoreSketch(["ham", "eggs"]))
    sketch.update([[0.0, 0.0]], ["ham"])
    with pytest.raises(CalibrationError, match="'spam'"):
        sketch.p_value_bounds([[0.0, 0.0]])


def test_without_the_library_the_line_to_install_it_is_shown(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasketches", None)
    with pytest.raises(MissingExtraError, match=r"transcendent\[sketch\]"):
        ScoreSketch([0, 1])
