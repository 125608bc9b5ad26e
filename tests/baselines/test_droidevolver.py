"""DroidEvolver, set against a slow one that follows the paper literally."""

import math
import time
from copy import deepcopy

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from transcendent import Decisions, Rejector
from transcendent.baselines.droidevolver import DroidEvolver, _Learners, _rows

NAMES = ["PA", "OGD", "AROW", "RDA", "Ada-FOBOS"]


def dot(w, x):
    total = 0.0
    for a, b in zip(w.tolist(), x.tolist(), strict=True):
        total += a * b
    return total


def shrink(w, by):
    return np.where(w > by, w - by, np.where(w < -by, w + by, 0.0))


class Literal:
    """One learner with all of its weights written out, every one of them updated at every step."""

    def __init__(self, name, width):
        self.name, self.t = name, 0
        self.w, self.sigma, self.G, self.h = np.zeros(width), np.ones(width), np.zeros(width), np.zeros(width)

    def learn(self, x, y):
        self.t += 1
        loss = max(0.0, 1 - y * dot(self.w, x))
        suffers = loss > 0
        if self.name == "PA":
            self.w = self.w + min(1.0, loss / dot(x, x)) * y * x
        elif self.name == "OGD" and suffers:
            self.w = self.w + 1 / math.sqrt(self.t) * y * x
        elif self.name == "AROW" and suffers:
            beta = 1 / (dot(self.sigma, x**2) + 1)
            self.w = self.w + loss * beta * y * (self.sigma * x)
            self.sigma = self.sigma - beta * (self.sigma * x) ** 2
        elif self.name == "RDA":
            self.G = self.G - (y * x if suffers else 0)
            mean = self.G / self.t
            self.w = -math.sqrt(self.t) * np.sign(mean) * np.maximum(np.abs(mean) - 1e-4, 0)
        elif self.name == "Ada-FOBOS":
            g = -y * x if suffers else 0 * x
            self.h = self.h + g**2
            rate = 1 / (10 + np.sqrt(self.h))
            self.w = shrink(self.w - rate * g, 1e-4 * rate)


class LiteralEvolver:
    """The whole of it, row by row; y is 0 or 1."""

    def __init__(self, buffer_size, healthy, seed):
        self.size, self.healthy = buffer_size, healthy
        self.generator = np.random.default_rng(np.random.RandomState(seed).randint(np.iinfo(np.int32).max))

    def fit(self, X, y):
        X = np.column_stack([X, np.ones(len(X))])
        self.learners = [Literal(name, X.shape[1]) for name in NAMES]
        for x, label in zip(X, y, strict=True):
            for learner in self.learners:
                learner.learn(x, 1 if label else -1)
        drawn = self.generator.integers(len(X), size=self.size)
        self.buffer = [[dot(m.w, X[i]) for m in self.learners] for i in drawn]
        return self

    def decide(self, X):
        X = np.column_stack([X, np.ones(len(X))])
        places = self.generator.integers(self.size, size=len(X))
        return [self.decide_one(x, place) for x, place in zip(X, places, strict=True)]

    def decide_one(self, x, place):
        scores = [dot(m.w, x) for m in self.learners]
        self.buffer[place] = scores
        aging = [self.is_aging(m, s) for m, s in enumerate(scores)]
        n_aging = sum(aging)
        total = 0.0
        for s, old in zip(scores, aging, strict=True):
            if n_aging == 5 or not old:
                total += s
        label = int(total > 0)
        if 0 < n_aging < 5:
            for learner, old in zip(self.learners, aging, strict=True):
                if old:
                    learner.learn(x, 1 if label else -1)
        votes = sum(not old and int(s > 0) == label for s, old in zip(scores, aging, strict=True))
        return scores, label, n_aging == 0, votes

    def is_aging(self, m, s):
        column = [entry[m] for entry in self.buffer]
        if s > 0:
            side = [b for b in column if b > 0]
            indicator = sum(b <= s for b in side) / len(side)
        else:
            side = [b for b in column if b <= 0]
            indicator = sum(b >= s for b in side) / len(side)
        return not self.healthy[0] <= indicator <= self.healthy[1]


