"""Replace gates by those of this version, one after the other, while clients send; count failed requests.

TRANSCENDENT_DATA=... python benchmarks/gate/upgrade.py COMMIT [--gates 2] [--seconds 20] [--clients 4]

Gates of an older commit serve an artifact that this commit has fitted, from tables that it has made. Under
load, this version migrates the tables; then each gate is stopped by SIGTERM, and one of this version started
on its port, which gets requests once it is ready. Clients send to all gates in turns, and send what was not
answered to the next one, as a proxy does. No gate may answer with an error, every rejection has to be in the
quarantine exactly once, every answer to be what the artifact decides, and every label with its note to be
there. What gates of the old version store after the migration has to be among the events.
"""

import argparse
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apps
from sqlalchemy import Engine, text

from transcendent.artifacts.artifact import read_artifact
from transcendent.gate import GateClient
from transcendent.gate.check import check
from transcendent.gate.database import connect
from transcendent.gate.events import Cursor, Events

sys.path.append(str(Path(__file__).parents[2]))  # a script finds only modules beside itself

from tests.gate.processes import Gate, cluster_in
from tests.gate.promotions import Client, recompute

ROOT = Path(__file__).parents[2]
LABELS = 10  # by each gate, before and after the migration


class OldGate(Gate):
    """A gate of the code in a folder."""

    folder: Path

    def _start(self, environment: dict[str, str], log: Path) -> Any:
        return super()._start({**environment, **paths(self.folder)}, log)


def paths(folder: Path) -> dict[str, str]:
    """Return the environment in which Python imports the code of a folder."""
    return {"PYTHONPATH": f"{folder}/src:{folder}/benchmarks/gate"}


def run(folder: Path, *arguments: str, database: str = "") -> str:
    """Run Python with the code of a folder, and return its output."""
    environment = {**os.environ, **paths(folder), "TRANSCENDENT_GATE_DATABASE": database}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def check_out(commit: str, folder: Path) -> Path:
    """Write the files of a commit to a folder."""
    packed = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit, "src", "benchmarks/gate"], check=True, capture_output=True
    )
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


def label(address: str, token: str, note: str) -> list[int]:
    """Label some objects as an analyst, with a note."""
    with GateClient(address, token) as gate:
        items = [item["id"] for item in gate.claim(LABELS)["items"]]
        for item in items:
            gate.resolve(item, "unclear", note=note)
    return items


def contradictions(engine: Engine, labelled: dict[str, list[int]], migrated: datetime) -> list[str]:
    """Return what is wrong with labels, notes, events and tables."""
    told = Counter(
        each["data"]["item"]
        for page in Events(engine).all_after(Cursor())
        for each in page.events
        if each["type"] == "rejected"
    )
    with engine.connect() as connection:
        sql = """SELECT label.item, remark.note FROM label JOIN remark ON remark.label = label.id
        WHERE action = 'label'"""
        notes = Counter(map(tuple, connection.execute(text(sql))))
        sql = """SELECT item.id FROM item JOIN payload USING (id)
        WHERE received_at > :migrated AND NOT accepted"""
        later = set(connection.execute(text(sql), {"migrated": migrated}).scalars())
    wrong = [each.what for each in check(engine)]
    if notes != Counter((item, note) for note, items in labelled.items() for item in items):
        wrong.append("labels or their notes are not those that analysts gave")
    untold = sum(told[item] != 1 for item in later)
    if untold:
        wrong.append("rejections since the migration are not among the events")
    print(f"labels with notes: {notes.total()}")
    print(f"rejections since the migration: {len(later):,}, not told by one event: {untold}")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old", metavar="COMMIT", help="the commit of the gates before, such as a tag")
    parser.add_argument("--gates", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20, help="of load between steps")
    parser.add_argument("--clients", type=int, default=4)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        cluster_in(Path(name) / "postgres") as server,
        ExitStack() as stack,
    ):
        folder, artifact = Path(name), Path(name, "gate.transcendent")
        OldGate.folder = old = check_out(options.old, folder / "old")
        run(old, "-c", f"import apps, pathlib; apps.fit(pathlib.Path({str(artifact)!r}))")
        gate = ("-m", "transcendent", "gate")
        run(old, *gate, "migrate", database=server.url)
        token, ann = (
            run(old, *gate, "token", "create", name, "--role", role, database=server.url)
            for name, role in (("sensor", "client"), ("ann", "analyst"))
        )
        objects, rows = apps.objects_to_send(2000)
        settings: dict[str, Any] = {"audit": 0.01, "log_level": "warning"}
        gates: list[Gate] = [
            OldGate(server.url, artifact, folder / f"old{i}", **settings) for i in range(options.gates)
        ]
        addresses = [each.wait(180).address for each in gates]
        clients = [
            stack.enter_context(Client(f"client{i}", addresses, token, objects, batch=20, pause=0))
            for i in range(options.clients)
        ]
        time.sleep(options.seconds)
        labelled = {"before": label(addresses[0], ann, "before")}
        began = time.monotonic()
        run(ROOT, *gate, "migrate", database=server.url)
        took, migrated = time.monotonic() - began, datetime.now(UTC)
        time.sleep(options.seconds)
        labelled["by an old gate"] = label(addresses[0], ann, "by an old gate")
        for place, each in enumerate(gates):
            each.stop()
            gates[place] = Gate(server.url, artifact, folder / f"new{place}", port=each.port, **settings)
            gates[place].wait(180)
            time.sleep(options.seconds / 4)
        labelled["by a new gate"] = label(addresses[0], ann, "by a new gate")
        time.sleep(options.seconds / 4)
        stack.close()
        for each in gates:
            each.stop()
        found = recompute(server.url, {read_artifact(artifact).digest: artifact}, rows, clients)
        engine = connect(server.url)
        wrong = contradictions(engine, labelled, migrated)
        engine.dispose()
        refused = [each for client in clients for each in client.refused]
        longest = max(each.longest for each in clients)
        print(f"migrated in {took:.1f} s, the start of the command included")
        print(f"requests answered: {found.models.total():,}, with {found.objects:,} objects")
        print(f"answered with an error: {len(refused)} {refused[:3]}")
        print(f"sent again, as a gate had stopped: {sum(each.repeated for each in clients):,}")
        print(f"wrong answers: {len(found.wrong)}; rejections lost: {found.lost}, there twice: {found.twice}")
        print(f"longest wait of a request: {longest:.2f} s")
    if refused or found.wrong or found.lost or found.twice or wrong:
        sys.exit("\n".join(["not what was promised", *wrong]))


if __name__ == "__main__":
    main()
