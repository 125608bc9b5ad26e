"""Write what a gate of the first release leaves behind, which all later versions must read.

python -m tests.gate.write_v1    # some minutes; not run again after the first release

``gate.dump`` is its database (pg_dump's custom format), ``answers.json`` its answers to each route while
people worked, its tokens, and what it said of items, labels and events at the end. ``openapi.json`` is its
description of the API, ``labelled.parquet`` its export. A test goes through the same work with the current
version, and compares.
"""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import httpx2
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sqlalchemy import Engine, text

from tests.gate.processes import Gate, cluster_in
from transcendent import InductiveEvaluator, save
from transcendent.gate import model as gate_model
from transcendent.gate.access import Tokens
from transcendent.gate.campaigns import Grouping
from transcendent.gate.check import check
from transcendent.gate.database import connect, drop_months, make_month, migrate, month_of
from transcendent.gate.deletion import ToDelete, delete
from transcendent.gate.deployments import deploy
from transcendent.gate.intake import Draw, keep, to_keep
from transcendent.gate.pages.sessions import Sessions
from transcendent.gate.paging import acknowledge, raise_alarm
from transcendent.gate.promotion import promote
from transcendent.gate.quarantine import Quarantine
from transcendent.gate.shadows import shadow
from transcendent.gate.stored import Known, add, find, load_stored
from transcendent.gate.suggesting import Suggesting
from transcendent.monitoring import Alarm

V1 = Path(__file__).parent / "v1"
OLD, SINCE = "2020-01", "2020-02"  # a month that is dropped, and the first that stays
SETTINGS = {
    "labels": "unclear",
    "reasons": "packed signed",
    "opinions": 2,
    "promised_error": 0.1,
    "event_context": "host",
    "deletable_context": "host",
    "settle": 0.0,
    "negative": "goodware",
    "timeout": 300,
    "log_level": "warning",
}
ROLES = {
    "sensor": "client",
    "ann": "analyst",
    "bob": "analyst",
    "boss": "operator",
    "sandbox": "labeller",
    "prometheus": "metrics",
}
BY = ("boss", "a first model")
_FEATURES = [f"p{i}" for i in range(40)]
_RNG = np.random.default_rng(0)
_TO_DO = """
SELECT (SELECT count(*) FROM label_work)
    + (SELECT count(*) FROM item WHERE id NOT IN (SELECT item FROM item_content))
"""
_PLANE = np.concatenate([_RNG.normal(size=12), np.zeros(28)])


def rows(n: int, seed: int) -> Any:
    """Return apps with about 26 of 40 permissions each; the first 12 matter."""
    bits = np.random.default_rng(seed).random((n, len(_FEATURES))) < 0.65
    return pd.DataFrame(bits.astype(float), columns=_FEATURES)


def fitted(seed: int) -> InductiveEvaluator:
    """Return a rejector of apps."""
    X = rows(600, seed)
    noisy = X.to_numpy() @ _PLANE + np.random.default_rng(seed).normal(scale=0.7, size=len(X))
    y = np.where(noisy > np.median(noisy), "malware", "goodware")
    return InductiveEvaluator(LogisticRegression(), random_state=0).fit(X, y)


def family(rejector: InductiveEvaluator, n: int) -> Any:
    """Return rejected apps: one app, without one permission each that matters little."""
    little = np.argsort(np.abs(rejector.estimator_.coef_[0]))
    for start in rows(400, 5).to_numpy():
        places = little[start[little] == 1][:n]
        near = np.tile(start, (n, 1))
        near[np.arange(n), places] = 0
        frame = pd.DataFrame(near, columns=_FEATURES)
        if rejector.decide(frame).rejected.all():
            return frame
    raise AssertionError("there is no such family")


