"""Measure how many objects a second a gate decides, and how fast, beside a bare endpoint that keeps nothing.

TRANSCENDENT_DATA=... python benchmarks/gate/load.py [full] [half] [nulls] [shadows] [--seconds 10]
    [--rounds 3] [--steady 600] [--objects apps|cves]

Needs PostgreSQL and wrk (Debian's packages). One process serves in each case. All turns are taken in one run,
one after the other, and medians over rounds are printed.

``--objects apps`` are Android apps as sparse rows, decided by thresholds; ``cves`` are vulnerabilities as a
table of text and numbers with context, decided within a budget.

full    Objects in batches of 100 over 32 connections, and one by one over 64; each connection sends its
        next request when the last is answered.
half    The same requests at random times (a Poisson process), to each endpoint at the same rate: half of what
        the gate has sustained in `full`, or the faster bare endpoint if that is less, so that neither is
        overloaded. A latency counts from the time when a request was to be sent.
nulls   One by one over 8 connections, while another client sends batches of 1,000 as fast as it is
        answered: whole ones, and ones with 2% of their values null, which the detector cannot handle.
shadows The requests of `half` to a gate that follows the deployments, at half of what it sustains without
        shadows: in turns without any, and with two that decide a fifth of the objects. Not by default.

``--steady`` sends batches over 8 connections for that many seconds, and prints memory and connections
over time.
"""

import argparse
import asyncio
import importlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import psutil
import uvloop
from sqlalchemy import text

from transcendent.gate import stored
from transcendent.gate.access import Tokens
from transcendent.gate.database import connect, migrate
from transcendent.gate.promotion import list_processes, promote, retire
from transcendent.gate.shadows import shadow

sys.path.append(str(Path(__file__).parents[2]))  # a script finds only modules beside itself

from tests.gate.processes import Cluster, Gate, cluster_in, free_port

ROWS = 4000
CONNECTIONS = {100: 32, 1: 64}
NULLS = 0.02
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
  local id = string.format("%s%02d%07d", string.sub(start, 1, 3), number, turn)
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

    def __init__(self, folder: Path, given: list[dict[str, Any]], token: str) -> None:
        self.folder, self.token, self._turn = folder, token, 0
        (folder / "send.lua").write_text(LUA)
        objects = [{"id": f"{MARK}-{i}", **each} for i, each in enumerate(given)]
        for size in (1, 100, 1000):
            self._write(f"{size}", size, objects)
        generator = np.random.default_rng(0)
        self._write("nulls", 1000, [_with_nulls(each, generator) for each in objects])

    def _write(self, name: str, size: int, objects: list[Any]) -> None:
        parts = [objects[i : i + size] for i in range(0, len(objects) - size + 1, size)]
        lines = [json.dumps({"objects": part}, separators=(",", ":")) for part in parts]
        (self.folder / f"bodies{name}").write_text("\n".join(lines))

    def send(self, url: str, size: int, connections: int, seconds: float, name: str | None = None) -> Run:
        """Send batches of a size for some seconds, each connection the next when the last is answered."""
        self._turn += 1
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--latency", "--timeout", "30s"]
        script = ["-s", str(self.folder / "send.lua"), url, "--"]
        arguments = [str(self.folder / f"bodies{name or size}"), self.token, f"{self._turn:03x}"]
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

    def send_at(self, url: str, size: int, rate: float, seconds: float) -> Run:
        """Send batches of a size at random times, at a fixed rate that does not depend on the answers."""
        self._turn += 1
        bodies = (self.folder / f"bodies{size}").read_bytes().splitlines()
        n = int(rate * seconds)
        times = np.cumsum(np.random.default_rng(0).exponential(1 / rate, n)).tolist()
        ids = (f"{self._turn:03x}{turn:09}".encode() for turn in range(n))
        sent = [
            (at, bodies[turn % len(bodies)].replace(MARK.encode(), name))
            for turn, (at, name) in enumerate(zip(times, ids, strict=True))
        ]
        answered = uvloop.run(_send_at(url, self.token, CONNECTIONS[size], sent))
        latencies = np.array([1e3 * latency for latency, _ in answered])
        p50, p99 = np.quantile(latencies, [0.5, 0.99]).tolist()
        bad = sum(status != 200 for _, status in answered)
        return Run(size * n / seconds, p50, p99, bad)


def _with_nulls(given: dict[str, Any], generator: np.random.Generator) -> dict[str, Any]:
    if "features" in given:
        numbers = [name for name, value in given["features"].items() if isinstance(value, float)]
        gaps = {name: None for name in numbers if generator.random() < NULLS}
        return {**given, "features": given["features"] | gaps}
    values = [None if generator.random() < NULLS else value for value in given["values"]]
    return {**given, "values": values}


