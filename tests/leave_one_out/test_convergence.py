"""Shortcuts hold for a detector at its optimum; a detector that stopped short of it is refitted."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, make_blobs, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC, LinearSVC

from transcendent import TransductiveEvaluator
from transcendent.errors import NoShortcutError
from transcendent.leave_one_out.convergence import check_converged
from transcendent.leave_one_out.registry import SHORTCUTS

UNCONVERGED = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
WORDS = "stopped short of its optimum, by .* scale the features, raise max_iter or lower tol"


@pytest.mark.slow
@UNCONVERGED
@pytest.mark.parametrize(
    "estimator",
    [LogisticRegression(solver="sag", random_state=0), LinearSVC(loss="hinge", random_state=0)],
    ids=["sag", "hinge"],
)
def test_a_solver_that_did_not_converge_keeps_its_promises(estimator):
    X, y = load_breast_cancer(return_X_y=True)
    X, X_new, y, _ = train_test_split(X, y, test_size=0.6, random_state=1, stratify=y)
    tce = TransductiveEvaluator(estimator, cv="loo", verbose=False).fit(X, y)
    assert tce.leave_one_out_ == "refit"
    assert "stopped short of its optimum" in tce.leave_one_out_reason_
    assert abs(tce.decide(X_new).rejection_rate - tce.result_.rejection_rate) < 0.08


ROWS, LABELS = make_classification(150, 12, n_informative=6, flip_y=0.1, random_state=0)
THREE = make_classification(150, 12, n_informative=6, n_classes=3, random_state=0)[1]
SOLVERS = [
    LinearSVC(max_iter=1),
    LinearSVC(dual=True, max_iter=1, random_state=0),
    LinearSVC(loss="hinge", max_iter=1, random_state=0),
    LinearSVC(fit_intercept=False, max_iter=1),
    SVC(kernel="linear", max_iter=10),
    SVC(gamma=0.1, max_iter=10),
    SVC(kernel="poly", gamma=0.1, max_iter=10),
    *(LogisticRegression(solver=s, max_iter=1, random_state=0) for s in ("lbfgs", "sag", "saga")),
    *(RidgeClassifier(solver=s, max_iter=1, random_state=0) for s in ("lsqr", "sparse_cg", "sag", "saga")),
]


@UNCONVERGED
@pytest.mark.parametrize("labels", [LABELS, THREE], ids=["two", "three"])
@pytest.mark.parametrize("estimator", SOLVERS, ids=repr)
def test_every_solver_stopped_early_is_refused_with_the_way_out(estimator, labels):
    detector = clone(estimator).fit(ROWS, labels)
    with pytest.raises(NoShortcutError, match=WORDS):
        SHORTCUTS[type(detector)].function(detector, ROWS, labels)


@UNCONVERGED
def test_ridge_with_more_columns_than_rows_is_compared_too():
    rows = sp.random(60, 200, density=0.1, random_state=0, format="csr")
    labels = (rows.toarray().sum(axis=1) > rows.sum() / 60).astype(int)
    shortcut = SHORTCUTS[RidgeClassifier].function
    shortcut(RidgeClassifier(0.1, solver="lsqr", tol=1e-8).fit(rows, labels), rows, labels)
    with pytest.raises(NoShortcutError, match=WORDS):
        shortcut(RidgeClassifier(0.1, solver="lsqr", max_iter=1).fit(rows, labels), rows, labels)


@pytest.mark.parametrize(
    "estimator",
    [
        *(LinearSVC(), LinearSVC(C=0.01, loss="hinge", random_state=0), SVC(gamma=0.1), SVC(kernel="linear")),
        *(LogisticRegression(), LogisticRegression(solver="liblinear"), RidgeClassifier()),
    ],
    ids=repr,
)
def test_default_tolerances_are_close_enough(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        detector = clone(estimator).fit(ROWS, LABELS)
    SHORTCUTS[type(detector)].function(detector, ROWS, LABELS)


def rare_with_a_feature_of_its_own():
    rng = np.random.default_rng(1)
    labels = (rng.random(2000) < 0.04).astype(int)
    rows = rng.normal(size=(2000, 6))
    rows[:, 0] += 2 * labels
    rows[:, -1] = 0.1 * labels * rng.exponential(size=2000)
    return rows, labels


def far_apart():
    return make_blobs(2000, centers=[[-6, 0, 0, 0], [6, 0, 0, 0]], random_state=0)


HIDDEN = [
    (LogisticRegression(solver="sag", C=10, max_iter=30, random_state=0), rare_with_a_feature_of_its_own),
    (LinearSVC(), far_apart),
]


@UNCONVERGED
@pytest.mark.parametrize(("estimator", "data"), HIDDEN, ids=["rare", "far apart"])
def test_a_class_that_the_spread_of_all_rows_hides_is_measured_by_its_own(estimator, data):
    rows, labels = data()
    detector = clone(estimator).fit(rows, labels)
    with pytest.raises(NoShortcutError, match=r"of decision values within a class \(allowed: 0.15\); scale"):
        SHORTCUTS[type(detector)].function(detector, rows, labels)
    detector = clone(estimator).set_params(tol=1e-8, max_iter=10_000).fit(rows, labels)
    SHORTCUTS[type(detector)].function(detector, rows, labels)


@pytest.mark.parametrize(
    "estimator",
    [
        *(LinearSVC(), SVC(gamma=0.1), SVC(kernel="linear"), RidgeClassifier()),
        *(LogisticRegression(solver=s) for s in ("lbfgs", "liblinear", "newton-cg", "newton-cholesky")),
    ],
    ids=repr,
)
def test_a_rare_class_loses_no_shortcut_by_default(estimator):
    rows, labels = make_classification(400, 12, n_informative=6, weights=[0.96], random_state=0)
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    detector = clone(estimator).fit(rows, labels)
    SHORTCUTS[type(detector)].function(detector, rows, labels)


NORMAL = np.random.default_rng(0).normal(size=(400, 2))
TWO = np.arange(400) % 2


def test_each_class_is_measured_by_its_own_spread():
    optimum = NORMAL * [100.0, 1.0]
    check_converged(optimum + 0.04 * NORMAL[:, [1, 0]], optimum, TWO)
    with pytest.raises(NoShortcutError, match="stopped short of its optimum"):
        check_converged(optimum + 0.2 * NORMAL[:, [1, 0]], optimum, TWO)


def test_rows_far_out_do_not_hide_the_others():
    optimum = NORMAL[:, 0] * np.where(np.arange(400) < 10, 1e6, 1.0)
    with pytest.raises(NoShortcutError, match="stopped short"):
        check_converged(optimum + 0.3 * NORMAL[:, 1], optimum, TWO)


@pytest.mark.parametrize("values", [0.0, 1.0])
def test_equal_values_are_compared_by_their_size(values):
    optimum = np.full(50, values)
    check_converged(optimum * (1 + 1e-15), optimum, TWO[:50])
    with pytest.raises(NoShortcutError, match="stopped short"):
        check_converged(optimum + 1e-3, optimum, TWO[:50])


def test_a_rest_that_is_all_alike_is_measured_by_the_few_rows_of_the_class():
    optimum = np.where(np.arange(400) < 5, 1.0, -1.0) + 1e-6 * NORMAL[:, 0]
    check_converged(optimum + 1e-6 * NORMAL[:, 1], optimum, TWO)


def test_a_class_may_be_all_alike_but_must_be_where_the_optimum_has_it():
    rare = np.arange(400) < 20
    optimum = np.where(rare, 3.0, NORMAL[:, 0])
    codes = rare.astype(int)
    check_converged(optimum + 0.005 * rare, optimum, codes)
    with pytest.raises(NoShortcutError, match="within a class"):
        check_converged(optimum + 0.05 * rare, optimum, codes)
    with pytest.raises(NoShortcutError, match="within a class"):
        check_converged(optimum + 100.0 * rare, optimum, codes)
