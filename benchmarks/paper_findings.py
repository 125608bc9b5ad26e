"""Fills docs/evidence/leak.md and docs/evidence/monotone.md: two findings about published results.

python benchmarks/paper_findings.py                # both, about ten minutes of one core
python benchmarks/paper_findings.py leak           # one of them

TRANSCENDENT_DATA names the folder with the apigraph files.
"""

import sys
import warnings
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from intervals import interval
from lightgbm import LGBMClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.svm import LinearSVC

from transcendent import InductiveEvaluator
from transcendent.baselines import ProbabilityThresholds
from transcendent.datasets import load_apigraph

SEEDS = range(5)
DETECTORS = {
    "LinearSVC": LinearSVC(C=0.1),
    "logistic regression": LogisticRegression(C=0.3, solver="liblinear"),
    "LightGBM": LGBMClassifier(verbose=-1, n_jobs=1),
}
DOCS = Path(__file__).parents[1] / "docs/evidence"
Label = Literal["predicted", "true"]


def leak() -> str:
    """What thresholds promise in calibration and deliver later, by the label that calibrates."""
    apps, rows = load_apigraph(), []
    past = np.flatnonzero(apps.times < np.datetime64("2013-01"))
    later = np.flatnonzero(apps.times >= np.datetime64("2013-01"))
    for name, detector in DETECTORS.items():
        for label in get_args(Label):
            found = []
            for seed in SEEDS:
                drawn = np.random.default_rng(seed).permutation(past)
                train, same = drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :]
                ice = InductiveEvaluator(detector, calibration_label=label, random_state=seed, verbose=False)
                ice.fit(apps.X[train], apps.y[train])
                promised = [ice.result_.value, ice.result_.rejection_rate]
                delivered = [
                    each for test in (same, later) for each in _kept(ice, apps.X[test], apps.y[test])
                ]
                found.append([*promised, *delivered])
            rows.append([name, label, *map(interval, np.transpose(found))])
    head = ["detector", "label that calibrates", "promised: F1 kept", "rejected"]
    head += ["2012, other apps: F1 kept", "rejected", "2013–2018: F1 kept", "rejected"]
    return _table(head, rows)


def _kept(rejector: Any, X: Any, y: Any) -> tuple[float, float]:
    decisions = rejector.decide(X)
    kept = decisions.accepted
    return float(f1_score(y[kept], decisions.labels[kept])), decisions.rejection_rate


def monotone() -> str:
    """Decisions by thresholds on credibility and on the score itself, and their rankings."""
    apps, rows = load_apigraph(), []
    past, later = apps.times < np.datetime64("2013-01"), apps.times >= np.datetime64("2013-01")
    X, y, month = apps.X[later], apps.y[later], apps.times[later]
    for name, detector in DETECTORS.items():
        found = []
        for seed in SEEDS:
            ice = InductiveEvaluator(detector, random_state=seed, verbose=False)
            scored = ProbabilityThresholds(detector, random_state=seed)
            both = [rejector.fit(apps.X[past], apps.y[past]).decide(X) for rejector in (ice, scored)]
            assert np.array_equal(both[0].labels, both[1].labels)
            differ = np.sum(both[0].accepted != both[1].accepted)
            at_15 = [_at_15(decisions, y, month) for decisions in both]
            found.append([differ, *(decisions.rejection_rate for decisions in both), *at_15[0], *at_15[1]])
        differ, *others = np.transpose(found)
        rows.append([name, " ".join(f"{n:.0f}" for n in differ), *map(interval, others)])
    head = ["detector", f"of {len(y):,} decisions differ, by seed", "rejected by credibility", "by score"]
    head += [
        "15% of each month, by credibility: errors caught",
        "F1 kept",
        "by score: errors caught",
        "F1 kept",
    ]
    return _table(head, rows)


def _at_15(decisions: Any, y: Any, month: Any) -> tuple[float, float]:
    """Errors caught and F1 of the kept if 15% of every month are rejected."""
    kept = np.ones(len(y), dtype=bool)
    for each in np.unique(month):
        own = np.flatnonzero(month == each)
        kept[own] = decisions[own].within_budget(0.15).accepted
    wrong = decisions.labels != y
    return float(np.mean(~kept[wrong])), float(f1_score(y[kept], decisions.labels[kept]))


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


SECTIONS = {"leak": leak, "monotone": monotone}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for wanted in sys.argv[1:] or SECTIONS:
        page = DOCS / f"{wanted}.md"
        before, rest = page.read_text().split("<!-- table -->\n")
        after = rest.split("<!-- end of table -->")[1]
        page.write_text(f"{before}<!-- table -->\n\n{SECTIONS[wanted]()}\n\n<!-- end of table -->{after}")
        print(f"{wanted}: written", flush=True)
