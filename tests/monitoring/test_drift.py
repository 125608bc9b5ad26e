"""The monitor of drift."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.stats import binom
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from tests.monitoring.answers import objects
from transcendent import (
    Answers,
    CrossConformalEvaluator,
    ExactSearch,
    GuaranteedSearch,
    InductiveEvaluator,
    RejectionBudget,
    ScoreEvaluator,
    StreamingBudget,
)
from transcendent.errors import CalibrationError
from transcendent.measures import NeighbourDistance, NeighbourRatio, SecondOpinion
from transcendent.measures.combined import CombinedMeasure
from transcendent.monitoring import DriftMonitor, HarmMonitor
from transcendent.monitoring.movers import Features
from transcendent.thresholds.guaranteed import held_out_mask


@pytest.fixture(scope="module")
def rows():
    return make_classification(5000, n_informative=6, flip_y=0.1, weights=[0.8], random_state=0)


@pytest.fixture(scope="module")
def ice(rows):
    X, y = rows
    return InductiveEvaluator(LinearSVC(), random_state=0, verbose=False).fit(X[:2000], y[:2000])


def drifting(rows):
    X, _ = rows
    return np.vstack([X[2000:3500], X[3500:] * 0.4])


def test_decisions_are_those_of_the_rejector(ice, rows):
    found, expected = DriftMonitor.of(ice).update(rows[0][2000:]), ice.decide(rows[0][2000:])
    for name, column in expected.columns().items():
        assert np.array_equal(found.columns()[name], column), name


@pytest.mark.parametrize("make", [RejectionBudget, StreamingBudget])
def test_of_a_budget_the_evaluator_is_watched_and_the_budget_decides(make, ice, rows):
    X, y = rows
    fitted = make(InductiveEvaluator(LinearSVC(), random_state=0, verbose=False), rate=0.1)
    fitted.fit(X[:2000], y[:2000])
    monitor, alone = DriftMonitor.of(fitted, X=X[:2000]), DriftMonitor.of(ice, X=X[:2000])
    expected = make(ice, rate=0.1).fit(X[:2000], y[:2000])
    for part in np.array_split(drifting(rows), 3):
        found, same = monitor.update(part), expected.decide(part)
        np.testing.assert_array_equal(found.accepted, same.accepted)
        alone.update(part)
        state = monitor.to_json()
        assert state == alone.to_json()
        monitor = DriftMonitor.from_json(state, fitted)
    assert monitor.alarm is not None
    assert monitor.alarm == alone.alarm
    assert monitor.rejections.rate > 0.2
    assert "without the budget: " in repr(monitor)
    assert monitor.watches_budget
    assert not alone.watches_budget
    assert "without" not in repr(alone)
    assert monitor.plot().axes_[1].get_ylabel() == "below thresholds"


def test_a_period_that_is_too_small_for_its_budget_leaves_the_monitor_as_it_was(ice, rows):
    X, y = rows
    budget = RejectionBudget(InductiveEvaluator(LinearSVC(), random_state=0), rate=0.1)
    monitor = DriftMonitor.of(budget.fit(X[:2000], y[:2000]), X=X[:2000])
    monitor.update(X[2000:2500])
    before = monitor.to_json()
    with pytest.raises(ValueError, match="cannot choose among 3"):
        monitor.update(X[2500:2503])
    assert monitor.to_json() == before


def test_scores_and_rows_are_the_same_stream(ice, rows):
    by_rows, by_scores = DriftMonitor.of(ice), DriftMonitor.of(ice)
    by_rows.update(rows[0][2000:])
    by_scores.update(ice.answer(rows[0][2000:]))
    assert by_rows.to_json() == by_scores.to_json()


@pytest.mark.parametrize("rule", ["ville", "cusum", "shiryaev-roberts"])
@pytest.mark.parametrize("betting", ["jumper", "mixture"])
def test_an_alarm_after_a_change_and_none_before(ice, rows, betting, rule):
    monitor = DriftMonitor.of(ice, betting=betting, rule=rule, threshold=1e4)
    stream = drifting(rows)
    monitor.update(stream[:1500])
    assert monitor.alarm is None
    monitor.update(stream[1500:])
    assert 1500 < monitor.alarm.at <= 3000
    assert monitor.n == 3000
    assert max(monitor.log_values.values()) > np.log(1e4)
    assert set(monitor.alarms) <= {0, 1}


def test_any_batches_and_a_restart_at_any_position_change_nothing(ice, rows):
    stream = drifting(rows)
    whole = DriftMonitor.of(ice, X=rows[0][:2000])
    whole.update(stream)
    part = DriftMonitor.of(ice, X=rows[0][:2000])
    for some in np.split(stream, np.sort(np.random.default_rng(0).choice(3000, 50, replace=False))):
        part = DriftMonitor.from_json(part.to_json(), ice)
        part.update(some)
    assert part.to_json() == whole.to_json()
    assert part.history.n == 3000
    assert len(part.history.columns["log_value"]) <= 512


@pytest.mark.slow
def test_a_restart_at_every_position(ice, rows):
    stream = drifting(rows)[1300:1700]
    whole = DriftMonitor.of(ice, threshold=20)
    whole.update(stream)
    part = DriftMonitor.of(ice, threshold=20)
    for i in range(len(stream)):
        part = DriftMonitor.from_json(part.to_json(), ice)
        part.update(stream[i : i + 1])
    assert part.to_json() == whole.to_json()
    assert part.alarm is not None


@pytest.mark.parametrize("fed_with", ["own p-values", "credibility"])
def test_false_alarms_are_as_rare_as_said(fed_with):
    """Credibility is not uniform without drift: fed with it, the same bets raise false alarms."""
    rng, runs, false = np.random.default_rng(1), 60, 0
    for seed in range(runs):
        judge = ScoreEvaluator().fit(*objects(rng, 800))
        answers, _ = objects(rng, 2000)
        monitor = DriftMonitor.of(judge, threshold=20, random_state=seed)
        if fed_with == "credibility":
            monitor._evidence.update(answers.labels, judge.decide(answers).credibility)
        else:
            monitor.update(answers)
        false += monitor.alarm is not None
    bound = binom.ppf(0.9999, runs, 1 / 20)
    assert (false > bound) == (fed_with == "credibility")


@pytest.mark.slow
def test_false_alarms_of_merged_measures_and_guaranteed_thresholds():
    rng, runs, false = np.random.default_rng(2), 60, 0
    for seed in range(runs):
        answers, y = objects(rng, 3600)
        scores = answers.scores
        both = Answers(answers.labels, np.stack([scores, scores + rng.normal(size=scores.shape)], axis=-1))
        judge = ScoreEvaluator(search=GuaranteedSearch(0.3), bag="all")
        judge.fit(both[:1600], y[:1600])
        monitor = DriftMonitor.of(judge, threshold=20, random_state=seed)
        monitor.update(both[1600:])
        false += monitor.alarm is not None
    assert false <= binom.ppf(0.9999, runs, 1 / 20)


def test_rejections_beyond_calibration_raise_an_alarm(ice, rows):
    monitor = DriftMonitor.of(ice)
    monitor.update(rows[0][2000:3500])
    assert monitor.rejections.alarm is None
    assert monitor.rejections.rate == pytest.approx(ice.decide(rows[0][2000:3500]).rejected.mean())
    monitor.update(np.tile(rows[0][3500:] * 0.05, (3, 1)))
    assert monitor.rejections.alarm.at > 1500
    assert "ALARM" in repr(monitor)
    assert len(repr(monitor).splitlines()) == 3


def test_what_moved_by_name(rows):
    X, y = rows
    frame = pd.DataFrame(X[:, :6], columns=list("abcdef"))
    ice = InductiveEvaluator(LogisticRegression(), random_state=0, verbose=False).fit(frame[:2000], y[:2000])
    monitor = DriftMonitor.of(ice, X=frame[:2000])
    monitor.update(frame[2000:].assign(d=frame["d"] + frame["d"].std()))
    movers = monitor.movers(3)
    assert movers.names[0] == "d"
    assert movers.effect[0] == pytest.approx(1, abs=0.1)
    assert movers.p_values[0] < 1e-10
    assert len(movers.names) == 3
    assert "moved by" in str(movers)
    with pytest.raises(ValueError, match="X=rows"):
        DriftMonitor.of(ice).movers()


def test_sparse_and_dense_rows_move_alike(rows):
    X, y = (rows[0] > 0.5).astype(float), rows[1]
    ice = InductiveEvaluator(LinearSVC(), random_state=0, verbose=False).fit(X[:2000], y[:2000])
    dense, sparse = (DriftMonitor.of(ice, X=kind(X[:2000])) for kind in (np.asarray, sp.csr_array))
    dense.update(X[2000:])
    sparse.update(sp.csr_array(X[2000:]))
    np.testing.assert_allclose(dense.movers(5).effect, sparse.movers(5).effect, rtol=1e-12)


def test_movers_of_odd_columns():
    rng = np.random.default_rng(0)
    rows = {"far": 1.7e9 + rng.normal(size=400), "huge": rng.normal(size=400) * 1e200, "text": ["a"] * 400}
    frame = pd.DataFrame(rows | {"some": rng.normal(size=400), "gone": rng.normal(size=400)})
    frame.loc[3, ["some", "gone"]] = np.inf
    features = Features.of(frame[:200])
    later = frame[200:].assign(far=frame["far"] + 5, gone=np.nan)
    later["some"] = pd.array([None, *later["some"][1:]], dtype="Float64")
    features.update(later)
    movers = features.movers(4)
    assert movers.names.tolist()[:2] == ["gone", "far"]
    assert movers.effect[1] == pytest.approx(5, rel=0.2)
    assert movers.p_values[1] < 1e-10
    assert (
        Features.from_json(json.loads(json.dumps(features.to_json(), allow_nan=False))).movers(4).names[0]
        == "gone"
    )
    with pytest.raises(ValueError, match="1 features, the monitor started with 4"):
        features.update(frame[["far"]])


def test_small_moves_of_few_objects_are_not_significant():
    rng, low = np.random.default_rng(0), 0
    for _ in range(200):
        features = Features.of(rng.normal(size=(500, 7)))
        features.update(rng.normal(size=(1, 7)))
        low += features.movers(1).p_values[0] <= 0.05
    assert low <= binom.ppf(0.9999, 200, 0.05)


def test_measures_of_all_kinds_are_monitored(rows):
    X, y = rows
    for measure in ("auto", NeighbourRatio(3), CombinedMeasure(["auto", NeighbourDistance(1)], bag="all")):
        ice = InductiveEvaluator(LinearSVC(), measure=measure, random_state=0, verbose=False)
        monitor = DriftMonitor.of(ice.fit(X[:1500], y[:1500]))
        monitor.update(X[1500:2500])
        assert monitor.alarm is None


def test_what_cannot_be_monitored_is_refused(ice, rows):
    X, y = rows
    cce = CrossConformalEvaluator(LinearSVC(), cv=3, verbose=False).fit(X[:500], y[:500])
    with pytest.raises(ValueError, match="not CrossConformalEvaluator"):
        DriftMonitor.of(cce)
    judge = ScoreEvaluator().fit(*objects(np.random.default_rng(0), 500))
    with pytest.raises(TypeError, match=r"Answers\(labels, scores\)"):
        DriftMonitor.of(judge).update(X)
    for wrong, match in (
        ({"betting": "martingale"}, "betting must be one of"),
        ({"rule": "page"}, "rule must be one of"),
        ({"threshold": 1}, "more than 1"),
    ):
        with pytest.raises(ValueError, match=match):
            DriftMonitor.of(ice, **wrong)
    with pytest.raises(ValueError, match="features"):
        DriftMonitor.of(ice).update(X[:, :5])
    with pytest.raises(ValueError, match="features"):
        DriftMonitor.of(ice, X=X[:, :5])
    with pytest.raises(ValueError, match="0 samples"):
        DriftMonitor.of(ice).update(X[:0])
    for wrong in ({"random_state": None}, {"threshold": "100"}, {"threshold": np.inf}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            DriftMonitor.of(ice, **wrong)
    broken = X.copy()
    broken[3, 2] = np.nan
    with pytest.raises(ValueError, match="row 3"):
        DriftMonitor.of(ice).update(broken)


class RejectsAll(InductiveEvaluator):
    def decide(self, rows):
        return super().decide(rows).within_budget(1.0)


def test_rejectors_that_decide_otherwise_are_not_monitored(rows):
    X, y = rows
    with pytest.raises(ValueError, match="an unchanged decide"):
        DriftMonitor.of(RejectsAll(LinearSVC(), random_state=0, verbose=False).fit(X[:500], y[:500]))


@pytest.mark.parametrize("change", ["rethreshold", "recalibrate", "learn"])
def test_a_rejector_that_changed_is_noticed(rows, change):
    X, y = rows
    opinion = SecondOpinion(LogisticRegression())
    ice = InductiveEvaluator(LinearSVC(), measure=opinion, random_state=0, verbose=False).fit(
        X[:900], y[:900]
    )
    monitor = DriftMonitor.of(ice)
    monitor.update(X[900:1000])
    state = monitor.to_json()
    if change == "rethreshold":
        ice.rethreshold(ExactSearch("f1", max_rejection=0.4))
    elif change == "recalibrate":
        ice.recalibrate(X[900:1800], y[900:1800])
    else:
        ice.learn(X[:1500], y[:1500])
    with pytest.raises(ValueError, match="start a new one"):
        monitor.update(X[1000:1100])
    with pytest.raises(ValueError, match="another rejector"):
        DriftMonitor.from_json(state, ice)


def test_few_objects_of_a_class_are_named():
    answers, y = objects(np.random.default_rng(0), 500)
    y[:], y[0] = 0, 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        judge = ScoreEvaluator(search="accuracy").fit(answers, y)
    seed = next(seed for seed in range(20) if held_out_mask(500, seed)[0])
    with pytest.raises(CalibrationError, match=r"a monitor compares with 30%.* has the label \[1\]"):
        DriftMonitor.of(judge, random_state=seed)


def test_frames_keep_their_index(rows):
    frame = pd.DataFrame(rows[0][:800], index=[f"r{i}" for i in range(800)]).add_prefix("f")
    ice = InductiveEvaluator(LinearSVC(), random_state=0, verbose=False).fit(frame, rows[1][:800])
    assert DriftMonitor.of(ice).update(frame[:5]).to_pandas().index.tolist() == list(frame.index[:5])


def test_states_of_others_are_refused(ice):
    other = ScoreEvaluator().fit(*objects(np.random.default_rng(0), 500))
    state = DriftMonitor.of(ice).to_json()
    with pytest.raises(ValueError, match="another rejector"):
        DriftMonitor.from_json(state, other)
    with pytest.raises(ValueError, match="format 99"):
        DriftMonitor.from_json(json.dumps(json.loads(state) | {"format": 99}), ice)
    for text in (
        "[]",
        "{}",
        state[:50],
        state.replace("DriftMonitor", "HarmMonitor"),
        HarmMonitor(0.1).to_json(),
    ):
        with pytest.raises(ValueError, match="not the state"):
            DriftMonitor.from_json(text, ice)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("counts",), [[1, 2]]),
        (("counts", 0, 0), -1),
        (("counts", 0, 0), 1.5),
        (("counts", 0, 0), 10**30),
        (("evidence",), []),
        (("evidence", "members"), []),
        (("evidence", "members", 0, "martingale", "n"), -3),
        (("evidence", "members", 0, "martingale", "log_base"), float("nan")),
        (("rejections", "n"), -500),
        (("history", "every"), 0),
        (("settings",), {"betting": "jumper"}),
    ],
)
def test_damaged_states_are_refused(ice, path, value):
    monitor = DriftMonitor.of(ice)
    monitor.update(Answers([0, 0, 1], np.zeros((3, 2))))
    state = json.loads(monitor.to_json())
    place = state
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(ValueError, match=r"damaged|not the state"):
        DriftMonitor.from_json(json.dumps(state), ice)


@pytest.mark.slow
def test_states_with_any_part_damaged_are_refused(ice):
    """Each field missing, of another type or out of range: no monitor resumes from a damaged state."""
    monitor = DriftMonitor.of(ice, X=np.eye(20))
    monitor.update(Answers([0, 0, 1], np.zeros((3, 2))))
    text = monitor.to_json()
    DriftMonitor.from_json(text, ice)
    tried = 0
    for path in _paths(json.loads(text)):
        for value in (..., None, True, -7, 10**400, 1e999, "x", [], {}):
            state = json.loads(text)
            place = state
            for key in path[:-1]:
                place = place[key]
            if value == place[path[-1]] or (value is None and path[-1] in ("alarm", "features")):
                continue
            if path[-2:] == ("settings", "random_state") or (value == -7 and _may_be_negative(path)):
                continue
            if value is ...:
                del place[path[-1]]
            else:
                place[path[-1]] = value
            tried += 1
            with pytest.raises(ValueError, match=r"."):
                DriftMonitor.from_json(json.dumps(state).replace("Infinity", "1e999"), ice)
    assert tried > 300


def _paths(state, *before):
    for key, value in state.items() if isinstance(state, dict) else enumerate(state):
        yield (*before, key)
        if isinstance(value, dict) or (isinstance(value, list) and len(value) < 20):
            yield from _paths(value, *before, key)


def _may_be_negative(path):
    return {"log_value", "log_base", "log_starts", "names", "history"} & set(path) or path[-2:-1] in (
        (0,),
        (2,),
    )


def test_a_state_deeper_than_any(ice):
    for text in ("[" * 100_000, '{"kind": ' * 100_000):
        with pytest.raises(ValueError, match="not the state of a DriftMonitor"):
            DriftMonitor.from_json(text, ice)


def test_seeds_of_any_whole_number_type(ice):
    monitor = DriftMonitor.of(ice, random_state=np.int64(3), threshold=np.float32(50))
    assert DriftMonitor.from_json(monitor.to_json(), ice).settings == monitor.settings
