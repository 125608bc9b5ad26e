"""Every leave-one-out shortcut against brute force: the same evaluator, refitted once per row."""

import re
import warnings
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.datasets import make_blobs, make_classification
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import BaggingClassifier, ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics.pairwise import linear_kernel
from sklearn.model_selection import LeaveOneOut
from sklearn.naive_bayes import BernoulliNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.fixes import parse_version

from transcendent import TransductiveEvaluator
from transcendent._utils.estimators import see_through
from transcendent.errors import CalibrationWarning, NoShortcutError
from transcendent.leave_one_out import least_squares, logistic, shared, support_path, support_vectors
from transcendent.leave_one_out.registry import SHORTCUTS
from transcendent.measures import (
    CentroidDistance,
    Density,
    Margin,
    NeighbourRatio,
    NeighbourShare,
    Probability,
    ProbabilityMargin,
    TreeDisagreement,
)

N = 90


def random(seed=0):
    return make_classification(N, 8, n_informative=4, flip_y=0.15, class_sep=0.7, random_state=seed)


def three_classes():
    return make_classification(
        N, 8, n_informative=5, n_redundant=0, n_classes=3, flip_y=0.1, class_sep=0.8, random_state=1
    )


def separable():
    X, y = make_blobs(220, centers=[[-6, 0, 0, 0], [6, 0, 0, 0]], cluster_std=1.0, random_state=2)
    return X, y


def duplicated():
    """Groups of one to four equal rows."""
    X, y = random(3)
    take = np.concatenate([np.arange(80), np.arange(60), np.arange(50), np.arange(40)])
    return X[take], y[take]


def contradicting():
    """Equal rows of both classes."""
    X, y = random(4)
    return np.vstack([X, X[:20]]), np.concatenate([y, 1 - y[:20]])


def one_left():
    """Two members of the third class: one is left when the other is left out."""
    X, y = random(5)
    y = y.copy()
    y[[5, 17]] = 2
    X[[5, 17]] += 1.5
    return X, y


