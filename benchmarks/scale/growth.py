"""Rows per second and memory of decide_table as tables grow; draws docs/images/growth.svg.

python benchmarks/scale/growth.py --folder /tmp/scale                                     # about 20 minutes
python benchmarks/scale/growth.py --folder /tmp/scale --sizes 100000 200000 400000 --rows-per-file 100000 \
    --rows-per-task 25000 --rounds 1 --picture /tmp/scale/growth.svg                      # a quick trial

Every run has fresh workers, which decide the first file once before the clock starts.
"""

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import matplotlib as mpl
import matplotlib.pyplot as plt
import psutil
from common import (
    IMAGES,
    WORKERS,
    Rejector,
    answers,
    arguments,
    check_ids,
    dask_workers,
    decide,
    first_files,
    fresh,
    markdown,
    millions,
    one_thread,
    rejector,
    table,
)
from joblib.externals.loky import get_reusable_executor

ENGINES = {"loky": "#0072B2", "Dask": "#D55E00"}
MIB = 2**20


class Memory:
    """Peak resident memory of the largest child of this process, and of all together, while it watches."""

    def __init__(self) -> None:
        self.worker = self.total = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        this = psutil.Process()
        while not self._over.wait(0.02):
            children = [resident(child) for child in this.children(recursive=True)]
            self.worker = max([self.worker, *children])
            self.total = max(self.total, resident(this) + sum(children))


def resident(process: psutil.Process) -> int:
    """Bytes; none of a process that has just ended."""
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


@contextmanager
def workers(engine: str) -> Iterator[dict[str, Any]]:
    """Fresh ones, as an option of `decide_table`."""
    if engine == "Dask":
        with dask_workers() as client:
            yield {"client": client}
    else:
        yield {"n_jobs": WORKERS}
        get_reusable_executor().shutdown(wait=True)


def measure(engine: str, ours: Rejector, data: Path, rows: int, options: Any) -> tuple[float, float, float]:
    """Rows per second, and MiB of the largest worker and of all processes."""
    first, out = first_files(data, options.rows_per_file), options.folder / "ours"
    with workers(engine) as where:
        decide(ours, first, fresh(out), rows_per_task=options.rows_per_task, **where)
        fresh(out)
        with Memory() as memory:
            start = time.perf_counter()
            decide(ours, data, out, rows_per_task=options.rows_per_task, **where)
            seconds = time.perf_counter() - start
    check_ids(answers(out, ["id"]), rows)
    return rows / seconds, memory.worker / MIB, memory.total / MIB


def draw(sizes: list[int], found: dict[tuple[str, int], Any], picture: Path) -> None:
    mpl.rcParams["svg.hashsalt"] = "transcendent"
    figure, (speed, memory) = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    for (engine, colour), marker in zip(ENGINES.items(), "so", strict=True):
        rows_per_second, worker, total = zip(*(found[engine, rows] for rows in sizes), strict=True)
        style = {"color": colour, "marker": marker, "markersize": 5}
        speed.plot(sizes, [value / 1e6 for value in rows_per_second], label=f"2 {engine} workers", **style)
        memory.plot(sizes, worker, label=f"largest {engine} worker", **style)
        memory.plot(sizes, total, label=f"all, {engine}", linestyle="--", **style)
    speed.set(xlabel="rows", ylabel="million rows a second")
    memory.set(xlabel="rows", ylabel="peak memory, MiB")
    for axes in (speed, memory):
        axes.set(xscale="log", ylim=(0, None))
        axes.set_ylim(0, 1.35 * axes.get_ylim()[1])
        axes.set_xticks(sizes, [f"{rows / 1e6:g}M" for rows in sizes])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, ncols=2 if axes is memory else 1, loc="upper left")
    figure.savefig(picture, metadata={"Date": None})


def main() -> None:
    options = arguments(
        __doc__,
        sizes=[1_000_000, 10_000_000, 50_000_000],
        rows_per_file=1_000_000,
        rows_per_task=250_000,
        rounds=3,
        picture=IMAGES / "growth.svg",
    )
    per_file = options.rows_per_file
    whole = table(options.folder, max(options.sizes), rows_per_file=per_file, row_group=options.rows_per_task)
    tables = {rows: first_files(whole, rows) for rows in options.sizes}
    ours = rejector(options.folder, "linear")
    runs: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    for _ in range(options.rounds):
        for rows, data in tables.items():
            for engine in ENGINES:
                runs.setdefault((engine, rows), []).append(measure(engine, ours, data, rows, options))
    found = {
        case: tuple(statistics.median(values) for values in zip(*measured, strict=True))
        for case, measured in runs.items()
    }
    lines = [
        [engine, f"{rows:,}", millions(speed), f"{worker:.0f}", f"{total:.0f}"]
        for (engine, rows), (speed, worker, total) in sorted(found.items())
    ]
    head = ["2 workers of", "rows", "M rows/s", "largest worker, MiB", "all processes, MiB"]
    print(markdown(head, lines))
    draw(options.sizes, found, options.picture)
    print(options.picture)


if __name__ == "__main__":
    one_thread()
    main()
