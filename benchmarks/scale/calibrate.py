"""Calibration on more objects than memory should hold: time, memory and exactness.

python benchmarks/scale/calibrate.py --objects 100000000 --folder DIR   # 5 GB on disk, some minutes
"""

import argparse
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from joblib import parallel_config

from transcendent import ScoreEvaluator
from transcendent.arrays import AnyArray, chunks
from transcendent.evaluators.in_folder import CalibrationInFolder
from transcendent.files import new_npy
from transcendent.pvalues import ScoreTable
from transcendent.sketches import ScoreSketch
from transcendent.thresholds.base import Search

SEED = 0
CHUNK = 1 << 22
MIB = 1 << 20


class Memory:
    """The most memory this process had while the block ran: its own, and with the pages of mapped files."""

    def __enter__(self) -> Self:
        self.anonymous = self.total = 0
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
            self.anonymous = max(self.anonymous, int(status["RssAnon"].split()[0]) << 10)
            self.total = max(self.total, int(status["VmRSS"].split()[0]) << 10)


@contextmanager
def timed(owner: Any, name: str, seconds: dict[str, float]) -> Iterator[None]:
    """Add up the time inside a method while the block runs."""
    method = owner.__dict__[name]
    call = method.__func__ if isinstance(method, classmethod) else method

    def measured(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return call(*args, **kwargs)
        finally:
            seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start

    setattr(owner, name, classmethod(measured) if isinstance(method, classmethod) else measured)
    try:
        yield
    finally:
        setattr(owner, name, method)


def generate(folder: Path, n: int) -> list[AnyArray]:
    """Scores, true labels and answers of a detector that is wrong about 2% of the time."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(SEED)
    scores = np.lib.format.open_memmap(folder / "scores.npy", "w+", np.float64, (n, 2))
    y, labels = (
        np.lib.format.open_memmap(folder / f"{f}.npy", "w+", np.uint8, (n,)) for f in ("y", "labels")
    )
    for rows in chunks(n, CHUNK):
        y[rows] = rng.random(rows.stop - rows.start) < 0.2
        suspicion = np.where(y[rows], 2.05, -2.05) + rng.normal(size=rows.stop - rows.start)
        scores[rows] = np.column_stack([suspicion, -suspicion])
        labels[rows] = suspicion > 0
    for array in (scores, y, labels):
        array.flush()
    return [np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("scores", "y", "labels")]


def fit(data: list[AnyArray], folder: Path) -> tuple[ScoreEvaluator, dict[str, float], Memory]:
    seconds: dict[str, float] = {}
    start = time.perf_counter()
    with (
        timed(ScoreTable, "in_folder", seconds),
        timed(CalibrationInFolder, "credibility_and_confidence", seconds),
        timed(Search, "find_coded", seconds),
        Memory() as memory,
    ):
        vendor = ScoreEvaluator().fit(*data, folder=folder)
    seconds["all"] = time.perf_counter() - start
    return vendor, seconds, memory


def same_as_in_memory(data: list[AnyArray], folder: Path) -> bool:
    """Bags, credibility, confidence, thresholds and decisions, bit by bit."""
    ours = ScoreEvaluator().fit(*data, folder=folder)
    plain = ScoreEvaluator().fit(*(np.array(array) for array in data))
    pairs = [
        *zip(ours.calibration_.table.bags, plain.calibration_.table.bags, strict=True),
        *zip(*(v.calibration_.credibility_and_confidence() for v in (ours, plain)), strict=True),
        (ours.thresholds_, plain.thresholds_),
        (ours.decide(data[0], data[2]).accepted, plain.decide(data[0], data[2]).accepted),
    ]
    a, b = ours.result_, plain.result_
    promises = (a.value, a.bound, a.rejection_rate) == (b.value, b.bound, b.rejection_rate)
    return promises and all(np.array_equal(x, y) for x, y in pairs)


def sort_ratio(bag: AnyArray, path: Path) -> tuple[float, float]:
    """Medians of three: the same numbers sorted in a memory-mapped file, and in memory."""
    rng, ours, bare = np.random.default_rng(SEED), [], []
    shuffled = rng.permutation(bag)
    for _ in range(3):
        with new_npy(path, np.float64, len(shuffled)) as file:
            file[:] = shuffled
            ours.append(seconds_of(file.sort))
        copy = shuffled.copy()
        bare.append(seconds_of(copy.sort))
    path.unlink()
    return statistics.median(ours), statistics.median(bare)


def seconds_of(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def sketch_lines(data: list[AnyArray], table: ScoreTable) -> Iterator[tuple[str, str]]:
    scores, y, _ = data
    start = time.perf_counter()
    sketch = ScoreSketch([0, 1])
    for rows in chunks(len(y), CHUNK):
        sketch.update(scores[rows], y[rows])
    took = time.perf_counter() - start
    size = sum(len(content) for content in sketch.__getstate__()["sketches"])
    probes = np.column_stack([bag[:: max(1, len(bag) // 100_000)][:90_000] for bag in table.bags])
    low, high = sketch.p_value_bounds(probes)
    exact = table.p_values(probes)
    unclipped = high - low > 1.999 * sketch.rank_error
    error = np.abs((low + high) / 2 - exact)[unclipped].max()
    outside = np.mean((exact < low) | (exact > high))
    yield "sketch: size, time", f"{size / 1024:.0f} KiB, {took:.1f} s"
    yield "sketch: largest rank error, guaranteed", f"{error:.2e}, {sketch.rank_error.max():.2e}"
    yield "sketch: p-values outside their bounds", f"{outside:.2%} of {probes.size}"


def measure(n: int, folder: Path) -> Iterator[tuple[str, str]]:
    data = generate(folder / "data", n)
    yield (
        "objects, incorrect answers",
        f"{n}, {sum(np.sum(data[1][r] != data[2][r]) for r in chunks(n, CHUNK))}",
    )
    vendor, seconds, memory = fit(data, folder / "calibration")
    table, result = vendor.calibration_.table, vendor.result_
    written = sum(file.stat().st_size for file in (folder / "calibration").iterdir())
    yield "fit in all", f"{seconds['all']:.1f} s"
    yield "bags written and sorted", f"{seconds['in_folder']:.1f} s"
    yield "p-values", f"{seconds['credibility_and_confidence'] - seconds['in_folder']:.1f} s"
    yield "thresholds", f"{seconds['find_coded']:.1f} s"
    yield "peak of anonymous memory", f"{memory.anonymous / MIB:.0f} MiB"
    yield "peak with pages of mapped files", f"{memory.total / MIB:.0f} MiB"
    yield "files written", f"{written / MIB:.0f} MiB"
    yield "thresholds found", f"{vendor.thresholds_.tolist()}"
    yield "F1, rejected, certified", f"{result.value:.6f}, {result.rejection_rate:.6f}, {result.certified}"
    few = [array[: min(n, 1_000_000)] for array in data]
    yield f"same bits as in memory, {len(few[1])} objects", str(same_as_in_memory(few, folder / "few"))
    bag = table.bags[0][: 1 << 25]
    ours, bare = sort_ratio(bag, folder / "sort.npy")
    yield f"sort of {len(bag)} scores in a file", f"{ours / bare:.2f} × np.sort in memory ({bare:.2f} s)"
    new = [np.array(array[: min(n, 10_000_000)]) for array in data]
    rate = len(new[2]) / seconds_of(lambda: vendor.decide(new[0], new[2]))
    yield f"decide {len(new[2])} new objects", f"{rate / 1e6:.2f} million a second"
    yield from sketch_lines(data, table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=100_000_000)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    print("| what | measured |\n|---|---|")
    with parallel_config("threading", n_jobs=arguments.jobs):
        for what, measured in measure(arguments.objects, arguments.folder):
            print(f"| {what} | {measured} |", flush=True)


if __name__ == "__main__":
    main()