def counts(n=N):
    """Non-negative, mostly zero: what a bag of words looks like."""
    rng = np.random.default_rng(5)
    y = np.repeat([0, 1], n // 2)
    rates = rng.gamma(0.5, 0.6, size=(2, 40))
    return rng.poisson(rates[y]) * rng.uniform(0.5, 1.5, size=(n, 1)), y  # lengths, so that nothing ties


def sparse_counts():
    X, y = counts()
    return sp.csr_matrix(X), y


def wide():
    """More columns than rows."""
    rng = np.random.default_rng(6)
    X = sp.random(N, 300, density=0.05, random_state=rng, format="csr")
    y = (X @ rng.normal(size=300) + 0.3 * rng.normal(size=N) > 0).astype(int)
    return X, y


def dense_wide():
    X, y = wide()
    return X.toarray(), y


def nearly_even():
    """One more row of a class: left out, it leaves equal shares."""
    X, y = random(7)
    n = np.bincount(y).min() - 1
    even = np.concatenate([np.flatnonzero(y == 0)[:n], np.flatnonzero(y == 1)[: n + 1]])
    return X[even], y[even]


def outlying():
    """One row has nearly all of the variance."""
    X, y = random(8)
    X[3] *= 1e5
    return X, y


DENSE = (random, three_classes, separable, duplicated, contradicting, one_left, counts)
SPARSE = (sparse_counts, wide)
FEW = (random, three_classes, one_left, wide)


@dataclass(frozen=True)
class Case:
    """A detector whose refits converge tightly, measures, and data sets."""

    estimator: object
    measures: tuple = ("auto",)
    data: tuple = field(default=DENSE + SPARSE)
    refitted: object = None  # what brute force refits, if not the detector itself


CENTROIDS = [
    Case(NearestCentroid()),
    Case(NearestCentroid(), (Margin(), Probability()), (random, three_classes, duplicated, one_left)),
    Case(NearestCentroid(priors="empirical"), ("auto", Margin()), (random, three_classes, nearly_even)),
    Case(NearestCentroid(priors=[0.2, 0.8]), (ProbabilityMargin(),), (random, separable, contradicting)),
]
NAIVE_BAYES = [
    Case(GaussianNB(), data=(*DENSE, outlying)),
    Case(GaussianNB(priors=[0.3, 0.7], var_smoothing=1e-3), ("auto", Probability()), (random,)),
    Case(BernoulliNB(), data=(*DENSE, sparse_counts, wide)),
    Case(BernoulliNB(alpha=1e-3, binarize=0.7, fit_prior=False), data=(random, counts, sparse_counts)),
    Case(BernoulliNB(class_prior=[0.1, 0.9]), (Probability(),), (wide,)),
    Case(MultinomialNB(), data=(counts, sparse_counts, wide)),
    Case(MultinomialNB(alpha=np.linspace(0.1, 3, 40), fit_prior=False), data=(counts, sparse_counts)),
    Case(MultinomialNB(alpha=1e-12, force_alpha=False), data=(sparse_counts,)),
    Case(MultinomialNB(class_prior=[0.1, 0.9]), (Probability(), ProbabilityMargin()), (counts, wide)),
]


def bent(estimator):
    """Some features of `make_classification` are sums of others: a bend makes them independent."""
    return make_pipeline(FunctionTransformer(np.arctan), estimator)


TWO = (random, separable, duplicated, contradicting, counts)
DISCRIMINANT = [
    Case(bent(LinearDiscriminantAnalysis()), data=DENSE),
    Case(bent(LinearDiscriminantAnalysis(solver="lsqr")), data=DENSE),
    Case(LinearDiscriminantAnalysis(), (Probability(), ProbabilityMargin()), (three_classes, separable)),
    Case(bent(LinearDiscriminantAnalysis(priors=[0.2, 0.8])), data=TWO),
    Case(bent(LinearDiscriminantAnalysis(priors=[0.2, 0.8], solver="lsqr")), data=TWO),
    Case(LinearDiscriminantAnalysis(priors=[0.2, 0.5, 0.3]), data=(three_classes,)),
    Case(LinearDiscriminantAnalysis(priors=[0.2, 0.5, 0.3], solver="lsqr"), data=(three_classes,)),
    Case(bent(QuadraticDiscriminantAnalysis()), data=(random, three_classes, separable, duplicated)),
    Case(QuadraticDiscriminantAnalysis(reg_param=0.3), ("auto", Margin()), (*TWO, three_classes)),
    Case(QuadraticDiscriminantAnalysis(reg_param=1.0, priors=[0.2, 0.8]), (Probability(),), (random,)),
]
CONVERGED = {"tol": 1e-12, "max_iter": 100_000}
LEAST_SQUARES = [
    Case(RidgeClassifier(**CONVERGED)),
    *(Case(RidgeClassifier(alpha, **CONVERGED), data=FEW) for alpha in (1e-4, 1e4)),
    Case(RidgeClassifier(fit_intercept=False, **CONVERGED), data=FEW),
    Case(RidgeClassifier(1e-2), data=(dense_wide,)),
    Case(RidgeClassifier(1e-2, solver="svd"), data=(random,)),
    *(
        Case(RidgeClassifier(3.0, solver=solver, random_state=0, **CONVERGED), data=(three_classes,))
        for solver in ("cholesky", "lsqr", "sag", "saga")
    ),
    Case(RidgeClassifier(0.1, solver="lsqr", **CONVERGED), data=(sparse_counts,)),
]

# Equal rows of both classes tie for the k-th place, which no definition breaks.
UNTIED = tuple(data for data in DENSE + SPARSE if data is not contradicting)
NEIGHBOURS = [
    Case(KNeighborsClassifier(5), (Probability(), NeighbourShare(3)), UNTIED),
    Case(KNeighborsClassifier(4, weights="distance", metric="manhattan"), (ProbabilityMargin(),), (random,)),
    Case(KNeighborsClassifier(3, metric="cosine"), (NeighbourRatio(4, metric="cosine"),), (random, one_left)),
    Case(KNeighborsClassifier(7), (CentroidDistance("cosine"),), (random, sparse_counts)),
    Case(make_pipeline(Normalizer(), KNeighborsClassifier(5)), data=(random, sparse_counts)),
]


class ConvergedLinearSVC(LinearSVC):
    """Liblinear's solution, refined to the minimum by Newton's method, class by class."""

    def fit(self, X, y):
        super().fit(X, y)
        rows = X.toarray() if sp.issparse(X) else np.asarray(X)
        rows = (
            np.hstack([rows, np.full((len(rows), 1), self.intercept_scaling)]) if self.fit_intercept else rows
        )
        for c, w in enumerate(np.hstack([self.coef_, np.reshape(self.intercept_, (-1, 1))])):
            several = len(self.coef_) > 1
            target = np.where(y == self.classes_[c if several else 1], 1.0, -1.0)
            weight = dict.fromkeys(self.classes_, 1.0) | (self.class_weight or {})
            own, rest = self.classes_[c if several else 1], self.classes_[0]
            cost = 2 * self.C * np.where(target > 0, weight[own], 1.0 if several else weight[rest])
            w[-1] /= self.intercept_scaling
            w = minimise_squared_hinge(rows, target, cost, w[: rows.shape[1]])
            self.coef_[c] = w[: X.shape[1]]
            if self.fit_intercept:
                np.atleast_1d(self.intercept_)[c] = w[-1] * self.intercept_scaling
        return self


def minimise_squared_hinge(X, target, cost, w):
    def gradient(w):
        inside = target * (X @ w) < 1
        return w - X[inside].T @ (cost * (target - X @ w))[inside], inside

    def value(w):
        return w @ w + np.sum(cost * np.maximum(0, 1 - target * (X @ w)) ** 2)

    for _ in range(200):
        slope, inside = gradient(w)
        curvature = np.eye(len(w)) + X[inside].T @ (cost[inside, None] * X[inside])
        step = np.linalg.solve(curvature, slope)
        length = 1.0
        while value(w - length * step) > (1 + 1e-13) * value(w) and length > 1e-3:
            length /= 2
        w = w - length * step
        if length == 1.0 and np.array_equal(
            gradient(w)[1], inside
        ):  # the minimum of a quadratic function was found
            return w - np.linalg.solve(curvature, gradient(w)[0])
    raise AssertionError("Newton's method did not converge")


def linear_svm(measures=("auto",), data=DENSE + SPARSE, **params):
    return Case(LinearSVC(**params), measures, data, ConvergedLinearSVC(**params))


SOLVABLE = tuple(data for data in DENSE if data is not counts)
"""By liblinear, at a large C."""
LINEAR_SVM = [
    linear_svm(),
    *(linear_svm(data=FEW, C=C) for C in (1e-4, 1e-2)),
    linear_svm(C=1e2, tol=1e-8),  # the default tolerance is far from the optimum
    linear_svm(data=(*SOLVABLE, wide), C=1e4, tol=1e-8),
    *(linear_svm(data=(random, wide), C=C, fit_intercept=False) for C in (1e-4, 1e-2, 1e2, 1e4)),
    linear_svm(data=(random, three_classes), intercept_scaling=5.0, class_weight={0: 3.0, 1: 0.5}),
    linear_svm((NeighbourRatio(3), CentroidDistance()), (random, one_left, wide)),
]


def svc(C, data, kernel="rbf", tol=1e-11, **params):
    """The detector converges as by default, or more tightly if C is small; the refits converge tightly."""
    params = {"kernel": kernel, "C": C, "gamma": 0.1} | params
    return Case(SVC(tol=min(1e-3, 0.01 * C), **params), ("auto",), data, SVC(tol=tol, **params))


def hinge(C, data, **params):
    refitted = LinearSVC(C=C, loss="hinge", tol=1e-9, max_iter=1_000_000, random_state=0, **params)
    return Case(LinearSVC(C=C, loss="hinge", random_state=0, **params), ("auto",), data, refitted)


# Where libsvm and liblinear converge: not with a large C and classes that overlap in few columns.
SUPPORT_VECTORS = [
    svc(1e-4, (random, three_classes, one_left, sparse_counts), "linear", tol=1e-13),
    svc(1.0, DENSE + SPARSE, "linear"),
    svc(1e4, (separable, sparse_counts), "linear"),
    svc(1e-4, (random, separable, contradicting, one_left), tol=1e-13),
    svc(1.0, DENSE + SPARSE),
    svc(1e4, (random, three_classes, duplicated, counts)),
    svc(1.0, (three_classes, duplicated, one_left, counts), "poly"),
    svc(0.1, (random, contradicting), "poly", degree=2, coef0=1.0),
    svc(1.0, (random, three_classes, duplicated), class_weight={0: 3.0, 1: 0.5}),
    svc(1e-2, (random,), class_weight={0: 0.3}, gamma="auto"),
    svc(1.0, (three_classes,), break_ties=True),
    svc(1.0, (counts,), "linear", gamma="scale"),
    Case(SVC(C=10.0, gamma=0.1, tol=1e-10), (NeighbourRatio(3),), (random,)),
    hinge(1e-4, FEW),
    hinge(1e-2, (random, three_classes, duplicated, one_left, counts)),
    hinge(1.0, (separable, duplicated, sparse_counts)),
    hinge(1e-2, (random, three_classes), intercept_scaling=3.0, class_weight={0: 1.5, 1: 2.0}),
    hinge(1e-2, (random, wide), fit_intercept=False),
]
EXACT = [*LINEAR_SVM, *SUPPORT_VECTORS, *NEIGHBOURS, *CENTROIDS, *NAIVE_BAYES, *DISCRIMINANT, *LEAST_SQUARES]

RUNS = [(case, measure, data) for case in EXACT for measure in case.measures for data in case.data]
USUAL = [run for i, run in enumerate(RUNS) if i % 3 < 2]
REST = [pytest.param(*run, marks=pytest.mark.full) for run in RUNS[2::3]]


def name(value):
    value = value.estimator if isinstance(value, Case) else value
    return getattr(value, "__name__", None) or re.sub(r" at 0x\w+|\s", "", repr(value))


def fitted(estimator, measure, cv, X, y):
    tce = TransductiveEvaluator(clone(estimator), measure=measure, cv=cv, random_state=0, verbose=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        warnings.simplefilter("ignore", UserWarning)  # scikit-learn's: few members of a class, no convergence
        return tce.fit(X, y)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "measure", "data"), USUAL + REST, ids=name)