class Work:
    """Requests to a gate, and its answers by route and status.

    Parameters
    ----------
    address : str
        The address of the gate.
    tokens : dict
        The tokens of its people and programs, by name.
    """

    def __init__(self, address: str, tokens: dict[str, str]) -> None:
        self._http, self._tokens = httpx2.Client(base_url=address, timeout=300), tokens
        self.answers: dict[str, list[Any]] = {}

    def ask(self, who: str, request: str, body: Any = None, *, status: int = 200, **parts: Any) -> Any:
        """Send a request such as ``GET /v1/quarantine/{item}``, and keep the answer."""
        method, path = request.split()
        headers = {"authorization": f"Bearer {self._tokens[who]}"} if who else {}
        answer = self._http.request(method, path.format(**parts), json=body, headers=headers)
        assert answer.status_code == status, (request, answer.status_code, answer.text)
        if "json" not in answer.headers["content-type"]:
            return answer.content
        said = answer.json()
        self.answers.setdefault(f"{request.partition('?')[0]} {status}", []).append(said)
        return said

    def send(self, frame: Any, prefix: str) -> None:
        """Send rows for a decision, in three forms."""
        objects = []
        for i, row in enumerate(frame.to_dict("records")):
            values, common = list(row.values()), {"id": f"{prefix}{i}", "context": {"host": f"h{i % 3}"}}
            filled = np.flatnonzero(values).tolist()
            sparse = {"positions": filled, "values": [values[j] for j in filled]}
            forms: list[dict[str, Any]] = [{"features": row}, {"values": values}, sparse]
            objects.append({**common, **forms[i % 3], "seen_at": "2026-01-02T03:04:05Z"})
        self.ask("sensor", "POST /v1/decisions", {"objects": objects})

    def label(self, who: str, label: str, count: int = 1, **given: Any) -> list[int]:
        """Claim items, label them, and return their numbers."""
        claimed = self.ask(who, "POST /v1/quarantine/claim", {"count": count, **given})["items"]
        for item in claimed:
            said = {"label": label, "reason": "packed", "note": f"seen by {who}"}
            self.ask(who, "POST /v1/quarantine/{item}/resolve", said, item=item["id"])
        return [item["id"] for item in claimed]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()


def prepare(engine: Engine, folder: Path) -> dict[str, str]:
    """Make the tables, deploy a model, keep objects of an old month, and return tokens by name."""
    migrate(engine)
    with engine.begin() as connection:  # so that the same objects are drawn each time
        connection.execute(text("UPDATE secret SET value = sha256(convert_to(name, 'UTF8'))"))
    numbers = []
    for seed in (1, 2):
        save(fitted(seed), folder / f"apps{seed}.transcendent")
        added = add(engine, folder / f"apps{seed}.transcendent", (), None, f"apps{seed}", *BY)
        with engine.begin() as connection:
            numbers.append(find(connection, added.digest).number)
    with engine.begin() as connection:
        deploy(connection, numbers[0], "active", {"audit": 0.1, "budget": None}, *BY)
    _keep_old(engine, numbers[0])
    tokens = Tokens(engine)
    return {name: tokens.create(name, role) for name, role in ROLES.items()}


def _keep_old(engine: Engine, number: int) -> None:
    """Keep rejected objects as if in an old month."""
    model = load_stored(engine, number, (), None)
    X = rows(60, 3)
    decisions, names = model.rejector.decide(X), [f"old{i}" for i in range(len(X))]
    given = number, Draw(b"", 0), names, ["sensor"] * len(X), X.to_numpy(), decisions
    keep(engine, list(to_keep(*given).values()))
    with engine.begin() as connection:
        make_month(connection, month_of(OLD))
        for table, column in (("item", "id"), ("payload", "id"), ("identity", "item")):
            new = f"{column} % (1::bigint << 40) + {month_of(OLD) << 40}"
            connection.execute(text(f"UPDATE {table} SET {column} = {new}"))
        connection.execute(text("UPDATE item SET received_at = '2020-01-15T12:00Z'"))


