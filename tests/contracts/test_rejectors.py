"""What every rejector must do, whoever wrote it."""

import pickle
from copy import deepcopy
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB
from sklearn.svm import LinearSVC

from transcendent import (
    CrossConformalEvaluator,
    Decisions,
    InductiveEvaluator,
    RejectionBudget,
    Rejector,
    StreamingBudget,
    TransductiveEvaluator,
)
from transcendent.baselines import CPReject, DroidEvolver, ProbabilityThresholds
from transcendent.decisions import Fitted, declared, is_rejector
from transcendent.measures import CombinedMeasure, NeighbourRatio, SecondOpinion, drift_measure

SVM = LinearSVC(random_state=0)
PARTS = ["auto", SecondOpinion(BernoulliNB()), NeighbourRatio(3, metric="cosine")]
COMBINED = CombinedMeasure(PARTS, bag="all")
WEIGHTED = CombinedMeasure(PARTS, weights=[1.0, 2.0, 0.5])
REJECTORS = {
    "ICE": InductiveEvaluator(SVM, random_state=0),
    "CCE": CrossConformalEvaluator(SVM, cv=3, random_state=0),
    "approx-TCE": TransductiveEvaluator(SVM, cv=3, random_state=0),
    "TCE": TransductiveEvaluator(SVM, cv="loo", random_state=0),
    "probability": ProbabilityThresholds(LogisticRegression(), random_state=0),
    "squashed margin": ProbabilityThresholds(SVM, random_state=0),
    "judged": ProbabilityThresholds(SVM, judge=RandomForestClassifier(10, random_state=0), random_state=0),
    "CP-Reject": CPReject(SVM, random_state=0),
    "CP-Reject, k errors": CPReject(SVM, max_errors=5, random_state=0),
    "combined": InductiveEvaluator(SVM, measure=COMBINED, random_state=0),
    "combined, CCE": CrossConformalEvaluator(SVM, measure=WEIGHTED, cv=3, random_state=0),
    "combined, TCE": TransductiveEvaluator(SVM, measure=COMBINED, cv="loo", random_state=0),
    "drift measure": InductiveEvaluator(SVM, measure=drift_measure(random_state=0), random_state=0),
    "budget": RejectionBudget(InductiveEvaluator(SVM, random_state=0), count=40),
    "budget, CP-Reject": RejectionBudget(CPReject(SVM, random_state=0), rate=0.1),
    "stream": StreamingBudget(InductiveEvaluator(SVM, random_state=0), rate=0.1, window=100),
    "stream, CP-Reject": StreamingBudget(CPReject(SVM, random_state=0), rate=0.1),
    "DroidEvolver": DroidEvolver(buffer_size=100, random_state=0),
}
X, y = make_classification(900, n_informative=6, flip_y=0.1, random_state=0)
Y = np.array(["good", "malicious"])[y]
NEW = X[600:]


SLOW = ("drift measure",)


@pytest.fixture(
    params=[pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in REJECTORS]
)
def rejector(request):
    return clone(REJECTORS[request.param])


fits = {}


@pytest.fixture
def fitted(rejector, request):
    """A copy of the rejector after ``fit``, which all tests share."""
    name = request.node.callspec.params["rejector"]
    if name not in fits:
        fits[name] = rejector.fit(X[:600], Y[:600])
    return deepcopy(fits[name])


