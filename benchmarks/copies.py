"""Do copies of calibration rows among the rows of `learn` harm what thresholds promise?

OMP_NUM_THREADS=1 python benchmarks/copies.py        # less than a minute

Nothing drifts. An evaluator is fitted on two of three classes and learns twice: first rows of all classes,
the third among them, then more of them, each time beside copies of rows that calibrate and all in random
order. Copies that differ in the last digits are not recognised: they show what copies do that train.
"""

import warnings
from typing import Any

import numpy as np
from intervals import interval
from sklearn.datasets import make_classification
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.svm import LinearSVC

from transcendent import ExactSearch, InductiveEvaluator
from transcendent.measures import Probability, SecondOpinion

SEEDS = range(24)
N_FIT, N_FIRST, N_SECOND, N_TEST = 3000, 1000, 600, 6_000
COPIES = 0.45  # of the new rows
X, Y = make_classification(
    N_FIT + N_FIRST + N_SECOND + N_TEST,
    n_informative=6,
    n_classes=3,
    n_clusters_per_class=1,
    flip_y=0.1,
    random_state=3,
)
OPINION = SecondOpinion(ExtraTreesClassifier(12, random_state=0), Probability())
WAYS: dict[str, tuple[Any, float, float]] = {
    "nothing": (None, 0.0, 0.0),
    "judge, 45% copies": ("judge", COPIES, 0.0),
    "both, no copies": ("both", 0.0, 0.0),
    "both, 45% copies": ("both", COPIES, 0.0),
    "both, 45% copies that differ by 1e-9": ("both", COPIES, 1e-9),
}


def run(way: str, seed: int) -> dict[str, float]:
    """Error of the kept and share of the rejected, promised and delivered."""
    what, share, differ = WAYS[way]
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(Y))
    fit = order[Y[order] != 2][:N_FIT]
    others = np.setdiff1d(order, fit, assume_unique=True)
    first, second, test, _ = np.split(others, np.cumsum([N_FIRST, N_SECOND, N_TEST]))
    search = ExactSearch("accuracy", max_rejection=0.15)
    ice = InductiveEvaluator(
        LinearSVC(C=0.1, random_state=0), measure=OPINION, search=search, random_state=seed, verbose=False
    ).fit(X[fit], Y[fit])
    if what is not None:
        n_copies = round((N_FIRST + N_SECOND) * share / (1 - share))
        copies = rng.choice(fit[ice.calibration_rows_[0]], n_copies)
        stages: list[tuple[Any, Any]] = [(first, "both"), (np.concatenate([first, second]), what)]
        for labelled, learns in stages:
            rows = rng.permutation(np.concatenate([fit, labelled, copies]))
            given, copied = X[rows], np.flatnonzero(_again(rows))
            given[copied, 0] += differ * rng.random(len(copied))
            ice.learn(given, Y[rows], what=learns)
    return _promised_and_delivered(ice, test[np.isin(Y[test], ice.classes_)]) | {"left out": ice.n_left_out_}


def _again(rows: Any) -> Any:
    """Whether each row has come before."""
    again = np.ones(len(rows), dtype=bool)
    again[np.unique(rows, return_index=True)[1]] = False
    return again


def _promised_and_delivered(ice: InductiveEvaluator, test: Any) -> dict[str, float]:
    """The test objects weigh as their classes do in calibration, which is what a promise is about."""
    decisions, result = ice.decide(X[test]), ice.result_
    counts = np.array([np.sum(Y[test] == label) for label in ice.classes_])
    weights = (ice.calibration_.counts / counts)[Y[test]]
    kept = weights * decisions.accepted
    return {
        "promised": 1 - result.value,
        "delivered": float(kept[decisions.labels != Y[test]].sum() / kept.sum()),
        "rejected, promised": result.rejection_rate,
        "rejected": float(1 - kept.sum() / weights.sum()),
    }


def main() -> None:
    warnings.simplefilter("ignore")
    found = {way: [run(way, seed) for seed in SEEDS] for way in WAYS}
    print(f"{N_FIT:,} rows fit, {N_FIRST + N_SECOND:,} are learnt, {N_TEST:,} test; {len(SEEDS)} seeds\n")
    head = ["what learns", "error, promised", "delivered", "rejected, promised", "delivered", "rows left out"]
    print(f"| {' | '.join(head)} | delivered − promised, against nothing |\n|{'---|' * 7}")
    excess = {way: np.array([r["delivered"] - r["promised"] for r in runs]) for way, runs in found.items()}
    for way, runs in found.items():
        keys = ("promised", "delivered", "rejected, promised", "rejected")
        cells = [f"{np.mean([r[key] for r in runs]):.4f}".removeprefix("0") for key in keys]
        left_out = f"{np.mean([r['left out'] for r in runs]):,.0f}"
        against = "–" if way == "nothing" else interval(excess[way] - excess["nothing"], 4, sign="+")
        print(f"| {way} | {' | '.join(cells)} | {left_out} | {against} |", flush=True)


if __name__ == "__main__":
    main()
