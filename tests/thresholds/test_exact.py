"""The exact search against brute force, and against the searches it replaces."""

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transcendent import ExactSearch, GridSearch, QuartileSearch, RandomSearch
from transcendent.errors import InfeasibleError
from transcendent.metrics import (
    F1,
    Accuracy,
    ClassRejectionRate,
    ErrorRate,
    MacroF1,
    Precision,
    Recall,
    RejectionRate,
)
from transcendent.thresholds.counts import LevelCounts
from transcendent.thresholds.sweep import prefix_maxima


def objectives(pos_label=None):
    about_one_class = [
        metric(pos_label=pos_label, of=of)
        for metric in (F1, Precision, Recall)
        for of in ("kept", "rejected")
    ]
    return [
        *about_one_class,
        Accuracy(),
        Accuracy(of="rejected"),
        ErrorRate(),
        ErrorRate(of="rejected"),
        RejectionRate(),
        ClassRejectionRate(1),
    ]


def constraint_sets(pos_label=None):
    return [
        (),
        (RejectionRate() <= 0.3,),
        (ClassRejectionRate(1) <= 0.2,),
        (RejectionRate() <= 0.5, ClassRejectionRate(0) <= 0.4, ClassRejectionRate(1) <= 0.6),
        (F1(pos_label=pos_label) >= 0.8,),
        (Precision(pos_label=pos_label) >= 0.9,),
        (Recall(pos_label=pos_label) >= 0.75,),
        (Accuracy() >= 0.8,),
        (ErrorRate() <= 0.25,),
        (ErrorRate(of="rejected") >= 0.5,),
        (F1(pos_label=pos_label, of="rejected") <= 0.3,),
        (RejectionRate() >= 0.2,),
        (RejectionRate() <= 0.5, F1(pos_label=pos_label) >= 0.7),
        (RejectionRate() <= 0.6, ClassRejectionRate(0) <= 0.5, ErrorRate(of="rejected") >= 0.4),
    ]


def draw_problem(rng, n_classes, n):
    y = rng.integers(0, n_classes, n)
    labels = np.where(rng.random(n) < 0.7, y, rng.integers(0, n_classes, n))
    steps = rng.choice([5, 20, 1000])  # few values make ties
    return y, labels, rng.integers(0, steps + 1, n) / steps


def brute_force(search, y, labels, values, n_classes):
    """The best over every combination of thresholds that differ on these objects, or -inf."""
    problem = search._problem(y, labels, values[:, None], np.arange(n_classes))
    candidates = [np.unique([0.0, 1.0, *values[labels == c]]) for c in range(n_classes)]
    thresholds = np.array(list(product(*candidates)))[:, None, :]
    sign = 1 if problem.objective.higher_is_better else -1
    return sign, problem.evaluate(thresholds)[0].max()


@pytest.mark.parametrize("objective", objectives(), ids=str)
@pytest.mark.parametrize("constraints", constraint_sets(), ids=lambda c: " and ".join(map(str, c)) or "free")
def test_two_classes_equal_brute_force(objective, constraints):
    search = ExactSearch(objective, max_rejection=None, constraints=constraints)
    rng = np.random.default_rng(0)
    for _ in range(12):
        y, labels, values = draw_problem(rng, 2, rng.integers(3, 24))
        sign, best = brute_force(search, y, labels, values, 2)
        if best == -np.inf:
            with pytest.raises(InfeasibleError):
                search.find(y, labels, values, classes=[0, 1])
            continue
        found = search.find(y, labels, values, classes=[0, 1])
        assert found.certified
        assert sign * found.value == pytest.approx(best, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [3, 4])
@pytest.mark.parametrize("constraints", constraint_sets(1), ids=lambda c: " and ".join(map(str, c)) or "free")
def test_more_classes_bracket_brute_force(n_classes, constraints):
    rng = np.random.default_rng(1)
    for objective in objectives(1):
        search = ExactSearch(objective, max_rejection=None, constraints=constraints)
        for _ in range(4):
            y, labels, values = draw_problem(rng, n_classes, rng.integers(4, 14))
            classes = np.arange(n_classes)
            sign, best = brute_force(search, y, labels, values, n_classes)
            if best == -np.inf:
                with pytest.raises(InfeasibleError):
                    search.find(y, labels, values, classes=classes)
                continue
            found = search.find(y, labels, values, classes=classes)
            assert sign * found.value <= best + 1e-12
            assert best <= sign * found.bound + 1e-9
            assert not found.certified or sign * found.value == pytest.approx(best, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.full] * (seed >= 60)) for seed in range(200)]
)
def test_never_below_grid_or_random_search(seed):
    rng = np.random.default_rng(seed)
    n_classes = 2 + seed % 4
    y, labels, _ = draw_problem(rng, n_classes, int(rng.integers(300, 3000)))
    values = np.where(y == labels, rng.random(len(y)) ** rng.uniform(0.2, 1), rng.random(len(y)))
    options = {"objective": "f1" if n_classes == 2 else "accuracy", "max_rejection": rng.uniform(0.02, 0.5)}
    exact = ExactSearch(**options).find(y, labels, values)
    steps = {2: 101, 3: 41, 4: 17, 5: 9}[n_classes]
    grid = GridSearch(**options, steps=steps).find(y, labels, values)
    tried = RandomSearch(**options, trials=100_000, patience=None, random_state=seed).find(y, labels, values)
    assert tried.trials == 100_001
    assert exact.value >= grid.value
    assert exact.value >= tried.value
    assert exact.rejection_rate <= options["max_rejection"]


