"""Print how quickly contents and copies are found in a large quarantine, and how long a label of them takes.

python benchmarks/gate/contents.py                  # 300,000 items; or another number

Half of the items have one content, the others a thousand; all are found, then 50 a second arrive.
"""

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import scipy.sparse as sp
from sqlalchemy import Engine, text

sys.path.append(str(Path(__file__).parents[2]))  # a script finds only modules beside itself

from tests.gate.processes import cluster_in
from transcendent.decisions import Decisions
from transcendent.gate.contents import EVERY, Contents
from transcendent.gate.database import connect, migrate
from transcendent.gate.intake import Draw, keep, register, to_keep
from transcendent.gate.label_work import go_on
from transcendent.gate.model import Model
from transcendent.gate.quarantine import Quarantine
from transcendent.tables.layout import Layout

N = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
SECOND, WIDTH, CONTENTS = 50, 1159, 1000
MODEL = Model(None, "d" * 64, Layout(WIDTH), ["goodware", "malware"], {})


def main() -> None:
    with TemporaryDirectory() as folder, cluster_in(Path(folder)) as server:
        engine = connect(server.url)
        migrate(engine)
        contents, quarantine = Contents(engine, b"secret"), Quarantine(engine)
        arrivals = Arrivals(engine)
        for _ in range(0, N, 10_000):
            arrivals.add(10_000)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
        seconds = timed(contents.add_new)
        print(f"{N:,} items: contents of all in {seconds:.1f} s, {N / seconds:,.0f} a second")
        with engine.begin() as connection:  # as if they had come earlier
            connection.execute(text("UPDATE item SET received_at = received_at - interval '1 hour'"))
        contents.add_new()
        took = []
        for _ in range(12):
            arrivals.add(int(SECOND * EVERY))
            took.append(timed(contents.add_new))
        print(f"then {SECOND} a second: {np.median(took):.3f} s every {EVERY:g} s (at most {max(took):.3f})")
        print(f"a look for copies without a leader: {timed(contents.repair):.2f} s")
        started = time.perf_counter()
        items = quarantine.claim("ann", 100).items
        print(f"a claim of {len(items)}: {time.perf_counter() - started:.3f} s")
        largest = max(items, key=lambda item: int(item["copies"]))["id"]
        label = timed(lambda: quarantine.resolve("ann", largest, "malware"))
        counts = timed(quarantine.counts)
        rest = timed(lambda: go_on(engine, math.inf))
        print(f"label of one with {N // 2:,} copies: {label:.3f} s, all of them {rest:.1f} s later")
        print(f"counts meanwhile: {counts:.3f} s")
        undo = timed(lambda: quarantine.undo("ann", largest))
        rest = timed(lambda: go_on(engine, math.inf))
        print(f"undo of it: {undo:.3f} s, all of them {rest:.1f} s later")
        engine.dispose()


class Arrivals:
    """Rejected objects, half of them with the same features."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._rng, self._n = engine, np.random.default_rng(0), 0
        density = sp.random_array((CONTENTS + 1, WIDTH), density=0.03, format="csr", rng=0)
        self._features = sp.csr_matrix((density != 0).astype(np.float64))

    def add(self, n: int) -> None:
        """Keep n more objects."""
        which = np.where(self._rng.random(n) < 0.5, 0, self._rng.integers(1, CONTENTS + 1, n))
        names = [f"object {self._n + i}" for i in range(n)]
        self._n += n
        low, none = np.full(n, 0.01), np.zeros(n, dtype=bool)
        rejected = Decisions(np.full(n, "malware"), none, low, 1 - low, np.array(MODEL.classes))
        number = register(self._engine, MODEL)
        kept = to_keep(number, Draw(b"", 0), names, ["sensor"] * n, self._features[which], rejected)
        keep(self._engine, list(kept.values()))


def timed(work: Callable[[], Any]) -> float:
    """Return the seconds that some work takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
