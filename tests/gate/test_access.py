"""Who may call which route, and what becomes of those who may not."""

import json
import statistics
import time
from itertools import count

import httpx2
import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from tests.gate.conftest import Forked, ForkedGate, away, serve
from transcendent.artifacts import open_artifact
from transcendent.gate import logs, routes
from transcendent.gate.access import (
    MOST_FAILURES,
    REMEMBERED,
    ROLES,
    WITHOUT_DATABASE,
    BadTokenError,
    Caller,
    TokenError,
    Tokens,
    TooManyFailuresError,
)
from transcendent.gate.app import create_app
from transcendent.gate.database import connect
from transcendent.gate.routes import RULES
from transcendent.gate.settings import Settings

WRONG = "tg_0123456789ab_cXVpdGUgd3Jvbmc"
_addresses = count(2)


def from_address(address):
    """A client at another address of this machine: failures are counted by address."""
    return httpx2.Client(transport=httpx2.HTTPTransport(local_address=address, verify=False), timeout=60)


def new_address():
    return f"127.0.1.{next(_addresses)}"


def ask(gate, method, path, token=None, address="127.0.0.1"):
    headers = {} if token is None else {"authorization": f"Bearer {token}".encode("latin1")}
    body = {} if method == "POST" else None
    with from_address(address) as client:
        return client.request(
            method, gate.address + path.replace("{item}", "7"), json=body, headers=headers
        ).status_code


def rows_of(database):
    """Return every row of every table as text."""
    engine = connect(database)
    with engine.connect() as connection:
        tables = connection.execute(
            text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        ).scalars()
        rows = []
        for table in tables.all():
            rows += connection.execute(text(f"SELECT t::text FROM {table} t")).scalars()
    engine.dispose()
    return rows


@pytest.fixture(scope="module")
def tokens(gate):
    return {role: gate.token(f"the {role}", role) for role in ROLES}


def test_every_route_has_a_rule_and_every_rule_a_route(monkeypatch):
    monkeypatch.setattr(logs, "set_up", lambda level: None)
    app = create_app(Settings(database="postgresql://nobody@127.0.0.1/none")).app
    paths = app.openapi()["paths"]
    described = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert described | {("GET", "/openapi.json")} == set(RULES)
    assert {*routes_of(app)} == set(RULES)


def routes_of(app):
    for route in app.routes:
        inner = getattr(route, "original_router", None)
        for each in inner.routes if inner is not None else [route]:
            for method in each.methods:
                yield method, each.path


@pytest.mark.parametrize(("method", "path"), list(RULES))
def test_a_route_answers_the_roles_of_its_rule_alone(gate, tokens, method, path):
    allowed = RULES[method, path]
    for role, token in tokens.items():
        answered = ask(gate, method, path, token)
        if allowed is None or role in allowed:
            assert answered in (200, 404, 422), role
        else:
            assert answered == 403, role
    for bad in (None, WRONG, f"x{tokens['operator']}", tokens["operator"][3:], "tg_", "tg__\xe9"):
        assert ask(gate, method, path, bad, new_address()) == (200 if allowed is None else 401), bad


def test_only_the_bearer_scheme_counts(gate, tokens):
    token = tokens["operator"]
    for header, status in (
        (f"Bearer {token}", 200),
        (f"bearer {token}", 200),
        (f"Basic {token}", 401),
        (token, 401),
        (f"Bearer  {token}", 401),
    ):
        with from_address(new_address()) as client:
            answer = client.get(f"{gate.address}/v1/model", headers={"authorization": header})
        assert answer.status_code == status, header
        if status == 401:
            assert answer.headers["www-authenticate"] == "Bearer"


class Mistaken(ForkedGate):
    """A gate whose programmer forgot a rule and a dependency."""

    def _start(self, environment, log):
        return Forked(serve_mistaken, environment, log)


def serve_mistaken(environment, log):
    del routes.RULES["GET", "/v1/quarantine"]

    @routes.router.get("/v1/forgotten")
    async def forgotten():
        return "secret"

    serve(environment, log)


