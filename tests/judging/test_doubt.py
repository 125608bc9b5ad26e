"""Kinds of doubt: by their definition, and what they say of objects whose trouble is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

from transcendent import CombinedMeasure, CrossConformalEvaluator, InductiveEvaluator, RejectionBudget
from transcendent.decisions import DOUBTS
from transcendent.judging.doubt import kinds_of_doubt
from transcendent.measures import NeighbourDistance, SecondOpinion

RNG = np.random.default_rng(0)
CENTRES = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])
Y = RNG.integers(0, 3, 900)
X = CENTRES[Y] + RNG.normal(size=(900, 2))
OPINIONS = [SecondOpinion(GaussianNB()), SecondOpinion(KNeighborsClassifier())]
MEASURE = CombinedMeasure([*OPINIONS, NeighbourDistance(1)], bag="all")


def literal(p, absolute):
    for m in absolute:
        if all(p[c, m] < 0.05 for c in range(len(p))):
            return "like nothing known"
    favourites = set(range(len(p)))
    for m in set(range(p.shape[1])) - set(absolute):
        favourites &= {c for c in range(len(p)) if p[c, m] == max(p[:, m])}
    return "between classes" if favourites else "opinions disagree"


@given(
    arrays(float, (6, 3, 4), elements=st.sampled_from([0.01, 0.04, 0.05, 0.3, 1.0])),
    st.sets(st.integers(0, 3)),
)
def test_kinds_follow_their_definition(p, absolute):
    found = kinds_of_doubt(p, tuple(sorted(absolute)))
    assert [DOUBTS[kind] for kind in found] == [literal(own, absolute) for own in p]


@pytest.mark.parametrize("make", [InductiveEvaluator, CrossConformalEvaluator])
def test_what_is_far_from_everything_is_like_nothing_known(make):
    evaluator = make(LinearSVC(), measure=MEASURE, random_state=0).fit(X, Y)
    far = 40.0 + RNG.normal(size=(50, 2))
    assert np.all(evaluator.decide(far).doubt == "like nothing known")
    assert np.mean(evaluator.decide(X).doubt == "like nothing known") < 0.1
    held = RejectionBudget(evaluator, rate=0.1).fit(X, Y).decide(X)
    assert held.to_dict()["doubt"].shape == (900,)
    assert held[held.rejected].doubt.shape == (90,)


def test_one_distance_alone_tells_and_one_margin_does_not():
    far = [[40.0, 40.0]]
    alone = InductiveEvaluator(LinearSVC(), measure=NeighbourDistance(1), random_state=0).fit(X, Y)
    assert alone.decide(far).doubt.tolist() == ["like nothing known"]
    margin = InductiveEvaluator(LinearSVC(), random_state=0).fit(X, Y).decide(far)
    assert margin.doubt is None
    assert "doubt" not in margin.to_dict()
