"""Families that nobody has seen: who notices them, and how distances join the opinions."""

import warnings
from typing import Any

import numpy as np
from evidence import PRESET, Evidence, gather, least_trusted, parts, rejectors
from lightgbm import LGBMClassifier
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.metrics import roc_auc_score
from sklearn.svm import LinearSVC
from tables import collect, interval, intervals, markdown

from transcendent import CombinedMeasure, Decisions, InductiveEvaluator
from transcendent.datasets import load_lamda
from transcendent.measures import NeighbourDistance, Probability, SecondOpinion, drift_measure
from transcendent.temporal import time_split

SEEDS = range(3)  # boosting takes its time with many classes


def lamda() -> str:
    """Families never trained on: who notices them, and what 25% rejected a year catches."""
    apps = load_lamda()
    first = apps.times < np.datetime64("2014-01")
    families, counts = np.unique(apps.y[first], return_counts=True)
    known = families[counts >= 30]
    apps = apps[~first | np.isin(apps.y, known)]
    split = time_split(apps.times, train="2014", period="year")
    found: dict[str, list[Any]] = {}
    for seed in SEEDS:
        evidence = gather("lamda-all", seed, apps, split, parts_for_families())
        unseen = ~np.isin(evidence.y, evidence.classes)
        most = sum(
            min(unseen[rows].sum(), round(0.25 * rows.sum()))
            for rows in (evidence.period == year for year in np.unique(evidence.period))
        )
        for detector in ("LinearSVC", "random forest"):
            for name, answers in rejectors_of_families(evidence, detector).items():
                rejected, wrong = least_trusted(answers, evidence.period, 0.25), answers.labels != evidence.y
                shares = {
                    "auroc": roc_auc_score(unseen, -answers.credibility),
                    "errors": roc_auc_score(wrong, -answers.credibility),
                    "unseen": np.mean(rejected[unseen]),
                    "caught": np.mean(rejected[wrong]),
                    "accuracy": np.mean(~wrong[~rejected]),
                }
                collect(found, {f"{detector}: {name}": shares})
    keys = ("auroc", "errors", "unseen", "caught", "accuracy")
    head = ["detector: ranked by", "AUROC of unseen families", "of errors", "unseen rejected"]
    rows = [[name, *intervals(runs, keys)] for name, runs in found.items()]
    return (
        f"{len(known)} families of 2013 with at least 30 apps, all {apps.X.shape[1]:,} columns; "
        f"{len(split.train):,} apps to train and calibrate, {len(split.test):,} later ones, "
        f"{unseen.mean():.0%} of them of other families. At 25% rejected a year nobody can reject more than "
        f"{most / unseen.sum():.3f} of the unseen.\n\n"
        + markdown([*head, "errors caught", "accuracy of the kept"], rows)
    )


def parts_for_families() -> dict[str, Any]:
    """The preset's parts, the detectors, and distances."""
    usual = {name: part for name, part in parts().items() if name not in ("XGBoost", "neighbours")}
    return {
        **usual,
        "distance": drift_measure().measures[-1],
        "Jaccard distance": NeighbourDistance(1, metric="jaccard"),
    }


def rejectors_of_families(evidence: Evidence, detector: str) -> dict[str, Decisions]:
    """As for two classes, with distances ranked among all families, and the preset with its distance."""
    found = rejectors(evidence, detector)
    for name in [name for name in ("distance", "Jaccard distance") if name in evidence.names]:
        found[name] = evidence.judged(detector, [name], absolute=(0,))
    merging = {"weights": drift_measure().weights, "absolute": (3,)}
    found["drift_measure(new_classes=True)"] = evidence.judged(detector, [*PRESET, "distance"], **merging)
    found["drift_measure(new_classes=False)"] = found.pop("drift_measure()")
    return found


def families() -> str:
    """How distances join the opinions, on 2013 only: a third of its families is never trained on."""
    apps = load_lamda()
    apps = apps[apps.times < np.datetime64("2014-01")]
    names, counts = np.unique(apps.y, return_counts=True)
    known = names[counts >= 30]
    trees = SecondOpinion(ExtraTreesClassifier(100), Probability())
    boosting = SecondOpinion(LGBMClassifier(n_estimators=50, verbose=-1, n_jobs=1), Probability())
    distances = {
        f"{metric} distance, nearest {k}": NeighbourDistance(k, metric=metric)
        for metric in ("cosine", "jaccard")
        for k in (1, 3, 5)
    }
    nearest = NeighbourDistance(1, metric="cosine")
    preset = drift_measure(new_classes=True)
    tried: dict[str, tuple[list[Any], Any]] = {
        "margin": (["auto"], None),
        "extra trees": ([trees], None),
        "LightGBM": ([boosting], None),
        **{name: ([distance], None) for name, distance in distances.items()},
        "both opinions": ([trees, boosting], None),
        **{
            f"both opinions, and the nearest by cosine × {w}": ([trees, boosting, nearest], [1, 1, w])
            for w in (1, 2, 3)
        },
        "drift_measure(new_classes=True)": (list(preset.measures), preset.weights),
    }
    found: dict[str, list[Any]] = {}
    for seed in range(6):
        generator = np.random.default_rng(seed)
        trained_on = np.isin(apps.y, generator.permutation(known)[len(known) // 3 :])
        rows = generator.permutation(np.flatnonzero(trained_on))
        train, seen = np.split(rows, [round(0.75 * len(rows))])
        test = np.concatenate([seen, np.flatnonzero(~trained_on)])
        for name, (members, weights) in tried.items():
            measure = CombinedMeasure(members, weights=weights, bag="all", random_state=seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ice = InductiveEvaluator(LinearSVC(C=0.1), measure=measure, random_state=seed, verbose=False)
                decisions = ice.fit(apps.X[train], apps.y[train]).decide(apps.X[test])
            score = roc_auc_score(~trained_on[test], -decisions.credibility)
            collect(found, {name: score})
    return markdown(["ranked by", "AUROC of held-out families"], [[n, interval(v)] for n, v in found.items()])
