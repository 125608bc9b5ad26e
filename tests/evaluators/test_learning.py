"""Evaluators that learn from new labels: what learns, what stays, and what calibrates."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import DataConversionWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
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
from transcendent._utils.digests import row_digests
from transcendent.artifacts import load, save
from transcendent.errors import CalibrationWarning, MeasureError
from transcendent.measures import Margin, NeighbourRatio, SecondOpinion
from transcendent.measures.detector import Detector

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


def trained(rows, calibrating):
    """All rows but those that calibrate, in the order they are trained on: the new ones by content."""
    old, new = np.setdiff1d(np.arange(800), calibrating), np.arange(800, rows)
    return np.concatenate([old, new[np.argsort(row_digests(X[new]))]])


@pytest.mark.parametrize("evaluator", EVALUATORS)
@pytest.mark.parametrize("what", ["judge", "detector", "both"])
def test_learning_against_fits_by_hand(evaluator, what):
    first, learnt = fitted(evaluator), fitted(evaluator).learn(X[ALL], Y[ALL], what=what)
    for earlier, now, rows, judge in zip(
        first.detectors_, learnt.detectors_, first.calibration_rows_, learnt.judges_, strict=True
    ):
        others = trained(1200, rows)
        assert np.array_equal(judge.calibration_.actual, Y[rows])
        fresh = clone(evaluator.estimator).fit(X[others], Y[others])
        expected = earlier.estimator if what == "judge" else fresh
        np.testing.assert_array_equal(now.estimator.predict(X[NEW]), expected.predict(X[NEW]))
        steps, last = (expected[:-1], expected[-1]) if hasattr(expected, "steps") else (None, expected)
        seen, scored = (rows if steps is None else steps.transform(rows) for rows in (X[others], X[NEW]))
        measure = clone(evaluator.measure).fit(last, seen, Y[others])
        if what == "detector" and steps is None:
            measure = earlier.measure
        np.testing.assert_array_equal(now.answer(X[NEW])[1], measure.scores(last, scored))
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


FRAMES = {
    "array": lambda rows: rows,
    "sparse": sp.csr_matrix,
    "pandas": lambda rows: pd.DataFrame(rows).add_prefix("f"),
    "polars": lambda rows: pl.DataFrame(rows, schema=[f"f{j}" for j in range(rows.shape[1])]),
}


@pytest.mark.parametrize("form", FRAMES)
@pytest.mark.parametrize(
    "evaluator",
    [
        InductiveEvaluator(LinearSVC(), measure=SecondOpinion(LogisticRegression()), random_state=0),
        RejectionBudget(CrossConformalEvaluator(LinearSVC(), cv=2, random_state=0), rate=0.2),
        TransductiveEvaluator(LinearSVC(), cv=2, random_state=0),
    ],
)
def test_the_rows_of_fit_may_be_given_apart(evaluator, form):
    rows, what = FRAMES[form], "both"
    order = np.random.default_rng(0).permutation(800)
    whole, apart = (clone(evaluator).fit(rows(X[OLD]), Y[OLD]) for _ in range(2))
    whole.learn(rows(X[ALL]), Y[ALL], what=what)
    apart.learn(rows(X[800:1200]), Y[800:1200], what=what, fitted=(rows(X[order]), Y[order]))
    expected, got = (one.decide(rows(X[NEW])).columns() for one in (whole, apart))
    for name, column in expected.items():
        np.testing.assert_array_equal(got[name], column)


def test_rows_of_fit_in_other_columns_are_refused():
    first = InductiveEvaluator(LinearSVC(), measure=OPINION, random_state=0).fit(X[OLD], Y[OLD])
    with pytest.raises(ValueError, match="are not among these"):
        first.learn(X[800:], Y[800:], fitted=(X[:700], Y[:700]))
    with pytest.raises(ValueError, match="of another type"):
        first.learn(X[800:], Y[800:], fitted=(X[OLD], Y[OLD].astype(str)))
    with pytest.raises(ValueError, match="differ in type or columns"):
        first.learn(X[800:], Y[800:], fitted=(pd.DataFrame(X[OLD]), Y[OLD]))


@pytest.mark.parametrize("cv", ["loo", 4])
def test_a_transductive_evaluator_leaves_out_the_old_rows_only(cv):
    tce = TransductiveEvaluator(LinearSVC(), cv=cv, random_state=0)
    first = clone(tce).fit(X[OLD], Y[OLD])
    before = first.calibration_
    first.learn(X[OLD], Y[OLD], what="both")
    np.testing.assert_array_equal(first.calibration_.scores, before.scores)
    first.learn(X[ALL], Y[ALL], what="both")
    assert first.calibration_.scores.shape == before.scores.shape
    order = trained(1200, [])
    everything = clone(tce).fit(X[order], Y[order])
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
    with pytest.raises(ValueError, match=r"Margin\(\) has no models that learn"):
        ice.learn(X[ALL], Y[ALL])
    frozen = InductiveEvaluator(FrozenEstimator(ice.estimator_), measure=OPINION, random_state=0)
    frozen.fit(X[OLD], Y[OLD]).learn(X[ALL], Y[ALL])
    with pytest.raises(ValueError, match="the detector is frozen"):
        frozen.learn(X[ALL], Y[ALL], what="both")
    margin = InductiveEvaluator(FrozenEstimator(ice.estimator_)).fit(X[OLD], Y[OLD])
    with pytest.raises(ValueError, match=r"frozen .* Margin\(\) has no models either"):
        margin.learn(X[ALL], Y[ALL], what="both")
    with pytest.raises(ValueError, match="what must be one of"):
        frozen.learn(X[ALL], Y[ALL], what="model")
    cce = CrossConformalEvaluator(LinearSVC(), measure=OPINION, cv=StratifiedKFold(3)).fit(X[OLD], Y[OLD])
    with pytest.raises(ValueError, match="can learn with a number of folds"):
        cce.learn(X[ALL], Y[ALL])


def test_other_rows_than_those_of_fit_are_refused_and_change_nothing():
    ice = fitted(EVALUATORS[0])
    expected = ice.decide(X[NEW]).credibility
    for rows, lost, first in ((np.arange(700), 100, 700), (np.arange(400, 1200), 400, 0)):
        message = f"{lost} of the 800 rows given to fit are not among these; the first is row {first} of"
        with pytest.raises(ValueError, match=message):
            ice.learn(X[rows], Y[rows])
    relabelled = np.where(np.isin(np.arange(1200), [7, 9]), 1 - Y[ALL], Y[ALL])
    with pytest.raises(ValueError, match=r"2 of the 800 rows given to fit have another label here; .* row 7"):
        ice.learn(X[ALL], relabelled)
    with pytest.raises(ValueError, match="are not among these, 2 of them with another label; "):
        ice.learn(X[1:1200], relabelled[1:])
    message = (
        r"800 of the 800 .* among these \(do the numbers have another precision or type, such as float32"
    )
    with pytest.raises(ValueError, match=message):
        ice.learn(X[ALL].astype(np.float32), Y[ALL])
    with pytest.raises(ValueError, match="features"):
        ice.learn(X[ALL, :5], Y[ALL])
    with pytest.raises(ValueError, match="missing labels"):
        ice.learn(X[ALL], [*Y[:1199].tolist(), None])
    np.testing.assert_array_equal(ice.decide(X[NEW]).credibility, expected)


def test_copies_that_are_missing_are_not_taken_for_relabelled_rows():
    twice = np.append(np.arange(500), np.arange(300))
    ice = clone(EVALUATORS[0]).fit(X[twice], Y[twice])
    message = "the 800 rows given to fit are not among these"
    less = "of them copies of rows that are here less often than in fit; .* each as often as in fit"
    for rows in (np.arange(500), np.arange(1200)):
        with pytest.raises(ValueError, match=f"300 of {message}, 300 {less}"):
            ice.learn(X[rows], Y[rows])
    labels = np.where(np.arange(800) < 799, Y[twice], 1 - Y[twice])
    with pytest.raises(ValueError, match="1 of the 800 rows given to fit have another label here"):
        ice.learn(X[twice], labels)
    labels[5] = 1 - labels[5]
    with pytest.raises(ValueError, match=f"2 of {message}, 1 of them with another label, 1 {less}"):
        ice.learn(X[twice[:-1]], labels[:-1])


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


@pytest.mark.slow
def test_a_loaded_evaluator_learns_as_the_saved_one(tmp_path):
    ice = fitted(EVALUATORS[0])
    save(ice, tmp_path / "gate")
    loaded = load(tmp_path / "gate")
    expected = ice.learn(X[ALL], Y[ALL]).decide(X[NEW]).credibility
    np.testing.assert_array_equal(loaded.learn(X[ALL], Y[ALL]).decide(X[NEW]).credibility, expected)


ORDERED = SGDClassifier(max_iter=5, tol=None, shuffle=False)


@pytest.mark.parametrize("what", ["judge", "detector", "both"])
@pytest.mark.parametrize(
    "evaluator",
    [
        *EVALUATORS,
        InductiveEvaluator(ORDERED, measure=SecondOpinion(ORDERED, Margin()), random_state=0),
        TransductiveEvaluator(ORDERED, cv=3, random_state=0),
    ],
)
def test_rows_in_any_order_give_the_same_evaluator(evaluator, what):
    if isinstance(evaluator, TransductiveEvaluator) and what != "both":
        return
    rows, y = with_a_new_class() if what == "both" else (X, Y)
    decided = []
    for order in (np.arange(1200), np.random.default_rng(1).permutation(1200)):
        learnt = fitted(evaluator).learn(rows[order], y[order], what=what)
        decided.append([learnt.decide(rows[NEW]).p_values, learnt.thresholds_])
    for one, another in zip(*decided, strict=True):
        np.testing.assert_array_equal(one, another)


def with_a_new_class():
    y, rows = Y.copy(), X.copy()
    y[800:1000], rows[800:1000, 0] = 2, rows[800:1000, 0] + 20
    return rows, y


def test_metadata_follows_its_rows():
    weights = np.random.default_rng(0).random(1600) + 0.1
    with config_context(enable_metadata_routing=True):
        detector = LinearSVC(random_state=0).set_fit_request(sample_weight=True)
        ice = InductiveEvaluator(detector, measure=OPINION, random_state=0)
        found = []
        for order in (np.arange(1200), np.random.default_rng(1).permutation(1200)):
            ice.fit(X[OLD], Y[OLD], sample_weight=weights[OLD])
            ice.learn(X[order], Y[order], what="both", sample_weight=weights[order])
            found.append(ice.estimator_.coef_)
        others = trained(1200, ice.calibration_rows_[0])
        by_hand = LinearSVC(random_state=0).fit(X[others], Y[others], sample_weight=weights[others])
    for coefficients in found:
        np.testing.assert_array_equal(coefficients, by_hand.coef_)


class Recording(KNeighborsClassifier):
    """Nearest neighbours that tell which rows they were fitted on."""

    def fit(self, X, y):
        self.seen_ = {row.tobytes() for row in np.asarray(X)}
        return super().fit(X, y)


RECORDING = [
    InductiveEvaluator(Recording(1), measure=SecondOpinion(Recording(3)), random_state=0),
    CrossConformalEvaluator(Recording(1), measure=SecondOpinion(Recording(3)), cv=3, random_state=0),
]


def saw(detector):
    """What the detector was fitted on, and what its judge's model was."""
    return detector.estimator.seen_, detector.measure.estimator_.seen_


