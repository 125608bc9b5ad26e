"""Fills the table and the figure of README.md, from what run.py computes and keeps for its section apigraph.

TRANSCENDENT_DATA=... python benchmarks/drift/readme.py
"""

from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from evidence import least_trusted, rejectors
from run import SEEDS, apps_evidence, write
from tables import PAGE, collect, intervals, markdown, save


def table() -> str:
    """The README's table and figure: LinearSVC, raw, 15% of every month rejected."""
    shown = {
        "the detector's own probability": "its own, raw",
        "margin, the paper's measure for an SVM": "its own measure",
        "mean probability of forest, LightGBM and MLP": "soft vote, raw",
        '`measure="drift"`': "drift_measure()",
    }
    found: dict[str, list[Any]] = {}
    for seed in SEEDS:
        evidence = apps_evidence("raw", seed)
        answers = rejectors(evidence, "LinearSVC")
        years = np.array([int(period[:4]) for period in evidence.periods])[evidence.period]
        nothing = np.zeros(len(years), dtype=bool)
        rejected = {
            name: least_trusted(answers[ranking], evidence.period, 0.15) for name, ranking in shown.items()
        }
        labels = evidence.labels["LinearSVC"]
        collect(found, {name: _kept(labels, evidence.y, years, r) for name, r in rejected.items()})
        collect(found, {"nothing": _kept(labels, evidence.y, years, nothing)})
    _draw_readme(found)
    keys = ("caught", "f1", "error")
    rows = [[name, *intervals(found[name], keys)] for name in ("nothing", *shown)]
    return markdown(["rejects by", "errors caught", "F1 of the kept", "error of the kept"], rows)


def _kept(labels: Any, y: Any, years: Any, rejected: Any) -> dict[str, Any]:
    """What is left of F1 and errors, overall and by year."""
    wrong = labels != y

    def f1(rows: Any) -> float:
        hits = np.sum(rows & (y == 1) & ~wrong)
        return float(2 * hits / (2 * hits + np.sum(rows & wrong)))

    return {
        "caught": float(np.mean(rejected[wrong])),
        "f1": f1(~rejected),
        "error": float(np.mean(wrong[~rejected])),
        "by year": [f1(~rejected & (years == year)) for year in np.unique(years)],
    }


def _draw_readme(found: dict[str, list[Any]]) -> None:
    """Without the soft vote, which keeps hardly any malware after 2014."""
    fig, ax = plt.subplots(figsize=(8.4, 3.2), layout="constrained")
    years = range(2013, 2019)
    lines = {
        '`measure="drift"`': ('measure="drift"', "#d55e00"),
        "margin, the paper's measure for an SVM": ("margin, the paper's\nmeasure for an SVM", "#0072b2"),
        "the detector's own probability": ("the detector's\nown probability", "#e69f00"),
        "nothing": ("nothing rejected", "#888888"),
    }
    for name, (label, color) in lines.items():
        values = np.array([run["by year"] for run in found[name]])
        width = 2.6 if "drift" in name else 1.6
        ax.plot(years, values.mean(axis=0), marker="o", ms=4, lw=width, color=color, label=label)
        ax.fill_between(years, values.min(axis=0), values.max(axis=0), color=color, alpha=0.12, lw=0)
    ax.set(ylabel="F1 of the kept answers", ylim=(0.5, 1.01))
    ax.set_title("A detector of 2012, with 15% of every month rejected")
    ax.set_xticks(years)
    ax.grid(alpha=0.3)
    fig.legend(frameon=False, loc="outside right center", title="rejected by", alignment="left")
    save(fig, "drift")


if __name__ == "__main__":
    mpl.rcParams["svg.hashsalt"] = "transcendent"
    write("readme", table(), PAGE.parents[1] / "README.md")
