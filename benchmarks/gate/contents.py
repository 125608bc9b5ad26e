"""Print how quickly contents and copies are found in a large quarantine, and how long a label of them takes.

python benchmarks/gate/contents.py                  # 300,000 items; or another number

Half of the items have one content, the others a thousand; all are found, then 50 a second arrive.
"""

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import scipy.sparse as sp
from sqlalchemy import text

sys.path.append(str(Path(__file__).parents[2]))  # a script finds only modules beside itself

from tests.gate.conftest import tables_on
from tests.gate.processes import cluster_in
from tests.gate.test_quarantine import rows
from transcendent.gate.contents import EVERY, Contents
from transcendent.gate.database import connect
from transcendent.gate.features import encode
from transcendent.gate.intake import keep
from transcendent.gate.quarantine import Quarantine

N = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
SECOND = 50


def main() -> None:
    with TemporaryDirectory() as folder, cluster_in(Path(folder)) as server, tables_on(server.url) as url:
        engine = connect(url)
        contents, quarantine = Contents(engine, b"secret"), Quarantine(engine)
        features = encode(sp.random_array((1001, 1159), density=0.03, format="csr", rng=0) != 0)
        rng = np.random.default_rng(0)
        for start in range(0, N, 10_000):
            add(engine, rng, features, 10_000, f"a{start}-")
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
        seconds = timed(contents.add_new)
        print(f"{N:,} items: contents of all in {seconds:.1f} s, {N / seconds:,.0f} a second")
        took = []
        for turn in range(12):
            add(engine, rng, features, int(SECOND * EVERY), f"b{turn}-")
            took.append(timed(contents.add_new))
        print(f"then {SECOND} a second: {np.median(took):.3f} s every {EVERY:g} s (at most {max(took):.3f})")
        print(f"a look for copies without a leader: {timed(contents.repair):.2f} s")
        started = time.perf_counter()
        items = quarantine.claim("ann", 100).items
        print(f"a claim of {len(items)}: {time.perf_counter() - started:.3f} s")
        largest = max(items, key=lambda item: item["copies"])
        for name, work in (
            ("label", lambda: quarantine.resolve("ann", largest["id"], "malware")),
            ("undo", lambda: quarantine.undo("ann", largest["id"])),
        ):
            print(f"{name} of one with {N // 2:,} copies: {timed(work):.1f} s")
        engine.dispose()


def add(engine, rng, features, n, prefix):
    """Keep n items, half of them with the first content."""
    which = np.where(rng.random(n) < 0.5, 0, rng.integers(1, len(features), n))
    made = rows(engine, [0.1] * n, prefix)
    place = made[0].index(next(each for each in made[0] if isinstance(each, bytes) and each[:1] == b"\x03"))
    keep(engine, [(*row[:place], features[i], *row[place + 1 :]) for row, i in zip(made, which, strict=True)])


def timed(work):
    """Return the seconds that some work takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
