"""What is rejected gets labelled and retrains the detector: which objects are worth an analyst's time?"""

import json
import sys
import time
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from lightgbm import LGBMClassifier
from sklearn.svm import LinearSVC

from transcendent import InductiveEvaluator
from transcendent.datasets import Dataset, load_apigraph
from transcendent.measures import CombinedMeasure, Margin, Probability, SecondOpinion
from transcendent.temporal import Retraining, backtest
from transcendent.temporal.labelling import Choice

SVM = LinearSVC(C=0.1)
BOOSTING = LGBMClassifier(n_estimators=50, verbose=-1, n_jobs=1)
DETECTORS = {
    "LinearSVC": (SVM, CombinedMeasure(["auto", SecondOpinion(BOOSTING, Probability())], bag="all")),
    "LightGBM": (BOOSTING, CombinedMeasure(["auto", SecondOpinion(SVM, Margin())], bag="all")),
}
CHOICES: dict[str, tuple[str, Choice, float]] = {
    "random": ("auto", "random", 0.0),
    "margin": ("auto", "margin", 0.0),
    "credibility": ("auto", "rejected", 0.0),
    "combined": ("combined", "rejected", 0.0),
    "combined, apart": ("combined", "rejected", 0.05),
}
BUDGETS = (50, 100, 200, 400)
PLANS: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    "LinearSVC": (BUDGETS, tuple(CHOICES)),
    "LightGBM": ((100,), ("random", "margin", "combined")),  # it is refitted more slowly
}
SEEDS = range(3)


def protocol() -> Dataset:
    """Fitted on 2012, tested on 2013-07 to 2018-12."""
    apps = load_apigraph()
    return apps[(apps.times < np.datetime64("2013-01")) | (apps.times >= np.datetime64("2013-07"))]


def run(apps: Dataset, cache: Path, detector: str, choice: str, budget: int, seed: int) -> dict[str, Any]:
    """Mean monthly F1, FNR and FPR of all answers, and of those kept at two rejection rates."""
    path = cache / f"loop-{detector}-{choice}-{budget}-{seed}.json"
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    started = time.perf_counter()
    model, combined = DETECTORS[detector]
    measure, choose, apart = CHOICES[choice]
    rejector = InductiveEvaluator(
        model, measure=combined if measure == "combined" else "auto", calibration_size=0.2, verbose=False
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = backtest(
            {choice: rejector},
            apps.X,
            apps.y,
            apps.times,
            train="2013",
            retrain=Retraining(budget, choose, apart=apart),
            random_state=seed,
            verbose=False,
        )
    found = {
        metric: float(np.nanmean(result.series(choice, metric, "baseline")))
        for metric in ("f1", "fnr", "fpr")
    }
    for rate in (0.05, 0.15):
        found[f"kept at {rate:.0%}"] = result.at_rejection(choice, rate)["kept"]["f1"]
    found["all"] = result.at_rejection(choice, 0.0)["kept"]["f1"]
    path.write_text(json.dumps(found))
    sys.stderr.write(f"{path.stem}: {time.perf_counter() - started:.0f} s, F1 {found['f1']:.3f}\n")
    return found


def results(cache: Path, detector: str, n_jobs: int = 2) -> dict[tuple[int, str], list[Any]]:
    """For each budget and choice, what every seed gave."""
    apps = protocol()
    tasks = list(product(*PLANS[detector], SEEDS))
    found = Parallel(n_jobs=n_jobs)(
        delayed(run)(apps, cache, detector, choice, budget, seed) for budget, choice, seed in tasks
    )
    grouped: dict[tuple[int, str], list[Any]] = {}
    for (budget, choice, _), result in zip(tasks, found, strict=True):
        grouped.setdefault((budget, choice), []).append(result)
    return grouped
