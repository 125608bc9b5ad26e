"""LightGBM and XGBoost models, crafted so that the libraries would read outside of the trees."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from xgboost import XGBClassifier

from tests.artifacts.crafted import members_of, rebuilt
from transcendent import InductiveEvaluator
from transcendent.artifacts import load, open_artifact, save
from transcendent.artifacts.boosters import check_lightgbm, check_xgboost, from_bytes, to_bytes
from transcendent.errors import ArtifactError

generator = np.random.default_rng(0)
X = generator.normal(size=(300, 5))
X[:, 0] = generator.integers(0, 20, 300)
y = (X[:, 1] + (X[:, 0] % 3 == 0) > 0).astype(int)
Y3 = y + (X[:, 2] > 0.5)


def light(labels=y, **given):
    model = LGBMClassifier(n_estimators=2, num_leaves=6, verbose=-1, min_data_per_group=1, **given)
    return to_bytes(model.fit(X, labels, categorical_feature=[0]).booster_).decode()


def extreme(labels=Y3, **given):
    model = XGBClassifier(n_estimators=2, max_depth=3, **given).fit(X, labels)
    return json.loads(to_bytes(model.get_booster()))


@pytest.mark.parametrize(
    "given",
    [{}, {"boosting_type": "dart"}, {"linear_tree": True}, {"min_child_samples": 1000}],
    ids=str,
)
@pytest.mark.parametrize("labels", [y, Y3], ids=["two", "three"])
def test_texts_that_lightgbm_writes(labels, given):
    check_lightgbm(light(labels, **given))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"booster": "dart"},
        {"num_parallel_tree": 2},
        {"tree_method": "exact", "gamma": 2},
        {"feature_types": ["c", "q", "q", "q", "q"], "enable_categorical": True, "max_cat_to_onehot": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("labels", [y, Y3], ids=["two", "three"])
def test_texts_that_xgboost_writes(labels, given):
    check_xgboost(json.dumps(extreme(labels, **given)).encode())


def test_names_with_characters_that_end_lines_elsewhere():
    names = pd.DataFrame(X, columns=["a", "b\u2028", "c\x85", "d", "e"])
    model = LGBMClassifier(n_estimators=2, verbose=-1).fit(names, y)
    check_lightgbm(to_bytes(model.booster_).decode())


def test_what_would_be_refused_is_not_saved(tmp_path):
    model = XGBClassifier(n_estimators=2, multi_strategy="multi_output_tree", tree_method="hist")
    ice = InductiveEvaluator(model, random_state=0).fit(X, Y3)
    with pytest.raises(ArtifactError, match="is not a valid model"):
        save(ice, tmp_path / "gate")
    assert not (tmp_path / "gate").exists()


def refused(name, text):
    with pytest.raises(ArtifactError, match="is not a valid model") as caught:
        from_bytes(name, text.encode())
    return str(caught.value)


def with_sizes(text):
    """The same text, with the sizes of its trees as they are."""
    start, end = text.index("\nTree=") + 1, text.index("end of trees")
    blocks = re.split(r"(?=Tree=\d)", text[start:end])[1:]
    return re.sub("tree_sizes=.*", f"tree_sizes={' '.join(str(len(one)) for one in blocks)}", text)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("left_child", "0 0 0 0 0"),
        ("left_child", "1 2 3 4 99"),
        ("right_child", "-1 -2 -3 -4 -999"),
        ("right_child", "-1 -2 -3 -4 -5 -6"),
        ("split_feature", "0 1 2 3 5"),
        ("split_feature", "0 1 2 3 -1"),
        ("split_feature", "0 1 2 3 x"),
        ("decision_type", "1 1 1 1 1"),
        ("threshold", "0"),
        ("leaf_value", "0 0"),
        ("num_leaves", "1000000"),
        ("num_cat", "70000"),
        ("num_leaves", "6\nnum_leaves=7"),
        ("max_feature_idx", "100"),
        ("num_class", "7"),
        ("num_tree_per_iteration", "7"),
        ("objective", "multiclass num_class:100"),
    ],
)
def test_lightgbm_leads_astray(field, value):
    text = with_sizes(re.sub(f"(?m)^{field}=.*$", f"{field}={value}", light(), count=1))
    assert refused("x.lightgbm.txt", text)


@pytest.mark.parametrize("sizes", ["99999999 5", "-5 5", "1", ""])
def test_sizes_of_lightgbm(sizes):
    assert refused("x.lightgbm.txt", re.sub("tree_sizes=.*", f"tree_sizes={sizes}", light()))


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("left_children", lambda v: [0, *v[1:]]),
        ("left_children", lambda v: [10**6, *v[1:]]),
        ("right_children", lambda v: [-1, *v[1:]]),
        ("split_indices", lambda v: [5, *v[1:]]),
        ("split_indices", lambda v: [-1, *v[1:]]),
        ("split_type", lambda v: [1, *v[1:]]),
        ("split_conditions", lambda v: v[:1]),
        ("categories_nodes", lambda _: [0]),
        ("categories", lambda _: [2**31]),
        ("tree_param", lambda v: v | {"num_nodes": "1000000"}),
        ("tree_param", lambda v: v | {"size_leaf_vector": "9"}),
    ],
)
def test_xgboost_leads_astray(field, change):
    model = extreme()
    tree = model["learner"]["gradient_booster"]["model"]["trees"][0]
    tree[field] = change(tree[field])
    assert refused("x.xgboost.json", json.dumps(model))


def test_a_place_and_a_size_whose_sum_overflows():
    model = extreme()
    tree = model["learner"]["gradient_booster"]["model"]["trees"][0]
    tree |= {"categories_nodes": [0], "categories_segments": [2**63 - 1], "categories_sizes": [1]}
    with pytest.raises(ValueError, match="categories that do not exist"):
        check_xgboost(json.dumps(model).encode())


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("gradient_booster", "model", "tree_info"), [0, 1, 999, 0, 1, 2]),
        (("gradient_booster", "model", "iteration_indptr"), [0, 3, 10**6]),
        (("gradient_booster", "model", "gbtree_model_param", "num_trees"), "7"),
        (("learner_model_param", "num_class"), "100"),
        (("learner_model_param", "num_feature"), "1"),
        (("learner_model_param", "num_target"), "8"),
        (("objective", "softmax_multiclass_param", "num_class"), "100"),
    ],
)
def test_sizes_of_xgboost(place, value):
    model = extreme()
    inner = model["learner"]
    for key in place[:-1]:
        inner = inner[key]
    assert place[-1] in inner
    inner[place[-1]] = value
    assert refused("x.xgboost.json", json.dumps(model))


def test_what_two_readers_read_differently():
    text = json.dumps(extreme())
    assert "duplicate names" in refused("x.xgboost.json", text.replace('"trees":', '"trees": [], "trees":'))
    assert "not JSON" in refused("x.xgboost.json", f" {text}")
    assert "line endings" in refused("x.lightgbm.txt", light().replace("\n", "\r\n"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [LGBMClassifier(n_estimators=2, verbose=-1), XGBClassifier(n_estimators=2)])
def test_an_artifact_with_a_crafted_text(tmp_path, kind):
    save(InductiveEvaluator(kind, random_state=0).fit(X, y), tmp_path / "x")
    data = (tmp_path / "x").read_bytes()
    (name,) = (name for name in members_of(data) if name.startswith("booster"))
    text = members_of(data)[name].replace(b'"left_children":[1', b'"left_children":[0')
    text = text.replace(b"left_child=1", b"left_child=0")
    (tmp_path / "x").write_bytes(rebuilt(data, members_of(data) | {name: text}))
    artifact = open_artifact(tmp_path / "x")
    with pytest.raises(ArtifactError, match="invalid links between nodes"):
        load(tmp_path / "x", trusted=artifact.types_to_trust())
