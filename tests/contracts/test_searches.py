"""What every threshold search must do."""

import numpy as np
import pytest
from sklearn.base import clone

from transcendent import ExactSearch, GridSearch, GuaranteedSearch, QuartileSearch, RandomSearch
from transcendent.errors import InfeasibleError
from transcendent.metrics import F1, RejectionRate

CONSTRAINED = [ExactSearch(), GridSearch(steps=21), RandomSearch(random_state=0)]
SEARCHES = [*CONSTRAINED, QuartileSearch(), GuaranteedSearch(0.12)]


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    y = rng.choice(["ham", "spam"], 400)
    wrong = rng.random(400) < 0.15
    labels = np.where(wrong, np.where(y == "ham", "spam", "ham"), y)
    credibility = np.where(wrong, rng.random(400) * 0.6, rng.random(400))
    return y, labels, credibility, rng.random(400)


def kind(search):
    return type(search).__name__


@pytest.mark.parametrize("search", SEARCHES, ids=kind)
@pytest.mark.parametrize("on", ["credibility", "confidence", "both"])
def test_the_promise_is_what_the_thresholds_do(search, on, problem):
    if kind(search) == "ExactSearch" and on == "both":
        return  # refused, and tested with the exact search
    settings = {"steps": 11} if kind(search) == "GridSearch" else {}
    if kind(search) == "GuaranteedSearch":
        if on != "credibility":
            return  # its thresholds are on credibility alone
    else:
        settings["on"] = on
    y, labels, credibility, confidence = problem
    found = clone(search).set_params(**settings).find(y, labels, credibility, confidence)
    codes = (labels == "spam").astype(int)
    kept = (credibility >= found.credibility_thresholds[codes]) & (
        confidence >= found.confidence_thresholds[codes]
    )
    assert found.rejection_rate == pytest.approx(np.mean(~kept))
    for off, thresholds in (
        ("confidence", found.credibility_thresholds),
        ("credibility", found.confidence_thresholds),
    ):
        assert (thresholds == 0).all() == (on == off)
    if found.objective is not None:
        hits = np.sum(kept & (y == "spam") & (labels == "spam"))
        f1 = 2 * hits / (np.sum(kept & (y == "spam")) + np.sum(kept & (labels == "spam")))
        assert found.value == pytest.approx(f1)
        assert found.rejection_rate <= 0.15


@pytest.mark.parametrize("search", SEARCHES, ids=kind)
def test_same_seed_same_thresholds(search, problem):
    y, labels, credibility, _ = problem
    first, second = (clone(search).find(y, labels, credibility) for _ in range(2))
    assert first.credibility_thresholds.tolist() == second.credibility_thresholds.tolist()


@pytest.mark.parametrize("search", CONSTRAINED, ids=kind)
def test_infeasible_problems_raise_with_what_is_reachable(search, problem):
    y, labels, credibility, _ = problem
    hard = clone(search).set_params(constraints=[F1() >= 0.999], max_rejection=0.05)
    with pytest.raises(
        InfeasibleError, match=r"F1\(\) >= 0.999 with RejectionRate\(\) <= 0.05.*the best .*value.* is 0"
    ):
        hard.find(y, labels, credibility)


@pytest.mark.parametrize("search", CONSTRAINED, ids=kind)
def test_an_objective_that_is_always_undefined_is_named(search):
    y = labels = np.zeros(10, dtype=int)
    with pytest.raises(InfeasibleError, match=r"objective F1\(\) is undefined"):
        clone(search).find(y, labels, np.linspace(0, 1, 10), classes=[0, 1])


@pytest.mark.parametrize("search", CONSTRAINED, ids=kind)
def test_both_directions(search, problem):
    y, labels, credibility, _ = problem
    least = clone(search).set_params(objective="rejection_rate", max_rejection=None, constraints=F1() >= 0.9)
    found = least.find(y, labels, credibility)
    assert found.value == found.rejection_rate
    kept = credibility >= found.credibility_thresholds[(labels == "spam").astype(int)]
    hits = np.sum(kept & (y == "spam") & (labels == "spam"))
    assert 2 * hits / (np.sum(kept & (y == "spam")) + np.sum(kept & (labels == "spam"))) >= 0.9


@pytest.mark.parametrize("search", SEARCHES, ids=kind)
def test_bad_input_is_refused(search, problem):
    y, labels, credibility, _ = problem
    with pytest.raises(ValueError, match="differ in length"):
        search.find(y, labels, credibility[:-1])
    with pytest.raises(ValueError, match="between 0 and 1"):
        search.find(y, labels, credibility * 2)
    with pytest.raises(ValueError, match="outside the classes"):
        search.find(y, labels, credibility, classes=["ham", "eggs"])
    with pytest.raises(ValueError, match="no calibration objects"):
        search.find([], [], [], classes=[0, 1])
    if kind(search) == "GuaranteedSearch":
        return  # which has no choice
    with pytest.raises(ValueError, match="on must be one of"):
        clone(search).set_params(on="luck").find(y, labels, credibility)
    with pytest.raises(ValueError, match=r"needs the .*: pass it to find"):
        clone(search).set_params(on="confidence").find(y, labels, credibility)


@pytest.mark.parametrize("search", CONSTRAINED, ids=kind)
def test_bad_constraints_are_refused(search, problem):
    y, labels, credibility, _ = problem
    with pytest.raises(ValueError, match="max_rejection must be between 0 and 1"):
        clone(search).set_params(max_rejection=15).find(y, labels, credibility)
    with pytest.raises(ValueError, match=r"must look like F1\(\) >= 0.8"):
        clone(search).set_params(constraints=[RejectionRate()]).find(y, labels, credibility)


@pytest.mark.parametrize("search", SEARCHES, ids=kind)
def test_an_object_without_credibility_counts_as_kept(search, problem):
    y, labels, credibility, _ = problem
    credibility = np.append(credibility, np.nan)
    found = search.find(np.append(y, "ham"), np.append(labels, "ham"), credibility)
    assert np.isfinite(found.credibility_thresholds).all()
    if hasattr(search, "max_rejection"):
        assert found.rejection_rate <= 0.15
    if kind(search) == "QuartileSearch":
        assert (
            found.credibility_thresholds.tolist()
            == search.find(y, labels, credibility[:-1]).credibility_thresholds.tolist()
        )


@pytest.mark.parametrize("search", SEARCHES, ids=kind)
def test_a_class_nobody_was_predicted_as(search):
    """Without evidence its answers are kept, except by a guarantee, which needs evidence to keep them."""
    rng = np.random.default_rng(1)
    y = rng.choice(3, 400, p=[0.55, 0.42, 0.03])
    labels = np.minimum(y, 1)
    if hasattr(search, "objective"):
        search = clone(search).set_params(objective="accuracy")
    found = search.find(y, labels, rng.random(400), classes=[0, 1, 2])
    assert found.credibility_thresholds.shape == (3,)
    assert found.credibility_thresholds[2] == (2 if kind(search) == "GuaranteedSearch" else 0)
