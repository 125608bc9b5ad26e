"""A loaded rejector makes the same decisions as the saved one, to the last bit, in another process."""

import json
import subprocess
import sys
import warnings
from importlib import import_module

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

import transcendent
from tests.contracts.test_measures import LIGHTGBM, PAIRS, XGBOOST, data
from tests.contracts.test_measures import name as name_of
from tests.contracts.test_rejectors import REJECTORS
from transcendent import (
    Answers,
    CombinedMeasure,
    CrossConformalEvaluator,
    Decisions,
    ExactSearch,
    GridSearch,
    InductiveEvaluator,
    QuartileSearch,
    RandomSearch,
    RejectionBudget,
    Rejector,
    ScoreEvaluator,
    StreamingBudget,
    TransductiveEvaluator,
    baselines,
    measures,
)
from transcendent.artifacts import load, open_artifact, save
from transcendent.artifacts.types import ALLOWED
from transcendent.measures import Measure, NeighbourRatio
from transcendent.measures.base import FunctionMeasure
from transcendent.metrics import F1, Recall

EVALUATORS = {
    "ICE": lambda pair: InductiveEvaluator(pair[1], measure=pair[0], random_state=0),
    "CCE": lambda pair: CrossConformalEvaluator(pair[1], measure=pair[0], cv=3, random_state=0),
    "approx-TCE": lambda pair: TransductiveEvaluator(pair[1], measure=pair[0], cv=3, random_state=0),
    "TCE": lambda pair: TransductiveEvaluator(pair[1], measure=pair[0], cv="loo", random_state=0),
}
REFITTED_QUICKLY = 36  # rows; of the detectors without a shortcut, leave-one-out is a loop of refits
COLUMNS = ("labels", "accepted", "credibility", "confidence", "p_values", "votes", "doubts")
FRESH_PROCESS = (
    f"COLUMNS = {COLUMNS!r}"
    + """
import json, sys, warnings
import numpy as np
from transcendent.artifacts import load
warnings.simplefilter("ignore")
for name, trusted in json.load(open("cases.json")).items():
    decisions = load(f"{name}.transcendent", trusted=trusted).decide(np.load(f"{name}.npy"))
    columns = {c: getattr(decisions, c) for c in COLUMNS if getattr(decisions, c) is not None}
    np.savez(f"{name}.npz", **columns)
assert "cryptography" not in sys.modules
"""
)


