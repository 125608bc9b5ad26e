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
from transcendent.temporal.labelling import Candidates, Chosen, Labels, joining, margins

X, Y = make_classification(1500, n_informative=6, flip_y=0.1, random_state=0)
ICE = InductiveEvaluator(LinearSVC(), random_state=0).fit(X[:1000], Y[:1000])
NEW = X[1000:]
DECISIONS = ICE.decide(NEW)


def candidates(rejector, X, decisions, generator):
    return Candidates(np.arange(len(X)), X, np.arange(len(X)), decisions, rejector, generator)


def select(n, choose, seed=0, audit=0.0):
    return (
        Retraining(n, choose, audit=audit)
        .select(candidates(ICE, NEW, DECISIONS, np.random.default_rng(seed)))
        .rows
    )


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
    chosen = Retraining(20, audit=0).select(candidates(cp, NEW, decisions, np.random.default_rng(0))).rows
    left = np.setdiff1d(np.flatnonzero(decisions.rejected), chosen)
    assert decisions.confidence[chosen].max() <= decisions.confidence[left].min()


def test_a_new_class_waits_until_there_is_enough_of_it():
    known, given = np.array([0] * 50 + [1] * 50), np.array([2] * 19 + [0] * 5)
    labels = Labels(np.arange(100, 124), given, np.ones(24, dtype=int))
    assert joining(labels, known).rows.tolist() == list(range(119, 124))
    given[19] = 2
    assert len(joining(labels, known).rows) == 24
    assert len(joining(labels.of(slice(0)), known).rows) == 0


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
        chosen = Retraining(100).select(candidates(ICE, NEW, DECISIONS, np.random.default_rng(seed)))
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
        chosen = Retraining(30, "drawn").select(candidates(ICE, NEW, DECISIONS, np.random.default_rng(seed)))
        draws[chosen.rows] += 1
        shares.append(np.sum(1 / chosen.probabilities))  # estimates the number of objects
    for group, n in ((DECISIONS.rejected, 24), (DECISIONS.accepted, 6)):
        low, high = binom.interval(1 - 0.001 / group.sum(), 2000, n / group.sum())
        assert np.all((draws[group] >= low) & (draws[group] <= high))
    np.testing.assert_allclose(shares, len(NEW))


def test_what_one_group_lacks_is_drawn_from_the_other():
    accepted = np.arange(500) < 490
    decisions = replace(DECISIONS, accepted=accepted)
    chosen = Retraining(40, "drawn").select(candidates(ICE, NEW, decisions, np.random.default_rng(0)))
    assert chosen.audited.sum() == 30
    np.testing.assert_allclose(chosen.probabilities, np.where(chosen.audited, 30 / 490, 1.0))
    none = replace(DECISIONS, accepted=np.zeros(500, dtype=bool))
    for choose in ("drawn", "rejected"):
        chosen = Retraining(40, choose).select(candidates(ICE, NEW, none, np.random.default_rng(0)))
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
        {"labels": 5, "delay": -1},
        {"labels": 5, "delay": 1.0},
        {"labels": 5, "noise": 1.1},
        {"labels": 5, "noise": "5%"},
    ],
)
def test_bad_budgets_are_refused(options):
    with pytest.raises(
        ValueError, match=r"at least [01]|choose must|noise must be a share|audit must be a|what must|draws"
    ):
        Retraining(**options)


def own(n, choose, **given):
    return Retraining(n, choose, **given).select(candidates(ICE, NEW, DECISIONS, np.random.default_rng(0)))


def test_a_function_chooses_and_the_audit_is_drawn_beside_it():
    confidence = DECISIONS.confidence
    chosen = own(40, lambda given: np.argsort(given.decisions.confidence), audit=0.25)
    first = np.sort(np.argsort(confidence)[:30])
    assert chosen.rows[~chosen.audited].tolist() == first.tolist()
    assert chosen.audited.sum() == 10
    assert DECISIONS.accepted[chosen.rows[chosen.audited]].all()
    assert np.isnan(chosen.probabilities[~chosen.audited]).all()
    assert own(40, lambda given: np.arange(10), audit=0).audited.sum() == 30
    same = own(40, lambda given: np.lexsort((given.decisions.ranking, given.decisions.accepted)))
    np.testing.assert_array_equal(same.rows, select(40, "rejected", audit=0.2))


def test_a_function_sees_no_labels():
    seen = []
    own(5, lambda given: seen.append(given._fields) or np.arange(5))
    assert seen == [("rows", "X", "times", "decisions", "rejector", "generator")]


