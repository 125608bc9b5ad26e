import os

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import NearestCentroid
from sklearn.svm import LinearSVC

from transcendent import ExactSearch, InductiveEvaluator
from transcendent.baselines import ProbabilityThresholds
from transcendent.datasets import load_apigraph
from transcendent.errors import CalibrationError, MeasureError

X, Y = make_classification(4000, n_informative=8, flip_y=0.1, weights=[0.8], random_state=0)


def test_thresholds_are_those_of_the_search_on_probabilities():
    rejector = ProbabilityThresholds(LogisticRegression(), random_state=3).fit(X[:2000], Y[:2000])
    decisions = rejector.decide(X[2000:])
    p = rejector.estimator_.predict_proba(X[2000:])
    assert decisions.p_values is None
    np.testing.assert_array_equal(decisions.credibility, p.max(axis=1))
    thresholds = rejector.result_.credibility_thresholds
    np.testing.assert_array_equal(decisions.accepted, p.max(axis=1) >= thresholds[p.argmax(axis=1)])
    assert rejector.result_.certified


def test_splits_rows_as_the_inductive_evaluator_does():
    ice = InductiveEvaluator(LogisticRegression(), random_state=3).fit(X, Y)
    ours = ProbabilityThresholds(LogisticRegression(), random_state=3).fit(X, Y)
    np.testing.assert_array_equal(ice.estimator_.coef_, ours.estimator_.coef_)
    recent = ProbabilityThresholds(LogisticRegression()).fit(X, Y, times=np.arange(len(Y)))
    by_hand = LogisticRegression().fit(X[:2640], Y[:2640])
    np.testing.assert_array_equal(recent.estimator_.coef_, by_hand.coef_)


def disagreement(seed, train, test):
    """Share of new objects that thresholds on credibility and on the raw margin treat differently.

    One measure, monotone in the score: exact thresholds on either scale pick the same objects, but
    credibility can cut only between calibration scores of a class. What differs must lie within one step.
    """
    detector = LinearSVC(C=0.1, random_state=0)
    ice = InductiveEvaluator(detector, random_state=seed).fit(*train)
    raw = ProbabilityThresholds(detector, random_state=seed).fit(*train)
    ours, theirs = ice.decide(test), raw.decide(test)
    np.testing.assert_array_equal(ours.labels, theirs.labels)
    differ = ours.accepted != theirs.accepted
    step = 1 / ice.calibration_.bags.counts
    near = np.abs(ours.credibility - ice.thresholds_[ours.labels]) <= step[ours.labels] * (1 + 1e-9)
    assert not np.any(differ & ~near)
    return differ.mean()


@pytest.mark.parametrize("seed", range(5))
def test_agrees_with_credibility_up_to_the_resolution_of_the_bag(seed):
    assert disagreement(seed, (X[:2000], Y[:2000]), X[2000:]) <= 0.01


@pytest.mark.slow
@pytest.mark.skipif("TRANSCENDENT_DATA" not in os.environ, reason="TRANSCENDENT_DATA names no folder")
def test_agrees_with_credibility_over_72_months_of_apigraph():
    apps = load_apigraph()
    past = apps.times < np.datetime64("2013")
    shares = [disagreement(seed, (apps.X[past], apps.y[past]), apps.X[~past]) for seed in range(5)]
    assert max(shares) <= 0.001


def test_a_soft_voting_judge():
    voting = VotingClassifier(
        [("forest", RandomForestClassifier(20, random_state=0)), ("bayes", GaussianNB())], voting="soft"
    )
    rejector = ProbabilityThresholds(LinearSVC(), judge=voting, random_state=0).fit(X[:2000], Y[:2000])
    decisions = rejector.decide(X[2000:])
    np.testing.assert_array_equal(decisions.labels, rejector.estimator_.predict(X[2000:]))
    p = rejector.evaluator_.measure_.estimator_.predict_proba(X[2000:])
    np.testing.assert_array_equal(decisions.credibility, p[np.arange(2000), decisions.labels])
    assert np.any(p.argmax(axis=1) != decisions.labels)


def test_several_classes():
    X3, y3 = make_classification(3000, n_informative=6, n_classes=3, random_state=1)
    names = np.array(["a", "b", "c"])[y3]
    rejector = ProbabilityThresholds(LinearSVC(), search=ExactSearch("accuracy"), random_state=0)
    decisions = rejector.fit(X3[:2000], names[:2000]).decide(X3[2000:])
    right = decisions.labels == names[2000:]
    assert right[decisions.accepted].mean() > right[decisions.rejected].mean() + 0.1


def test_a_detector_without_scores_is_refused():
    with pytest.raises(MeasureError, match="NoScores has no decision_function"):
        ProbabilityThresholds(NoScores(), random_state=0).fit(X, Y)


class NoScores(NearestCentroid):
    predict_proba = property()
    decision_function = property()


def test_large_margins_do_not_saturate():
    """A detector on another scale answers alike, so the same objects must be kept."""
    rejectors = [ProbabilityThresholds(SGDClassifier(random_state=0), random_state=0) for _ in range(2)]
    small = rejectors[0].fit(X[:2000], Y[:2000])
    large = rejectors[1].fit(X[:2000] * 1000, Y[:2000])
    credibility = large.decide(X[2000:] * 1000).credibility
    assert len(np.unique(credibility)) > 1990
    assert small.decide(X[2000:]).rejection_rate > 0.05
    assert large.decide(X[2000:] * 1000).rejection_rate > 0.05


def test_a_frozen_detector_is_calibrated_on_all_rows_and_must_know_the_classes():
    detector = LogisticRegression().fit(X[:1000], Y[:1000])
    frozen = ProbabilityThresholds(FrozenEstimator(detector)).fit(X[1000:2000], Y[1000:2000])
    assert len(frozen.evaluator_.calibration_.scores) == 1000
    three = LogisticRegression().fit(X[:1000], Y[:1000] + (X[:1000, 0] > 1))
    with pytest.raises(CalibrationError, match="the detector can predict 2"):
        ProbabilityThresholds(FrozenEstimator(three)).fit(X[1000:2000], Y[1000:2000])
