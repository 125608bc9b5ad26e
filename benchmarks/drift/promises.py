"""Do labels that were chosen harm the promise of thresholds, where nothing drifts?"""

import warnings
from functools import partial
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier
from sklearn.base import clone
from sklearn.metrics import f1_score
from sklearn.svm import LinearSVC
from tables import run_all

from transcendent import CombinedMeasure, InductiveEvaluator
from transcendent.datasets import Dataset, load_apigraph
from transcendent.measures import Probability, SecondOpinion
from transcendent.temporal import Candidates, Retraining

SEEDS = range(20)
FIT, BATCH, BATCHES = 12_000, 2_000, 9
OPINION = SecondOpinion(LGBMClassifier(n_estimators=50, verbose=-1, n_jobs=1), Probability())
SVM = LinearSVC(C=0.1)
WAYS: dict[str, tuple[Any, Retraining | None]] = {
    "nothing": ("auto", None),
    "the judge": (CombinedMeasure([OPINION], bag="all"), Retraining(100, "drawn", what="judge")),
    "detector and judge": (CombinedMeasure([OPINION], bag="all"), Retraining(100, "drawn")),
    "the detector, margin": ("auto", Retraining(100, "drawn")),
    "the detector, and chosen labels calibrate, too": ("auto", Retraining(100, "drawn")),
}


def run(apps: Dataset, way: str, seed: int) -> dict[str, float]:
    """F1 of the kept and share of the rejected: mean of what was promised for each batch, and delivered."""
    order = np.random.default_rng(seed).permutation(len(apps.y))[: FIT + BATCH * BATCHES]
    past, measure, retrain = order[:FIT], *WAYS[way]
    fresh = InductiveEvaluator(SVM, measure=measure, random_state=seed, verbose=False)
    labelled: list[int] = []
    promised, kept, answers = [], [], []
    n = BATCH * BATCHES
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ice = clone(fresh).fit(apps.X[past], apps.y[past])
        for batch in np.split(order[FIT:], BATCHES):
            decisions = ice.decide(apps.X[batch])
            promised.append((ice.result_.value, ice.result_.rejection_rate))
            kept.append(batch[decisions.accepted])
            answers.append(decisions.labels[decisions.accepted])
            if retrain is None:
                continue
            generator = np.random.default_rng((seed, len(kept)))
            given = (batch, apps.X[batch], apps.times[batch], decisions, ice, generator)
            labelled += batch[retrain.select(Candidates(*given)).rows].tolist()
            rows = np.concatenate([past, labelled])
            if way.endswith("too"):
                ice = clone(fresh).fit(apps.X[rows], apps.y[rows])
            else:
                ice.learn(apps.X[rows], apps.y[rows], what=retrain.what)
    f1, rejected = np.mean(promised, axis=0)
    rows = np.concatenate(kept)
    delivered = f1_score(apps.y[rows], np.concatenate(answers))
    return {"f1": f1, "delivered f1": delivered, "rejected": rejected, "delivered": 1 - len(rows) / n}


def results() -> dict[tuple[str], list[dict[str, float]]]:
    """For each way to learn, what was promised and delivered with every seed."""
    apps = load_apigraph()
    apps = apps[apps.times < np.datetime64("2013-01")]
    return run_all(partial(run, apps), [(way,) for way in WAYS], SEEDS)
