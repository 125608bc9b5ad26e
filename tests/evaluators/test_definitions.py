"""What the evaluators compute is what their definitions say."""

from copy import copy

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, LeaveOneOut, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

from transcendent import (
    CrossConformalEvaluator,
    ExactSearch,
    InductiveEvaluator,
    QuartileSearch,
    TransductiveEvaluator,
)
from transcendent.decisions import Decisions
from transcendent.evaluators.cross import vote
from transcendent.evaluators.splits import folds
from transcendent.measures import NeighbourRatio

pytestmark = pytest.mark.filterwarnings("ignore::transcendent.errors.CalibrationWarning")


def data(n=200, n_classes=2, seed=0, flip_y=0.1):
    return make_classification(
        n, 8, n_informative=5, n_redundant=0, n_classes=n_classes, flip_y=flip_y, random_state=seed
    )


def same_calibration(a, b):
    assert a.scores.tolist() == b.scores.tolist()
    assert a.predicted.tolist() == b.predicted.tolist()
    np.testing.assert_array_equal(a.p_values, b.p_values)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("measure", ["auto", NeighbourRatio(3)])
def test_approximate_tce_with_as_many_folds_as_rows_is_tce(n_classes, measure):
    X, y = data(60, n_classes)
    new = data(50, n_classes, seed=1)[0]
    tce = TransductiveEvaluator(LogisticRegression(), cv=LeaveOneOut(), measure=measure).fit(X, y)
    approximate = TransductiveEvaluator(LogisticRegression(), cv=60, measure=measure).fit(X, y)
    same_calibration(tce.calibration_, approximate.calibration_)
    assert tce.thresholds_.tolist() == approximate.thresholds_.tolist()
    assert tce.decide(new).accepted.tolist() == approximate.decide(new).accepted.tolist()


def test_tce_is_its_definition_in_loops():
    X, y = data(40, 3)
    new = data(10, 3, seed=1)[0]
    tce = TransductiveEvaluator(GaussianNB(), cv="loo", measure=lambda e, X: -e.predict_proba(X)).fit(X, y)
    left_out = []
    predicted = []
    for i in range(40):
        others = np.arange(40) != i
        model = GaussianNB().fit(X[others], y[others])
        left_out.append(-model.predict_proba(X[i : i + 1])[0])
        predicted.append(model.predict(X[i : i + 1])[0])
    for i in range(40):
        for c in range(3):
            bag = [left_out[j][c] for j in range(40) if y[j] == c and j != i]
            assert tce.calibration_.p_values[i, c] == np.mean(np.array(bag) >= left_out[i][c])
    assert tce.calibration_.predicted.tolist() == predicted
    final = GaussianNB().fit(X, y)
    for row, p in zip(new, tce.predict_p(new), strict=True):
        alpha = -final.predict_proba(row[None])[0]
        assert p.tolist() == [
            np.mean([left_out[j][c] >= alpha[c] for j in range(40) if y[j] == c]) for c in range(3)
        ]


def test_ice_is_its_definition_in_loops():
    X, y = data(120)
    new = data(30, seed=1)[0]
    ice = InductiveEvaluator(LinearSVC(), random_state=3, search=QuartileSearch()).fit(X, y)
    scores = ice.estimator_.decision_function(new)
    labels = ice.estimator_.predict(new)
    bags = [ice.calibration_.scores[ice.calibration_.actual == c, c] for c in range(2)]
    decisions = ice.decide(new)
    for i in range(30):
        alpha = (scores[i], -scores[i])
        p = [np.mean(bags[c] >= alpha[c]) for c in range(2)]
        assert decisions.p_values[i].tolist() == p
        assert decisions.labels[i] == labels[i]
        assert decisions.credibility[i] == p[labels[i]]
        assert decisions.confidence[i] == 1 - p[1 - labels[i]]
        assert decisions.accepted[i] == (p[labels[i]] >= ice.thresholds_[labels[i]])


