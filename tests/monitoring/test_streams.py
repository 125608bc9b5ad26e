"""P-values of a stream."""

import numpy as np
from scipy.stats import kstest

from transcendent.monitoring.streams import PValueStream, to_levels


def naive(codes, levels, calibration_codes, calibration_levels, seed):
    bag, p = list(zip(calibration_codes, calibration_levels, strict=True)), []
    for c, level, u in zip(
        codes, levels, np.random.default_rng([2026, seed]).random(len(codes)), strict=True
    ):
        same = [other for code, other in bag if code == c]
        stranger, equal = sum(o < level for o in same), sum(o == level for o in same)
        p.append((stranger + u * (equal + 1)) / (len(same) + 1))
        bag.append((c, level))
    return np.array(p)


def test_ranks_among_calibration_and_all_earlier_objects():
    rng = np.random.default_rng(0)
    codes, levels = rng.integers(3, size=900), rng.integers(12, size=900)
    stream = PValueStream.of(codes[:100], levels[:100], 3, seed=7)
    found = np.concatenate(
        [stream.update(codes[i : i + n], levels[i : i + n]) for i, n in ((100, 700), (800, 100))]
    )
    assert np.allclose(
        found, naive(codes[100:], levels[100:], codes[:100], levels[:100], 7), rtol=0, atol=1e-15
    )


def test_any_batches_and_a_restart_at_any_position_change_nothing():
    rng = np.random.default_rng(1)
    codes, levels = rng.integers(2, size=700), to_levels(rng.random(700))
    whole = PValueStream.of(codes[:50], levels[:50], 2, seed=0).update(codes[50:], levels[50:])
    fresh = PValueStream.of(codes[:50], levels[:50], 2, seed=0)
    stream, parts = fresh, []
    for rows in np.split(np.arange(50, 700), np.sort(rng.choice(650, 80, replace=False))):
        stream = fresh.resumed(stream.counts.tolist(), sum(map(len, parts)))
        parts.append(stream.update(codes[rows], levels[rows]))
    assert np.array_equal(np.concatenate(parts), whole)


def test_uniform_and_independent_whatever_the_scores():
    """Skewed scores with many ties; few calibration objects, so that a bag that did not grow would show."""
    rng, p = np.random.default_rng(2), []
    for seed in range(300):
        levels = rng.poisson(2, size=130)
        p.append(
            PValueStream.of(np.zeros(30, int), levels[:30], 1, seed).update(np.zeros(100, int), levels[30:])
        )
    stacked = np.array(p)
    assert kstest(stacked.ravel(), "uniform").pvalue > 1e-4
    means = stacked.mean(axis=1)  # of 100 independent uniform values
    assert abs(means.std() / np.sqrt(1 / 1200) - 1) < 4 / np.sqrt(2 * 300)
