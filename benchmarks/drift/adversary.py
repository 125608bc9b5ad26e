"""An adversary who knows the models, and adds features to malware until it passes. Used by gain.py."""

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from judge import BOOSTING
from kept import CACHE, keep, maker
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from transcendent import InductiveEvaluator
from transcendent.datasets import load_apigraph
from transcendent.measures import Probability, SecondOpinion

BOUNDS = (0, 1, 2, 5, 10, 20, 50)
AIMS = ("the detector", "the detector, then the judge", "chance")
APPS = 300
OFFERED = 150


def evasion(seed: int) -> dict[str, dict[str, list[float]]]:
    """By aim and number of features added: the malware that is called goodware, and what is accepted, too."""
    path = CACHE / f"evasion-{seed}.json"
    keep(path, lambda: _compute(path, seed), maker(__file__))
    found: dict[str, dict[str, list[float]]] = json.loads(path.read_text())
    return found


def _compute(path: Path, seed: int) -> None:
    started, apps = time.process_time(), load_apigraph()
    past, now = apps[apps.times < np.datetime64("2013-01")], apps[apps.times == np.datetime64("2013-01")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opinion = SecondOpinion(BOOSTING, Probability())
        ice = InductiveEvaluator(LinearSVC(C=0.1), measure=opinion, random_state=seed, verbose=False)
        ice.fit(past.X, past.y)
    decisions = ice.decide(now.X).within_budget(0.15)
    limit = decisions.credibility[decisions.accepted].min()
    known = np.flatnonzero((now.y == 1) & (decisions.labels == 1))
    some = np.random.default_rng(seed).permutation(known)[:APPS]
    rows = sp.csr_array(now.X[some]).toarray().astype(np.float64)
    found = {aim: _attack(ice, rows, aim, limit, past, seed) for aim in AIMS}
    path.write_text(json.dumps(found))
    sys.stderr.write(f"{path.stem}: {time.process_time() - started:.0f} s\n")


def _attack(ice: Any, rows: Any, aim: str, limit: float, past: Any, seed: int) -> dict[str, list[float]]:
    """Add features one by one, each the best of those that speak most for goodware."""
    weights, generator = ice.estimator_.coef_.ravel(), np.random.default_rng(seed)
    stand_in = LogisticRegression(C=0.3, solver="liblinear").fit(past.X, past.y).coef_.ravel()
    offered = np.unique(np.concatenate([np.argsort(each)[:OFFERED] for each in (weights, stand_in)]))
    rows = rows.copy()
    found: dict[str, list[float]] = {"called goodware": [], "and accepted": []}
    for added in range(max(BOUNDS) + 1):
        if added in BOUNDS:
            goodware = ice.predict(rows) == 0
            passes = goodware & (ice.decide(rows).credibility >= limit)
            found["called goodware"].append(float(goodware.mean()))
            found["and accepted"].append(float(passes.mean()))
        for i in range(len(rows)):
            missing = offered[rows[i, offered] == 0] if aim != "chance" else np.flatnonzero(rows[i] == 0)
            if len(missing) == 0:
                continue
            rows[i, _next(ice, rows[i], missing, aim, generator)] = 1.0
    return found


def _next(ice: Any, row: Any, missing: Any, aim: str, generator: Any) -> int:
    """Which feature to add: at random; the detector's best; or once it is fooled, the judge's best."""
    if aim == "chance":
        return int(generator.choice(missing))
    weights = ice.estimator_.coef_.ravel()
    if aim == "the detector" or row @ weights + ice.estimator_.intercept_[0] > 0:
        return int(missing[np.argmin(weights[missing])])
    tried = np.repeat(row[None], len(missing), axis=0)
    tried[np.arange(len(missing)), missing] = 1.0
    return int(missing[np.argmin(ice.measure_.estimator_.predict_proba(tried)[:, 1])])


if __name__ == "__main__":
    for each in sys.argv[1:]:
        print(json.dumps(evasion(int(each)), indent=1))
