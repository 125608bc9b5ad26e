"""`transcendent check` on six years of answers: its time, and whether its numbers are those of a backtest.

OMP_NUM_THREADS=1 TRANSCENDENT_DATA=data python benchmarks/check_answers.py    # about a minute

A linear SVM is fitted on the Android apps of 2012. Its decision scores of 2013 to 2018, with the month and
the truth, are written as CSV; the command reads nothing else. The same budget is then run in Python from the
scores in memory.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.svm import LinearSVC

from transcendent import Answers, RejectionBudget, ScoreEvaluator, backtest
from transcendent.datasets import load_apigraph


def past_answers() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return decision scores, true labels and months after 2012."""
    data = load_apigraph()
    months = data.times.astype("datetime64[M]")
    old = months < np.datetime64("2013-01")
    svm = LinearSVC(C=0.1, random_state=0).fit(data.X[old], data.y[old])
    return svm.decision_function(data.X[~old]), data.y[~old], months[~old]


def main() -> None:
    """Write the table, check it, and compare."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    score, truth, month = past_answers()
    table, toml = folder / "answers.csv", folder / "answers.toml"
    pd.DataFrame({"month": month.astype(str), "score": score, "truth": truth}).to_csv(table, index=False)
    toml.unlink(missing_ok=True)
    started = time.perf_counter()
    command = [sys.executable, "-m", "transcendent", "check", str(table), "--toml", str(toml), "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{len(score):,} answers, {table.stat().st_size / 1e6:.1f} MB of CSV: checked in {seconds:.1f} s "
        f"({used.ru_utime + used.ru_stime:.1f} s of processor time, {used.ru_maxrss / 1024:.0f} MB)"
    )
    said = json.loads(done.stdout)
    for heading, text in said["lead"].items():
        print(f"{heading}: {text}")
    train = tomllib.loads(toml.read_text())["split"]["train"]
    budget = {"budget": RejectionBudget(ScoreEvaluator(), rate=0.15)}
    answers = Answers((score > 0).astype(int), np.column_stack([score, -score]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mine = backtest(budget, answers, truth, month, train=train, verbose=False).summary()
    same = all(
        np.array_equal(mine[key][0], said["summary"][key][0])
        for key in mine
        if key != "rejector" and not np.isnan(mine[key][0])
    )
    print(f"the numbers of the backtest in Python are {'the same' if same else 'DIFFERENT'}")
    if not same:
        sys.exit(1)


if __name__ == "__main__":
    main()