@pytest.mark.filterwarnings("ignore::transcendent.errors.CalibrationWarning")
@pytest.mark.parametrize("what", ["judge", "detector", "both"])
@pytest.mark.parametrize("evaluator", RECORDING)
def test_what_trained_a_kept_part_never_calibrates(evaluator, what, monkeypatch):
    """Two new classes, of which more rows come later; all in another order, with copies and new labels."""
    rng = np.random.default_rng(0)
    y = np.concatenate([Y[OLD], np.repeat([2, 3], 40), np.repeat(2, 20)])
    moved = 3 * np.repeat([1, -1, 1], [40, 40, 20])[:, None]
    rows = np.vstack([X[OLD], rng.normal(size=(100, X.shape[1])) + moved])
    learnt = fitted(evaluator).learn(rows[:880], y[:880], what="both")
    y[[800, 801, 840]] = 0, 1, 2  # labels that were corrected
    scored = []
    monkeypatch.setattr(Detector, "answer", recording(Detector.answer, scored))
    for _ in range(3):
        order = rng.permutation(np.append(np.arange(900), rng.integers(0, 900, size=300)))
        scored.clear()
        learnt.learn(rows[order], y[order], what=what)
        for detector, calibrating, judge in zip(learnt.detectors_, scored, learnt.judges_, strict=True):
            keys = [row.tobytes() for row in calibrating]
            assert len(keys) == len(judge.calibration_.actual)
            assert judge.calibration_.counts[2:].min() > 5
            for seen in saw(detector):
                assert seen.isdisjoint(keys)
                assert len(seen) > 500


