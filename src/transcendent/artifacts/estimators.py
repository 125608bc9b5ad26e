"""Checks of fitted estimators whose compiled code follows indices and sizes without checking them.

Each check belongs to a type and runs on every fitted estimator of that type. If an attribute that the check
reads is missing, the check raises and the file is refused.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, is_regressor
from sklearn.cluster import BisectingKMeans
from sklearn.cluster._kmeans import _BaseKMeans
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.neighbors import BallTree, KDTree
from sklearn.neighbors._base import NeighborsBase
from sklearn.preprocessing import MultiLabelBinarizer, OneHotEncoder, PolynomialFeatures, SplineTransformer
from sklearn.svm._base import BaseLibSVM
from sklearn.tree import BaseDecisionTree
from sklearn.tree._tree import Tree

from transcendent.errors import ArtifactError

_HIGHEST_DEGREE = 100
_SET_WITHOUT_FIT = {"_metadata_request", "_sklearn_output_config", "_stop_words_id"}


def check_fitted(estimator: BaseEstimator) -> None:
    """Refuse a fitted estimator whose attributes do not fit together."""
    # Any private or fitted attribute counts: compiled code reads more of them than check_is_fitted looks for.
    names = vars(estimator).keys() - _SET_WITHOUT_FIT
    if any(name.startswith("_") or name.endswith("_") for name in names):
        for kind, check in _CHECKS:
            if isinstance(estimator, kind):
                check(estimator)


def check_trees(trees: list[Tree], estimators: list[BaseEstimator]) -> None:
    """Refuse trees with invalid links, and trees outside of an estimator, where nothing checks the rows."""
    guarded = {id(vars(one).get("tree_")) for one in estimators if isinstance(one, BaseDecisionTree)}
    for tree in trees:
        if id(tree) not in guarded:
            refuse(tree, "is outside of a decision tree")
        # Checked first, because the arrays below are as long as node_count says.
        if not 1 <= tree.node_count <= tree.capacity or min(tree.n_outputs, tree.max_n_classes) < 1:
            refuse(tree, "has a different number of nodes than it claims")
        inner = tree.children_left != -1
        children = (tree.children_left[inner], tree.children_right[inner])
        _check_links(tree, np.flatnonzero(inner), children, tree.node_count)
        if not within(tree.feature[inner], tree.n_features):
            refuse(tree, "splits by features that do not exist")


def check_search_tree(tree: Any) -> None:
    """Refuse a KD or ball tree that points outside of its rows."""
    data, places, nodes, bounds, _, n_levels, n_nodes, *_, metric, _ = tree.__getstate__()
    n, width = data.shape
    metric._validate_data(data)
    last = np.arange(n_nodes) * 2 + 1 >= n_nodes
    fits = (
        n >= 1
        and 1 <= n_levels < 64
        and n_nodes == 2**n_levels - 1 == len(nodes)
        and bounds.shape[1:] == (n_nodes, width)
        and bounds.shape[0] == (2 if isinstance(tree, KDTree) else 1)
        and places.shape == (n,)
        and within(places, n)
        and np.array_equal(nodes["is_leaf"] != 0, last)
        and np.all((nodes["idx_start"] >= 0) & (nodes["idx_start"] <= nodes["idx_end"]))
        and np.all(nodes["idx_end"] <= n)
    )
    if not fits:
        refuse(tree, "points to rows that do not exist")


def within(indices: Any, size: int) -> bool:
    """Return whether all indices are integers from 0 to size - 1."""
    found = np.asarray(indices)
    return found.size == 0 or (found.dtype.kind in "iu" and bool(found.min() >= 0 and found.max() < size))


def refuse(thing: Any, reason: str) -> None:
    """Raise an `ArtifactError` that says what is wrong with a value in an artifact."""
    raise ArtifactError(f"its {type(thing).__name__} {reason}.")


def _check_links(owner: Any, parents: Any, children: tuple[Any, ...], n_nodes: int) -> None:
    """Refuse links out of the tree or back: scikit-learn writes children after their parents."""
    for ends in children:
        if not within(ends, n_nodes) or np.any(ends <= parents):
            refuse(owner, "has invalid links between its nodes")


def _check_decision_tree(estimator: Any) -> None:
    _check_is_tree(estimator, estimator.tree_)
    if estimator.tree_.n_features != estimator.n_features_in_:
        refuse(estimator, "splits by features that its rows do not have")


def _check_is_tree(owner: Any, tree: Any) -> None:
    if not isinstance(tree, Tree):
        refuse(owner, f"has a {type(tree).__name__} where a tree belongs")


def _check_boosting(boosting: Any) -> None:
    """Refuse trees that do not match the array of sums to which compiled code adds their values."""
    trees = boosting.estimators_
    n_classes = 1 if is_regressor(boosting) else len(boosting.classes_)
    n_sums = n_classes if n_classes > 2 else 1
    if not isinstance(trees, np.ndarray) or trees.ndim != 2 or trees.shape[1] != n_sums or not len(trees):
        refuse(boosting, "does not have a tree for each class and step")
    for tree in (estimator.tree_ for estimator in trees.ravel()):
        _check_is_tree(boosting, tree)
        if (tree.n_features, tree.n_outputs, tree.max_n_classes) != (boosting.n_features_in_, 1, 1):
            refuse(boosting, "has a tree for other rows or classes")
    start = boosting._raw_predict_init(np.zeros((2, boosting.n_features_in_), dtype=np.float32))
    if start.shape != (2, n_sums):
        refuse(boosting, "starts from predictions for other classes")


def _check_histograms(boosting: Any) -> None:
    categorical, width = np.asarray(boosting._bin_mapper.is_categorical_), boosting._n_features
    if categorical.shape != (width,) or vars(boosting).get("_in_fit"):
        refuse(boosting, "does not match the number of features it claims")
    for predictor in (one for step in boosting._predictors for one in step):
        nodes = predictor.nodes
        inner = nodes["is_leaf"] == 0
        children = (nodes["left"][inner], nodes["right"][inner])
        _check_links(predictor, np.flatnonzero(inner), children, len(nodes))
        if len(nodes) == 0 or not within(nodes["feature_idx"][inner], width):
            refuse(predictor, "splits by features that do not exist")
        by_category = nodes[inner & (nodes["is_categorical"] != 0)]
        known = categorical[by_category["feature_idx"]].all()
        if not known or not within(by_category["bitset_idx"], len(predictor.raw_left_cat_bitsets)):
            refuse(predictor, "splits by categories that do not exist")


def _check_neighbours(estimator: Any) -> None:
    held = estimator._fit_X
    if not (sp.issparse(held) or (type(held) is np.ndarray and held.dtype.kind in "biuf")):
        refuse(estimator, f"has a {type(held).__name__} where rows of numbers belong")
    shape = (estimator.n_samples_fit_, estimator.n_features_in_)
    if held.shape != shape or len(shape) != 2 or not shape[0]:
        refuse(estimator, f"claims {shape!r:.60} rows and columns, but holds {held.shape}")
    if is_regressor(estimator) or not hasattr(estimator, "predict_proba"):
        return
    classes = estimator.classes_ if estimator.outputs_2d_ else [estimator.classes_]
    codes = np.asarray(estimator._y).reshape(shape[0], -1)
    if codes.shape[1] != len(classes) or not all(map(within, codes.T, map(len, classes))):
        refuse(estimator, "has labels that are not among its classes")


def _check_centres(estimator: Any) -> None:
    centres = [estimator.cluster_centers_]
    if isinstance(estimator, BisectingKMeans):
        centres += [np.atleast_2d(node.center) for node in _splits(estimator._bisecting_tree)]
    for own in centres:
        if np.ndim(own) != 2 or not len(own) or own.shape[1] != estimator.n_features_in_:
            refuse(estimator, "has centres of a different width than its rows")
    if not (type(estimator._n_threads) is int and estimator._n_threads >= 1):
        refuse(estimator, f"would run on {estimator._n_threads!r:.40} threads")


def _splits(root: Any) -> Iterator[Any]:
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            refuse(root, "has nodes that point back")
        seen.add(id(node))
        yield node
        if node.left is not None:
            waiting += [node.left, node.right]


def _check_vocabulary(vectorizer: Any) -> None:
    columns = vectorizer.vocabulary_
    if type(columns) is not dict or not within(list(columns.values()), len(columns)):
        refuse(vectorizer, "has a vocabulary with columns that do not exist")


def _check_distinct(binarizer: Any) -> None:
    classes, cached = list(binarizer.classes_), binarizer._cached_dict
    if len(set(classes)) < len(classes):
        refuse(binarizer, "has a duplicate class")
    if cached is not None and cached != dict(zip(classes, range(len(classes)), strict=True)):
        refuse(binarizer, "has columns that do not match its classes")


def _check_one_hot(encoder: Any) -> None:
    """Refuse codes of categories that have no column; a dropped category allows one more code."""
    none: list[Any] = [None] * len(encoder.categories_)
    dropped = none if encoder._drop_idx_after_grouping is None else encoder._drop_idx_after_grouping
    groups, rare = none, none
    if encoder._infrequent_enabled:
        groups, rare = encoder._default_to_infrequent_mappings, encoder._infrequent_indices
    by_feature = zip(encoder.categories_, encoder._n_features_outs, dropped, groups, rare, strict=True)
    for categories, width, drop, group, infrequent in by_feature:
        if not _in_order(categories):
            refuse(encoder, "has categories out of order")
        codes = np.arange(len(categories)) if group is None else group
        if not within(codes, width + (drop is not None)) or drop not in (None, *codes):
            refuse(encoder, "has categories without a column")
        known = infrequent is None or within(infrequent, len(categories))
        if (group is None) != (infrequent is None) or not known or len(codes) != len(categories):
            refuse(encoder, "has infrequent categories that do not exist")


def _in_order(categories: Any) -> bool:
    """Return whether binary search finds each category at its position; text is not looked up that way."""
    if not isinstance(categories, np.ndarray) or categories.ndim != 1:
        return False
    if categories.dtype.kind in "OUS":
        return True
    return np.array_equal(np.searchsorted(categories, categories), np.arange(len(categories)))


def _check_expansion(expansion: Any) -> None:
    """Refuse column counts that do not follow from the parameters: unfilled columns expose old memory."""
    degree = expansion.degree
    low, high = degree if isinstance(degree, tuple | list) else (0, degree)
    if not 0 <= low <= high <= _HIGHEST_DEGREE:
        refuse(expansion, f"has the degree {degree!r:.60}")
    n, flags = expansion.n_features_in_, (expansion.interaction_only, expansion.include_bias)
    n_out, n_full = (expansion._num_combinations(n, lowest, high, *flags) for lowest in (low, 0))
    degrees, counts = ("_min_degree", "_max_degree"), ("n_output_features_", "_n_out_full")
    if [getattr(expansion, name) for name in degrees + counts] != [low, high, n_out, n_full]:
        refuse(expansion, "has a different number of columns than its parameters give")


def _check_splines(transformer: Any) -> None:
    for spline in transformer.bsplines_:
        if type(spline.k) is not int or not 0 <= spline.k <= _HIGHEST_DEGREE:
            refuse(transformer, f"has a spline of degree {spline.k!r:.40}")
        if spline.t.ndim != 1 or len(spline.c) < len(spline.t) - spline.k - 1:
            refuse(transformer, "has a spline with fewer coefficients than knots")


def _check_kernel_machine(machine: Any) -> None:
    """Refuse a support vector machine whose arrays differ in size."""
    rows, vectors, counts = machine.support_, machine.support_vectors_, machine._n_support
    n, k = len(rows), len(counts)
    pairs = k * (k - 1) // 2
    coefficients = machine._dual_coef_
    if isinstance(machine.kernel, np.ufunc):
        refuse(machine, "has a NumPy function for a kernel")
    by_row = callable(machine.kernel) or machine.kernel == "precomputed"  # no vectors, but row numbers
    known = within(rows, machine.shape_fit_[0]) if by_row else vectors.shape == (n, machine.n_features_in_)
    flat = coefficients.data if sp.issparse(coefficients) else coefficients
    classifies = machine._impl in ("c_svc", "nu_svc")
    fits = (
        k >= 2
        and sp.issparse(vectors) == sp.issparse(coefficients) == bool(machine._sparse)
        and known
        and flat.size == (k - 1) * n
        and coefficients.shape == (k - 1, n)
        and len(machine._intercept_) == pairs
        and {len(machine._probA), len(machine._probB)} in ({0}, {pairs})
        and (not classifies or (counts.min() >= 0 and counts.sum() == n and len(machine.classes_) == k))
    )
    if not fits:
        refuse(machine, "has support vectors that do not fit together")


_CHECKS: tuple[tuple[Any, Callable[[Any], None]], ...] = (
    (BaseDecisionTree, _check_decision_tree),
    ((GradientBoostingClassifier, GradientBoostingRegressor), _check_boosting),
    ((HistGradientBoostingClassifier, HistGradientBoostingRegressor), _check_histograms),
    (NeighborsBase, _check_neighbours),
    (_BaseKMeans, _check_centres),
    ((CountVectorizer, DictVectorizer), _check_vocabulary),
    (OneHotEncoder, _check_one_hot),
    (PolynomialFeatures, _check_expansion),
    (SplineTransformer, _check_splines),
    (MultiLabelBinarizer, _check_distinct),
    (BaseLibSVM, _check_kernel_machine),
)
SEARCH_TREES = (BallTree, KDTree)