def work(gate: Work, engine: Engine) -> None:
    """Let programs and people do what can be done with a gate."""
    first = load_stored(engine, 1, (), None).rejector
    for who, path in (("", "healthz"), ("", "readyz"), ("sensor", "v1/model")):
        gate.ask(who, f"GET /{path}")
    gate.ask("sensor", "GET /openapi.json")
    gate.label("ann", "malware", 4)  # of the old month
    gate.send(rows(60, 4), "a")
    near = family(first, 8)
    gate.send(pd.concat([near, near[:2]]), "near")
    _wait(lambda: gate.ask("ann", "GET /v1/quarantine")["copies"])
    Grouping(engine, 2).regroup()
    _label_items(gate)
    _label_campaign(gate)
    _label_from_outside(gate)
    with engine.connect() as connection:
        digests = connection.execute(text("SELECT digest FROM model ORDER BY id")).scalars().all()
        models = [find(connection, digest) for digest in digests]
    shadow(engine, models[1], {"audit": 0.5, "budget": None, "sample": 1.0}, "boss", "to compare")
    loaded = "SELECT count(*) FROM process WHERE cardinality(loaded) > 1"
    _wait(lambda: scalar(engine, loaded))
    gate.send(rows(40, 6), "b")
    promote(engine, models[1], "active", {"audit": 0.1, "budget": 0.2}, "boss", "it compares well", 600)
    _wait(lambda: gate.ask("sensor", "GET /v1/model")["digest"] == models[1].digest)
    gate.send(rows(80, 7), "c")
    newest = "SELECT max(number) FROM cutoff"
    _wait(lambda: scalar(engine, newest))
    gate.send(rows(20, 8), "d")
    gate.ask("sensor", "GET /v1/cutoffs/{number}", number=scalar(engine, newest))
    _run(engine, models[0])


def _run(engine: Engine, old: Known) -> None:
    """Do what operators do with commands and pages."""
    with engine.begin() as connection:
        alarm = raise_alarm(connection, 1, "rejections", Alarm(90, 5.0))
    acknowledge(engine, alarm, "boss", "known")
    Quarantine(engine).close(old.digest, "boss")
    sessions = Sessions(engine)
    sessions.accept(sessions.invite("eve", "viewer", 60))
    sessions.invite("dan", "viewer", 60)
    delete(engine, ToDelete("object", "a3"), "boss", "asked for")
    drop_months(engine, month_of(SINCE))


def _label_items(gate: Work) -> None:
    item, other = gate.label("ann", "malware", 2)
    gate.ask("ann", "POST /v1/quarantine/claim", {"count": 3})
    held = [each["id"] for each in gate.ask("ann", "GET /v1/quarantine/held")]
    gate.ask("ann", "POST /v1/quarantine/renew", {"items": held})
    gate.ask("ann", "POST /v1/quarantine/{item}/skip", {"reason": "hard", "note": "later"}, item=held[0])
    gate.ask("ann", "POST /v1/quarantine/release", {})
    gate.ask("ann", "POST /v1/quarantine/{item}/undo", {"note": "a mistake"}, item=other)
    gate.ask("ann", "POST /v1/quarantine/{item}/resolve", {"label": "malware"}, item=other, status=409)
    confirmed = gate.ask("bob", "POST /v1/quarantine/claim", {"count": 20, "opinions": True})["items"]
    for each in confirmed:
        gate.ask("bob", "POST /v1/quarantine/{item}/resolve", {"label": "malware"}, item=each["id"])
    assert item in [each["id"] for each in confirmed]
    gate.label("ann", "unclear")
    gate.ask("boss", "GET /v1/quarantine/{item}", item=item)
    gate.ask("ann", "GET /v1/quarantine/{item}/explanation", item=item)
    gate.ask("ann", "GET /v1/quarantine/{item}", item=1, status=404)
    gate.ask("ann", "POST /v1/quarantine/{item}/resolve", {"name": "malware"}, item=item, status=422)
    gate.ask("ann", "GET /v1/events", status=403)
    gate.ask("", "GET /v1/quarantine", status=401)
    bad = {"objects": [{"id": "bad", "values": [1]}, {"id": "good", "values": [1] * 40}]}
    gate.ask("sensor", "POST /v1/decisions", bad, status=422)


def _label_campaign(gate: Work) -> None:
    (campaign,) = gate.ask("ann", "GET /v1/campaigns")
    opened = gate.label("ann", "malware", campaign["needed"], campaign=campaign["id"])
    for item in gate.ask("bob", "POST /v1/quarantine/claim", {"count": 20, "opinions": True})["items"]:
        said = {"label": "malware" if item["id"] in opened else "unclear"}
        gate.ask("bob", "POST /v1/quarantine/{item}/resolve", said, item=item["id"])
    resolve, undo = (f"POST /v1/campaigns/{{campaign}}/{act}" for act in ("resolve", "undo"))
    gate.ask("ann", resolve, {"label": "malware"}, campaign=campaign["id"])
    gate.ask("boss", undo, campaign=campaign["id"])
    gate.ask("ann", resolve, {"label": "malware", "note": "all of them"}, campaign=campaign["id"])