def test_equal_solutions_keep_the_most_objects():
    y = labels = np.array([0, 0, 1, 1])
    found = ExactSearch("f1", max_rejection=0.5).find(y, labels, [0.1, 0.9, 0.2, 0.8])
    assert found.value == 1.0
    assert found.rejection_rate == 0.0


def test_least_rejection_for_a_wanted_f1():
    rng = np.random.default_rng(2)
    y = (rng.random(5000) < 0.3).astype(int)
    labels = np.where(rng.random(5000) < 0.85, y, 1 - y)
    values = np.where(y == labels, rng.random(5000) ** 0.3, rng.random(5000))
    least = ExactSearch("rejection_rate", max_rejection=None, constraints=F1() >= 0.9).find(y, labels, values)
    assert least.certified
    at_that_rate = ExactSearch("f1", max_rejection=least.rejection_rate).find(y, labels, values)
    below = ExactSearch("f1", max_rejection=least.rejection_rate - 1 / 5000).find(y, labels, values)
    assert at_that_rate.value >= 0.9 > below.value


def test_infeasible_names_the_constraint_and_the_best_reachable_value():
    y, labels = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 0])
    values = np.array([0.9, 0.8, 0.7, 0.6])
    search = ExactSearch("rejection_rate", max_rejection=0.25, constraints=F1() >= 0.9)
    with pytest.raises(InfeasibleError, match=r"F1\(\) >= 0.9 with RejectionRate\(\) <= 0.25.* 0.666667"):
        search.find(y, labels, values)


def test_bounds_are_met_exactly():
    """15 of 100 is 15%, although 0.15 has no exact floating-point value."""
    labels = np.repeat([0, 1], 50)
    y = labels.copy()
    y[:15] = 1
    values = np.linspace(0.01, 0.99, 100)
    assert ExactSearch("accuracy", max_rejection=0.15).find(y, labels, values).value == 1.0
    assert ExactSearch("accuracy", max_rejection=0.14).find(y, labels, values).value < 1.0


def test_a_hard_constraint_at_its_best_value_is_met_with_several_classes():
    y = [0,0,0,1,0,0,2,3,1,1,2,3,0,2,3,3,0,1,0,1,3,0,0,2,0,0,3,2,3,1,0,3,2,0,0]  # fmt: skip
    labels = [0,0,2,1,1,0,0,3,2,1,2,3,0,2,3,2,0,1,1,1,3,2,0,1,0,0,0,2,1,1,3,1,2,0,0]  # fmt: skip
    eighths = [5,5,1,1,1,3,3,5,0,4,1,4,6,6,3,7,0,1,1,3,7,5,7,7,1,5,1,6,1,3,4,7,7,7,3]  # fmt: skip
    search = ExactSearch("accuracy", max_rejection=0.2, constraints=Recall(pos_label=0) >= 5 / 6)
    found = search.find(y, labels, np.array(eighths) / 8)
    assert found.value > 0.7
    assert found.rejection_rate <= 0.2


def test_a_minimised_value_equals_its_bound_to_the_last_bit():
    y, labels, values = draw_problem(np.random.default_rng(8), 2, 1000)
    found = ExactSearch("rejection_rate", max_rejection=None, constraints=F1() >= 0.8).find(y, labels, values)
    assert found.gap == 0


def test_macro_f1_of_the_rejected_starts_where_it_is_defined():
    y = labels = np.array([0, 1] * 20)
    found = ExactSearch(MacroF1(of="rejected"), max_rejection=0.5).find(y, labels, np.linspace(0, 1, 40))
    assert np.isfinite(found.value)


def test_macro_f1_is_improved_but_not_certified():
    rng = np.random.default_rng(3)
    y, labels, values = draw_problem(rng, 4, 800)
    found = ExactSearch("macro_f1", max_rejection=0.3).find(y, labels, values)
    tried = RandomSearch("macro_f1", max_rejection=0.3, random_state=0).find(y, labels, values)
    assert found.bound is None
    assert not found.certified
    assert found.value >= tried.value
    assert found.rejection_rate <= 0.3


