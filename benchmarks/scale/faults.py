"""Faults in the middle of decide_table, and whether every row is answered exactly once afterwards.

python benchmarks/scale/faults.py --folder /tmp/scale                                 # about 15 minutes
python benchmarks/scale/faults.py --folder /tmp/scale --rows 1000000 --repeats 1      # a quick trial
python benchmarks/scale/faults.py --folder /tmp/scale --cases worker disk             # the cases with a word

A run in a process of its own is struck once its first parts are there. It then finishes, or fails with a
message and is started again. The full disk is a small tmpfs, which takes root to mount.
"""

import multiprocessing
import os
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq
from common import (
    WORKERS,
    Rejector,
    answers,
    arguments,
    dask_processes,
    dask_workers,
    decide,
    dense_batch,
    first_files,
    fresh,
    markdown,
    one_thread,
    rejector,
    size,
    table,
    wait_until,
    written,
)
from distributed import Client
from joblib.externals.loky import get_reusable_executor

from transcendent.errors import WorkerLostWarning

SPAWN = multiprocessing.get_context("spawn")
FIRST_PARTS = 3
PATIENCE = 600.0
FINISHED = "finished."
KILLED = "killed without a word"
HEAD = ["fault", "struck in the middle", "exactly once afterwards", "seconds each", "what was said"]


@dataclass(frozen=True)
class Trial:
    """A table, where its answers go and what they have to be."""

    rejector: Rejector
    data: Path
    out: Path
    rows_per_task: int
    expected: dict[str, Any]
    parts: int = 0
    bytes_out: int = 0

    def decide(self, **how: Any) -> None:
        decide(self.rejector, self.data, self.out, rows_per_task=self.rows_per_task, **how)

    def has_begun(self) -> bool:
        return len(written(self.out)) >= FIRST_PARTS

    def is_in_the_middle(self) -> bool:
        return FIRST_PARTS <= len(written(self.out)) < self.parts

    def on(self, data: Path) -> "Trial":
        """The same on another table, decided once without disturbance to know what to expect."""
        fresh(self.out)
        undisturbed = replace(self, data=data)
        undisturbed.decide(n_jobs=WORKERS)
        files = written(self.out)
        expected = answers(self.out, pq.read_schema(files[0]).names)
        return replace(undisturbed, expected=expected, parts=len(files), bytes_out=size(self.out))


@dataclass(frozen=True)
class Outcome:
    """Whether the fault hit the middle of a run, what was said about it, and what is wrong afterwards."""

    struck: bool
    said: str
    wrong: str


class Run:
    """A trial in a process of its own."""

    def __init__(self, trial: Trial, where: Any) -> None:
        self._says, says = SPAWN.Pipe(duplex=False)
        self.process = SPAWN.Process(target=_run, args=(trial, where, says))
        self.process.start()
        says.close()

    def workers(self) -> list[psutil.Process]:
        """Its children, the busiest first."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        return sorted(children, key=lambda child: -child.cpu_times().user)

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def said(self) -> str:
        """That it finished, and its warnings; or its error."""
        try:
            if not self._says.poll(PATIENCE):
                self.kill()
                return f"no end within {PATIENCE:.0f} s"
            message: str = self._says.recv()
        except EOFError:
            message = KILLED
        self.process.join()
        return message


def _run(trial: Trial, where: Any, says: Any) -> None:
    one_thread()
    says.send(_error(trial, where))
    if where == "loky":
        get_reusable_executor().shutdown()  # a child of multiprocessing would wait for idle workers


def _error(trial: Trial, where: Any) -> str:
    try:
        with _workers(where) as how, warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", WorkerLostWarning)
            trial.decide(**how)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return " ".join([FINISHED, *(str(each.message) for each in warned)])


@contextmanager
def _workers(where: Any) -> Iterator[dict[str, Any]]:
    """Options of `decide_table` for loky, a scheduler's address, or a cluster with options of its own."""
    if where == "loky":
        yield {"n_jobs": WORKERS}
    elif isinstance(where, str):
        with Client(where) as client:
            yield {"client": client}
    else:
        with dask_workers(**where) as client:
            yield {"client": client}


# The faults