@pytest.mark.parametrize(
    "given", [[0, 0], [500], [-1], [0.5], [[0, 1]], np.ones(500, dtype=bool), "rejected", None]
)
def test_a_choice_that_is_none_is_refused(given):
    with pytest.raises(ValueError, match="choose must return different positions among 500 candidates"):
        own(5, lambda _: given)


def asked(n=20_000, classes=3, **given):
    y = np.random.default_rng(1).integers(0, classes, n)
    chosen = Chosen(np.arange(n), None, y, np.arange(n), np.arange(classes), None)
    return y, Retraining(5, **given).ask(chosen, 4, seed=0)


def test_noise_is_a_share_of_labels_that_are_evenly_one_of_the_others():
    y, labels = asked(noise=0.2)
    wrong = labels.given != y
    low, high = binom.interval(0.999, len(y), 0.2)
    assert low <= wrong.sum() <= high
    for true in range(3):
        others = labels.given[wrong & (y == true)]
        low, high = binom.interval(0.999, len(others), 0.5)
        assert low <= (others == others[0]).sum() <= high
    np.testing.assert_array_equal(labels.given, asked(noise=0.2)[1].given)
    np.testing.assert_array_equal(asked(noise=0.0)[1].given, y)
    y, labels = asked(noise=1.0, classes=2)
    np.testing.assert_array_equal(labels.given, 1 - y)


def test_delays_are_counted_in_periods():
    assert set(asked()[1].since) == {5}
    assert set(asked(delay=3)[1].since) == {8}
    _, labels = asked(delay=lambda chosen: chosen.rows % 3)
    np.testing.assert_array_equal(labels.since, 5 + np.arange(20_000) % 3)
    assert labels.known(5).rows.tolist() == list(range(0, 20_000, 3))
    assert len(labels.known(4).rows) == 0
    most = np.iinfo(np.uint64).max  # as one says never
    for never in (np.iinfo(np.int64).max, int(most), lambda chosen: np.full(len(chosen.rows), most)):
        assert asked(delay=never)[1].since.min() > 10**6


def test_functions_of_delay_and_noise_have_randomness_of_their_own():
    drawn = {}

    def noise(chosen):
        drawn["noise"] = chosen.generator.random()
        return chosen.y

    def delay(chosen):
        drawn["delay"] = chosen.generator.random()
        return np.zeros(len(chosen.rows), dtype=int)

    asked(noise=noise, delay=delay)
    first = dict(drawn)
    asked(noise=noise)
    asked(delay=delay)
    assert drawn == first
    assert first["noise"] != first["delay"]


@pytest.mark.parametrize("given", [[0], [7] * 20_000, None])
def test_names_that_are_no_labels_are_refused(given):
    with pytest.raises(ValueError, match="noise must return one of the labels"):
        asked(noise=lambda _: given)


def test_a_mask_of_wrong_labels_is_no_label():
    with pytest.raises(ValueError, match="not which labels are wrong"):
        asked(noise=lambda chosen: chosen.y == 0)


@pytest.mark.parametrize("given", [[0], [0.5] * 20_000, [-1] * 20_000, None])
def test_delays_that_are_none_are_refused(given):
    with pytest.raises(ValueError, match="delay must return a whole number"):
        asked(delay=lambda _: given)


@pytest.mark.parametrize("choose", ["rejected", "margin", "random"])
def test_near_duplicates_are_labelled_once_while_there_are_others(choose):
    rows = np.repeat(NEW[:100], 5, axis=0) * np.tile([1.0, 1.1, 2.0, 0.5, 3.0], 100)[:, None]
    decisions = ICE.decide(rows)
    generator = np.random.default_rng(0)
    chosen = (
        Retraining(40, choose, apart=0.01, audit=0).select(candidates(ICE, rows, decisions, generator)).rows
    )
    unit = rows[chosen] / np.linalg.norm(rows[chosen], axis=1, keepdims=True)
    similar = unit @ unit.T
    assert similar[~np.eye(40, dtype=bool)].max() <= 0.99 + 1e-9
    everything = Retraining(500, choose, apart=0.5).select(candidates(ICE, rows, decisions, generator)).rows
    assert everything.tolist() == list(range(500))


def test_apart_is_a_distance():
    with pytest.raises(ValueError, match="cosine distance between 0 and 1"):
        Retraining(10, apart=2)


def test_apart_is_for_numbers():
    rows = NEW.copy()
    rows[3, 0] = np.nan
    with pytest.raises(ValueError, match="apart compares rows of numbers"):
        Retraining(10, apart=0.1).select(candidates(ICE, rows, DECISIONS, np.random.default_rng(0)))
