"""The oldest versions that the project says it works with: installed, and used."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
SMOKE = """
import numpy as np
import pandas as pd
from distributed import Client
from lightgbm import LGBMClassifier
from sklearn.datasets import make_classification
from sklearn.svm import LinearSVC
from xgboost import XGBClassifier
import transcendent as t
from transcendent.artifacts import load, mlflow, save
from transcendent.batch import decide_table
from transcendent.measures import CombinedMeasure, NeighbourRatio
from transcendent.report import write_report
from transcendent.temporal import backtest


def main():
    X, y = make_classification(2000, n_informative=6, flip_y=0.1, random_state=0)
    rows = pd.DataFrame(X, columns=[f"f{i}" for i in range(20)])
    svm, common = LinearSVC(), {"random_state": 0, "verbose": False}
    for evaluator in (
        t.CrossConformalEvaluator(svm, cv=3, **common),
        t.TransductiveEvaluator(svm, cv="loo", **common),
        t.InductiveEvaluator(svm, measure=CombinedMeasure(["auto", NeighbourRatio()]), **common),
        t.StreamingBudget(t.InductiveEvaluator(svm, **common), rate=0.1),
        t.InductiveEvaluator(LGBMClassifier(verbose=-1), **common),
        t.InductiveEvaluator(XGBClassifier(n_estimators=5), **common),
        t.InductiveEvaluator(svm, **common),
    ):
        evaluator.fit(rows[:1000], y[:1000])
        save(evaluator, "saved.transcendent")
        decisions = evaluator.decide(rows[1000:])
        loaded = load("saved.transcendent", trusted=["lightgbm", "xgboost"])
        assert (loaded.decide(rows[1000:]).accepted == decisions.accepted).all()
    assert len(decisions.to_pandas()) == len(decisions.to_polars()) == decisions.to_arrow().num_rows
    rows[1000:].assign(id=np.arange(1000)).to_parquet("rows.parquet")
    with Client(n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
        decide_table("saved.transcendent", "rows.parquet", "decided", identifier="id", client=client)
    found = pd.read_parquet("decided").sort_values("id")
    assert (found["accepted"].to_numpy() == decisions.accepted).all()
    times = np.datetime64("2024-01-01") + np.arange(2000) // 8
    write_report(backtest(t.InductiveEvaluator(svm, **common), X, y, times, train="2024-04"), "report.html")


if __name__ == "__main__":
    main()
"""


def floors():
    """The least version of every package that is declared with one, in the core or an extra."""
    declared = [*PROJECT["dependencies"], *(line for lines in EXTRAS.values() for line in lines)]
    needed = [Requirement(line) for line in declared]
    return {
        (need.name, specifier.version)
        for need in needed
        for specifier in need.specifier
        if specifier.operator == ">="
    }


def test_every_dependency_has_one_floor():
    assert len({name for name, _ in floors()}) == len(floors())
    declared = [line for lines in (PROJECT["dependencies"], *EXTRAS.values()) for line in lines]
    assert all(">=" in line for line in declared if not line.startswith("transcendent["))


@pytest.mark.full
def test_the_floors_can_be_installed_together_and_work(tmp_path):
    def run(*command):
        done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    run("uv", "venv", "--quiet", "--python", sys.executable, "oldest")
    python = str(tmp_path / "oldest/bin/python")
    everything, lowest = f"{ROOT}[{','.join(EXTRAS)}]", ("--resolution", "lowest-direct")
    run("uv", "pip", "install", "--quiet", "--python", python, *lowest, everything)
    listed = run("uv", "pip", "list", "--quiet", "--python", python, "--format", "freeze")
    installed = dict(line.split("==") for line in listed.split() if "==" in line)
    for name, version in floors():
        assert Version(installed[name]) == Version(version), name
    (tmp_path / "smoke.py").write_text(SMOKE)
    run(python, "smoke.py")
    command = str(tmp_path / "oldest/bin/transcendent")
    run(command, "decide", "saved.transcendent", "rows.parquet", "--id", "id", "--out", "decided.csv")
    assert len((tmp_path / "decided.csv").read_text().splitlines()) == 1001