def killed_worker(trial: Trial, where: Any) -> Outcome:
    run = Run(trial, where)
    wait_until(trial.has_begun, "the first parts")
    run.workers()[0].kill()
    struck = trial.is_in_the_middle()
    return finish(trial, where, struck, run.said())


def killed_scheduler(trial: Trial) -> Outcome:
    with dask_processes(trial.out.parent) as dask:
        run = Run(trial, dask.address)
        wait_until(trial.has_begun, "the first parts")
        dask.scheduler.kill()
        struck, said = trial.is_in_the_middle(), run.said()
    with dask_processes(trial.out.parent) as dask:
        return finish(trial, dask.address, struck and not finished(said), said)


def killed_client_of_dask(trial: Trial) -> Outcome:
    """Its tasks may still be running when the next client comes."""
    with dask_processes(trial.out.parent) as dask:
        run = Run(trial, dask.address)
        wait_until(trial.has_begun, "the first parts")
        run.kill()
        return finish(trial, dask.address, trial.is_in_the_middle(), KILLED)


def killed_client_of_loky(trial: Trial) -> Outcome:
    """Its workers may still be running when the next client comes."""
    run = Run(trial, "loky")
    wait_until(trial.has_begun, "the first parts")
    orphans = run.workers()
    run.kill()
    outcome = finish(trial, "loky", trial.is_in_the_middle(), KILLED)
    for orphan in orphans:
        if orphan.is_running():
            orphan.kill()
    return outcome


def out_of_memory(trial: Trial, limit: str) -> Outcome:
    """One part is larger than what a worker may use; the next run may use more."""
    said = Run(trial, {"memory_limit": limit}).said()
    return finish(trial, {}, trial.is_in_the_middle() and not finished(said), said)


def cut_before(trial: Trial) -> Outcome:
    """An input file is cut short before anybody looked."""
    with cut_in_half(trial.data) as file:
        said = Run(trial, "loky").said()
    return finish(trial, "loky", file.name in said, said)


def cut_meanwhile(trial: Trial, where: Any) -> Outcome:
    """An input file is cut short after the parts were planned."""
    run = Run(trial, where)
    wait_until(trial.has_begun, "the first parts")
    with cut_in_half(trial.data) as file:
        struck, said = trial.is_in_the_middle(), run.said()
    return finish(trial, where, struck and file.name in said, said)


