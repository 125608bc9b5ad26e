"""Two years of a gate that learns every month, beside one that does not, and beside the offline backtest.

TRANSCENDENT_DATA=... OMP_NUM_THREADS=1 python benchmarks/gate/months.py [--months 24] [--labels 100]
    [--what both|judge|detector] [--seed 0] [--picture docs/images/months.svg]

A LinearSVC, judged by one LightGBM, is fitted on the apps of 2012 and served within a budget of 15%. The
apps of 2013 and 2014 come over HTTP in batches, month by month; the order within a month is drawn. At the end
of a month, analysts label what they are given first, with the true labels: the audit, objects that a shadow
disagrees about, and the least trusted of the rejected ones. Then commands do what an operator would do:
`quarantine close` of what nobody has looked at, `model compare` of the shadow with the model that decides,
`model promote` unless the shadow is found worse, and `gate learn`, whose result is the shadow of the next
month. So a model decides one month later than it could.

The other gate has the same artifact, budget and objects, and learns nothing. The backtest has the same
objects, budget and number of labels, a fifth of which is an audit; its model learns before the next month.
Time is compressed: monitors see a month within a minute, and no day of the audit ends.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from lightgbm import LGBMClassifier
from sklearn.metrics import f1_score
from sklearn.svm import LinearSVC
from sqlalchemy import text

from transcendent import CombinedMeasure, InductiveEvaluator, RejectionBudget
from transcendent.datasets import Dataset, load_apigraph
from transcendent.gate import GateClient
from transcendent.gate.database import connect
from transcendent.measures import SecondOpinion
from transcendent.temporal import Retraining, backtest

sys.path.append(str(Path(__file__).parents[2]))  # a script finds only modules beside itself

from tests.gate.processes import Gate, cluster_in

BUDGET, AUDIT, BATCH = 0.15, 0.005, 200
TRUST = "lightgbm"
OPINION: dict[str, Any] = {
    "n_estimators": 200,
    "num_leaves": 63,
    "colsample_bytree": 0.2,
    "min_child_samples": 5,
    "verbose": -1,
    "n_jobs": 1,
}
FLUSHED = 8  # seconds until shadows have compared and stored the last objects
CLOSED = 75  # seconds until the monitors have the last minute
TOML = """
seed = {seed}

[data]
file = "rows.npz"
table = "labels.parquet"
label = "malware"

[detector]
class = "sklearn.svm.LinearSVC"
C = 0.1

[rejectors.ICE.measure]
class = "CombinedMeasure"
bag = "all"
measures = [{{ class = "SecondOpinion", estimator = {{ {opinion} }} }}]
"""


class Month(NamedTuple):
    """What became of a month's objects."""

    f1: float
    rejected: float
    malware_rejected: float


class Replayed(NamedTuple):
    """Months, what was done at the end of each, and the alarms in each."""

    months: list[Month]
    done: list[str]
    alarms: list[set[str]]


def measured(labels: Any, accepted: Any, y: Any) -> Month:
    """Return F1 of the accepted answers, and the shares of objects and of malware that are rejected."""
    kept = f1_score(y[accepted], labels[accepted])
    return Month(float(kept), float(1 - accepted.mean()), float(1 - accepted[y == 1].mean()))


