"""Measure how fast a gate explains items, and what that costs the decisions that it makes meanwhile.

TRANSCENDENT_DATA=... python benchmarks/gate/explanations.py [--seconds 8] [--rounds 3] [--known 20000]

Needs PostgreSQL and wrk (Debian's packages). A gate serves a LinearSVC fitted on the apps of 2012, and knows
the labels of apps of 2013. Requests come at random times, at half of what the gate sustains, in turns alone
and beside an analyst who asks for the next explanation as soon as the last is answered. Medians over rounds
are printed.
"""

import argparse
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import apps
import numpy as np
import psutil
from load import CONNECTIONS, ROWS, Run, Sender
from sqlalchemy import Engine, text

from transcendent.datasets import load_apigraph
from transcendent.gate import GateClient
from transcendent.gate.access import Tokens
from transcendent.gate.database import connect, migrate
from transcendent.gate.intake import Draw, keep, register, to_keep
from transcendent.gate.model import load_model

sys.path.append(str(Path(__file__).parents[2]))  # a script finds only modules beside itself

from tests.gate.processes import Gate, cluster_in

_LABEL = """
WITH chosen AS (UPDATE item SET state = 1 WHERE state = 0 RETURNING id)
INSERT INTO label (item, action, label, author)
SELECT id, 'label', payload.label, 'benchmark' FROM chosen JOIN payload USING (id)
"""


def keep_apps(engine: Engine, artifact: Path, start: int, n: int) -> None:
    """Keep apps of 2013, as if all had been drawn for the audit."""
    data = load_apigraph()
    rows = data.X[data.times.astype("datetime64[Y]").astype(str) == "2013"][start : start + n]
    model = load_model(artifact)
    names = [f"kept {start + i}" for i in range(rows.shape[0])]
    number, decisions = register(engine, model), model.decide(rows)
    kept = to_keep(number, Draw(b"benchmark", 1.0), names, ["benchmark"] * len(names), rows, decisions)
    keep(engine, list(kept.values()))


class Analyst:
    """Asks for explanations, one after the other, while it is wanted."""

    def __init__(self, address: str, token: str, items: list[int]) -> None:
        self._client, self.items = GateClient(address, token), items
        self.took: list[float] = []

    def ask(self, item: int) -> None:
        started = time.perf_counter()
        self._client.explain(item)
        self.took.append(time.perf_counter() - started)

    def beside(self, work: Any) -> Any:
        """Return what work returns, done while explanations are computed."""
        done = threading.Event()

        def go_on() -> None:
            while not done.is_set():
                self.ask(self.items[len(self.took) % len(self.items)])

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            return work()
        finally:
            done.set()
            thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--known", type=int, default=20_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, cluster_in(Path(name) / "postgres") as server:
        folder, engine = Path(name), connect(server.url)
        migrate(engine)
        artifact = folder / "gate.transcendent"
        apps.fit(artifact)
        keep_apps(engine, artifact, 0, options.known)
        with engine.begin() as connection:
            connection.execute(text(_LABEL))
        keep_apps(engine, artifact, options.known, 500)
        with engine.connect() as connection:
            items = list(connection.execute(text("SELECT id FROM item WHERE state = 0")).scalars())
        objects, _ = apps.objects_to_send(ROWS)
        sender = Sender(folder, objects, Tokens(engine).create("sensor", "client"))
        gate = Gate(server.url, artifact, folder / "log", audit=0.01, log_level="warning").wait()
        analyst = Analyst(gate.address, Tokens(engine).create("ann", "analyst"), items)
        try:
            measure(gate, sender, analyst, options)
        finally:
            gate.stop()
            engine.dispose()


def measure(gate: Gate, sender: Sender, analyst: Analyst, options: argparse.Namespace) -> None:
    """Print the time of explanations, and the latency of decisions without and beside them."""
    process = psutil.Process(gate.process.pid)
    before = process.memory_info().rss
    for item in analyst.items[:100]:
        analyst.ask(item)
        time.sleep(2 * analyst.took[-1])  # the gate rests between explanations
    first, *others = analyst.took
    grown = process.memory_info().rss - before
    p50, p95 = np.quantile(others, [0.5, 0.95])
    print(
        f"{options.known:,} labelled items: {first:.2f} s for the first explanation, {1e3 * p50:.0f} ms for"
    )
    print(f"others (95% below {1e3 * p95:.0f} ms); the gate grew by {grown >> 20} MB")
    url = f"{gate.address}/v1/decisions"
    for size, connections in CONNECTIONS.items():
        most = sender.send(url, size, connections, options.seconds).objects
        runs: dict[bool, list[Run]] = {False: [], True: []}
        start = len(analyst.took)
        for _ in range(options.rounds):
            for is_beside, own in runs.items():

                def send(size: int = size, most: float = most) -> Run:
                    return sender.send_at(url, size, most / size / 2, options.seconds)

                own.append(analyst.beside(send) if is_beside else send())
        print(f"\nbatches of {size}, {most / size / 2:,.0f} requests/s")
        for name, own in zip(("alone", "beside explanations"), runs.values(), strict=True):
            p50s, p99s = ([getattr(run, each) for run in own] for each in ("p50", "p99"))
            bad = sum(run.bad for run in own)
            p50, p99 = statistics.median(p50s), statistics.median(p99s)
            print(f"  {name:20} p50 {p50:6.1f} ms   p99 {p99:6.1f} ms   not 200: {bad}")
        took = analyst.took[start:]
        rate = len(took) / options.rounds / options.seconds
        print(f"  {rate:.1f} explanations a second, {1e3 * statistics.median(took):.0f} ms each", flush=True)


if __name__ == "__main__":
    main()
