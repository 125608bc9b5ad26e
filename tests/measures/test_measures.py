import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Perceptron, RidgeClassifier
from sklearn.metrics import pairwise_distances
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, ComplementNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from transcendent import InductiveEvaluator
from transcendent._utils.estimators import see_through, transform
from transcendent.errors import MeasureError
from transcendent.measures import (
    Density,
    HiddenLayerSVM,
    Margin,
    NeighbourDistance,
    NeighbourRatio,
    NeighbourShare,
    Probability,
    ProbabilityMargin,
    TreeDisagreement,
    choose_measure,
)
from transcendent.measures.auto import resolve_measure
from transcendent.measures.base import FunctionMeasure, checked_scores
from transcendent.measures.drift import Boosting
from transcendent.measures.network import last_hidden_layer


@pytest.fixture
def three():
    return make_classification(300, 8, n_informative=5, n_redundant=0, n_classes=3, random_state=0)


def test_neighbour_share_is_what_scikit_learns_neighbours_say(three):
    X, y = three
    knn = KNeighborsClassifier(7).fit(X, y)
    scores = NeighbourShare(7).fit(knn, X, y).scores(knn, X)
    np.testing.assert_allclose(scores, 1 - knn.predict_proba(X))


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_neighbours_at_the_same_distance_share_the_places_left(metric, form):
    """Small whole numbers: many copies with different labels, and many different rows equally far away."""
    rng = np.random.default_rng(0)
    X, y, new = 1.0 + rng.integers(0, 3, (120, 4)), rng.integers(0, 3, 120), 1.0 + rng.integers(0, 3, (30, 4))
    knn = KNeighborsClassifier().fit(X, y)
    share = NeighbourShare(5, metric=metric).fit(knn, form(X), y)
    for rows, left_out in ((new, False), (X, True)):
        found = share.left_out_scores(knn, form(X), y) if left_out else share.scores(knn, form(rows))
        distances = pairwise_distances(rows, X, metric=metric).round(9)
        if left_out:
            np.fill_diagonal(distances, np.inf)
        for i, d in enumerate(distances):
            last = np.sort(d)[4]
            places = (d < last) + (d == last) * (5 - np.sum(d < last)) / np.sum(d == last)
            expected = [1 - places[y == c].sum() / 5 for c in range(3)]
            np.testing.assert_allclose(found[i], expected, atol=1e-12)


@pytest.mark.parametrize("shift", ["one far row", "all rows far from the origin"])
def test_far_rows_do_not_blur_neighbours(shift):
    rng = np.random.default_rng(0)
    y = np.arange(400) % 2
    X = rng.normal(size=(400, 3)) + 30 * y[:, None]
    expected = NeighbourShare().fit(KNeighborsClassifier().fit(X, y), X, y).scores(None, X[:50])
    if shift == "one far row":
        X[-1] = 1e7
    else:
        X += 1e6
    found = NeighbourShare().fit(KNeighborsClassifier().fit(X, y), X, y).scores(None, X[:50])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_no_distance_is_left_between_equal_rows(metric):
    rng = np.random.default_rng(0)
    X, y = rng.random((200, 50)).repeat(4, axis=0), np.arange(800) // 4 % 2
    ratio = NeighbourRatio(3, metric=metric).fit(LinearSVC().fit(X, y), X, y)
    np.testing.assert_array_equal(np.sort(ratio.scores(None, X), axis=1), np.tile([0.0, 1.0], (800, 1)))
    alone = NeighbourRatio(3, metric=metric).fit(LinearSVC().fit(X, y), X, y).scores(None, X[:1])
    np.testing.assert_array_equal(alone, ratio.scores(None, X)[:1])


def test_neighbour_distance_and_ratio_follow_their_definitions(three):
    X, y = three
    knn = KNeighborsClassifier().fit(X, y)
    new = X[:10] + 0.1
    scores = NeighbourRatio(4).fit(knn, X, y).scores(knn, new)
    absolute = NeighbourDistance(4).fit(knn, X, y).scores(knn, new)
    distances = np.linalg.norm(new[:, None] - X[None], axis=2)
    d = np.column_stack([np.sort(distances[:, y == c], axis=1)[:, :4].mean(axis=1) for c in range(3)])
    for c in range(3):
        other = np.delete(d, c, axis=1).min(axis=1)
        np.testing.assert_allclose(scores[:, c], d[:, c] / (d[:, c] + other))
    np.testing.assert_allclose(absolute, d)


def test_neighbour_ratio_of_a_row_found_in_two_classes_is_a_half():
    X, y = np.array([[0.0], [0.0], [5.0]]), np.array([0, 1, 1])
    knn = KNeighborsClassifier(1).fit(X, y)
    assert NeighbourRatio(1).fit(knn, X, y).scores(knn, [[0.0]]).tolist() == [[0.5, 0.5]]


