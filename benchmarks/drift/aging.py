"""How fast a promise breaks: as the world moves a little in a simulation, and month by month on real apps."""

import json
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from guarantees import CALIBRATION, DELTA, Problem
from judge import BOOSTING
from kept import CACHE, keep, maker
from scipy.stats import binom, norm
from sklearn.svm import LinearSVC
from tables import interval, markdown

from transcendent import GuaranteedSearch, InductiveEvaluator, ScoreEvaluator
from transcendent.datasets import load_apigraph
from transcendent.errors import InfeasibleError
from transcendent.measures import Probability, SecondOpinion

SIMULATED, ERROR = 500, 0.05
STARTS, SEEDS, AFTER = range(2013, 2019), range(3), (1, 2, 3, 6, 12)
PROMISED = 0.005
MEASURES: dict[str, Any] = {"its margin": "auto", "one LightGBM": SecondOpinion(BOOSTING, Probability())}


def worlds() -> dict[str, tuple[Problem, float]]:
    """As calibrated, and moved a little; no more than the total variation distance between the two."""
    calm = Problem(2)
    apart, malware = calm.separation, calm.prior[1]
    found: dict[str, tuple[Problem, float]] = {"nothing": (calm, 0.0)}
    for less in (0.02, 0.05, 0.1, 0.2):
        weaker = replace(calm, apart=apart * (1 - less))
        found[f"evidence {less:.0%} weaker"] = weaker, 2 * norm.cdf(apart * less / 2) - 1
    for share in (0.12, 0.15, 0.2):
        found[f"malware {malware:.0%} → {share:.0%}"] = (
            replace(calm, shares=(1 - share, share)),
            share - malware,
        )
    for share in (0.005, 0.01, 0.02):
        found[f"{share:.1%} look like the other class"] = replace(calm, flipped=share), share
    return found


def simulated() -> str:
    """Thresholds proven before, in worlds that have moved since."""
    generator = np.random.default_rng(0)
    moved = worlds()
    errors: dict[str, list[float]] = {name: [] for name in moved}
    accepted: list[float] = []
    for _ in range(SIMULATED):
        judge = ScoreEvaluator(search=GuaranteedSearch(ERROR, delta=DELTA))
        judge.fit(*Problem(2).objects(generator, CALIBRATION))
        accepted.append(1 - Problem(2).delivered(judge)[1])
        for name, (problem, _) in moved.items():
            errors[name].append(problem.delivered(judge)[0])
    rows = []
    for name, (problem, distance) in moved.items():
        found = np.array(errors[name])
        worst = np.mean(np.array(errors["nothing"]) + distance / np.array(accepted))
        cells = (problem.error(), distance, found.mean(), worst)
        rows.append([name, *(interval([cell], 3) for cell in (*cells, np.mean(found > ERROR)))])
    head = ["what moved", "error of all answers", "distance", "error kept", "at most", "promises broken"]
    return markdown(head, rows)


def real() -> str:
    """Thresholds proven on the apps of a year, in the months after it."""
    found: dict[str, list[Any]] = {}
    for start in STARTS:
        for seed in SEEDS:
            for name, months in _year(start, seed).items():
                found.setdefault(name, []).append(months)
    rows = []
    for name, runs in found.items():
        for what in ("error", "broken", "rejected")[: 2 if name == "nothing rejected" else 3]:
            by_month = np.array([[run[month - 1][what] for month in AFTER] for run in runs])
            rows.append([name, what, *(interval([share], 3) for share in by_month.mean(axis=0))])
    head = ["judged by", "", *(f"month {month}" for month in AFTER)]
    return markdown(head, rows)


def _year(start: int, seed: int) -> dict[str, list[dict[str, float]]]:
    path = CACHE / f"aging-{start}-{seed}.json"
    keep(path, lambda: _compute(path, start, seed), maker(__file__))
    found: dict[str, list[dict[str, float]]] = json.loads(path.read_text())
    return found


def _compute(path: Path, start: int, seed: int) -> None:
    apps = load_apigraph()
    year, month = (apps.times.astype(f"datetime64[{unit}]").astype(int) for unit in "YM")
    past = year == start - 1971
    found: dict[str, list[dict[str, float]]] = {}
    warnings.simplefilter("ignore")
    for name, measure in MEASURES.items():
        search = GuaranteedSearch(PROMISED, delta=DELTA, random_state=seed)
        ice = InductiveEvaluator(
            LinearSVC(C=0.1), measure=measure, search=search, random_state=seed, verbose=False
        )
        try:
            ice.fit(apps.X[past], apps.y[past])
        except InfeasibleError:
            sys.stderr.write(f"{start}, {name}, seed {seed}: nothing could be proven\n")
        for each in range(12):
            rows = np.flatnonzero(month == (start - 1970) * 12 + each)
            decisions = ice.decide(apps.X[rows])
            wrong = decisions.labels != apps.y[rows]
            found.setdefault("nothing rejected", []).append(_outcome(wrong, np.ones(len(rows), dtype=bool)))
            found.setdefault(name, []).append(_outcome(wrong, decisions.accepted))
    found["nothing rejected"] = found["nothing rejected"][:12]
    path.write_text(json.dumps(found))


def _outcome(wrong: Any, accepted: Any) -> dict[str, float]:
    """Broken: more errors than the promise gives by chance, one time in 20."""
    errors, n = int(wrong[accepted].sum()), int(accepted.sum())
    return {
        "error": errors / max(n, 1),
        "broken": float(binom.sf(errors - 1, n, PROMISED) < 0.05),
        "rejected": 1 - n / len(wrong),
    }
