"""Fitted estimators, crafted so that compiled code would read or write outside of their arrays."""

import functools

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.cluster import BisectingKMeans, KMeans
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    BaggingClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import (
    KNeighborsClassifier,
    KNeighborsRegressor,
    NearestNeighbors,
    RadiusNeighborsClassifier,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer, OneHotEncoder, PolynomialFeatures, SplineTransformer
from sklearn.svm import SVC, SVR, OneClassSVM
from sklearn.tree import DecisionTreeClassifier
from sklearn.tree._tree import Tree

from transcendent import InductiveEvaluator
from transcendent.artifacts import load, save
from transcendent.artifacts.contents import check_contents, reachable
from transcendent.errors import ArtifactError

X, y = make_classification(120, 8, random_state=0)
Y3 = np.arange(120) % 3
TEXTS = ["good day", "cheap pills"]

HONEST = [
    KNeighborsClassifier(algorithm="brute").fit(X, y),
    KNeighborsClassifier(algorithm="kd_tree").fit(X, np.c_[y, Y3]),
    KNeighborsClassifier(algorithm="ball_tree", metric="manhattan").fit(X, y),
    KNeighborsRegressor().fit(sp.csr_matrix(X), y),
    RadiusNeighborsClassifier(outlier_label="most_frequent").fit(X, y),
    NearestNeighbors().fit(X),
    RandomForestClassifier(2, random_state=0).fit(X, np.c_[y, Y3]),
    DecisionTreeClassifier(max_leaf_nodes=5, ccp_alpha=0.01).fit(X, Y3),
    GradientBoostingClassifier(n_estimators=2).fit(X, Y3),
    GradientBoostingClassifier(n_estimators=2, init=LogisticRegression()).fit(X, Y3),
    GradientBoostingClassifier(n_estimators=2, init="zero").fit(X, y),
    HistGradientBoostingClassifier(max_iter=2, categorical_features=[0]).fit(abs(X).round(), Y3),
    SVC().fit(X, Y3),
    SVC(kernel="precomputed").fit(X @ X.T, Y3),
    SVC().fit(sp.csr_matrix(X), Y3),
    SVR().fit(X, y),
    OneClassSVM().fit(X),
    KMeans(3, n_init=1).fit(X),
    BisectingKMeans(3, n_init=1).fit(X),
    OneHotEncoder(min_frequency=3, drop="first").fit(X.round()),
    PolynomialFeatures((1, 3), interaction_only=True).fit(X),
    SplineTransformer(extrapolation="periodic").fit(X),
    MultiLabelBinarizer().fit([["a"], ["b"]]),
    CountVectorizer().fit(TEXTS),
]


@pytest.mark.parametrize("estimator", HONEST, ids=lambda one: type(one).__name__)
def test_estimators_as_they_are_fitted_or_not(estimator):
    check_contents(reachable(estimator))
    check_contents(reachable(clone(estimator)))


def test_a_vectorizer_that_was_used_without_a_fit():
    vectorizer = CountVectorizer()
    vectorizer.build_analyzer()
    check_contents(reachable(vectorizer))


def refusal(thing):
    with pytest.raises((ArtifactError, AttributeError, KeyError, TypeError, ValueError)) as caught:
        check_contents(reachable(thing))
    return str(caught.value)


@pytest.mark.parametrize(
    ("estimator", "attributes"),
    [
        (
            KNeighborsClassifier(algorithm="brute"),
            ("_fit_X", "_y", "classes_", "n_samples_fit_"),
        ),
        (RadiusNeighborsClassifier(algorithm="brute"), ("_fit_X", "_y", "classes_", "n_features_in_")),
        (DecisionTreeClassifier(), ("tree_", "n_features_in_")),
        (GradientBoostingClassifier(n_estimators=1), ("estimators_", "classes_", "init_", "n_features_in_")),
        (HistGradientBoostingClassifier(max_iter=1), ("_predictors", "_bin_mapper", "_n_features")),
        (SVC(), ("support_", "support_vectors_", "_n_support", "_dual_coef_", "_intercept_", "_probA")),
        (KMeans(2, n_init=1), ("cluster_centers_", "n_features_in_", "_n_threads")),
        (OneHotEncoder(handle_unknown="ignore"), ("categories_", "_n_features_outs", "_infrequent_enabled")),
        (PolynomialFeatures(), ("_max_degree", "_n_out_full", "n_features_in_")),
    ],
    ids=lambda one: type(one).__name__,
)
def test_an_attribute_that_is_missing(estimator, attributes):
    """A crafted file cannot avoid a check by leaving out the attribute it reads."""
    for attribute in attributes:
        crafted = clone(estimator).fit(X, y)
        delattr(crafted, attribute)
        assert attribute in refusal(crafted)


def test_the_file_that_passed_before_is_refused(tmp_path):
    ice = InductiveEvaluator(KNeighborsClassifier(algorithm="brute", metric="manhattan"), random_state=0)
    knn = ice.fit(X, y).detectors_[0].estimator
    knn._y = np.full_like(knn._y, 10**12)
    del knn.n_samples_fit_
    save(ice, tmp_path / "x")
    with pytest.raises(ArtifactError, match="no attribute 'n_samples_fit_'"):
        load(tmp_path / "x")


class TestNeighbours:
    @pytest.mark.parametrize(
        ("rows", "said"),
        [
            (X.astype(object), "where rows of numbers belong"),
            (X.tolist(), "where rows of numbers belong"),
            (sp.csr_matrix(X).todense(), "where rows of numbers belong"),
            (X[:, :3].copy(), "rows and columns"),
            (X[0], "rows and columns"),
        ],
    )
    def test_rows_of_another_kind(self, rows, said):
        knn = KNeighborsClassifier(algorithm="brute").fit(X, y)
        knn._fit_X = rows
        assert said in refusal(knn)

    def test_no_rows(self):
        knn = NearestNeighbors(algorithm="brute").fit(X)
        knn._fit_X, knn.n_samples_fit_ = X[:0].copy(), 0
        assert "rows and columns" in refusal(knn)

    @pytest.mark.parametrize("kind", ["kd_tree", "ball_tree"])
    @pytest.mark.parametrize("place", [1, 2, 3, 5, 6])
    def test_a_search_tree(self, kind, place):
        knn = KNeighborsClassifier(algorithm=kind, leaf_size=5).fit(X, y)
        state = list(knn._tree.__getstate__())
        if place == 1:
            state[1] = state[1] + 10**9
        elif place == 2:
            state[2] = state[2].copy()
            state[2]["is_leaf"] = 0
        elif place == 3:
            state[3] = state[3][:, :1].copy()
        else:
            state[place] = 40
        knn._tree.__setstate__(tuple(state))
        assert "points to rows that do not exist" in refusal(knn)


class TestTrees:
    def crafted(self, change):
        tree = DecisionTreeClassifier(random_state=0).fit(X, y)
        state = tree.tree_.__getstate__()
        change(state)
        tree.tree_.__setstate__(state)
        return tree

    @pytest.mark.parametrize(
        ("field", "value", "said"),
        [
            ("left_child", 10**12, "invalid links between its nodes"),
            ("left_child", 0, "invalid links between its nodes"),
            ("right_child", -5, "invalid links between its nodes"),
            ("feature", 8, "features that do not exist"),
            ("feature", -2, "features that do not exist"),
        ],
    )
    def test_nodes(self, field, value, said):
        def change(state):
            state["nodes"][field][0] = value

        assert said in refusal(self.crafted(change))
        assert said in refusal(BaggingClassifier(self.crafted(change)))

    @pytest.mark.parametrize("count", [10**9, 0, -1])
    def test_the_number_of_nodes(self, count):
        assert "number of nodes than it claims" in refusal(
            self.crafted(lambda state: state.update(node_count=count))
        )

    def test_a_tree_that_was_never_grown(self):
        tree = DecisionTreeClassifier().fit(X, y)
        tree.tree_ = Tree(8, np.array([2]), 1)
        assert "number of nodes than it claims" in refusal(tree)

    def test_a_tree_of_wider_rows(self):
        tree = DecisionTreeClassifier().fit(X, y)
        tree.n_features_in_ = 3
        assert "features that its rows do not have" in refusal(tree)

    def test_a_tree_that_takes_rows_itself(self):
        tree = DecisionTreeClassifier().fit(X, y).tree_
        assert "outside of a decision tree" in refusal(make_pipeline(LogisticRegression(), tree))


class TestBoosting:
    def fitted(self, labels=Y3):
        return GradientBoostingClassifier(n_estimators=2, random_state=0).fit(X, labels)

    def test_more_trees_than_sums(self):
        boosting = self.fitted(y)
        boosting.estimators_ = np.repeat(boosting.estimators_, 3, axis=1)
        assert "a tree for each class" in refusal(boosting)

    def test_a_start_for_fewer_classes(self):
        boosting = self.fitted()
        boosting.init_.class_prior_ = boosting.init_.class_prior_[:2]
        assert "starts from predictions for other classes" in refusal(boosting)

    def test_trees_of_other_rows(self):
        boosting = self.fitted(y)
        narrow = GradientBoostingClassifier(n_estimators=2).fit(X[:, :3], y)
        boosting.n_features_in_ = 3
        assert "for other rows or classes" in refusal(boosting)
        narrow.estimators_ = self.fitted(y).estimators_
        assert "for other rows or classes" in refusal(narrow)

    @pytest.mark.parametrize(
        ("field", "value"),
        [("left", 10**6), ("right", 0), ("feature_idx", 8), ("is_categorical", 1)],
    )
    def test_histograms(self, field, value):
        boosting = HistGradientBoostingClassifier(max_iter=1).fit(X, y)
        nodes = boosting._predictors[0][0].nodes
        nodes[field][nodes["is_leaf"] == 0] = value
        assert "its TreePredictor" in refusal(boosting)

    def test_categories_of_histograms(self):
        boosting = HistGradientBoostingClassifier(max_iter=1, categorical_features=[0], min_samples_leaf=2)
        boosting.fit(np.c_[np.arange(120) % 6], np.arange(120) % 6 < 2)
        check_contents(reachable(boosting))
        boosting._predictors[0][0].nodes["bitset_idx"] = 10**6
        assert "categories that do not exist" in refusal(boosting)

    def test_histograms_of_other_rows(self):
        boosting = HistGradientBoostingClassifier(max_iter=1).fit(X, y)
        boosting._in_fit = True
        assert "number of features it claims" in refusal(boosting)


class TestKernelMachines:
    @pytest.mark.parametrize(
        ("attribute", "change"),
        [
            ("support_", lambda v: np.repeat(v, 9)),
            ("support_vectors_", lambda v: v[:, :2].copy()),
            ("support_vectors_", lambda v: sp.csr_matrix(v)),
            ("_n_support", lambda v: v + 1000),
            ("_n_support", lambda v: np.array([-5, v.sum() + 5, 0], dtype=np.int32)),
            ("_dual_coef_", lambda v: v[:, :3].copy()),
            ("_intercept_", lambda v: v[:1].copy()),
            ("_probA", lambda v: np.zeros(1)),
            ("classes_", lambda v: v[:2]),
            ("kernel", lambda _: np.add),
        ],
    )
    @pytest.mark.parametrize("sparse", [False, True])
    def test_sizes(self, attribute, change, sparse):
        machine = SVC().fit(sp.csr_matrix(X) if sparse else X, Y3)
        if sparse and attribute == "support_vectors_":
            machine.support_vectors_ = machine.support_vectors_[:5]
        else:
            setattr(machine, attribute, change(getattr(machine, attribute)))
        assert "kernel" in refusal(machine) or "support vectors that do not fit" in refusal(machine)

    def test_rows_of_a_kernel(self):
        machine = SVC(kernel="precomputed").fit(X @ X.T, y)
        machine.support_ = machine.support_ + 10**6
        assert "do not fit together" in refusal(machine)


class TestColumns:
    def test_columns_made_up_when_asked_for(self):
        vectorizer = CountVectorizer().fit(TEXTS)

        class Endless(dict):
            def __missing__(self, key):
                return 10**9

        vectorizer.vocabulary_ = Endless(vectorizer.vocabulary_)
        assert "columns that do not exist" in refusal(vectorizer)

    def test_remembered_columns(self):
        binarizer = MultiLabelBinarizer().fit([["a"], ["b"]])
        binarizer._cached_dict = {"a": 10**9, "b": 1}
        assert "columns that do not match its classes" in refusal(binarizer)

    def test_categories_out_of_order(self):
        encoder = OneHotEncoder(handle_unknown="ignore").fit(np.array([[1.0], [2.0], [3.0]]))
        encoder.categories_ = [np.array([3.0, 2.0, 1.0])]
        assert "out of order" in refusal(encoder)

    def test_groups_that_are_not_in_use(self):
        encoder = OneHotEncoder(handle_unknown="ignore").fit(X.round())
        encoder._n_features_outs = [1] * 8
        encoder._infrequent_indices = [np.array([0])] * 8
        encoder._default_to_infrequent_mappings = [np.zeros(len(own), int) for own in encoder.categories_]
        assert "without a column" in refusal(encoder)

    @pytest.mark.parametrize(("attribute", "value"), [("_n_out_full", 10**10), ("_max_degree", 10**9)])
    def test_an_expansion(self, attribute, value):
        expansion = PolynomialFeatures().fit(X)
        setattr(expansion, attribute, value)
        assert "number of columns than its parameters give" in refusal(expansion)
        assert "has the degree" in refusal(expansion.set_params(degree=10**9))

    def test_splines(self):
        transformer = SplineTransformer().fit(X)
        transformer.bsplines_[0].k = 3.0
        assert "spline of degree" in refusal(transformer)
        transformer.bsplines_[0].k = 0
        assert "fewer coefficients" in refusal(transformer)

    def test_centres_of_splits(self):
        means = BisectingKMeans(3, n_init=1).fit(X)
        means._bisecting_tree.left.center = np.zeros(1)
        assert "a different width" in refusal(means)
        means._bisecting_tree.left = means._bisecting_tree
        assert "point back" in refusal(means)


def test_what_functions_hold_is_reached():
    hidden = KNeighborsClassifier().fit(X, y)
    for holder in (hidden.predict, functools.partial(hidden.predict), functools.partial(print, rows=hidden)):
        assert any(thing is hidden for thing in reachable({"func": holder}))
