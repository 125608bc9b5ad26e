from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from transcendent.metrics import errors_caught, risk_coverage
from transcendent.metrics.ranking import kept_shares

ranked = st.lists(st.tuples(st.booleans(), st.integers(0, 4)), min_size=1, max_size=6)


def naive(wrong, score):
    """Compute the curves by their definitions, as the mean over all orders that break ties."""
    n = len(wrong)
    aurc, augrc, curves = [], [], []
    for order in permutations(range(n)):
        if any(score[a] < score[b] for a, b in pairwise(order)):
            continue
        errors = [sum(wrong[i] for i in order[:k]) for k in range(n + 1)]
        curves.append([errors[k] / k for k in range(1, n + 1)])
        aurc.append(np.mean(curves[-1]))
        augrc.append(sum((errors[k - 1] + errors[k]) / 2 / n for k in range(1, n + 1)) / n)
    return np.mean(curves, axis=0), np.mean(aurc), np.mean(augrc)


@given(ranked)
def test_curve_and_areas_against_their_definitions(objects):
    wrong, score = zip(*objects, strict=True)
    risk, aurc, augrc = naive(wrong, score)
    curve = risk_coverage(wrong, score)
    np.testing.assert_allclose(curve.risk, risk)
    np.testing.assert_allclose(curve.coverage, np.arange(1, len(wrong) + 1) / len(wrong))
    assert curve.aurc == pytest.approx(aurc)
    assert curve.augrc == pytest.approx(augrc)


@given(ranked)
def test_excess_is_over_the_best_ranking_there_is(objects):
    wrong, score = zip(*objects, strict=True)
    best = risk_coverage(wrong, 1.0 - np.array(wrong)).aurc
    assert risk_coverage(wrong, score).excess_aurc == pytest.approx(risk_coverage(wrong, score).aurc - best)
    assert risk_coverage(wrong, 1.0 - np.array(wrong)).excess_aurc == pytest.approx(0)


def test_augrc_follows_from_auroc_and_accuracy():
    rng = np.random.default_rng(0)
    wrong, score = rng.random(5000) < 0.2, rng.integers(50, size=5000) / 50
    score = score - 0.2 * wrong
    auroc, error = roc_auc_score(~wrong, score), wrong.mean()
    expected = (1 - auroc) * error * (1 - error) + error**2 / 2
    assert risk_coverage(wrong, score).augrc == pytest.approx(expected)


@given(ranked, st.floats(0, 1))
def test_errors_caught_is_what_the_curve_says(objects, rate):
    wrong, score = (np.array(column) for column in zip(*objects, strict=True))
    caught = errors_caught(wrong, score, rejection_rate=rate)
    if not wrong.any():
        assert np.isnan(caught)
        return
    curve = risk_coverage(wrong, score)
    cumulative = np.append(0, curve.risk * np.arange(1, len(wrong) + 1))
    kept = np.interp((1 - rate) * len(wrong), np.arange(len(wrong) + 1), cumulative)
    assert caught == pytest.approx(1 - kept / wrong.sum())
    assert errors_caught(wrong, score, rejection_rate=1) == 1
    assert errors_caught(wrong, np.zeros(len(wrong)), rejection_rate=rate) == pytest.approx(rate)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(0, 6))
def test_kept_shares_are_chances_of_being_kept(score, n_rejected):
    n, n_rejected = len(score), min(n_rejected, len(score))
    orders = [o for o in permutations(range(n)) if all(score[a] >= score[b] for a, b in pairwise(o))]
    chances = [np.mean([i in order[: n - n_rejected] for order in orders]) for i in range(n)]
    np.testing.assert_allclose(kept_shares(np.array(score, dtype=float), n_rejected / n), chances, atol=1e-12)


def test_empty_is_undefined_and_bad_input_refused():
    assert np.isnan(risk_coverage([], []).aurc)
    with pytest.raises(ValueError, match="NaN"):
        risk_coverage([True], [np.nan])
    with pytest.raises(ValueError, match="differ in shape"):
        risk_coverage([True, False], [1.0])
    with pytest.raises(ValueError, match="true or false"):
        risk_coverage([3, 0], [1.0, 0.5])
    with pytest.raises(ValueError, match="rejection_rate must be between 0 and 1"):
        errors_caught([True], [1.0], rejection_rate=15)
