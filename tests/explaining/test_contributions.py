"""What columns contribute adds up to the score, through transformers; occlusion is what brute force gives."""

import lightgbm
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_selection import SelectKBest, VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, ComplementNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import SVC, LinearSVC

from transcendent.explaining.contributions import contributions
from transcendent.explaining.origins import trace_columns
from transcendent.explaining.variants import cells, usual_row

RNG = np.random.default_rng(0)
N = 240


def classes_of(X, k):
    signal = X[:, 0] - X[:, 1] + 0.3 * np.random.default_rng(1).normal(size=len(X))
    return np.array(["a", "b", "c", "d"])[np.digitize(signal, np.quantile(signal, np.arange(1, k) / k))]


NUMBERS = RNG.normal(size=(N, 5)) * [1, 2, 0.1, 50, 1] + [0, 1, 5, -100, 0]
COUNTS = RNG.poisson(1.0, size=(N, 6)).astype(float)
LINEAR = [
    LinearSVC(random_state=0),
    LogisticRegression(),
    RidgeClassifier(),
    SGDClassifier(random_state=0),
    LinearDiscriminantAnalysis(),
]
BAYES = [
    GaussianNB(),
    BernoulliNB(binarize=0.5),
    MultinomialNB(),
    ComplementNB(),
    CategoricalNB(min_categories=20),
]
BOOSTED = [
    lightgbm.LGBMClassifier(n_estimators=8, num_leaves=5, verbosity=-1),
    xgboost.XGBClassifier(n_estimators=8, max_depth=3, n_jobs=1),
]


def no_usual():
    return None


def scores_of(model, X, label, rival):
    """The score in the classifier's own terms, computed without the code under test."""
    classes = list(model.classes_)
    mine, theirs = classes.index(label), classes.index(rival)
    if isinstance(model, lightgbm.LGBMClassifier):
        raw = model.predict(X, raw_score=True)
    elif hasattr(model, "predict_joint_log_proba"):
        raw = model.predict_joint_log_proba(X)
    else:
        raw = model.decision_function(X)
    if raw.ndim == 1:
        return raw if mine == 1 else -raw
    return raw[:, mine] - raw[:, theirs]


def adds_up(found, score):
    size = abs(found.base) + np.abs(found.amounts).sum()
    assert abs(found.base + found.amounts.sum() + found.rest - score) <= 1e-9 * max(size, abs(score))
    assert abs(found.score - score) <= 1e-9 * max(size, abs(score))


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("model", [*LINEAR, *BAYES], ids=lambda m: type(m).__name__)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_linear_detectors_and_naive_bayes_add_up(model, k):
    y = classes_of(COUNTS, k)
    for X in (COUNTS, sp.csr_matrix(COUNTS)):
        if sp.issparse(X) and isinstance(model, GaussianNB | CategoricalNB | LinearDiscriminantAnalysis):
            continue
        model.fit(X, y)
        for label, rival in (("a", "b"), ("b", "a")):
            found = contributions([model], X[[7]], label, rival, no_usual)
            assert found.method == "exact"
            adds_up(found, scores_of(model, X[[7]], label, rival)[0])


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("model", BOOSTED, ids=lambda m: type(m).__name__)
def test_boosted_trees_give_their_own_contributions(model, k):
    y = np.unique(classes_of(COUNTS, k), return_inverse=True)[1]
    for X in (COUNTS, sp.csr_matrix(COUNTS)):
        model.fit(X, y)
        found = contributions([model], X[[7]], 1, 0, no_usual)
        assert found.method == "paths"
        assert found.rest == 0
        total = found.base + found.amounts.sum()
        assert total == pytest.approx(found.score, rel=1e-9, abs=1e-12)
        raw = model.predict(X[[7]], **{"raw_score" if hasattr(model, "booster_") else "output_margin": True})
        expected = raw[0] if k == 2 else raw[0, 1] - raw[0, 0]
        assert found.score == pytest.approx(float(expected), rel=1e-6)


def test_path_contributions_are_those_of_the_library():
    y = np.unique(classes_of(COUNTS, 2), return_inverse=True)[1]
    model = BOOSTED[0].fit(COUNTS, y)
    own = model.predict(COUNTS[[7]], pred_contrib=True)[0]
    found = contributions([model], COUNTS[[7]], 1, 0, no_usual)
    np.testing.assert_allclose(found.amounts, own[:-1], rtol=1e-12)
    np.testing.assert_allclose(contributions([model], COUNTS[[7]], 0, 1, no_usual).amounts, -own[:-1])


SCALERS = [StandardScaler(), MinMaxScaler(), RobustScaler(), MaxAbsScaler(), None]
LAST = [LinearSVC(random_state=0), LogisticRegression(), GaussianNB()]


