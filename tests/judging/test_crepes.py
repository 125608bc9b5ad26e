"""P-values beside those of crepes, another implementation of the same formulas."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from transcendent import InductiveEvaluator
from transcendent.errors import CalibrationError
from transcendent.judging import p_values

crepes = pytest.importorskip("crepes")
X, y = make_classification(3000, n_informative=6, n_classes=3, flip_y=0.1, random_state=0)
TRAIN, CALIBRATION, NEW = np.split(np.arange(3000), [1000, 2000])


@pytest.mark.parametrize("decimals", [0, 1, 2, 6], ids="{} decimals".format)
@pytest.mark.parametrize("seed", range(5))
def test_the_same_scores_get_the_same_p_values_with_and_without_ties(decimals, seed):
    rng = np.random.default_rng(seed)
    bag, scores = rng.normal(size=200).round(decimals), rng.normal(size=500).round(decimals)
    theirs = crepes.base.p_values_batch(bag, scores, smoothing=False)
    assert np.abs(p_values(scores, bag, p_value="plus_one") - theirs).max() <= 1e-12


@pytest.mark.parametrize("decimals", [0, 1, 6], ids="{} decimals".format)
def test_smoothed_p_values_are_the_same_with_the_same_draws(decimals):
    rng = np.random.default_rng(0)
    bag, scores = rng.normal(size=200).round(decimals), rng.normal(size=500).round(decimals)
    theirs = crepes.base.p_values_batch(bag, scores, smoothing=True, seed=7)
    assert np.abs(p_values(scores, bag, p_value="smoothed", random_state=7) - theirs).max() <= 1e-12


@pytest.mark.parametrize(
    "detector",
    [LogisticRegression(), KNeighborsClassifier(5), DecisionTreeClassifier(max_depth=4, random_state=0)],
    ids=lambda detector: type(detector).__name__,
)
def test_a_class_conditional_classifier_has_the_p_values_of_an_evaluator(detector):
    model = detector.fit(X[TRAIN], y[TRAIN])
    theirs = crepes.WrapClassifier(model).calibrate(X[CALIBRATION], y[CALIBRATION], class_cond=True)
    ice = InductiveEvaluator(FrozenEstimator(model), measure="probability", p_value="plus_one")
    decisions = ice.fit(X[CALIBRATION], y[CALIBRATION]).decide(X[NEW])
    assert np.abs(decisions.p_values - theirs.predict_p(X[NEW], smoothing=False)).max() <= 1e-12


def test_scores_that_differ_by_rounding_tie_here_and_not_in_crepes():
    bag = [0.5, 0.5 + 1e-12, 0.5 + 2e-12, 0.9]
    scores = np.array([0.5 + 2e-12, 0.5])
    assert p_values(scores, bag, p_value="plus_one").tolist() == [1, 1]
    assert crepes.base.p_values_batch(bag, scores, smoothing=False).tolist() == [0.6, 1]


def test_a_class_without_calibration_objects_is_typical_in_crepes_and_refused_here():
    model = LogisticRegression().fit(X[TRAIN], y[TRAIN])
    some = CALIBRATION[y[CALIBRATION] < 2]
    theirs = crepes.WrapClassifier(model).calibrate(X[some], y[some], class_cond=True)
    assert (theirs.predict_p(X[NEW], smoothing=False)[:, 2] == 1).all()
    with pytest.raises(CalibrationError, match="no object of that class to calibrate on"):
        InductiveEvaluator(FrozenEstimator(model), measure="probability").fit(X[some], y[some])
