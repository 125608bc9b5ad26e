"""One call decides about the object and its neighbours, and says the same as two."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.svm import LinearSVC

from transcendent import CombinedMeasure, CrossConformalEvaluator, InductiveEvaluator, RejectionBudget
from transcendent.explaining import KnownObjects, explain, explanation
from transcendent.measures import Margin, Probability, SecondOpinion

RNG = np.random.default_rng(0)
Y = np.repeat(["goodware", "malware"], 300)
X = sp.csr_matrix((RNG.random((600, 40)) < np.where(Y == "malware", 0.35, 0.2)[:, None]).astype(float))
KNOWN = KnownObjects(X, Y)


@pytest.fixture(scope="module")
def combined():
    trees = SecondOpinion(ExtraTreesClassifier(20, random_state=0), Probability())
    measure = CombinedMeasure([Margin(), trees], bag="all", random_state=0)
    return InductiveEvaluator(LinearSVC(), measure=measure, random_state=0, verbose=False).fit(X, Y)


def count_calls(monkeypatch, evaluator):
    calls, answer = [], type(evaluator.detectors_[0]).answer

    def counted(detector, rows):
        calls.append(rows.shape[0])
        return answer(detector, rows)

    monkeypatch.setattr(type(evaluator.detectors_[0]), "answer", counted)
    return calls


@pytest.mark.parametrize("i", range(0, 600, 60))
def test_the_same_as_one_by_one(combined, monkeypatch, i):
    calls = count_calls(monkeypatch, combined)
    together = explain(combined, X, i, KNOWN).to_dict()
    assert len(calls) == 2  # the object with its neighbours, and its variants
    monkeypatch.setattr(explanation, "decide_with_neighbours", lambda _: None)
    assert explain(combined, X, i, KNOWN).to_dict() == together
    assert len(calls) == 2 + 3
    decision = combined.decide(X[[i]])
    assert together["credibility"] == decision.credibility[0]
    assert together["label"] == decision.labels[0]


def test_other_rejectors_decide_by_themselves(combined):
    crossed = CrossConformalEvaluator(LinearSVC(), cv=3, random_state=0, verbose=False).fit(X, Y)
    for rejector in (crossed, RejectionBudget(combined, rate=0.1).fit(X, Y)):
        expected = rejector.decide(X)[[5]]
        why = explain(rejector, X, 5, KNOWN)
        assert why.accepted == expected.accepted[0]
        assert why.credibility == expected.credibility[0]


def test_another_precision_or_no_known_objects_of_the_label(combined):
    single = KnownObjects(X.astype(np.float32), Y)
    assert explain(combined, X, 3, single).credibility == combined.decide(X[[3]]).credibility[0]
    label = combined.decide(X[[3]]).labels[0]
    others = KnownObjects(X[label != Y], Y[label != Y])
    why = explain(combined, X, 3, others)
    assert why.credibility == combined.decide(X[[3]]).credibility[0]
    assert why.n_compared == 0
    assert why.nearest


def test_copies_among_known_objects_change_no_decision(combined, monkeypatch):
    repeated = KnownObjects(sp.vstack([X] * 4, format="csr"), np.tile(Y, 4))
    different, which = repeated.without_copies(np.arange(2400))
    assert len(different) < 600 + 1
    assert (repeated.X[different][which] != repeated.X).nnz == 0
    with_copies = explain(combined, X, 3, repeated).to_dict()
    monkeypatch.setattr(KnownObjects, "without_copies", lambda _, rows: (rows, np.arange(len(rows))))
    assert explain(combined, X, 3, repeated).to_dict() == with_copies


def test_known_objects_that_are_refused_are_named(combined, monkeypatch):
    answer = type(combined.detectors_[0]).answer

    def refuse_many(detector, rows):
        if rows.shape[0] > 1:
            raise ValueError("too strange")
        return answer(detector, rows)

    monkeypatch.setattr(type(combined.detectors_[0]), "answer", refuse_many)
    with pytest.raises(ValueError, match="known objects cannot be decided: too strange"):
        explain(combined, X, 3, KNOWN)