def same(a, b):
    for name in ("labels", "accepted", "credibility", "confidence", "p_values", "votes", "doubts"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def test_is_a_rejector(fitted):
    assert isinstance(fitted, Rejector)
    assert isinstance(fitted.decide(NEW), Decisions)


def test_says_what_it_does(rejector):
    said = rejector.in_words(2)
    assert not {said.judges[-1], said.rejects[-1]} & set(" .")  # the report ends the sentence
    assert said.under_drift.endswith(".")
    assert said.promised_error is None


def test_decides_every_object(fitted):
    expected = fitted.predict(NEW)
    decisions = fitted.decide(NEW)
    assert len(decisions) == len(NEW)
    np.testing.assert_array_equal(decisions.labels, expected)
    assert decisions.accepted.dtype == bool
    for values in (decisions.credibility, decisions.confidence):
        assert np.all((values >= 0) & (values <= 1))
    np.testing.assert_array_equal(decisions.classes, ["good", "malicious"])
    if decisions.p_values is not None:
        codes = np.searchsorted(decisions.classes, decisions.labels)
        assert decisions.p_values.shape == (len(NEW), 2)
        np.testing.assert_array_equal(decisions.credibility, decisions.p_values[np.arange(len(NEW)), codes])


def test_its_labels_are_better_than_chance(fitted):
    assert np.mean(fitted.decide(NEW).labels == Y[600:]) > 0.7


def test_a_copy_decides_the_same(fitted):
    copy = pickle.loads(pickle.dumps(fitted))
    same(fitted.decide(NEW), copy.decide(NEW))


def test_the_same_seed_gives_the_same_decisions(rejector):
    one, two = clone(rejector).fit(X[:600], Y[:600]), clone(rejector).fit(X[:600], Y[:600])
    same(one.decide(NEW), two.decide(NEW))


def test_fitting_again_starts_anew(fitted):
    first = fitted.decide(NEW)
    same(fitted.fit(X[:600], Y[:600]).decide(NEW), first)


def decided_in_parts(fitted, size):
    """What is decided in parts of this size, each by a copy that has decided nothing; None if refused."""
    stored = pickle.dumps(fitted)
    try:
        parts = [pickle.loads(stored).decide(NEW[i : i + size]) for i in range(0, 60, size)]
    except ValueError:
        return None
    return [(label, ok) for part in parts for label, ok in zip(part.labels, part.accepted, strict=True)]


@pytest.mark.slow
def test_decisions_depend_on_other_objects_where_it_declares_so(fitted):
    whole = decided_in_parts(fitted, 60)
    assert whole is not None
    for size in (1, 20):
        alike = decided_in_parts(fitted, size) == whole
        assert alike != declared(fitted).depends_on_others


def test_those_that_evolve_depend_on_other_objects(fitted):
    assert fitted.depends_on_others or not fitted.evolves


def test_takes_sparse_rows(rejector):
    fitted = clone(rejector).fit(X[:600], Y[:600])
    dense = deepcopy(fitted).decide(NEW)
    same(fitted.decide(sp.csc_array(NEW)), dense)
    sparse = clone(rejector).fit(sp.csr_matrix(X[:600]), Y[:600]).decide(sp.csr_matrix(NEW))
    assert np.mean(dense.labels == sparse.labels) > 0.98


def forms(dense):
    """One matrix in the forms that SciPy has for it, entries in parts or in any order among them."""
    S = sp.csr_matrix(dense)
    entries, (rows, columns) = S.data, dense.nonzero()
    halves = (np.repeat(entries / 2, 2), np.repeat(S.indices, 2), S.indptr * 2)
    turned = np.concatenate([np.arange(start, end)[::-1] for start, end in pairwise(S.indptr)])
    lying = sp.csr_matrix(halves, shape=S.shape)
    lying.has_canonical_format = True
    in_parts = (np.append(entries / 2, entries / 2), (np.tile(rows, 2), np.tile(columns, 2)))
    zero = (np.append(entries, 0.0), (np.append(rows, 0), np.append(columns, np.argmin(np.abs(dense[0])))))
    return {
        "halves": sp.csr_matrix(halves, shape=S.shape),
        "unsorted": sp.csr_matrix((entries[turned], S.indices[turned], S.indptr), shape=S.shape),
        "believed canonical": lying,
        "coordinates": sp.coo_array(in_parts, shape=S.shape),
        "columns": sp.csc_matrix(S),
        "lists": sp.lil_matrix(S),
        "keys": sp.dok_array(S),
        "whole numbers": sp.csr_matrix(S, dtype=np.int8),
        "explicit zero": sp.coo_matrix(zero, shape=S.shape),
        "dense": dense,
        "frame": pd.DataFrame(dense),
        "list": dense.tolist(),
    }


COUNTS = np.clip(np.round(X[:420] * 2), 0, 4)
FORMS = forms(COUNTS[300:])


def check_equal_matrices(rejector):
    S = sp.csr_matrix(COUNTS)
    fitted = clone(rejector).fit(S[:300], y[:300])
    expected = deepcopy(fitted).decide(S[300:])
    for form in FORMS.values():
        before = deepcopy(form)
        same(deepcopy(fitted).decide(form), expected)
        if sp.issparse(form):
            assert (form != before).nnz == 0
            assert form.nnz == before.nnz  # nothing was summed in what is the caller's
    halves = forms(COUNTS[:300])["halves"]
    same(clone(rejector).fit(halves, y[:300]).decide(S[300:]), expected)
    assert halves.nnz == 2 * S[:300].nnz  # as it was


@pytest.mark.filterwarnings("ignore::transcendent.errors.CalibrationWarning")
def test_an_equal_matrix_gives_equal_decisions(rejector):
    check_equal_matrices(rejector)


def test_refuses_to_decide_before_fit(rejector):
    with pytest.raises(NotFittedError):
        rejector.decide(NEW)


def test_refuses_rows_of_another_width(fitted):
    with pytest.raises(ValueError, match="features"):
        fitted.decide(NEW[:, :-1])


def test_refuses_missing_values(fitted):
    rows = NEW.copy()
    rows[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        fitted.decide(rows)
    with pytest.raises(ValueError, match="X is a masked array"):
        fitted.decide(np.ma.masked_invalid(rows))


def test_refuses_masked_arrays(rejector):
    """Whose mask everything would ignore."""
    masked = np.ma.masked_greater(X, 1.0)
    for rows in (masked, np.ma.masked_array(X), list(masked)):
        with pytest.raises(ValueError, match=r"X is a masked array.*X\.filled\(0\)"):
            rejector.fit(rows, Y)


def test_refuses_one_class(rejector):
    with pytest.raises(ValueError, match="class"):
        rejector.fit(X, np.full(len(X), "good"))


def test_it_is_what_it_declares(fitted):
    told, decisions = declared(fitted), fitted.decide(NEW)
    assert told is fitted
    flags = [name for name, value in vars(Rejector).items() if value is False]
    assert {type(getattr(told, name)) for name in flags if name != "verbose"} == {bool}
    assert told.has_p_values == (decisions.p_values is not None)
    assert told.has_votes == (decisions.votes is not None)
    assert told.tells_doubt == (decisions.doubts is not None)
    assert told.can_learn == hasattr(fitted, "learn")
    assert told.can_rethreshold == hasattr(fitted, "rethreshold")
    assert not told.judges_scores
    assert told.fitted.classes.tolist() == ["good", "malicious"]
    assert told.fitted.n_features == X.shape[1]
    assert told.fitted.n_rows in (None, 600)
    assert not told.fitted.lacks_thresholds


def test_unfitted_it_declares_what_needs_no_fit(rejector):
    told = declared(rejector)
    assert told.fitted.classes is None
    assert not told.fitted.detectors
    assert told.evolves == declared(clone(rejector).fit(X[:600], Y[:600])).evolves


class Own:
    """A rejector of a user's own, with nothing but ``predict`` and ``decide``."""

    def predict(self, X):
        return np.zeros(len(X), dtype=int)

    def decide(self, X):
        sure = np.ones(len(X))
        return Decisions(self.predict(X), sure > 0, sure, sure, np.array([0, 1]))


def test_a_rejector_of_ones_own_has_defaults():
    told = declared(Own())
    assert is_rejector(Own())
    assert not any(vars(told).get(name, False) for name in Rejector.__annotations__)
    assert told.fitted == Fitted(detectors=[])
    assert told.what_learns("both") == "anew"
    with pytest.raises(ValueError, match="what='both'"):
        told.what_learns("judge")


def test_a_rejector_of_ones_own_may_declare():
    own = Own()
    own.evolves = own.has_p_values = True
    own.classes_, own.n_features_in_, own.estimator_ = np.array([0, 1]), 20, SVM
    own.learn = len
    told = declared(own)
    assert told.evolves
    assert told.has_p_values
    assert told.can_learn
    assert not told.can_rethreshold
    assert told.fitted.n_features == 20
    assert told.fitted.detectors == [SVM]
