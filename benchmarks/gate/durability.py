"""Kill gates and crash their database under load; count what was acknowledged and what is there.

TRANSCENDENT_DATA=... python benchmarks/gate/durability.py [--gates 2] [--kills 20] [--crashes 5] [--seed 0]
    [--objects apps|cves] [--operation]

Four clients send batches of objects to several gates, and send what was not answered to the next one. A gate
is ended by SIGKILL and started again, as a supervisor does; the database is stopped in immediate mode and
started again. Every acknowledged rejection has to be in the quarantine exactly once, the counts have to be
those of a scan, and every client has to be answered again within 10 seconds. The next disturbance comes when
all gates are ready again: with two gates, one at a time is down.

Meanwhile Chromium has a desk open, at which an analyst labels by keys, and two walls. Every label that the
desk has confirmed has to be there exactly once, pages have to be whole or to say why they are not there, and
nobody has to sign in again.

With --operation, gates follow the deployments, and everything else goes on meanwhile: promotions, shadows,
monitors, an analyst, a reader of events, webhooks and scrapes of the metrics. Every event has to be read
exactly once and to be delivered, and to tell what happened.
"""

import argparse
import importlib
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from open_pages import OpenPages
from operation import Operation
from sqlalchemy import text

from transcendent.errors import GateError
from transcendent.gate import GateClient
from transcendent.gate.access import Tokens
from transcendent.gate.check import check as check_tables
from transcendent.gate.database import connect, migrate
from transcendent.gate.quarantine import Quarantine

sys.path.append(str(Path(__file__).parents[2]))  # a script finds only modules beside itself

from tests.gate.processes import Cluster, Gate, cluster_in

CLIENTS = 4
BATCH = 20
LIMIT = 10.0  # seconds without an answer


@dataclass
class Sent:
    """The requests of a client, and their answers."""

    acknowledged: list[str] = field(default_factory=list)
    answered_at: list[float] = field(default_factory=list)
    repeated: int = 0
    batches: int = 0


def send(
    number: int, addresses: list[str], token: str, objects: list[Any], done: threading.Event, sent: Sent
) -> None:
    """Send batches until stopped; repeat a batch, at the next gate, until it is answered."""
    with ExitStack() as stack:
        clients = [
            stack.enter_context(GateClient(address, token, timeout=15, retries=0)) for address in addresses
        ]
        while not done.is_set():
            start = sent.batches * BATCH
            sent.batches += 1
            batch = [
                {**objects[(start + i) % len(objects)], "id": f"client{number}-{start + i}"}
                for i in range(BATCH)
            ]
            while (answer := _try(clients[(number + sent.repeated) % len(clients)], batch)) is None:
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


def disturb(event: str, gates: list[Gate], server: Cluster, generator: np.random.Generator) -> float:
    """Kill a gate, or crash the database and start it again; return when it was dead."""
    if event == "database":
        server.stop("immediate")
        dead = time.monotonic()
        server.start()
        return dead
    gates[generator.integers(len(gates))].stop(signal.SIGKILL)
    return time.monotonic()


def supervise(gates: list[Gate], start: Callable[..., Gate]) -> None:
    """Restart gates that have exited; one that finds no database exits, too."""
    for place, gate in enumerate(gates):
        if gate.process.poll() is not None:
            gates[place] = start(gate.log, port=gate.port)


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
    counts = Quarantine(engine).counts()
    counted = sum(counts[state] for state in ("waiting", "labelled", "closed"))
    contradictions = check_tables(engine)
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
    print(
        f"payloads {sum(times.values()):,}, items {items:,}, identities {identities:,}, counted {counted:,}"
    )
    for each in contradictions:
        print(each.what)
    same = sum(times.values()) == items == identities == counted
    return bool(lost == 0 and twice == 0 and same and not contradictions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gates", type=int, default=2)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--crashes", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--objects", choices=["apps", "cves"], default="apps")
    parser.add_argument("--operation", action="store_true", help="with everything that goes on around gates")
    options = parser.parse_args()
    generator = np.random.default_rng(options.seed)
    events = generator.permutation(["gate"] * options.kills + ["database"] * options.crashes)
    with (
        tempfile.TemporaryDirectory() as name,
        cluster_in(Path(name) / "postgres") as server,
        ExitStack() as stack,
    ):
        folder = Path(name)
        problem = importlib.import_module(options.objects)
        objects, _ = problem.objects_to_send(2000)
        engine = connect(server.url)
        migrate(engine)
        token = Tokens(engine).create("sensor", "client")
        engine.dispose()
        if options.operation:
            around = stack.enter_context(Operation(server.url, folder))
            artifact, settings = None, around.settings
        else:
            artifact, settings = folder / "gate.transcendent", {}
            problem.fit(artifact)

        def start(log: Path, **given: Any) -> Gate:
            return Gate(server.url, artifact, log, log_level="warning", **settings, **given)

        gates = [start(folder / f"log{i}") for i in range(options.gates)]
        addresses = [gate.wait(180).address for gate in gates]
        if options.operation:
            around.begin(addresses)
        pages = stack.enter_context(OpenPages(server.url, addresses))
        done, sent = threading.Event(), [Sent() for _ in range(CLIENTS)]
        threads = [
            threading.Thread(target=send, args=(i, addresses, token, objects, done, sent[i]))
            for i in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        waits = []
        for number, event in enumerate(events.tolist()):
            time.sleep(generator.uniform(1, 4))
            happened = disturb(event, gates, server, generator)
            while (wait := longest_wait(sent, happened)) == np.inf and time.monotonic() < happened + 60:
                supervise(gates, start)
                time.sleep(0.05)
            waits.append(wait)
            while not all(gate.ready for gate in gates) and time.monotonic() < happened + 180:
                supervise(gates, start)
                time.sleep(0.1)
            print(f"{number + 1:2} {event:8} all four clients answered again after {wait:5.2f} s", flush=True)
        done.set()
        for thread in threads:
            thread.join()
        pages.stop_labelling()
        if options.operation:
            around.end()
        good = check(server, sent) & pages.check()
        if options.operation:
            answered = BATCH * sum(len(each.answered_at) for each in sent)
            tried = answered + BATCH * sum(each.repeated for each in sent)
            good &= around.check([name for each in sent for name in each.acknowledged], answered, tried)
        print(f"longest wait: {max(waits):.2f} s")
        for gate in gates:
            gate.stop()
    if not good or max(waits) > LIMIT:
        sys.exit("not what was promised")


if __name__ == "__main__":
    main()