def test_exact_shortcuts_give_what_refitting_gives(case, measure, data):
    X, y = data()
    fast = fitted(case.estimator, measure, "loo", X, y)
    slow = fitted(case.refitted or case.estimator, measure, LeaveOneOut(), X, y)
    assert (fast.leave_one_out_, fast.leave_one_out_reason_) == ("exact", "")
    ours, theirs = fast.calibration_, slow.calibration_
    # A class whose scores do not vary is measured by the others.
    scale = np.maximum(theirs.scores.std(axis=0), 1e-3 * theirs.scores.std())
    error = np.abs(ours.scores - theirs.scores).max(axis=0) / scale
    assert np.all(error <= 1e-6), error
    np.testing.assert_array_equal(ours.predicted, theirs.predicted)
    new = sp.csr_matrix(X) if sp.issparse(X) else X + np.random.default_rng(0).normal(size=X.shape) * (X != 0)
    promised = fast.judges_[0].judge(*slow.detectors_[0].answer(new))
    np.testing.assert_array_equal(promised.accepted, slow.decide(new).accepted)


def with_rows_apart():
    """Rows of zeros, and rows whose features no other row has."""
    X, y = counts(130)
    X, y = X[::3, :12], y[::3]
    return np.vstack([np.pad(X, ((0, 0), (0, 2))), np.zeros((4, 14)), np.diag(np.arange(14.0))[-2:]]), (
        np.concatenate([y, [0, 0, 1, 1, 0, 1]])
    )


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    "estimator",
    [
        *(LinearSVC(tol=1e-8), LinearSVC(loss="hinge", tol=1e-8, max_iter=1_000_000, random_state=0)),
        *(RidgeClassifier(solver="lsqr", **CONVERGED), LogisticRegression(tol=1e-8, max_iter=10_000)),
    ],
    ids=name,
)
def test_rows_that_share_nothing_with_others_get_0_without_an_intercept(estimator, form, wide):
    X, y = with_rows_apart()
    X = form(np.hstack([X, np.zeros((len(X), 100))]) if wide else X)
    svm = clone(estimator).set_params(fit_intercept=False).fit(X, y)
    answers = SHORTCUTS[type(svm)].function(svm, X, y)
    assert answers.decision_function(X)[-6:].tolist() == [0.0] * 6
    assert np.all(answers.decision_function(X)[:-6])
    for i in (len(y) - 6, len(y) - 1):
        without = clone(svm).fit(X[np.arange(len(y)) != i], np.delete(y, i))
        assert without.predict(X[[i]]) == answers.predict(X)[i]