@given(
    scaler=st.sampled_from(SCALERS),
    selecting=st.booleans(),
    indicator=st.booleans(),
    last=st.sampled_from(LAST),
    k=st.sampled_from([2, 3]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=40)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # any coefficients will do
def test_it_adds_up_through_pipelines(scaler, selecting, indicator, last, k, seed):
    """Of numbers with gaps, imputed with indicators, scaled and selected."""
    rng = np.random.default_rng(seed)
    X = NUMBERS * 10.0 ** rng.integers(-3, 4, size=5)
    y = classes_of(NUMBERS, k)
    X = np.where(rng.random(X.shape) < 0.1, np.nan, X)
    steps = [SimpleImputer(add_indicator=indicator), scaler, SelectKBest(k=3) if selecting else None, last]
    model = make_pipeline(*(step for step in steps if step is not None)).fit(X, y)
    row = X[[int(rng.integers(N))]]
    label, rival = rng.choice(["a", "b", "c"][:k], 2, replace=False)
    found = contributions([model], row, label, rival, no_usual)
    assert found.method == "exact"
    assert len(found.amounts) == 5
    adds_up(found, scores_of(model[-1], model[:-1].transform(row), label, rival)[0])


@given(last=st.sampled_from([*LAST, BernoulliNB(), LinearDiscriminantAnalysis()]), i=st.integers(0, N - 1))
@settings(max_examples=30)
def test_compared_with_usual_values_the_usual_contributes_nothing(last, i):
    X = np.round(NUMBERS * [1, 1, 10, 1, 1])
    model = make_pipeline(StandardScaler(), last).fit(X, classes_of(X, 3))
    row, usual = X[[i]], usual_row(X)
    found = contributions([model], row, "b", "c", lambda: usual)
    assert (found.method, found.base_of) == ("exact", "usual values")
    np.testing.assert_allclose(found.amounts[row[0] == usual[0]], 0)
    own, base = (scores_of(model[-1], model[0].transform(rows), "b", "c")[0] for rows in (row, usual))
    adds_up(found, own)
    assert found.base == pytest.approx(base, rel=1e-9, abs=1e-9)


FRAME = pd.DataFrame(
    {
        "size": np.where(RNG.random(N) < 0.1, np.nan, NUMBERS[:, 0]),
        "colour": RNG.choice(["red", "green", "blue", None], N),
        "kind_x": RNG.choice(["kind", "x_kind"], N),
        "kind": RNG.choice(["x_kind", "y", "z"], N),
        "flag": RNG.random(N) < 0.5,
        "rank": RNG.integers(0, 5, N),
    }
)
FRAME_Y = np.where(NUMBERS[:, 0] + (FRAME["colour"] == "red") > 0.4, "bad", "good")
MESSY = ColumnTransformer(
    [
        ("words", OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["colour", "kind"]),
        ("numbers", make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), ["size"]),
        ("order", OrdinalEncoder(), ["kind_x"]),
        ("bins", KBinsDiscretizer(3, strategy="uniform"), ["rank"]),
    ],
    remainder="passthrough",
)


def test_encoders_lead_back_to_the_columns_of_a_frame():
    """Names that are parts of other names must not confuse them."""
    model = make_pipeline(MESSY, LogisticRegression()).fit(FRAME, FRAME_Y)
    found = contributions([model], FRAME.iloc[[3]], "bad", "good", no_usual)
    assert found.method == "exact"
    adds_up(found, scores_of(model[-1], model[:-1].transform(FRAME.iloc[[3]]), "bad", "good")[0])
    weights = model[-1].coef_[0]
    transformed = model[:-1].transform(FRAME.iloc[[3]])
    transformed = (transformed.toarray() if sp.issparse(transformed) else transformed)[0]
    colours = len(model[0].named_transformers_["words"].categories_[0])
    sign = 1.0 if model.classes_[1] == "bad" else -1.0
    by_hand = sign * (weights[:colours] * transformed[:colours]).sum()
    assert found.amounts[list(FRAME).index("colour")] == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize("output", ["default", "pandas"])
def test_columns_are_traced_through_nested_transformers(output):
    union = FeatureUnion([("scaled", StandardScaler()), ("also", MinMaxScaler())])
    nested = make_pipeline(
        make_column_transformer((union, ["size", "rank"]), ("drop", ["flag"]), remainder="drop"),
        VarianceThreshold(),
    )
    nested.set_output(transform=output)
    filled = FRAME.fillna({"size": 0.0})
    nested.fit(filled)
    assert trace_columns([nested], filled.iloc[[0]]).tolist() == [0, 5, 0, 5]


def test_columns_that_come_from_several_are_not_traced():
    for step in (PCA(2), PolynomialFeatures(2)):
        assert trace_columns([step.fit(NUMBERS)], NUMBERS[:1]) is None


