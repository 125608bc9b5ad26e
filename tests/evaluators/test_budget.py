"""A budget holds, by the period and by the stream, whatever the objects are."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator
from sklearn.datasets import make_classification
from sklearn.svm import LinearSVC

from transcendent import Decisions, InductiveEvaluator, RejectionBudget, StreamingBudget
from transcendent.artifacts import save
from transcendent.artifacts.sandbox import Access
from transcendent.batch import decide_table
from transcendent.batch.in_memory import decide_file
from transcendent.errors import ArtifactError
from transcendent.temporal import backtest

N = 6000
TIME = np.linspace(0, 1, N)
RNG = np.random.default_rng(0)
STREAMS = {
    "exchangeable": RNG.random(N),
    "falling": 1 - TIME,
    "rising": TIME,
    "all tied": np.zeros(N),
    "mostly tied": RNG.integers(0, 2, N) * (RNG.random(N) < 0.05),
    "fallen": np.where(TIME < 0.5, 0.9, 0.1) + RNG.random(N) / 10,
    "waves": np.sin(40 * TIME) / 2 + 0.5,
}


class Given(BaseEstimator):
    """A rejector whose rows are credibility and confidence, so that neither depends on the batch."""

    def __init__(self, ranked_by="credibility"):
        self.ranked_by = ranked_by

    def fit(self, X, y):
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, X):
        return np.zeros(len(X), dtype=int)

    def decide(self, X):
        credibility, confidence = np.asarray(X, dtype=float).T
        return Decisions(
            labels=self.predict(X),
            accepted=credibility > 2,
            credibility=credibility,
            confidence=confidence,
            classes=self.classes_,
            ranked_by=self.ranked_by,
        )


def rows(credibility, confidence=0.0):
    return np.column_stack([credibility, np.broadcast_to(confidence, len(credibility))])


def started(rate, window, **params):
    return StreamingBudget(Given(**params), rate=rate, window=window).fit(None, None)


def rejected_in_parts(budget, X, sizes):
    cuts = np.cumsum(sizes)
    return np.concatenate([budget.decide(part).rejected for part in np.split(X, cuts) if len(part)])


class Bare:
    """A rejector with nothing of scikit-learn."""

    def fit(self, X, y):
        self.given = Given().fit(X, y)
        return self

    def predict(self, X):
        return self.given.predict(X)

    def decide(self, X):
        return self.given.decide(X)


class TestPeriods:
    def test_a_rejector_of_ones_own_needs_nothing_of_scikit_learn(self, tmp_path):
        bare, X = Bare(), rows(STREAMS["falling"])
        held = RejectionBudget(bare, rate=0.1).fit(X, None)
        assert held.decide(X).rejection_rate == 0.1
        assert not hasattr(bare, "given")
        with pytest.raises(ArtifactError, match=r"Bare cannot be saved: derive .*BaseEstimator"):
            save(bare, tmp_path / "bare")
        with pytest.raises(TypeError, match="is not a rejector, an instance"):
            RejectionBudget(Bare, rate=0.1).fit(X, None)

    @pytest.mark.parametrize("budget", [{"rate": 0.1}, {"count": 1}])
    def test_one_object_is_no_period(self, budget):
        held = RejectionBudget(Given(), **budget).fit(None, None)
        with pytest.raises(ValueError, match=r"cannot choose among 1 object.*StreamingBudget"):
            held.decide(rows([0.5]))

    def test_each_call_is_a_period_of_its_own(self):
        held = RejectionBudget(Given(), rate=0.1).fit(None, None)
        X = rows(STREAMS["falling"])
        assert [int(held.decide(part).rejected.sum()) for part in np.split(X, [2000])] == [200, 400]


class TestStreams:
    @pytest.mark.parametrize("stream", STREAMS)
    @pytest.mark.parametrize(("rate", "window"), [(0.1, 1000), (0.1, 10), (0.02, 300), (0.5, 2), (0.9, 60)])
    def test_the_budget_holds_at_every_object(self, stream, rate, window):
        rejected = started(rate, window).decide(rows(STREAMS[stream])).rejected
        owed = np.cumsum(rejected) - rate * np.arange(1, N + 1)
        assert np.abs(owed).max() < window * min(rate, 1 - rate) + 1
        none_or_all = 2 * window + 2 / min(rate, 1 - rate)
        same = np.diff(np.flatnonzero(np.diff(rejected, prepend=~rejected[0], append=~rejected[-1])))
        assert same.max() <= none_or_all

    @pytest.mark.parametrize("stream", ["exchangeable", "all tied", "mostly tied"])
    def test_it_is_nearer_where_nothing_drifts(self, stream):
        rejected = started(0.1, 1000).decide(rows(STREAMS[stream])).rejected
        assert np.abs(np.cumsum(rejected) - 0.1 * np.arange(1, N + 1)).max() < 25

    @given(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=60),
        st.sampled_from([(0.1, 10), (0.25, 8), (0.5, 2), (0.8, 20)]),
        st.data(),
    )
    def test_cuts_do_not_matter(self, objects, budget, data):
        X = np.array(objects) / 4
        sizes = data.draw(st.lists(st.integers(0, 20), max_size=10))
        whole = started(*budget).decide(X).rejected
        np.testing.assert_array_equal(rejected_in_parts(started(*budget), X, sizes), whole)
        np.testing.assert_array_equal(rejected_in_parts(started(*budget), X, [1] * len(X)), whole)
        rate, window = budget
        owed = np.cumsum(whole) - rate * np.arange(1, len(X) + 1)
        assert np.abs(owed).max() < window * min(rate, 1 - rate) + 1

    def test_the_least_credible_are_rejected(self):
        credibility = STREAMS["exchangeable"]
        rejected = started(0.1, 1000).decide(rows(credibility)).rejected
        lowest = np.sort(credibility)[: rejected.sum()]
        assert credibility[rejected].mean() < 1.1 * lowest.mean()

    def test_what_ties_is_told_apart_by_confidence(self):
        confidence = STREAMS["exchangeable"]
        for X, ranked_by in (
            (rows(np.zeros(N), confidence), "credibility"),
            (rows(confidence, 0.0), "confidence"),
        ):
            rejected = started(0.1, 1000, ranked_by=ranked_by).decide(X).rejected
            assert confidence[rejected].mean() < 0.06

    def test_it_compares_with_the_window_only(self):
        """After a window of lower objects, earlier higher ones no longer make an object look low."""
        X = rows(np.concatenate([np.full(500, 0.9), np.full(100, 0.1)]))
        budget = started(0.1, 100)
        budget.decide(X)
        np.testing.assert_array_equal(budget.recent_, X[-99:])

    def test_a_call_that_fails_changes_nothing(self):
        budget = started(0.1, 100)
        budget.decide(rows(STREAMS["waves"][:50]))
        before = budget.decided_, budget.rejected_, budget.recent_.tolist()
        with pytest.raises(ValueError, match="could not convert"):
            budget.decide([["a", "b"]])
        budget.predict(rows([0.1]))
        assert (budget.decided_, budget.rejected_, budget.recent_.tolist()) == before

    def test_it_resumes_from_its_state(self):
        X = rows(STREAMS["waves"])
        budget = started(0.1, 100)
        budget.decide(X[:777])
        copy = pickle.loads(pickle.dumps(budget))
        state = json.loads(json.dumps([budget.decided_, budget.rejected_, budget.recent_.tolist()]))
        restored = started(0.1, 100)
        restored.decided_, restored.rejected_, restored.recent_ = state[0], state[1], np.array(state[2])
        expected = budget.decide(X[777:]).accepted
        np.testing.assert_array_equal(copy.decide(X[777:]).accepted, expected)
        np.testing.assert_array_equal(restored.decide(X[777:]).accepted, expected)

    @pytest.mark.parametrize("rate", [0, 1, 0.0, 1.5, -0.1, None, float("nan")])
    def test_a_rate_is_a_share(self, rate):
        with pytest.raises(ValueError, match="between 0 and 1"):
            started(rate, 100)

    @pytest.mark.parametrize(("rate", "window"), [(0.1, 9), (0.9, 9), (0.5, 1), (0.1, 50.5), (0.5, True)])
    def test_a_window_holds_a_budget(self, rate, window):
        with pytest.raises(ValueError, match="window"):
            started(rate, window)
        started(1 / 49, 49)

    def test_in_a_backtest_the_stream_runs_on_from_period_to_period(self):
        X, y = make_classification(1200, random_state=0)
        times = np.datetime64("2020-01-01") + np.arange(1200)
        ice = InductiveEvaluator(LinearSVC(), random_state=0)
        budget = StreamingBudget(ice, rate=0.1, window=100)
        result = backtest(
            budget, X, y, times, train="2021-01", period="week", allow="few_positives", verbose=False
        )
        fitted = budget.fit(X[:366], y[:366])
        accepted = fitted.decide(X[366:]).accepted
        np.testing.assert_array_equal(result.answers["StreamingBudget"].accepted, accepted)

    def test_it_calibrates_on_the_most_recent_rows_if_its_evaluator_does(self):
        X, y = make_classification(1200, random_state=0)
        times = np.datetime64("2020-01-01") + np.random.default_rng(0).permutation(1200)
        ice = InductiveEvaluator(LinearSVC(), random_state=0)
        recent = ice.fit(X, y, times=times).calibration_rows_[0]
        for budget in (StreamingBudget(ice, rate=0.1), RejectionBudget(ice, rate=0.1)):
            found = budget.fit(X, y, times=times).rejector_.calibration_rows_[0]
            np.testing.assert_array_equal(found, recent)
            given = {"train": "2022", "chronological": True, "allow": ("few_positives",), "verbose": False}
            result = backtest({"budget": budget, "ICE": ice}, X, y, times, **given)
            held, alone = result.answers["budget"], result.answers["ICE"]
            np.testing.assert_array_equal(held.credibility, alone.credibility)

    def test_a_table_cannot_be_decided_in_parts(self, tmp_path):
        with pytest.raises(ValueError, match="cannot be decided in parts"):
            decide_table(started(0.1, 100), tmp_path / "table", tmp_path / "out")

    @pytest.mark.slow
    def test_a_command_does_not_forget_the_stream(self, tmp_path):
        X, y = make_classification(200, random_state=0)
        ice = InductiveEvaluator(LinearSVC(), random_state=0)
        save(StreamingBudget(ice, rate=0.1).fit(X, y), tmp_path / "stream.transcendent")
        np.savez(tmp_path / "rows.npz", X=X)
        with pytest.raises(ValueError, match="changes with each decision"):
            decide_file(tmp_path / "stream.transcendent", tmp_path / "rows.npz", Access())
