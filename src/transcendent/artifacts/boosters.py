"""LightGBM and XGBoost models in the formats of these libraries, checked before the libraries read them.

The libraries follow most indices and sizes in a model file without checking them.
"""

import json
import re
from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from transcendent._utils.arrays import AnyArray, IntArray
from transcendent._utils.extras import extra
from transcendent.artifacts.estimators import within
from transcendent.errors import ArtifactError

_SUFFIXES = {"lightgbm.basic.Booster": "lightgbm.txt", "xgboost.core.Booster": "xgboost.json"}
_MAX_CATEGORIES = 1 << 24  # the limit of XGBoost
_INTEGERS = re.compile(r"-?\d{1,10}( -?\d{1,10})*")
_CATEGORICAL = 1  # the bit of a LightGBM node's type

Fields = dict[str, str]


def suffix_of(thing: Any) -> str | None:
    """Return the suffix of a booster's entry, or None if the value is not a booster."""
    return _SUFFIXES.get(f"{type(thing).__module__}.{type(thing).__qualname__}")


def booster_types(names: Iterable[str]) -> set[str]:
    """Return the types of the boosters among the entries."""
    return {kind for kind, suffix in _SUFFIXES.items() for name in names if name.endswith(suffix)}


def to_bytes(booster: Any) -> bytes:
    """Return a booster in its library's format."""
    if type(booster).__module__.startswith("lightgbm"):
        text: str = booster.model_to_string(num_iteration=-1)
        return text.encode()
    return bytes(booster.save_raw("json"))


def from_bytes(name: str, data: bytes) -> Any:
    """Return the booster of an entry."""
    check(name, data)
    if name.endswith(_SUFFIXES["lightgbm.basic.Booster"]):
        return extra("lightgbm", "lightgbm").Booster(model_str=data.decode())
    booster = extra("xgboost", "xgboost").Booster()
    booster.load_model(bytearray(data))
    return booster


def check(name: str, data: bytes) -> None:
    """Refuse the booster of an entry if its trees are invalid, or of a kind that cannot be checked."""
    is_lightgbm = name.endswith(_SUFFIXES["lightgbm.basic.Booster"])
    if not is_lightgbm and not name.endswith(_SUFFIXES["xgboost.core.Booster"]):
        raise ArtifactError(f"it names {name!r:.60} as a booster.")
    try:
        check_lightgbm(data.decode()) if is_lightgbm else check_xgboost(data)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error!s:.100}"
        raise ArtifactError(f"its {name} is not a valid model ({reason}).") from None


def check_lightgbm(text: str) -> None:
    """Raise a `ValueError` if compiled code would read or write outside of what the text describes."""
    _require("\r" not in text and "\0" not in text, "line endings")
    start = text.index("\nTree=") + 1
    header = _fields(text[:start].split("\n"))
    n_features, n_classes = int(header["max_feature_idx"]) + 1, int(header["num_class"])
    _require(len(header["feature_names"].split(" ")) == n_features, "numbers of features and names differ")
    in_objective = re.findall(r"num_class:(\S+)", header.get("objective", ""))
    counts = {int(header["num_tree_per_iteration"]), n_classes, *map(int, in_objective)}
    _require(counts == {n_classes} and n_classes >= 1, "numbers of classes differ")
    sizes = _integers(header["tree_sizes"]).tolist()
    places = list(accumulate(sizes, initial=start))
    _require(all(size > 0 for size in sizes), "sizes of trees")
    _require(text.startswith("end of trees", places[-1]), "sizes of trees")
    _require(len(sizes) % n_classes == 0, "number of trees")
    for i, (begin, end) in enumerate(pairwise(places)):
        first, *lines = text[begin:end].split("\n")
        _require(first == f"Tree={i}", "sizes of trees")
        _check_lightgbm_tree(_fields(lines), n_features)


def _check_lightgbm_tree(tree: Fields, n_features: int) -> None:
    n_leaves, n_categorical = int(tree["num_leaves"]), int(tree["num_cat"])
    _require(n_leaves >= 1 and n_categorical >= 0, "numbers of leaves")
    names = ("left_child", "right_child", "split_feature", "decision_type")
    left, right, features, kinds = (_integers(tree[name], n_leaves - 1) for name in names)
    thresholds = _numbers(tree["threshold"], n_leaves - 1)
    _numbers(tree["leaf_value"], n_leaves)
    _require(np.all(np.minimum(left, right) >= -n_leaves), "leaves that do not exist")
    if n_leaves > 1:
        _walk(left, right)
    _require(within(features, n_features), "features that do not exist")
    if n_categorical:
        bounds = _integers(tree["cat_boundaries"], n_categorical + 1)
        words = _numbers(tree["cat_threshold"])
        rising = np.all(np.diff(bounds) >= 0) and bounds[0] == 0
        _require(rising and bounds[-1] == len(words), "categories that do not exist")
    by_category = thresholds[kinds & _CATEGORICAL == 1]
    _require(np.all((by_category >= 0) & (by_category < n_categorical)), "categories that do not exist")
    if int(tree.get("is_linear", "0")):
        _numbers(tree["leaf_const"], n_leaves)
        n_used = _integers(tree["num_features"], n_leaves)
        used = _integers(" ".join(tree["leaf_features"].split()), n_used.sum())
        _numbers(tree["leaf_coeff"], n_used.sum())
        _require(np.all(n_used >= 0) and within(used, n_features), "features that do not exist")


