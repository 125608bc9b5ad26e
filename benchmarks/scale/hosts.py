"""decide_table on hosts of their own, a scheduler and two workers, which are cut off, slow, or hang.

python benchmarks/scale/hosts.py --folder /tmp/scale                                  # about 40 minutes
python benchmarks/scale/hosts.py --folder /tmp/scale --rows 1000000 --repeats 1       # a quick trial

The hosts, the caller's among them, are network namespaces with a bridge between them, which takes root and
iproute2; no packet leaves them. Table and output are in an S3 store at the caller's host. A worker is given
up after 30 s without a sign.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
from common import WORKERS, arguments, markdown, one_thread, wait_until
from distributed import Client
from faults import HEAD, Outcome, Run, Trial, finish, line
from store import SIZES, InStore, served, speed

BRIDGE, CALLER, SCHEDULER = "tr-bridge", "10.77.0.1", "10.77.0.2"
HOSTS = {"tr-scheduler": SCHEDULER} | {f"tr-worker{i}": f"10.77.0.{i + 3}" for i in range(WORKERS)}
GIVEN_UP = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "30s", "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "30s"}
SLOW = ("rate", "50mbit", "burst", "64kb", "latency", "200ms")


def ip(*words: str) -> None:
    """Change the network."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


def enter_own_network() -> None:
    """Start again in a namespace of the caller's own, in which nothing but these hosts can be reached."""
    if os.environ.get("TRANSCENDENT_OWN_NETWORK") is None:
        os.environ["TRANSCENDENT_OWN_NETWORK"] = "1"
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv])


@contextmanager
def network() -> Iterator[None]:
    """Hosts on one bridge, of which the caller has an address, too."""
    _remove()
    try:
        ip("link", "set", "lo", "up")
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("address", "add", f"{CALLER}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for name, address in HOSTS.items():
            ip("netns", "add", name)
            ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", name, "master", BRIDGE, "up")
            ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                ip("-n", name, "link", "set", device, "up")
        yield
    finally:
        _remove()


def _remove() -> None:
    for name in HOSTS:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True)
    subprocess.run(["ip", "link", "delete", BRIDGE], capture_output=True)


@dataclass(frozen=True)
class Cluster:
    """A scheduler and the workers of each host, as processes there."""

    address: str
    nannies: list[subprocess.Popen[bytes]]

    def worker(self) -> psutil.Process:
        """The process that decides, on the first of the workers' hosts."""
        children = psutil.Process(self.nannies[0].pid).children(recursive=True)
        return max(children, key=lambda child: child.cpu_times().user)


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Start it, end what is left of it."""
    address = f"tcp://{SCHEDULER}:8786"
    scheduler, *workers = HOSTS
    started = [_start(folder, scheduler, "scheduler", "--port", "8786", "--no-dashboard")]
    try:
        started += [
            _start(
                folder, name, "worker", address, "--nthreads", "1", "--memory-limit", "0", "--no-dashboard"
            )
            for name in workers
        ]
        with Client(address, timeout=60) as client:
            client.wait_for_workers(WORKERS)
        yield Cluster(address, started[1:])
    finally:
        for process in started:
            for each in (*psutil.Process(process.pid).children(recursive=True), process):
                each.kill()
            process.wait()


def _start(folder: Path, host: str, *words: str) -> subprocess.Popen[bytes]:
    command = ["ip", "netns", "exec", host, sys.executable, "-m", "dask", *words, "--host", HOSTS[host]]
    env = os.environ | GIVEN_UP | {"PYTHONPATH": str(Path(__file__).parent)}
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=folder, env=env, stdout=quiet, stderr=quiet)


def cut_off(trial: Trial, own: Cluster, seconds: float) -> Outcome:
    """A worker's host cannot be reached for a while."""
    host = list(HOSTS)[1]
    run = Run(trial, own.address)
    wait_until(trial.has_begun, "the first parts")
    ip("link", "set", host, "down")
    struck = trial.is_in_the_middle()
    time.sleep(seconds)
    ip("link", "set", host, "up")
    return finish(trial, own.address, struck, run.said())


def hung(trial: Trial, own: Cluster) -> Outcome:
    """A worker does nothing any more, and does not end."""
    run = Run(trial, own.address)
    wait_until(trial.has_begun, "the first parts")
    worker = own.worker()
    worker.send_signal(signal.SIGSTOP)
    return finish(trial, own.address, trial.is_in_the_middle(), run.said())


def slow(trial: Trial, own: Cluster) -> Outcome:
    """Little comes to a worker's host at a time, and waits in a queue."""
    host = list(HOSTS)[1]
    subprocess.run(["tc", "qdisc", "add", "dev", host, "root", "tbf", *SLOW], check=True)
    try:
        return finish(trial, own.address, True, Run(trial, own.address).said())
    finally:
        subprocess.run(["tc", "qdisc", "del", "dev", host, "root"], check=True)


def faults(trial: InStore, folder: Path, outs: Iterator[Path], repeats: int) -> None:
    cases: dict[str, Callable[[Trial, Cluster], Outcome]] = {
        "a worker's host is cut off for 10 s": lambda each, own: cut_off(each, own, 10),
        "a worker's host is cut off for 60 s": lambda each, own: cut_off(each, own, 60),
        "a worker hangs": hung,
        f"a slow link to a worker's host ({' '.join(SLOW)})": slow,
    }
    print(markdown(HEAD, []), end="")
    for name, case in cases.items():
        outcomes, start = [], time.perf_counter()
        for out in itertools.islice(outs, repeats):
            with cluster(folder) as own:
                outcomes.append(case(replace(trial, out=out), own))
        print(f"| {' | '.join(line(name, outcomes, (time.perf_counter() - start) / repeats))} |", flush=True)


def shipped(trial: InStore, outs: Iterator[Path], client: Client) -> str:
    """Bytes on the links in a run."""
    before = received()
    replace(trial, out=next(outs)).decide(client=client)
    links = [
        [name.removeprefix("tr-"), f"{(after - before[name]) / 1e6:.1f}"]
        for name, after in received().items()
    ]
    return markdown(["host", "MB received in a run"], links)


def received() -> dict[str, int]:
    """Bytes that each host has received, which its end of the bridge has sent."""
    shown = subprocess.run(["ip", "-json", "-stats", "link"], check=True, capture_output=True).stdout
    sent = {link["ifname"]: link["stats64"]["tx"]["bytes"] for link in json.loads(shown)}
    return {name: sent[name] for name in HOSTS}


def main() -> None:
    options = arguments(__doc__, **SIZES)
    with network(), served(options, CALLER) as (trial, store, outs):
        print(f"The artifact has {trial.rejector.path.stat().st_size / 1e6:.1f} MB.\n")
        with cluster(options.folder) as own, Client(own.address) as client:
            print(speed(trial, store, outs, options.rounds, client), flush=True)
            print(shipped(trial, outs, client), flush=True)
        faults(trial, options.folder, outs, options.repeats)


if __name__ == "__main__":
    enter_own_network()
    one_thread()
    main()