def matrix(every_evaluator):
    """Every measure and detector of the contract with ICE, and every third with another evaluator in turn, or
    all with every one; and every rejector."""
    others = list(EVALUATORS)[1:]
    for i, pair in enumerate(PAIRS):
        if isinstance(pair[0], FunctionMeasure):
            continue
        some = ("ICE",) if i % 3 else ("ICE", others[i // 3 % len(others)])
        for evaluator in EVALUATORS if every_evaluator else some:
            both = (2, 3) if every_evaluator else (2 + i % 2,)
            for n_classes in both if evaluator in ("ICE", "CCE") else (2,):
                name = f"{evaluator}-{i}-{name_of(pair)}-{n_classes}"
                few = REFITTED_QUICKLY if evaluator == "TCE" else None
                yield name, EVALUATORS[evaluator](tuple(clone(part) for part in pair)), n_classes, few
    for name, rejector in REJECTORS.items():
        yield name.replace(" ", "-").replace(",", ""), clone(rejector), 2, None


def same(a, b):
    for column in COLUMNS:
        if getattr(a, column) is not None or getattr(b, column) is not None:
            np.testing.assert_array_equal(getattr(a, column), getattr(b, column))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every_evaluator", [False, pytest.param(True, marks=pytest.mark.full)])
def test_measures_detectors_and_evaluators_in_a_fresh_process(every_evaluator, tmp_path):
    expected, cases = {}, {}
    for name, rejector, n_classes, few in matrix(every_evaluator):
        X, y = data(n_classes)
        rows = slice(None, few) if few else slice(None, 160)
        rejector.fit(X[rows], y[rows])
        save(rejector, tmp_path / f"{name}.transcendent")
        cases[name] = open_artifact(tmp_path / f"{name}.transcendent").types_to_trust()
        np.save(tmp_path / f"{name}.npy", X)
        expected[name] = rejector.decide(X)
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    subprocess.run([sys.executable, "-c", FRESH_PROCESS], cwd=tmp_path, check=True)
    assert len(cases) > (190 if every_evaluator else 60)
    for name, decisions in expected.items():
        with np.load(tmp_path / f"{name}.npz") as found:
            for column in COLUMNS:
                if getattr(decisions, column) is None:
                    assert column not in found.files, name
                else:
                    np.testing.assert_array_equal(found[column], getattr(decisions, column), err_msg=name)


def there_and_back(rejector, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save(rejector, path)
        return load(path, trusted=open_artifact(path).types_to_trust())


X, y = make_classification(400, n_informative=6, flip_y=0.1, random_state=0)


@pytest.mark.parametrize(
    "search",
    [
        ExactSearch("accuracy", constraints=Recall() >= 0.5),
        RandomSearch("f1", trials=50, on="both", random_state=0),
        GridSearch("f1", steps=5),
        QuartileSearch("median", of="correct"),
        ExactSearch(F1(pos_label="malicious", of="kept")),
    ],
    ids=repr,
)
@pytest.mark.parametrize("labels", [[0, 1], ["good", "malicious"], [False, True]], ids=str)
def test_searches_and_labels(search, labels, tmp_path):
    if "pos_label" in repr(search) and "malicious" not in labels:
        pytest.skip("names a label these are not")
    ice = InductiveEvaluator(LinearSVC(), search=search, random_state=0).fit(X, np.array(labels)[y])
    back = there_and_back(ice, tmp_path / "x")
    same(back.decide(X), ice.decide(X))
    assert repr(back) == repr(ice)
    assert back.classes_.dtype == ice.classes_.dtype
    same(back.rethreshold("auto").decide(X), ice.rethreshold("auto").decide(X))
    same(
        back.recalibrate(X, np.array(labels)[y]).decide(X), ice.recalibrate(X, np.array(labels)[y]).decide(X)
    )


@pytest.mark.parametrize(
    "detector", [LIGHTGBM, XGBOOST, LogisticRegression()], ids=lambda d: type(d).__name__
)
def test_frames_and_pipelines(detector, tmp_path):
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])]).assign(
        kind=np.where(X[:, 0] > 0, "a", "b")
    )
    columns = make_column_transformer((OneHotEncoder(), ["kind"]), (StandardScaler(), ["f0", "f1", "f2"]))
    ice = InductiveEvaluator(make_pipeline(columns, clone(detector)), random_state=0).fit(frame, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LightGBM's, on names
        back = there_and_back(ice, tmp_path / "x")
        same(back.decide(frame), ice.decide(frame))
    assert open_artifact(tmp_path / "x").manifest["features"]["names"] == list(frame.columns)


def test_text(tmp_path):
    texts = np.array(
        [f"{'cheap pills' if label else 'the meeting'} number {i % 7}" for i, label in enumerate(y)]
    )
    ice = InductiveEvaluator(make_pipeline(TfidfVectorizer(), LinearSVC()), random_state=0).fit(texts, y)
    same(there_and_back(ice, tmp_path / "x").decide(texts), ice.decide(texts))


def test_a_frozen_detector_and_several_boosters(tmp_path):
    vote = VotingClassifier(
        [("l", clone(LIGHTGBM)), ("x", clone(XGBOOST)), ("n", GaussianNB())], voting="soft"
    ).fit(X, y)
    ice = InductiveEvaluator(FrozenEstimator(vote)).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        back = there_and_back(ice, tmp_path / "x")
        same(back.decide(X), ice.decide(X))


def test_sparse_rows_a_measure_keeps(tmp_path):
    from transcendent.measures import NeighbourRatio

    rows = sp.csr_matrix(np.where(np.abs(X) > 1, X, 0))
    ice = InductiveEvaluator(LinearSVC(), measure=NeighbourRatio(3), random_state=0).fit(rows, y)
    same(there_and_back(ice, tmp_path / "x").decide(rows), ice.decide(rows))


def test_combined_measures(tmp_path):
    both = CombinedMeasure(["auto", NeighbourRatio()])
    X, y = make_classification(300, random_state=0)
    ice = InductiveEvaluator(LinearSVC(), measure=both, random_state=0).fit(X, y)
    save(ice, tmp_path / "ice.transcendent")
    again = load(tmp_path / "ice.transcendent")
    np.testing.assert_array_equal(again.decide(X).p_values, ice.decide(X).p_values)


def test_types_of_this_package_are_allowed():
    modules = (transcendent, baselines, measures)
    public = [getattr(module, name) for module in modules for name in module.__all__]
    kinds = {kind for kind in public if isinstance(kind, type)} - {Answers, Decisions, Rejector, Measure}
    assert {f"{kind.__module__}.{kind.__qualname__}" for kind in kinds} <= ALLOWED
    for module, _, name in (name.rpartition(".") for name in ALLOWED if name.startswith("transcendent.")):
        assert isinstance(getattr(import_module(module), name), type)


def test_scores_alone(tmp_path):
    margins = LinearSVC().fit(X, y).decision_function(X)
    answers = Answers((margins > 0).astype(int), np.column_stack([margins, -margins]))
    vendor = ScoreEvaluator().fit(answers, y)
    back = there_and_back(vendor, tmp_path / "x")
    same(back.decide(answers), vendor.decide(answers))


def test_saving_leaves_the_rejector_alone(tmp_path):
    ice = InductiveEvaluator(clone(LIGHTGBM), random_state=0).fit(X, y)
    detector = ice.estimator_
    before = ice.decide(X)
    save(ice, tmp_path / "x")
    assert ice.estimator_ is detector
    same(ice.decide(X), before)


@pytest.mark.parametrize("kind", [RejectionBudget, StreamingBudget])
def test_a_budget_around_an_evaluator_that_is_fitted_already(kind, tmp_path):
    ice = InductiveEvaluator(LinearSVC(), random_state=0).fit(X, y)
    budget = kind(ice, rate=0.1).fit(X, y)
    back = there_and_back(budget, tmp_path / "x")
    assert budget.rejector is ice
    assert not hasattr(back.rejector, "estimator_")
    same(back.decide(X), budget.decide(X))


def test_what_the_manifest_says(tmp_path):
    ice = InductiveEvaluator(LinearSVC(), random_state=0).fit(X, np.array(["good", "malicious"])[y])
    digest = save(ice, tmp_path / "x", training_period=("2024-01-01", np.datetime64("2024-06-30")))
    artifact = open_artifact(tmp_path / "x")
    manifest = artifact.manifest
    assert artifact.digest == digest
    assert manifest["format"] == 2
    assert manifest["rejector"] == "InductiveEvaluator"
    assert manifest["classes"] == ["good", "malicious"]
    assert manifest["features"] == {"count": 20, "names": None}
    assert manifest["training_period"] == ["2024-01-01", "2024-06-30"]
    assert manifest["calibration"][0]["objects"] == sum(manifest["calibration"][0]["per_class"]) == 136
    assert manifest["thresholds"][0]["credibility"] == ice.thresholds_.tolist()
    assert {"python", "numpy", "scikit-learn", "transcendent"} <= set(manifest["versions"])
    assert digest in repr(artifact)


def test_equal_rejectors_make_equal_manifests(tmp_path):
    ice = InductiveEvaluator(RandomForestClassifier(3, random_state=0), random_state=0).fit(X, y)
    save(ice, tmp_path / "a")
    save(there_and_back(ice, tmp_path / "b"), tmp_path / "c")
    manifests = [open_artifact(tmp_path / name).manifest for name in "ac"]
    for key in ("classes", "features", "calibration", "thresholds", "description"):
        assert manifests[0][key] == manifests[1][key]


@pytest.mark.slow
def test_our_own_types_need_no_trust(tmp_path):
    X, y = make_classification(150, random_state=0)
    ice = InductiveEvaluator(LinearSVC(), measure="drift", random_state=0).fit(X, y)
    save(ice, tmp_path / "x")
    to_trust = open_artifact(tmp_path / "x").types_to_trust()
    assert not [name for name in to_trust if name.startswith("transcendent")]
    assert np.array_equal(load(tmp_path / "x", trusted=to_trust).decide(X).p_values, ice.decide(X).p_values)
