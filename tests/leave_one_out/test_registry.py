"""Which shortcut is found, the reasons for none, and the forecast before long refits."""

import numpy as np
import pytest
from sklearn import set_config
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, LeaveOneOut
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler
from sklearn.svm import LinearSVC

from transcendent import TransductiveEvaluator
from transcendent.evaluators import transductive
from transcendent.leave_one_out import LeftOut, register
from transcendent.leave_one_out.registry import SHORTCUTS
from transcendent.measures import Margin, Probability

X, y = make_classification(60, 5, flip_y=0.1, random_state=0)

pytestmark = pytest.mark.filterwarnings("ignore::transcendent.errors.CalibrationWarning")


def tce(estimator, measure="auto", cv="loo", **params):
    return TransductiveEvaluator(estimator, measure=measure, cv=cv, verbose=False).fit(X, y, **params)


class Majority(ClassifierMixin, BaseEstimator):
    """Answers with the number of rows of each class."""

    def fit(self, X, y):
        self.classes_, self.counts_ = np.unique(y, return_counts=True)
        return self

    def predict_proba(self, X):
        return np.tile(self.counts_ / self.counts_.sum(), (len(X), 1))

    def predict(self, X):
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]


@pytest.fixture
def registered():
    def left_out(fitted, X, y):
        counts = fitted.counts_ - (y[:, None] == fitted.classes_)
        return LeftOut(fitted.classes_, predict_proba=counts / counts.sum(axis=1, keepdims=True))

    register(Majority, kind="exact")(left_out)
    yield
    del SHORTCUTS[Majority]


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    "wrap", [lambda e: e, lambda e: make_pipeline(Normalizer(), e)], ids=["bare", "pipe"]
)
def test_a_detector_of_ones_own_can_be_registered(wrap):
    fast, slow = tce(wrap(Majority())), tce(wrap(Majority()), cv=LeaveOneOut())
    assert fast.leave_one_out_ == "exact"
    np.testing.assert_allclose(fast.calibration_.scores, slow.calibration_.scores)
    np.testing.assert_array_equal(fast.calibration_.predicted, slow.calibration_.predicted)


@pytest.mark.usefixtures("registered")
def test_a_subclass_may_do_anything_and_is_refitted():
    class Minority(Majority):
        pass

    assert tce(Minority()).leave_one_out_reason_ == "none is registered for Minority"


def test_a_kind_must_be_known():
    with pytest.raises(ValueError, match="must be 'exact' or 'approximate', not 'perfect'"):
        register(Majority, kind="perfect")


SEARCH = GridSearchCV(LinearSVC(), {"C": [0.1, 1.0]}, cv=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "measure", "reason"),
    [
        (Majority(), "auto", "none is registered for Majority"),
        (SEARCH, "auto", "none is registered for GridSearchCV"),
        (make_pipeline(Normalizer(), SEARCH), Margin(), "none is registered for GridSearchCV"),
        (
            make_pipeline(StandardScaler(), LinearSVC()),
            "auto",
            "step 'standardscaler' of the pipeline is fitted",
        ),
        (GaussianNB(), Margin(), "GaussianNB does not give what Margin needs"),
        (GaussianNB(), lambda e, X: -e.predict_proba(X), "FunctionMeasure has no left_out_scores"),
        (LinearSVC(class_weight="balanced"), "auto", "class_weight='balanced' changes"),
        (LinearSVC(penalty="l1", dual=False), "auto", "for penalty='l2'"),
        (
            MLPClassifier((2,), early_stopping=True, max_iter=2000, random_state=0),
            "auto",
            "none is registered",
        ),
    ],
)
def test_refitted_with_a_reason(estimator, measure, reason):
    if isinstance(estimator, GaussianNB) and isinstance(measure, Margin):
        with pytest.raises(ValueError, match="has no decision_function"):
            tce(estimator, measure)
        return
    fitted = tce(estimator, measure)
    assert fitted.leave_one_out_ == "refit"
    assert reason in fitted.leave_one_out_reason_


@pytest.mark.parametrize("step", [Normalizer(), FunctionTransformer(np.abs), "passthrough"])
def test_steps_that_learn_nothing_are_looked_through(step):
    detector = make_pipeline(step, GaussianNB())
    fast, slow = tce(detector), tce(detector, cv=LeaveOneOut())
    assert fast.leave_one_out_ == "exact"
    np.testing.assert_allclose(fast.calibration_.scores, slow.calibration_.scores)


def test_a_frozen_detector_answers_as_it_does():
    frozen = FrozenEstimator(LinearSVC().fit(X, y))
    fitted = tce(frozen)
    assert fitted.leave_one_out_ == "exact"
    np.testing.assert_allclose(fitted.calibration_.scores[:, 0], frozen.decision_function(X))


def test_weights_are_refitted():
    set_config(enable_metadata_routing=True)
    try:
        fitted = tce(LinearSVC().set_fit_request(sample_weight=True), sample_weight=np.ones(len(y)))
    finally:
        set_config(enable_metadata_routing=False)
    assert fitted.leave_one_out_reason_ == "sample_weight passed to fit is not supported"


def test_the_attributes_follow_the_last_fit():
    evaluator = tce(GaussianNB())
    evaluator.set_params(cv=5).fit(X, y)
    assert not hasattr(evaluator, "leave_one_out_")


def test_answers_are_about_the_training_rows_only():
    answers = LeftOut([0, 1], predict_proba=[[0.2, 0.8], [0.9, 0.1]])
    assert answers.predict(X[:2]).tolist() == [1, 0]
    with pytest.raises(ValueError, match="left-out answers about 2 rows, but X has 3"):
        answers.predict_proba(X[:3])
    assert not hasattr(answers, "decision_function")


def test_long_refits_are_forecast(monkeypatch, capsys):
    monkeypatch.setattr(transductive.time, "perf_counter", iter([0.0, 20.0]).__next__)
    TransductiveEvaluator(Majority(), measure=Probability(), cv="loo").fit(X, y)
    said = capsys.readouterr().err
    assert "none is registered for Majority. Refitting 60 times, about 20 minutes" in said
    assert "cv=10 would take 3 minutes" in said


def test_short_refits_are_not_announced(capsys):
    TransductiveEvaluator(Majority(), measure=Probability(), cv="loo").fit(X, y)
    assert capsys.readouterr().err == ""
