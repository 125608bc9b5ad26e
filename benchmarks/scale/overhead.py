"""What a task costs one Dask scheduler, and what a billion rows would cost; draws docs/images/overhead.svg.

python benchmarks/scale/overhead.py --folder /tmp/scale                               # about 10 minutes
python benchmarks/scale/overhead.py --folder /tmp/scale --tasks 100 1000 --linear-rows 200000 \
    --tree-rows 50000 --combined-rows 20000 --rounds 1 --picture /tmp/scale/overhead.svg    # a quick trial

Tasks that do nothing are submitted as decide_table submits parts: so many at a time, a new one for each that
ends. The storage's bandwidth is the one figure of the cost model that is assumed, not measured.
"""

import math
import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
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

BILLION = 1_000_000_000
CORES = 16
MANY = 30_000  # so many tasks are timed once, not several times
STYLES = {"linear": ("#0072B2", "s"), "tree": ("#009E73", "o"), "combined": ("#D55E00", "^")}


@dataclass(frozen=True)
class Cost:
    """Seconds of a run, the part of each resource in it, and from how many nodes on it is not linear."""

    computing: float
    scheduling: float
    storage: float
    linear_to: float
    then: str

    @property
    def seconds(self) -> float:
        """They overlap: the slowest sets the pace."""
        return max(self.computing, self.scheduling, self.storage)

    @property
    def limit(self) -> str:
        parts = {"cores": self.computing, "scheduler": self.scheduling, "storage": self.storage}
        return max(parts, key=lambda name: parts[name])


def cost(
    rows: int,
    nodes: int,
    cores_per_node: int,
    rows_per_second_core: float,
    ms_per_task: float,
    rows_per_task: int,
    bytes_per_row: float,
    storage_bandwidth: float,
) -> Cost:
    """Cores work side by side in whole tasks; there is one scheduler and one storage for all of them."""
    tasks = math.ceil(rows / rows_per_task)
    rounds = math.ceil(tasks / (nodes * cores_per_node))
    scheduling, storage = tasks * ms_per_task / 1000, rows * bytes_per_row / storage_bandwidth
    one_node = rows / rows_per_second_core / cores_per_node
    ends = {
        "scheduler": one_node / scheduling,
        "storage": one_node / storage,
        "too few tasks": tasks / cores_per_node,
    }
    then = min(ends, key=lambda name: ends[name])
    return Cost(rounds * rows_per_task / rows_per_second_core, scheduling, storage, ends[then], then)


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


WAYS: dict[str, tuple[Callable[..., None], Callable[[int], None]]] = {
    "nothing": (submit, nothing),
    "nothing, with nothing but Dask": (submit_bare, nothing),
}


def overheads(folder: Path, tasks: list[int], rounds: int) -> list[tuple[int, str, float, float]]:
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


def draw(speeds: dict[str, float], ms_per_task: float, picture: Path) -> None:
    mpl.rcParams["svg.hashsalt"] = "transcendent"
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    rows = np.logspace(4, 7, 31)
    for name, speed in speeds.items():
        colour, marker = STYLES[name]
        share = ms_per_task / (ms_per_task + rows / speed * 1000)
        axes.plot(
            rows, 100 * share, color=colour, marker=marker, markevery=10, label=f"{name}: {speed:,.0f} rows/s"
        )
    axes.set(xscale="log", yscale="log", xlabel="rows per task", ylabel="overhead of a task, %")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(picture, metadata={"Date": None})


def main() -> None:
    options = arguments(
        __doc__,
        tasks=[100, 1_000, 10_000, 100_000],
        linear_rows=2_000_000,
        tree_rows=500_000,
        combined_rows=200_000,
        rows_per_task=1_000_000,
        bandwidth=10e9,
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
    print(f"{ms_per_task:.2f} ms a task, storage of {options.bandwidth / 1e9:g} GB/s (assumed)\n")
    print(cost_table(paces, ms_per_task, options.rows_per_task, options.bandwidth))
    draw({name: pace.rows_per_second for name, pace in paces.items()}, ms_per_task, options.picture)
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


def cost_table(paces: dict[str, Pace], ms_per_task: float, rows_per_task: int, bandwidth: float) -> str:
    """A billion rows on 1, 10 and 100 nodes."""
    lines = []
    for name, pace in paces.items():
        bytes_per_row = pace.bytes_in + pace.bytes_out
        for nodes in (1, 10, 100):
            found = cost(
                *(BILLION, nodes, CORES, pace.rows_per_second),
                *(ms_per_task, rows_per_task, bytes_per_row, bandwidth),
            )
            until = f"{found.linear_to:,.0f}"
            lines.append([name, f"{nodes}", f"{found.seconds / 60:.3g}", found.limit, until, found.then])
    head = [f"a billion rows, nodes of {CORES} cores", "nodes", "minutes", "set by"]
    return markdown([*head, "linear up to … nodes", "then stopped by"], lines)


if __name__ == "__main__":
    one_thread()
    main()
