"""Send generated frames of text, numbers and booleans to gates, and compare with Python.

For each frame, the gate, `transcendent decide` of the file and Python decide alike to the bit; the export has
the rows that were sent, and deciding these again gives the same.

    python benchmarks/gate/frames.py --frames 50
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # a script finds only modules beside itself

from tests.gate import frames
from tests.gate.processes import Gate, cluster_in
from transcendent.gate import GateClient
from transcendent.gate.access import Tokens
from transcendent.gate.database import connect, migrate


def run(seed: int, url: str, folder: Path) -> int:
    """Check one frame, and return the number of rejected objects."""
    folder.mkdir()
    rejector, sent, file = frames.prepare(seed, folder)
    engine = connect(url)
    tokens = {
        role: Tokens(engine).create(f"{role}-{seed}", role) for role in ("client", "analyst", "operator")
    }
    engine.dispose()
    gate = Gate(url, folder / "artifact", folder / "log", audit=1).wait(600)
    try:
        clients = {role: GateClient(gate.address, token) for role, token in tokens.items()}
        return frames.check(rejector, sent, file, clients, folder / "artifact")
    finally:
        gate.stop()


def main() -> None:
    """Check all frames, each in a database of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=50)
    given = parser.parse_args()
    started, rejected = time.perf_counter(), 0
    with tempfile.TemporaryDirectory() as folder, cluster_in(Path(folder) / "server") as cluster:
        for seed in range(given.frames):
            engine = connect(cluster.url)
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.exec_driver_sql(f"CREATE DATABASE frames_{seed}")
            engine.dispose()
            url = cluster.url.rpartition("/")[0] + f"/frames_{seed}"
            engine = connect(url)
            migrate(engine)
            engine.dispose()
            rejected += run(seed, url, Path(folder) / str(seed))
            print(f"{seed + 1} frames are equal", flush=True)
    seconds = time.perf_counter() - started
    print(f"{given.frames} frames of {frames.SENT} objects, {rejected:,} rejected: equal ({seconds:.0f} s)")


if __name__ == "__main__":
    main()