def test_probability_margin_follows_its_definition(three):
    X, y = three
    model = LogisticRegression().fit(X, y)
    p = model.predict_proba(X)
    expected = np.column_stack([np.delete(p, c, axis=1).max(axis=1) - p[:, c] for c in range(3)])
    np.testing.assert_allclose(ProbabilityMargin().scores(model, X), expected)


def test_tree_disagreement_counts_votes(three):
    X, y = three
    forest = RandomForestClassifier(15, max_depth=3, random_state=0).fit(X, y)
    votes = np.array([tree.predict(X) for tree in forest.estimators_])
    expected = np.column_stack([(votes != c).mean(axis=0) for c in range(3)])
    np.testing.assert_allclose(TreeDisagreement().scores(forest, X), expected)


def test_quadratic_density_orders_as_the_posterior_does(three):
    X, y = three
    qda = QuadraticDiscriminantAnalysis().fit(X, y)
    joint = np.log(qda.priors_) - Density().scores(qda, X)
    posterior = np.exp(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))
    np.testing.assert_allclose(posterior, qda.predict_proba(X), atol=1e-12)


@pytest.mark.parametrize(
    ("bayes", "prior"),
    [
        (GaussianNB(), {"priors": [0.1, 0.2, 0.7]}),
        *((model(), {"class_prior": [0.1, 0.2, 0.7]}) for model in (BernoulliNB, MultinomialNB)),
        (ComplementNB(), {"class_prior": [0.1, 0.2, 0.7]}),
        (CategoricalNB(), {"class_prior": [0.1, 0.2, 0.7]}),
        (QuadraticDiscriminantAnalysis(), {"priors": [0.1, 0.2, 0.7]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_density_does_not_depend_on_priors(three, bayes, prior):
    X, y = three
    X = np.abs(X).round() if isinstance(bayes, CategoricalNB) else np.abs(X)
    models = (clone(bayes), clone(bayes).set_params(**prior))
    plain, given = (Density().scores(model.fit(X, y), X) for model in models)
    np.testing.assert_allclose(given, plain, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["identity", "logistic", "tanh", "relu"])
def test_last_hidden_layer_is_the_networks_own(three, activation):
    X, y = three
    mlp = MLPClassifier((6, 4), activation=activation, max_iter=3000, random_state=0).fit(X, y)
    output = last_hidden_layer(mlp, X) @ mlp.coefs_[-1] + mlp.intercepts_[-1]
    softmax = np.exp(output - np.logaddexp.reduce(output, axis=1, keepdims=True))
    np.testing.assert_allclose(softmax, mlp.predict_proba(X), atol=1e-9)


def test_hidden_layer_of_another_network(three):
    X, y = three
    detector = LogisticRegression().fit(X, y)
    measure = HiddenLayerSVM(hidden=lambda estimator, X: np.tanh(X @ estimator.coef_.T))
    assert measure.fit(detector, X, y).scores(detector, X).shape == (300, 3)
    with pytest.raises(MeasureError, match="pass hidden="):
        HiddenLayerSVM().fit(detector, X, y)


def test_hidden_layer_rows_keep_every_class(three):
    X, _ = three
    y = np.r_[np.zeros(298, dtype=int), 1, 2]
    mlp = MLPClassifier((4,), max_iter=2000, random_state=0).fit(X, y)
    measure = HiddenLayerSVM(max_rows=10, random_state=0).fit(mlp, X, y)
    assert measure.svm_.classes_.tolist() == [0, 1, 2]
    assert measure.svm_.shape_fit_[0] == 10


@pytest.mark.parametrize("detector", [LinearSVC(), LogisticRegression(), RidgeClassifier(), Perceptron()])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_labels_implied_by_the_margin_are_the_detectors(three, detector, n_classes):
    X, y = three
    detector = clone(detector).fit(X, np.minimum(y, n_classes - 1))
    implied = Margin().implied_labels(detector, Margin().scores(detector, X))
    if implied is not None:
        assert detector.classes_[implied].tolist() == detector.predict(X).tolist()
    assert (implied is None) == isinstance(detector, RidgeClassifier)


@pytest.mark.parametrize("n_classes", [3, 4])  # three classes have three pairs
def test_one_vs_one_decisions_are_refused_with_the_way_out(n_classes):
    X, y = make_classification(300, 8, n_informative=5, n_classes=n_classes, random_state=0)
    svc = SVC(decision_function_shape="ovo").fit(X, y)
    with pytest.raises(MeasureError, match="decision_function_shape='ovr'"):
        Margin().scores(svc, X)


def test_pipelines_frozen_and_searched_detectors_are_seen_through(three):
    X, y = three
    inner = make_pipeline(PCA(4), LinearSVC())
    pipeline = make_pipeline(StandardScaler(), inner).fit(X, y)
    transformers, classifier = see_through(FrozenEstimator(pipeline))
    assert isinstance(classifier, LinearSVC)
    np.testing.assert_array_equal(
        classifier.decision_function(transform(transformers, X)), pipeline.decision_function(X)
    )
    searched = GridSearchCV(make_pipeline(StandardScaler(), LinearSVC()), {"linearsvc__C": [0.1, 1]}).fit(
        X, y
    )
    assert isinstance(choose_measure(searched), Margin)
    assert len(see_through(searched)[0]) == 1


def test_steps_that_learn_nothing_are_seen_through(three):
    X, y = three
    pipeline = make_pipeline(Doubled(), "passthrough", None, LinearSVC()).fit(X, y)
    transformers, classifier = see_through(pipeline)
    assert transform(transformers, X).tolist() == (2 * X).tolist()
    assert isinstance(classifier, LinearSVC)


class Contrary(Pipeline):
    def predict(self, X):
        return 1 - super().predict(X)


def test_a_pipeline_with_a_predict_of_its_own_is_not_seen_through():
    X, y = make_classification(300, random_state=0)
    pipeline = Contrary([("scale", StandardScaler()), ("svm", LinearSVC())]).fit(X, y)
    assert see_through(pipeline) == ([], pipeline)
    ice = InductiveEvaluator(FrozenEstimator(pipeline)).fit(X, y)
    assert ice.predict(X).tolist() == pipeline.predict(X).tolist()


class Doubled(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return 2 * X


class Mute(BaseEstimator):
    """Only predicts."""


def test_measures_that_do_not_fit_say_so(three):
    X, y = three
    svm = LinearSVC().fit(X, y)
    with pytest.raises(MeasureError, match="no measure is known for Mute"):
        choose_measure(Mute())
    with pytest.raises(MeasureError, match="not a forest"):
        TreeDisagreement().scores(svm, X)
    with pytest.raises(MeasureError, match="no class densities"):
        Density().scores(svm, X)
    with pytest.raises(MeasureError, match="there is no measure 'margins'; did you mean 'margin'"):
        resolve_measure("margins", svm)
    with pytest.raises(MeasureError, match="or a function, not 3"):
        resolve_measure(3, svm)
    with pytest.raises(MeasureError, match=r"Margin\(\)"):
        resolve_measure(Margin, svm)
    with pytest.raises(MeasureError, match="no predict_proba"):
        Probability().scores(svm, X)
    with pytest.raises(MeasureError, match="no decision_function"):
        Margin().scores(KNeighborsClassifier().fit(X, y), X)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda _, X: np.zeros(len(X)), r"shape \(300,\), not \(objects, classes\) = \(300, 3\)"),
        (lambda _, X: np.zeros((len(X), 2)), r"shape \(300, 2\), not"),
        (lambda _, X: np.zeros((1, 3)), r"shape \(1, 3\), not"),
        (lambda _, X: np.full((len(X), 3), np.nan), "contain NaN"),
        (lambda _, X: np.full((len(X), 3), -np.inf), "contain NaN or infinity"),
        (lambda _, X: np.where(np.arange(len(X))[:, None] == 7, np.inf, np.zeros(3)), "a finite score"),
    ],
)
def test_unusable_scores_of_a_function_are_refused(three, function, message):
    X, y = three
    measure = FunctionMeasure(function)
    with pytest.raises(MeasureError, match=message):
        checked_scores(measure, measure.scores(LinearSVC().fit(X, y), X), (len(X), 3))


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_a_density_of_zero_is_the_strangest_and_finite():
    """A value that no training object of the class has, without smoothing; and rows too far for a float."""
    X, y = np.array([[0], [0], [1], [0], [1], [2]]), np.array([0, 0, 0, 1, 1, 1])
    bayes = CategoricalNB(alpha=0, force_alpha=True, min_categories=3).fit(X, y)
    scores = Density().scores(bayes, X)
    assert np.isfinite(scores).all()
    assert scores[5, 0] == scores.max() > scores[5, 1]
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(60, 2)), np.arange(60) % 2
    for detector in (GaussianNB(), QuadraticDiscriminantAnalysis()):
        far = Density().scores(detector.fit(rows, labels), [[0.0, 1.0], [1e200, 0.0]])
        assert np.isfinite(far).all()
        assert (far[1] > far[0]).all()


@pytest.mark.parametrize("binary", [False, True])
def test_boosting_is_what_scikit_learn_fits_in_less_time(binary):
    X, y = make_classification(600, n_informative=6, random_state=0)
    X = (X > 0).astype(np.float32) if binary else X
    sizes = {"max_iter": 20, "max_features": 0.3, "random_state": 0}
    expected = HistGradientBoostingClassifier(early_stopping=False, **sizes).fit(X, y)
    found = Boosting(**sizes).fit(X, y)
    np.testing.assert_array_equal(found.predict_proba(X), expected.predict_proba(X))
    assert found.model_.max_bins == (2 if binary else 255)


def test_many_classes_are_boosted_in_fewer_rounds():
    X = np.random.default_rng(0).normal(size=(400, 3))
    for n_classes, rounds in ((2, 20), (4, 20), (8, 10), (40, 2)):
        assert Boosting(max_iter=20).fit(X, np.arange(400) % n_classes).model_.n_iter_ == rounds
