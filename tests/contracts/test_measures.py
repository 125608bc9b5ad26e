"""What every measure must do, on every detector it is meant for."""

from copy import deepcopy

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from lightgbm import LGBMClassifier
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.naive_bayes import BernoulliNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

from tests.contracts.test_rejectors import check_equal_matrices
from transcendent import InductiveEvaluator
from transcendent.measures import (
    CentroidDistance,
    Density,
    HiddenLayerSVM,
    Margin,
    NeighbourDistance,
    NeighbourRatio,
    NeighbourShare,
    OneVsRestMeasure,
    Probability,
    ProbabilityMargin,
    SecondOpinion,
    TreeDisagreement,
    choose_measure,
)
from transcendent.measures.base import FunctionMeasure, checked_scores

MLP = MLPClassifier((8,), max_iter=5000, tol=1e-3, random_state=0)
LIGHTGBM = LGBMClassifier(n_estimators=10, verbose=-1, n_jobs=1, random_state=0)
XGBOOST = XGBClassifier(n_estimators=10, n_jobs=1, random_state=0)

PAIRS = [
    (Margin(), LinearSVC()),
    (Margin(), SVC(kernel="poly")),
    (Margin(), SVC(kernel="rbf")),
    (Margin(), RidgeClassifier()),
    (Margin(), SGDClassifier(random_state=0)),
    (Margin(), LogisticRegression()),
    (Margin(), LinearDiscriminantAnalysis()),
    (Probability(), LogisticRegression()),
    (Probability(), GradientBoostingClassifier(n_estimators=10)),
    (Probability(), HistGradientBoostingClassifier(max_iter=10)),
    (Probability(), LIGHTGBM),
    (Probability(), XGBOOST),
    (Probability(), MLP),
    (Probability(), KNeighborsClassifier()),
    (ProbabilityMargin(), LogisticRegression()),
    (ProbabilityMargin(), LIGHTGBM),
    (CentroidDistance(), NearestCentroid()),
    (CentroidDistance("cosine"), LinearSVC()),
    (NeighbourShare(3), LinearSVC()),
    (NeighbourShare(5, metric="cosine"), DecisionTreeClassifier()),
    (NeighbourRatio(3), LinearSVC()),
    (NeighbourRatio(5, metric="cosine"), LIGHTGBM),
    (TreeDisagreement(), RandomForestClassifier(20, random_state=0)),
    (TreeDisagreement(), ExtraTreesClassifier(20, random_state=0)),
    (TreeDisagreement(), BaggingClassifier(max_features=0.5, random_state=0)),
    (Density(), GaussianNB()),
    (Density(), BernoulliNB()),
    (Density(), QuadraticDiscriminantAnalysis()),
    (HiddenLayerSVM(), MLP),
    (HiddenLayerSVM(max_rows=40, random_state=0), MLP),
    (OneVsRestMeasure(Margin()), LinearSVC()),
    (OneVsRestMeasure(Density(), estimator=GaussianNB()), LIGHTGBM),
    (SecondOpinion(GaussianNB()), LinearSVC()),
    (SecondOpinion(LIGHTGBM, ProbabilityMargin()), LogisticRegression()),
    (FunctionMeasure(lambda estimator, X: -estimator.predict_proba(X)), LogisticRegression()),
    (NeighbourDistance(2), LinearSVC()),
]
SPARSE = [
    pair
    for pair in PAIRS
    if not isinstance(
        pair[1],
        NearestCentroid
        | LinearDiscriminantAnalysis
        | QuadraticDiscriminantAnalysis
        | GaussianNB
        | HistGradientBoostingClassifier,
    )
    and getattr(pair[0], "estimator", None) is None
]

DISTANCES = [
    (make(metric=metric), LinearSVC())
    for make in (NeighbourRatio, NeighbourDistance, CentroidDistance, NeighbourShare)
    for metric in ("euclidean", "cosine", "jaccard")[: 3 if issubclass(make, NeighbourDistance) else 2]
]
ONE_OF_EACH = {type(pair[0]): pair for pair in SPARSE[::-1] if not hasattr(pair[0], "metric")}.values()


def name(pair):
    return f"{type(pair[0]).__name__}-{type(pair[1]).__name__}"


def data(n_classes, n=240):
    X, y = make_classification(
        n, 10, n_informative=6, n_redundant=0, n_classes=n_classes, class_sep=2.0, random_state=n_classes
    )
    return X, y


fits = {}


def fitted_detector(detector, X, y):
    """A copy of the detector fitted on these rows. Equal ones are fitted once: networks take long."""
    key = repr(detector), joblib.hash((X, y))
    if key not in fits:
        fits[key] = clone(detector).fit(X, y)
    return deepcopy(fits[key])