def _label_from_outside(gate: Work) -> None:
    item = gate.ask("boss", "POST /v1/quarantine/claim", {})["items"][0]
    gate.ask("boss", "POST /v1/quarantine/release", {})
    given = {"item": item["id"], "label": "malware", "source": "av", "reason": "run 7", "teach": True}
    gate.ask("sandbox", "POST /v1/labels", given)
    gate.ask("boss", "GET /v1/objects/{id}", id=item["object_id"])
    gate.ask("sensor", "GET /v1/objects/{id}", id="near0")


def state(gate: Work, engine: Engine) -> dict[str, Any]:
    """Return what a gate says of its items, labels and events."""
    with engine.connect() as connection:
        items = connection.execute(text("SELECT id FROM item ORDER BY id")).scalars().all()
    shown = [gate.ask("boss", "GET /v1/quarantine/{item}", item=item) for item in items]
    return {
        "counts": gate.ask("boss", "GET /v1/quarantine"),
        "model": gate.ask("boss", "GET /v1/model"),
        "items": shown,
        "objects": [gate.ask("boss", "GET /v1/objects/{id}", id=each["object_id"]) for each in shown],
        "events": gate.ask("boss", "GET /v1/events?limit=1000")["events"],
    }


def settle_down(engine: Engine) -> None:
    """Wait until nothing is left of what a gate does after the answer."""
    _wait(lambda: not scalar(engine, _TO_DO))
    Grouping(engine, 2).regroup()
    Suggesting(engine).compare()


def scalar(engine: Engine, sql: str) -> Any:
    """Return the only value that a query finds."""
    with engine.connect() as connection:
        return connection.execute(text(sql)).scalar_one()


def shape(answer: Any, path: str = "") -> dict[str, set[str]]:
    """Return the kinds of values at each path of an answer, such as ``[].items[].label``."""
    kinds = {str: "text", int: "number", float: "number", bool: "boolean", type(None): "null"}
    if type(answer) in kinds:
        return {path: {kinds[type(answer)]}}
    is_list = isinstance(answer, list)
    found = {path: {"list" if is_list else "object"}}
    for name, value in (("[]", each) for each in answer) if is_list else answer.items():
        for inner, more in shape(value, path + name if is_list else f"{path}.{name}").items():
            found.setdefault(inner, set()).update(more)
    return found


def _different(answers: list[Any]) -> list[Any]:
    """Return answers, but for those of the same shape as others before."""
    chosen: list[Any] = []
    for each in answers:
        if shape([*chosen, each]) != shape(chosen):
            chosen.append(each)
    return chosen


def _wait(done: Callable[[], Any]) -> None:
    end = time.monotonic() + 900
    while not done():
        assert time.monotonic() < end
        time.sleep(0.5)


def write(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    with TemporaryDirectory() as name, cluster_in(Path(name) / "server") as server:
        engine = connect(server.url)
        tokens = prepare(engine, Path(name))
        gate = Gate(server.url, None, Path(name) / "log", **SETTINGS)
        try:
            with Work(gate.wait(900).address, tokens) as done:
                work(done, engine)
                (api,) = done.answers.pop("GET /openapi.json 200")
                answers = {request: _different(found) for request, found in done.answers.items()}
                _wait(lambda: scalar(engine, "SELECT count(*) FROM monitor WHERE state IS NOT NULL") == 2)
                done.send(rows(20, 9), "late")  # a minute that no monitor has added
                settle_down(engine)
                known = state(done, engine)
                exported = done.ask(
                    "boss", f"GET /v1/labelled?inferred=true&model={known['items'][0]['model']}"
                )
        finally:
            gate.stop()
        assert check(engine) == []
        engine.dispose()
        given = ["--format=custom", "--no-owner", f"--file={folder}/gate.dump", server.url]
        subprocess.run([server.bin / "pg_dump", *given], check=True)
    found = {"tokens": tokens, "answers": answers, "state": known}
    (folder / "answers.json").write_text(json.dumps(found) + "\n")
    (folder / "openapi.json").write_text(json.dumps(api) + "\n")
    (folder / "labelled.parquet").write_bytes(exported)


if __name__ == "__main__":
    gate_model.try_out = lambda *_: None  # which takes seconds
    write(V1)
