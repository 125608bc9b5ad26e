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
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from sklearn.utils import check_random_state

from transcendent import InductiveEvaluator
from transcendent.datasets import load_apigraph
from transcendent.evaluators.splits import stratified_split
from transcendent.measures import Probability, SecondOpinion

BOUNDS = (0, 1, 2, 5, 10, 20, 50)
AIMS = ("the detector", "the detector, then a model of its own", "the detector, then the judge", "chance")
SHARES = (
    "called goodware",
    "and accepted by the judge's p-value",
    "and accepted by its probability",
    "and accepted by the margin",
    "accepted as goodware by LightGBM as the detector",
)
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
        gate = Gate(past, seed)
    limits = [np.quantile(trust, 0.15, method="higher") for _, trust in gate.answers(now.X)]
    known = np.flatnonzero((now.y == 1) & (gate.judge.predict(now.X) == 1))
    some = np.random.default_rng(seed).permutation(known)[:APPS]
    rows = sp.csr_array(now.X[some]).toarray().astype(np.float64)
    found = {aim: _attack(gate, rows, aim, limits, seed) for aim in AIMS}
    path.write_text(json.dumps(found))
    sys.stderr.write(f"{path.stem}: {time.process_time() - started:.0f} s\n")


class Gate:
    """An SVM and a LightGBM of 2012 with what could decide between them, and what an adversary knows."""

    def __init__(self, past: Any, seed: int) -> None:
        opinion = SecondOpinion(BOOSTING, Probability())
        svm = LinearSVC(C=0.1)
        self.judge = InductiveEvaluator(svm, measure=opinion, random_state=seed, verbose=False)
        self.margin = InductiveEvaluator(svm, random_state=seed, verbose=False)
        for each in (self.judge, self.margin):
            each.fit(past.X, past.y)
        self.boosting = self.judge.measure_.estimator_
        self.weights = self.judge.estimator_.coef_.ravel()
        self.bias = self.judge.estimator_.intercept_[0]
        _, unseen = stratified_split(past.y, np.array([0, 1]), 0.34, check_random_state(seed))
        self.stand_in = clone(BOOSTING).set_params(random_state=seed).fit(past.X[unseen], past.y[unseen])
        linear = LogisticRegression(C=0.3, solver="liblinear").fit(past.X, past.y).coef_.ravel()
        cheapest = [np.argsort(each)[:OFFERED] for each in (self.weights, linear)]
        self.offered = np.unique(np.concatenate(cheapest))

    def answers(self, X: Any) -> list[tuple[Any, Any]]:
        """The labels of each rule, in the order of the shares, and how much it trusts them."""
        p, chance, every = self.judge.predict_p(X), self.boosting.predict_proba(X), np.arange(X.shape[0])
        svm, boosting = self.judge.predict(X), chance.argmax(axis=1)
        return [
            (svm, p[every, svm]),
            (svm, chance[every, svm]),
            (svm, self.margin.predict_p(X)[every, svm]),
            (boosting, p[every, boosting]),
        ]


def _attack(gate: Gate, rows: Any, aim: str, limits: list[Any], seed: int) -> dict[str, list[float]]:
    """Add features one by one, each the best of those that speak most for goodware."""
    generator, rows = np.random.default_rng(seed), rows.copy()
    found: dict[str, list[float]] = {share: [] for share in SHARES}
    for added in range(max(BOUNDS) + 1):
        if added in BOUNDS:
            answers = gate.answers(rows)
            passes = [
                np.mean((labels == 0) & (trust >= at))
                for (labels, trust), at in zip(answers, limits, strict=True)
            ]
            for share, value in zip(SHARES, (np.mean(answers[0][0] == 0), *passes), strict=True):
                found[share].append(float(value))
        for row in rows:
            missing = gate.offered[row[gate.offered] == 0] if aim != "chance" else np.flatnonzero(row == 0)
            if len(missing):
                row[_next(gate, row, missing, aim, generator)] = 1.0
    return found


def _next(gate: Gate, row: Any, missing: Any, aim: str, generator: Any) -> int:
    """Which feature to add: at random; the detector's best; or once it is fooled, the other model's best."""
    if aim == "chance":
        return int(generator.choice(missing))
    if aim == "the detector" or row @ gate.weights + gate.bias > 0:
        return int(missing[np.argmin(gate.weights[missing])])
    model = gate.boosting if aim.endswith("judge") else gate.stand_in
    tried = np.repeat(row[None], len(missing), axis=0)
    tried[np.arange(len(missing)), missing] = 1.0
    return int(missing[np.argmin(model.predict_proba(tried)[:, 1])])


if __name__ == "__main__":
    for each in sys.argv[1:]:
        print(json.dumps(evasion(int(each)), indent=1))