def easy():
    """Data so clear that forests with other seeds agree on most rows."""
    return make_classification(80, 8, n_informative=4, flip_y=0.05, class_sep=1.5, random_state=9)


def logistic_case(data, measure="auto", solver="newton-cholesky", **params):
    """The detector converges as loosely as by default, which is far off for a large C; the refits tightly."""
    refitted = LogisticRegression(solver=solver, tol=1e-12, max_iter=10_000, **params)
    given = {"solver": solver, "tol": 1e-8} if params.get("C", 1.0) > 1 else {}
    return Case(LogisticRegression(**params, **given), (measure,), (data,), refitted)


LOGISTIC = [
    *(logistic_case(data) for data in (random, contradicting, sparse_counts)),
    logistic_case(three_classes, C=1e-3),
    logistic_case(wide),
    *(logistic_case(data, C=1e3) for data in (one_left, separable)),
    logistic_case(three_classes, Probability(), fit_intercept=False),
    logistic_case(one_left, class_weight={0: 2.0, 1: 0.5}),
    logistic_case(random, ProbabilityMargin(), "liblinear", intercept_scaling=3.0, C=10.0),
]
# By how much p-values of refits differ from those with another seed, on average. Fewer members judge than are
# refitted, so that the shortcut differs by more: by a factor of 1.4 if 1/e of the samples lack a row.
FORESTS = [
    (Case(RandomForestClassifier(50, random_state=0), (TreeDisagreement(),), (easy,)), 0.079),
    (
        Case(
            ExtraTreesClassifier(50, bootstrap=True, max_depth=5, random_state=0), (Probability(),), (easy,)
        ),
        0.058,
    ),
    (Case(BaggingClassifier(n_estimators=25, max_samples=0.3, random_state=0), data=(easy,)), 0.107),
]
# What scores, and p-values on average, may differ by. Ties of equal rows are broken by rounding: that costs
# p-values a place or so.
APPROXIMATE = [
    *((case, logistic.TOLERANCE, 1e-3) for case in LOGISTIC),
    (logistic_case(duplicated), logistic.TOLERANCE, 1e-2),
    *((case, 1, 1.5 * between_seeds) for case, between_seeds in FORESTS),
]
LONG = [pytest.param(*each, marks=pytest.mark.full) for each in APPROXIMATE[-2:]]  # one forest is enough


