"""Clients that send while models are promoted, and a check of every answer, for tests and benchmarks."""

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx2
import numpy as np
from sqlalchemy import text

from transcendent import load
from transcendent._utils.arrays import take_rows
from transcendent.gate.cutoff import Cutoff, decide_by
from transcendent.gate.database import connect
from transcendent.gate.intake import audit_secret


@dataclass
class Client:
    """Sends batches in a thread; repeats a batch, at the next gate, until it is answered.

    ``answers`` has the rows of each batch, and the body of its answer. ``refused`` are answers that no gate
    should give.
    """

    name: str
    addresses: Sequence[str]
    token: str
    objects: list[dict[str, Any]]
    batch: int = 10
    pause: float = 0.01
    answers: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)
    refused: list[Any] = field(default_factory=list)
    repeated: int = 0
    longest: float = 0.0

    def __enter__(self) -> Self:
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        headers = {"authorization": f"Bearer {self.token}"}
        with httpx2.Client(headers=headers, timeout=30) as http:
            start = 0
            while not self._done.is_set():
                places = np.arange(start, start + self.batch) % len(self.objects)
                objects = [
                    {**self.objects[place], "id": f"{self.name}-{start + i}"}
                    for i, place in enumerate(places.tolist())
                ]
                began = time.monotonic()
                while (answer := self._try(http, {"objects": objects})) is None:
                    self.repeated += 1
                    time.sleep(0.05)
                self.longest = max(self.longest, time.monotonic() - began)
                self.answers.append((places, answer))
                start += self.batch
                time.sleep(self.pause)

    def _try(self, http: httpx2.Client, body: Any) -> dict[str, Any] | None:
        address = self.addresses[(len(self.answers) + self.repeated) % len(self.addresses)]
        try:
            answer = http.post(f"{address}/v1/decisions", json=body)
        except httpx2.HTTPError:
            return None
        if answer.status_code != 200:
            self.refused.append((answer.status_code, answer.text))
            return None
        said: dict[str, Any] = answer.json()
        return said


@dataclass
class Recomputed:
    """What was compared: answers by model, the number of cutoffs, and what differs or is lost."""

    models: Counter[str]
    cutoffs: int
    observed: int
    objects: int
    wrong: list[Any]
    lost: int
    twice: int


def recompute(url: str, artifacts: Mapping[str, Path], rows: Any, clients: Sequence[Client]) -> Recomputed:
    """Decide every object again by the model and the cutoff that its answer names.

    Rejected objects have to be in the quarantine exactly once.
    """
    engine = connect(url)
    with engine.connect() as connection:
        cutoffs = {
            row.number: (row.digest, Cutoff(*row[:-1]))
            for row in connection.execute(
                text(
                    f"SELECT {', '.join(Cutoff._fields)}, digest FROM cutoff "
                    "JOIN model ON model.id = cutoff.model"
                )
            )
        }
        kept = Counter(connection.execute(text("SELECT object_id FROM payload")).scalars())
    secret = audit_secret(engine)
    engine.dispose()
    rejectors = {digest: load(path) for digest, path in artifacts.items()}
    found = Recomputed(Counter(), 0, 0, 0, [], 0, 0)
    used = set()
    for places, said in (each for client in clients for each in client.answers):
        found.models[said["model"]] += 1
        found.observed += said.get("observed", False)
        found.objects += len(places)
        rejector = rejectors[said["model"]]
        given = take_rows(rows, places)
        decisions = getattr(rejector, "rejector_", rejector).decide(given)
        if (number := said.get("cutoff")) is not None:
            used.add(number)
            model, cutoff = cutoffs[number]
            assert model == said["model"]
            decisions = decide_by(cutoff, given, decisions, secret)
        expected = np.ones(len(places), bool) if said.get("observed") else decisions.accepted
        columns = (
            decisions.labels.tolist(),
            expected.tolist(),
            decisions.credibility.tolist(),
            decisions.confidence.tolist(),
        )
        names = ("label", "accepted", "credibility", "confidence")
        answers = [tuple(each[name] for name in names) for each in said["decisions"]]
        if answers != list(zip(*columns, strict=True)):
            found.wrong.append((places, said))
        ids = [each["id"] for each in said["decisions"]]
        found.lost += sum(not kept[ids[i]] for i in np.flatnonzero(decisions.rejected))
    found.cutoffs, found.twice = len(used), sum(n > 1 for n in kept.values())
    return found