def stream(n, width=30, seed=0):
    """Sparse rows of zeros and ones whose class moves from some columns to others."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    moved = np.linspace(0, 0.8, n)[:, None]
    early, late = rng.uniform(0.05, 0.4, size=(2, 2, width))
    X = (rng.random((n, width)) < (1 - moved) * early[y] + moved * late[y]).astype(float)
    return X, y


def fitted(n=300, seed=0, **options):
    X, y = stream(2 * n, seed=seed)
    options = {"buffer_size": 50, "random_state": seed} | options
    return DroidEvolver(**options).fit(X[:n], y[:n]), X[n:], y[n:]


def recorded(evolver, X):
    """The decisions, and the scores behind them."""
    scores = deepcopy(evolver._pool).evolve(X, evolver.healthy)[1]
    return evolver.decide(X), scores


def assert_same(one, other):
    for name in ("labels", "accepted", "credibility", "confidence", "p_values", "votes"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def assert_as_literal(X, y, n, buffer_size, healthy, seed):
    evolver = DroidEvolver(buffer_size=buffer_size, healthy=healthy, random_state=seed).fit(
        sp.csr_array(X[:n]), y[:n]
    )
    decisions, scores = recorded(evolver, sp.csr_array(X[n:]))
    literal = LiteralEvolver(buffer_size, healthy, seed).fit(X[:n], y[:n]).decide(X[n:])
    expected_scores, labels, accepted, votes = (np.array(part) for part in zip(*literal, strict=True))
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(decisions.labels, labels)
    np.testing.assert_array_equal(decisions.accepted, accepted)
    np.testing.assert_array_equal(decisions.votes, votes)
    return decisions


@pytest.mark.parametrize("healthy", [(0.3, 0.7), (0.05, 0.95)])
@pytest.mark.parametrize("seed", range(4))
def test_answers_as_the_literal_one(seed, healthy):
    X, y = stream(700, seed=seed)
    decisions = assert_as_literal(X, y, 300, 60, healthy, seed)
    assert 0 < decisions.accepted.sum() < len(decisions)


def test_answers_as_the_literal_one_on_real_numbers():
    X, y = stream(500, seed=9)
    assert_as_literal(X * np.random.default_rng(9).normal(1, 0.5, X.shape), y, 250, 40, (0.2, 0.8), 9)


@settings(max_examples=60, derandomize=True)
@given(
    seed=st.integers(0, 2**31 - 1),
    n=st.integers(2, 20),
    more=st.integers(1, 20),
    width=st.integers(1, 6),
    buffer_size=st.integers(1, 12),
    low=st.floats(0, 0.5),
    high=st.floats(0.5, 1),
)
def test_answers_as_the_literal_one_on_tiny_streams(seed, n, more, width, buffer_size, low, high):
    X, y = stream(n + more, width=width, seed=seed)
    y[:2] = [0, 1]
    assert_as_literal(X, y, n, buffer_size, (low, high), seed)


@pytest.mark.parametrize("learner", range(5), ids=NAMES)
def test_each_learner_alone_separates_easy_rows(learner):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=2000)
    X = (rng.random((2000, 40)) < np.where(np.arange(40) % 2 == y[:, None], 0.5, 0.1)).astype(float)
    learners, rows = _Learners(41), list(_rows(X))
    for row, label in zip(rows[:1000], y[:1000], strict=True):
        learners.learn([learner], row, 1.0 if label else -1.0, learners.scores(row))
    answers = [learners.scores(row)[learner] > 0 for row in rows[1000:]]
    assert np.mean(answers == y[1000:]) > 0.95
    others = np.delete(learners.weights, learner, axis=1)
    assert not others.any()


def test_two_halves_are_one_call():
    whole, X, _ = fitted()
    halves = deepcopy(whole)
    at_once = whole.decide(X)
    for half in (slice(None, 101), slice(101, None)):
        assert_same(halves.decide(X[half]), at_once[half])
    np.testing.assert_array_equal(halves._pool.learners.weights, whole._pool.learners.weights)
    np.testing.assert_array_equal(halves._pool.buffer, whole._pool.buffer)


def test_one_row_at_a_time_is_one_call():
    whole, X, _ = fitted()
    single = deepcopy(whole)
    at_once = whole.decide(X[:40])
    assert [single.decide(X[[i]]).labels[0] for i in range(40)] == at_once.labels.tolist()


def test_decide_evolves_and_predict_does_not():
    evolver, X, _ = fitted()
    before = deepcopy(evolver)
    labels = evolver.predict(X)
    np.testing.assert_array_equal(evolver.predict(X), labels)
    assert_same(deepcopy(evolver).decide(X), before.decide(X))
    weights = evolver._pool.learners.weights.copy()
    np.testing.assert_array_equal(evolver.decide(X).labels, labels)
    assert (evolver._pool.learners.weights != weights).any()
    assert DroidEvolver.evolves


def test_fit_starts_anew():
    X, y = stream(600)
    evolver = DroidEvolver(buffer_size=50, random_state=0).fit(X[:300], y[:300])
    first = evolver.decide(X[300:])
    assert_same(evolver.fit(X[:300], y[:300]).decide(X[300:]), first)


def test_without_aging_nothing_is_learnt_and_all_is_accepted():
    evolver, X, _ = fitted(healthy=(0, 1))
    weights = evolver._pool.learners.weights.copy()
    decisions = evolver.decide(X)
    assert decisions.accepted.all()
    np.testing.assert_array_equal(evolver._pool.learners.weights, weights)
    np.testing.assert_allclose(decisions.credibility, decisions.confidence)


def test_decisions_are_of_the_learners_that_are_not_aging():
    evolver, X, _ = fitted()
    decisions = evolver.decide(X)
    assert isinstance(evolver, Rejector)
    assert isinstance(decisions, Decisions)
    np.testing.assert_array_equal(decisions.votes, 5 * decisions.credibility)
    everybody = np.isclose(decisions.credibility, decisions.confidence)
    np.testing.assert_array_equal(decisions.accepted, everybody)


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_array, sp.coo_array, np.asfortranarray, np.float32])
def test_any_form_of_the_same_rows(form):
    X, y = stream(400)
    expected = DroidEvolver(buffer_size=50, random_state=0).fit(X[:200], y[:200]).decide(X[200:])
    evolver = DroidEvolver(buffer_size=50, random_state=0).fit(form(X[:200]), y[:200])
    assert_same(evolver.decide(form(X[200:])), expected)


def test_zeros_repeated_and_unsorted_entries_do_not_matter_and_are_left_alone():
    X, y = stream(200)
    evolver = DroidEvolver(buffer_size=50, random_state=0).fit(X, y)
    expected = evolver.predict(X[:1])
    columns = np.flatnonzero(X[0])[::-1]
    indices = np.concatenate([columns, columns, np.flatnonzero(X[0] == 0)[:3]])
    data = np.concatenate([np.full(2 * len(columns), 0.5), np.zeros(3)])
    odd = sp.csr_array((data, indices, [0, len(data)]), shape=(1, X.shape[1]))
    evolved, plain = deepcopy(evolver), deepcopy(evolver)
    assert evolver.predict(odd) == expected
    assert_same(evolved.decide(odd), plain.decide(X[:1]))
    np.testing.assert_array_equal(evolved._pool.learners.shrunk, plain._pool.learners.shrunk)
    np.testing.assert_array_equal(odd.indices, indices)


def test_string_labels():
    evolver, X, _ = fitted()
    rows, y = stream(600)
    named = DroidEvolver(buffer_size=50, random_state=0).fit(rows[:300], np.array(["good", "mal"])[y[:300]])
    assert named.classes_.tolist() == ["good", "mal"]
    np.testing.assert_array_equal(named.decide(X).labels == "mal", evolver.decide(X).labels == 1)


def test_seeds_reproduce():
    a, X, _ = fitted(random_state=3)
    b, _, _ = fitted(random_state=3)
    c, _, _ = fitted(random_state=4)
    assert_same(a.decide(X), b.decide(X))
    assert (a._pool.buffer != c._pool.buffer).any()


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(20), r"two classes, but y has 1 class\(es\): \[0.0\]"),
        (np.arange(20) % 3, r"but y has 3 class\(es\): \[0, 1, 2\]"),
    ],
)
def test_refuses_other_numbers_of_classes(y, message):
    with pytest.raises(ValueError, match=message):
        DroidEvolver().fit(np.ones((20, 2)), y)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_refuses_what_is_not_finite(value):
    evolver, X, y = fitted()
    X[3, 3] = value
    for rows in (X, sp.csr_array(X)):
        with pytest.raises(ValueError, match=r"(NaN|infinity).*\nIt is in row 3, column 3"):
            evolver.decide(rows)
        with pytest.raises(ValueError, match=r"(NaN|infinity).*\nIt is in row 3, column 3"):
            DroidEvolver().fit(rows, y)


def test_refuses_text_that_is_no_number():
    evolver, X, _ = fitted()
    rows = X.astype(object)
    rows[2, 1] = "seven"
    with pytest.raises(ValueError, match=r"'seven'\nIt is in row 2, column 1"):
        evolver.decide(rows)


def test_refuses_other_widths():
    evolver, X, _ = fitted()
    with pytest.raises(ValueError, match="29 features"):
        evolver.decide(X[:, 1:])


def test_refuses_to_answer_unfitted_or_after_a_fit_that_failed():
    evolver, X, y = fitted()
    with pytest.raises(ValueError, match="two classes"):
        evolver.fit(X, np.zeros(len(y)))
    for unfitted in (DroidEvolver(), evolver):
        with pytest.raises(NotFittedError):
            unfitted.decide(X)
        with pytest.raises(NotFittedError):
            unfitted.predict(X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"buffer_size": 0}, "buffer_size must be a positive integer, got 0"),
        ({"buffer_size": 2.5}, "got 2.5"),
        ({"healthy": (0.7, 0.3)}, r"low <= high.*got \(0.7, 0.3\)"),
        ({"healthy": (0.3, 1.1)}, "healthy must be"),
    ],
)
def test_refuses_bad_parameters(options, message):
    X, y = stream(50)
    with pytest.raises(ValueError, match=message):
        DroidEvolver(**options).fit(X, y)


def test_a_million_columns_cost_no_more_per_row():
    X, y = stream(2000, width=40)
    narrow = sp.csr_array(X)
    wide = sp.csr_array((narrow.data, narrow.indices * 25_000, narrow.indptr), shape=(2000, 10**6))

    def decided(rows):
        started = time.process_time()
        evolver = DroidEvolver(buffer_size=100, random_state=0).fit(rows[:1000], y[:1000])
        return evolver.decide(rows[1000:]), time.process_time() - started

    (of_narrow, short), (of_wide, long) = decided(narrow), decided(wide)
    assert_same(of_wide, of_narrow)
    assert long < 5 * short


ORDER_MATTERS = "the learners evolve from row to row, so labels depend on the rows before"


@pytest.mark.slow
@parametrize_with_checks(
    [DroidEvolver(healthy=(0, 1), random_state=0), DroidEvolver(random_state=0)],
    expected_failed_checks=lambda estimator: (
        {}
        if estimator.healthy == (0, 1)
        else dict.fromkeys(
            ["check_methods_subset_invariance", "check_methods_sample_order_invariance"], ORDER_MATTERS
        )
    ),
)
def test_is_a_scikit_learn_classifier(estimator, check):
    check(estimator)
