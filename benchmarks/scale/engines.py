"""The same scoring on every engine at hand: by hand on one and two processes and on Dask, and decide_table.

python benchmarks/scale/engines.py --folder /tmp/scale                                # about 3 minutes
python benchmarks/scale/engines.py --folder /tmp/scale --rows 400000 --rounds 1       # a quick trial
"""

import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from by_hand import ByHand, decide_files, on_dask, on_processes, processes
from common import (
    WORKERS,
    answers,
    arguments,
    check_same,
    dask_workers,
    decide,
    fresh,
    in_turn,
    markdown,
    millions,
    one_thread,
    ratio,
    rejector,
    table,
)

YARDSTICK = "by hand, 2 processes"


def main() -> None:
    options = arguments(__doc__, rows=5_000_000, rounds=3)
    data = table(options.folder, options.rows, rows_per_file=max(1, options.rows // 20))
    ours = rejector(options.folder, "linear")
    hand, files = ByHand.of(ours.fitted), sorted(data.glob("*.parquet"))
    with dask_workers() as client, processes() as pool:
        ways: dict[str, Callable[[Path], Any]] = {
            "by hand, 1 process": lambda out: pool.submit(decide_files, hand, files, out).result(),
            YARDSTICK: lambda out: on_processes(pool, hand, data, out),
            "by hand, Dask map_partitions": lambda out: on_dask(hand, data, out),
            "decide_table, 1 process": lambda out: decide(ours, data, out, n_jobs=1),
            "decide_table, loky": lambda out: decide(ours, data, out, n_jobs=WORKERS),
            "decide_table, Dask client": lambda out: decide(ours, data, out, client=client),
        }
        outs = {name: options.folder / f"answers-{number}" for number, name in enumerate(ways)}

        def check() -> None:
            expected = answers(outs[YARDSTICK])
            for out in outs.values():
                check_same(answers(out), expected, options.rows)

        times = in_turn(
            {name: partial(into, way, outs[name]) for name, way in ways.items()}, options.rounds, check
        )
    lines = [
        [name, millions(options.rows / statistics.median(found)), f"{ratio(found, times[YARDSTICK]):.2f}"]
        for name, found in times.items()
    ]
    print(markdown([f"{options.rows:,} dense rows", "M rows/s", "time ÷ two processes by hand"], lines))


def into(way: Callable[[Path], Any], out: Path) -> None:
    way(fresh(out))


if __name__ == "__main__":
    one_thread()
    main()
