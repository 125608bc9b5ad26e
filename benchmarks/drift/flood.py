"""A flood of harmless apps that look half like malware takes budget and labels. Used by gain.py."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from judge import BOOSTING, over_time
from kept import CACHE, keep, maker
from tables import intervals, markdown

from transcendent.datasets import Dataset, load_apigraph
from transcendent.temporal import Retraining

FLOODS = (0.0, 0.05, 0.15)
LEARNERS = ("nothing", "judge", "both")
SEEDS = range(3)
RATE = 0.15
HEAD = {
    "caught": "errors caught",
    "f1": "F1 kept",
    "error": "error of all answers",
    "budget": "budget taken",
    "labels": "labels taken",
}


def run(learner: str, flood: float, seed: int) -> dict[str, float]:
    """72 months, a rank for 15% of the real apps, 100 labels a month, learnt every three months."""
    path = CACHE / f"flood-{learner}-{flood:.0%}-{seed}.json"
    keep(path, lambda: _compute(path, learner, flood, seed), maker(__file__))
    found: dict[str, float] = json.loads(path.read_text())
    return found


def _compute(path: Path, learner: str, flood: float, seed: int) -> None:
    started, apps = time.process_time(), load_apigraph()
    flooded, harmless = with_flood(apps, flood, seed)
    what: Any = learner
    retrain = None if learner == "nothing" else Retraining(100, "drawn", every=3, what=what)
    result = over_time(flooded, learner, [BOOSTING], retrain, seed)
    kept, labels = result.kept_at(learner, RATE / (1 + flood)), result.answers[learner].labels
    real = ~harmless[result.rows]
    wrong, malware = real & (labels != result.y), real & (result.y == 1)
    hits, errors = kept[malware & ~wrong].sum(), kept[wrong].sum()
    rejected = 1 - kept
    found = {
        "caught": 1 - errors / wrong.sum(),
        "f1": 2 * hits / (2 * hits + errors),
        "error": wrong.sum() / real.sum(),
        "budget": rejected[~real].sum() / rejected.sum(),
        "labels": np.mean(harmless[result.labelled[learner]["row"]]) if retrain else 0.0,
    }
    path.write_text(json.dumps({key: float(value) for key, value in found.items()}))
    sys.stderr.write(f"{path.stem}: {found['caught']:.3f}, {time.process_time() - started:.0f} s\n")


def with_flood(apps: Dataset, flood: float, seed: int) -> tuple[Dataset, Any]:
    """Add harmless apps to each month, whose features are half of a goodware app, half of malware."""
    generator, months = np.random.default_rng((seed, 1)), apps.times.astype("datetime64[M]")
    parents = [np.empty((2, 0), dtype=np.intp)]
    for month in np.unique(months[months >= np.datetime64("2013-01")]):
        own = np.flatnonzero(months == month)
        pools = (own[apps.y[own] == label] for label in (0, 1))
        parents.append(np.stack([generator.choice(pool, round(flood * len(own))) for pool in pools]))
    good, bad = np.concatenate(parents, axis=1)
    crossed = sp.csr_array(apps.X[good] + apps.X[bad])
    crossed.data = (generator.random(crossed.nnz) < crossed.data / 2).astype(apps.X.dtype)
    harmless = np.repeat([False, True], [len(apps), len(good)])
    times = np.concatenate([apps.times, apps.times[good]])
    flooded = Dataset(
        sp.vstack([apps.X, crossed], format="csr"),
        np.concatenate([apps.y, np.zeros(len(good), dtype=apps.y.dtype)]),
        times,
        {"harmless": harmless},
    )
    return flooded, flooded.extra["harmless"]


def table() -> str:
    """What is left of a budget and of labels, by what learns."""
    rows = [
        [learner, f"{flood:.0%}", *intervals([run(learner, flood, seed) for seed in SEEDS], HEAD)]
        for learner in LEARNERS
        for flood in FLOODS
    ]
    return markdown(["learns", "flood, of the real apps", *HEAD.values()], rows)


if __name__ == "__main__":
    for given in sys.argv[1:]:
        learner, seed = given.split(":")
        for each in FLOODS:
            run(learner, each, int(seed))
    if not sys.argv[1:]:
        print(table())
