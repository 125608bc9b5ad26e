"""What leave-one-out without refitting costs, what it is worth, and how exact it is.

python benchmarks/transduction.py                   # everything, about half an hour
python benchmarks/transduction.py headline sparse   # some of: headline sparse growth evaluators exactness

The environment variable TRANSCENDENT_DATA names the folder with apigraph_X.npz and apigraph_meta.parquet.
"""

import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pyarrow.parquet as pq
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import LeaveOneOut
from sklearn.naive_bayes import BernoulliNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.svm import SVC, LinearSVC

from transcendent import CrossConformalEvaluator, InductiveEvaluator, TransductiveEvaluator

SEEDS = range(5)
PLOT = Path(__file__).parents[1] / "docs/images/leave_one_out_growth.svg"

Rows = tuple[Any, Any]


def apigraph() -> tuple[Any, Any, Any]:
    """Rows, labels (1 is malware) and months, in the order of time."""
    folder = Path(os.environ["TRANSCENDENT_DATA"])
    meta = pq.read_table(folder / "apigraph_meta.parquet")
    month = np.asarray(meta["month"].to_pylist())
    order = np.argsort(month, kind="stable")
    X = sp.load_npz(folder / "apigraph_X.npz").tocsr()[order].astype(np.float64)
    return X, np.asarray(meta["y"])[order].astype(int), month[order]


def training_year() -> Rows:
    X, y, month = apigraph()
    first = month == month[0]
    return X[first], y[first]


