"""What labels are worth: to a judge beside a detector that stays, to promises, and to a detector."""

from typing import Any

import judge as judging
import loop as looping
import matplotlib.pyplot as plt
import numpy as np
import promises as promising
from kept import CACHE
from tables import AT_15, half_width, intervals, markdown, save

from transcendent.plots.base import COLOURS

LOOP_DETECTOR = "LightGBM, malware × 2"
LOOP_VOTES = (
    "vote of two LightGBM, malware × 2",
    "vote of LightGBM and linear, malware × 2",
    "vote of LightGBM, linear and extra trees",
)
LOOP_CHOICES = ("margin", "random")
LOOP_KEYS = {"F1": "f1", "FNR": "fnr", "FPR": "fpr", "F1 kept at 5%": "kept at 5%", "at 15%": "kept at 15%"}
PUBLISHED: dict[str, list[tuple[float, ...]]] = {
    "contrastive learning": [
        (0.892, 0.152, 0.0052),
        (0.904, 0.137, 0.0044),
        (0.927, 0.094, 0.0048),
        (0.935, 0.078, 0.0050),
    ],
    "credibility on its embedding": [(0.860,), (0.880,), (0.902,), (0.915,)],
    "MLP": [(0.849,), (0.880,), (0.885,), (0.892,)],
    "boosted trees": [(0.779,), (0.802,), (0.827,), (0.862,)],
}


def judge_choice() -> str:
    """Which judge learns, on 2012 and 2013 only, with clusters of 2012 held out as for the preset."""
    names = [(name, 100) for name in judging.OPINIONS if name != judging.AT_RANDOM]
    names.append((judging.CHOSEN, 0))
    tasks = [(kind, *name) for name in names for kind in judging.HELD_OUT]
    found = judging.results(CACHE, tasks, range(1))
    rows = []
    for name, labels in names:
        runs = [found[kind, name, labels][0] for kind in judging.HELD_OUT]
        means = (np.mean([run[key] for run in runs]) for key in AT_15.values())
        rows.append([name, str(labels), *(f"{mean:.4f}"[1:] for mean in means)])
    return markdown(["judge", "labels a month", *AT_15], rows)


def judge() -> str:
    """The judge learns, the detector does not: 72 months, 15% of each rejected."""
    kinds = ("raw", "deduplicated")
    found = judging.results(CACHE, [(kind, judging.CHOSEN, n) for kind in kinds for n in (0, 100)])
    found |= judging.results(CACHE, [(kind, judging.AT_RANDOM, 100) for kind in kinds], range(3))
    rows = [
        [
            kind,
            _labels(name, n),
            *intervals(runs, AT_15.values()),
            f"{np.mean([r['seconds'] for r in runs]):.1f}",
        ]
        for (kind, name, n), runs in sorted(found.items(), reverse=True)
    ]
    return markdown(["apps", "labels a month", *AT_15, "CPU seconds a month"], rows)


def _labels(name: str, n: int) -> str:
    return f"{n}, at random" if name == judging.AT_RANDOM else str(n)


def promises() -> str:
    """Promised and delivered where nothing drifts: shuffled apps of 2012."""
    rows = []
    for (way,), runs in promising.results().items():
        f1 = np.array([[run["f1"], run["delivered f1"]] for run in runs])
        rejected = np.array([[run["rejected"], run["delivered"]] for run in runs])
        rows.append(
            [
                way,
                *(f"{value:.4f}"[1:] for value in f1.mean(axis=0)),
                f"{np.abs(f1[:, 0] - f1[:, 1]).max():.4f}"[1:],
                *(f"{value:.3f}"[1:] for value in rejected.mean(axis=0)),
            ]
        )
    head = ["what learns", "F1 of the kept, promised", "delivered", "farthest apart, any seed"]
    return markdown([*head, "rejected, promised", "delivered"], rows)


def loop_choice() -> str:
    """Which detector learns, and which labels, on 2012 and 2013 only: 200 labels a month, one seed."""
    detectors = [(name, "margin", 200) for name in looping.DETECTORS]
    choices = [("LightGBM", name, 200) for name in looping.CHOICES if name != "margin"]
    found = looping.results(CACHE, detectors + choices, range(1), "2014")
    rows = [[name, choice, *_loop_cells(runs)] for (name, choice, _), runs in found.items()]
    return markdown(["detector", "labels chosen by", *LOOP_KEYS, "CPU seconds a month"], rows)


def loop() -> str:
    """The chosen detector at every budget, beside published figures."""
    tasks = [(LOOP_DETECTOR, choice, n) for choice in LOOP_CHOICES for n in looping.BUDGETS]
    found = looping.results(CACHE, tasks)
    rows = [[str(n), choice, *_loop_cells(runs)] for (_, choice, n), runs in found.items()]
    rows += [
        [
            str(n),
            f"published: {name}",
            *(f"{value:.{4 if i == 2 else 3}f}"[1:] for i, value in enumerate(values)),
            *blank,
        ]
        for name, figures in PUBLISHED.items()
        for n, values in zip(looping.BUDGETS, figures, strict=True)
        for blank in [["–"] * (6 - len(values))]
    ]
    _draw_loop(found)
    return markdown(["labels a month", "chosen by", *LOOP_KEYS, "CPU seconds a month"], rows)


def looks() -> str:
    """The same detector if a label is of all apps with the same features."""
    found = looping.results(CACHE, [(LOOP_DETECTOR, looping.LOOKS, n) for n in (100, 400)])
    rows = [[str(n), *_loop_cells(runs)] for (_, _, n), runs in found.items()]
    return markdown(["looks a month", *LOOP_KEYS, "CPU seconds a month"], rows)


def looks_tried() -> str:
    """Which detector learns from looks, on 2012 and 2013 only, one seed."""
    names = [LOOP_DETECTOR, *LOOP_VOTES]
    tasks = [(name, looping.LOOKS, n) for name in names for n in (100, 400)]
    found = looping.results(CACHE, tasks, range(1), "2014")
    rows = [[name, str(n), *_loop_cells(runs)] for (name, _, n), runs in found.items()]
    return markdown(["detector", "looks a month", *LOOP_KEYS, "CPU seconds a month"], rows)


def _loop_cells(runs: list[dict[str, float]]) -> list[str]:
    return [*intervals(runs, LOOP_KEYS.values()), f"{np.mean([run['seconds'] for run in runs]):.1f}"]


def _draw_loop(found: dict[tuple[str, str, int], list[Any]]) -> None:
    fig, ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    ax.set_prop_cycle(color=COLOURS)
    budgets = looping.BUDGETS
    for choice in LOOP_CHOICES:
        f1 = np.array([[run["f1"] for run in found[LOOP_DETECTOR, choice, n]] for n in looping.BUDGETS])
        ax.errorbar(budgets, f1.mean(axis=1), half_width(f1.T), marker="o", ms=4, capsize=2, label=choice)
    for (name, figures), marker in zip(PUBLISHED.items(), "*sd^", strict=True):
        theirs = [values[0] for values in figures]
        ax.plot(budgets, theirs, marker, color="0.5", ms=7, mfc="none", label=f"published: {name}")
    ax.set(xscale="log", xlabel="labels a month", ylabel="mean monthly F1 of all answers")
    ax.set_xticks(budgets, [str(n) for n in budgets])
    ax.minorticks_off()
    ax.grid(alpha=0.3)
    fig.legend(*ax.get_legend_handles_labels(), frameon=False, loc="outside right center")
    save(fig, "loop")
