"""What the measurements of scale share: tables, rejectors, clusters, clocks, checks of what was written."""

import argparse
import logging
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from distributed import Client, LocalCluster
from lightgbm import LGBMClassifier
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from transcendent import InductiveEvaluator
from transcendent.artifacts import open_artifact, save
from transcendent.batch import decide_table
from transcendent.measures import drift_measure

SEED = 0
WIDTH = 32
FEATURES = [f"x{i}" for i in range(WIDTH)]
SPARSE_WIDTH, CANDIDATES, KEPT = 10_000, 56, 0.9
WORKERS = 2
ROW_GROUP = 250_000
STEPS = 1e-3
"""By how much p-values may differ from those that are ranked strictly."""

COLUMNS = ["id", "label", "accepted", "credibility", "confidence"]
IMAGES = Path(__file__).parents[2] / "docs/images"


def arguments(description: str | None, **defaults: Any) -> argparse.Namespace:
    """Options of a command: a folder for its data, and whatever has a default."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="where generated tables and results go")
    for name, default in defaults.items():
        many = isinstance(default, list)
        kind = type(default[0] if many else default)
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(
            flag, type=kind, default=default, nargs="+" if many else None, help=f"({default})"
        )
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    return options


def one_thread() -> None:
    """Here and in every process started from here: cores are compared, not threads."""
    os.environ["OMP_NUM_THREADS"] = "1"
    threadpool_limits(1)
    pa.set_cpu_count(1)
    quiet()


def quiet() -> None:
    """Silence what Dask says when workers come, go and are killed."""
    os.environ["DASK_LOGGING__DISTRIBUTED"] = "critical"
    for part in ("client", "core", "nanny", "scheduler", "worker"):
        logging.getLogger(f"distributed.{part}").setLevel(logging.CRITICAL)


# Tables


def dense_rows(n: int, *seed: int) -> Any:
    """Normal float32 columns."""
    return np.random.default_rng([SEED, *seed]).standard_normal((n, WIDTH), dtype=np.float32)


def dense_batch(start: int, n: int) -> Any:
    """Rows with consecutive ids, the same for the same start."""
    X = np.asfortranarray(dense_rows(n, start))
    return pa.table({"id": np.arange(start, start + n)} | {f: X[:, j] for j, f in enumerate(FEATURES)})


def sparse_rows(n: int, *seed: int) -> tuple[Any, Any]:
    """Sorted column numbers of about 50 non-zeros a row, and where each row's begin."""
    rng = np.random.default_rng([SEED, *seed])
    stratum = SPARSE_WIDTH // CANDIDATES
    columns = np.arange(CANDIDATES) * stratum + rng.integers(0, stratum, (n, CANDIDATES))
    kept = rng.random((n, CANDIDATES), dtype=np.float32) < KEPT
    offsets = np.concatenate([[0], kept.sum(axis=1).cumsum()])
    return columns[kept].astype(np.int32), offsets.astype(np.int32)


def sparse_batch(start: int, n: int) -> Any:
    """Rows with consecutive ids, their columns as lists."""
    columns, offsets = sparse_rows(n, start)
    return pa.table(
        {"id": np.arange(start, start + n), "columns": pa.ListArray.from_arrays(offsets, pa.array(columns))}
    )


def csr(columns: Any, offsets: Any) -> Any:
    """Rows with a one in each of their columns."""
    return sp.csr_matrix((np.ones(len(columns)), columns, offsets), shape=(len(offsets) - 1, SPARSE_WIDTH))


def table(
    folder: Path,
    rows: int,
    *,
    rows_per_file: int = 1_000_000,
    row_group: int = ROW_GROUP,
    sparse: bool = False,
) -> Path:
    """The folder of a generated table; made only once."""
    kind = "sparse" if sparse else "dense"
    path = folder / f"{kind}-{rows}-{rows_per_file}-{row_group}"
    if not path.exists():
        unfinished = path.with_name(f".{path.name}")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        batch = sparse_batch if sparse else dense_batch
        for number, start in enumerate(range(0, rows, rows_per_file)):
            end = min(rows, start + rows_per_file)
            _write_file(unfinished / f"part-{number:04d}.parquet", batch, start, end, row_group)
        unfinished.rename(path)
    return path


