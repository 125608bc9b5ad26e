"""Evaluators that learn from new labels: what learns, what stays, and what calibrates."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import DataConversionWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from transcendent import (
    CombinedMeasure,
    CrossConformalEvaluator,
    ExactSearch,
    InductiveEvaluator,
    RejectionBudget,
    StreamingBudget,
    TransductiveEvaluator,
)
from transcendent.artifacts import load, save
from transcendent.errors import CalibrationWarning, MeasureError
from transcendent.measures import NeighbourRatio, SecondOpinion

X, Y = make_classification(1600, n_informative=6, flip_y=0.1, random_state=0)
OLD, ALL, NEW = slice(0, 800), slice(0, 1200), slice(1200, 1600)
OPINION = SecondOpinion(GaussianNB())
EVALUATORS = [
    InductiveEvaluator(LinearSVC(), measure=OPINION, random_state=0),
    InductiveEvaluator(make_pipeline(StandardScaler(), LinearSVC()), measure=OPINION, random_state=0),
    CrossConformalEvaluator(LinearSVC(), measure=OPINION, cv=3, random_state=0),
    InductiveEvaluator(
        LogisticRegression(), measure=CombinedMeasure([OPINION, NeighbourRatio()], bag="all"), random_state=0
    ),
]


def fitted(evaluator):
    return clone(evaluator).fit(X[OLD], Y[OLD])


@pytest.mark.parametrize("evaluator", EVALUATORS)
@pytest.mark.parametrize("what", ["judge", "detector", "both"])
def test_learning_against_fits_by_hand(evaluator, what):
    first, learnt = fitted(evaluator), fitted(evaluator).learn(X[ALL], Y[ALL], what=what)
    for earlier, now, rows, judge in zip(
        first.detectors_, learnt.detectors_, first.calibration_rows_, learnt.judges_, strict=True
    ):
        others = np.setdiff1d(np.arange(1200), rows)
        assert np.array_equal(judge.calibration_.actual, Y[rows])
        fresh = clone(evaluator.estimator).fit(X[others], Y[others])
        expected = earlier.estimator if what == "judge" else fresh
        np.testing.assert_array_equal(now.estimator.predict(X[NEW]), expected.predict(X[NEW]))
        steps, last = (expected[:-1], expected[-1]) if hasattr(expected, "steps") else (None, expected)
        seen, asked = (rows if steps is None else steps.transform(rows) for rows in (X[others], X[NEW]))
        measure = clone(evaluator.measure).fit(last, seen, Y[others])
        if what == "detector" and steps is None:
            measure = earlier.measure
        np.testing.assert_array_equal(now.answer(X[NEW])[1], measure.scores(last, asked))
    assert all(map(np.array_equal, learnt.calibration_rows_, first.calibration_rows_))


@pytest.mark.parametrize("evaluator", EVALUATORS)
def test_nothing_new_changes_nothing_and_learning_twice_is_learning_once(evaluator):
    first = fitted(evaluator)
    expected = first.decide(X[NEW]).credibility
    first.learn(X[OLD], Y[OLD])
    np.testing.assert_array_equal(first.decide(X[NEW]).credibility, expected)
    first.learn(X[:1000], Y[:1000]).learn(X[ALL], Y[ALL])
    once = fitted(evaluator).learn(X[ALL], Y[ALL])
    np.testing.assert_array_equal(first.decide(X[NEW]).credibility, once.decide(X[NEW]).credibility)


@pytest.mark.parametrize("cv", ["loo", 4])
def test_a_transductive_evaluator_leaves_out_the_old_rows_only(cv):
    tce = TransductiveEvaluator(LinearSVC(), cv=cv, random_state=0)
    first = clone(tce).fit(X[OLD], Y[OLD])
    before = first.calibration_
    first.learn(X[OLD], Y[OLD], what="both")
    np.testing.assert_array_equal(first.calibration_.scores, before.scores)
    first.learn(X[ALL], Y[ALL], what="both")
    assert first.calibration_.scores.shape == before.scores.shape
    everything = clone(tce).fit(X[ALL], Y[ALL])
    np.testing.assert_array_equal(first.estimator_.coef_, everything.estimator_.coef_)
    if cv == "loo":
        np.testing.assert_array_equal(first.calibration_.scores, everything.calibration_.scores[:800])
    with pytest.raises(ValueError, match="what='both'"):
        first.learn(X[ALL], Y[ALL])


@pytest.mark.parametrize(
    "evaluator", [*EVALUATORS[::2], TransductiveEvaluator(LinearSVC(), cv=3, random_state=0)]
)
def test_a_new_class_is_learnt_and_calibrated_on(evaluator):
    y = Y.copy()
    y[800:1000] = 2
    rows = X.copy()
    rows[800:1000, 0] += 20
    first = fitted(evaluator)
    if not isinstance(evaluator, TransductiveEvaluator):
        with pytest.raises(ValueError, match=r"y has \[2\], which the detector does not know"):
            first.learn(rows[ALL], y[ALL])
        assert first.classes_.tolist() == [0, 1]
    first.learn(rows[ALL], y[ALL], what="both")
    assert first.classes_.tolist() == [0, 1, 2]
    for judge, old in zip(first.judges_, first.calibration_rows_, strict=True):
        assert judge.calibration_.counts[2] >= 60
        assert len(judge.calibration_.actual) - judge.calibration_.counts[2] == len(old)
    again = first.decide(X[NEW]).credibility
    np.testing.assert_array_equal(
        first.learn(rows[ALL], y[ALL], what="both").decide(X[NEW]).credibility, again
    )


def test_what_cannot_learn_says_so():
    ice = InductiveEvaluator(LinearSVC(), random_state=0).fit(X[OLD], Y[OLD])
    with pytest.raises(ValueError, match=r"Margin\(\) has no models of its own"):
        ice.learn(X[ALL], Y[ALL])
    frozen = InductiveEvaluator(FrozenEstimator(ice.estimator_), measure=OPINION, random_state=0)
    frozen.fit(X[OLD], Y[OLD]).learn(X[ALL], Y[ALL])
    with pytest.raises(ValueError, match="the detector is frozen"):
        frozen.learn(X[ALL], Y[ALL], what="both")
    margin = InductiveEvaluator(FrozenEstimator(ice.estimator_)).fit(X[OLD], Y[OLD])
    with pytest.raises(ValueError, match=r"frozen, .* and Margin\(\) has no models that could"):
        margin.learn(X[ALL], Y[ALL], what="both")
    with pytest.raises(ValueError, match="what learns is one of"):
        frozen.learn(X[ALL], Y[ALL], what="model")
    cce = CrossConformalEvaluator(LinearSVC(), measure=OPINION, cv=StratifiedKFold(3)).fit(X[OLD], Y[OLD])
    with pytest.raises(ValueError, match="learns with a number of folds"):
        cce.learn(X[ALL], Y[ALL])


def test_other_rows_than_those_of_fit_are_refused_and_change_nothing():
    ice = fitted(EVALUATORS[0])
    expected = ice.decide(X[NEW]).credibility
    shuffled = np.random.default_rng(0).permutation(1200)
    for rows in (shuffled, np.arange(700), np.arange(400, 1200)):
        with pytest.raises(
            ValueError, match=r"the first 800 rows must be those .* row \d+ is|fit had 800 rows"
        ):
            ice.learn(X[rows], Y[rows])
    with pytest.raises(ValueError, match="features"):
        ice.learn(X[ALL, :5], Y[ALL])
    with pytest.raises(ValueError, match="missing labels"):
        ice.learn(X[ALL], [*Y[:1199].tolist(), None])
    np.testing.assert_array_equal(ice.decide(X[NEW]).credibility, expected)


def test_the_last_search_is_used_again():
    ice = fitted(EVALUATORS[0]).rethreshold(ExactSearch("accuracy", max_rejection=0.3))
    assert ice.learn(X[ALL], Y[ALL]).search_.max_rejection == 0.3


def test_budgets_pass_labels_on_and_a_stream_starts_anew():
    for budget in (RejectionBudget(EVALUATORS[0], rate=0.1), StreamingBudget(EVALUATORS[0], rate=0.1)):
        held = clone(budget).fit(X[OLD], Y[OLD])
        held.decide(X[NEW])
        expected = fitted(EVALUATORS[0]).learn(X[ALL], Y[ALL]).decide(X[NEW]).credibility
        np.testing.assert_array_equal(held.learn(X[ALL], Y[ALL]).decide(X[NEW]).credibility, expected)
    assert held.decided_ == 400


def test_a_loaded_evaluator_learns_as_the_saved_one(tmp_path):
    ice = fitted(EVALUATORS[0])
    save(ice, tmp_path / "gate")
    loaded = load(tmp_path / "gate")
    expected = ice.learn(X[ALL], Y[ALL]).decide(X[NEW]).credibility
    np.testing.assert_array_equal(loaded.learn(X[ALL], Y[ALL]).decide(X[NEW]).credibility, expected)


def test_rows_in_another_order_within_a_class_are_refused():
    """Else rows that the kept part was fitted on would calibrate."""
    order = np.argsort(Y[OLD], kind="stable")
    ice = clone(EVALUATORS[0]).fit(X[order], Y[order])
    rng = np.random.default_rng(0)
    shuffled = np.concatenate([rng.permutation(order[Y[order] == c]) for c in (0, 1)])
    for what in ("judge", "detector"):
        with pytest.raises(ValueError, match="the first 800 rows must be those given to fit"):
            ice.learn(X[shuffled], Y[shuffled], what=what)


@pytest.mark.filterwarnings("ignore::transcendent.errors.CalibrationWarning")
@pytest.mark.parametrize("what", ["judge", "detector"])
@pytest.mark.parametrize("evaluator", EVALUATORS[::2])
def test_what_trained_a_kept_part_never_calibrates(evaluator, what):
    """Two new classes, of which more rows come later."""
    rng = np.random.default_rng(0)
    y = np.concatenate([Y[OLD], np.repeat([2, 3], 40), np.repeat(2, 7)])
    moved = 10 * np.repeat([1, -1, 1], [40, 40, 7])[:, None]
    rows = np.vstack([X[OLD], rng.normal(size=(87, X.shape[1])) + moved])
    first = fitted(evaluator).learn(rows[:880], y[:880], what="both")
    calibrated = first._calibration_rows(y[:880])
    first.learn(rows, y, what=what)
    for before, now, judge in zip(calibrated, first._calibration_rows(y), first.judges_, strict=True):
        assert set(before) <= set(now)
        assert not set(now) - set(before) & set(range(880))
        np.testing.assert_array_equal(judge.calibration_.actual, y[now])


def test_a_detector_that_learns_a_class_takes_its_judge_along():
    y = Y.copy()
    rows = X.copy()
    y[800:1000], rows[800:1000, 0] = 2, rows[800:1000, 0] + 20
    ice = fitted(EVALUATORS[0]).learn(rows[ALL], y[ALL], what="detector")
    assert ice.decide(rows[ALL]).p_values.shape == (1200, 3)
    with pytest.raises(ValueError, match=r"y lacks \[2\], learnt before: give all labelled rows"):
        ice.learn(X[ALL], Y[ALL], what="both")


def test_recalibrated_evaluators_do_not_learn():
    ice = fitted(EVALUATORS[0]).recalibrate(X[NEW], Y[NEW])
    with pytest.raises(ValueError, match="was recalibrated with other rows"):
        ice.learn(X[ALL], Y[ALL])


def test_labels_keep_their_type():
    ice = fitted(EVALUATORS[0]).learn(X[ALL], Y[ALL].astype(float), what="both")
    assert ice.classes_.dtype == ice.decide(X[NEW]).labels.dtype == Y.dtype
    mixed = Y[ALL].astype(object)
    mixed[1000] = "1"
    for labels, wrong in ((Y[ALL] + 0.5, "[01].5"), (Y[ALL].astype(str), "'[01]'"), (mixed, "'1'")):
        for call in (ice.learn, ice.recalibrate):
            with pytest.raises(ValueError, match=rf"the label {wrong}, of another type than .* \[0, 1\]"):
                call(X[ALL], labels)
    named = clone(EVALUATORS[0]).fit(X[OLD], np.array(["ham", "spam"])[Y[OLD]])
    mixed = np.array(["ham", "spam"], dtype=object)[Y[ALL]]
    named.learn(X[ALL], mixed)
    with pytest.warns(DataConversionWarning, match="column-vector"):
        named.learn(X[ALL], mixed[:, None])
    mixed[1000] = 1
    with pytest.raises(ValueError, match="the label 1, of another type"):
        named.learn(X[ALL], mixed)


def test_metadata_of_fit_is_asked_for_again():
    with config_context(enable_metadata_routing=True):
        detector = LogisticRegression().set_fit_request(sample_weight=True)
        ice = InductiveEvaluator(detector, measure=OPINION, random_state=0)
        weights = np.where(Y == 1, 100.0, 1.0)
        ice.fit(X[OLD], Y[OLD], sample_weight=weights[OLD])
        with pytest.raises(ValueError, match=r"fit was given metadata \['sample_weight'\]"):
            ice.learn(X[ALL], Y[ALL], what="both")
        ice.learn(X[ALL], Y[ALL], what="both", sample_weight=weights[ALL])
        assert ice.predict(X[NEW]).mean() > 0.9  # without weights, a half


@pytest.mark.parametrize(("evaluator", "least"), [(EVALUATORS[0], 2), (EVALUATORS[2], 3)])
def test_a_new_class_with_too_few_rows_is_named(evaluator, least):
    y = Y[ALL].copy()
    y[1200 - least + 1 :] = 7
    with pytest.raises(ValueError, match=rf"too few rows of \[7\].* it takes {least}"):
        fitted(evaluator).learn(X[ALL], y, what="both")


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, lambda rows: pd.DataFrame(rows).add_prefix("f")])
def test_learning_rows_that_calibrate_warns(kind):
    ice = InductiveEvaluator(LinearSVC(), measure=NeighbourRatio(), random_state=0)
    ice.fit(kind(X[OLD]), Y[OLD]).learn(kind(X[ALL]), Y[ALL])
    twice = np.concatenate([np.arange(800), ice.calibration_rows_[0], np.arange(800, 900)])
    with pytest.warns(CalibrationWarning, match=r"272 of the 372 new rows equal rows that calibrate"):
        ice.learn(kind(X[twice]), Y[twice])


def test_a_measure_is_not_fitted_on_rows_that_a_pipeline_has_not_transformed():
    pipeline = make_pipeline(StandardScaler(), LinearSVC()).fit(X[OLD], Y[OLD])
    with pytest.raises(MeasureError, match=r"pipeline\[:-1\].transform"):
        NeighbourRatio().fit(pipeline, X[OLD], Y[OLD])
    NeighbourRatio().fit(pipeline[-1], pipeline[:-1].transform(X[OLD]), Y[OLD])