@contextmanager
def cut_in_half(table: Path) -> Iterator[Path]:
    """The last file of a table; whole again afterwards."""
    file = max(table.glob("*.parquet"))
    content, changed = file.read_bytes(), file.stat().st_mtime_ns
    os.truncate(file, len(content) // 2)
    try:
        yield file
    finally:
        file.write_bytes(content)
        os.utime(file, ns=(changed, changed))


def full_disk(trial: Trial, where: Any) -> Outcome:
    """Half of the answers fit; then the disk grows."""
    disk, kib = trial.out.parent, trial.bytes_out // 1024
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kib // 2}k", "tmpfs", str(disk)]
    mounted = subprocess.run(mount, capture_output=True, text=True)
    if mounted.returncode:
        return Outcome(struck=False, said=f"skipped: {mounted.stderr.strip()}", wrong="not tried")
    try:
        said = Run(trial, where).said()
        struck = trial.is_in_the_middle() and not finished(said)
        subprocess.run(["mount", "-o", f"remount,size={4 * kib}k", disk], check=True)
        return finish(trial, where, struck, said)
    finally:
        subprocess.run(["umount", disk], check=True)


# What is left


def finish(trial: Trial, where: Any, struck: bool, said: str) -> Outcome:
    """Run it again if it did not finish, and look at everything that was written."""
    wrong = unreadable(trial.out)
    if not finished(said):
        again = Run(trial, where).said()
        wrong = wrong or ("" if finished(again) else again)
    return Outcome(struck, said, wrong or unreadable(trial.out) or leftovers(trial.out) or differences(trial))


def finished(said: str) -> bool:
    """Whether this was said by a run that came to its end."""
    return said.startswith(FINISHED)


def unreadable(out: Path) -> str:
    """A file that readers see and cannot read, if there is one."""
    for file in written(out):
        try:
            pq.read_table(file)
        except (OSError, ValueError) as error:
            return f"{file.name} cannot be read: {error}"
    return ""


def leftovers(out: Path) -> str:
    """What nobody needs after a run that finished."""
    hidden = [str(file.relative_to(out)) for file in out.rglob(".*")]
    return f"left over: {', '.join(hidden)}" if hidden else ""


def differences(trial: Trial) -> str:
    """Where the answers are not those of the undisturbed run, row by row."""
    found = answers(trial.out, list(trial.expected))
    ids = trial.expected["id"]
    if not np.array_equal(found["id"], ids):
        missing, doubled = len(np.setdiff1d(ids, found["id"])), len(found["id"]) - len(np.unique(found["id"]))
        return f"{missing} ids missing, {doubled} doubled"
    wrong = [name for name, values in trial.expected.items() if not np.array_equal(found[name], values)]
    return f"other values in {', '.join(wrong)}" if wrong else ""


# All of them


def cases(trial: Trial, oversize: Trial, memory: str, disk: Path) -> dict[str, Callable[[], Outcome]]:
    on_disk = replace(trial, out=disk / "answers")
    return {
        "a Dask worker is killed": lambda: killed_worker(trial, {}),
        "a loky worker is killed": lambda: killed_worker(trial, "loky"),
        "the Dask scheduler is killed": lambda: killed_scheduler(trial),
        "the client of a Dask scheduler is killed": lambda: killed_client_of_dask(trial),
        "the client with its loky workers is killed": lambda: killed_client_of_loky(trial),
        f"a part takes more than the {memory} of a Dask worker": lambda: out_of_memory(oversize, memory),
        "an input file is cut short before the run": lambda: cut_before(trial),
        "an input file is cut short during the run, loky": lambda: cut_meanwhile(trial, "loky"),
        "an input file is cut short during the run, Dask": lambda: cut_meanwhile(trial, {}),
        "the output disk is full, loky": lambda: full_disk(on_disk, "loky"),
        "the output disk is full, Dask": lambda: full_disk(on_disk, {}),
    }


def with_oversize_part(small: Path, rows: int, oversize: int) -> Path:
    """A table that ends with one large row group."""
    path = small.with_name(f"oversize-{rows}-{oversize}")
    if not path.exists():
        first = first_files(small, rows)
        pq.write_table(dense_batch(rows, oversize), first / "oversize.parquet", row_group_size=oversize)
        first.rename(path)
    return path


def line(name: str, outcomes: list[Outcome], seconds: float) -> list[str]:
    exactly_once = sum(not outcome.wrong for outcome in outcomes)
    said = sorted({outcome.said for outcome in outcomes})
    wrong = sorted({f"WRONG: {outcome.wrong}" for outcome in outcomes if outcome.wrong})
    words = " / ".join(" ".join(text.replace("|", "/").split())[:300] for text in (*said, *wrong))
    struck = sum(outcome.struck for outcome in outcomes)
    return [name, f"{struck} of {len(outcomes)}", f"{exactly_once}", f"{seconds:.0f}", words]


def main() -> None:
    options = arguments(
        __doc__,
        rows=4_000_000,
        rows_per_file=100_000,
        rows_per_task=25_000,
        oversize_rows=2_000_000,
        memory="500MB",
        repeats=5,
        cases=[""],
    )
    folder, per_task = options.folder, options.rows_per_task
    data = table(folder, options.rows, rows_per_file=options.rows_per_file, row_group=per_task)
    large = with_oversize_part(data, 5 * options.rows_per_file, options.oversize_rows)
    blank = Trial(rejector(folder, "linear"), data, folder / "answers", per_task, {})
    trial, oversize = blank.on(data), blank.on(large)
    disk = folder / "small-disk"
    disk.mkdir(exist_ok=True)
    print(markdown(HEAD, []), end="")
    for name, case in cases(trial, oversize, options.memory, disk).items():
        if any(word in name for word in options.cases):
            outcomes, start = [], time.perf_counter()
            for _ in range(options.repeats):
                fresh(trial.out)
                outcomes.append(case())
            seconds = (time.perf_counter() - start) / options.repeats
            print(f"| {' | '.join(line(name, outcomes, seconds))} |", flush=True)


if __name__ == "__main__":
    one_thread()
    main()