@pytest.fixture(scope="module")
def second(gate, artifact, tmp_path_factory):
    """Another process on the same database."""
    log = tmp_path_factory.mktemp("second") / "log"
    mistaken = Mistaken(gate.database, artifact, log, tried=open_artifact(artifact).digest)
    yield mistaken.wait()
    mistaken.stop()


def test_a_route_without_a_rule_is_refused_to_all(second, tokens):
    for path in ("/v1/quarantine", "/v1/forgotten"):
        assert ask(second, "GET", path) == 401
        assert [ask(second, "GET", path, token) for token in tokens.values()] == [403, 403, 403]
    assert ask(second, "GET", "/healthz") == 200


def test_a_revoked_token_is_refused_when_it_is_no_longer_remembered(engine):
    now = [0.0]
    gates = Tokens(engine, lambda: now[0])
    token = gates.create("ann", "analyst")
    assert gates.check(token, "here") == Caller("ann", "analyst")
    gates.revoke("ann")
    now[0] = REMEMBERED - 0.1
    assert gates.remembered(token) == gates.check(token, "here") == Caller("ann", "analyst")
    now[0] = REMEMBERED + 0.1
    assert gates.remembered(token) is None
    with pytest.raises(BadTokenError):
        gates.check(token, "here")
    with pytest.raises(BadTokenError):
        Tokens(engine).check(token, "here")
    again = gates.create("ann", "client")
    assert gates.check(again, "here") == Caller("ann", "client")


def test_a_revoked_token_is_refused_at_once_where_it_was_not_seen(gate, second):
    token = gate.token("fired", "client")
    assert ask(gate, "GET", "/v1/model", token) == 200
    engine = connect(gate.database)
    Tokens(engine).revoke("fired")
    engine.dispose()
    assert ask(second, "GET", "/v1/model", token, new_address()) == 401


def test_without_the_database_good_tokens_stay_good_for_a_while(engine, shared_database):
    now = [0.0]
    gates = Tokens(engine, lambda: now[0])
    good, revoked = gates.create("ann", "client"), gates.create("bob", "client")
    unseen = gates.create("eve", "client")
    for token in (good, revoked):
        gates.check(token, "here")
    gates.revoke("bob")
    now[0] = REMEMBERED + 1
    with pytest.raises(BadTokenError):
        gates.check(revoked, "here")
    with away(shared_database):
        assert gates.check(good, "here") == Caller("ann", "client")
        for bad in (revoked, unseen, WRONG):
            with pytest.raises(OperationalError):
                gates.check(bad, "here")
        now[0] = REMEMBERED + WITHOUT_DATABASE + 1
        with pytest.raises(OperationalError):
            gates.check(good, "here")
    assert gates.check(good, "here") == Caller("ann", "client")


def test_tokens_that_cannot_be_made(engine):
    tokens = Tokens(engine)
    tokens.create("ann", "client")
    for name, role, said in (
        ("ann", "analyst", "there is a token for 'ann': revoke it first"),
        ("bob", "root", "one of client, analyst, operator, not 'root'"),
        ("", "client", "1 to 100 printable"),
        ("a\nb", "client", "1 to 100 printable"),
        ("x" * 101, "client", "1 to 100 printable"),
    ):
        with pytest.raises(TokenError, match=said):
            tokens.create(name, role)
    with pytest.raises(TokenError, match="there is no token for 'bob'"):
        tokens.revoke("bob")
    assert [(each["name"], each["role"]) for each in tokens.list()] == [("ann", "client")]


def test_guesses_are_limited_by_address_and_in_all_gates(gate, second):
    here, there = new_address(), new_address()
    gates = (gate, second)
    for i in range(MOST_FAILURES):
        assert ask(gates[i % 2], "GET", "/v1/model", f"{WRONG}{i}", here) == 401
    good = gate.token("beside a guesser", "client")
    for each in gates:
        assert ask(each, "GET", "/v1/model", WRONG, here) == 429
        assert ask(each, "GET", "/v1/model", WRONG, there) == 401
        assert ask(each, "GET", "/v1/model", good, here) == 200
        assert ask(each, "GET", "/healthz", WRONG, here) == 200
    with from_address(here) as client:
        answer = client.get(f"{gate.address}/v1/model", headers={"authorization": f"Bearer {WRONG}"})
    assert answer.json()["detail"] == "too many failed attempts: wait 5 minutes."
    assert int(answer.headers["retry-after"]) == 300