class Line(asyncio.Protocol):
    """A connection that sends one request at a time, and notes when the answer is complete."""

    def __init__(self, idle: "deque[Line]", answered: Any) -> None:
        self._idle, self._answered = idle, answered
        self._buffer, self._due = b"", 0.0
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def send(self, due: float, request: bytes) -> None:
        self._due = due
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, _, body = self._buffer.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if length and len(body) == int(length[1]):
            self._buffer = b""
            self._idle.append(self)
            self._answered(self._due, int(head[9:12]))


async def _send_at(
    url: str, token: str, connections: int, sent: list[tuple[float, bytes]]
) -> list[tuple[float, int]]:
    """Send bodies at their times; return latencies and statuses."""
    loop, idle, waiting = asyncio.get_running_loop(), deque[Line](), deque[tuple[float, bytes]]()
    answers: list[tuple[float, int]] = []
    done = loop.create_future()
    address, _, path = url.removeprefix("http://").partition("/")
    host, _, port = address.partition(":")
    head = f"POST /{path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n"
    head += "content-type: application/json\r\ncontent-length: "

    def push() -> None:
        while idle and waiting:
            due, body = waiting.popleft()
            idle.popleft().send(due, f"{head}{len(body)}\r\n\r\n".encode() + body)

    def answered(due: float, status: int) -> None:
        answers.append((loop.time() - due, status))
        push()
        if len(answers) == len(sent):
            done.set_result(None)

    lines = [
        (await loop.create_connection(lambda: Line(idle, answered), host, int(port)))[1]
        for _ in range(connections)
    ]
    idle.extend(lines)
    start = loop.time() + 0.1
    for at, body in sent:
        await asyncio.sleep(start + at - loop.time())
        waiting.append((start + at, body))
        push()
    await asyncio.wait_for(done, 60)
    for line in lines:
        line.transport.close()
    return answers


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
) -> dict[int, float]:
    """Take turns at full load, and print medians and ratios.

    Return by size the requests a second that the gate and the faster bare endpoint both sustain.
    """
    sustained = {}
    for size, connections in CONNECTIONS.items():
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
        gate, *others = (run.objects / size for run in medians.values())
        sustained[size] = min(gate, max(others))
    return sustained


def compare_at_half(
    sender: Sender, urls: dict[str, str], rounds: int, seconds: float, sustained: dict[int, float]
) -> None:
    """Take turns at half of what is sustained, and print medians and ratios of the slowest answers."""
    for size, most in sustained.items():
        runs: dict[str, list[Run]] = {name: [] for name in urls}
        for _ in range(rounds):
            for name, url in urls.items():
                runs[name].append(sender.send_at(url, size, most / 2, seconds))
        print(f"\nhalf load: batches of {size}, {most / 2:,.0f} requests/s to each")
        medians = {name: _median(each) for name, each in runs.items()}
        for name, run in medians.items():
            print(f"  {name:16} {run}")
        for name in list(urls)[1:]:
            print(f"  p99 of gate / {name}: {medians['gate'].p99 / medians[name].p99:.2f}", flush=True)


def compare_nulls(sender: Sender, url: str, rounds: int, seconds: float) -> None:
    """Take turns beside a client that sends whole batches or ones with nulls; print the latency of others."""
    beside = {"nobody": None, "whole batches": "1000", f"{NULLS:.0%} null": "nulls"}
    runs: dict[str, list[Run]] = {name: [] for name in beside}
    others: dict[str, list[Run]] = {name: [] for name in beside}
    for _ in range(rounds):
        for name, bodies in beside.items():

            def send_batches(name: str = name, bodies: str | None = bodies) -> None:
                others[name].append(sender.send(url, 1000, 1, seconds + 1, bodies))

            thread = threading.Thread(target=send_batches)
            if bodies:
                thread.start()
                time.sleep(0.5)
            runs[name].append(sender.send(url, 1, 8, seconds))
            if bodies:
                thread.join()
    print("\none by one over 8 connections, beside another client's batches of 1,000")
    medians = {name: _median(each) for name, each in runs.items()}
    for name, run in medians.items():
        print(f"  {name:16} {run}")
        if others[name]:
            print(f"  {'  the other':16} {_median(others[name])}")
    nulls, whole = list(medians.values())[::-1][:2]
    print(f"  p50 beside nulls / beside whole batches: {nulls.p50 / whole.p50:.2f}", flush=True)


