"""What gates of earlier releases left behind is read, and what they answered is answered still."""

import json
import shutil
import subprocess
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.gate.conftest import ForkedGate, database_on
from tests.gate.inside import application
from tests.gate.write_v1 import SETTINGS, V1, Work, prepare, scalar, shape, state, work
from transcendent.gate import model as gate_model
from transcendent.gate import read_labelled
from transcendent.gate.access import Tokens
from transcendent.gate.check import check
from transcendent.gate.database import check_version, connect, migrate, newest_version, version_of
from transcendent.gate.folding import Folding
from transcendent.gate.stored import load_stored

KNOWN = json.loads((V1 / "answers.json").read_text())
API = json.loads((V1 / "openapi.json").read_text())


def restore(url):
    """Restore the dump as an operator would."""
    program = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_restore"))
    program = program[-1] if program else shutil.which("pg_restore")
    given = ["--no-owner", "--exit-on-error", f"--dbname={url}", V1 / "gate.dump"]
    subprocess.run([program, *given], check=True)


@contextmanager
def serving(url, folder):
    """A gate that follows the deployments of a database, as the one that wrote the dump did."""
    gate = ForkedGate(url, None, folder / "log", **SETTINGS)
    try:
        yield gate.wait(300)
    finally:
        gate.stop()


@pytest.fixture
def restored(server):
    """The restored database: its URL and an engine."""
    with database_on(server) as url:
        restore(url)
        engine = connect(url)
        yield url, engine
        engine.dispose()


@pytest.fixture(autouse=True)
def untried(monkeypatch):
    monkeypatch.setattr(gate_model, "try_out", lambda *_: None)  # which takes seconds


def test_a_database_of_the_first_release_is_migrated(restored):
    _, engine = restored
    with engine.connect() as connection:
        assert version_of(connection) == "0001"
    assert migrate(engine) == newest_version()
    with engine.connect() as connection:
        check_version(connection)
    assert check(engine) == []


@pytest.mark.slow
def test_a_gate_says_of_it_what_the_first_release_said(restored, tmp_path):
    url, engine = restored
    migrate(engine)
    with serving(url, tmp_path) as gate, Work(gate.address, KNOWN["tokens"]) as done:
        found = state(done, engine)
    found["events"] = found["events"][: len(KNOWN["state"]["events"])]
    assert lost(KNOWN["state"], found) == []


def test_its_monitors_go_on(restored):
    _, engine = restored
    migrate(engine)
    with engine.connect() as connection:
        sql = "SELECT deployment, model FROM monitor JOIN deployment ON deployment.id = deployment"
        rows = connection.execute(text(sql)).all()
        served = {deployment: load_stored(engine, model, (), None) for deployment, model in rows}
    before, left = scalar(engine, "SELECT sum(objects) FROM monitor"), _left(engine)
    assert (len(served), left > 0) == (2, True)
    with engine.begin() as connection:  # a gate that lives has counted all of these minutes
        sql = """INSERT INTO process (id, host, pid, version, flushed)
        SELECT gen_random_uuid(), 'here', 1, '', max(minute) FROM minute_counts"""
        connection.execute(text(sql))
    Folding(engine, lambda: served, SETTINGS["promised_error"], engine).fold_closed()
    assert scalar(engine, "SELECT count(problem) FROM monitor") == 0
    assert scalar(engine, "SELECT sum(objects) FROM monitor") == before + left


def _left(engine):
    """Return the number of objects that no monitor has added."""
    sql = """SELECT coalesce(sum(counts.objects), 0) FROM minute_counts AS counts
    JOIN monitor USING (deployment) WHERE minute > folded"""
    return scalar(engine, sql)


def test_its_tokens_are_valid(restored):
    _, engine = restored
    migrate(engine)
    tokens = Tokens(engine)
    assert [tokens.check(token).name for token in KNOWN["tokens"].values()] == list(KNOWN["tokens"])


def test_what_it_exported_is_read():
    read = read_labelled(V1 / "labelled.parquet")
    known = {each["id"]: each for each in KNOWN["state"]["items"] if each["labelled"]}
    labels = {each["item"]: each["label"] for found in KNOWN["state"]["objects"] for each in found}
    items, features = read.table["gate_item"].to_pylist(), read.X.to_dict("records")
    assert {item for item in items if item in known} == known.keys()  # others are of a dropped month
    for item, label, row in zip(items, read.y, features, strict=True):
        if item in known:
            assert (label, row) == (labels[item], known[item]["features"])


@pytest.mark.slow
def test_answers_have_the_fields_that_they_had(server, tmp_path):
    with database_on(server) as url:
        engine = connect(url)
        tokens = prepare(engine, tmp_path)
        with serving(url, tmp_path) as gate, Work(gate.address, tokens) as done:
            work(done, engine)
            found = done.answers | {"GET /v1/events 200": [done.ask("boss", "GET /v1/events?limit=1000")]}
        engine.dispose()
    assert set(found) >= set(KNOWN["answers"])
    for request, answers in KNOWN["answers"].items():
        old, new = shape(answers), shape(found[request])
        assert not old.keys() - new.keys(), request
        assert not {path: new[path] for path in old if not new[path] <= old[path] | {"null"}}, request