def apps(n: int, width: int = 100_000, *, share: float = 0.9, seed: int = 0) -> Rows:
    """Generated apps of eight libraries, half of them typical of a family; libraries bring many features."""
    rng = np.random.default_rng(seed)
    per_library, parts, families = 20, 8, 100
    popularity = 1 / np.arange(1, width // per_library + 1)
    common = rng.choice(len(popularity), size=(n, parts), p=popularity / popularity.sum())
    typical = rng.choice(len(popularity), size=(families, parts))
    malicious = rng.random(families) < 0.3
    family = rng.integers(families, size=n)
    libraries = np.where(rng.random((n, parts)) < 0.5, typical[family], common)
    columns = (libraries[:, :, None] * per_library + np.arange(per_library)).reshape(n, -1)
    kept = rng.random(columns.shape) < share
    rows = np.repeat(np.arange(n), kept.sum(axis=1))
    X = sp.csr_matrix((np.ones(len(rows)), (rows, columns[kept])), shape=(n, width))
    X.data[:] = 1.0
    return X, (malicious[family] ^ (rng.random(n) < 0.01)).astype(int)


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def refit_seconds(estimator: Any, X: Any, y: Any, times: int) -> float:
    """One refit without a row, and the row's score: the mean of some, drawn at random."""
    rows = np.arange(len(y))

    def refit(i: int) -> Any:
        rest = rows != i
        return clone(estimator).fit(X[rest], y[rest]).decision_function(X[[i]])

    drawn = np.random.default_rng(0).choice(len(y), times, replace=False)
    return seconds(lambda: [refit(i) for i in drawn]) / times


def leave_one_out_cost(name: str, estimator: Any, X: Any, y: Any, rounds: int, refits: int) -> None:
    """A whole TCE fit against one bare fit, in turn, and against as many refits as there are rows."""
    tce = TransductiveEvaluator(estimator, cv="loo", verbose=False)
    pairs = [
        (seconds(lambda: tce.fit(X, y)), seconds(lambda: clone(estimator).fit(X, y))) for _ in range(rounds)
    ]
    total, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    refitting = len(y) * refit_seconds(estimator, X, y, refits)
    inside = np.sum(np.where(y == 1, 1, -1) * tce.estimator_.decision_function(X) < 1)
    print(
        f"| {name}, {estimator} | {X.shape[0]:,} × {X.shape[1]:,} | {inside:,} | {tce.leave_one_out_} | "
        f"{bare:.2f} s | {total:.1f} s = {total / bare:.1f} fits | {refitting:,.0f} s (from {refits}) | "
        f"{refitting / total:,.0f} × |",
        flush=True,
    )


def headline() -> None:
    print("| set | size | inside the margin | kind | bare fit | whole TCE | refitting | cheaper |")
    print("|---|---|---|---|---|---|---|---|")
    leave_one_out_cost("apigraph 2012", LinearSVC(C=0.1), *training_year(), rounds=7, refits=100)


def sparse() -> None:
    for seed in range(3):
        leave_one_out_cost(
            f"generated apps {seed}", LinearSVC(), *apps(20_000, seed=seed), rounds=1, refits=20
        )
    hard = apps(20_000, share=0.5)
    leave_one_out_cost("generated, half the features missing", LinearSVC(), *hard, rounds=1, refits=20)


def growth() -> None:
    X, y, _ = apigraph()
    sizes = (5_000, 10_000, 20_000, 40_000)
    svm = LinearSVC(C=0.1)
    evaluators: dict[str, Any] = {
        "TCE, this shortcut": TransductiveEvaluator(svm, cv="loo", verbose=False),
        "approx-TCE, k = 10": TransductiveEvaluator(svm, cv=10, random_state=0, verbose=False),
        "CCE, k = 10": CrossConformalEvaluator(svm, cv=10, random_state=0, verbose=False),
        "ICE": InductiveEvaluator(svm, random_state=0, verbose=False),
    }
    cost: dict[str, list[float]] = {name: [] for name in ("TCE, refitting (estimated)", *evaluators)}
    for n in sizes:
        cost["TCE, refitting (estimated)"].append(n * refit_seconds(svm, X[:n], y[:n], 20))
        for name, evaluator in evaluators.items():
            fit = partial(evaluator.fit, X[:n], y[:n])
            cost[name].append(statistics.median(seconds(fit) for _ in range(3)))
    print("| seconds to fit | " + " | ".join(f"n = {n:,}" for n in sizes) + " |")
    print("|---|" + "---|" * len(sizes))
    for name, row in cost.items():
        print(f"| {name} | " + " | ".join(f"{t:,.2f}" for t in row) + " |")
    draw_growth(sizes, cost)


def draw_growth(sizes: Any, cost: dict[str, list[float]]) -> None:
    mpl.rcParams["svg.hashsalt"] = "transcendent"
    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    styles = zip(("#555555", "#D55E00", "#0072B2", "#009E73", "#CC79A7"), "so^Dv", strict=True)
    heights = label_heights([row[-1] for row in cost.values()])
    for (name, row), (colour, marker), height in zip(cost.items(), styles, heights, strict=True):
        dashes = (4, 2) if "estimated" in name else (None, None)
        axes.plot(sizes, row, color=colour, marker=marker, markersize=5, dashes=dashes)
        axes.text(sizes[-1] * 1.1, height, name, color=colour, fontsize=9, va="center")
    axes.set(xscale="log", yscale="log", xlabel="training rows", ylabel="seconds to fit, one core")
    axes.set_xlim(sizes[0] * 0.9, sizes[-1] * 2.6)
    axes.set_xticks(sizes, [f"{n:,}" for n in sizes])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    PLOT.parent.mkdir(exist_ok=True)
    figure.savefig(PLOT, metadata={"Date": None})


def label_heights(ends: list[float]) -> list[float]:
    """Where on a logarithmic axis labels go so that none covers another."""
    heights, floor = list(ends), 0.0
    for k in np.argsort(ends):
        heights[k] = max(ends[k], floor)
        floor = 1.7 * heights[k]
    return heights


def evaluators() -> None:
    """Fitted on 2012, judged on 2013 to 2018; exact thresholds for F1, 15% rejected in calibration."""
    X, y, month = apigraph()
    train, test = month == month[0], month != month[0]
    svm = LinearSVC(C=0.1, random_state=0)
    runs: dict[str, Callable[[int], Any]] = {
        "TCE": lambda seed: TransductiveEvaluator(svm, cv="loo", random_state=seed, verbose=False),
        "approx-TCE, k = 10": lambda seed: TransductiveEvaluator(svm, random_state=seed, verbose=False),
        "ICE": lambda seed: InductiveEvaluator(svm, random_state=seed, verbose=False),
        "CCE, k = 10": lambda seed: CrossConformalEvaluator(svm, random_state=seed, verbose=False),
    }
    print(f"{train.sum():,} training rows, {test.sum():,} test objects in {len(set(month[test]))} months")
    print(
        "| evaluator | F1 all | F1 kept | F1 rejected | error all | error kept | rejected | errors caught |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, evaluator in runs.items():
        seeds = SEEDS if name != "TCE" else range(1)
        results = [judged(evaluator(s).fit(X[train], y[train]), X[test], y[test], month[test]) for s in seeds]
        columns = zip(*results, strict=True)
        print(f"| {name} | " + " | ".join(spread(column) for column in columns) + " |", flush=True)


def judged(evaluator: Any, X: Any, y: Any, month: Any) -> tuple[float, ...]:
    decisions = evaluator.decide(X)
    wrong, kept = decisions.labels != y, decisions.accepted
    caught = sum(
        wrong[rows][np.argsort(decisions.credibility[rows], kind="stable")[: round(0.15 * len(rows))]].sum()
        for rows in (np.flatnonzero(month == m) for m in np.unique(month))
    )
    return (
        f1(y, decisions.labels),
        f1(y[kept], decisions.labels[kept]),
        f1(y[~kept], decisions.labels[~kept]),
        wrong.mean(),
        wrong[kept].mean(),
        decisions.rejection_rate,
        caught / wrong.sum(),
    )


def f1(y: Any, labels: Any) -> float:
    return float(2 * np.sum((y == 1) & (labels == 1)) / (np.sum(y == 1) + np.sum(labels == 1)))


def spread(values: tuple[float, ...]) -> str:
    mean = f"{statistics.mean(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.3f}–{max(values):.3f})"


def exactness() -> None:
    """Shortcut against brute force on rows of apigraph 2012, drawn at random."""
    X, y = training_year()
    drawn = np.random.default_rng(0).choice(len(y), 300, replace=False)
    X, y = X[drawn], y[drawn]
    often = np.flatnonzero(np.asarray(X.sum(axis=0)).ravel() > 40)[:20]
    dense = X[:, often].toarray() + 0.1 * np.random.default_rng(0).normal(size=(len(y), len(often)))
    tight = {"tol": 1e-10, "max_iter": 100_000}
    forest = {"n_estimators": 100, "n_jobs": 1, "bootstrap": True}
    cases: list[tuple[Any, Any, Any]] = [
        (LinearSVC(C=0.1, dual=False, **tight), X, None),
        (LinearSVC(C=0.1, loss="hinge", **tight), X, None),
        (SVC(C=10, gamma=0.01, tol=1e-9), X, None),
        (KNeighborsClassifier(5), dense, None),
        (NearestCentroid(), dense, None),
        (LinearDiscriminantAnalysis(), dense, None),
        (QuadraticDiscriminantAnalysis(), dense, None),
        (GaussianNB(), dense, None),
        (BernoulliNB(), X, None),
        (MultinomialNB(), X, None),
        (RidgeClassifier(solver="sparse_cg", tol=1e-12), X, None),
        (LogisticRegression(C=1.0, **tight), X, None),
        (
            RandomForestClassifier(random_state=0, **forest),
            X,
            RandomForestClassifier(random_state=1, **forest),
        ),
        (ExtraTreesClassifier(random_state=0, **forest), X, ExtraTreesClassifier(random_state=1, **forest)),
    ]
    print(
        "| detector | declared | error of scores, in standard deviations | mean ǀΔpǀ | max ǀΔpǀ | "
        "refits with another seed: mean, max ǀΔpǀ |"
    )
    print("|---|---|---|---|---|---|")
    for estimator, rows, other in cases:
        fast, slow = left_out(estimator, "loo", rows, y), left_out(estimator, LeaveOneOut(), rows, y)
        a, b = fast.calibration_, slow.calibration_
        error = np.max(np.abs(a.scores - b.scores) / b.scores.std(axis=0))
        mean, largest = differences(a, b)
        again = (
            ""
            if other is None
            else "{:.3f}, {:.3f}".format(
                *differences(left_out(other, LeaveOneOut(), rows, y).calibration_, b)
            )
        )
        print(
            f"| {type(estimator).__name__} | {fast.leave_one_out_} | {error:.1e} | {mean:.1e} "
            f"| {largest:.1e} | {again} |",
            flush=True,
        )


def left_out(estimator: Any, cv: Any, X: Any, y: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return TransductiveEvaluator(clone(estimator), cv=cv, n_jobs=2, verbose=False).fit(X, y)


def differences(a: Any, b: Any) -> tuple[float, float]:
    """Mean and largest difference of the p-values of predicted labels."""
    gap = np.abs(a.p_values - b.p_values)[np.arange(len(b.predicted)), b.predicted]
    return float(np.nanmean(gap)), float(np.nanmax(gap))


PARTS: dict[str, Callable[[], None]] = {
    "headline": headline,
    "sparse": sparse,
    "growth": growth,
    "evaluators": evaluators,
    "exactness": exactness,
}


if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
