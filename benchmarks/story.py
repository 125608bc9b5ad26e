"""The whole path by commands: a messy table, a backtest, a gate, labels, and a gate that has learnt.

OMP_NUM_THREADS=1 python benchmarks/story.py --rows 20000    # some minutes; needs PostgreSQL

The table has text ids, dates in three formats, labels and values that are missing, categories and a boolean
column with gaps. The first three quarters are known, the others come later, one request per 500 objects.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

sys.path.append(str(Path(__file__).parents[1]))  # a script finds only modules beside itself

from tests.gate.processes import cluster_in, free_port
from tests.gate.story import messy_table
from transcendent.errors import GateError
from transcendent.gate import GateClient

BATCH, LABELLED = 500, 400


def shown(what: str, started: float, found: str = "") -> None:
    """Print a step, its seconds and what came of it, as a row of a table."""
    print(f"| {what} | {time.perf_counter() - started:.1f} | {found} |", flush=True)


def run(line: str) -> str:
    """Run a command, print its time, and return its output; refusals are printed too."""
    started = time.perf_counter()
    done = subprocess.run(command(line), capture_output=True, text=True, check=False)
    counts = re.search(r"(fitted on|learnt from|left out) +[\d,]+( labelled)?( objects)?", done.stdout)
    found = f"refused: {done.stderr.strip()}" if done.returncode else counts[0] if counts else ""
    if hint := re.search(r"on the command line: ([^;)]*)", found):
        found = f"refused, names `{hint[1]}`"
    shown(f"`{line}`", started, found)
    return done.stdout


def command(line: str) -> list[str]:
    """Return the arguments of this interpreter's command."""
    return [sys.executable, "-m", *shlex.split(line)]


@contextmanager
def serving(line: str) -> Iterator[str]:
    """Serve until the block ends; yield the address."""
    port, started = free_port(), time.perf_counter()
    with (
        Path("gate.log").open("ab") as log,
        subprocess.Popen([*command(line), "--port", str(port)], stdout=log, stderr=log) as process,
    ):
        address = f"http://127.0.0.1:{port}"
        with GateClient(address, os.environ["TOKEN"]) as gate:
            while not answers(gate) and process.poll() is None:
                time.sleep(0.2)
        shown(f"`{line}`", started, "until it answers")
        yield address
        process.terminate()


def answers(gate: GateClient) -> bool:
    """Return whether a gate answers."""
    try:
        return bool(gate.model())
    except GateError:
        return False


def send(address: str, later: Any) -> None:
    """Send objects in the order of the table."""
    started, decisions = time.perf_counter(), []
    with GateClient(address, os.environ["TOKEN"]) as gate:
        names = gate.model()["features"]["names"]
        for start in range(0, len(later), BATCH):
            part = later[start : start + BATCH]
            context = [{"path": path} for path in part["path"]]
            decisions += gate.decide(part["sha256"], part[names], context=context)
    kept = sum(not each["accepted"] for each in decisions)
    shown("`gate.decide(...)`", started, f"{len(decisions):,} decided, {kept:,} rejected")


def label(address: str, truth: Any) -> None:
    """Label what an analyst would look at first."""
    started, n = time.perf_counter(), 0
    with GateClient(address, os.environ["ANALYST"]) as analyst:
        while n < LABELLED and (items := analyst.claim(20)["items"]):
            for item in items:
                analyst.resolve(item["id"], truth[item["object_id"]])
            n += len(items)
    shown("`analyst.claim(20)`, `analyst.resolve(...)`", started, f"{n:,} labelled")


def story(rows: int) -> None:
    """Run all steps in this folder."""
    table, known = messy_table(rows), rows * 3 // 4
    truth = table.set_index("sha256")["verdict"].replace("unknown", "unclear")
    table[:known].to_csv("objects.csv", index=False)
    table[known:].drop(columns="verdict").to_csv("later.csv", index=False)
    later = pd.read_csv("later.csv")
    print("| step | seconds | |\n|---|---|---|")
    run("transcendent init objects.csv")
    run("transcendent data objects.toml")
    run("transcendent backtest objects.toml")
    run("transcendent report objects")
    found = re.search(r"--trust \S+", run("transcendent fit objects.toml --train 2021"))
    trust = "" if found is None else found[0]
    run(f"transcendent decide objects.transcendent later.csv {trust} --out decisions.parquet")
    run("transcendent gate migrate")
    os.environ["TOKEN"] = run("transcendent gate token create sensor --role client").strip()
    os.environ["ANALYST"] = run("transcendent gate token create ann --role analyst").strip()
    run("transcendent gate serve objects.transcendent")
    half = len(later) // 2
    with serving(f"transcendent gate serve objects.transcendent {trust}") as address:
        send(address, later[:half])
        label(address, truth)
    run(f"transcendent gate learn objects.toml --artifact objects.transcendent {trust}")
    run("transcendent gate quarantine export --out labelled.parquet")
    run(f"transcendent learn objects.toml --labels labelled.parquet {trust} --out by-file.transcendent")
    with serving(f"transcendent gate serve objects-learnt.transcendent {trust}") as address:
        send(address, later[half:])


def main() -> None:
    """Run the story in a folder and on a database of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, cluster_in(Path(folder) / "server") as cluster:
        os.environ["TRANSCENDENT_GATE_DATABASE"] = cluster.url
        os.chdir(folder)
        story(given.rows)


if __name__ == "__main__":
    main()
