"""Promote models and roll back under load, kill gates, and compute every answer again.

TRANSCENDENT_DATA=... python benchmarks/gate/promotions.py [--promotions 20] [--gates 2] [--kills 5]
    [--seed 0]

Clients send batches of apps to gates that follow the deployments, and send what was not answered to the next
one. Meanwhile models are promoted and rolled back: two evaluators, one of them within a budget, with and
without a budget of the deployment, and to observe only. Gates are ended by SIGKILL and started again. Every
request has to be answered, and every answer to be what the model and the cutoff that it names decide. A model
whose type no gate trusts is written into the database as active: it must not serve.
"""

import argparse
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import apps
import numpy as np
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from transcendent import InductiveEvaluator, StreamingBudget, save
from transcendent.datasets import load_apigraph
from transcendent.gate import stored
from transcendent.gate.access import Tokens
from transcendent.gate.database import connect, migrate
from transcendent.gate.deployments import deploy
from transcendent.gate.promotion import list_processes, promote, rollback
from transcendent.gate.stored import Known, find

sys.path.append(str(Path(__file__).parents[2]))  # a script finds only modules beside itself

from tests.gate.processes import Gate, cluster_in
from tests.gate.promotions import Client, recompute

CLIENTS = 4
LIMIT = 10.0  # seconds without an answer
BY = ("benchmark", "a promotion under load")


def fit(folder: Path) -> dict[str, Path]:
    """Write three artifacts, the last of a type that is not trusted."""
    apps.fit(folder / "first")
    data = load_apigraph()
    rows = np.flatnonzero(data.times.astype("datetime64[Y]").astype(str) == "2012")
    ice = InductiveEvaluator(LinearSVC(C=0.01, random_state=1), random_state=1)
    save(StreamingBudget(ice, rate=0.15, window=2000).fit(data.X[rows], data.y[rows]), folder / "budget")
    tree = InductiveEvaluator(DecisionTreeClassifier(max_depth=4, random_state=0), random_state=0)
    save(tree.fit(data.X[rows[:2000]], data.y[rows[:2000]]), folder / "untrusted")
    return {name: folder / name for name in ("first", "budget", "untrusted")}


def store(engine: Any, path: Path, trusted: tuple[str, ...] = ()) -> Known:
    """Add an artifact, as the command does."""
    model = stored.add(engine, path, trusted, None, path.name, *BY)
    with engine.connect() as connection:
        return find(connection, model.digest)


def change(engine: Any, models: list[Known], generator: np.random.Generator) -> str:
    """Promote a model or roll back; return what was done, and how long it took."""
    began = time.monotonic()
    if generator.random() < 0.4:
        done = rollback(engine, *BY, 120)
    else:
        model = models[generator.integers(len(models))]
        budget = [None, 0.1, 0.2][generator.integers(3)]
        action = "observe" if generator.random() < 0.2 else "active"
        done = promote(engine, model, action, {"audit": 0.01, "budget": budget}, *BY, 120)
    about = f"{done.model.name:6} {done.action:7} budget {done.settings['budget']}"
    return f"{about}, {done.gates} gates, {time.monotonic() - began:.1f} s"


def wait_for(gates: list[Gate]) -> None:
    """Wait until all gates are ready, so that only one at a time is down."""
    for gate in gates:
        gate.wait(180)


def is_refused(engine: Any, untrusted: Known, gates: int) -> bool:
    """Wait until all gates have refused a model; return whether they have, and whether none has loaded it."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        with engine.connect() as connection:
            live = list_processes(connection)
        if any(untrusted.digest in each["loaded"] for each in live):
            return False
        if sum(each["problem"] is not None for each in live) == gates == len(live):
            print(f"   an untrusted model is active: {live[0]['problem']}")
            return True
        time.sleep(0.5)
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--promotions", type=int, default=20)
    parser.add_argument("--gates", type=int, default=2)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    generator = np.random.default_rng(options.seed)
    killed = set(generator.choice(options.promotions, options.kills, replace=False).tolist())
    with (
        tempfile.TemporaryDirectory() as name,
        cluster_in(Path(name) / "postgres") as server,
        ExitStack() as stack,
    ):
        folder = Path(name)
        files = fit(folder)
        objects, rows = apps.objects_to_send(2000)
        engine = connect(server.url)
        migrate(engine)
        token = Tokens(engine).create("sensor", "client")
        models = [store(engine, files[each]) for each in ("first", "budget")]
        untrusted = store(engine, files["untrusted"], ("sklearn.tree._tree.Tree",))
        for model in models:
            promote(engine, model, "active", {"audit": 0.01, "budget": None}, *BY, 0)

        def start(place: int, port: int | None = None) -> Gate:
            given = {} if port is None else {"port": port}
            return Gate(server.url, None, folder / f"log{place}", log_level="warning", **given)

        gates = [start(place) for place in range(options.gates)]
        addresses = [gate.wait(180).address for gate in gates]
        clients = [
            stack.enter_context(Client(f"client{i}", addresses, token, objects, batch=20, pause=0))
            for i in range(CLIENTS)
        ]
        good = True
        for number in range(options.promotions):
            time.sleep(generator.uniform(0.5, 2))
            victim = int(generator.integers(len(gates)))
            if number in killed:
                wait_for(gates)
                gates[victim].stop(signal.SIGKILL)
                gates[victim] = start(victim, gates[victim].port)
            if number == options.promotions // 2:
                wait_for(gates)  # one that starts later has no model before to go on with
                with engine.begin() as connection:
                    deploy(connection, untrusted.number, "active", {"audit": 0, "budget": None}, *BY)
                good = is_refused(engine, untrusted, options.gates)
                for model in models:  # so that no rollback leads to the untrusted one
                    promote(engine, model, "active", {"audit": 0.01, "budget": None}, *BY, 120)
            said = change(engine, models, generator)
            print(f"{number + 1:2} {'kill ' if number in killed else '     '}{said}", flush=True)
        time.sleep(3)
        stack.close()
        for gate in gates:
            gate.stop()
        found = recompute(server.url, {each.digest: files[each.name] for each in models}, rows, clients)
        engine.dispose()
        refused = [each for client in clients for each in client.refused]
        print(
            f"answers: {found.models.total():,} of {found.objects:,} objects, by model {dict(found.models)}"
        )
        print(f"observed answers: {found.observed:,}; cutoffs named: {found.cutoffs:,}")
        print(
            f"sent again: {sum(each.repeated for each in clients):,}; refused: {len(refused)} {refused[:3]}"
        )
        print(f"wrong answers: {len(found.wrong)}; rejections lost: {found.lost}, there twice: {found.twice}")
        longest = max(each.longest for each in clients)
        print(f"longest wait of a request: {longest:.2f} s")
    if not good or found.wrong or found.lost or found.twice or refused or longest > LIMIT:
        sys.exit("not what was promised")


if __name__ == "__main__":
    main()
