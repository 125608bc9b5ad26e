"""Labels that come late, or are wrong: what is left of what they are worth. Prints a table.

python benchmarks/drift/late_and_wrong.py           # everything, about two hours of one core
python benchmarks/drift/late_and_wrong.py both:0    # one learner with one seed, to be kept for later
"""

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from judge import BOOSTING, over_time
from kept import CACHE, keep, maker
from tables import half_width, intervals, markdown, save

from transcendent.datasets import Dataset, load_apigraph
from transcendent.plots.base import COLOURS
from transcendent.temporal import Chosen, Retraining

YOUNG = 6  # months since the first app of a family
WAYS: dict[str, tuple[int, str, float]] = {
    "as they should be": (0, "any", 0.0),
    "a month late": (1, "any", 0.0),
    "3 months late": (3, "any", 0.0),
    "6 months late": (6, "any", 0.0),
    "5% wrong": (0, "any", 0.05),
    "20% wrong": (0, "any", 0.2),
    "half of young families called goodware": (0, "young", 0.5),
    "all of young families called goodware": (0, "young", 1.0),
}
LEARNERS = {"both": range(3), "judge": range(1), "detector": range(1)}
HEAD = {
    "caught": "errors caught",
    "f1": "F1 kept",
    "malware": "malware rejected",
    "error": "error of all answers",
    "wrong": "labels that are wrong",
}
KEYS = {"caught": "caught_at_15", "f1": "f1_kept_at_15", "error": "error_baseline"}


def run(learner: str, way: str, seed: int) -> dict[str, float]:
    """72 months, 15% rejected, 100 labels a month, learnt every three months."""
    path = CACHE / f"late-{learner}-{way}-{seed}.json"
    keep(path, lambda: _compute(path, learner, way, seed), maker(__file__))
    found: dict[str, float] = json.loads(path.read_text())
    return found


def _compute(path: Path, learner: str, way: str, seed: int) -> None:
    started, apps = time.process_time(), load_apigraph()
    delay, which, share = WAYS[way]
    noise: Any = share if which == "any" else partial(called_goodware, family_ages(apps), share)
    learning: Any = learner
    retrain = Retraining(100, "drawn", every=3, what=learning, delay=delay, noise=noise)
    result = over_time(apps, learner, [BOOSTING], retrain, seed)
    summary, labelled = result.summary(), result.labelled[learner]
    found = {key: float(summary[column][0]) for key, column in KEYS.items()}
    found["malware"] = float(result.confusions_at(learner, 0.15)[:, 1, 1].sum() / np.sum(result.y == 1))
    found["wrong"] = float(np.mean(labelled["label"] != apps.y[labelled["row"]]))
    path.write_text(json.dumps(found))
    sys.stderr.write(f"{path.stem}: {found['caught']:.3f}, {time.process_time() - started:.0f} s\n")


def family_ages(apps: Dataset) -> Any:
    """Months since the first app of each app's family; many for goodware and for malware without a name."""
    months = apps.times.astype("datetime64[M]").astype(int)
    names, family = np.unique(apps.extra["family"], return_inverse=True)
    first = np.full(len(names), np.iinfo(int).max)
    np.minimum.at(first, family, months)
    ages = months - first[family]
    return np.where((apps.y == 1) & (names[family] != ""), ages, 10**6)


def called_goodware(ages: Any, share: float, chosen: Chosen) -> Any:
    """As scanners do: a share of the malware of young families is not known yet."""
    young = ages[chosen.rows] < YOUNG
    return np.where(young & (chosen.generator.random(len(chosen.y)) < share), 0, chosen.y)


def table() -> str:
    """What late and wrong labels cost, by what learns."""
    rows = []
    for learner, seeds in LEARNERS.items():
        for way in WAYS:
            runs = [run(learner, way, seed) for seed in seeds]
            rows.append([learner, way, str(len(runs)), *intervals(runs, HEAD)])
    return markdown(["learns", "labels", "seeds", *HEAD.values()], rows)


def draw() -> None:
    """F1 of the kept and errors caught against delay, and against wrong labels."""
    shown = {"f1": "F1 kept", "caught": "errors caught"}
    panels = {
        "months that labels are late": {
            0: "as they should be",
            1: "a month late",
            3: "3 months late",
            6: "6 months late",
        },
        "% of labels wrong, by chance": {0: "as they should be", 5: "5% wrong", 20: "20% wrong"},
    }
    fig, axes = plt.subplots(2, 2, figsize=(7.6, 5.0), sharex="col", sharey="row", layout="constrained")
    for row, (key, name) in zip(axes, shown.items(), strict=True):
        row[0].set_ylabel(name)
        for ax, ways in zip(row, panels.values(), strict=True):
            for colour, (learner, seeds) in zip(COLOURS, LEARNERS.items(), strict=False):
                values = np.array([[run(learner, way, seed)[key] for way in ways.values()] for seed in seeds])
                several = len(seeds) > 1
                half, label = half_width(values) if several else None, learner + " (one seed)" * (not several)
                ax.errorbar(
                    list(ways), values.mean(axis=0), half, marker="o", ms=4, color=colour, label=label
                )
            ax.grid(alpha=0.3)
    for ax, text, ways in zip(axes[1], panels, panels.values(), strict=True):
        ax.set_xlabel(text)
        ax.set_xticks(list(ways))
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, frameon=False, loc="outside right center", title="learns", alignment="left")
    save(fig, "late")


if __name__ == "__main__":
    for given in sys.argv[1:]:
        learner, seed = given.split(":")
        for each in WAYS:
            run(learner, each, int(seed))
    if not sys.argv[1:]:
        print(table())
