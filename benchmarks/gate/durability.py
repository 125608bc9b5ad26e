"""Kill workers of a gate and crash its database under load; count what was acknowledged and what is there.

TRANSCENDENT_DATA=... python benchmarks/gate/durability.py [--workers 20] [--databases 5] [--seed 0]

Four clients send batches of apps and send again what was not answered. A worker is ended by SIGKILL, the
database is stopped in immediate mode and started again. Every acknowledged rejection has to be in the
quarantine exactly once, and every client has to be answered again within 10 seconds.
"""

import argparse
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from apps import apps_of_2013, fit_on_2012, to_object
from parts import Cluster, Gate, cluster_in
from sqlalchemy import text

from transcendent.errors import GateError
from transcendent.gate import GateClient
from transcendent.gate.access import Tokens
from transcendent.gate.database import connect, migrate

CLIENTS = 4
BATCH = 20
LIMIT = 10.0  # seconds without an answer


@dataclass
class Sent:
    """What a client sent, and what it was told."""

    acknowledged: list[str] = field(default_factory=list)
    answered_at: list[float] = field(default_factory=list)
    repeated: int = 0
    batches: int = 0


def send(
    number: int, address: str, token: str, objects: list[Any], done: threading.Event, sent: Sent
) -> None:
    """Send batches until told to stop; the same batch again until it is answered."""
    with GateClient(address, token, timeout=15) as client:
        while not done.is_set():
            start = sent.batches * BATCH
            sent.batches += 1
            batch = [
                {**objects[(start + i) % len(objects)], "id": f"client{number}-{start + i}"}
                for i in range(BATCH)
            ]
            while (answer := _try(client, batch)) is None:
                sent.repeated += 1
                time.sleep(0.05)
            sent.acknowledged += [each["id"] for each in answer if not each["accepted"]]
            sent.answered_at.append(time.monotonic())


def _try(client: GateClient, batch: list[Any]) -> list[dict[str, Any]] | None:
    try:
        return client.decide_objects(batch)
    except GateError as error:
        if error.status not in (0, 503):
            raise
        return None


def workers_of(gate: Gate) -> list[psutil.Process]:
    """Return the processes that serve."""
    return [each for each in psutil.Process(gate.process.pid).children() if "spawn_main" in _command(each)]


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def disturb(event: str, gate: Gate, server: Cluster, generator: np.random.Generator) -> float:
    """Kill a worker, or crash the database and start it again; return when it was dead."""
    if event == "database":
        server.stop("immediate")
        dead = time.monotonic()
        server.start()
        return dead
    while not (alive := workers_of(gate)):
        time.sleep(0.1)
    alive[generator.integers(len(alive))].send_signal(signal.SIGKILL)
    return time.monotonic()


def longest_wait(sent: list[Sent], event: float) -> float:
    """Return how long after an event the last of the clients was answered again."""
    return max(next((t for t in list(each.answered_at) if t > event), np.inf) for each in sent) - event


def check(server: Cluster, sent: list[Sent]) -> bool:
    """Compare what was acknowledged with what is there."""
    engine = connect(server.url)
    with engine.connect() as connection:
        found = connection.execute(text("SELECT object_id, count(*) FROM payload GROUP BY 1")).all()
        items = connection.execute(text("SELECT count(*) FROM item")).scalar_one()
        identities = connection.execute(text("SELECT count(*) FROM identity")).scalar_one()
    engine.dispose()
    times = {name: int(n) for name, n in found}
    acknowledged = [name for each in sent for name in each.acknowledged]
    lost = sum(name not in times for name in acknowledged)
    twice = sum(n > 1 for n in times.values())
    print(
        f"batches answered: {sum(len(each.answered_at) for each in sent):,}, "
        f"sent again: {sum(each.repeated for each in sent):,}"
    )
    print(f"rejections acknowledged: {len(acknowledged):,}, lost: {lost}, there twice: {twice}")
    print(f"payloads {sum(times.values()):,}, items {items:,}, identities {identities:,}")
    return bool(lost == 0 and twice == 0 and sum(times.values()) == items == identities)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=20)
    parser.add_argument("--databases", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    generator = np.random.default_rng(options.seed)
    events = generator.permutation(["worker"] * options.workers + ["database"] * options.databases)
    with tempfile.TemporaryDirectory() as name, cluster_in(Path(name) / "postgres") as server:
        folder = Path(name)
        fit_on_2012(folder / "gate.transcendent")
        objects = [to_object("", row) for row in apps_of_2013()[:2000]]
        engine = connect(server.url)
        migrate(engine)
        token = Tokens(engine).create("sensor", "client")
        engine.dispose()
        gate = Gate(
            server.url, folder / "gate.transcendent", folder / "log", workers=2, log_level="warning"
        ).wait()
        done, sent = threading.Event(), [Sent() for _ in range(CLIENTS)]
        threads = [
            threading.Thread(target=send, args=(i, gate.address, token, objects, done, sent[i]))
            for i in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        waits = []
        for number, event in enumerate(events.tolist()):
            time.sleep(generator.uniform(1, 4))
            happened = disturb(event, gate, server, generator)
            while (wait := longest_wait(sent, happened)) == np.inf and time.monotonic() < happened + 60:
                time.sleep(0.05)
            waits.append(wait)
            print(f"{number + 1:2} {event:8} all four clients answered again after {wait:5.2f} s", flush=True)
        done.set()
        for thread in threads:
            thread.join()
        good = check(server, sent)
        print(f"longest wait: {max(waits):.2f} s")
        gate.stop()
    if not good or max(waits) > LIMIT:
        sys.exit("not what was promised")


if __name__ == "__main__":
    main()