def recording(answer, scored):
    def recorded(detector, X):
        scored.append(X)
        return answer(detector, X)

    return recorded


def test_a_detector_that_learns_a_class_takes_its_judge_along():
    y = Y.copy()
    rows = X.copy()
    y[800:1000], rows[800:1000, 0] = 2, rows[800:1000, 0] + 20
    ice = fitted(EVALUATORS[0]).learn(rows[ALL], y[ALL], what="detector")
    assert ice.decide(rows[ALL]).p_values.shape == (1200, 3)
    with pytest.raises(ValueError, match=r"y lacks \[2\], known before: pass all rows so far, or fit again"):
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
            with pytest.raises(ValueError, match=rf"the label {wrong}, of another type than \[0, 1\] in fit"):
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
        ice.learn(X[ALL], Y[ALL])  # the judge alone needs none
        with pytest.raises(ValueError, match=r"fit was given metadata \['sample_weight'\]"):
            ice.learn(X[ALL], Y[ALL], what="both")
        ice.learn(X[ALL], Y[ALL], what="both", sample_weight=weights[ALL])
        assert ice.predict(X[NEW]).mean() > 0.9  # without weights, a half


@pytest.mark.parametrize(("evaluator", "least"), [(EVALUATORS[0], 2), (EVALUATORS[2], 3)])
def test_a_new_class_with_too_few_rows_is_named(evaluator, least):
    y = Y[ALL].copy()
    y[1200 - least + 1 :] = 7
    with pytest.raises(ValueError, match=rf"too few different rows of \[7\].* need {least}"):
        fitted(evaluator).learn(X[ALL], y, what="both")