def check_xgboost(data: bytes) -> None:
    """Raise a `ValueError` if compiled code would read or write outside of what the text describes."""
    _require(data.startswith(b'{"'), "not JSON")  # else XGBoost reads it as another format
    learner = json.loads(data, object_pairs_hook=_unique)["learner"]
    sizes = {name: int(learner["learner_model_param"][name]) for name in ("num_feature", "num_class")}
    n_features, n_groups = sizes["num_feature"], max(sizes["num_class"], 1)
    _require(int(learner["learner_model_param"].get("num_target", "1")) == 1, "several targets")
    multiclass = learner["objective"].get("softmax_multiclass_param", {"num_class": sizes["num_class"]})
    _require(int(multiclass["num_class"]) == sizes["num_class"], "numbers of classes differ")
    booster = learner["gradient_booster"]
    if booster["name"] == "gblinear":
        _require(len(booster["model"]["weights"]) == (n_features + 1) * n_groups, "number of weights")
        return
    dart = booster["name"] == "dart"  # a gbtree with a weight for each tree
    model = booster["gbtree"]["model"] if dart else booster["model"]
    trees, groups = model["trees"], model["tree_info"]
    _require(int(model["gbtree_model_param"]["num_trees"]) == len(trees) == len(groups), "number of trees")
    _require(not trees or set(groups) == set(range(n_groups)), "trees for other classes")
    steps = np.array(model.get("iteration_indptr", [0, len(trees)]))
    rising = steps.dtype.kind == "i" and np.all(np.diff(steps) >= 0)
    _require(rising and steps[0] == 0 and steps[-1] == len(trees), "number of trees")
    _require(not dart or len(booster["weight_drop"]) == len(trees), "number of trees")
    for tree in trees:
        _check_xgboost_tree(tree, n_features)


def _check_xgboost_tree(tree: dict[str, Any], n_features: int) -> None:
    n = int(tree["tree_param"]["num_nodes"])
    _require(int(tree["tree_param"]["size_leaf_vector"]) in (0, 1), "leaves of several targets")
    of_nodes = (
        *("left_children", "right_children", "parents", "split_indices", "split_conditions"),
        *("default_left", "split_type", "base_weights", "loss_changes", "sum_hessian"),
    )
    _require(n >= 1 and all(len(tree[name]) == n for name in of_nodes), "numbers of nodes")
    left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
    _require(np.array_equal(left == -1, right == -1), "half a split")
    reached = _walk(left, right)
    splits = reached[left[reached] != -1]
    _require(within(np.array(tree["split_indices"])[splits], n_features), "features that do not exist")
    names = ("categories_nodes", "categories_segments", "categories_sizes")
    nodes, begins, sizes = (np.array(tree[name], dtype=np.int64) for name in names)
    categories = np.array(tree["categories"], dtype=np.int64)
    fits = len(nodes) == len(begins) == len(sizes) and within(nodes, n) and len(set(nodes)) == len(nodes)
    # By a difference, since the sum of crafted numbers could overflow.
    inside = fits and np.all((begins >= 0) & (sizes >= 0) & (begins <= len(categories) - sizes))
    by_category = splits[np.array(tree["split_type"])[splits] != 0]
    known = inside and within(categories, _MAX_CATEGORIES) and np.isin(by_category, nodes).all()
    _require(known, "categories that do not exist")


def _walk(left: AnyArray, right: AnyArray) -> IntArray:
    """Return the nodes that the root reaches; refuse links out of the tree, and to a node reached before."""
    seen = np.zeros(len(left), dtype=bool)
    here = np.zeros(1, dtype=np.int64)
    while len(here):
        seen[here] = True
        ends = np.concatenate([left[here], right[here]])
        here = ends[ends >= 0]
        known = within(here, len(left)) and not seen[here].any() and len(np.unique(here)) == len(here)
        _require(known, "invalid links between nodes")
    return np.flatnonzero(seen)


def _fields(lines: list[str]) -> Fields:
    return _unique([(name, value) for name, _, value in (line.partition("=") for line in lines if line)])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return pairs as a dict; refuse duplicate names, since libraries differ in which one they use."""
    found = dict(pairs)
    _require(len(found) == len(pairs), "duplicate names")
    return found


def _integers(text: str, n: int | None = None) -> IntArray:
    _require(not text or _INTEGERS.fullmatch(text), "whole numbers")
    return _numbers(text, n).astype(np.int64)


def _numbers(text: str, n: int | None = None) -> AnyArray:
    found = np.array(text.split(), dtype=np.float64)
    _require(n is None or len(found) == n, "numbers of values")
    return found


def _require(condition: Any, what: str) -> None:
    if not condition:
        raise ValueError(what)