def test_a_calibration_object_is_judged_without_itself():
    X, y = data(100)
    calibration = InductiveEvaluator(LogisticRegression(), random_state=0).fit(X, y).calibration_
    for i in range(len(calibration.scores)):
        for c in range(2):
            bag = np.delete(calibration.scores, i, axis=0)[np.delete(calibration.actual, i) == c, c]
            assert calibration.p_values[i, c] == np.mean(bag >= calibration.scores[i, c])


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("k", [2, 5])
def test_cce_is_k_inductive_evaluators(n_classes, k):
    X, y = data(240, n_classes)
    new = data(200, n_classes, seed=1)[0]
    cce = CrossConformalEvaluator(LogisticRegression(), cv=k, random_state=0).fit(X, y)
    classes = np.unique(y)
    splits, _ = folds(k, y, classes, np.random.RandomState(0))
    answers = []
    for train, test in splits:
        detector = clone(cce.estimator).fit(X[train], y[train])
        ice = InductiveEvaluator(FrozenEstimator(detector)).fit(X[test], y[test])
        answers.append(ice.decide(new))
    for quorum in range(1, k + 1):
        decisions = cce.decide(new, quorum=quorum)
        for i in range(200):
            given = [a.labels[i] for a in answers]
            most = max(given.count(c) for c in classes)
            tied = [c for c in classes if given.count(c) == most]
            mean = [np.mean([a.credibility[i] for a in answers if a.labels[i] == c]) for c in tied]
            label = tied[int(np.argmax(mean))]
            votes = sum(a.labels[i] == label and a.accepted[i] for a in answers)
            assert decisions.labels[i] == label
            assert decisions.votes[i] == votes
            assert decisions.accepted[i] == (votes >= quorum)
    np.testing.assert_allclose(decisions.p_values, np.mean([a.p_values for a in answers], axis=0))


