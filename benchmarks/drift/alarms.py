"""Alarms: how often they are false, and how soon they are raised, beside river's detectors."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from guarantees import Problem
from river import drift as river
from scipy.stats import binom
from tables import markdown, run_all, save

from transcendent import Answers, ScoreEvaluator
from transcendent.monitoring import DriftMonitor, HarmMonitor
from transcendent.monitoring.evidence import JointEvidence
from transcendent.plots.base import COLOURS

TWO_CLASSES = Problem(2)
CALIBRATION = 2000
STREAM = 5000
AUDITED = 16
_BLOCK = 25
_RATE = 0.05
OURS: dict[str, tuple[Any, Any]] = {
    "DriftMonitor": ("jumper", "ville"),
    "mixture": ("mixture", "ville"),
    "CUSUM": ("jumper", "cusum"),
    "Shiryaev–Roberts": ("jumper", "shiryaev-roberts"),
}
THEIRS: dict[str, Callable[[float], Any]] = {
    "ADWIN": river.ADWIN,
    "KSWIN": lambda alpha: river.KSWIN(alpha=alpha, seed=0),
    "Page–Hinkley": lambda level: river.PageHinkley(threshold=level),
}
LEVELS: dict[str, list[float]] = {
    **{name: np.linspace(0, 14, 141).tolist() for name in OURS},
    "ADWIN": [0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99],
    "KSWIN": [1e-5, 3e-5],  # the slow one
    "Page–Hinkley": np.geomspace(5, 100, 25).tolist(),
}


def no_drift_block(seed: int) -> dict[str, int]:
    """Of some streams without drift, in how many each alarm is raised."""
    generator, found = np.random.default_rng([0, seed]), dict.fromkeys(("drift", "credibility", "harm"), 0)
    for i in range(_BLOCK):
        judge = calibrated(generator)
        answers, y = TWO_CLASSES.objects(generator, STREAM)
        labels = answers.labels
        monitor = DriftMonitor.of(judge, threshold=100, random_state=_BLOCK * seed + i)
        decisions = monitor.update(answers)
        fed = JointEvidence.of(2, "jumper", "ville", 100.0)
        fed.update(labels, decisions.credibility)
        wrong, accepted = labels != y, np.flatnonzero(decisions.accepted)
        harm = HarmMonitor(promised=_true_error(judge), delta=0.05)
        for day in np.array_split(accepted, 25):
            harm.update(wrong[generator.choice(day, AUDITED, replace=False)])
        alarms = {"drift": monitor.alarm, "credibility": fed.alarm, "harm": harm.alarm}
        for name, alarm in alarms.items():
            found[name] += alarm is not None
    return found


def no_drift() -> str:
    """False alarms of each kind, beside what was promised."""
    runs = 1000
    blocks = run_all(no_drift_block, [()], range(runs // _BLOCK))[()]
    promised = {"drift": 0.01, "credibility": 0.01, "harm": 0.05}
    names = {
        "drift": "DriftMonitor, threshold 100",
        "credibility": "the same bets on credibility, which is not uniform",
        "harm": "HarmMonitor, delta .05, the promise just kept",
    }
    rows = []
    for key, share in promised.items():
        false = sum(block[key] for block in blocks)
        bound = int(binom.ppf(0.999, runs, share))
        rows.append([names[key], f"{share}", f"{false / runs:.3f}", f"{bound / runs:.3f}"])
    head = ["alarm", "promised at most", "false", "bound (999 in 1,000)"]
    return f"{runs:,} streams of {STREAM:,} objects.\n\n" + markdown(head, rows)


def calibrated(generator: np.random.Generator) -> ScoreEvaluator:
    """A judge of objects that have not moved."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ScoreEvaluator().fit(*TWO_CLASSES.objects(generator, CALIBRATION))


def _true_error(judge: ScoreEvaluator) -> float:
    """The error among accepted answers, from many objects."""
    answers, y = TWO_CLASSES.objects(np.random.default_rng(99), 100_000)
    accepted = judge.decide(answers).accepted
    return float(np.mean(answers.labels[accepted] != y[accepted]))


KINDS = ("none", "sudden", "gradual", "recurring")
CHANGE = 2000  # objects before the change
QUIET = 200
DRIFTING = 100


