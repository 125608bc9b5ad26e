"""Rows per second of decide_table, against the same work written by hand.

OMP_NUM_THREADS=1 python benchmarks/scale/throughput.py --folder /tmp/scale           # about 20 minutes
python benchmarks/scale/throughput.py --folder /tmp/scale --dense-rows 400000 --sparse-rows 200000 \
    --linear-rows 200000 --tree-rows 50000 --combined-rows 20000 --rounds 1            # a quick trial

By hand: Dask's map_partitions, and two processes that read and write with pyarrow. Both ways of each pair run
in turn on the same warm files and workers, and every time their answers are compared id by id.
"""

import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from by_hand import ByHand, on_dask, on_processes, processes
from common import (
    WORKERS,
    Rejector,
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
    pace_on_one_core,
    ratio,
    rejector,
    table,
)


def pairs(folder: Path, ours: Rejector, data: Path, rows: int, rounds: int, *, sparse: bool) -> list[Any]:
    """Each of the two engines, and the same by hand."""
    hand = ByHand.of(ours.fitted, sparse=sparse)
    kind = f"{rows / 1e6:g}M {'sparse' if sparse else 'dense'} rows"
    a, b = folder / "ours", folder / "by-hand"
    compare = partial(_compare, a, b, rows=rows, rounds=rounds)
    with dask_workers() as client:
        on_client = compare(
            lambda: decide(ours, data, fresh(a), client=client), lambda: on_dask(hand, data, fresh(b))
        )
    with processes() as pool:
        on_loky = compare(
            lambda: decide(ours, data, fresh(a), n_jobs=WORKERS),
            lambda: on_processes(pool, hand, data, fresh(b)),
        )
    return [[kind, "Dask client / map_partitions", *on_client], [kind, "loky / bare pyarrow", *on_loky]]


def _compare(
    ours: Path,
    by_hand: Path,
    run_ours: Callable[[], Any],
    run_by_hand: Callable[[], Any],
    *,
    rows: int,
    rounds: int,
) -> list[str]:
    """M rows/s both ways, and the ratio of times."""
    times = in_turn(
        {"ours": run_ours, "by hand": run_by_hand},
        rounds,
        check=lambda: check_same(answers(ours), answers(by_hand), rows),
    )
    speeds = [rows / statistics.median(seconds) for seconds in times.values()]
    return [*map(millions, speeds), f"{ratio(times['ours'], times['by hand']):.2f}"]


def one_core(folder: Path, kind: str, rows: int, rounds: int) -> list[str]:
    pace = pace_on_one_core(folder, kind, rows, rounds)
    bytes_per_row = [f"{pace.bytes_in:.0f}", f"{pace.bytes_out:.0f}"]
    return [kind, f"{rows:,}", f"{pace.rows_per_second:,.0f}", f"{pace.start:.1f}", *bytes_per_row]


def main() -> None:
    options = arguments(
        __doc__,
        dense_rows=20_000_000,
        sparse_rows=5_000_000,
        linear_rows=2_000_000,
        tree_rows=500_000,
        combined_rows=200_000,
        rounds=3,
    )
    folder, rounds = options.folder, options.rounds
    lines = []
    for kind, rows in (("linear", options.dense_rows), ("sparse", options.sparse_rows)):
        sparse = kind == "sparse"
        data = table(folder, rows, rows_per_file=max(1, rows // 20), sparse=sparse)
        lines += pairs(folder, rejector(folder, kind), data, rows, rounds, sparse=sparse)
    head = ["rows", "ours / by hand", "ours, M rows/s", "by hand, M rows/s", "time, ours ÷ by hand"]
    print(markdown(head, lines), flush=True)
    sizes = {"linear": options.linear_rows, "sparse": options.linear_rows}
    sizes |= {"tree": options.tree_rows, "combined": options.combined_rows}
    lines = [one_core(folder, kind, rows, rounds) for kind, rows in sizes.items()]
    head = ["one core", "rows", "rows/s", "seconds to start", "bytes a row in", "bytes a row out"]
    print(markdown(head, lines))


if __name__ == "__main__":
    one_thread()
    main()
