"""Case memory: what it names, what it settles and what it never settles."""

import io
import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from tests.explaining.sets import as_matrix, jaccard
from transcendent.explaining import CaseMemory, Settled, content_keys

FEATURES = st.frozensets(st.integers(0, 9), max_size=6)
CASES = st.lists(
    st.tuples(FEATURES, st.sampled_from(["bad", "good"]), st.integers(0, 5)), min_size=0, max_size=14
)
DISTANCES = st.sampled_from([0.0, 0.2, 0.34, 0.5])


def memory_of(cases, **settings):
    settings = {"settle": 0.2, "negative": ["good"], "random_state": 0} | settings
    memory = CaseMemory(settings.pop("max_size", 100), **settings)
    for features, label, time in cases:
        memory.add(as_matrix([features]), [label], authors="ada", times=[time])
    return memory


def naive_settle(cases, features, distance):
    """Return the label by the rules, in the plainest way; None if there is none."""
    labels = {}
    for own, label, _ in cases:
        labels.setdefault(own, set()).add(label)
    if not features:
        return None
    if features in labels:
        return next(iter(labels[features])) if len(labels[features]) == 1 else None
    near = set().union(*(have for own, have in labels.items() if own and jaccard(own, features) <= distance))
    return "bad" if near == {"bad"} and distance > 0 else None


def naive_nearest(cases, features):
    latest = {}
    for own, label, time in cases:
        if own not in latest or time >= latest[own][1]:
            latest[own] = (label, time)
    found = [
        (jaccard(own, features), -time, content_keys(as_matrix([own]))[0], label)
        for own, (label, time) in latest.items()
        if own == features or jaccard(own, features) < 1
    ]
    return min(found, default=None)


@given(CASES, st.lists(FEATURES, min_size=1, max_size=8), DISTANCES)
def test_it_settles_and_suggests_as_the_plainest_way(cases, queries, distance):
    memory = memory_of(cases, settle=distance)
    X, ids = as_matrix(queries), range(len(queries))
    settled, suggested = memory.settle(X, ids), memory.suggest(X)
    for features, answer, case in zip(queries, settled, suggested, strict=True):
        label = naive_settle(cases, features, distance)
        assert (answer and answer.label) == label
        nearest = naive_nearest(cases, features)
        assert (case is None) == (nearest is None)
        if case is not None:
            assert (case.distance, -case.time, case.key, case.label) == nearest
    alone = [memory.settle(X[[row]], [row])[0] for row in reversed(ids)][::-1]
    assert alone == settled
    assert [memory.suggest(sp.csr_array(X[[row]]))[0] for row in ids] == suggested
    again = CaseMemory.from_bytes(memory.to_bytes())
    assert again.settle(X, ids) == settled
    assert again.suggest(X) == suggested
    assert again.to_bytes() == memory.to_bytes()


def test_the_oldest_are_forgotten_but_not_that_they_were_contested():
    a, b, c = frozenset({1, 2, 3}), frozenset({4, 5, 6}), frozenset({7, 8, 9})
    memory = memory_of([(a, "bad", 1), (a, "good", 2), (b, "bad", 3), (c, "bad", 4)], max_size=2)
    assert len(memory) == 2
    assert memory.suggest(as_matrix([a])) == [None]
    memory.add(as_matrix([a]), ["bad"], authors="eve", times=[5])
    assert memory.suggest(as_matrix([a]))[0].contested
    assert memory.settle(as_matrix([a, c]), [0, 1])[0] is None
    assert memory.settle(as_matrix([a, c]), [0, 1])[1].label == "bad"
    assert memory.suggest(as_matrix([b])) == [None]
    restored = CaseMemory.from_bytes(memory.to_bytes())
    assert restored.contested == memory.contested == {content_keys(as_matrix([a]))[0]}


def test_contested_content_that_is_forgotten_is_not_settled_as_near_either():
    near = set(range(9))
    memory = memory_of([(near, "bad", 1), (near, "good", 2), (near | {9}, "bad", 3)], max_size=1)
    assert len(memory) == 1
    assert memory.settle(as_matrix([near]), [0]) == [None]


def test_content_near_a_contested_case_is_not_settled():
    full = frozenset(range(10))
    cases = [(full - {0}, "bad", 1), (full - {1}, "bad", 2)]
    assert memory_of(cases).settle(as_matrix([full]), [0])[0].label == "bad"
    contested = memory_of([*cases, (full - {1}, "good", 3), (full - {1}, "bad", 4)])
    assert contested.settle(as_matrix([full]), [0]) == [None]


