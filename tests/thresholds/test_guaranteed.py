"""Thresholds with a guarantee."""

import re

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from transcendent import (
    Answers,
    CrossConformalEvaluator,
    ExactSearch,
    GuaranteedSearch,
    InductiveEvaluator,
    RejectionBudget,
    ScoreEvaluator,
    StreamingBudget,
    TransductiveEvaluator,
    load,
    save,
)
from transcendent.baselines import ProbabilityThresholds
from transcendent.errors import CalibrationError, CalibrationWarning, CopiesWarning, InfeasibleError
from transcendent.thresholds.guaranteed import _needed, held_out_mask

CLASSES = {2: [0.9, 0.1], 5: [0.6, 0.2, 0.1, 0.06, 0.04]}


def objects(rng, n, n_classes):
    y = rng.choice(n_classes, n, p=CLASSES[n_classes])
    values = rng.normal(size=(n, n_classes))
    values[np.arange(n), y] += 3
    ranked = np.sort(values, axis=1)
    best = np.where(values == ranked[:, -1:], ranked[:, -2:-1], ranked[:, -1:])
    return Answers(values.argmax(axis=1), best - values), y


def shares(promise, y, labels, accepted):
    """Return what the promise is about, once or for each class."""
    wrong = y != labels
    if promise == "error":
        return [wrong[accepted].mean()]
    if promise == "class_error":
        return [wrong[accepted & (labels == c)].mean() for c in np.unique(labels[accepted])]
    about = accepted & ((labels if promise == "precision" else y) == 1)
    return [wrong[about].mean()]