def test_the_api_takes_and_answers_all_that_it_did():
    assert list(_lost_of_api(API, application().app.openapi())) == []


def test_a_field_that_is_lost_or_another_one_that_is_needed_is_found():
    changed = json.loads(json.dumps(API))
    schemas = changed["components"]["schemas"]
    del schemas["Item"]["properties"]["sender"]
    schemas["Served"]["properties"]["classes"] = {"type": "string"}
    schemas["Claim"] |= {"required": ["count"]}
    del schemas["Resolve"]["properties"]["note"]
    del changed["paths"]["/v1/events"]
    said = list(_lost_of_api(API, changed))
    assert {
        "GET /v1/events is lost",
        "GET /v1/quarantine/held 200: [].sender is lost",
        "GET /v1/model 200 may be string: .classes",
        "POST /v1/quarantine/claim: .body.count is needed",
        "POST /v1/quarantine/{item}/resolve: .body.note is lost",
    } <= set(said)


def lost(old, new, path=""):
    """Return what an answer no longer says, or says otherwise; what is new does not matter."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [each for name in old for each in lost(old[name], new.get(name, "nothing"), f"{path}.{name}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            each for i, pair in enumerate(zip(old, new, strict=True)) for each in lost(*pair, f"{path}[{i}]")
        ]
    return [] if old == new or _moment(old) == _moment(new) is not None else [f"{path}: {old!r}, now {new!r}"]


def _moment(value):
    """Return a time, whose text depends on the time zone of the database."""
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None


def _lost_of_api(old, new):
    """Yield what an API no longer takes or answers as it did."""
    for path, methods in old["paths"].items():
        for method, before in methods.items():
            where, after = f"{method.upper()} {path}", new["paths"].get(path, {}).get(method)
            if after is None:
                yield f"{where} is lost"
                continue
            taken = _taken(before, old), _taken(after, new)
            yield from (f"{where}: {each} is lost" for each in taken[0].kinds.keys() - taken[1].kinds.keys())
            yield from (f"{where}: {each} is needed" for each in taken[1].needed - taken[0].needed)
            yield from _wider(taken[0].kinds, taken[1].kinds, f"{where} no longer takes")
            for status, answer in before["responses"].items():
                if status not in after["responses"]:
                    yield f"{where} {status} is lost"
                    continue
                given = Fields(_body(answer), old), Fields(_body(after["responses"][status]), new)
                kept = given[1].needed | (given[1].kinds.keys() - given[0].needed)
                yield from (f"{where} {status}: {each} is lost" for each in given[0].kinds.keys() - kept)
                yield from _wider(given[1].kinds, given[0].kinds, f"{where} {status} may be")


def _wider(wide, narrow, problem):
    for path in wide.keys() & narrow.keys():
        if more := sorted(wide[path] - narrow[path]):
            yield f"{problem} {', '.join(more)}: {path}"


def _body(given):
    content = given.get("content", {"": {}})
    return next(iter(content.values())).get("schema", {})


def _taken(route, of):
    """Return the fields of a request: of its query and of its body."""
    names = {each["name"]: each["schema"] for each in route.get("parameters", ())}
    required = [each["name"] for each in route.get("parameters", ()) if each.get("required")]
    fields = {**names, "body": _body(route.get("requestBody", {}))}
    return Fields({"type": "object", "properties": fields, "required": [*required, "body"]}, of)


class Fields:
    """The fields of a schema: the kinds that each may be, and those that are always there."""

    _KINDS = frozenset(["string", "number", "integer", "boolean", "null", "array", "object"])

    def __init__(self, schema, of) -> None:
        self._of, self.kinds, self.needed = of, {}, {""}
        self._add(schema, "", True)

    def _add(self, schema, path, needed):
        choices = self._choices(schema)
        objects = [set(each.get("required", ())) for each in choices if each.get("type") == "object"]
        always = set.intersection(*objects) if objects and needed else set()
        for each in choices:
            kind = each.get("type")
            kinds = {"number", "integer"} if kind == "number" else {kind} if kind else self._KINDS
            self.kinds.setdefault(path, set()).update(kinds)
            for name, inner in each.get("properties", {}).items():
                if name in always:
                    self.needed.add(f"{path}.{name}")
                self._add(inner, f"{path}.{name}", name in always)
            if "items" in each:
                self.needed.add(f"{path}[]")
                self._add(each["items"], f"{path}[]", True)
            if isinstance(values := each.get("additionalProperties"), dict):
                self.needed.add(f"{path}.*")
                self._add(values, f"{path}.*", True)

    def _choices(self, schema):
        if "$ref" in schema:
            return self._choices(self._of["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
        if some := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
            return [each for inner in some for each in self._choices(inner)]
        return [schema]