def fitted(pair, X, y):
    detector = fitted_detector(pair[1], X, y)
    return clone(pair[0]).fit(detector, X, y), detector


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")  # LightGBM's own, on plain arrays
@pytest.mark.parametrize("n_classes", [2, 3, pytest.param(7, marks=pytest.mark.slow)])
@pytest.mark.parametrize("pair", PAIRS, ids=name)
class TestContract:
    def test_scores_are_finite_float64_one_column_per_class(self, pair, n_classes):
        X, y = data(n_classes)
        measure, detector = fitted(pair, X, y)
        scores = checked_scores(measure, measure.scores(detector, X), (len(X), n_classes))
        assert scores.shape == (len(X), n_classes)
        assert scores.dtype == np.float64

    def test_higher_is_stranger(self, pair, n_classes):
        """Objects look less strange for the class they belong to than for the others."""
        X, y = data(n_classes)
        measure, detector = fitted(pair, X[::2], y[::2])
        scores = measure.scores(detector, X[1::2])
        own = scores[np.arange(len(scores)), y[1::2]]
        not_stranger = np.mean(own[:, None] <= scores)
        assert not_stranger > 0.5 + 0.5 / n_classes + 0.05  # scores without meaning would give the first two

    def test_scores_of_a_row_do_not_depend_on_the_others(self, pair, n_classes):
        X, y = data(n_classes)
        measure, detector = fitted(pair, X, y)
        together = measure.scores(detector, X[:20])
        alone = np.vstack([measure.scores(detector, X[i : i + 1]) for i in range(20)])
        np.testing.assert_allclose(alone, together, rtol=1e-9, atol=1e-9)

    def test_fit_leaves_parameters_and_detector_alone(self, pair, n_classes):
        X, y = data(n_classes)
        measure, detector = fitted(pair, X, y)
        assert repr(clone(measure)) == repr(clone(pair[0]))
        assert detector.predict(X).tolist() == fitted_detector(pair[1], X, y).predict(X).tolist()


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("pair", SPARSE, ids=name)
def test_sparse_rows_are_scored(pair):
    X, y = data(3)
    X = np.where(np.abs(X) > 1, X, 0.0)
    measure, detector = fitted(pair, X, y)
    dense = measure.scores(detector, X)
    rows = sp.csr_matrix(X)
    measure, detector = fitted(pair, rows, y)
    sparse = checked_scores(measure, measure.scores(detector, rows), (len(X), 3))
    if measure.needs_rows:  # the others only pass on what the detector says, and some detectors differ
        np.testing.assert_allclose(sparse, dense, rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore::transcendent.errors.CalibrationWarning")
@pytest.mark.parametrize("pair", [*ONE_OF_EACH, *DISTANCES], ids=name)
def test_an_equal_matrix_gives_equal_decisions(pair):
    """Halves of entries, any order and format, explicit zeros, dense rows: at fit and at decide."""
    check_equal_matrices(InductiveEvaluator(pair[1], measure=pair[0], random_state=0))


@pytest.mark.parametrize("pair", DISTANCES, ids=name)
def test_distances_take_dense_rows_after_sparse_ones_and_the_reverse(pair):
    X, y = data(2)
    X = np.where(np.abs(X) > 1, X, 0.0)
    for fit, asked in ((X, sp.csr_matrix), (sp.csr_matrix(X), np.asarray)):
        measure, detector = fitted(pair, fit, y)
        expected = measure.scores(detector, fit[:50])
        np.testing.assert_allclose(measure.scores(detector, asked(X[:50])), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("detector", "expected"),
    [
        (LinearSVC(), Margin),
        (SVC(), Margin),
        (LogisticRegression(), Margin),
        (RandomForestClassifier(), TreeDisagreement),
        (ExtraTreesClassifier(), TreeDisagreement),
        (BaggingClassifier(), TreeDisagreement),
        (GradientBoostingClassifier(), Probability),
        (HistGradientBoostingClassifier(), Probability),
        (LIGHTGBM, Probability),
        (XGBOOST, Probability),
        (MLP, Probability),
        (KNeighborsClassifier(), Probability),
        (NearestCentroid(), CentroidDistance),
        (GaussianNB(), Density),
        (MultinomialNB(), Density),
        (QuadraticDiscriminantAnalysis(), Density),
    ],
    ids=lambda part: type(part).__name__ if hasattr(part, "fit") else part.__name__,
)
def test_auto_picks_a_measure_for_every_detector(detector, expected):
    assert type(choose_measure(detector)) is expected
