"""How long a billion rows take on up to 1,000 workers: simulated, from what is measured on this machine.

python benchmarks/scale/simulation.py --folder /tmp/scale                             # about 10 minutes
python benchmarks/scale/simulation.py --folder /tmp/scale --check-rows 1000000 --tasks 300 \
    --linear-rows 200000 --tree-rows 50000 --combined-rows 20000 --rounds 1           # a quick trial

Measured here: rows per second of one core, bytes a row, and what a task costs one scheduler. Given, since no
machine alone can measure them: the storage's bandwidth, that of a worker's link, and how much parts vary. Two
workers are simulated and measured, too.
"""

import heapq
import math
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from common import (
    WORKERS,
    Pace,
    arguments,
    dask_processes,
    dask_workers,
    decide,
    fresh,
    markdown,
    one_thread,
    pace_on_one_core,
    rejector,
    table,
)
from distributed import Client
from overhead import nothing, submit, timed

BILLION = 1_000_000_000
CREWS = (1, 2, 10, 100, 300, 1_000)
LINEAR = 0.8
"""Speed-up ÷ workers above which a run counts as linear."""


@dataclass(frozen=True)
class Cluster:
    """Workers of one thread each, one scheduler, one storage. Bandwidths are in bytes per second."""

    workers: int
    seconds_per_task: float
    storage: float
    link: float


@dataclass(frozen=True)
class Work:
    """Equal parts; computing one takes this many seconds on average, and varies by a share of that."""

    parts: int
    seconds: float
    bytes: float
    varies: float


def simulate(cluster: Cluster, work: Work, seed: int = 0) -> float:
    """Return the seconds until the last part is done.

    A part waits for a free worker, then for the scheduler, which sends one after the other. It is fetched at
    the speed of the worker's link or its share of the storage's, whichever is less, and then computed.
    """
    sigma = math.sqrt(math.log(1 + work.varies**2))
    takes = np.random.default_rng(seed).lognormal(-(sigma**2) / 2, sigma, work.parts) * work.seconds
    now = scheduler_free = fetched = (
        0.0  # `fetched` are the bytes that a part would have that came at second 0
    )
    waiting, idle = list(range(work.parts))[::-1], cluster.workers
    sent: list[tuple[float, int]] = []
    fetching: list[tuple[float, int]] = []
    computing: list[tuple[float, int]] = []
    while waiting or sent or fetching or computing:
        while waiting and idle:
            scheduler_free = max(now, scheduler_free) + cluster.seconds_per_task
            heapq.heappush(sent, (scheduler_free, waiting.pop()))
            idle -= 1
        speed = min(cluster.link, cluster.storage / max(1, len(fetching)))
        due = [
            sent[0][0] if sent else math.inf,
            now + (fetching[0][0] - fetched) / speed if fetching else math.inf,
            computing[0][0] if computing else math.inf,
        ]
        what, then = int(np.argmin(due)), min(due)
        fetched, now = fetched + (then - now) * speed, then
        if what == 0:
            heapq.heappush(fetching, (fetched + work.bytes, heapq.heappop(sent)[1]))
        elif what == 1:
            part = heapq.heappop(fetching)[1]
            heapq.heappush(computing, (now + float(takes[part]), part))
        else:
            heapq.heappop(computing)
            idle += 1
    return now


def work_of(pace: Pace, rows: int, rows_per_task: int, varies: float) -> Work:
    bytes_per_row = pace.bytes_in + pace.bytes_out
    seconds = rows_per_task / pace.rows_per_second
    return Work(math.ceil(rows / rows_per_task), seconds, rows_per_task * bytes_per_row, varies)


def checked(folder: Path, pace: Pace, ms: float, rows: int, rounds: int, varies: float) -> list[list[str]]:
    """Simulated and measured: two workers on this machine, whose files are in memory."""
    ours, per_task = rejector(folder, "linear"), 250_000
    data, out = table(folder, rows, rows_per_file=max(1, rows // 20)), folder / "answers"
    work = work_of(pace, rows, min(per_task, rows // 20), varies)
    found = []
    with dask_workers() as client:
        for number in range(rounds + 1):
            fresh(out)
            start = time.perf_counter()
            decide(ours, data, out, rows_per_task=per_task, client=client)
            if number:
                found.append(time.perf_counter() - start)
    expected = simulate(Cluster(WORKERS, ms / 1000, math.inf, math.inf), work)
    measured = statistics.median(found)
    return [[f"{rows:,}", f"{WORKERS}", f"{expected:.1f}", f"{measured:.1f}", f"{expected / measured:.2f}"]]


def minutes(
    paces: dict[str, Pace], ms: float, per_task: list[int], storage: list[float], link: float, varies: float
) -> list[list[str]]:
    """A billion rows, by rejector, rows per task and bandwidth; and up to how many workers it is linear."""
    rows = []
    for name, pace in paces.items():
        for size in per_task:
            work = work_of(pace, BILLION, size, varies)
            for bandwidth in storage:
                took = {
                    crew: simulate(Cluster(crew, ms / 1000, bandwidth, link), work)
                    for crew in (*CREWS, *range(20, 1000, 40))
                }
                linear = [crew for crew in took if took[1] / took[crew] >= LINEAR * crew]
                cells = [f"{took[crew] / 60:.3g}" for crew in CREWS]
                rows.append([name, f"{size:,}", f"{bandwidth / 1e9:g}", *cells, f"{max(linear)}"])
    return rows


def main() -> None:
    options = arguments(
        __doc__,
        linear_rows=2_000_000,
        tree_rows=500_000,
        combined_rows=200_000,
        check_rows=20_000_000,
        tasks=10_000,
        rows_per_task=[100_000, 1_000_000],
        storage=[1e9, 10e9, 100e9],
        link=1.25e9,
        varies=0.2,
        rounds=3,
    )
    folder, rounds = options.folder, options.rounds
    sizes = {"linear": options.linear_rows, "tree": options.tree_rows, "combined": options.combined_rows}
    paces = {name: pace_on_one_core(folder, name, rows, rounds) for name, rows in sizes.items()}
    with dask_processes(folder) as dask, Client(dask.address) as client:
        submit(client, nothing, 100)
        ms = timed(submit, client, nothing, options.tasks)
    inputs = [
        *([f"{name}, rows/s on a core", f"{pace.rows_per_second:,.0f}"] for name, pace in paces.items()),
        *(
            [f"{name}, bytes a row in and out", f"{pace.bytes_in + pace.bytes_out:.0f}"]
            for name, pace in paces.items()
        ),
        [f"ms of the scheduler for a task, of {options.tasks:,}", f"{ms:.2f}"],
        ["given: GB/s of the storage", ", ".join(f"{each / 1e9:g}" for each in options.storage)],
        ["given: GB/s of a worker's link", f"{options.link / 1e9:g}"],
        ["given: standard deviation of parts ÷ mean", f"{options.varies:g}"],
    ]
    print(markdown(["input", "value"], inputs))
    head = ["rows", "workers", "seconds, simulated", "measured", "simulated ÷ measured"]
    print(markdown(head, checked(folder, paces["linear"], ms, options.check_rows, rounds, options.varies)))
    head = ["a billion rows", "rows per task", "storage, GB/s", *(f"{crew:,} workers, min" for crew in CREWS)]
    rows = minutes(paces, ms, options.rows_per_task, options.storage, options.link, options.varies)
    print(markdown([*head, f"workers with speed-up ≥ {LINEAR:g} of ideal"], rows))


if __name__ == "__main__":
    one_thread()
    main()
