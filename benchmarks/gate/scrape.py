"""Kill gates while a real Prometheus scrapes them; compare what it counted with what was answered.

python benchmarks/gate/scrape.py [--gates 2] [--kills 10] [--seconds 2] [--interval 0.5] [--seed 0]

Needs PostgreSQL and Prometheus (Debian's packages). Clients send batches to several gates, and send what was
not answered to the next one. Every few seconds a gate is ended by SIGKILL and started again on its port. A
counter restarts with its process, so Prometheus adds up what each process had counted when it was last
scraped. What is missing in the end must have been answered between a process's last scrape and its death.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from sklearn.datasets import make_classification
from sklearn.svm import LinearSVC

from transcendent import InductiveEvaluator, save
from transcendent.errors import GateError
from transcendent.gate import GateClient
from transcendent.gate.access import Tokens
from transcendent.gate.database import connect, migrate

sys.path.append(str(Path(__file__).parents[2]))  # a script finds only modules beside itself

from tests.gate.processes import Gate, cluster_in, free_port

CLIENTS = 2
BATCH = 20
OBJECTS = "transcendent_gate_objects_total"
REQUESTS = 'transcendent_gate_requests_total{route="/v1/decisions",status="200"}'
CONFIG = """
global: {{scrape_interval: {interval:g}ms, scrape_timeout: {interval:g}ms}}
scrape_configs:
  - job_name: gate
    authorization: {{credentials: {token}}}
    static_configs: [{{targets: [{targets}]}}]