def _write_file(path: Path, batch: Callable[[int, int], Any], start: int, end: int, row_group: int) -> None:
    # Random numbers do not repeat: a dictionary of them would only cost time.
    with pq.ParquetWriter(path, batch(start, 1).schema, use_dictionary=False) as writer:
        for first in range(start, end, row_group):
            n = min(row_group, end - first)
            writer.write_table(batch(first, n), row_group_size=n)


def first_files(whole: Path, rows: int) -> Path:
    """A table of the first rows of another, whose files it shares."""
    path = whole.with_name(f"{whole.name}-first-{rows}")
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    left = rows
    for file in sorted(whole.glob("*.parquet")):
        if left > 0:
            os.link(file, path / file.name)
            left -= pq.read_metadata(file).num_rows
    if left:
        raise SystemExit(f"no files of {whole} have {rows} rows together")
    return path


def size(folder: Path) -> int:
    """Bytes in it."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


# Rejectors


@dataclass(frozen=True)
class Rejector:
    """An artifact, what it holds, and how a table's columns become its rows."""

    path: Path
    fitted: Any
    options: dict[str, Any]


def rejector(folder: Path, kind: str) -> Rejector:
    """Fitted on generated rows, saved: linear, sparse (linear too), tree or combined."""
    rng = np.random.default_rng(SEED)
    n = 20_000
    X = csr(*sparse_rows(n, 1, 1)) if kind == "sparse" else dense_rows(n, 1, 1)
    truth = X @ rng.normal(size=X.shape[1])
    y = (truth + truth.std() * rng.normal(size=n) > 0).astype(int)
    detectors: dict[str, Any] = {
        "linear": LinearSVC(C=0.1, random_state=SEED),
        "sparse": LinearSVC(C=0.001, random_state=SEED),
        "tree": LGBMClassifier(n_estimators=100, n_jobs=1, verbose=-1, random_state=SEED),
        "combined": LinearSVC(C=0.1, random_state=SEED),
    }
    measure = drift_measure(random_state=SEED) if kind == "combined" else "auto"
    fitted = InductiveEvaluator(detectors[kind], measure=measure, random_state=SEED, verbose=False).fit(X, y)
    path = folder / f"{kind}.transcendent"
    save(fitted, path)
    features = "columns" if kind == "sparse" else FEATURES
    options = {"features": features, "identifier": "id", "verbose": False}
    return Rejector(path, fitted, options | {"trusted": open_artifact(path).types_to_trust()})


def decide(rejector: Rejector, table: Path | str, out: Path | str, **how: Any) -> Any:
    """Our way: `decide_table` on the artifact."""
    return decide_table(str(rejector.path), str(table), str(out), **rejector.options, **how)


# Workers


@contextmanager
def dask_workers(**options: Any) -> Iterator[Client]:
    """A client of worker processes with one thread each."""
    setting = {"n_workers": WORKERS, "threads_per_worker": 1, "processes": True, "memory_limit": 0}
    with (
        LocalCluster(dashboard_address=":0", silence_logs=logging.CRITICAL, **(setting | options)) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(WORKERS)
        yield client


@dataclass(frozen=True)
class Processes:
    """A scheduler and workers that are processes of their own, as on a cluster."""

    address: str
    scheduler: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]]


@contextmanager
def dask_processes(folder: Path) -> Iterator[Processes]:
    """Start them on free ports, end those that are left."""
    file = folder / f".scheduler-{os.getpid()}-{time.monotonic_ns()}.json"
    command = [sys.executable, "-m", "dask"]
    host = ["--host", "127.0.0.1", "--no-dashboard"]
    scheduler = _start([*command, "scheduler", "--port", "0", "--scheduler-file", str(file), *host], folder)
    one = ["--scheduler-file", str(file), "--nthreads", "1", "--no-nanny", "--memory-limit", "0", *host]
    workers = []
    try:
        wait_until(file.exists, "the scheduler's file")
        workers = [_start([*command, "worker", *one], folder) for _ in range(WORKERS)]
        with Client(scheduler_file=str(file)) as client:
            client.wait_for_workers(WORKERS)
            address = client.scheduler.address
        yield Processes(address, scheduler, workers)
    finally:
        for process in (*workers, scheduler):
            process.kill()
            process.wait()
        file.unlink(missing_ok=True)


