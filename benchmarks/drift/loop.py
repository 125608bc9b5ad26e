"""What is rejected gets labelled and retrains the detector: which objects are worth an analyst's time?"""

import json
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from kept import keep, maker
from lightgbm import LGBMClassifier
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import ExtraTreesClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from tables import run_all

from transcendent import CombinedMeasure, Decisions, InductiveEvaluator
from transcendent.datasets import Dataset, load_apigraph
from transcendent.explaining import content_keys
from transcendent.measures import Margin, NeighbourRatio, SecondOpinion
from transcendent.temporal import Backtest, Retraining, backtest, cut_periods
from transcendent.temporal.labelling import Choice, margins

SEEDS = range(3)
BUDGETS = (50, 100, 200, 400)
SVM = LinearSVC(C=0.1)
LINEAR = LogisticRegression(C=0.3, solver="liblinear")
TREES = ExtraTreesClassifier(100, n_jobs=1)
CALIBRATED = 0.1
CLASSES = np.array([0, 1])


def boosting(**other: Any) -> LGBMClassifier:
    """LightGBM as tuned, but for what is given."""
    tuned = {"n_estimators": 200, "num_leaves": 63, "colsample_bytree": 0.2, "min_child_samples": 5}
    return LGBMClassifier(**(tuned | other), force_col_wise=True, verbose=-1, n_jobs=1)  # faster, as good


def vote(*models: Any, weights: Any = None) -> VotingClassifier:
    """Mean probability of several models."""
    return VotingClassifier(list(zip("abc", models, strict=False)), voting="soft", weights=weights)


class WeighsNewRows(ClassifierMixin, BaseEstimator):
    """Rows after the first ``n_old`` count ``weight`` times."""

    def __init__(self, estimator: Any, n_old: int, weight: float) -> None:
        self.estimator = estimator
        self.n_old = n_old
        self.weight = weight

    def fit(self, X: Any, y: Any) -> Self:
        """Fit with weights."""
        weights = np.where(np.arange(len(y)) < self.n_old, 1.0, self.weight)
        self.estimator_ = clone(self.estimator).fit(X, y, sample_weight=weights)
        self.classes_ = self.estimator_.classes_
        return self

    def predict(self, X: Any) -> Any:
        """As the estimator."""
        return self.estimator_.predict(X)

    def predict_proba(self, X: Any) -> Any:
        """As the estimator."""
        return self.estimator_.predict_proba(X)


_OLD = 27_480  # nine tenths of 2012
DETECTORS: dict[str, Any] = {
    "LinearSVC": SVM,
    "LightGBM of default size": LGBMClassifier(verbose=-1, n_jobs=1),
    "LightGBM": boosting(),
    "LightGBM, 400 slower trees": boosting(n_estimators=400, learning_rate=0.05),
    "LightGBM, 127 leaves": boosting(num_leaves=127),
    "LightGBM, 10% of the columns": boosting(colsample_bytree=0.1),
    "LightGBM, malware × 2": boosting(scale_pos_weight=2),
    "LightGBM, malware × 3": boosting(scale_pos_weight=3),
    "LightGBM, new labels × 2": WeighsNewRows(boosting(), _OLD, 2.0),
    "LightGBM, new labels × 4": WeighsNewRows(boosting(), _OLD, 4.0),
    "vote of LightGBM and linear": vote(boosting(), LINEAR, weights=[2, 1]),
    "vote of LightGBM, linear and extra trees": vote(boosting(), LINEAR, TREES),
    "vote of two LightGBM": vote(boosting(random_state=1), boosting(random_state=2, scale_pos_weight=2)),
    "vote of two LightGBM, malware × 2": vote(
        *(boosting(random_state=seed, scale_pos_weight=2) for seed in (1, 2))
    ),
    "vote of LightGBM and linear, malware × 2": vote(
        boosting(scale_pos_weight=2), clone(LINEAR).set_params(class_weight={0: 1, 1: 2}), weights=[2, 1]
    ),
}
LOOKS = "looks at the margin"
COMBINED = CombinedMeasure(["auto", SecondOpinion(SVM, Margin())], bag="all")
CHOICES: dict[str, tuple[Any, Choice, float]] = {
    "random": ("auto", "random", 0.0),
    "margin": ("auto", "margin", 0.0),
    "margin, a fifth audited": ("auto", "margin", 0.2),
    "combined doubt": (COMBINED, "rejected", 0.0),
    "combined doubt, a fifth audited": (COMBINED, "rejected", 0.2),
    "drawn from the doubted": (COMBINED, "drawn", 0.2),
    "neighbours disagree": (NeighbourRatio(5, metric="jaccard"), "rejected", 0.0),
}


