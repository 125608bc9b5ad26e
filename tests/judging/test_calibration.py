"""Scores with the wrong sign are noticed, and no others."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

from transcendent import (
    Answers,
    CrossConformalEvaluator,
    InductiveEvaluator,
    ScoreEvaluator,
    TransductiveEvaluator,
)
from transcendent.baselines import CPReject
from transcendent.errors import CalibrationWarning
from transcendent.measures import CombinedMeasure, NeighbourDistance, NeighbourRatio

X, y = make_classification(300, n_informative=4, n_classes=3, random_state=0)
DETECTOR = LogisticRegression()


def probability(classifier, rows):
    return classifier.predict_proba(rows)


def negated(classifier, rows):
    return -classifier.predict_proba(rows)


def count_sign_warnings(call):
    """How often a call warns about the sign."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return sum("look stranger for their own class" in str(each.message) for each in caught)


EVALUATORS = {
    "ICE": lambda measure: InductiveEvaluator(DETECTOR, measure=measure, random_state=0),
    "CCE": lambda measure: CrossConformalEvaluator(DETECTOR, measure=measure, cv=4, random_state=0),
    "approx-TCE": lambda measure: TransductiveEvaluator(DETECTOR, measure=measure, cv=3, random_state=0),
}


@pytest.mark.parametrize("kind", list(EVALUATORS))
class TestEvaluators:
    def test_fit_recalibrate_and_learn_warn_once(self, kind):
        evaluator = EVALUATORS[kind](probability)
        assert count_sign_warnings(lambda: evaluator.fit(X, y)) == 1
        assert count_sign_warnings(lambda: evaluator.recalibrate(X[:150], y[:150])) == 1
        evaluator = EVALUATORS[kind](probability)
        count_sign_warnings(lambda: evaluator.fit(X[:200], y[:200]))
        assert count_sign_warnings(lambda: evaluator.learn(X, y, what="both")) == 1

    def test_the_right_sign_is_silent(self, kind):
        evaluator = EVALUATORS[kind](negated)
        assert count_sign_warnings(lambda: evaluator.fit(X, y)) == 0
        assert count_sign_warnings(lambda: evaluator.recalibrate(X[:150], y[:150])) == 0

    def test_a_member_is_named(self, kind):
        evaluator = EVALUATORS[kind](CombinedMeasure(["auto", probability, NeighbourRatio(3)]))
        with pytest.warns(CalibrationWarning, match=r"members at positions \[1\] of the measure"):
            evaluator.fit(X, y)


def test_baselines_warn_too():
    with pytest.warns(CalibrationWarning, match="Higher scores must mean stranger"):
        CPReject(DETECTOR, measure=probability, random_state=0).fit(X, y)


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: InductiveEvaluator(LinearSVC(random_state=0), random_state=seed),
        lambda seed: InductiveEvaluator(KNeighborsClassifier(), random_state=seed),
        lambda seed: InductiveEvaluator(DETECTOR, measure=NeighbourDistance(3), random_state=seed),
        lambda seed: CrossConformalEvaluator(DETECTOR, measure=NeighbourRatio(3), cv=2, random_state=seed),
        lambda seed: TransductiveEvaluator(LogisticRegression(C=1e-3), cv="loo", random_state=seed),
        lambda seed: TransductiveEvaluator(DummyClassifier(), cv=5, random_state=seed),
    ],
    ids=["margin", "share", "distance", "ratio", "left out", "dummy"],
)
@pytest.mark.parametrize("n", [20, 80])
def test_a_detector_at_chance_level_is_not_called_reversed(make, n):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        labels = np.arange(n) % 2
        assert count_sign_warnings(lambda: make(seed).fit(rng.normal(size=(n, 4)), labels)) == 0  # noqa: B023


@pytest.mark.parametrize("classes", [2, 8])
def test_random_scores_are_hardly_ever_called_reversed(classes):
    rng = np.random.default_rng(0)
    reversed_ones = 0
    for _ in range(60):
        labels = rng.permutation(np.arange(12 * classes) % classes)
        scores = rng.normal(size=(len(labels), classes))
        reversed_ones += count_sign_warnings(lambda: ScoreEvaluator().fit(Answers(labels, scores), labels))  # noqa: B023
    assert reversed_ones <= 1  # one in 740 is expected


def test_scores_that_are_the_same_for_every_class_are_not_called_reversed():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [100, 50, 10])
    novelty = rng.normal(size=160) - labels
    assert (
        count_sign_warnings(
            lambda: ScoreEvaluator().fit(Answers(labels, np.column_stack([novelty] * 3)), labels)
        )
        == 0
    )


def test_classes_of_different_spread_are_not_called_reversed():
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(150, 2)) * 10, rng.normal(size=(150, 2))])
    labels = np.repeat([0, 1], 150)
    for measure in (NeighbourDistance(3), "auto"):
        evaluator = InductiveEvaluator(DETECTOR, measure=measure, random_state=0)
        assert count_sign_warnings(lambda: evaluator.fit(rows, labels)) == 0  # noqa: B023