"""


@dataclass
class Answers:
    """Answered batches: when, by which gate, and the decisions by label and outcome."""

    batches: list[tuple[float, int, Counter[tuple[str, str]]]] = field(default_factory=list)
    tried: int = 0


def send(number: int, addresses: list[str], token: str, X: Any, done: threading.Event, sent: Answers) -> None:
    """Send batches until stopped; repeat a batch, at the next gate, until it is answered."""
    place = number
    with ExitStack() as stack:
        clients = [stack.enter_context(GateClient(each, token, retries=0)) for each in addresses]
        while not done.is_set():
            start = len(sent.batches) * BATCH
            rows = X[np.arange(start, start + BATCH) % len(X)]
            ids = [f"client{number}-{start + i}" for i in range(BATCH)]
            try:
                sent.tried += 1
                decisions = clients[place % len(clients)].decide(ids, rows)
            except GateError:
                place += 1
                time.sleep(0.02)
                continue
            outcomes = Counter((each["label"], outcome(each)) for each in decisions)
            sent.batches.append((time.time(), place % len(clients), outcomes))
            place += 1


def outcome(decision: dict[str, Any]) -> str:
    """Return what the metrics call a decision."""
    return "accepted" if decision["accepted"] else "rejected"


class Prometheus:
    """A server that scrapes gates into a folder."""

    def __init__(self, folder: Path, targets: list[str], token: str, interval: float) -> None:
        self._address = f"127.0.0.1:{free_port()}"
        listed = ", ".join(f'"{each}"' for each in targets)
        config = CONFIG.format(interval=1000 * interval, token=token, targets=listed)
        (folder / "prometheus.yml").write_text(config)
        command = [
            "prometheus",
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
        ]
        with (folder / "prometheus.log").open("wb") as log:
            self.process = subprocess.Popen(
                [*command, f"--web.listen-address={self._address}"], stdout=log, stderr=log
            )

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the result of a query now."""
        answer = httpx2.get(f"http://{self._address}/api/v1/query", params={"query": expression}, timeout=30)
        found: list[dict[str, Any]] = answer.raise_for_status().json()["data"]["result"]
        return found

    def wait(self, targets: int) -> None:
        """Wait until all targets have been scraped."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                if sum(float(each["value"][1]) for each in self.query('up{job="gate"}')) == targets:
                    return
            except httpx2.HTTPError:
                pass
            time.sleep(0.2)
        raise RuntimeError("Prometheus did not scrape all gates")

    def total(self, expression: str) -> Counter[tuple[str, str]]:
        """Add up the increases of counters by label and decision, through restarts."""
        total: Counter[tuple[str, str]] = Counter()
        for series in self.query(f"{expression}[1d]"):
            values = [float(value) for _, value in series["values"]]
            steps = zip([0.0, *values], values, strict=False)
            labels = series["metric"]
            key = labels.get("label", ""), labels.get("decision", "")
            total[key] += round(sum(now - last if now >= last else now for last, now in steps))
        return total

    def last_scrape(self, target: str, before: float) -> float:
        """Return when a target was last scraped before a time."""
        (found,) = self.query(f'process_start_time_seconds{{instance="{target}"}}[1d]')
        return max(float(at) for at, _ in found["values"] if float(at) < before)


def make_problem(path: Path) -> Any:
    """Fit and save a small rejector, and return later rows that drift."""
    X, y = make_classification(6000, n_features=12, n_informative=6, flip_y=0.05, random_state=0)
    X[2000:] += np.random.default_rng(0).normal(scale=1.5, size=(4000, 12))
    rejector = InductiveEvaluator(LinearSVC(random_state=0), random_state=0, verbose=False)
    save(rejector.fit(X[:2000], np.where(y, "malware", "goodware")[:2000]), path)
    return X[2000:]


def kill(gates: list[Gate], place: int, artifact: Path) -> float:
    """Kill a gate and start it again; return when it was dead."""
    old = gates[place]
    old.stop(signal.SIGKILL)
    dead = time.time()
    gates[place] = Gate(old.database, artifact, old.log, port=old.port, log_level="warning").wait(120)
    return dead


def report(
    server: Prometheus, gates: list[Gate], sent: list[Answers], kills: list[tuple[int, float]]
) -> bool:
    """Print what was answered beside what Prometheus has counted; return whether they agree."""
    batches = [batch for each in sent for batch in each.batches]
    answered = sum((outcomes for _, _, outcomes in batches), Counter[tuple[str, str]]())
    unseen: Counter[tuple[str, str]] = Counter()
    late = 0
    for place, dead in kills:
        last = server.last_scrape(f"127.0.0.1:{gates[place].port}", dead)
        for at, gate, outcomes in batches:
            if gate == place and last < at <= dead:
                unseen += outcomes
                late += 1
    counted, requests = server.total(OBJECTS), server.total(REQUESTS)[("", "")]
    increase = {
        (each["metric"]["label"], each["metric"]["decision"]): float(each["value"][1])
        for each in server.query(f"sum by (label, decision) (increase({OBJECTS}[1d]))")
    }
    # A kill may lose the answers under way, one a client, to batches that were counted and are sent again.
    lost_answers = CLIENTS * len(kills)
    print(f"{'':24} answered   counted  missing  after the last scrape  increase()")
    good = True
    for key in sorted(answered):
        missing = answered[key] - counted[key]
        good &= -lost_answers * BATCH <= missing <= unseen[key]
        row = f"{answered[key]:9,} {counted[key]:9,} {missing:8,} {unseen[key]:22,} {increase[key]:11,.0f}"
        print(f"{' '.join(key):24}{row}")
    missing = len(batches) - requests
    good &= -lost_answers <= missing <= late
    print(f"{'requests':24}{len(batches):9,} {requests:9,} {missing:8,} {late:22,}")
    unanswered = sum(each.tried - len(each.batches) for each in sent)
    print(f"{len(kills)} kills; requests without an answer, most to a dead gate: {unanswered:,}")
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gates", type=int, default=2)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=2, help="between a restart and the next kill")
    parser.add_argument("--interval", type=float, default=0.5, help="seconds between scrapes")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    generator = np.random.default_rng(options.seed)
    with tempfile.TemporaryDirectory() as name, cluster_in(Path(name) / "postgres") as cluster:
        folder = Path(name)
        artifact = folder / "gate.transcendent"
        X = make_problem(artifact)
        engine = connect(cluster.url)
        migrate(engine)
        token, watcher = Tokens(engine).create("sensor", "client"), Tokens(engine).create("scrape", "metrics")
        engine.dispose()
        gates = [
            Gate(cluster.url, artifact, folder / f"log{i}", log_level="warning") for i in range(options.gates)
        ]
        addresses = [gate.wait(120).address for gate in gates]
        server = Prometheus(folder, [f"127.0.0.1:{each.port}" for each in gates], watcher, options.interval)
        try:
            server.wait(len(gates))
            done, sent = threading.Event(), [Answers() for _ in range(CLIENTS)]
            threads = [
                threading.Thread(target=send, args=(i, addresses, token, X, done, sent[i]))
                for i in range(CLIENTS)
            ]
            for thread in threads:
                thread.start()
            kills = []
            for _ in range(options.kills):
                time.sleep(options.seconds * generator.uniform(0.5, 1.5))
                place = int(generator.integers(len(gates)))
                kills.append((place, kill(gates, place, artifact)))
            time.sleep(options.seconds)
            done.set()
            for thread in threads:
                thread.join()
            time.sleep(4 * options.interval)
            good = report(server, gates, sent, kills)
        finally:
            server.process.terminate()
            server.process.wait(30)
            for gate in gates:
                gate.stop()
    if not good:
        sys.exit("Prometheus has counted something else")


if __name__ == "__main__":
    main()
