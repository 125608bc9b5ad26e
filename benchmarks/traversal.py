"""How straight the code reads: follow calls through it, file by file.

python benchmarks/traversal.py            # needs the extras cli, dask and report; about a minute

Functions are listed by their first calls, which is the order in which one would read them, and shown as the
files they are in. Generator expressions and lambdas belong to the function around them. A return is a step to
a file that was left before.

The measure that we publish is the number of returns among the files of the packages that a flow is about:
``evaluators`` for fit and decide, ``cli``, ``batch`` and ``tables`` for a folder that is decided, ``cli``,
``experiments`` and ``tables`` for a TOML file, ``cli`` and ``report`` for a report, ``monitoring`` for a
monitor. Other packages are libraries to these flows: a reader may stop at their doors. Returns among all
files except those of ``_utils`` are shown too.

The folder, the TOML file and the report go through their commands; the backtest to report on is made before.
The monitor is built before measuring starts, so that only its update is followed. Every flow runs once before
it is followed, for imports and values that are computed once. All data ship with the package; ``-v`` lists
files and classes.
"""

import inspect
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.svm import LinearSVC
from typer.testing import CliRunner

import transcendent
from transcendent import InductiveEvaluator
from transcendent.artifacts import save
from transcendent.baselines import ProbabilityThresholds
from transcendent.cli.app import app
from transcendent.datasets import make_stream
from transcendent.monitoring import DriftMonitor
from transcendent.temporal import backtest

HOME = Path(inspect.getfile(transcendent)).parent
STREAM = make_stream(2000, concept=0.5, random_state=0)
PAST, LATER = slice(0, 1000), slice(1000, 2000)
NAMES = [f"x{i}" for i in range(STREAM.X.shape[1])]
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
    """Return the files of the functions called, in order of the first call of each, and the classes seen."""
    seen: set[Any] = set()
    files: list[str] = []
    classes: set[str] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(str(HOME)) or code.co_name.startswith("<"):
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
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return files, classes


def main() -> None:
    ice = fitted()
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "table").mkdir()
        frame = pd.DataFrame(STREAM.X, columns=NAMES)
        frame.to_parquet(here / "table/part.parquet")
        frame.assign(y=STREAM.y, t=STREAM.times.astype(str)).to_csv(here / "rows.csv", index=False)
        (here / "e.toml").write_text(TOML)
        save(InductiveEvaluator(LinearSVC(), random_state=0).fit(frame[PAST], STREAM.y[PAST]), here / "gate")
        backtested().save(here / "result")
        monitors = iter([DriftMonitor.of(ice), DriftMonitor.of(ice)])  # one per run
        for name, about, work in (
            ("rows through fit", "evaluators", fitted),
            ("rows through decide", "evaluators", lambda: ice.decide(STREAM.X[LATER])),
            ("a folder through the command decide", "cli batch tables", lambda: decide_folder(here)),
            ("a TOML file through the command backtest", "cli experiments tables", lambda: run_toml(here)),
            ("a result through the command report", "cli report", lambda: run("report", here / "result")),
            ("a stream through a monitor", "monitoring", lambda: next(monitors).update(STREAM.X[LATER])),
        ):
            files, classes = files_read(work)
            own = [file for file in files if file.split("/")[0] in about.split()]
            print(f"{name}: {returns(own)} returns in {about}, {returns(files)} in all;", end=" ")
            print(f"{len(set(files))} files, {len(classes)} classes")
            if "-v" in sys.argv:
                print("   ", " > ".join(files), "\n   ", ", ".join(sorted(classes)))


def returns(files: list[str]) -> int:
    steps = [file for file, before in zip(files, [None, *files], strict=False) if file != before]
    return len(steps) - len(set(steps))


def decide_folder(here: Path) -> None:
    run(
        "decide",
        here / "gate",
        here / "table",
        "--workers",
        1,
        "--out",
        tempfile.mkdtemp(dir=here),
        "--quiet",
    )


def run_toml(here: Path) -> None:
    run("backtest", here / "e.toml", "--out", tempfile.mkdtemp(dir=here), "--quiet")


def fitted() -> Any:
    return InductiveEvaluator(LinearSVC(), random_state=0).fit(STREAM.X[PAST], STREAM.y[PAST])


def run(*words: Any) -> None:
    done = CliRunner().invoke(app, [*map(str, words)])
    if done.exit_code:
        raise SystemExit(done.output)


def backtested() -> Any:
    rejectors = {"ICE": InductiveEvaluator(LinearSVC()), "probability": ProbabilityThresholds(LinearSVC())}
    return backtest(rejectors, STREAM.X, STREAM.y, STREAM.times, train="2020-06", verbose=False)


if __name__ == "__main__":
    main()