def test_what_it_cannot_do_it_says():
    y, labels, values = draw_problem(np.random.default_rng(4), 2, 50)
    with pytest.raises(ValueError, match="thresholds one value"):
        ExactSearch(on="both").find(y, labels, values, values)
    with pytest.raises(ValueError, match="at most one other"):
        ExactSearch(constraints=(Precision() >= 0.5, Recall() >= 0.5)).find(y, labels, values)
    with pytest.raises(ValueError, match="cannot constrain"):
        ExactSearch(constraints=MacroF1() >= 0.5).find(y, labels, values)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=300)
def test_prefix_maxima_are_those_of_a_loop(data):
    n = data.draw(st.integers(1, 40))
    numbers = st.integers(-6, 6)
    gains = np.array(data.draw(st.lists(numbers, min_size=n, max_size=n)))
    worth = np.array(data.draw(st.lists(numbers, min_size=n, max_size=n)))
    queries = data.draw(st.lists(st.tuples(st.integers(0, n), st.integers(-8, 8)), min_size=1, max_size=20))
    lengths, least = np.array(queries).T
    nothing = np.iinfo(np.int64).min
    slow = [
        max((g for g, w in zip(gains[:p], worth[:p], strict=True) if w >= q), default=nothing)
        for p, q in queries
    ]
    assert prefix_maxima(gains, worth, lengths, least).tolist() == slow


@pytest.mark.slow
def test_many_classes_are_solved_in_seconds():
    rng = np.random.default_rng(5)
    y = rng.integers(0, 150, 20_000)
    labels = np.where(rng.random(20_000) < 0.8, y, rng.integers(0, 150, 20_000))
    values = np.where(y == labels, rng.random(20_000) ** 0.5, rng.random(20_000))
    found = ExactSearch("accuracy").find(y, labels, values)
    assert found.gap < 1e-3
    assert found.rejection_rate <= 0.15


def test_counts_agree_with_counting():
    rng = np.random.default_rng(6)
    y, labels, values = draw_problem(rng, 3, 200)
    counts = LevelCounts(labels, y, values, 3)
    for thresholds in rng.random((20, 3)):
        kept = values >= thresholds[labels]
        tally = counts.kept(thresholds[None, None])
        assert tally.actual[0].tolist() == np.bincount(y[kept], minlength=3).tolist()
        assert tally.predicted[0].tolist() == np.bincount(labels[kept], minlength=3).tolist()
        assert tally.correct[0].tolist() == np.bincount(y[kept & (y == labels)], minlength=3).tolist()


def test_best_is_best_of_thresholds_up_to_one():
    """No threshold rejects a credibility of 1, although without these answers there would be no error."""
    y, labels, credibility = [0, 0, 1, 0, 0], [0, 0, 1, 1, 1], [0.2, 1, 0.4, 1, 1]
    found = ExactSearch("error", max_rejection=None).find(y, labels, credibility)
    assert found.certified
    assert found.value == 0.4
    assert found.accepts(np.array([1]), np.array([1.0]), np.array([0.0])).all()
    assert "ErrorRate() = 0.4, proven best of thresholds from 0 to 1, 0.0% rejected" in repr(found)


def test_a_result_says_what_is_proven():
    y = np.arange(60) % 3
    labels, credibility = np.where(np.arange(60) % 7, y, 0), np.arange(60) % 11 / 10
    for search, message in (
        (ExactSearch("accuracy"), "of thresholds from 0 to 1"),
        (RandomSearch("accuracy", trials=10, random_state=0), "not proven best"),
        (QuartileSearch(), "a rule"),
        (ExactSearch("rejection_rate"), "nothing is rejected"),
    ):
        assert message in repr(search.find(y, labels, credibility))


def test_notebooks_show_thresholds_and_what_they_promise():
    y, labels = np.array(["<b>", "b"] * 20), np.array(["<b>", "b"] * 18 + ["b", "<b>"] * 2)
    found = ExactSearch(F1("<b>")).find(y, labels, np.linspace(1, 0.01, 40))
    page = found._repr_html_()
    assert [float(cell) for cell in re.findall(r"<td[^>]*>([^<]*)</td>", page)] == pytest.approx(
        found.credibility_thresholds.tolist(), abs=1e-4
    )
    assert "credibility ≥" in page
    assert "confidence ≥" not in page
    assert "F1(pos_label=&#x27;&lt;b&gt;&#x27;) = " in page
    assert "<b>" not in page
    many = replace(found, credibility_thresholds=np.linspace(0, 1, 15), confidence_thresholds=np.zeros(15))
    assert "… and 3 more classes" in many._repr_html_()
    nothing = replace(found, credibility_thresholds=np.zeros(2))
    assert "nothing is rejected" in nothing._repr_html_()
