"""Write the states of format 1 that must stay readable; not run again after the first release."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from transcendent import InductiveEvaluator, save
from transcendent.cli.app import app
from transcendent.explaining import CaseMemory
from transcendent.monitoring import DriftMonitor, HarmMonitor

V1 = Path(__file__).parent / "v1"
MONITORS: dict[str, dict[str, Any]] = {
    "plain": {},
    "mixture": {"betting": "mixture", "rule": "cusum", "threshold": 20.0},
    "sums": {"rule": "shiryaev-roberts", "random_state": 3},
}
FIRST, DRIFTED, LATER = slice(300, 500), slice(500, 700), slice(700, 800)
X, y = make_classification(800, 6, random_state=0)
X[500:] *= 0.4
X = X.round(6)
SETS = (np.random.default_rng(0).random((40, 30)) < 0.5).astype(int)


def table(rows: Any) -> Any:
    """Return rows as a frame."""
    return pd.DataFrame(rows).add_prefix("f")


def drift_of(monitor: DriftMonitor) -> dict[str, Any]:
    """Return what a monitor of drift says."""
    alarm, rejections = monitor.alarm, monitor.rejections
    said = {
        "n": monitor.n,
        "log_value": monitor.log_value,
        "log_values": [monitor.log_values[label] for label in monitor.classes.tolist()],
        "alarm": None if alarm is None else [alarm.at, alarm.log_value],
        "rejected": rejections.rejected,
        "expected": rejections.expected,
        "moved": monitor.movers(3),
        "history": _last(monitor.history),
    }
    return _plain(said)


def harm_of(monitor: HarmMonitor) -> dict[str, Any]:
    """Return what a monitor of harm says."""
    said = {
        "error": list(monitor.kept_error),
        "log_value": monitor.log_value,
        "alarm": None if monitor.alarm is None else [monitor.alarm.at, monitor.alarm.log_value],
        "batches": monitor.batches,
        "history": _last(monitor.history),
    }
    return _plain(said)


def audit(monitor: HarmMonitor, days: range, error: float) -> None:
    """Add batches of labels."""
    for day in days:
        rng = np.random.default_rng(day)
        doubt = rng.random(50) * error * 2
        wrong = rng.random(20) < error
        monitor.update(wrong, doubt=doubt[:20], all_doubt=doubt)


def memory_of(memory: CaseMemory) -> dict[str, Any]:
    """Return what a case memory says of some objects."""
    said = {
        "text": repr(memory),
        "suggested": memory.suggest(SETS),
        "settled": memory.settle(SETS, range(40)),
    }
    return _plain(said)


def _last(history: Any) -> list[Any]:
    columns = {name: np.asarray(values)[-3:] for name, values in history.columns.items()}
    return [np.asarray(history.at)[-3:], columns]


def _plain(said: Any) -> Any:
    """Return what JSON makes of it."""
    return json.loads(json.dumps(said, default=lambda value: getattr(value, "tolist", value.__str__)()))


def write(folder: Path) -> None:
    warnings.simplefilter("ignore")
    folder.mkdir(exist_ok=True)
    ice = InductiveEvaluator(LogisticRegression(), random_state=0).fit(table(X[:300]), y[:300])
    save(ice, folder / "ice.transcendent")
    states, expected = {}, {}
    for name, settings in MONITORS.items():
        monitor = DriftMonitor.of(ice, X=table(X[:300]), **settings)
        for part in (FIRST, DRIFTED):
            monitor.update(table(X[part]))
        states[name], before = monitor.to_json(), drift_of(monitor)
        monitor.update(table(X[LATER]))
        expected[name] = [before, drift_of(monitor)]
    harm = HarmMonitor(promised=0.05)
    audit(harm, range(10), 0.03)
    states["harm"], before = harm.to_json(), harm_of(harm)
    audit(harm, range(10, 30), 0.4)
    expected["harm"] = [before, harm_of(harm)]
    memory = CaseMemory(12, settle=0.3, negative=["goodware"], random_state=0)
    labels = np.where(SETS[:15, 0] == 1, "malware", "goodware")
    memory.add(SETS[:15], labels, authors="ann", times=np.arange("2026-01-01", "2026-01-16", dtype="M8[D]"))
    memory.audit(labels[:3], labels[:3])
    (folder / "memory.npz").write_bytes(memory.to_bytes())
    expected["memory"] = memory_of(memory)
    table(X[FIRST]).to_csv(folder / "objects.csv", index=False)
    (folder / "state.json").unlink(missing_ok=True)
    watch(folder / "objects.csv", folder / "state.json", folder)
    np.savez_compressed(folder / "later.npz", X=X[LATER])
    (folder / "states.json").write_text(json.dumps(states) + "\n")
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


def watch(file: Path, state: Path, folder: Path) -> Any:
    """Run the command that monitors the objects of a file."""
    given = [str(folder / "ice.transcendent"), str(file), "--state", str(state)]
    return CliRunner().invoke(app, ["monitor", *given])


if __name__ == "__main__":
    write(V1)
