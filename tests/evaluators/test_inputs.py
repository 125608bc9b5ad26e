"""The detectors and data people have."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import sklearn
from lightgbm import LGBMClassifier
from sklearn.compose import ColumnTransformer
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    BaggingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from xgboost import XGBClassifier

from transcendent import (
    Answers,
    CrossConformalEvaluator,
    InductiveEvaluator,
    RejectionBudget,
    Rejector,
    ScoreEvaluator,
    TransductiveEvaluator,
)
from transcendent.baselines import CPReject, DroidEvolver, ProbabilityThresholds
from transcendent.errors import CalibrationWarning
from transcendent.measures import CentroidDistance, NeighbourRatio, Probability

EVALUATORS = {
    "ICE": lambda detector, **options: InductiveEvaluator(detector, random_state=0, **options),
    "approx-TCE": lambda detector, **options: TransductiveEvaluator(
        detector, cv=3, random_state=0, **options
    ),
    "CCE": lambda detector, **options: CrossConformalEvaluator(detector, cv=3, random_state=0, **options),
}
every_evaluator = pytest.mark.parametrize("make", EVALUATORS.values(), ids=EVALUATORS.keys())


def data(n=600, n_classes=2, seed=0):
    return make_classification(
        n, 10, n_informative=6, n_redundant=0, n_classes=n_classes, class_sep=1.5, random_state=seed
    )


def check(decisions, y):
    n = len(y)
    assert decisions.p_values.shape == (n, len(decisions.classes))
    assert np.isin(decisions.labels, decisions.classes).all()
    assert 0 < decisions.accepted.sum() <= n
    assert ((decisions.credibility >= 0) & (decisions.credibility <= 1)).all()
    assert np.mean(decisions.labels == y) > 1 / len(decisions.classes)


@every_evaluator
@pytest.mark.parametrize(
    "convert",
    [
        np.float64,
        np.float32,
        sp.csr_matrix,
        sp.csr_array,
        sp.csc_matrix,
        np.ndarray.tolist,
        pd.DataFrame,
        lambda X: pl.DataFrame(X, schema=[f"f{i}" for i in range(X.shape[1])]),
    ],
    ids=["float64", "float32", "csr_matrix", "csr_array", "csc", "list", "pandas", "polars"],
)
def test_containers(make, convert):
    X, y = data()
    rows = convert(X)
    if isinstance(rows, pd.DataFrame):
        rows.columns = [f"f{i}" for i in range(10)]
    evaluator = make(LogisticRegression()).fit(rows, y)
    check(evaluator.decide(rows), y)
    assert isinstance(evaluator, Rejector)
    if not isinstance(rows, np.ndarray) or rows.dtype == np.float64:
        expected = make(LogisticRegression()).fit(X, y).decide(X)
        np.testing.assert_allclose(evaluator.decide(rows).p_values, expected.p_values, atol=0.02)


@every_evaluator
@pytest.mark.parametrize("labels", [["goodware", "malware"], [-7, 40], [0.0, 1.0], [False, True]], ids=str)
def test_labels(make, labels):
    X, y = data()
    named = np.array(labels)[y]
    decisions = make(LinearSVC()).fit(X, named).decide(X)
    check(decisions, named)
    plain = make(LinearSVC()).fit(X, y).decide(X)
    assert decisions.accepted.tolist() == plain.accepted.tolist()


@every_evaluator
@pytest.mark.parametrize("kind", [list, pd.Series, pl.Series], ids=["list", "pandas", "polars"])
def test_label_containers(make, kind):
    X, y = data()
    names = np.array(["goodware", "malware"])[y].tolist()
    check(make(LinearSVC()).fit(X, kind(names)).decide(X), np.array(names))


@pytest.mark.slow
@every_evaluator
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")  # LightGBM's own, on plain arrays
@pytest.mark.parametrize(
    "detector",
    [
        LGBMClassifier(n_estimators=20, n_jobs=1, verbose=-1),
        XGBClassifier(n_estimators=20, n_jobs=1),
        RandomForestClassifier(20, random_state=0),
        make_pipeline(StandardScaler(), LinearSVC()),
    ],
    ids=lambda d: type(d).__name__,
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_detectors(make, detector, n_classes):
    X, y = data(n_classes=n_classes)
    evaluator = make(detector).fit(X, y)
    check(evaluator.decide(X), y)
    check(make(FrozenEstimator(evaluator.detectors_[0].estimator)).fit(X, y).decide(X), y)


@every_evaluator
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_columns_of_all_kinds(make, frame):
    X, y = data()
    rng = np.random.default_rng(0)
    table = frame(
        {"size": X[:, 0], "entropy": X[:, 1], "packer": np.array(["upx", "none"])[rng.integers(0, 2, 600)]}
    )
    columns = ColumnTransformer(
        [("numbers", StandardScaler(), ["size", "entropy"]), ("names", OneHotEncoder(), ["packer"])]
    )
    evaluator = make(make_pipeline(columns, LinearSVC()), measure=NeighbourRatio(3)).fit(table, y)
    decisions = evaluator.decide(table)
    assert decisions.p_values.shape == (600, 2)
    assert evaluator.feature_names_in_.tolist() == ["size", "entropy", "packer"]
    with pytest.raises(ValueError, match="feature names should match"):
        evaluator.decide(frame({"bytes": X[:, 0], "entropy": X[:, 1], "packer": np.full(600, "upx")}))


@every_evaluator
def test_text(make):
    rng = np.random.default_rng(0)
    words = {0: ["invoice", "meeting", "lunch"], 1: ["prize", "winner", "click"]}
    y = rng.integers(0, 2, 300)
    mails = [" ".join(rng.choice([*words[c], "the", "a"], 6)) for c in y]
    detector = make_pipeline(TfidfVectorizer(), LinearSVC())
    check(make(detector).fit(mails, y).decide(mails), y)


@every_evaluator
def test_a_million_columns(make):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    columns = np.column_stack([y, rng.integers(2, 1_000_000, (300, 50))]).ravel()
    X = sp.csr_matrix((np.ones(300 * 51), columns, np.arange(0, 300 * 51 + 1, 51)), shape=(300, 1_000_000))
    check(make(LinearSVC()).fit(X, y).decide(X), y)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::transcendent.errors.CalibrationWarning")
@every_evaluator
def test_150_classes(make):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(150), 12)
    X = rng.normal(size=(150, 20))[y] + 0.5 * rng.normal(size=(len(y), 20))
    evaluator = make(LogisticRegression()).fit(X, y)
    check(evaluator.decide(X), y)
    assert evaluator.decide(X).p_values.shape == (1800, 150)


def warnings_of_fitting(X, y):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ice = InductiveEvaluator(LogisticRegression(), random_state=0).fit(X, y)
    assert all(w.category is CalibrationWarning for w in caught)
    assert all(w.filename == __file__ for w in caught)
    return ice, " ".join(str(w.message) for w in caught)


def test_a_calibration_class_with_one_member_works_and_is_warned_about():
    X, y = data(300)
    y = np.where(np.arange(300) < 2, 2, y)
    ice, message = warnings_of_fitting(X, y)
    assert "2 has 1, so steps of 1/1 = 1" in message
    assert (ice.calibration_.actual == 2).sum() == 1
    p = ice.predict_p(X)[:, 2]
    assert set(p.tolist()) <= {0.0, 1.0}


def test_few_calibration_objects_are_warned_about_with_the_resolution():
    assert "0 has 15, so steps of 1/15 = 0.0667; 1 has 16" in warnings_of_fitting(*data(90))[1]
    assert warnings_of_fitting(*data(300))[1] == ""


def test_a_class_never_predicted_is_warned_about():
    X, y = data(2000)
    y = np.where(np.arange(2000) % 20 == 0, 2, y)
    assert "no calibration object was predicted as 2" in warnings_of_fitting(X, y)[1]


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@every_evaluator
@pytest.mark.parametrize("kind", [np.asarray, pd.Series, pl.Series], ids=["numpy", "pandas", "polars"])
def test_sample_weights_reach_the_detector(make, kind, routing):
    X, y = data()
    weights = np.where(np.arange(600) % 3 == 0, 1.0, 0.0)
    detector = LogisticRegression().set_fit_request(sample_weight=True)
    weighted = make(detector).fit(X, y, sample_weight=kind(weights))
    plain = make(LogisticRegression()).fit(X, y)
    assert not np.allclose(weighted.detectors_[0].estimator.coef_, plain.detectors_[0].estimator.coef_)
    # Rows without weight change nothing: whatever they are, the fit is the same.
    noisy = np.where((weights > 0)[:, None], X, 100.0)
    again = make(detector).fit(noisy, y, sample_weight=kind(weights))
    np.testing.assert_allclose(
        again.detectors_[0].estimator.coef_,
        weighted.detectors_[0].estimator.coef_,
        atol=1e-4,
    )


@every_evaluator
def test_sample_weights_without_routing_are_refused_with_the_way(make):
    X, y = data()
    with pytest.raises(ValueError, match="enable_metadata_routing=True"):
        make(LogisticRegression()).fit(X, y, sample_weight=np.ones(600))


@pytest.mark.parametrize(
    "detector",
    [
        RandomForestClassifier(20, random_state=0),
        BaggingClassifier(HistGradientBoostingClassifier(max_iter=10), 5, random_state=0),
        HistGradientBoostingClassifier(max_iter=10),
    ],
    ids=lambda d: type(d).__name__,
)
def test_missing_values_where_the_detector_takes_them(detector):
    X, y = data()
    X[::7, 3] = np.nan
    check(InductiveEvaluator(detector, random_state=0).fit(X, y).decide(X), y)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_an_infinitely_strange_object_is_rejected_and_the_others_decided():
    X, y = data()
    ice = InductiveEvaluator(GaussianNB(), random_state=0).fit(X, y)
    decisions = ice.decide(np.vstack([X[:9], np.full((1, 10), 1e200)]))
    assert decisions.credibility[9] == 0
    assert not decisions.accepted[9]
    assert decisions.accepted[:9].any()


class Backwards(LogisticRegression):
    """A detector whose classes are not sorted."""

    def fit(self, X, y):
        super().fit(X, y)
        self.classes_ = self.classes_[::-1].copy()
        self.coef_, self.intercept_ = -self.coef_[::-1], -self.intercept_[::-1]
        return self


@pytest.mark.parametrize("measure", ["auto", Probability(), CentroidDistance()])
def test_classes_in_any_order(measure):
    X, y = data()
    forwards, backwards = (kind().fit(X[:200], y[:200]) for kind in (LogisticRegression, Backwards))
    assert forwards.predict(X).tolist() == backwards.predict(X).tolist()
    ours, theirs = (
        InductiveEvaluator(FrozenEstimator(d), measure=measure, random_state=0).fit(X[200:400], y[200:400])
        for d in (forwards, backwards)
    )
    assert ours.decide(X[400:]).labels.tolist() == theirs.decide(X[400:]).labels.tolist()
    np.testing.assert_allclose(ours.predict_p(X[400:]), theirs.predict_p(X[400:]))


def test_scores_alone_give_what_the_detector_gives():
    X, y = data()
    detector = LogisticRegression().fit(X[:200], y[:200])
    ice = InductiveEvaluator(FrozenEstimator(detector)).fit(X[200:400], y[200:400])
    scores = np.column_stack([detector.decision_function(X), -detector.decision_function(X)])
    answers = Answers(detector.predict(X), scores)
    vendor = ScoreEvaluator().fit(answers[200:400], y[200:400])
    ours, theirs = ice.decide(X[400:]), vendor.decide(answers[400:])
    assert ours.accepted.tolist() == theirs.accepted.tolist()
    assert ours.p_values.tolist() == theirs.p_values.tolist() == vendor.predict_p(answers[400:]).tolist()
    assert ours.labels.tolist() == vendor.predict(answers[400:]).tolist()
    assert vendor.decide(ice.answer(X[400:])).p_values.tolist() == ours.p_values.tolist()
    assert vendor.thresholds_.tolist() == ice.thresholds_.tolist()


@pytest.mark.parametrize(
    "rejector",
    [
        *(make(LogisticRegression()) for make in EVALUATORS.values()),
        ProbabilityThresholds(LogisticRegression(), random_state=0),
        CPReject(LogisticRegression(), random_state=0),
        DroidEvolver(buffer_size=50, random_state=0),
        RejectionBudget(EVALUATORS["ICE"](LogisticRegression()), rate=0.1),
    ],
    ids=lambda rejector: type(rejector).__name__,
)
def test_the_index_of_a_frame_is_kept(rejector):
    X, y = make_classification(400, random_state=0)
    frame = pd.DataFrame(X, index=[f"object {i}" for i in range(400)])
    decisions = rejector.fit(frame[:300], y[:300]).decide(frame[300:])
    assert decisions.to_pandas().index.tolist() == frame.index[300:].tolist()
    assert (
        decisions[decisions.rejected].to_pandas().index.tolist()
        == frame.index[300:][decisions.rejected].tolist()
    )
    assert rejector.decide(X[300:]).index is None


class Foreign:
    def predict(self, rows):
        return np.zeros(len(rows))


@pytest.mark.parametrize("make", EVALUATORS.values(), ids=EVALUATORS)
@pytest.mark.parametrize("detector", [Foreign(), "svm", len])
def test_what_is_no_classifier_is_refused_in_one_sentence_with_a_recipe(make, detector):
    X, y = make_classification(100, random_state=0)
    with pytest.raises(
        TypeError, match=r"it has no fit\. .*ScoreEvaluator\(\)\.fit\(Answers\(labels, scores\), y\)"
    ) as caught:
        make(detector).fit(X, y)
    assert "__" not in str(caught.value)
    assert len(str(caught.value)) < 320
    with pytest.raises(TypeError, match=r"pass an instance, LinearSVC\(\)"):
        make(LinearSVC).fit(X, y)


class TestLabelsInAnotherOrder:
    """Which belong to rows by position, and may have been meant by index."""

    X, y = data(400)
    frame, labels = pd.DataFrame(X).add_prefix("f"), pd.Series(y)
    shuffled = np.random.default_rng(0).permutation(400)
    message = r"y has the index values of X in another order.*y\.loc\[X\.index\]"

    @every_evaluator
    def test_is_warned_of(self, make):
        with pytest.warns(UserWarning, match=self.message) as caught:
            make(LogisticRegression()).fit(self.frame, self.labels.loc[self.shuffled])
        assert [w.filename for w in caught] == [__file__]

    @pytest.mark.parametrize(
        "rejector", [CPReject(LinearSVC()), DroidEvolver(), RejectionBudget(CPReject(LinearSVC()), rate=0.1)]
    )
    def test_other_rejectors_warn_too(self, rejector):
        with pytest.warns(UserWarning, match=self.message):
            rejector.fit(self.frame, self.labels.loc[self.shuffled])

    @pytest.mark.filterwarnings("ignore::transcendent.errors.CalibrationWarning")
    def test_scores_too(self):
        answers = (self.X[:, 0] > 0).astype(int)
        scores = pd.DataFrame({0: self.X[:, 0], 1: -self.X[:, 0]})
        with pytest.warns(UserWarning, match=self.message):
            ScoreEvaluator().fit(Answers(answers, scores), pd.Series(answers).loc[self.shuffled])

    def test_in_learn_and_recalibrate(self):
        ice = InductiveEvaluator(LogisticRegression(), measure=NeighbourRatio(), random_state=0)
        ice.fit(self.frame, self.labels)
        with pytest.warns(UserWarning, match=self.message) as caught:
            ice.recalibrate(self.frame, self.labels.loc[self.shuffled])
        assert [w.filename for w in caught] == [__file__]
        ice.fit(self.frame, self.labels)
        with (
            pytest.warns(UserWarning, match=self.message) as caught,
            pytest.raises(ValueError, match="have another label here"),
        ):
            ice.learn(self.frame, self.labels.loc[self.shuffled])
        assert [w.filename for w in caught] == [__file__]

    def test_equal_and_unrelated_indexes_are_not(self):
        ice = InductiveEvaluator(LogisticRegression(), random_state=0)
        named = [f"app {i}" for i in self.shuffled]
        for frame, labels in (
            (self.frame, self.labels),
            (self.frame.loc[self.shuffled], self.labels.loc[self.shuffled]),
            (self.frame.set_axis(named), self.labels.set_axis(named)),
            (self.frame.set_axis(named), self.labels),
            (self.frame, self.labels.set_axis(range(1, 401))),
            (self.frame, self.y),
            (self.X, self.labels.loc[self.shuffled]),
            (pl.from_pandas(self.frame), self.labels.loc[self.shuffled]),
            (self.frame.set_axis([0] * 400), self.labels.set_axis([0] * 400)),
        ):
            ice.fit(frame, labels)


def in_halves(rows):
    """The same matrix, each entry in two parts."""
    rows = sp.csr_matrix(rows)
    parts = (np.repeat(rows.data / 2, 2), np.repeat(rows.indices, 2), rows.indptr * 2)
    return sp.csr_matrix(parts, shape=rows.shape)


def test_sparse_rows_that_a_pipeline_makes_are_summed():
    rows, y = data()
    rows = np.clip(np.round(rows), 0, 4)
    decided = []
    for step in (sp.csr_matrix, in_halves):
        detector = make_pipeline(FunctionTransformer(step), LinearSVC(random_state=0))
        ice = InductiveEvaluator(detector, measure=NeighbourRatio(), random_state=0).fit(rows[:400], y[:400])
        decided.append(ice.decide(rows[400:]).p_values)
    np.testing.assert_array_equal(*decided)


def test_a_detector_whose_predict_comes_with_its_fit():
    X, y = data()
    stacked = StackingClassifier([("svm", LinearSVC()), ("nb", GaussianNB())])
    assert not hasattr(stacked, "predict")
    for detector in (stacked, make_pipeline(StandardScaler(), stacked)):
        check(InductiveEvaluator(detector, random_state=0).fit(X[:400], y[:400]).decide(X[400:]), y[400:])