def test_more_contested_contents_than_cases_turn_settling_off():
    sets = [frozenset({i}) for i in range(3)]
    memory = memory_of([(one, label, 1) for one in sets for label in ("bad", "good")], max_size=2)
    assert len(memory.contested) == 3
    assert not memory.is_settling
    memory.add(as_matrix([{5}]), ["bad"], authors="ada", times=[9])
    assert memory.settle(as_matrix([{5}]), [0]) == [None]
    assert "SETTLING IS OFF" in repr(memory)


def test_a_random_share_is_looked_at_whatever_the_content():
    memory = memory_of([({1, 2}, "bad", 1)], random_share=0.2)
    answers = memory.settle(np.repeat(as_matrix([{1, 2}]), 2000, axis=0), range(2000))
    looks = sum(answer.look for answer in answers)
    assert binom.ppf(1e-4, 2000, 0.2) <= looks <= binom.ppf(1 - 1e-4, 2000, 0.2)
    other = memory_of([({1, 2}, "bad", 1)], random_share=0.2, random_state=1)
    assert [
        answer.look for answer in other.settle(np.repeat(as_matrix([{1, 2}]), 2000, axis=0), range(2000))
    ] != [answer.look for answer in answers]
    secret = [CaseMemory(5, settle=0, negative=[]).to_bytes() for _ in range(2)]
    assert secret[0] != secret[1]


def test_an_error_above_the_limit_turns_settling_off_until_it_is_resumed():
    memory = memory_of([({1, 2}, "bad", 1)], max_error=0.01)
    X = as_matrix([{1, 2}])
    for _ in range(20):
        estimate = memory.audit(["bad"] * 20, ["bad"] * 20)
    assert estimate.low == 0
    assert estimate.high < 0.02
    assert memory.is_settling
    memory.audit(["bad"] * 20, ["bad"] * 8 + ["good"] * 12)
    assert memory.error.error > 0.01 > estimate.error
    assert not memory.is_settling
    assert memory.settle(X, [0]) == [None]
    assert memory.suggest(X)[0].label == "bad"
    restored = CaseMemory.from_bytes(memory.to_bytes())
    assert not restored.is_settling
    assert repr(restored) == repr(memory)
    restored.resume()
    assert restored.settle(X, [0])[0].label == "bad"
    assert restored.error.labels == 0


def test_false_alarms_are_as_rare_as_promised():
    rng, off = np.random.default_rng(0), 0
    for _ in range(50):
        memory = CaseMemory(1, settle=0, negative=[], max_error=0.02, delta=0.1)
        for _ in range(20):
            wrong = rng.random(15) < 0.02
            memory.audit(np.zeros(15, dtype=int), wrong.astype(int))
        off += not memory.is_settling
    assert off <= binom.ppf(0.9999, 50, 0.1)


def test_other_rows_than_zeros_and_ones_have_exact_cases_only():
    frame = pd.DataFrame({"host": ["a", "b", None], "port": [80, 80, 443]})
    memory = CaseMemory(10, settle=0.5, negative=[], random_state=0)
    memory.add(frame, ["x", "y", "z"], authors=["ada", "eve", "ada"], times=["2026-01-01"] * 3)
    again = CaseMemory.from_bytes(memory.to_bytes())
    new = pd.DataFrame({"host": ["a", "b", float("nan"), "a"], "port": [80.0, 80.5, 443, 443]})
    for one in (memory, again):
        assert [case and case.label for case in one.suggest(new)] == ["x", None, "z", None]
        assert [case and case.label for case in one.settle(new, list("abcd"))] == ["x", None, "z", None]


def test_labels_keep_their_type_and_undone_ones_are_forgotten():
    for labels in ([0, 1], [True, False], ["a", "b"], np.array([1.5, 2.0])):
        memory = CaseMemory(10)
        memory.add(np.eye(2), labels, authors="ada", times=np.array(["2026-01-01", "2026-01-02"], "M8[D]"))
        restored = CaseMemory.from_bytes(memory.to_bytes())
        for one in (memory, restored):
            found = [case.label for case in one.suggest(np.eye(2))]
            assert found == list(labels)
            assert type(found[0]) is type(np.asarray(labels)[0].item())
        memory.forget(np.eye(2)[[0]])
        assert memory.suggest(np.eye(2))[0] is None
        assert len(memory) == 1


def test_equal_objects_are_one_case_that_counts_them():
    memory = CaseMemory(3)
    X = np.repeat(np.eye(2), [4, 1], axis=0)
    memory.add(X, ["a"] * 5, authors=list("uvwxy"), times=[1, 4, 2, 3, 5])
    assert len(memory) == 2
    case = memory.suggest(X)[0]
    assert (case.n_objects, case.author, case.time, case.distance) == (4, "v", 4, 0)
    assert memory.settle(X, range(5)) == [None] * 5
    assert "suggests only" in repr(memory)