def brute_force(score, row, usual):
    """Each value replaced by the usual one, one at a time, by assignment."""
    whole = score(row)[0]
    amounts = []
    for j in range(row.shape[1]):
        changed = row.copy()
        if isinstance(row, pd.DataFrame):
            changed[row.columns[j]] = usual[row.columns[j]].to_numpy()
        else:
            changed[0, j] = usual[0, j]
        amounts.append(whole - score(changed)[0])
    return whole, amounts, score(usual)[0]


OCCLUDED = [
    SVC(random_state=0),
    RandomForestClassifier(10, random_state=0),
    KNeighborsClassifier(3),
    HistGradientBoostingClassifier(max_iter=5),
    make_pipeline(StandardScaler(), PCA(3), LogisticRegression()),
]


@pytest.mark.parametrize("model", OCCLUDED, ids=lambda m: type(m).__name__)
def test_occlusion_is_what_brute_force_gives(model):
    y = np.where(NUMBERS[:, 0] * NUMBERS[:, 1] > 0, "a", "b")
    model.fit(NUMBERS, y)
    row, usual = NUMBERS[[11]], usual_row(NUMBERS)

    def score(rows):
        if hasattr(model, "decision_function"):
            return -model.decision_function(rows)  # for the first of two classes
        return model.predict_proba(rows)[:, 0]

    whole, amounts, base = brute_force(score, row, usual)
    found = contributions([model], row, "a", "b", lambda: usual)
    assert found.method == "occlusion"
    np.testing.assert_allclose(found.amounts, amounts, rtol=1e-12, atol=1e-12)
    assert found.base == pytest.approx(base)
    assert found.score == pytest.approx(whole)
    assert found.base + found.amounts.sum() + found.rest == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("form", ["pandas", "sparse", "polars"])
def test_occlusion_of_other_kinds_of_rows(form):
    if form == "sparse":
        X, y = sp.csr_matrix(COUNTS), np.where(COUNTS[:, 0] > 1, "a", "b")
        model = RandomForestClassifier(10, random_state=0).fit(X, y)
        row, usual, dense = X[[5]], usual_row(X), COUNTS[[5]]
        _, amounts, _ = brute_force(
            lambda rows: model.predict_proba(sp.csr_matrix(rows))[:, 0], dense, usual.toarray()
        )
    else:
        y = np.where(FRAME_Y == "bad", "a", "b")
        encode = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        pandas = FRAME.drop(columns="kind_x")
        frame = pandas if form == "pandas" else pl.from_pandas(pandas)
        model = make_pipeline(
            make_column_transformer((encode, ["colour", "kind"]), remainder="passthrough"),
            HistGradientBoostingClassifier(max_iter=5),
        ).fit(pandas, y)
        row, usual = frame[5:6], usual_row(frame)
        same = (
            pandas.iloc[5:6].reset_index(drop=True),
            pd.DataFrame([cells(usual, 0)], columns=pandas.columns),
        )
        _, amounts, _ = brute_force(lambda rows: -model.decision_function(rows), *same)
    found = contributions([model], row, "a", "b", lambda: usual)
    assert found.method == "occlusion"
    np.testing.assert_allclose(found.amounts, amounts, rtol=1e-9, atol=1e-12)


def test_a_usual_row_has_values_that_occur():
    row = usual_row(FRAME)
    assert row["size"].iloc[0] in set(FRAME["size"])
    assert row["kind"].iloc[0] == FRAME["kind"].mode()[0]
    assert row.dtypes.tolist() == FRAME.dtypes.tolist()
    np.testing.assert_array_equal(usual_row(sp.csr_matrix(COUNTS)).toarray(), usual_row(COUNTS))
    gaps = np.array([[np.nan, 1.0], [np.nan, np.nan], [3.0, 5.0], [np.nan, 9.0]])
    np.testing.assert_array_equal(usual_row(gaps), [[np.nan, 5.0]])


def test_the_mean_of_several_detectors_adds_up_too():
    y = classes_of(NUMBERS, 2)
    models = [LinearSVC(random_state=0).fit(NUMBERS[k::3] / 50, y[k::3]) for k in range(3)]
    found = contributions(models, NUMBERS[[4]] / 50, "b", "a", no_usual)
    adds_up(found, np.mean([model.decision_function(NUMBERS[[4]] / 50)[0] for model in models]))


def test_labels_that_a_detector_does_not_know_are_not_explained():
    model = LinearSVC().fit(NUMBERS, classes_of(NUMBERS, 2))
    assert contributions([model], NUMBERS[:1], "x", "a", no_usual) is None
    assert contributions([], NUMBERS[:1], "b", "a", no_usual) is None
    forest = RandomForestClassifier(3).fit(NUMBERS, classes_of(NUMBERS, 2))
    assert contributions([forest], NUMBERS[:1], "b", "a", no_usual) is None