def test_default_quorum_is_a_strict_majority_and_larger_ones_never_accept_more():
    X, y = data(300)
    new = data(300, seed=1)[0]
    for k in (4, 5):
        cce = CrossConformalEvaluator(LogisticRegression(), cv=k, random_state=0).fit(X, y)
        accepted = [cce.decide(new, quorum=q).accepted for q in range(1, k + 1)]
        for fewer, more in zip(accepted[1:], accepted[:-1], strict=True):
            assert not np.any(fewer & ~more)
        assert cce.decide(new).accepted.tolist() == accepted[k // 2].tolist()
        for quorum in (0, k + 1):
            with pytest.raises(ValueError, match="between 1 and"):
                cce.decide(new, quorum=quorum)


def test_a_quorum_of_its_own_is_used_unless_another_is_given():
    X, y = data(300)
    new = data(300, seed=1)[0]
    strict = CrossConformalEvaluator(LogisticRegression(), cv=5, quorum=5, random_state=0).fit(X, y)
    votes = strict.decide(new).votes
    assert strict.decide(new).accepted.tolist() == (votes >= 5).tolist()
    assert strict.decide(new, quorum=2).accepted.tolist() == (votes >= 2).tolist()
    with pytest.raises(ValueError, match="quorum=6 must be an integer between 1 and the 5 folds"):
        CrossConformalEvaluator(LogisticRegression(), cv=5, quorum=6).fit(X, y)


@pytest.mark.parametrize("k", [6, 7, 9, 10, 11])
def test_mean_p_values_of_folds_that_agree_on_one_are_one(k):
    X, y = data(300)
    cce = CrossConformalEvaluator(LogisticRegression(), cv=k, random_state=0).fit(X, y)
    surely = cce.predict_p(1000 * X)
    assert (surely == 1).any()
    assert surely.max() == 1


def decided(label, p):
    """What one fold that accepts its label says about one object."""
    return Decisions(np.array([label]), np.array([True]), p[:, label], np.array([1.0]), np.arange(2), p)


def test_equal_mean_credibilities_go_by_class_order():
    """Whatever the order in which the folds' credibilities are added up."""

    def says(label, p):
        return decided(label, np.array([[p, 0.0], [0.0, p]])[[label]])

    folds = [says(0, 0.3), says(0, 0.2), says(0, 0.1), says(1, 0.1), says(1, 0.2), says(1, 0.3)]
    for order in (folds, folds[::-1]):
        judged = vote(order, quorum=1)
        assert judged.labels.tolist() == [0]
        assert judged.votes.tolist() == [3]


def test_folds_that_predict_another_label_do_not_break_ties():
    """Credibility is that of a predicted label; the p-values of the others only enter the reported mean."""

    two = [decided(0, np.array([[0.5, 0.45]])), decided(1, np.array([[0.0, 0.4]]))]
    for order in (two, two[::-1]):
        judged = vote(order, quorum=1)
        assert judged.labels.tolist() == [0]
        assert judged.credibility.tolist() == [0.25]


def test_splitters_are_taken_as_they_are():
    X, y = data(90)
    splitter = StratifiedKFold(3, shuffle=True, random_state=1)
    cce = CrossConformalEvaluator(LogisticRegression(), cv=splitter).fit(X, y)
    parts = [test for _, test in splitter.split(X, y)]
    for detector, judge, rows in zip(cce.detectors_, cce.judges_, parts, strict=True):
        expected = InductiveEvaluator(FrozenEstimator(detector.estimator)).fit(X[rows], y[rows])
        same_calibration(judge.calibration_, expected.calibration_)
    tce = TransductiveEvaluator(LogisticRegression(), cv=splitter).fit(X, y)
    assert len(tce.calibration_.scores) == 90
    with pytest.raises(ValueError, match="exactly once"):
        TransductiveEvaluator(LogisticRegression(), cv=Half()).fit(X, y)


class Half(KFold):
    def split(self, X, y=None, groups=None):
        yield np.arange(45, 90), np.arange(45)


def test_predictions_are_the_callers_to_change():
    X, y = data(100)
    ice = InductiveEvaluator(LogisticRegression(), random_state=0).fit(X, y)
    for answer in (ice.predict(X), ice.predict_p(X)):
        answer[:] = 0


def test_frozen_detectors_are_only_calibrated():
    X, y = data(300)
    detector = LogisticRegression().fit(X[:100], y[:100])
    before = detector.coef_.copy()
    ice = InductiveEvaluator(FrozenEstimator(detector)).fit(X[100:], y[100:])
    assert len(ice.calibration_.scores) == 200
    assert ice.estimator_.estimator is detector
    assert detector.coef_.tolist() == before.tolist()
    assert ice.predict(X).tolist() == detector.predict(X).tolist()


def test_a_frozen_detector_with_a_learning_measure_spends_rows_on_the_measure():
    X, y = data(300)
    detector = LogisticRegression().fit(X[:100], y[:100])
    ice = InductiveEvaluator(FrozenEstimator(detector), measure=NeighbourRatio(), random_state=0)
    ice.fit(X[100:], y[100:])
    assert len(ice.calibration_.scores) == pytest.approx(0.34 * 200, abs=2)
    fitted_elsewhere = NeighbourRatio().fit(detector, X[:100], y[:100])
    ice = InductiveEvaluator(FrozenEstimator(detector), measure=FrozenEstimator(fitted_elsewhere))
    assert len(ice.fit(X[100:], y[100:]).calibration_.scores) == 200


def test_chronological_calibration_takes_the_most_recent_rows():
    X, y = data(200)
    times = np.random.RandomState(0).permutation(200)
    dated = np.datetime64("2024-01-01") + times.astype("timedelta64[D]")
    ice = InductiveEvaluator(LogisticRegression(), calibration_size=0.25).fit(X, y, times=dated)
    recent = np.flatnonzero(times >= 150)
    expected = InductiveEvaluator(FrozenEstimator(ice.estimator_)).fit(X[recent], y[recent])
    same_calibration(ice.calibration_, expected.calibration_)
    older = LogisticRegression().fit(X[times < 150], y[times < 150])
    np.testing.assert_allclose(ice.estimator_.coef_, older.coef_)


@pytest.mark.parametrize(
    "evaluator",
    [
        InductiveEvaluator(LogisticRegression(), random_state=0),
        CrossConformalEvaluator(LogisticRegression(), cv=3, random_state=0),
        TransductiveEvaluator(LogisticRegression(), cv=3, random_state=0),
    ],
    ids=lambda e: type(e).__name__,
)
class TestAfterwards:
    def test_rethresholding_equals_fitting_with_that_search(self, evaluator):
        X, y = data(300)
        new = data(100, seed=1)[0]
        search = ExactSearch("accuracy", max_rejection=0.4)
        once = clone(evaluator).fit(X, y)
        models = [d.estimator for d in once.detectors_]
        once.rethreshold(search)
        assert [d.estimator for d in once.detectors_] == models
        again = clone(evaluator).set_params(search=search).fit(X, y)
        assert once.thresholds_.tolist() == again.thresholds_.tolist()
        assert once.decide(new).accepted.tolist() == again.decide(new).accepted.tolist()

    def test_rethresholding_a_copy_leaves_the_original(self, evaluator):
        X, y = data(300)
        fitted = clone(evaluator).fit(X, y)
        before = fitted.thresholds_.tolist()
        other = copy(fitted).rethreshold(ExactSearch("accuracy", max_rejection=0.4))
        assert other.thresholds_.tolist() != before
        assert fitted.thresholds_.tolist() == before

    def test_recalibrating_keeps_the_detector_and_forgets_the_old_objects(self, evaluator):
        X, y = data(300)
        later, labels = data(150, seed=2)
        fitted = clone(evaluator).fit(X, y)
        models = [d.estimator for d in fitted.detectors_]
        fitted.recalibrate(later, labels)
        for detector, judge, model in zip(fitted.detectors_, fitted.judges_, models, strict=True):
            assert detector.estimator is model
            expected = InductiveEvaluator(FrozenEstimator(model)).fit(later, labels)
            same_calibration(judge.calibration_, expected.calibration_)
            assert judge.thresholds_.tolist() == expected.thresholds_.tolist()

    def test_chunks_and_threads_change_nothing(self, evaluator, monkeypatch):
        X, y = data(300)
        new = data(300, seed=1)[0]
        for p_value in ("paper", "plus_one"):
            fitted = clone(evaluator).set_params(p_value=p_value).fit(X, y)
            whole = fitted.decide(new)
            with monkeypatch.context() as patch:
                for limit in ("_MIN_CHUNK", "_MAX_CHUNK"):
                    patch.setattr(f"transcendent.evaluators.base.{limit}", 7)
                for n_jobs in (1, 2):
                    parts = fitted.set_params(n_jobs=n_jobs).decide(new)
                    assert parts.labels.tolist() == whole.labels.tolist()
                    assert parts.p_values.tolist() == whole.p_values.tolist()
                    assert parts.accepted.tolist() == whole.accepted.tolist()

    @pytest.mark.slow
    def test_fitting_in_processes_changes_nothing(self, evaluator):
        X, y = data(300)
        alone = clone(evaluator).fit(X, y)
        together = clone(evaluator).set_params(n_jobs=2).fit(X, y)
        for a, b in zip(alone.judges_, together.judges_, strict=True):
            same_calibration(a.calibration_, b.calibration_)


def test_alpha_assessment_splits_right_from_wrong():
    X, y = data(300, 3, flip_y=0.2)
    calibration = InductiveEvaluator(LogisticRegression(), random_state=0).fit(X, y).calibration_
    n = len(calibration.scores)
    given = calibration.alpha_assessment()
    assert given.labels.tolist() == calibration.predicted.tolist()
    assert given.correct.tolist() == (calibration.predicted == calibration.actual).tolist()
    assert given.p_values.tolist() == calibration.p_values[np.arange(n), calibration.predicted].tolist()
    every = calibration.alpha_assessment(label_conditional=False)
    assert len(every.p_values) == 3 * n
    for c in range(3):
        mine = every.labels == c
        assert every.p_values[mine].tolist() == calibration.p_values[:, c].tolist()
        assert every.correct[mine].tolist() == (calibration.actual == c).tolist()
        low, middle, high = every.quartiles()[c, "correct"]
        assert low <= middle <= high
        assert every.quartiles()[c, "incorrect"][1] < middle