@pytest.mark.filterwarnings("ignore:nothing can be proven about answers")
@pytest.mark.parametrize("promise", ["error", "class_error", "precision", "fnr"])
@pytest.mark.parametrize("n_classes", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_the_promise_is_kept(promise, n_classes):
    rng, runs, broken, proven = np.random.default_rng(0), 40, 0, 0
    answers, y = objects(rng, 20_000, n_classes)
    search = GuaranteedSearch(0.08, delta=0.1, promise=promise, pos_label=1)
    for _ in range(runs):
        try:
            judge = ScoreEvaluator(search=search).fit(*objects(rng, 3000, n_classes))
        except InfeasibleError:
            continue
        proven += 1
        broken += max(shares(promise, y, answers.labels, judge.decide(answers).accepted)) > 0.08
    assert proven > runs / 2
    assert broken <= binom.ppf(0.9999, runs, 0.1)


def test_each_step_is_an_exact_test():
    judge = ScoreEvaluator(search=GuaranteedSearch(0.01)).fit(*objects(np.random.default_rng(1), 4000, 2))
    result, calibration = judge.result_, judge.calibration_
    (path,) = result.proofs
    tested = held_out_mask(4000, 0)
    credibility = calibration.credibility_and_confidence()[0]
    for thresholds, answers, wrong, p in zip(*path, strict=True):
        kept = tested & (credibility >= thresholds[calibration.predicted])
        assert (answers, wrong) == (kept.sum(), np.sum(kept & (calibration.actual != calibration.predicted)))
        assert p == pytest.approx(binom.cdf(wrong, answers, 0.01))
    assert np.all(path.p_values[:-1] <= 0.05)
    assert np.array_equal(judge.thresholds_, path.thresholds[-2])
    assert np.all(np.diff(path.thresholds, axis=0) <= 0)  # strictest first


def test_tested_objects_are_in_no_bag_and_new_ones_are_judged_alike():
    answers, y = objects(np.random.default_rng(2), 2000, 2)
    judge = ScoreEvaluator(search=GuaranteedSearch(0.05)).fit(answers, y)
    tested = held_out_mask(2000, 0)
    assert judge.calibration_.bags.counts.tolist() == np.bincount(y[~tested]).tolist()
    own = judge.calibration_.p_values[tested]
    assert np.array_equal(own, judge.predict_p(answers[tested]))
    everybody = judge.rethreshold(ExactSearch("f1")).calibration_
    assert everybody.held_out_seed is None
    assert everybody.bags.counts.sum() == 2000


def test_repeated_objects_among_those_that_prove_are_counted():
    once, y = objects(np.random.default_rng(2), 3000, 2)
    search = GuaranteedSearch(0.05)
    assert ScoreEvaluator(search=search).fit(once, y).calibration_.repeated == 0
    noise = 1 + 1e-15 * np.arange(3000)[:, None]  # of another batch
    twice = Answers(np.tile(once.labels, 2), np.concatenate([once.scores, once.scores * noise]))
    judge = ScoreEvaluator(search=search).fit(twice, np.tile(y, 2))
    tested = judge.calibration_.tested
    assert judge.calibration_.repeated == np.sum(tested[:3000] & tested[3000:])
    assert judge.rethreshold("f1").calibration_.repeated == 0  # nothing proves


def test_many_copies_in_fit_are_warned_of_where_they_prove():
    X, y = make_classification(3000, n_informative=8, random_state=0)
    X, y = np.repeat(X[:1000], 3, axis=0), np.repeat(y[:1000], 3)
    ice = InductiveEvaluator(LogisticRegression(), random_state=0, verbose=False).fit(X, y)
    search = GuaranteedSearch(0.3)
    for call in (
        lambda: ice.rethreshold(search),
        lambda: ice.learn(X, y, what="both"),
        lambda: clone(ice).set_params(search=search).fit(X, y),
    ):
        with pytest.warns(
            CopiesWarning, match=r"1,020 of the 1,020 calibration .* GuaranteedSearch"
        ) as caught:
            call()
        assert [warning.filename for warning in caught] == [__file__]
    ice.rethreshold("f1").learn(X, y, what="both")
    few = np.append(np.arange(0, 3000, 3), [1, 4, 7])
    clone(ice).set_params(search=search).fit(X[few], y[few])


def noisy(rng, n):
    """Return objects of two classes; one in forty has the other label, independently of its score."""
    y = rng.integers(2, size=n)
    evidence = np.where(y == 1, 1.0, -1.0) + rng.normal(size=n)
    y = np.where(rng.random(n) < 0.025, 1 - y, y)
    return Answers((evidence > 0).astype(int), np.column_stack([evidence, -evidence])), y


def test_one_unlucky_strict_step_does_not_end_the_search():
    rng, proven = np.random.default_rng(0), 0
    for _ in range(40):
        try:
            ScoreEvaluator(search=GuaranteedSearch(0.09)).fit(*noisy(rng, 6000))
        except InfeasibleError:
            continue
        proven += 1
    assert proven >= 38


def test_many_classes_do_not_hide_errors_from_the_start():
    """Above the first error of each class the bags have none. New objects do, and more with more classes."""
    rng, proven = np.random.default_rng(0), 0
    for _ in range(40):
        try:
            ScoreEvaluator(search=GuaranteedSearch(0.01)).fit(*objects(rng, 3000, 5))
        except InfeasibleError:
            continue
        proven += 1
    assert proven >= 30


def test_members_are_merged_by_the_bags_alone():
    answers, y = objects(np.random.default_rng(3), 2000, 2)
    both = Answers(answers.labels, np.stack([answers.scores, answers.scores**3], axis=-1))
    judge = ScoreEvaluator(search=GuaranteedSearch(0.05), bag="all").fit(both, y)
    tested = held_out_mask(2000, 0)
    assert np.array_equal(judge.calibration_.p_values[tested], judge.predict_p(both[tested]))


@pytest.mark.filterwarnings("ignore:few calibration objects")
def test_what_cannot_be_proven_is_refused_with_what_it_takes():
    def few(search):
        return ScoreEvaluator(search=search).fit(*objects(np.random.default_rng(4), 600, 2))

    message = r"error of accepted answers to 0.03 .* too few.* need about [\d,]+ calibration objects"
    with pytest.raises(InfeasibleError, match=message):
        ScoreEvaluator(search=GuaranteedSearch(0.03)).fit(*noisy(np.random.default_rng(4), 600))
    with pytest.raises(
        InfeasibleError, match=r"GuaranteedSearch\(random_state=11\) draws .* other draws could"
    ):
        few(GuaranteedSearch(0.02, random_state=11))
    answers, y = noisy(np.random.default_rng(4), 600)
    with pytest.raises(InfeasibleError, match=r"Even without an error, 299 test objects .* Raise error"):
        ScoreEvaluator(search=GuaranteedSearch(0.01)).fit(
            Answers(answers.labels, np.zeros_like(answers.scores)), y
        )
    with pytest.warns(
        CalibrationWarning, match=r"nothing can be proven about answers \[1\]: all are rejected"
    ):
        rare = few(GuaranteedSearch(0.03, promise="class_error"))
    assert rare.thresholds_[0] <= 1
    assert rare.thresholds_[1] == 2  # 60 objects prove nothing


@pytest.mark.filterwarnings("ignore:few calibration objects")
@pytest.mark.parametrize(
    ("n", "positives", "promise"), [(20, 0.5, "error"), (1020, 0.03, "fnr"), (1000, 0.05, "precision")]
)
def test_too_few_objects_in_question_are_counted_and_more_of_them_suffice(n, positives, promise):
    def enough(n):
        y = np.arange(n) % round(1 / positives) == 0
        scores = np.where(y, -1.0, 1.0) + np.random.default_rng(0).normal(0, 0.1, n)
        search = GuaranteedSearch(0.05, promise=promise)
        return y, ScoreEvaluator(search=search), (Answers(scores < 0, np.column_stack([-scores, scores])), y)

    y, judge, given = enough(n)
    n_tests = np.sum(held_out_mask(n, 0) & (y | (promise == "error")))
    message = rf"the promise is about {n_tests} test objects, .* takes 59.* about ([\d,]+)\)"
    with pytest.raises(InfeasibleError, match=message) as raised:
        judge.fit(*given)
    about = int(re.search(message, str(raised.value))[1].replace(",", ""))
    assert 1 <= about / (59 / n_tests * n) < 1.1
    _, judge, given = enough(round(1.2 * about))
    assert judge.fit(*given).result_.error == 0.05


def test_where_nobody_in_question_tests_no_number_is_made_up():
    answers, y = objects(np.random.default_rng(4), 600, 2)
    with pytest.raises(InfeasibleError, match=r"0 test objects, .* Pass more calibration objects, or"):
        ScoreEvaluator(search=GuaranteedSearch(promise="precision")).fit(
            Answers(np.zeros_like(y), answers.scores), y
        )


@pytest.mark.parametrize("rate", [0.0, 0.003, 0.009])
def test_the_number_needed_is_the_smallest(rate):
    (needed,) = _needed(np.array([rate]), 0.01, 0.05)
    assert binom.cdf(np.floor(rate * needed), needed, 0.01) <= 0.05
    assert _needed(np.array([0.01]), 0.01, 0.05) == np.inf


def test_only_what_is_proven_is_promised():
    X, y = make_classification(800, random_state=0)
    for other in (CrossConformalEvaluator, TransductiveEvaluator):
        with pytest.raises(ValueError, match=f"not {other.__name__}"):
            other(LogisticRegression(), search=GuaranteedSearch(), verbose=False).fit(X, y)
    for other in (RejectionBudget, StreamingBudget):
        ice = InductiveEvaluator(LogisticRegression(), search=GuaranteedSearch(0.3), verbose=False)
        with pytest.raises(ValueError, match=f"not {other.__name__}"):
            other(ice, rate=0.1).fit(X, y)
    with pytest.raises(ValueError, match="not ProbabilityThresholds"):
        ProbabilityThresholds(LogisticRegression(), search=GuaranteedSearch(0.3)).fit(X, y)
    with pytest.raises(ValueError, match="leaks"):
        InductiveEvaluator(LogisticRegression(), search=GuaranteedSearch(), calibration_label="true").fit(
            X, y
        )


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"error": 0}, "error must be strictly between"),
        ({"delta": 1}, "delta must be strictly between"),
        ({"promise": "f1"}, "promise must be one"),
        ({"error": "much"}, "error must be strictly between"),
        ({"random_state": None}, "random_state must be a whole number"),
    ],
)
def test_bad_settings_are_refused(wrong, match):
    with pytest.raises(ValueError, match=match):
        GuaranteedSearch(**wrong).find([0, 1], [0, 1], [0.5, 0.5])
    if "promise" in wrong:
        with pytest.raises(ValueError, match="needs a pos_label"):
            GuaranteedSearch(promise="fnr").find([0, 1, 2], [0, 1, 2], [0.5, 0.5, 0.5])