@pytest.mark.slow
@pytest.mark.parametrize(("case", "score", "mean_p"), APPROXIMATE[:-2] + LONG, ids=name)
def test_approximate_shortcuts_come_close_to_refitting(case, score, mean_p):
    X, y = case.data[0]()
    fast = fitted(case.estimator, case.measures[0], "loo", X, y)
    slow = fitted(case.refitted or case.estimator, case.measures[0], LeaveOneOut(), X, y)
    assert (fast.leave_one_out_, fast.leave_one_out_reason_) == ("approximate", "")
    ours, theirs = fast.calibration_, slow.calibration_
    assert np.abs(ours.scores - theirs.scores).max() <= score
    assert np.mean(ours.predicted == theirs.predicted) >= 0.95
    assert np.abs(ours.p_values - theirs.p_values).mean() <= mean_p


@pytest.mark.parametrize(
    "ensemble",
    [
        RandomForestClassifier(60, oob_score=True, random_state=0),
        ExtraTreesClassifier(60, bootstrap=True, oob_score=True, class_weight={"b": 1.5}, random_state=0),
        BaggingClassifier(n_estimators=60, oob_score=True, max_features=0.5, random_state=0),
        BaggingClassifier(LinearSVC(), n_estimators=60, oob_score=True, random_state=0),
    ],
    ids=name,
)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_ensembles_answer_about_rows_out_of_bag(ensemble, form):
    X, y = three_classes()
    fitted_ensemble = clone(ensemble).fit(form(X), np.array(["a", "b", "c"])[y])
    answers = SHORTCUTS[type(ensemble)].function(fitted_ensemble, form(X), np.array(["a", "b", "c"])[y])
    np.testing.assert_allclose(answers.predict_proba(X), fitted_ensemble.oob_decision_function_)
    np.testing.assert_allclose(answers.vote_shares(X).sum(axis=1), 1)


def test_priors_do_not_change_how_strange_objects_are_within_a_class():
    X, y = one_left()
    evaluators = (fitted(GaussianNB(priors=p), "auto", "loo", X, y) for p in (None, [0.4, 0.4, 0.2]))
    by_share, by_given = (tce.predict_p(X + 0.1) for tce in evaluators)
    np.testing.assert_array_equal(by_share, by_given)


def test_logistic_steps_that_do_not_converge_are_taken_anew(monkeypatch):
    X, y = random()
    model = LogisticRegression().fit(X, y)
    usual = logistic.logistic(model, X, y).decision_function(X)
    monkeypatch.setattr(logistic, "_ROUNDS", 0)
    anew = logistic.logistic(model, X, y).decision_function(X)
    np.testing.assert_allclose(anew, usual, rtol=0, atol=logistic.TOLERANCE)