@pytest.mark.filterwarnings("ignore:few calibration objects")
@pytest.mark.filterwarnings("ignore:no calibration object")
@pytest.mark.parametrize(
    ("evaluator", "each", "least"),
    [
        (EVALUATORS[0], "", 3),
        (EVALUATORS[2], " each detector", 3),
        (TransductiveEvaluator(LinearSVC(), cv=3, random_state=0), "", 1),
    ],
)
def test_rows_that_trained_before_they_were_named_a_class_cannot_calibrate_it(evaluator, each, least):
    learnt = fitted(evaluator).learn(X[ALL], Y[ALL], what="both")
    y = np.where(np.arange(1600) >= 1100, 7, Y)
    message = (
        rf"no rows of \[7\] to calibrate{each}: .* at least {least} new rows of each class, or fit again"
    )
    with pytest.raises(ValueError, match=message):
        learnt.learn(X[ALL], y[ALL], what="both")
    learnt.learn(X[: 1200 + least], y[: 1200 + least], what="both")
    assert all(judge.calibration_.counts[2] for judge in learnt.judges_)
    with pytest.raises(ValueError, match=message):  # those that calibrate it are not among these
        learnt.learn(X[ALL], y[ALL], what="both")


KINDS = [np.asarray, sp.csr_array, lambda rows: pd.DataFrame(rows).add_prefix("f")]