def test_a_class_that_was_never_answered_is_rejected():
    rng = np.random.default_rng(5)
    answers, y = objects(rng, 4000, 5)
    answers = Answers(np.where(answers.labels == 4, 0, answers.labels), answers.scores)
    with pytest.warns(CalibrationWarning, match="predicted as 4.* every such answer is rejected"):
        judge = ScoreEvaluator(search=GuaranteedSearch(0.2)).fit(answers, y)
    assert judge.thresholds_[4] == 2
    assert not judge.decide(Answers([4], answers.scores[:1])).accepted[0]


def test_a_class_without_objects_in_the_bags_is_named():
    answers, y = objects(np.random.default_rng(6), 300, 2)
    y[y == 1], y[0] = 0, 1
    with pytest.raises(CalibrationError, match=r"30% of the calibration objects.* has the label \[1\]"):
        ScoreEvaluator(search=GuaranteedSearch(0.3, random_state=_seed_that_tests_the_first())).fit(
            answers, y
        )


def _seed_that_tests_the_first():
    return next(seed for seed in range(20) if held_out_mask(300, seed)[0])


def test_chosen_rows_of_a_new_class_promise_nothing():
    X, y = make_classification(3000, n_informative=8, random_state=0)
    ice = InductiveEvaluator(
        LogisticRegression(), search=GuaranteedSearch(0.3), random_state=0, verbose=False
    ).fit(X[:2000], y[:2000])
    labels = y.copy()
    labels[2000:] = 7
    with pytest.raises(ValueError, match="nothing can be guaranteed"):
        ice.learn(X, labels, what="both")


