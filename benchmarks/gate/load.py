"""Measure how many objects a second a gate decides, beside a bare endpoint that keeps nothing.

TRANSCENDENT_DATA=... python benchmarks/gate/load.py [--seconds 10] [--rounds 3] [--steady 600]

Needs PostgreSQL and wrk (Debian's packages). One process serves in each case. Apps of 2013 are sent in
batches of 100 over 32 connections, and one by one over 64. All turns are taken in one run, one after the
other, and medians over rounds are printed. ``--steady`` goes on for so many seconds with batches over 8
connections, and prints memory and connections over time.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil
from apps import apps_of_2013, fit_on_2012, to_object
from parts import Cluster, Gate, cluster_in, free_port
from sqlalchemy import text

from transcendent.gate.access import Tokens
from transcendent.gate.database import connect, migrate

ROWS = 4000
MARK = "@@@@@@@@@@@@"

LUA = """
local bodies, turn, mine = {}, 0, 0
local threads = 0
function setup(thread) threads = threads + 1; thread:set("number", threads) end
function init(args)
  local file = io.open(args[1]); for line in file:lines() do bodies[#bodies + 1] = line end; file:close()
  wrk.method = "POST"
  wrk.headers["content-type"] = "application/json"
  if args[2] ~= "-" then wrk.headers["authorization"] = "Bearer " .. args[2] end
  start = args[3]
end
function request()
  turn = turn + 1
  local id = string.format("%s%02d%09d", string.sub(start, 1, 1), number, turn)
  local body = string.gsub(bodies[turn % #bodies + 1], "@@@@@@@@@@@@", id)
  return wrk.format(nil, nil, nil, body)
end
"""


@dataclass
class Run:
    """What wrk printed."""

    objects: float
    p50: float
    p99: float
    bad: int

    def __str__(self) -> str:
        latency = f"p50 {self.p50:7.1f} ms   p99 {self.p99:7.1f} ms"
        return f"{self.objects:9,.0f} objects/s   {latency}   not 200: {self.bad}"


class Sender:
    """Sends bodies with wrk, every object under an id of its own."""

    def __init__(self, folder: Path, rows: Any, token: str) -> None:
        self.folder, self.token, self._turn = folder, token, 0
        (folder / "send.lua").write_text(LUA)
        objects = [to_object(f"{MARK}-{i}", row) for i, row in enumerate(rows)]
        for size in (1, 100):
            parts = [objects[i : i + size] for i in range(0, len(objects) - size + 1, size)]
            lines = [json.dumps({"objects": part}, separators=(",", ":")) for part in parts]
            (folder / f"bodies{size}").write_text("\n".join(lines))

    def send(self, url: str, size: int, connections: int, seconds: float) -> Run:
        """Send batches of a size for some seconds."""
        self._turn += 1
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--latency", "--timeout", "30s"]
        script = ["-s", str(self.folder / "send.lua"), url, "--"]
        arguments = [str(self.folder / f"bodies{size}"), self.token, chr(96 + self._turn)]
        said = subprocess.run(
            [*command, *script, *arguments], capture_output=True, text=True, check=True
        ).stdout
        p50, p99 = (_milliseconds(said, share) for share in ("50%", "99%"))
        rate = float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1])  # type: ignore[index]
        bad = re.search(r"Non-2xx or 3xx responses: (\d+)", said)
        errors = re.search(r"Socket errors: .*", said)
        if errors:
            print("   ", errors[0])
        return Run(rate * size, p50, p99, int(bad[1]) if bad else 0)


def _milliseconds(said: str, share: str) -> float:
    number, unit = re.search(rf"\s{share}\s+([\d.]+)(us|ms|s)", said).groups()  # type: ignore[union-attr]
    return float(number) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit]


@contextmanager
def bare(artifact: Path, log: Path) -> Iterator[str]:
    """Serve the bare endpoint."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "bare:app",
        "--app-dir",
        str(Path(__file__).parent),
        "--port",
        str(port),
        "--no-access-log",
    ]
    environment = os.environ | {"BARE_ARTIFACT": str(artifact)}
    with log.open("ab") as file:
        process = subprocess.Popen([*command, "--log-level", "warning"], env=environment, stderr=file)
    try:
        while True:
            try:
                httpx2.get(f"http://127.0.0.1:{port}/")
                break
            except httpx2.HTTPError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def used(*roots: psutil.Process) -> list[float]:
    """Return the processor seconds of processes and their children."""
    return [sum(_seconds(each) for each in (root, *root.children(recursive=True))) for root in roots]


def _seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def compare(
    sender: Sender, urls: dict[str, str], rounds: int, seconds: float, parts: dict[str, psutil.Process]
) -> None:
    """Take turns, and print medians and ratios."""
    for size, connections in ((100, 32), (1, 64)):
        runs: dict[str, list[Run]] = {name: [] for name in urls}
        cores: list[list[float]] = []
        for _ in range(rounds):
            for name, url in urls.items():
                before, started = used(*parts.values()), time.perf_counter()
                runs[name].append(sender.send(url, size, connections, seconds))
                if name == "gate":
                    took = time.perf_counter() - started
                    cores.append([(b - a) / took for a, b in zip(before, used(*parts.values()), strict=True)])
        print(f"\nbatches of {size}, {connections} connections")
        medians = {name: _median(each) for name, each in runs.items()}
        for name, run in medians.items():
            print(f"  {name:16} {run}")
        for name in list(urls)[1:]:
            print(f"  gate / {name}: {medians['gate'].objects / medians[name].objects:.2f}")
        shares = (
            f"{name} {statistics.median(each):.2f}"
            for name, each in zip(parts, zip(*cores, strict=True), strict=True)
        )
        print(f"  cores while the gate was measured: {', '.join(shares)}", flush=True)


def _median(runs: list[Run]) -> Run:
    objects, p50, p99 = (
        statistics.median(getattr(run, name) for run in runs) for name in ("objects", "p50", "p99")
    )
    return Run(objects, p50, p99, sum(run.bad for run in runs))


def steady(sender: Sender, gate: Gate, server: Cluster, seconds: float) -> None:
    """Send batches for a long time; print memory, connections and latency."""
    print(f"\nsteady: batches of 100, 8 connections, {seconds:g} s")
    process, step, engine = psutil.Process(gate.process.pid), min(60.0, seconds / 5), connect(server.url)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        run = sender.send(f"{gate.address}/v1/decisions", 100, 8, step)
        memory = sum(each.memory_info().rss for each in (process, *process.children(recursive=True)))
        with engine.connect() as connection:
            sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'transcendent-gate'"
            connections = connection.execute(text(sql)).scalar_one() - 1
            kept = connection.execute(text("SELECT count(*) FROM item")).scalar_one()
        print(
            f"  {run}   {memory >> 20} MB, {connections} connections, {process.num_fds()} files, ",
            f"{kept:,} kept",
            flush=True,
        )
    engine.dispose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steady", type=float, default=0)
    parser.add_argument("--audit", type=float, default=0.01)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, cluster_in(Path(name) / "postgres") as server:
        folder = Path(name)
        evaluator = fit_on_2012(folder / "gate.transcendent")
        rows = apps_of_2013()[:ROWS]
        print(
            f"{ROWS} apps of 2013, {evaluator.decide(rows).rejection_rate:.1%} rejected, "
            f"audit {options.audit}"
        )
        engine = connect(server.url)
        migrate(engine)
        sender = Sender(folder, rows, Tokens(engine).create("sensor", "client"))
        engine.dispose()
        gate = Gate(
            server.url, folder / "gate.transcendent", folder / "log", audit=options.audit, log_level="warning"
        ).wait()
        try:
            if options.rounds:
                with bare(folder / "gate.transcendent", folder / "log") as address:
                    urls = {"gate": f"{gate.address}/v1/decisions"}
                    urls |= {"bare, on loop": f"{address}/loop", "bare, in threads": f"{address}/threads"}
                    parts = {"gate": psutil.Process(gate.process.pid), "database": server.process}
                    compare(sender, urls, options.rounds, options.seconds, parts)
            if options.steady:
                steady(sender, gate, server, options.steady)
        finally:
            gate.stop()


if __name__ == "__main__":
    main()
