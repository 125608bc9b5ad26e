"""Everything that goes on around gates in operation, for `durability.py --operation`.

Models are promoted and rolled back, two others run as shadows, an analyst labels, a reader polls events, a
receiver gets webhooks, and metrics are scraped: each in a thread that goes on at the next gate if one fails.
"""

import base64
import itertools
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

import apps
import httpx2
import numpy as np
from sklearn.svm import LinearSVC
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError
from standardwebhooks import Webhook as Verifier

from transcendent import InductiveEvaluator, StreamingBudget, save
from transcendent.datasets import load_apigraph
from transcendent.errors import GateError
from transcendent.gate import GateClient, stored
from transcendent.gate.access import Tokens
from transcendent.gate.database import connect
from transcendent.gate.deployments import DeploymentError, deploy
from transcendent.gate.events import Cursor, Events
from transcendent.gate.promotion import promote, rollback
from transcendent.gate.webhooks import list_deliveries

sys.path.append(str(Path(__file__).parents[2]))  # a script finds only modules beside itself

from tests.gate.receiver import Receiver

BY = ("benchmark", "everything at once")
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
SENT = ("labelled", "deployed", "alarm")  # all rejections of a busy gate are too many for a webhook
SHADOWED = {"sample": 0.2, "audit": 0.5, "budget": None}
PAUSE = 10  # seconds between promotions
LONGEST = 180  # seconds until the last delivery: one that a killed gate has claimed comes a minute later


def fit(folder: Path) -> list[Path]:
    """Write four artifacts: of two models to promote, one of them within a budget, and of two shadows."""
    files = [folder / name for name in ("plain", "budget", "shadow1", "shadow2")]
    data = load_apigraph()
    rows = np.flatnonzero(data.times.astype("datetime64[Y]").astype(str) == "2012")
    apps.fit(files[0])
    for seed, path in enumerate(files[1:], 1):
        made = InductiveEvaluator(LinearSVC(C=0.01 * seed, random_state=seed), random_state=seed)
        if path.name == "budget":
            made = StreamingBudget(made, rate=0.15, window=2000)
        save(made.fit(data.X[rows], data.y[rows]), path)
    return files


