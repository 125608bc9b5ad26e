"""Measure passes that look for campaigns: their time and memory, and whether answers wait for them.

TRANSCENDENT_DATA=... python benchmarks/gate/grouping.py [--waiting 20000] [--seconds 60] [--rounds 2]

Different apps wait as rejected objects. A gate then answers 50 requests a second, each with one app that it
rejects and keeps: in turns without a pass, and with one after the other.
"""

import argparse
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import apps
import load
import numpy as np
import psutil
from sqlalchemy import Engine, text

from transcendent.datasets import load_apigraph
from transcendent.explaining import content_keys
from transcendent.gate.access import Tokens
from transcendent.gate.contents import Contents
from transcendent.gate.database import connect, migrate
from transcendent.gate.intake import Draw, audit_secret, keep, register, to_keep
from transcendent.gate.model import load_model
from transcendent.gate.quarantine import Quarantine

sys.path.append(str(Path(__file__).parents[2]))  # a script finds only modules beside itself

from tests.gate.processes import Gate, cluster_in

RATE = 50


def fill(engine: Engine, artifact: Path, n: int) -> list[dict[str, Any]]:
    """Keep n different apps as rejected ones, and return others, which the gate rejects, to send."""
    model, data = load_model(artifact), load_apigraph()
    later = np.flatnonzero(data.times >= np.datetime64("2013"))
    some = np.random.default_rng(0).permutation(later)[: 4 * n]
    _, first = np.unique(content_keys(data.X[some]), return_index=True)
    some = some[np.sort(first)]
    kept, others = some[:n], some[n:]
    number = register(engine, model)
    for part in np.array_split(kept, max(1, n // 1000)):
        decisions = model.rejector.decide(data.X[part])
        decisions = replace(decisions, accepted=np.zeros(len(part), dtype=bool))
        ids = [f"app-{i}" for i in part]
        given = number, Draw(b"", 0), ids, ["sensor"] * len(part), data.X[part], decisions
        keep(engine, list(to_keep(*given).values()))
    Contents(engine, audit_secret(engine)).add_new()
    rejected = others[~model.rejector.decide(data.X[others]).accepted]
    return [
        {"positions": row.indices.tolist(), "values": row.data.tolist()}
        for row in (data.X[[i]] for i in rejected[:4000])
    ]


class Passes(threading.Thread):
    """Makes passes due again as soon as they end, and measures them."""

    def __init__(self, engine: Engine, gate: psutil.Process) -> None:
        super().__init__(daemon=True)
        self.engine, self.gate = engine, gate
        self.seconds: list[float] = []
        self.bytes = 0
        self.over = False

    def run(self) -> None:
        due = text("UPDATE grouped SET started_at = '2000-01-01', seen = ''")
        state = text("SELECT started_at > '2001-01-01' AS begun, seen FROM grouped")
        while not self.over:
            with self.engine.begin() as connection:
                connection.execute(due)
            began: float | None = None
            while not self.over:
                with self.engine.connect() as connection:
                    begun, seen = connection.execute(state).one()
                began = began or (time.perf_counter() if begun else None)
                self._look()
                if seen and began is not None:
                    self.seconds.append(time.perf_counter() - began)
                    break
                time.sleep(0.05)

    def _look(self) -> None:
        for child in self.gate.children():
            try:
                self.bytes = max(self.bytes, child.memory_info().rss)
            except psutil.Error:
                continue


def measure(url: str, artifact: Path, folder: Path, options: argparse.Namespace) -> None:
    engine = connect(url)
    migrate(engine)
    objects = fill(engine, artifact, options.waiting)
    rest = text("UPDATE grouped SET started_at = '2100-01-01'")
    with engine.begin() as connection:
        connection.execute(rest)
    sender = load.Sender(folder, objects, Tokens(engine).create("sensor", "client"))
    gate = Gate(url, artifact, folder / "log").wait()
    to = f"{gate.address}/v1/decisions"
    sender.send_at(to, 1, RATE, 5)
    for _ in range(options.rounds):
        print(f"  no pass:     {sender.send_at(to, 1, RATE, options.seconds)}", flush=True)
        passes = Passes(engine, psutil.Process(gate.process.pid))
        passes.start()
        print(f"  with passes: {sender.send_at(to, 1, RATE, options.seconds)}", flush=True)
        passes.over = True
        passes.join()
        with engine.begin() as connection:
            connection.execute(rest)
        took = ", ".join(f"{each:.1f}" for each in passes.seconds)
        print(f"  passes took {took} s; their process had up to {passes.bytes / 1e9:.2f} GB", flush=True)
    counted = Quarantine(engine).counts()
    print(f"  {counted['campaigns']:,} campaigns hold {counted['in_campaigns']:,} of {counted['rejected']:,}")
    gate.stop()
    engine.dispose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--waiting", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        apps.fit(folder / "gate.transcendent")
        with cluster_in(folder / "postgres") as server:
            measure(server.url, folder / "gate.transcendent", folder, options)


if __name__ == "__main__":
    main()