def test_guesses_at_a_token_are_limited_wherever_they_come_from(gate, second):
    token = gate.token("guessed at", "client")
    gates = (gate, second)
    for i in range(MOST_FAILURES):
        assert ask(gates[i % 2], "GET", "/v1/model", f"{token[:16]}guess{i}", new_address()) == 401
    for each in gates:
        assert ask(each, "GET", "/v1/model", f"{token[:16]}another", new_address()) == 429
        assert ask(each, "GET", "/v1/model", token, new_address()) == 429  # right by then, it is no use


def test_failures_are_forgotten_in_time(engine):
    tokens = Tokens(engine)
    token = tokens.create("ann", "client")
    for _ in range(MOST_FAILURES):
        with pytest.raises(BadTokenError):
            tokens.check(WRONG, "here")
    with pytest.raises(TooManyFailuresError):
        tokens.check(WRONG, "here")
    assert tokens.check(token, "here").name == "ann"
    with engine.begin() as connection:
        connection.execute(text("UPDATE failure SET at = at - interval '301 seconds'"))
    with pytest.raises(BadTokenError):
        tokens.check(WRONG, "here")
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM failure")).scalar_one() == 1


def test_an_unknown_id_costs_as_much_as_a_wrong_secret(engine):
    tokens = Tokens(engine)
    known = [tokens.create(f"ann {i}", "client")[:16] + "wrong" for i in range(3)]
    took = {"wrong": [], "unknown": []}
    for i in range(15):
        for kind, token in (("wrong", known[i % 3]), ("unknown", WRONG)):
            start = time.process_time()
            with pytest.raises(BadTokenError):
                tokens.check(token, f"address {i}")
            took[kind].append(time.process_time() - start)
    assert 1 / 3 < statistics.median(took["unknown"]) / statistics.median(took["wrong"]) < 3


def test_secrets_are_neither_logged_nor_stored(gate, problem):
    made = [gate.token(f"keeper {role}", role) for role in ROLES]
    for token in made:
        for method, path in RULES:
            ask(gate, method, path, token)
    ask(gate, "GET", "/v1/model", WRONG, new_address())
    ask(gate, "GET", f"/v1/model?token={made[0]}", made[0])
    logged, stored = gate.log.read_text(), rows_of(gate.database)
    assert "the client" in logged
    assert any("keeper client" in row for row in stored)
    for token in (*made, WRONG):
        secret = token.split("_", 2)[2]
        assert secret not in logged
        assert not any(secret in row for row in stored)
        assert token not in logged


def test_all_that_is_written_has_its_author(gate, problem, rejector):
    X = problem[0][1000:1100]
    rejected = X[rejector.decide(X).rejected][:4]
    gate.client("probe").decide([f"authored {i}" for i in range(4)], rejected)
    ann, bob = gate.client("ann", "analyst"), gate.client("bob", "analyst")
    first, second = (each["id"] for each in ann.claim(2)["items"])
    ann.resolve(first, "malware")
    ann.skip(second)
    third = bob.claim(1)["items"][0]["id"]
    bob.resolve(third, "goodware")
    gate.client("root", "operator").undo(third)
    engine = connect(gate.database)
    with engine.connect() as connection:
        labels = connection.execute(text("SELECT item, action, author FROM label ORDER BY id")).all()
        senders = connection.execute(text("SELECT DISTINCT sender FROM payload")).scalars().all()
    engine.dispose()
    assert labels == [
        (first, "label", "ann"), (second, "skip", "ann"), (third, "label", "bob"), (third, "undo", "root"),
    ]  # fmt: skip
    assert senders == ["probe"]
    lines = [json.loads(line) for line in gate.log.read_text().splitlines()]
    callers = {line.get("caller") for line in lines if line.get("path") == f"/v1/quarantine/{first}/resolve"}
    assert callers == {"ann"}
