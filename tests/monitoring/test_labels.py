"""The plan of labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transcendent import Decisions
from transcendent.monitoring import plan_labels


def decisions_of(n, rate):
    credibility = np.random.default_rng(n).random(n)
    labels = np.zeros(n, dtype=int)
    return Decisions(labels, credibility >= rate, credibility, credibility, classes=np.arange(2))


@given(st.integers(1, 200), st.floats(0, 1), st.integers(1, 100), st.floats(0, 1), st.integers(0, 9))
def test_the_budget_is_spent_on_the_strangest_and_on_a_draw(n, rate, labels, audit, seed):
    decisions = decisions_of(n, rate)
    plan = plan_labels(decisions, labels, audit=audit, random_state=seed)
    if audit > 0 and decisions.accepted.any():
        assert plan.audited.any()
    assert len(plan.rows) == len(np.unique(plan.rows)) == min(labels, n)
    assert decisions.accepted[plan.rows[plan.audited]].all()
    strange = plan.rows[~plan.audited]
    assert decisions.rejected[strange].all()
    others = np.setdiff1d(np.flatnonzero(decisions.rejected), strange)
    if len(strange) and len(others):
        assert decisions.credibility[strange].max() <= decisions.credibility[others].min()
    assert np.all(plan.probabilities[~plan.audited] == 1)
    chance = plan.audited.sum() / max(decisions.accepted.sum(), 1)
    assert np.all(plan.probabilities[plan.audited] == chance)


def test_every_accepted_object_has_the_same_chance():
    decisions = decisions_of(60, 0.5)
    drawn = np.zeros(60)
    for seed in range(2000):
        plan = plan_labels(decisions, 10, audit=0.5, random_state=seed)
        drawn[plan.rows[plan.audited]] += 1
    chance = plan.probabilities[plan.audited][0]
    spread = np.sqrt(chance * (1 - chance) / 2000)
    assert np.abs(drawn[decisions.accepted] / 2000 - chance).max() < 5 * spread


def test_bad_budgets_are_refused():
    for wrong, match in (
        ({"audit": 1.2}, "between 0 and 1"),
        ({"labels": 0}, "at least 1"),
        ({"labels": 2.5}, "at least 1"),
    ):
        with pytest.raises(ValueError, match=match):
            plan_labels(decisions_of(5, 0.5), **{"labels": 3, "random_state": 0} | wrong)