def test_logistic_factors_no_matrix_beyond_its_limit(monkeypatch):
    monkeypatch.setattr(logistic, "MAX_ORDER", 4)
    X, y = few()
    with pytest.raises(NoShortcutError, match="of order 5, more than 4"):
        logistic.logistic(LogisticRegression().fit(X, y), X, y)


def few():
    X, y = separable()
    return X[:40] - X.min(), y[:40]


def few_with(column):
    def data():
        X, y = few()
        return np.column_stack([X, np.resize(column, len(X))]), y

    return data


def few_sparse():
    X, y = few()
    return sp.csr_matrix(X), y


def halves():
    X, y = few()
    return (X.mean(axis=0) < X) / 2, y


def two_columns():
    X, y = few()
    return X[:, :2], y


def mirrored():
    X, _ = few()
    return np.concatenate([X, -X, X, -X]), np.repeat([0, 1], 80)


def in_a_line():
    X, _ = few()
    return np.concatenate([X[:, 1:], X[:, 1:] + 20, X[:, 1:] + 40]), np.repeat([0, 1, 2], 40)


def millions():
    X, y = few()
    return X * 1e6, y


LONELY = (np.arange(40) == 7).astype(float)
REFUSED = [
    (NearestCentroid(metric="manhattan"), few, "metric='manhattan'"),
    (NearestCentroid(shrink_threshold=0.1), few, "shrink_threshold"),
    (NearestCentroid(priors=[0.2, 0.8]), few_sparse, "unequal priors are not supported for sparse rows"),
    (NearestCentroid(priors=[0.2, 0.8]), few_with(3.0), "does not vary within the classes"),
    (NearestCentroid(priors=[0.2, 0.8]), few_with(LONELY), "hardly varies within the classes without"),
    (GaussianNB(var_smoothing=0), few_with(LONELY), "var_smoothing is too small"),
    (BernoulliNB(alpha=0), few, "alpha=0"),
    (BernoulliNB(alpha=[1.0, 2.0]), two_columns, "array of alphas"),
    (BernoulliNB(binarize=None), halves, "binarize=None"),
    (BernoulliNB(alpha=1e-18), few_with(3.0), "alpha is so small"),
    (MultinomialNB(alpha=[1.0, 0.0]), two_columns, "alpha=0"),
    (MultinomialNB(alpha=1e-6), few_with(1e9 * LONELY + 1e-3), "far larger than all others of its feature"),
    (LinearDiscriminantAnalysis(solver="eigen"), few, "solver='eigen'"),
    (LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1), few, "shrunk"),
    (LinearDiscriminantAnalysis(priors=[0.0, 1.0]), few, "prior of 0"),
    (LinearDiscriminantAnalysis(), random, "within-class covariance is nearly singular"),
    (LinearDiscriminantAnalysis(solver="lsqr"), random, "within-class covariance is nearly singular"),
    (LinearDiscriminantAnalysis(), few_with(LONELY), "within-class covariance is nearly singular"),
    (LinearDiscriminantAnalysis(), few_with(3.0), "does not vary within the classes"),
    (LinearDiscriminantAnalysis(), mirrored, "class means are equal"),
    (LinearDiscriminantAnalysis(tol=0.1), in_a_line, "class means are nearly linearly dependent"),
    (RidgeClassifier(class_weight="balanced"), few, "class_weight"),
    (RidgeClassifier(positive=True), few, "positive=True"),
    (RidgeClassifier(0.0), few, "alpha of 0"),
    (RidgeClassifier(1e-9), few_with(LONELY), "coefficient of its own"),
    (RidgeClassifier(1e-12, solver="svd"), random, "nearly singular: raise alpha"),
    (LogisticRegression(C=np.inf), random, "no penalty"),
    (LogisticRegression(l1_ratio=1.0, solver="liblinear"), few, "other than L2"),
    (LogisticRegression(class_weight="balanced"), few, "class_weight='balanced'"),
    (SVC(), few, "gamma='scale' changes with the row left out; gamma="),
    (SVC(kernel="sigmoid", gamma=0.1), few, "kernels 'linear', 'rbf' and 'poly'"),
    (SVC(kernel=linear_kernel), few, "kernels 'linear', 'rbf' and 'poly'"),
    (SVC(kernel="poly", gamma=0.1, coef0=-1.0), few, "coef0 ≥ 0"),
    (SVC(gamma=0.1, class_weight="balanced"), few, "class_weight='balanced'"),
    (SVC(gamma=0.1, decision_function_shape="ovo"), in_a_line, "decision_function_shape='ovr'"),
    (SVC(kernel="linear", C=1e4, max_iter=100), random, "ill-conditioned at this C: scale the features"),
    (LinearSVC(loss="hinge", class_weight="balanced"), few, "class_weight='balanced'"),
    (SVC(kernel="linear"), millions, "C times the kernel of a row with itself is 3e+14, above 1e+09: scale"),
    (LinearSVC(C=1e4), counts, "stopped short of its optimum"),
    (LogisticRegression(C=1e3), separable, "stopped short of its optimum"),
    (RandomForestClassifier(5, bootstrap=False), few, "every member was fitted on every row"),
    (BaggingClassifier(n_estimators=5, random_state=0), few, "too few members: row"),
    (ExtraTreesClassifier(5, bootstrap=True, class_weight="balanced"), few, "changes with the labels"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("estimator", "data", "words"), REFUSED, ids=name)