def test_nothing_is_remembered_yet():
    memory = CaseMemory(3, settle=0.1, negative=[])
    assert memory.suggest(np.eye(2)) == [None, None]
    assert memory.settle(np.eye(2), [0, 1]) == [None, None]
    memory.add(np.empty((0, 2)), [], authors="ada", times=[])
    assert CaseMemory.from_bytes(memory.to_bytes()).suggest(np.eye(2)) == [None, None]


def test_bad_settings_and_input():
    for settings, message in [
        ({"max_size": 0}, "max_size must be"),
        ({"settle": 1.0}, "settle must be None or a distance"),
        ({"settle": 0.1}, "negative must list the classes"),
        ({"settle": 0.1, "negative": "good"}, "negative must list the classes"),
        ({"settle": 0.1, "negative": [], "random_share": 0}, "random_share must be above 0"),
        ({"random_share": 5}, r"5% is 0.05"),
        ({"max_error": 0}, "promised"),
    ]:
        with pytest.raises(ValueError, match=message):
            CaseMemory(**{"max_size": 5} | settings)
    memory = memory_of([({1}, "bad", 1)])
    for X, labels, more, message in [
        (np.eye(3), ["a"] * 3, {}, "3 columns, but the cases have 10"),
        (np.eye(10)[:2], ["a"], {}, "1 labels and 2 authors for 2 rows"),
        (np.eye(10)[:1], [1], {}, "labels are text in part"),
        (np.eye(10)[:1], ["a"], {"times": ["2026-01-01"]}, "times are dates in part"),
        (np.eye(10)[:1], ["a"], {"times": [np.inf]}, "finite"),
        (np.eye(10)[:1], [None], {}, "missing labels"),
    ]:
        with pytest.raises(ValueError, match=message):
            memory.add(X, labels, **{"authors": "ada", "times": np.arange(len(X))} | more)
    assert len(memory) == 1
    with pytest.raises(ValueError, match="2 different ids"):
        memory.settle(np.eye(10)[:2], ["a", "a"])


def test_damaged_states_are_refused():
    good = memory_of([({1, 2}, "bad", 1), ({3}, "good", 2)]).to_bytes()
    with np.load(io.BytesIO(good)) as stored:
        arrays = dict(stored)

    def damaged(**changed):
        content = io.BytesIO()
        np.savez(content, **{name: array for name, array in (arrays | changed).items() if array is not None})
        return content.getvalue()

    def with_state(**changed):
        state = json.loads(arrays["state"].tobytes()) | changed
        return damaged(state=np.frombuffer(json.dumps(state).encode(), dtype=np.uint8))

    assert len(CaseMemory.from_bytes(damaged())) == 2
    for content in (
        b"",
        good[:100],
        damaged(keys=None),
        damaged(features=arrays["features"] + 1),
        damaged(features=arrays["features"] * 1000),
        damaged(ends=arrays["ends"][::-1]),
        damaged(keys=arrays["keys"][[0, 0]]),
        damaged(keys=np.array([["x"]], dtype=object)),
        damaged(counts=arrays["counts"] * 0),
        damaged(times=arrays["times"][:1]),
        with_state(kind="other"),
        with_state(format=2),
        with_state(max_size=1),
        with_state(labels=[None, "good"]),
        with_state(authors=["ada"]),
        with_state(n_columns=None),
        with_state(n_columns=2),
        with_state(monitor="{}"),
        with_state(settle=-1),
        with_state(salt=None),
    ):
        with pytest.raises(ValueError, match="CaseMemory"):
            CaseMemory.from_bytes(content)


def test_ten_thousand_cases_of_a_million_columns():
    rng = np.random.default_rng(0)
    columns = np.sort(rng.integers(10**6, size=(10_000, 30)), axis=1).ravel()
    X = sp.csr_array((np.ones(300_000), columns, np.arange(0, 300_001, 30)), shape=(10_000, 10**6))
    X = (X > 0).astype(np.uint8)
    memory = CaseMemory(8000, settle=0.1, negative=[0], random_state=0)
    memory.add(X, np.ones(10_000, dtype=int), authors="ada", times=np.arange(10_000))
    assert len(memory) == 8000
    answers = memory.settle(X[1990:2010], range(20))
    assert [isinstance(answer, Settled) for answer in answers] == [False] * 10 + [True] * 10