def compare_shadows(
    sender: Sender, server: Cluster, problem: Any, rounds: int, seconds: float, audit: float
) -> None:
    """Take turns without and with two shadows at half load; print medians, and the ratio of slow answers."""
    engine, by = connect(server.url), ("benchmark", "shadows")
    names = ["gate.transcendent", "first", "second"]
    for seed, name in enumerate(names[1:], 1):
        problem.fit(sender.folder / name, seed)
    models = []
    for name in names:
        digest = stored.add(engine, sender.folder / name, [], None, name, *by).digest
        with engine.connect() as connection:
            models.append(stored.find(connection, digest))
    promote(engine, models[0], "active", {"audit": audit, "budget": None}, *by, 0)
    gate = Gate(server.url, None, sender.folder / "following", log_level="warning").wait()

    def set_shadows(wanted: bool) -> None:
        for model in models[1:]:
            if wanted:
                shadow(engine, model, {"sample": 0.2, "audit": 0.5, "budget": None}, *by)
            else:
                retire(engine, model, *by)
        while True:
            with engine.connect() as connection:
                own = [each for each in list_processes(connection) if each["pid"] == gate.process.pid]
            if len(own[0]["loaded"]) == (3 if wanted else 1):
                return
            time.sleep(0.1)

    try:
        for size, connections in CONNECTIONS.items():
            url = f"{gate.address}/v1/decisions"
            most = _median([sender.send(url, size, connections, seconds) for _ in range(rounds)]).objects
            runs: dict[bool, list[Run]] = {False: [], True: []}
            for _ in range(rounds):
                for wanted, own in runs.items():
                    set_shadows(wanted)
                    own.append(sender.send_at(url, size, most / size / 2, seconds))
            print(f"\nshadows: batches of {size}, {most / size / 2:,.0f} requests/s")
            none, two = map(_median, runs.values())
            print(f"  {'none':16} {none}\n  {'two':16} {two}")
            print(f"  p99 with two shadows / without: {two.p99 / none.p99:.2f}", flush=True)
    finally:
        gate.stop()
    sql = """SELECT sum(objects - undecided - dropped), sum(dropped), (SELECT count(*) FROM disagreement)
    FROM shadow_counts"""
    with engine.connect() as connection:
        compared, dropped, drawn = connection.execute(text(sql)).one()
    print(f"  {compared:,} compared, {dropped:,} dropped, {drawn:,} drawn for a label")
    engine.dispose()


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
            kept, known = (
                connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
                for table in ("item", "item_content")
            )
            size = connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one()
        print(
            f"  {run}   {memory >> 20} MB, {connections} connections, {process.num_fds()} files, ",
            f"{kept:,} kept, {kept - known:,} without their content, {size >> 20:,} MB of database",
            flush=True,
        )
    engine.dispose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("modes", nargs="*", metavar="full|half|nulls|shadows")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steady", type=float, default=0)
    parser.add_argument("--audit", type=float, default=0.01)
    parser.add_argument("--objects", choices=["apps", "cves"], default="apps")
    options = parser.parse_args()
    modes = options.modes or ([] if options.steady else ["full", "half", "nulls"])
    with tempfile.TemporaryDirectory() as name, cluster_in(Path(name) / "postgres") as server:
        folder = Path(name)
        problem = importlib.import_module(options.objects)
        rejector = problem.fit(folder / "gate.transcendent")
        objects, rows = problem.objects_to_send(ROWS)
        rate = rejector.decide(rows).rejection_rate
        print(f"{ROWS} {options.objects}, {rate:.1%} rejected, audit {options.audit}")
        engine = connect(server.url)
        migrate(engine)
        sender = Sender(folder, objects, Tokens(engine).create("sensor", "client"))
        engine.dispose()
        gate = Gate(
            server.url, folder / "gate.transcendent", folder / "log", audit=options.audit, log_level="warning"
        ).wait()
        try:
            run(modes, sender, gate, server, options)
            if "shadows" in modes:
                compare_shadows(sender, server, problem, options.rounds, options.seconds, options.audit)
            if options.steady:
                steady(sender, gate, server, options.steady)
        finally:
            gate.stop()


def run(modes: list[str], sender: Sender, gate: Gate, server: Cluster, options: argparse.Namespace) -> None:
    """Measure in each of the modes."""
    url, turns = f"{gate.address}/v1/decisions", (options.rounds, options.seconds)
    if {"full", "half"} & {*modes}:
        with bare(sender.folder / "gate.transcendent", sender.folder / "log") as address:
            urls = {"gate": url, "bare, on loop": f"{address}/loop", "bare, in threads": f"{address}/threads"}
            parts = {"gate": psutil.Process(gate.process.pid), "database": server.process}
            sustained = compare(sender, urls, *turns, parts)
            if "half" in modes:
                compare_at_half(sender, urls, *turns, sustained)
    if "nulls" in modes:
        compare_nulls(sender, url, *turns)


if __name__ == "__main__":
    main()
