"""Shortcuts hold for a detector at its optimum; one that stopped short of it is refitted."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, make_classification
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


NORMAL = np.random.default_rng(0).normal(size=(400, 2))


def test_each_class_is_measured_by_its_own_spread():
    optimum = NORMAL * [100.0, 1.0]
    check_converged(optimum + 0.04 * NORMAL[:, [1, 0]], optimum)
    with pytest.raises(NoShortcutError, match="stopped short of its optimum"):
        check_converged(optimum + 0.2 * NORMAL[:, [1, 0]], optimum)


def test_rows_far_out_do_not_hide_the_others():
    optimum = NORMAL[:, 0] * np.where(np.arange(400) < 10, 1e6, 1.0)
    with pytest.raises(NoShortcutError, match="stopped short"):
        check_converged(optimum + 0.3 * NORMAL[:, 1], optimum)


@pytest.mark.parametrize("values", [0.0, 1.0])
def test_equal_values_are_compared_by_their_size(values):
    optimum = np.full(50, values)
    check_converged(optimum * (1 + 1e-15), optimum)
    with pytest.raises(NoShortcutError, match="stopped short"):
        check_converged(optimum + 1e-3, optimum)


def test_a_rest_that_is_all_alike_is_measured_by_the_few_rows_of_the_class():
    optimum = np.where(np.arange(400) < 5, 1.0, -1.0) + 1e-6 * NORMAL[:, 0]
    check_converged(optimum + 1e-6 * NORMAL[:, 1], optimum)