def test_shortcuts_that_do_not_hold_are_refused_with_the_reason(estimator, data, words):
    with np.errstate(all="ignore"):
        tce = fitted(estimator, CentroidDistance(), "loo", *data())
    assert tce.leave_one_out_ == "refit"
    assert words in tce.leave_one_out_reason_


def equal_but_one():
    return np.outer(LONELY, [1.0, 2.0]), few()[1]


def small_class():
    X, y = few()
    rows = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:4]])
    return X[rows], y[rows]


def lonely_in_each_class():
    X, y = few()
    return np.column_stack([X, np.isin(np.arange(40), [np.argmin(y), np.argmax(y)])]), y


NOT_EVEN_REFITTED = [
    (NearestCentroid(), equal_but_one, {}, "all rows except one are equal"),
    (QuadraticDiscriminantAnalysis(reg_param=0.5), small_class, {}, "too few rows"),
    (QuadraticDiscriminantAnalysis(), lonely_in_each_class, {}, "class is nearly singular"),
    (QuadraticDiscriminantAnalysis(tol=0), few, {"tol": 1e3}, "class is nearly singular"),
    (QuadraticDiscriminantAnalysis(), few, {"solver": "eigen"}, "solver='eigen'"),
    (QuadraticDiscriminantAnalysis(), few, {"scalings_": [np.ones(4)] * 2}, "not that of the rows"),
    (LinearDiscriminantAnalysis(), few, {"scalings_": np.ones((4, 1))}, "not that of the rows"),
]


@pytest.mark.parametrize(("estimator", "data", "changed", "words"), NOT_EVEN_REFITTED, ids=name)
def test_shortcuts_leave_it_to_refits_to_fail(estimator, data, changed, words):
    X, y = data()
    detector = clone(estimator).fit(X, y)
    vars(detector).update(changed)
    with pytest.raises(NoShortcutError, match=words):
        SHORTCUTS[type(detector)].function(detector, X, y)


def test_ridge_factors_no_matrix_beyond_its_limit(monkeypatch):
    monkeypatch.setattr(least_squares, "MAX_ORDER", 3)
    X, y = few()
    with pytest.raises(NoShortcutError, match="more than 3 rows and columns"):
        least_squares.ridge(RidgeClassifier().fit(X, y), X, y)


def test_support_vectors_hold_no_kernel_beyond_their_limit(monkeypatch):
    monkeypatch.setattr(support_path, "MAX_BYTES", 1000)
    X, y = few()
    with pytest.raises(NoShortcutError, match="over 1000 bytes"):
        support_vectors.support_vectors(SVC(gamma=0.1).fit(X, y), X, y)


def test_support_vectors_check_their_own_refits(monkeypatch):
    monkeypatch.setattr(support_vectors, "MAX_PRODUCT", np.inf)
    X, y = separable()
    X, y = X[:80] * 1e5, y[:80]
    with pytest.raises(NoShortcutError, match="ill-conditioned"):
        support_vectors.support_vectors(SVC(kernel="linear").fit(X, y), X, y)


