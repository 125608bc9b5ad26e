from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from transcendent.baselines import CPReject

X, Y = make_classification(9000, n_informative=5, n_classes=3, flip_y=0.1, random_state=0)


def literal(cp, rows):
    """Object by object, from the calibration scores: p-values, forced prediction, expected errors."""
    calibration = cp.evaluator_.calibration_
    detector = cp.evaluator_.detectors_[0]
    own, scores = detector.answer(rows)
    labels, seconds, credibilities = [], [], []
    for i, score in enumerate(scores):
        p = []
        for c in range(scores.shape[1]):
            bag = [
                calibration.scores[j, c] for j in range(len(calibration.actual)) if calibration.actual[j] == c
            ]
            p.append((sum(alpha >= score[c] for alpha in bag) + 1) / (len(bag) + 1))
        best = [c for c in range(len(p)) if p[c] == max(p)]
        labels.append(int(own[i]) if own[i] in best else best[0])
        seconds.append(sorted(p)[-2])
        credibilities.append(max(p))
    return np.array(labels), seconds, credibilities


def kept_literally(seconds, credibilities, *, max_errors=None, rejection_rate=0.15):
    """The longest run of the most confident objects that is expected to hold at most k errors."""
    n = len(seconds)
    if max_errors is not None:
        return {i for i in range(n) if Fraction(seconds[i]).limit_denominator(1000) * n <= max_errors}
    ranks = sorted((seconds[i], -credibilities[i]) for i in range(n))
    last = ranks[int((1 - rejection_rate) * n) - 1]
    return {i for i in range(n) if (seconds[i], -credibilities[i]) <= last}


@pytest.mark.parametrize("options", [{}, {"rejection_rate": 0.4}, {"max_errors": 3}, {"max_errors": 0}])
@pytest.mark.parametrize("seed", range(3))
def test_against_a_literal_implementation(seed, options):
    forest = RandomForestClassifier(15, random_state=seed)
    cp = CPReject(forest, random_state=seed, **options).fit(X[:300], Y[:300])
    batch = X[300:380]
    labels, seconds, credibilities = literal(cp, batch)
    decisions = cp.decide(batch)
    np.testing.assert_array_equal(decisions.labels, labels)
    np.testing.assert_array_equal(cp.predict(batch), labels)
    np.testing.assert_allclose(decisions.confidence, 1 - np.array(seconds))
    assert set(np.flatnonzero(decisions.accepted)) == kept_literally(seconds, credibilities, **options)


def test_rejects_the_share_asked_for_but_keeps_ties():
    cp = CPReject(LogisticRegression(), rejection_rate=0.15, random_state=0).fit(X[:3000], Y[:3000])
    assert 0.10 <= cp.decide(X[3000:4000]).rejection_rate <= 0.15
    cp.set_params(rejection_rate=1.0)
    assert cp.decide(X[3000:4000]).rejection_rate == 1
    cp.set_params(rejection_rate=0.0)
    assert cp.decide(X[3000:4000]).rejection_rate == 0


@pytest.mark.slow
@pytest.mark.parametrize("max_errors", [20, 100])
def test_errors_stay_within_k_without_drift(max_errors):
    """On average over batches, tested against the binomial bound on a single one."""
    excess = 0
    for seed in range(20):
        rows = np.random.default_rng(seed).permutation(len(Y))
        train, batch = rows[:6000], rows[6000:8000]
        cp = CPReject(LogisticRegression(), max_errors=max_errors, calibration_size=0.5, random_state=seed)
        d = cp.fit(X[train], Y[train]).decide(X[batch])
        wrong = np.sum((d.labels != Y[batch]) & d.accepted)
        excess += wrong > max_errors + 4 * np.sqrt(max_errors)
        assert d.accepted.sum() > 0 or max_errors < 50
    assert excess <= binom.ppf(0.9999, 20, 0.01)


@pytest.mark.parametrize("options", [{"max_errors": -1}, {"rejection_rate": 15}, {"max_errors": np.nan}])
def test_bad_parameters_are_refused(options):
    with pytest.raises(ValueError, match=r"number of errors|rejection_rate must be between"):
        CPReject(LogisticRegression(), **options).fit(X, Y)
