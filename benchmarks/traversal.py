"""How straight the code reads: follow four things through it, file by file.

python benchmarks/traversal.py            # needs the extras cli, dask and report; about a minute

Functions are listed in the order in which they are first called, which is the order in which one would read
them, and as the files they are in. A return is a step to a file that had been left before.
"""

import inspect
import sys
import tempfile
from collections.abc import Callable
from copy import copy
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import make_classification
from sklearn.svm import LinearSVC

import transcendent
from transcendent import InductiveEvaluator
from transcendent.datasets import make_stream

HOME = Path(inspect.getfile(transcendent)).parent
TOML = """
[data]
file = "rows.csv"
label = "y"
time = "t"

[split]
train = "2020-06"

[detector]
class = "sklearn.svm.LinearSVC"

[rejectors.ICE]
"""


def files_read(work: Callable[[], Any]) -> tuple[list[str], set[str]]:
    """The files of the functions called, in order of the first call of each, and the classes seen."""
    seen: set[Any] = set()
    files: list[str] = []
    classes: set[str] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(str(HOME)) or code.co_name == "<module>":
            return
        if "self" in frame.f_locals and type(frame.f_locals["self"]).__module__.startswith("transcendent"):
            classes.add(type(frame.f_locals["self"]).__name__)
        if code in seen or "_utils" in code.co_filename:
            return
        seen.add(code)
        file = str(Path(code.co_filename).relative_to(HOME))
        if not files or files[-1] != file:
            files.append(file)

    work()  # imports, and what is computed once
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return files, classes


def returns(files: list[str]) -> int:
    return len(files) - len(set(files))


def main() -> None:
    X, y = make_classification(600, random_state=0)

    def fit_and_decide() -> Any:
        return InductiveEvaluator(LinearSVC(), random_state=0).fit(X[:400], y[:400]).decide(X[400:])

    ice = InductiveEvaluator(LinearSVC(), random_state=0).fit(X[:400], y[:400])
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        for name, work in {
            "X through fit and decide": fit_and_decide,
            "X through decide": lambda: ice.decide(X[400:]),
            "a table through batch": lambda: decide_folder(ice, X, here),
            "a TOML file through cli": lambda: run_toml(here),
            "a result through report": lambda: report(here),
        }.items():
            files, classes = files_read(work)
            print(f"{name}: {returns(files)} returns, {len(set(files))} files, {len(classes)} classes")
            if "-v" in sys.argv:
                print("   ", " > ".join(files), "\n   ", ", ".join(sorted(classes)))


def decide_folder(ice: Any, X: Any, here: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from transcendent.batch import decide_table

    (here / "table").mkdir(exist_ok=True)
    names = [f"x{i}" for i in range(X.shape[1])]
    pq.write_table(pa.table(dict(zip(names, X.T, strict=True))), here / "table/part.parquet")
    out = Path(tempfile.mkdtemp(dir=here))
    decide_table(ice, here / "table", out, features=names, n_jobs=1, verbose=False)


def run_toml(here: Path) -> None:
    from typer.testing import CliRunner

    from transcendent.cli.app import app

    stream = make_stream(2000, random_state=0)
    columns = [*stream.X.T, stream.y, np.datetime_as_string(stream.times, unit="D")]
    names = [f"x{i}" for i in range(stream.X.shape[1])]
    lines = [",".join([*names, "y", "t"]), *(",".join(map(str, row)) for row in zip(*columns, strict=True))]
    place = Path(tempfile.mkdtemp(dir=here))
    (place / "rows.csv").write_text("\n".join(lines))
    (place / "e.toml").write_text(TOML)
    done = CliRunner().invoke(app, ["backtest", str(place / "e.toml"), "--quiet"])
    if done.exit_code:
        raise SystemExit(done.output)


@cache
def result() -> Any:
    from transcendent.baselines import ProbabilityThresholds
    from transcendent.temporal import backtest

    stream = make_stream(2000, random_state=0)
    rejectors = {"ICE": InductiveEvaluator(LinearSVC()), "probability": ProbabilityThresholds(LinearSVC())}
    return backtest(rejectors, stream.X, stream.y, stream.times, train="2020-06", verbose=False)


def report(here: Path) -> None:
    from transcendent.report import write_report

    found = copy(result())
    for name in [n for n in vars(found) if n not in {field.name for field in fields(found)}]:
        del vars(found)[name]  # values computed once would hide their functions
    write_report(found, here / "report.html")


if __name__ == "__main__":
    main()