def share_changed(kind: str) -> Any:
    """For each object of a stream, how far the world has moved, from 0 to 1."""
    position = np.arange(STREAM)
    after = position >= CHANGE
    return {
        "none": np.zeros(STREAM),
        "sudden": after.astype(float),
        "gradual": np.clip((position - CHANGE) / 2000, 0, 1),
        "recurring": (after & ((position - CHANGE) // 500 % 2 == 0)).astype(float),
    }[kind]


def stream(generator: np.random.Generator, kind: str) -> Answers:
    """Answers about objects whose evidence for their own class shrinks as the world moves."""
    return weakened(*TWO_CLASSES.objects(generator, STREAM), share_changed(kind))


def weakened(answers: Answers, y: Any, share: Any) -> Answers:
    """The answers as the evidence for each object's own class shrinks, by a share from 0 to 1."""
    moved = np.where(y == 1, 1.0, 0.3) * share
    suspicion = (answers.scores[:, 0] - answers.scores[:, 1]) / 2 - np.where(y == 1, 1, -1) * moved
    return Answers((suspicion > 0).astype(int), np.column_stack([suspicion, -suspicion]))


def watch_block(kind: str, levels: dict[str, list[float]], seed: int) -> dict[str, list[list[int]]]:
    """When each detector first fires at each of its levels, in some streams; 0 if never."""
    generator = np.random.default_rng([KINDS.index(kind), seed])
    found: dict[str, list[list[int]]] = {name: [] for name in levels}
    for i in range(_BLOCK):
        judge = calibrated(generator)
        answers = stream(generator, kind)
        for name, (betting, rule) in OURS.items():
            monitor = DriftMonitor.of(judge, betting=betting, rule=rule, random_state=_BLOCK * seed + i)
            credibility = monitor.update(answers).credibility
            history = monitor.history
            over = [np.array(history.columns["log_value"]) >= level for level in levels[name]]
            found[name].append([int(history.at[o.argmax()]) if o.any() else 0 for o in over])
        for name, make in THEIRS.items():
            found[name].append([_fires(make(level), credibility) for level in levels[name]])
    return found


def _fires(detector: Any, values: Any) -> int:
    for i, value in enumerate(values.tolist(), start=1):
        detector.update(value)
        if detector.drift_detected:
            return i
    return 0


def runs_of(kind: str, levels: dict[str, list[float]], n: int) -> dict[str, Any]:
    """For each detector (streams, levels) of first alarms."""
    some = partial(watch_block, kind, levels)
    blocks = run_all(some, [()], range(n // _BLOCK))[()]
    return {name: np.array([run for block in blocks for run in block[name]]) for name in levels}


def alarms() -> str:
    """Delay and misses of every detector, each at the level whose measured false alarms are nearest to 5%."""
    quiet = runs_of("none", LEVELS, QUIET)
    levels, false = {}, {}
    for name, fired in quiet.items():
        rates = np.mean(fired > 0, axis=0)
        best = int(np.argmin(np.abs(rates - _RATE)))
        levels[name], false[name] = [LEVELS[name][best]], rates[best]
    found = {kind: runs_of(kind, levels, DRIFTING) for kind in KINDS[1:]}
    rows = [
        [
            name,
            f"{false[name]:.3f}",
            *(cell for kind in KINDS[1:] for cell in _cells(found[kind][name][:, 0])),
        ]
        for name in levels
    ]
    rows.append(["always fires", "1.000", *["0", "0", "1"] * 3])
    rows.append(["never fires", "0.000", *["–", "1", "0"] * 3])
    _draw(found)
    head = ["detector", "false alarms"]
    for kind in KINDS[1:]:
        head += [f"{kind}: objects to the alarm", "missed", "too early"]
    return markdown(head, rows)


def _cells(at: Any) -> list[str]:
    early, late = (at > 0) & (at <= CHANGE), at > CHANGE
    delay = f"{np.median(at[late] - CHANGE):.0f}" if late.any() else "–"
    return [delay, f"{np.mean(at == 0):.2f}", f"{np.mean(early):.2f}"]


def _draw(found: dict[str, dict[str, Any]]) -> None:
    """The share of streams with an alarm against the objects since the change."""
    fig, axes = plt.subplots(1, 3, figsize=(9.6, 3.4), layout="constrained", sharey=True)
    after = np.arange(0, STREAM - CHANGE, 10)
    for ax, (kind, runs) in zip(axes, found.items(), strict=True):
        ax.set_prop_cycle(color=COLOURS)
        for name, fired in runs.items():
            at = fired[:, 0]
            shares = [np.mean((at > 0) & (at <= CHANGE + n)) for n in after]
            ax.plot(after, shares, label=name, linestyle="--" if name in THEIRS else "-")
        ax.set(title=kind, xlabel="objects since the change", ylim=(0, 1.02))
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("streams with an alarm")
    fig.legend(*axes[0].get_legend_handles_labels(), frameon=False, loc="outside right center")
    save(fig, "alarms")