@pytest.mark.parametrize("kind", KINDS)
def test_copies_of_rows_that_calibrate_do_not_train_and_are_counted(kind):
    ice = InductiveEvaluator(LinearSVC(random_state=0), measure=NeighbourRatio(), random_state=0)
    ice.fit(kind(X[OLD]), Y[OLD])
    assert ice.n_left_out_ == 0
    copies = np.random.default_rng(0).permutation(ice.calibration_rows_[0])[:180]
    rows, labels = np.concatenate([np.arange(1020), copies]), np.concatenate([Y[:1020], 1 - Y[copies]])
    with pytest.warns(CalibrationWarning, match=r"180 of the 400 new rows equal rows that calibrate"):
        ice.learn(kind(X[rows]), labels, what="both")
    assert ice.n_left_out_ == 180
    ice.learn(kind(X[rows]), labels, what="both")  # the same ones are not warned of again
    without = clone(ice).fit(kind(X[OLD]), Y[OLD]).learn(kind(X[:1020]), Y[:1020], what="both")
    np.testing.assert_array_equal(ice.decide(kind(X[NEW])).p_values, without.decide(kind(X[NEW])).p_values)
    assert without.n_left_out_ == 0


def test_copies_that_the_split_of_fit_put_on_both_sides_stay_and_are_counted():
    rows = np.concatenate([np.arange(700), np.arange(100)])
    ice = clone(EVALUATORS[0]).fit(X[rows], Y[rows])
    calibration = rows[ice.calibration_rows_[0]]
    train = np.delete(rows, ice.calibration_rows_[0])
    assert ice.n_repeated_ == np.isin(calibration, train).sum() > 20
    before = ice.decide(X[NEW]).p_values
    shuffled = np.random.default_rng(0).permutation(rows)
    for order in (rows, shuffled):
        ice.learn(X[order], Y[order], what="both")
        np.testing.assert_array_equal(ice.decide(X[NEW]).p_values, before)
        assert ice.n_left_out_ == 0
    tce = TransductiveEvaluator(GaussianNB(), cv="loo").fit(X[rows], Y[rows])
    assert tce.n_repeated_ == 200
    assert fitted(EVALUATORS[2]).n_repeated_ == 0
    with pytest.warns(CalibrationWarning, match="100 of the 100 new rows equal"):
        tce.learn(X[np.append(rows, rows[:100])], Y[np.append(rows, rows[:100])], what="both")


def test_rows_count_as_the_type_of_fit():
    single = X.astype(np.float32)
    ice = clone(EVALUATORS[0]).fit(single[OLD], Y[OLD])
    copies = X[ice.calibration_rows_[0]]  # of which the rows of fit are rounded
    rows = np.vstack([single[ALL].astype(float), copies])
    with pytest.warns(CalibrationWarning, match="272 of the 672 new rows"):
        ice.learn(rows, np.append(Y[ALL], Y[ice.calibration_rows_[0]]))


def test_a_measure_is_not_fitted_on_rows_that_a_pipeline_has_not_transformed():
    pipeline = make_pipeline(StandardScaler(), LinearSVC()).fit(X[OLD], Y[OLD])
    with pytest.raises(MeasureError, match=r"pipeline\[:-1\].transform"):
        NeighbourRatio().fit(pipeline, X[OLD], Y[OLD])
    NeighbourRatio().fit(pipeline[-1], pipeline[:-1].transform(X[OLD]), Y[OLD])


NO_NUMBERS = [np.inf, np.nan, "x", None, 10**400, pd.Timestamp("2024"), 1j]


@pytest.mark.parametrize("what", ["judge", "detector", "both"])
@pytest.mark.parametrize("value", NO_NUMBERS, ids=range(7))
def test_rows_that_are_no_numbers_change_nothing(value, what):
    evaluator = InductiveEvaluator(LogisticRegression(), measure=NeighbourRatio(), random_state=0)
    evaluator.fit(X[:200], Y[:200])
    before = evaluator.decide(X[:200])
    rows = X[:260].astype(object)
    rows[230, 3] = value
    with pytest.raises((ValueError, TypeError)):
        evaluator.learn(rows, Y[:260], what=what)
    after = evaluator.decide(X[:200])
    np.testing.assert_array_equal(before.accepted, after.accepted)
    np.testing.assert_array_equal(before.p_values, after.p_values)
