"""What a task costs one Dask scheduler, up to 100,000 tasks; draws docs/images/overhead.svg.

python benchmarks/scale/overhead.py --folder /tmp/scale                               # about 10 minutes
python benchmarks/scale/overhead.py --folder /tmp/scale --tasks 100 1000 --linear-rows 200000 \
    --tree-rows 50000 --combined-rows 20000 --rounds 1 --picture /tmp/scale/overhead.svg    # a quick trial

Tasks that do nothing are submitted as decide_table submits parts: so many at a time, a new one for each that
ends. What a billion rows would take is in simulation.py.
"""

import statistics
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import joblib
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import psutil
from common import (
    IMAGES,
    Pace,
    arguments,
    dask_processes,
    markdown,
    one_thread,
    pace_on_one_core,
)
from distributed import Client, as_completed

from transcendent._utils import parallel

MANY = 30_000  # so many tasks are timed once, not several times
LABELS = {"nothing": "as decide_table", "nothing, with nothing but Dask": "with nothing but Dask"}
STYLES = {"linear": ("#0072B2", "s"), "tree": ("#009E73", "o"), "combined": ("#D55E00", "^")}


def nothing(_: int) -> None:
    """The smallest task."""


def submit(client: Client, task: Callable[[int], None], n: int) -> None:
    """All of n tasks, as `decide_table` does it."""
    with joblib.parallel_config(backend="dask", client=client):
        deque(parallel.stream(task, ((number,) for number in range(n))), maxlen=0)


def submit_bare(client: Client, task: Callable[[int], None], n: int) -> None:
    """The same with nothing but Dask: 16 at a time, a new one for each that ends."""
    numbers = iter(range(n))
    running = as_completed(client.map(task, list(islice(numbers, 16)), pure=False))
    for _ in running:
        for number in islice(numbers, 1):
            running.add(client.submit(task, number, pure=False))


Overhead = tuple[int, str, float, float]
"""Tasks, what they do, milliseconds of each, MiB of the scheduler."""

WAYS: dict[str, tuple[Callable[..., None], Callable[[int], None]]] = {
    "nothing": (submit, nothing),
    "nothing, with nothing but Dask": (submit_bare, nothing),
}


def overheads(folder: Path, tasks: list[int], rounds: int) -> list[Overhead]:
    """Milliseconds per task, and MiB of the scheduler's process afterwards, for each number of tasks."""
    found = []
    for n in tasks:
        for name, (way, task) in WAYS.items():
            with dask_processes(folder) as dask, Client(dask.address) as client:
                way(client, task, 100)
                repeats = max(1, min(rounds, MANY // n))
                ms = statistics.median(timed(way, client, task, n) for _ in range(repeats))
                memory = psutil.Process(dask.scheduler.pid).memory_info().rss / 2**20
            found.append((n, name, ms, memory))
    return found


def timed(way: Callable[..., None], client: Client, task: Callable[[int], None], n: int) -> float:
    """Milliseconds per task."""
    start = time.perf_counter()
    way(client, task, n)
    return (time.perf_counter() - start) / n * 1000


def draw(found: list[Overhead], speeds: dict[str, float], ms_per_task: float, picture: Path) -> None:
    mpl.rcParams["svg.hashsalt"] = "transcendent"
    figure, (each, share) = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    for (way, label), marker in zip(LABELS.items(), "os", strict=True):
        of = [(n, ms) for n, name, ms, _ in found if name == way]
        each.plot(*zip(*of, strict=True), marker=marker, label=label)
    each.set(xscale="log", ylim=(0, None), xlabel="tasks of one scheduler", ylabel="ms per task")
    rows = np.logspace(4, 7, 31)
    for name, speed in speeds.items():
        colour, marker = STYLES[name]
        overhead = 100 * ms_per_task / (ms_per_task + rows / speed * 1000)
        label = f"{name}: {speed:,.0f} rows/s"
        share.plot(rows, overhead, color=colour, marker=marker, markevery=10, label=label)
    share.set(xscale="log", yscale="log", xlabel="rows per task", ylabel="overhead of a task, %")
    for axes in (each, share):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(picture, metadata={"Date": None})


def main() -> None:
    options = arguments(
        __doc__,
        tasks=[100, 1_000, 10_000, 100_000],
        linear_rows=2_000_000,
        tree_rows=500_000,
        combined_rows=200_000,
        rows_per_task=1_000_000,
        rounds=3,
        picture=IMAGES / "overhead.svg",
    )
    found = overheads(options.folder, options.tasks, options.rounds)
    lines = [[f"{n:,}", name, f"{ms:.2f}", f"{memory:.0f}"] for n, name, ms, memory in found]
    print(markdown(["tasks", "that do", "ms per task", "scheduler, MiB"], lines), flush=True)
    ms_per_task = max(ms for n, name, ms, _ in found if n == max(options.tasks) and WAYS[name][0] is submit)

    sizes = {"linear": options.linear_rows, "tree": options.tree_rows, "combined": options.combined_rows}
    paces = {
        name: pace_on_one_core(options.folder, name, rows, options.rounds) for name, rows in sizes.items()
    }
    print(share_table(paces, ms_per_task, options.rows_per_task))
    draw(found, {name: pace.rows_per_second for name, pace in paces.items()}, ms_per_task, options.picture)
    print(options.picture)


def share_table(paces: dict[str, Pace], ms_per_task: float, rows_per_task: int) -> str:
    """What part of a core's time goes to handing out tasks of 10⁴ to 10⁷ rows."""
    lines = []
    for name, pace in paces.items():
        ms_per_row = 1000 / pace.rows_per_second
        shares = [ms_per_task / (ms_per_task + 10**k * ms_per_row) for k in range(4, 8)]
        cores = rows_per_task * ms_per_row / ms_per_task
        lines.append([name, f"{pace.rows_per_second:,.0f}", *(f"{s:.2%}" for s in shares), f"{cores:,.0f}"])
    head = ["overhead, rows per task", "rows/s on a core", "10⁴", "10⁵", "10⁶", "10⁷"]
    return markdown([*head, f"cores kept busy by tasks of {rows_per_task:,} rows"], lines)


if __name__ == "__main__":
    one_thread()
    main()