def run(*words: str) -> str:
    """Run a command, and return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "transcendent", *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"transcendent {' '.join(words)}\n{done.stderr}")
    return done.stdout.strip()


def fit(apps: Dataset, folder: Path, seed: int) -> None:
    """Fit on the apps of 2012, and leave the experiment and its artifact in the folder."""
    past = apps.times < np.datetime64("2013")
    sp.save_npz(folder / "rows.npz", sp.csr_matrix(apps.X[past]))
    pd.DataFrame({"malware": apps.y[past]}).to_parquet(folder / "labels.parquet")
    given = {"class": '"lightgbm.LGBMClassifier"', **OPINION}
    opinion = ", ".join(f"{name} = {value}" for name, value in given.items())
    (folder / "apps.toml").write_text(TOML.format(seed=seed, opinion=opinion))
    run("fit", str(folder / "apps.toml"))


def months_of(apps: Dataset, n: int, seed: int) -> list[Any]:
    """Return the rows of each month from 2013 on, in an order that is drawn."""
    generator = np.random.default_rng(seed)
    month = apps.times.astype("datetime64[M]")
    first = np.datetime64("2013-01")
    return [generator.permutation(np.flatnonzero(month == first + i)) for i in range(n)]


class Operator:
    """Runs one gate and its database in a folder, by commands; ``what`` learns, or nothing if None."""

    def __init__(self, folder: Path, url: str, what: str | None, labels: int, seed: int) -> None:
        os.environ["TRANSCENDENT_GATE_DATABASE"] = url
        os.environ["TRANSCENDENT_GATE_TRUSTED"] = TRUST
        run("gate", "migrate")
        engine = connect(url)
        with engine.begin() as connection:  # so that the samples are the same in every run
            drawn = "UPDATE secret SET value = sha256(convert_to(name || :seed, 'UTF8'))"
            connection.execute(text(drawn), {"seed": str(seed)})
        engine.dispose()
        self._toml, self._what, self._labels = folder / "apps.toml", what, labels
        self.sensor, self._ann = (
            run("gate", "token", "create", name, "--role", role)
            for name, role in (("sensor", "client"), ("ann", "analyst"))
        )
        self._model = run("gate", "model", "add", str(self._toml.with_suffix(".transcendent")))
        self._shadow = ""
        self.since: dict[str, int] = {}
        self._promote(self._model, "the first model", 0)

    def _promote(self, digest: str, reason: str, month: int) -> None:
        settings = ("--budget", str(BUDGET), "--audit", str(AUDIT))
        run("gate", "model", "promote", digest, "--reason", reason, *settings)
        self.since[digest] = month

    def end(self, month: int, address: str, y: Any) -> str:
        """Label, compare, promote and learn at the end of a month; return what was done."""
        if self._what is None:
            return ""
        time.sleep(FLUSHED)
        audited = self._label(address, y)
        run("gate", "quarantine", "close", "--model", self._model, "--yes")
        did = self._take_or_leave(month) if self._shadow else "first labels"
        learnt = json.loads(run("gate", "learn", str(self._toml), "--what", self._what, "--json"))
        self._shadow = learnt["model"]
        self._wait_for_shadow()
        return f"{did}; {audited} labels of accepted objects"

    def _wait_for_shadow(self) -> None:
        """Wait until the gate has loaded it: a month passes within seconds here."""
        for _ in range(60):
            (gate,) = json.loads(run("gate", "model", "processes", "--json"))["processes"]
            if self._shadow in gate["loaded"]:
                return
            time.sleep(1)
        sys.exit(f"the gate has not loaded its shadow: {gate['problem']}")

    def _label(self, address: str, y: Any) -> int:
        """Label the first objects of the queue; return how many of them had been accepted."""
        left, accepted = self._labels, 0
        with GateClient(address, self._ann) as gate:
            while left and (items := gate.claim(min(left, 50))["items"]):
                for item in items:
                    gate.resolve(item["id"], y[int(item["object_id"].removeprefix("app"))])
                left -= len(items)
                accepted += sum(item["blind"] for item in items)  # shown once they have a label
        return accepted

    def _take_or_leave(self, month: int) -> str:
        """Promote the shadow unless it is found worse."""
        found = json.loads(run("gate", "model", "compare", self._model, self._shadow, "--json"))
        if found["better"] == "a":
            run("gate", "model", "retire", self._shadow, "--reason", "worse")
            return "shadow worse, retired"
        self._model = self._shadow
        self._promote(self._model, "not worse", month + 1)
        return f"promoted, {'better' if found['better'] else 'not worse'}"

    def alarms(self, sizes: list[int]) -> list[set[str]]:
        """Return the kinds of alarms in each month: that of the object at which they were raised."""
        found: list[set[str]] = [set() for _ in sizes]
        for each in json.loads(run("gate", "alarms", "--json"))["alarms"]:
            since = self.since[each["model"]]
            ends = np.cumsum(sizes[since:])
            found[since + int(np.searchsorted(ends, each["at"]))].add(each["kind"])
        return found


def replay(apps: Dataset, months: list[Any], folder: Path, what: str | None, options: Any) -> Replayed:
    """Send the months to a gate that follows the deployments."""
    with cluster_in(folder / f"gate-{what}") as server, ExitStack() as stack:
        operator = Operator(folder, server.url, what, options.labels, options.seed)
        gate = Gate(server.url, None, folder / f"{what}.log", audit=None, log_level="warning").wait(180)
        stack.callback(gate.stop)
        sensor = stack.enter_context(GateClient(gate.address, operator.sensor))
        found, done = [], []
        for month, rows in enumerate(months):
            began, decisions = time.perf_counter(), list[Any]()
            for part in np.array_split(rows, -(-len(rows) // BATCH)):
                decisions += sensor.decide([f"app{i}" for i in part.tolist()], apps.X[part])
            labels, accepted = (
                np.array([each[name] for each in decisions]) for name in ("label", "accepted")
            )
            found.append(measured(labels, accepted, apps.y[rows]))
            done.append(operator.end(month, gate.address, apps.y))
            took = time.perf_counter() - began
            print(f"{month + 1:2} F1 {found[-1].f1:.3f} {done[-1]} {took:.0f} s", file=sys.stderr)
        if what is None:  # its months share a minute, whose objects are added in an order that is drawn
            return Replayed(found, done, [])
        time.sleep(CLOSED)
        return Replayed(found, done, operator.alarms([len(rows) for rows in months]))


def offline(apps: Dataset, months: list[Any], retrain: Retraining | None, seed: int) -> list[Month]:
    """Return what the backtest gives."""
    judge = CombinedMeasure([SecondOpinion(LGBMClassifier(**OPINION))], bag="all")
    ice = InductiveEvaluator(LinearSVC(C=0.1), measure=judge, verbose=False)
    end = np.datetime64("2013-01") + len(months)
    chosen = apps[apps.times.astype("datetime64[M]") < end]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # apps of 2012 come again later
        result = backtest(
            {"ICE": RejectionBudget(ice, rate=BUDGET)},
            chosen.X,
            chosen.y,
            chosen.times,
            train="2013",
            retrain=retrain,
            random_state=seed,
            verbose=False,
        )
    said = result.answers["ICE"]
    places = [np.flatnonzero(result.period == i) for i in range(len(months))]
    return [measured(said.labels[rows], said.accepted[rows], result.y[rows]) for rows in places]


def show(columns: dict[str, list[Month]], loop: Replayed, months: list[Any]) -> None:
    """Print F1, then what is rejected, with a row for each month and one with the means; then the rest."""
    head = " | ".join(["month", "apps", *columns])
    for what, fields in (
        ("F1 of accepted answers", ["f1"]),
        ("share of apps rejected, of malware rejected", Month._fields[1:]),
    ):
        print(f"\n{what}\n\n| {head} |\n{'|---' * (len(columns) + 2)}|")
        for i, rows in enumerate(months):
            print(
                _row(
                    np.datetime64("2013-01") + i,
                    len(rows),
                    [of[i : i + 1] for of in columns.values()],
                    fields,
                )
            )
        print(_row("mean", sum(map(len, months)), list(columns.values()), fields))
    print("\n| month | alarms with the loop | at the end of the month |\n|---|---|---|")
    for i, (alarms, done) in enumerate(zip(loop.alarms, loop.done, strict=True)):
        print(f"| {np.datetime64('2013-01') + i} | {', '.join(sorted(alarms))} | {done} |")


def _row(name: Any, n: int, columns: list[list[Month]], fields: Sequence[str]) -> str:
    means = [[np.mean([getattr(each, field) for each in of]) for field in fields] for of in columns]
    cells = [", ".join(f"{mean:.3f}" for mean in of) for of in means]
    return f"| {name} | {n:,} | {' | '.join(cells)} |"


def draw(columns: dict[str, list[Month]], path: Path) -> None:
    """Plot F1 of the accepted answers, and the share of malware that analysts get, by month."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "transcendent"
    figure, (above, below) = plt.subplots(2, sharex=True, figsize=(7, 5), layout="constrained")
    for (name, months), style in zip(columns.items(), ("o-", "s-", "--", ":"), strict=True):
        at = np.datetime64("2013-01") + np.arange(len(months))
        above.plot(at, [each.f1 for each in months], style, label=name, markersize=3)
        below.plot(at, [each.malware_rejected for each in months], style, markersize=3)
    above.set(ylabel="F1 of accepted answers")
    below.set(ylabel="share of malware rejected", ylim=(0, 1))
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
    above.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--months", type=int, default=24)
    parser.add_argument("--labels", type=int, default=100, help="a month")
    parser.add_argument("--what", choices=["judge", "detector", "both"], default="both", help="what learns")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    apps = load_apigraph()
    months = months_of(apps, options.months, options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fit(apps, folder, options.seed)
        without = replay(apps, months, folder, None, options)
        loop = replay(apps, months, folder, options.what, options)
    learning = Retraining(options.labels, "rejected", what=options.what)
    columns = {
        "loop": loop.months,
        "no loop": without.months,
        "backtest": offline(apps, months, learning, options.seed),
        "backtest, no labels": offline(apps, months, None, options.seed),
    }
    show(columns, loop, months)
    if options.picture:
        draw(columns, options.picture)


if __name__ == "__main__":
    main()
