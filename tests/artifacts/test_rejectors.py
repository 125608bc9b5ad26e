"""Rejectors with numbers out of range would make wrong decisions, so they are refused."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from transcendent import (
    CrossConformalEvaluator,
    InductiveEvaluator,
    RejectionBudget,
    StreamingBudget,
)
from transcendent.artifacts import load, save
from transcendent.errors import ArtifactError
from transcendent.thresholds.guaranteed import NOTHING

X, y = make_classification(300, flip_y=0.1, random_state=0)


@pytest.fixture
def refused(tmp_path):
    def attempt(rejector):
        save(rejector, tmp_path / "x")
        with pytest.raises(ArtifactError) as caught:
            load(tmp_path / "x")
        return str(caught.value)

    return attempt


def ice(**given):
    return InductiveEvaluator(LogisticRegression(), random_state=0, **given).fit(X, y)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.1, 2.5])
@pytest.mark.parametrize("name", ["credibility_thresholds", "confidence_thresholds"])
def test_thresholds(tmp_path, name, value):
    crafted = ice()
    getattr(crafted.result_, name)[0] = value
    try:
        save(crafted, tmp_path / "x")
    except ValueError:  # JSON has no such number
        return
    with pytest.raises(ArtifactError, match="not between 0 and 1"):
        load(tmp_path / "x")


def test_more_detectors_than_judges(refused):
    crafted = ice()
    crafted.detectors_.append(crafted.detectors_[0])
    assert "a judge for each detector" in refused(crafted)


def test_a_threshold_that_nothing_reaches_is_one(tmp_path):
    crafted = ice()
    crafted.result_.credibility_thresholds[0] = NOTHING
    save(crafted, tmp_path / "x")
    assert not load(tmp_path / "x").decide(X).accepted[ice().predict(X) == 0].any()


@pytest.mark.parametrize("quorum", [0, -1, 6, 2.5, np.nan, True])
def test_quorums(refused, quorum):
    cce = CrossConformalEvaluator(LogisticRegression(), cv=5, random_state=0).fit(X, y)
    cce.quorum = quorum
    assert "must be an integer between 1 and the 5 folds" in refused(cce)


def test_classes_that_differ(refused):
    crafted = ice()
    crafted.judges_[0].classes_ = np.array([1, 0])
    assert "different classes" in refused(crafted)


def test_a_form_that_does_not_exist(refused):
    crafted = ice()
    crafted.judges_[0].p_value = "smooth"
    assert "smooth" in refused(crafted)


@pytest.mark.parametrize("rate", [np.nan, -1, 2])
def test_budgets(refused, rate):
    budget = RejectionBudget(InductiveEvaluator(LogisticRegression(), random_state=0), rate=0.1).fit(X, y)
    budget.rate = rate
    assert "rate" in refused(budget)


@pytest.mark.parametrize(
    ("name", "value"),
    [("decided_", -1), ("rejected_", 10**6), ("recent_", np.zeros(3)), ("recent_", np.full((5, 2), np.nan))],
)
def test_the_state_of_a_stream(refused, name, value):
    stream = StreamingBudget(InductiveEvaluator(LogisticRegression(), random_state=0), rate=0.1).fit(X, y)
    stream.decide(X)
    setattr(stream, name, value)
    assert refused(stream)