class Operation:
    """What goes on around gates; enter it once the tables exist, and `begin` once gates listen.

    Attributes
    ----------
    settings : dict
        Settings of the gates.
    """

    def __init__(self, url: str, folder: Path) -> None:
        self._engine, self._receiver = connect(url), Receiver()
        os.environ["OPERATION_SECRET"] = SECRET
        target = {"name": "soc", "url": self._receiver.url, "secret_env": "OPERATION_SECRET", "private": True}
        self.settings: dict[str, Any] = {
            "webhooks": json.dumps([{**target, "kinds": SENT}]),
            "promised_error": 0.02,
            "audit": 0.01,
        }
        models = [self._add(path) for path in fit(folder)]
        self._models = models[:2]
        for model in self._models:  # twice, so that there is something to roll back to
            promote(self._engine, model, "active", {"audit": 0.01, "budget": None}, *BY, 0)
        with self._engine.begin() as connection:
            for model in models[2:]:
                deploy(connection, model.number, "shadow", SHADOWED, *BY)
        self._done = threading.Event()
        self.done: Counter[str] = Counter()
        self._received: Counter[str] = Counter()
        self.labelled: list[int] = []
        self.events: list[dict[str, Any]] = []

    def _add(self, path: Path) -> stored.Known:
        model = stored.add(self._engine, path, [], None, path.name, *BY)
        with self._engine.connect() as connection:
            return stored.find(connection, model.digest)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._receiver.close()
        self._engine.dispose()

    def begin(self, addresses: list[str]) -> None:
        """Start all threads."""
        while not self._deliveries():  # a target gets events from its first appearance on
            time.sleep(0.1)
        self._began = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}"
        create = Tokens(self._engine).create
        self._reader = GateClient(addresses[0], reader := create("soc", "operator"))
        work = (
            partial(self._at, addresses, create("ann", "analyst"), self._label, 0.3),
            partial(self._at, addresses, reader, self._read, 0.1),
            partial(self._scrape, addresses, create("prometheus", "metrics")),
            self._change,
        )
        self._threads = [threading.Thread(target=each) for each in work]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Stop the analyst and promotions; wait for events, deliveries and minutes of the last objects."""
        self._done.set()
        for thread in self._threads:
            thread.join()
        end = time.monotonic() + LONGEST
        while time.monotonic() < end and any(each["waiting"] for each in self._deliveries()):
            self._verify()
            time.sleep(1)
        time.sleep(75)  # for the last minute to be closed, and added to the monitors
        with self._reader:
            self._read(self._reader)

    def _deliveries(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = list_deliveries(self._engine)["targets"]
        return found

    def _at(self, addresses: list[str], token: str, act: Callable[[GateClient], None], pause: float) -> None:
        """Act again and again; if a gate does not answer, at the next one."""
        for address in itertools.cycle(addresses):
            with GateClient(address, token, timeout=15) as gate:
                while not self._done.wait(pause):
                    try:
                        act(gate)
                    except GateError as error:
                        self.done[f"{act.__name__} {error.status}"] += 1
                        break
            if self._done.is_set():
                return

    def _label(self, gate: GateClient) -> None:
        for item in gate.claim(5)["items"]:
            gate.resolve(item["id"], item["predicted"] or str(item["classes"][0]))  # blind if audited
            self.labelled.append(item["id"])

    def _read(self, gate: GateClient) -> None:
        last = self.events[-1]["id"] if self.events else ""
        for event in gate.events(last):
            self.events.append(event)

    def _verify(self) -> None:
        """Verify the signatures of what came since the last time; they are valid for five minutes."""
        verify = Verifier(SECRET).verify
        for _, headers, body in self._receiver.received[self._received.total() :]:
            self._received[verify(body, headers)["id"]] += 1

    def _scrape(self, addresses: list[str], token: str) -> None:
        headers = {"authorization": f"Bearer {token}"}
        while not self._done.wait(1):
            self._verify()
            for address in addresses:
                try:
                    answer = httpx2.get(f"{address}/metrics", headers=headers, timeout=10)
                    self.done[f"scrape {answer.status_code}"] += 1
                except httpx2.HTTPError:
                    self.done["scrape 0"] += 1

    def _change(self) -> None:
        for number in itertools.count():
            if self._done.wait(PAUSE):
                return
            try:
                if number % 3 == 2:
                    rollback(self._engine, *BY, 60)
                else:
                    budget = [None, 0.1][number % 2]
                    settings = {"audit": 0.01, "budget": budget}
                    promote(self._engine, self._models[number % 2], "active", settings, *BY, 60)
                self.done["promotion"] += 1
            except (DeploymentError, SQLAlchemyError) as error:
                self.done[f"promotion {type(error).__name__}"] += 1

    def check(self, acknowledged: list[str], answered: int, sent: int) -> bool:
        """Print and compare what was acknowledged, read and received, with what is in the database.

        ``acknowledged`` are ids of rejected objects, ``answered`` is the number of decisions that clients
        got, and ``sent`` that of objects in all requests, answered or not.
        """
        pages = Events(self._engine).all_after(Cursor())
        written = {each["id"]: each for page in pages for each in page.events}
        print(f"done: {dict(sorted(self.done.items()))}")
        good = self._check_events(acknowledged, written)
        good &= self._check_webhooks(written)
        good &= self._check_monitors(answered, sent)
        return self._check_shadows(answered) and good

    def _check_events(self, acknowledged: list[str], written: dict[str, dict[str, Any]]) -> bool:
        read = Counter(each["id"] for each in self.events)
        until = list(written).index(self.events[-1]["id"]) + 1  # an alarm may have come since
        missed, twice = set(list(written)[:until]) - set(read), sum(n > 1 for n in read.values())
        rejected, labels, deployed = (
            Counter(each["data"][name] for each in self.events if each["type"] == kind)
            for kind, name in (("rejected", "object_id"), ("labelled", "item"), ("deployed", "deployment"))
        )
        with self._engine.connect() as connection:
            others = _all(connection, "SELECT object_id FROM payload WHERE accepted")
            same = labels == _all(connection, "SELECT item FROM label WHERE action = 'label'")
            same &= deployed == _all(connection, "SELECT id FROM deployment")
        # An object of the audit stays one if it is sent again, and another model rejects it.
        untold = [name for name in acknowledged if rejected[name] != 1 and name not in others]
        lost = [item for item in self.labelled if labels[item] != 1]
        print(f"events written {len(written):,}, read {len(read):,}, missed {len(missed)}, twice {twice}")
        print(f"rejections not told once: {len(untold)}; labels {len(self.labelled):,}, lost {len(lost)}")
        print(f"events are those of the rows of labels and deployments: {same}")
        return bool(same and not untold and not lost and not missed and not twice)

    def _check_webhooks(self, written: dict[str, dict[str, Any]]) -> bool:
        self._verify()
        received = self._received
        wanted = {name for name, each in written.items() if each["type"] in SENT}
        lost = {name for name in wanted - set(received) if written[name]["timestamp"] > self._began}
        again = received.total() - len(received)
        print(f"webhooks received {len(received):,}, again {again}, lost {len(lost)}")
        return not lost and received.keys() <= wanted

    def _check_monitors(self, answered: int, sent: int) -> bool:
        with self._engine.connect() as connection:
            counted, folded = (
                int(connection.execute(text(f"SELECT coalesce(sum(objects), 0) FROM {table}")).scalar_one())
                for table in ("minute_counts", "monitor")
            )
        print(f"objects answered {answered:,}, counted for monitors {counted / answered:.1%} of them")
        print(f"added to monitors: {folded / answered:.1%}")
        return 0 < folded <= counted <= sent

    def _check_shadows(self, answered: int) -> bool:
        counts = "SELECT sum(objects), sum(undecided), sum(dropped) FROM shadow_counts GROUP BY shadow"
        strays = """SELECT count(*) FROM disagreement WHERE NOT EXISTS (
            SELECT FROM item WHERE item.id = disagreement.item)"""
        with self._engine.connect() as connection:
            rows = connection.execute(text(counts)).all()
            drawn = connection.execute(text("SELECT count(*) FROM disagreement")).scalar_one()
            stray = connection.execute(text(strays)).scalar_one()
        for n, undecided, dropped in rows:
            shares = f"{n / answered:.1%} of the objects, {undecided / answered:.1%} undecided"
            print(f"a shadow has compared {shares}, {dropped / answered:.1%} dropped")
        print(f"disagreements drawn: {drawn:,}, without an item: {stray}")
        return len(rows) == 2 and not stray


def _all(connection: Connection, sql: str) -> Counter[Any]:
    return Counter(connection.execute(text(sql)).scalars())