def protocol(end: str) -> Dataset:
    """Fitted on 2012, tested on 2013 if the end is 2014, else on 2013-07 and later."""
    apps = load_apigraph()
    apps = apps[apps.times < np.datetime64(end)]
    start = np.datetime64("2013-01" if end == "2014" else "2013-07")
    return apps[(apps.times < np.datetime64("2013-01")) | (apps.times >= start)]


def run(cache: Path, detector: str, choice: str, labels: int, seed: int, end: str) -> dict[str, float]:
    """Mean monthly F1, FNR and FPR of all answers, and F1 of those kept at two rejection rates."""
    path = cache / f"learning-{detector}-{choice}-{labels}-{seed}-{end}.json"
    keep(path, lambda: _compute(path, detector, choice, labels, seed, end), maker(__file__))
    found: dict[str, float] = json.loads(path.read_text())
    return found


def _compute(path: Path, detector: str, choice: str, labels: int, seed: int, end: str) -> None:
    apps, started = protocol(end), time.process_time()
    learns = _look if choice == LOOKS else _label
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = learns(apps, detector, choice, labels, seed)
    f1, fnr, fpr = (result.series(choice, metric, "baseline") for metric in ("f1", "fnr", "fpr"))
    found = {"f1": float(np.nanmean(f1)), "fnr": float(np.nanmean(fnr)), "fpr": float(np.nanmean(fpr))}
    for rate in (0.05, 0.15):
        found[f"kept at {rate:.0%}"] = result.at_rejection(choice, rate)["kept"]["f1"]
    found["seconds"] = (time.process_time() - started) / len(result.periods)
    path.write_text(json.dumps(found))
    sys.stderr.write(f"{path.stem}: F1 {found['f1']:.3f}, {found['seconds']:.1f} s a month\n")


def _label(apps: Dataset, detector: str, choice: str, labels: int, seed: int) -> Backtest:
    """Objects are labelled one by one."""
    measure, choose, audit = CHOICES[choice]
    rejector = InductiveEvaluator(
        DETECTORS[detector], measure=measure, calibration_size=CALIBRATED, verbose=False
    )
    return backtest(
        {choice: rejector},
        apps.X,
        apps.y,
        apps.times,
        train="2013",
        retrain=Retraining(labels, choose, audit=audit),
        random_state=seed,
        verbose=False,
    )


def _look(apps: Dataset, detector: str, choice: str, labels: int, seed: int) -> Backtest:
    """A label is of all objects with the same features, then and later; what is known is not asked again."""
    past, keys = apps.times < np.datetime64("2013-01"), content_keys(apps.X)
    fitted = apps.X[past], apps.y[past]
    ice = InductiveEvaluator(
        DETECTORS[detector], calibration_size=CALIBRATED, random_state=seed, verbose=False
    )
    ice.fit(*fitted)
    known: dict[str, int] = {}
    learnt = np.empty(0, dtype=np.intp)
    labelled, trust = list[Any](), list[Any]()
    periods = cut_periods(apps.times[~past], "month")
    for own in (np.flatnonzero(~past)[rows] for rows in periods.rows):
        if len(own) == 0:
            continue
        decisions, memory = ice.decide(apps.X[own]), np.array([known.get(key, -1) for key in keys[own]])
        remembered = memory >= 0
        labelled.append(np.where(remembered, memory, decisions.labels))
        trust.append(np.where(remembered, 1.0, decisions.credibility))
        once = np.unique(keys[own], return_index=True)[1]
        new = once[~remembered[once]]
        looks = own[new[np.argsort(margins(ice, apps.X[own[new]]), kind="stable")[:labels]]]
        known.update(zip(keys[looks], apps.y[looks], strict=True))
        learnt = np.concatenate([learnt, own[np.isin(keys[own], list(known))]])
        ice.learn(apps.X[learnt], np.array([known[key] for key in keys[learnt]]), what="both", fitted=fitted)
    tested = np.flatnonzero(~past)[np.concatenate(periods.rows)]
    everything = np.ones(len(tested), dtype=bool)
    answers = Decisions(
        np.concatenate(labelled), everything, np.concatenate(trust), np.zeros(len(tested)), classes=CLASSES
    )
    return Backtest(
        periods.labels,
        np.sort(periods.codes),
        tested,
        apps.y[tested],
        {choice: answers},
        CLASSES,
        1,
        {"period": "month"},
    )


def results(
    cache: Path, tasks: list[tuple[str, str, int]], seeds: Any = SEEDS, end: str = "2019"
) -> dict[tuple[str, str, int], list[Any]]:
    """For each detector, choice and number of labels, what every seed gave."""
    return run_all(partial(run, cache, end=end), tasks, seeds)
