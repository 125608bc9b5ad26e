from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from transcendent import CrossConformalEvaluator, InductiveEvaluator, TransductiveEvaluator
from transcendent.baselines import CPReject, DroidEvolver, ProbabilityThresholds
from transcendent.temporal import Retraining
from transcendent.temporal.labelling import joining, margins

X, Y = make_classification(1500, n_informative=6, flip_y=0.1, random_state=0)
ICE = InductiveEvaluator(LinearSVC(), random_state=0).fit(X[:1000], Y[:1000])
NEW = X[1000:]
DECISIONS = ICE.decide(NEW)


def select(n, choose, seed=0, audit=0.0):
    return Retraining(n, choose, audit=audit).select(ICE, NEW, DECISIONS, np.random.default_rng(seed)).rows


def test_rejected_first_then_the_least_credible():
    rejected = np.flatnonzero(DECISIONS.rejected)
    few = select(10, "rejected")
    assert set(few) <= set(rejected)
    left = np.setdiff1d(rejected, few)
    assert DECISIONS.credibility[few].max() <= DECISIONS.credibility[left].min()
    many = select(len(rejected) + 20, "rejected")
    assert set(rejected) <= set(many)
    added, never = np.setdiff1d(many, rejected), np.setdiff1d(np.arange(500), many)
    assert DECISIONS.credibility[added].max() <= DECISIONS.credibility[never].min()


def test_rejected_first_goes_by_what_the_rejector_ranks_by():
    cp = CPReject(LinearSVC(), random_state=0).fit(X[:1000], Y[:1000])
    decisions = cp.decide(NEW)
    chosen = Retraining(20, audit=0).select(cp, NEW, decisions, np.random.default_rng(0)).rows
    left = np.setdiff1d(np.flatnonzero(decisions.rejected), chosen)
    assert decisions.confidence[chosen].max() <= decisions.confidence[left].min()


def test_a_new_class_waits_until_there_is_enough_of_it():
    y = np.array([0] * 50 + [1] * 50 + [2] * 19 + [0] * 5)
    trained, labelled = np.arange(100), np.arange(100, 124)
    assert joining(labelled, y, trained).tolist() == list(range(119, 124))
    y[119] = 2
    assert len(joining(labelled, y, trained)) == 24
    assert len(joining(labelled[:0], y, trained)) == 0


def test_by_margin():
    distance = np.abs(ICE.estimator_.decision_function(NEW))
    np.testing.assert_array_equal(select(25, "margin"), np.sort(np.argsort(distance)[:25]))


def test_draws_are_seeded():
    for given in ({"choose": "random"}, {"choose": "drawn"}, {"choose": "rejected", "audit": 0.5}):
        np.testing.assert_array_equal(select(40, **given), select(40, **given))
        assert not np.array_equal(select(40, **given), select(40, seed=1, **given))
    half = select(20, "rejected")
    assert set(half) <= set(select(40, "rejected", audit=0.5))


def test_the_audit_is_a_uniform_draw_from_the_accepted():
    draws = np.zeros(len(NEW))
    for seed in range(2000):
        chosen = Retraining(100).select(ICE, NEW, DECISIONS, np.random.default_rng(seed))
        assert chosen.audited.sum() == 20
        draws[chosen.rows[chosen.audited]] += 1
    eligible = DECISIONS.accepted.copy()
    eligible[chosen.rows[~chosen.audited]] = False
    assert draws[~eligible].sum() == 0
    chance = 20 / eligible.sum()
    np.testing.assert_allclose(chosen.probabilities[chosen.audited], chance)
    low, high = binom.interval(1 - 0.001 / eligible.sum(), 2000, chance)
    assert np.all((draws[eligible] >= low) & (draws[eligible] <= high))


def test_the_drawn_are_uniform_among_the_rejected_and_known_by_their_chance():
    draws, shares = np.zeros(len(NEW)), []
    for seed in range(2000):
        chosen = Retraining(30, "drawn").select(ICE, NEW, DECISIONS, np.random.default_rng(seed))
        draws[chosen.rows] += 1
        shares.append(np.sum(1 / chosen.probabilities))  # estimates the number of objects
    for group, n in ((DECISIONS.rejected, 24), (DECISIONS.accepted, 6)):
        low, high = binom.interval(1 - 0.001 / group.sum(), 2000, n / group.sum())
        assert np.all((draws[group] >= low) & (draws[group] <= high))
    np.testing.assert_allclose(shares, len(NEW))