def lose_the_path(path, row, change):
    raise support_path.LostError


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "attribute", "value"),
    [
        pytest.param(support_path.Path, "leave", lose_the_path, marks=pytest.mark.slow),
        (support_path, "_MAX_SWAPPED", 2),
        (shared, "_LARGE", 1_250),
        (support_path, "MAX_BYTES", 150_000),
    ],
    ids=["paths lost", "tableau rebuilt", "few rows at once", "few columns kept"],
)
@pytest.mark.parametrize("data", [random, three_classes, duplicated])
def test_support_vectors_give_the_same_by_other_ways(data, owner, attribute, value, monkeypatch):
    X, y = data()
    svm = SVC(C=3.0, gamma=0.1).fit(X, y)
    expected = support_vectors.support_vectors(svm, X, y).decision_function(X)
    monkeypatch.setattr(owner, attribute, value)
    answer = support_vectors.support_vectors(svm, X, y).decision_function(X)
    np.testing.assert_allclose(answer, expected, rtol=0, atol=1e-8)


def test_support_vectors_refit_a_few_rows_if_their_paths_are_lost(monkeypatch):
    X, y = few_sparse()
    svm = SVC(C=3.0, gamma=0.1, class_weight={1: 2.0}).fit(X, y)
    expected = support_vectors.support_vectors(svm, X, y).decision_function(X)
    solve = support_vectors._solve
    monkeypatch.setattr(support_path.Path, "leave", lose_the_path)
    monkeypatch.setattr(
        support_vectors, "_solve", lambda *given, independent=True: solve(*given) if independent else None
    )
    answer = support_vectors.support_vectors(svm, X, y).decision_function(X)
    np.testing.assert_allclose(answer, expected, rtol=0, atol=1e-8)
    monkeypatch.setattr(support_vectors, "_MAX_REFITS", 3)
    with pytest.raises(NoShortcutError, match="ill-conditioned"):
        support_vectors.support_vectors(svm, X, y)


@pytest.mark.skipif(parse_version(sklearn.__version__) < parse_version("1.9"), reason="an older one")
def test_discriminants_of_older_scikit_learn_divide_by_less():
    X, y = three_classes()
    linear, quadratic = LinearDiscriminantAnalysis(), QuadraticDiscriminantAnalysis()

    def older(y, i=None):
        rows = np.arange(len(y)) != i
        lda, qda = clone(linear).fit(X[rows], y[rows]), clone(quadratic).fit(X[rows], y[rows])
        lda.scalings_ *= np.sqrt(1 - 3 / rows.sum())
        qda.scalings_ = [s * n / (n - 1) for s, n in zip(qda.scalings_, np.bincount(y[rows]), strict=True)]
        return lda, qda

    answers = [SHORTCUTS[type(model)].function(model, X, y) for model in older(y)]
    for i in range(0, len(y), 10):
        lda, qda = older(y, i)
        shares = np.log(lda.priors_)
        expected = (lda.decision_function(X[[i]]) - shares) * (1 - 3 / (len(y) - 1)) + shares
        np.testing.assert_allclose(answers[0].decision_function(X)[i], expected[0], rtol=1e-9)
        np.testing.assert_allclose(
            answers[1].class_log_densities(X)[i], -Density().scores(qda, X[[i]])[0], rtol=1e-9
        )


TAKES_ONLY_DENSE = [GaussianNB(), LinearDiscriminantAnalysis(), QuadraticDiscriminantAnalysis()]
TAKES_SPARSE = [
    *(NearestCentroid(), BernoulliNB(binarize=1.0), MultinomialNB(), RidgeClassifier()),
    *(SVC(gamma=0.1), LinearSVC(C=0.1, loss="hinge", random_state=0)),
]
FORMS = [
    *product(TAKES_ONLY_DENSE + TAKES_SPARSE, (np.ndarray.tolist, pd.DataFrame, np.float32)),
    *product(TAKES_SPARSE, (sp.csc_array,)),
]


@pytest.mark.parametrize(("estimator", "form"), FORMS, ids=name)
def test_rows_come_in_many_forms_and_labels_in_words(estimator, form):
    X, y = random()
    X = np.abs(X)
    plain = fitted(estimator, "auto", "loo", X, y).calibration_
    tce = fitted(estimator, "auto", "loo", form(X), np.array(["ham", "spam"])[y])
    assert tce.leave_one_out_ == "exact"
    close = 1e-3 if form is np.float32 else 1e-9
    error = np.abs(tce.calibration_.scores - plain.scores).max(axis=0)
    assert np.all(error <= close * plain.scores.std(axis=0)), error / plain.scores.std(axis=0)
    np.testing.assert_array_equal(tce.calibration_.predicted, plain.predicted)


def test_every_registered_detector_is_tried():
    cases = [case.estimator for case, *_ in USUAL + APPROXIMATE]
    assert {type(see_through(estimator)[1]) for estimator in cases} == set(SHORTCUTS)
