"""The detector stays as it is; its judge learns from what analysts say of the objects it rejects."""

import json
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from kept import keep, maker
from lightgbm import LGBMClassifier
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.svm import LinearSVC
from tables import AT_15, run_all

from transcendent import CombinedMeasure, InductiveEvaluator, RejectionBudget
from transcendent.datasets import Dataset, load_apigraph
from transcendent.measures import Probability, SecondOpinion
from transcendent.temporal import Backtest, Retraining, backtest
from transcendent.temporal.labelling import Choice

SEEDS = range(5)
BOOSTING = LGBMClassifier(
    n_estimators=200, num_leaves=63, colsample_bytree=0.2, min_child_samples=5, verbose=-1, n_jobs=1
)
TREES = ExtraTreesClassifier(100, n_jobs=1)
OPINIONS = {
    "LightGBM": [BOOSTING],
    "LightGBM, monthly": [BOOSTING],
    "LightGBM, no audit": [BOOSTING],
    "LightGBM, half audit": [BOOSTING],
    "LightGBM, drawn": [BOOSTING],
    "LightGBM, drawn, monthly": [BOOSTING],
    "LightGBM, drawn, half audit": [BOOSTING],
    "LightGBM, random, monthly": [BOOSTING],
    "LightGBM of default size": [LGBMClassifier(verbose=-1, n_jobs=1)],
    "extra trees": [TREES],
    "LightGBM and extra trees": [BOOSTING, TREES],
    "LightGBM and extra trees, drawn": [BOOSTING, TREES],
    "two LightGBM and extra trees": [LGBMClassifier(verbose=-1, n_jobs=1), BOOSTING, TREES],
}
CHOSEN = "LightGBM, drawn, monthly"
AT_RANDOM = "LightGBM, random, monthly"
HELD_OUT = [f"held out {share} {draw}" for share in (0.5, 0.75) for draw in (0, 1)]


def data(kind: str) -> Dataset:
    """All apps; or those up to 2013, without half or three quarters of 60 clusters of 2012."""
    apps = load_apigraph(deduplicate=kind == "deduplicated")
    if not kind.startswith("held out"):
        return apps
    _, _, share, draw = kind.split()
    apps = apps[apps.times < np.datetime64("2014-01")]
    past = np.flatnonzero(apps.times < np.datetime64("2013-01"))
    points = TruncatedSVD(50, random_state=int(draw)).fit_transform(apps.X[past])
    clusters = MiniBatchKMeans(60, random_state=int(draw), n_init=3).fit_predict(points)
    dropped = np.flatnonzero(np.random.RandomState(int(draw)).rand(60) < float(share))
    return apps[np.setdiff1d(np.arange(len(apps.y)), past[np.isin(clusters, dropped)])]


def run(cache: Path, kind: str, judge: str, labels: int, seed: int) -> dict[str, float]:
    """A summary of the months from 2013 on; 15% of every month are rejected."""
    path = cache / f"judge-{kind}-{judge}-{labels}-{seed}.json"
    keep(path, lambda: _compute(path, kind, judge, labels, seed), maker(__file__))
    found: dict[str, float] = json.loads(path.read_text())
    return found


def _compute(path: Path, kind: str, judge: str, labels: int, seed: int) -> None:
    apps = data(kind)
    audit = 0.0 if judge.endswith("no audit") else 0.5 if judge.endswith("half audit") else 0.2
    every = 1 if "monthly" in judge else 3
    choose: Choice = next((way for way in ("drawn", "random") if way in judge), "rejected")
    retrain = Retraining(labels, choose, every=every, audit=audit, what="judge") if labels else None
    started = time.process_time()
    result = over_time(apps, judge, OPINIONS[judge], retrain, seed)
    summary = result.summary()
    found = {key: float(summary[key][0]) for key in (*AT_15.values(), "error_baseline", "f1_baseline")}
    found["seconds"] = (time.process_time() - started) / len(result.periods)
    path.write_text(json.dumps(found))
    sys.stderr.write(f"{path.stem}: {found['caught_at_15']:.3f} caught, F1 {found['f1_kept_at_15']:.3f}\n")


def over_time(apps: Dataset, name: str, models: list[Any], retrain: Retraining | None, seed: int) -> Backtest:
    """An SVM fitted before 2013, judged by opinions of models; 15% of every later month are rejected."""
    opinions = [SecondOpinion(model, Probability()) for model in models]
    ice = InductiveEvaluator(LinearSVC(C=0.1), measure=CombinedMeasure(opinions, bag="all"), verbose=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return backtest(
            {name: RejectionBudget(ice, rate=0.15)},
            apps.X,
            apps.y,
            apps.times,
            train="2013",
            retrain=retrain,
            random_state=seed,
            verbose=False,
        )


def results(
    cache: Path, tasks: list[tuple[str, str, int]], seeds: Any = SEEDS
) -> dict[tuple[str, str, int], list[Any]]:
    """For each kind of data, judge and number of labels, what every seed gave."""
    return run_all(partial(run, cache), tasks, seeds)