def test_what_one_group_lacks_is_drawn_from_the_other():
    accepted = np.arange(500) < 490
    decisions = replace(DECISIONS, accepted=accepted)
    chosen = Retraining(40, "drawn").select(ICE, NEW, decisions, np.random.default_rng(0))
    assert chosen.audited.sum() == 30
    np.testing.assert_allclose(chosen.probabilities, np.where(chosen.audited, 30 / 490, 1.0))
    none = replace(DECISIONS, accepted=np.zeros(500, dtype=bool))
    for choose in ("drawn", "rejected"):
        chosen = Retraining(40, choose).select(ICE, NEW, none, np.random.default_rng(0))
        assert (len(chosen.rows), chosen.audited.sum()) == (40, 0)


@pytest.mark.parametrize("choose", ["rejected", "drawn", "margin", "random"])
@pytest.mark.parametrize("audit", [0.0, 0.2, 1.0])
def test_never_more_than_there_are_nor_twice(choose, audit):
    for n in (1, 7, 499, 500, 900):
        chosen = select(n, choose, audit=audit)
        assert len(chosen) == min(n, 500)
        assert np.array_equal(chosen, np.unique(chosen))


def test_margins_of_every_kind_of_detector():
    rejectors = [
        InductiveEvaluator(make_pipeline(StandardScaler(), LogisticRegression())),
        InductiveEvaluator(GaussianNB()),
        TransductiveEvaluator(LinearSVC(), cv=3),
        ProbabilityThresholds(LogisticRegression()),
        CPReject(LinearSVC()),
    ]
    for rejector in rejectors:
        assert margins(rejector.fit(X[:1000], Y[:1000]), NEW).shape == (500,)
    cce = CrossConformalEvaluator(LinearSVC(), cv=3, random_state=0).fit(X[:1000], Y[:1000])
    each = [d.estimator.decision_function(NEW) for d in cce.detectors_]
    np.testing.assert_allclose(margins(cce, NEW), np.abs(np.mean(each, axis=0)))
    proba = GaussianNB().fit(X[:1000], Y[:1000])
    found = margins(InductiveEvaluator(GaussianNB(), random_state=0).fit(X[:1000], Y[:1000]), NEW)
    assert np.corrcoef(found, np.abs(proba.predict_proba(NEW) @ [1, -1]))[0, 1] > 0.9


def test_a_rejector_without_a_detector_has_no_margin():
    evolver = DroidEvolver(random_state=0).fit(X[:1000], Y[:1000])
    with pytest.raises(ValueError, match="DroidEvolver declares no detector"):
        margins(evolver, NEW)


@pytest.mark.parametrize(
    "options",
    [
        {"labels": 0},
        {"labels": 5, "every": 0},
        {"labels": 5, "choose": "best"},
        {"labels": 5, "audit": 20},
        {"labels": 5, "choose": "drawn", "apart": 0.1},
        {"labels": 5, "what": "all"},
        {"labels": 2.5},
        {"labels": True},
        {"labels": "30"},
        {"labels": 5, "every": 1.5},
        {"labels": 5, "audit": "0.2"},
    ],
)
def test_bad_budgets_are_refused(options):
    with pytest.raises(ValueError, match=r"at least 1|choose must|audit must be a|what must|draws"):
        Retraining(**options)


@pytest.mark.parametrize("choose", ["rejected", "margin", "random"])
def test_near_duplicates_are_labelled_once_while_there_are_others(choose):
    rows = np.repeat(NEW[:100], 5, axis=0) * np.tile([1.0, 1.1, 2.0, 0.5, 3.0], 100)[:, None]
    decisions = ICE.decide(rows)
    generator = np.random.default_rng(0)
    chosen = Retraining(40, choose, apart=0.01, audit=0).select(ICE, rows, decisions, generator).rows
    unit = rows[chosen] / np.linalg.norm(rows[chosen], axis=1, keepdims=True)
    similar = unit @ unit.T
    assert similar[~np.eye(40, dtype=bool)].max() <= 0.99 + 1e-9
    everything = Retraining(500, choose, apart=0.5).select(ICE, rows, decisions, generator).rows
    assert everything.tolist() == list(range(500))


def test_apart_is_a_distance():
    with pytest.raises(ValueError, match="cosine distance between 0 and 1"):
        Retraining(10, apart=2)


def test_apart_is_for_numbers():
    rows = NEW.copy()
    rows[3, 0] = np.nan
    with pytest.raises(ValueError, match="apart compares rows of numbers"):
        Retraining(10, apart=0.1).select(ICE, rows, DECISIONS, np.random.default_rng(0))