@pytest.mark.filterwarnings("ignore:few calibration objects")
def test_a_class_that_is_rejected_as_a_whole_is_saved(tmp_path):
    X, y = make_classification(4000, n_informative=8, weights=[0.97], random_state=0)
    search = GuaranteedSearch(0.1, promise="class_error")
    ice = InductiveEvaluator(LogisticRegression(), search=search, random_state=0, verbose=False)
    with pytest.warns(CalibrationWarning, match="nothing can be proven"):
        ice.fit(X, y)
    save(ice, tmp_path / "ice.tr")
    assert load(tmp_path / "ice.tr").decide(X).accepted[ice.predict(X) == 1].sum() == 0


def test_round_trip(tmp_path):
    X, y = make_classification(3000, flip_y=0.02, random_state=0)
    ice = InductiveEvaluator(
        LogisticRegression(), search=GuaranteedSearch(0.1), random_state=0, verbose=False
    )
    ice.fit(X[:2000], y[:2000])
    save(ice, tmp_path / "ice.tr")
    again, before = load(tmp_path / "ice.tr").decide(X[2000:]), ice.decide(X[2000:])
    assert np.array_equal(again.credibility, before.credibility)
    assert np.array_equal(again.accepted, before.accepted)
    assert repr(load(tmp_path / "ice.tr").result_) == repr(ice.result_)
    assert "error of accepted answers at most 0.1 with probability 0.95" in repr(ice.result_)