def _start(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    return subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def wait_until(true: Callable[[], Any], what: str, seconds: float = 300, every: float = 0.002) -> None:
    """Look until it is so."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(every)


# Clocks


def in_turn(
    ways: dict[str, Callable[[], Any]], rounds: int, check: Callable[[], Any] = lambda: None
) -> dict[str, list[float]]:
    """Seconds of each way, A B A B …, so that a busy machine slows all; a round before warms the page cache.

    The check looks at what all of them wrote, after every round and off the clock.
    """
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            elapsed = time.perf_counter() - start
            if number:
                found[name].append(elapsed)
        check()
    return found


def ratio(ours: list[float], other: list[float]) -> float:
    """Median over the rounds of how many times longer ours took."""
    return statistics.median(a / b for a, b in zip(ours, other, strict=True))


@dataclass(frozen=True)
class Pace:
    """Of one process: rows per second once it runs, and the seconds before that."""

    rows_per_second: float
    start: float
    bytes_in: float
    bytes_out: float


def pace_on_one_core(folder: Path, kind: str, rows: int, rounds: int) -> Pace:
    """From a table and the first quarter of it, whose times differ by those of the other rows alone."""
    quarter, out, ours = rows // 4, folder / "answers", rejector(folder, kind)
    data = table(folder, 4 * quarter, rows_per_file=quarter, sparse=kind == "sparse")
    first = first_files(data, quarter)

    def check() -> None:
        check_ids(answers(out, ["id"]), 4 * quarter)

    ways: dict[str, Callable[[], Any]] = {
        "quarter": lambda: decide(ours, first, fresh(out), n_jobs=1),
        "all": lambda: decide(ours, data, fresh(out), n_jobs=1),
    }
    times = {name: statistics.median(found) for name, found in in_turn(ways, rounds, check).items()}
    per_row = (times["all"] - times["quarter"]) / (3 * quarter)
    if per_row <= 0:
        raise SystemExit(f"{rows} rows are too few to tell the pace of the {kind} rejector")
    start = max(0.0, times["quarter"] - quarter * per_row)
    return Pace(1 / per_row, start, size(data) / (4 * quarter), size(out) / (4 * quarter))


# What was written


def fresh(out: Path) -> Path:
    """The folder, empty."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    return out


def written(out: Path) -> list[Path]:
    """The files that readers see."""
    return [
        file
        for file in sorted(out.rglob("*"))
        if file.is_file() and not any(part[0] in "._" for part in file.relative_to(out).parts)
    ]


def answers(out: Path, columns: Sequence[str] = COLUMNS) -> dict[str, Any]:
    """Everything that was written, sorted by id."""
    found = pa.concat_tables([pq.read_table(file, columns=list(columns)) for file in written(out)])
    order = np.argsort(found["id"].to_numpy(), kind="stable")
    return {name: found[name].to_numpy()[order] for name in columns}


def check_ids(found: dict[str, Any], rows: int) -> None:
    """Every id from 0 on exactly once: a count alone would not see one lost and another doubled."""
    ids = found["id"]
    if len(ids) != rows or not np.array_equal(ids, np.arange(rows)):
        missing = rows - len(np.intersect1d(ids, np.arange(rows)))
        raise SystemExit(f"{len(ids)} answers for {rows} ids: {missing} missing, {_doubled(ids)} doubled")


def check_same(ours: dict[str, Any], other: dict[str, Any], rows: int) -> None:
    """The same answer for every id, and every id once; by hand, rounding decides what ties."""
    check_ids(ours, rows)
    check_ids(other, rows)
    for name, values in other.items():
        if values.dtype.kind == "f":
            different, allowed = int(np.sum(np.abs(ours[name] - values) > STEPS)), 0
        else:
            different, allowed = int(np.sum(ours[name] != values)), (rows // 10**5) * (name == "accepted")
        if different > allowed:
            raise SystemExit(f"{different} of {rows} ids differ in {name}")


def _doubled(ids: Any) -> int:
    return len(ids) - len(np.unique(ids))


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)) + "\n"


def millions(rows_per_second: float) -> str:
    """As M rows/s."""
    return f"{rows_per_second / 1e6:.3g}"
