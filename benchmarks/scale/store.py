"""decide_table in an object store: faults, the store's own death among them, and its speed against bare Dask.

python benchmarks/scale/store.py --folder /tmp/scale                                  # about an hour
python benchmarks/scale/store.py --folder /tmp/scale --rows 1000000 --repeats 1       # a quick trial

The store is rclone, which serves S3 from a folder of this machine; table and output are both in it. What is
expected is decided on disk. Faults are struck as in faults.py, and every row is compared afterwards.
"""

import itertools
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from by_hand import ByHand, on_dask
from common import (
    answers,
    arguments,
    check_same,
    dask_workers,
    decide,
    in_turn,
    markdown,
    millions,
    one_thread,
    ratio,
    rejector,
    table,
    wait_until,
)
from faults import HEAD, Outcome, Run, Trial, finish, killed_client_of_dask, killed_worker, line

sys.path.append(str(Path(__file__).parents[2]))  # a script finds only modules beside itself

from tests.batch.store import ObjectStore

AWAY = 5.0
"""Seconds that the store is dead."""


@dataclass(frozen=True)
class InStore(Trial):
    """A trial whose table and output are objects, which are also files of the folder that is served."""

    client: Any = None

    def decide(self, **how: Any) -> None:
        names = (f"{folder.parent.name}/{folder.name}" for folder in (self.data, self.out))
        decide(self.rejector, *names, rows_per_task=self.rows_per_task, filesystem=self.client, **how)


@contextmanager
def served(options: Any, host: str = "127.0.0.1") -> Iterator[tuple[InStore, ObjectStore, Iterator[Path]]]:
    """A trial in a store on a host, decided on disk to know what to expect, and places for its output."""
    folder = options.folder / "served"
    bucket = folder / "objects/bucket"
    bucket.mkdir(parents=True, exist_ok=True)
    data = table(bucket, options.rows, rows_per_file=options.rows_per_file, row_group=options.rows_per_task)
    linear = rejector(options.folder, "linear")
    on_disk = Trial(linear, data, options.folder / "answers", options.rows_per_task, {}).on(data)
    store = ObjectStore(folder, host)
    try:
        outs = (bucket / f"out-{number}" for number in itertools.count())
        yield InStore(**vars(on_disk), client=store.filesystem()), store, outs
    finally:
        store.kill()
        for out in bucket.glob("out-*"):
            shutil.rmtree(out)


def killed_store(trial: Trial, store: ObjectStore) -> Outcome:
    """Everything that is under way to it or from it breaks off."""
    run = Run(trial, {})
    wait_until(trial.has_begun, "the first parts")
    store.kill()
    struck = trial.is_in_the_middle()
    time.sleep(AWAY)
    store.start()
    return finish(trial, {}, struck, run.said())


def faults(trial: InStore, store: ObjectStore, outs: Iterator[Path], repeats: int) -> None:
    cases: dict[str, Callable[[Trial], Outcome]] = {
        "a Dask worker is killed": lambda own: killed_worker(own, {}),
        "the client of a Dask scheduler is killed": killed_client_of_dask,
        f"the store is killed, and back after {AWAY:.0f} s": lambda own: killed_store(own, store),
    }
    print(markdown(HEAD, []), end="")
    for name, case in cases.items():
        start = time.perf_counter()
        outcomes = [case(replace(trial, out=out)) for out in itertools.islice(outs, repeats)]
        seconds = (time.perf_counter() - start) / repeats
        print(f"| {' | '.join(line(name, outcomes, seconds))} |", flush=True)


def speed(trial: InStore, store: ObjectStore, outs: Iterator[Path], rounds: int, client: Any) -> str:
    """Both read from the store and write to it, in turn."""
    hand, rows = ByHand.of(trial.rejector.fitted), len(trial.expected["id"])
    last: dict[str, Path] = {}

    def ours() -> None:
        last["ours"] = next(outs)
        replace(trial, out=last["ours"]).decide(client=client)

    def by_hand() -> None:
        last["by hand"] = next(outs)
        on_dask(hand, f"s3://bucket/{trial.data.name}", f"s3://bucket/{last['by hand'].name}", store.options)

    times = in_turn(
        {"ours": ours, "by hand": by_hand},
        rounds,
        lambda: check_same(answers(last["ours"]), answers(last["by hand"]), rows),
    )
    speeds = [millions(rows / statistics.median(seconds)) for seconds in times.values()]
    head = ["rows", "ours, M rows/s", "Dask by hand, M rows/s", "time, ours ÷ by hand"]
    kind = f"{rows / 1e6:g}M dense rows in S3"
    return markdown(head, [[kind, *speeds, f"{ratio(times['ours'], times['by hand']):.2f}"]])


SIZES: dict[str, Any] = {
    "rows": 20_000_000,
    "rows_per_file": 1_000_000,
    "rows_per_task": 250_000,
    "repeats": 5,
    "rounds": 3,
}


def main() -> None:
    options = arguments(__doc__, **SIZES)
    with served(options) as (trial, store, outs):
        with dask_workers() as client:
            print(speed(trial, store, outs, options.rounds, client), flush=True)
        faults(trial, store, outs, options.repeats)


if __name__ == "__main__":
    one_thread()
    main()
