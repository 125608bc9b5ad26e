"""Which roles may call which route, and how others are refused."""

import asyncio
import hashlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import httpx2
import pytest
from sqlalchemy import event, text

from tests.gate import inside
from tests.gate.conftest import Forked, ForkedGate, away, serve
from transcendent.gate import access, routes
from transcendent.gate.access import (
    AWAY,
    REFRESHED,
    REMEMBERED,
    ROLES,
    WITHOUT_DATABASE,
    BadTokenError,
    Caller,
    TokenError,
    Tokens,
    UncheckedError,
)
from transcendent.gate.app import create_app
from transcendent.gate.database import connect
from transcendent.gate.pages import web
from transcendent.gate.routes import RULES
from transcendent.gate.settings import GateSettings

# The others are pages, which take no tokens.
API = {rule for rule in RULES if rule[1].startswith(("/v1/", "/healthz", "/readyz", "/metrics", "/openapi"))}
WRONG = "tg_0123456789ab_cXVpdGUgd3JvbmcsIHF1aXRlIHdyb25nLCBpbmRlZWQ"


def ask(gate, method, path, token=None):
    headers = {} if token is None else {"authorization": f"Bearer {token}".encode("latin1")}
    body = {} if method == "POST" else None
    path = path.replace("{item}", "7").replace("{object_id}", "7")
    return httpx2.request(method, gate.address + path, json=body, headers=headers).status_code


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


def test_every_route_has_a_rule_and_every_rule_a_route():
    app = create_app(GateSettings(database="postgresql://nobody@127.0.0.1/none"), None).app
    paths = app.openapi()["paths"]
    described = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert described | {("GET", "/openapi.json")} == API
    assert {*routes_of(app)} == set(RULES)


def routes_of(app):
    for route in app.routes:
        inner = getattr(route, "original_router", None)
        for each in inner.routes if inner is not None else [route]:
            for method in each.methods:
                yield method, each.path_format


@pytest.mark.parametrize(("method", "path"), sorted(API))
def test_a_route_answers_the_roles_of_its_rule_alone(gate, tokens, method, path):
    allowed = RULES[method, path]
    for role, token in tokens.items():
        answered = ask(gate, method, path, token)
        if allowed is None or role in allowed:
            assert answered in (200, 404, 422), role
        else:
            assert answered == 403, role
    for bad in (None, WRONG, f"x{tokens['operator']}", tokens["operator"][3:], "tg_", "tg__\xe9"):
        assert ask(gate, method, path, bad) == (200 if allowed is None else 401), bad


def test_only_the_bearer_scheme_counts(gate, tokens):
    token = tokens["operator"]
    for header, status in (
        (f"Bearer {token}", 200),
        (f"bearer {token}", 200),
        (f"Basic {token}", 401),
        (token, 401),
        (f"Bearer  {token}", 401),
    ):
        answer = httpx2.get(f"{gate.address}/v1/model", headers={"authorization": header})
        assert answer.status_code == status, header
        if status == 401:
            assert answer.headers["www-authenticate"] == "Bearer"


class Known:
    """Tokens, and a service without a model: everybody is an operator, and everything is decided."""

    serving, no_model = None, "there is no model."

    async def caller(self, token):
        return Caller("root", "operator")

    async def answer(self, body, who):
        return 200, b"{}"


@pytest.fixture(scope="module")
def proxied():
    """A gate behind a proxy that adds a token to every request."""
    known = Known()
    return inside.application(
        {"tokens": known, "service": known, "quarantine": object()}, public_url="https://gate.example"
    )


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({}, 200),
        ({"origin": "https://gate.example", "sec-fetch-site": "same-origin"}, 200),
        ({"origin": "http://127.0.0.1:8040"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"origin": "https://gate.example", "sec-fetch-site": "cross-site"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "https://gate.example.evil.example"}, 403),
        ({"origin": "http://127.0.0.1:8041"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
    ],
)
def test_pages_of_other_sites_change_nothing_by_a_token_that_a_proxy_adds(proxied, sent, status):
    headers = {"authorization": "Bearer tg_x", "content-type": "text/plain", **sent}
    answer = inside.ask(proxied, "POST", "/v1/decisions", content="{}", headers=headers)
    assert answer.status_code == status
    other = inside.ask(proxied, "POST", "/v1/quarantine/x/undo", headers=headers)
    assert (other.status_code == 403) == (status == 403)
    assert inside.ask(proxied, "GET", "/v1/model", headers=headers).status_code == 503


class Mistaken(ForkedGate):
    """A gate whose programmer forgot a rule and a dependency."""

    def _start(self, environment, log):
        return Forked(serve_mistaken, environment, log)


def serve_mistaken(environment, log):
    del routes.RULES["GET", "/v1/quarantine"]

    @routes.router.get("/v1/forgotten")
    async def forgotten():
        return "secret"

    @web.pages.get("/forgotten")
    async def forgotten_page():
        return "secret"

    serve(environment, log)


@pytest.fixture(scope="module")
def second(gate, artifact, tmp_path_factory):
    """Another process on the same database."""
    log = tmp_path_factory.mktemp("second") / "log"
    mistaken = Mistaken(gate.database, artifact, log)
    yield mistaken.wait()
    mistaken.stop()


def test_a_route_without_a_rule_is_refused_to_all(second, tokens):
    for path in ("/v1/quarantine", "/v1/forgotten"):
        assert ask(second, "GET", path) == 401
        assert {ask(second, "GET", path, token) for token in tokens.values()} == {403}
    assert ask(second, "GET", "/healthz") == 200
    with httpx2.Client(base_url=second.address, headers={"origin": second.address}) as browser:
        assert browser.get("/forgotten").headers["location"] == "/sign-in?next=/forgotten"
        browser.post("/sign-in", data={"token": tokens["operator"]})
        assert browser.get("/forgotten").status_code == 403
        assert browser.get("/desk").status_code == 200


class Remembering:
    """Tokens as a gate remembers them, with a clock for tests and a count of look-ups."""

    def __init__(self, engine):
        self.now, self.lookups = 0.0, 0
        self.tokens = Tokens(engine, lambda: self.now)
        event.listen(engine, "before_cursor_execute", self._count)

    def _count(self, connection, cursor, sql, *_):
        self.lookups += "FROM token WHERE id" in sql

    def callers(self, *tokens):
        """Check several at once, and wait for look-ups in the background."""

        async def ask_all():
            found = await asyncio.gather(*map(self.tokens.caller, tokens), return_exceptions=True)
            await asyncio.gather(*self.tokens._under_way.values(), return_exceptions=True)
            return found

        return asyncio.run(ask_all())

    def caller(self, token):
        (found,) = self.callers(token)
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def gates(engine):
    return Remembering(engine)


def test_a_revoked_token_is_refused_when_it_is_no_longer_remembered(gates, engine):
    tokens = gates.tokens
    token = tokens.create("ann", "analyst")
    assert gates.caller(token) == Caller("ann", "analyst")
    tokens.revoke("ann")
    gates.now = REFRESHED - 0.1
    assert gates.caller(token) == Caller("ann", "analyst")
    gates.now = REMEMBERED + 0.1
    for check in (gates.caller, Tokens(engine).check):
        with pytest.raises(BadTokenError):
            check(token)
    again = tokens.create("ann", "client")
    assert gates.caller(again) == Caller("ann", "client")


def end_in(engine, name, seconds):
    """Let the tokens of a name end so many seconds from now, by the clock of the database."""
    with engine.begin() as connection:
        sql = "UPDATE token SET revoked_at = now() + make_interval(secs => :seconds) WHERE name = :name"
        connection.execute(text(sql), {"seconds": seconds, "name": name})


def listed(tokens, name):
    """Return role, whether valid, and seconds until the end of the tokens of a name, oldest first."""
    now = datetime.now(UTC)
    return [
        (each["role"], each["valid"], each["revoked_at"] and (each["revoked_at"] - now).total_seconds())
        for each in tokens.list()
        if each["name"] == name
    ]


def test_a_token_is_valid_until_it_expires_and_not_longer(gates, engine):
    token = gates.tokens.create("ann", "analyst", timedelta(days=90))
    assert listed(gates.tokens, "ann") == [("analyst", True, pytest.approx(90 * 86400, abs=60))]
    end_in(engine, "ann", 3)
    assert gates.caller(token) == Caller("ann", "analyst")
    gates.now = 2.9 - 0.5  # the look-up took a moment of the 3 seconds
    assert gates.caller(token) == Caller("ann", "analyst")
    gates.now = 3
    assert gates.lookups == 1  # still remembered, but no longer valid
    with pytest.raises(BadTokenError, match="expired"):
        gates.caller(token)
    end_in(engine, "ann", -0.001)
    for check in (Remembering(engine).caller, Tokens(engine).check):
        with pytest.raises(BadTokenError):
            check(token)
    gates.tokens.create("ann", "client")  # the name is free again


def test_an_expired_token_is_refused_also_without_the_database(gates, engine, shared_database):
    token = gates.tokens.create("ann", "client")
    end_in(engine, "ann", REMEMBERED + 5)
    gates.caller(token)
    with away(shared_database):
        gates.now = REMEMBERED + 1
        assert gates.caller(token) == Caller("ann", "client")
        gates.now = REMEMBERED + 5
        with pytest.raises(BadTokenError, match="expired"):
            gates.caller(token)


def test_a_rotated_token_stays_valid_for_the_overlap(gates, engine):
    tokens = gates.tokens
    first = tokens.create("ann", "analyst")
    second = tokens.rotate("ann", timedelta(hours=24))
    assert gates.callers(first, second) == [Caller("ann", "analyst")] * 2
    assert listed(tokens, "ann") == [("analyst", True, pytest.approx(86400, abs=60)), ("analyst", True, None)]
    with pytest.raises(TokenError, match="has two tokens: wait until the older one ends, or revoke both"):
        tokens.rotate("ann", timedelta(hours=24))
    with pytest.raises(TokenError, match="already has a token"):
        tokens.create("ann", "client")
    with engine.begin() as connection:
        connection.execute(text("UPDATE token SET revoked_at = now() WHERE revoked_at IS NOT NULL"))
    fresh = Tokens(engine)
    assert fresh.check(second) == Caller("ann", "analyst")
    with pytest.raises(BadTokenError):
        fresh.check(first)
    third = tokens.rotate("ann", timedelta(0))
    with pytest.raises(BadTokenError):
        fresh.check(second)
    assert fresh.check(third) == Caller("ann", "analyst")


def test_rotation_keeps_the_lifetime_and_extends_no_end(gates, engine):
    tokens = gates.tokens
    first = tokens.create("ann", "client", timedelta(days=2))
    tokens.rotate("ann", timedelta(days=30))
    ends = [pytest.approx(2 * 86400, abs=60)] * 2  # the first is not extended to 30 days
    assert [end for _, _, end in listed(tokens, "ann")] == ends
    tokens.revoke("ann")
    assert [valid for _, valid, _ in listed(tokens, "ann")] == [False, False]
    with pytest.raises(BadTokenError):
        Tokens(engine).check(first)
    tokens.create("ann", "client", timedelta(days=2))
    tokens.rotate("ann", timedelta(0), timedelta(days=5))
    assert listed(tokens, "ann")[-1] == ("client", True, pytest.approx(5 * 86400, abs=60))


def test_two_commands_at_once_make_no_third_token(engine):
    tokens = Tokens(engine)
    tokens.create("ann", "client", timedelta(days=1))

    def attempt(number):
        try:
            if number % 2:
                tokens.rotate("ann", timedelta(hours=1))
            else:
                tokens.create("bob", "client", timedelta(days=1))
        except TokenError:
            return False
        return True

    with ThreadPoolExecutor(12) as pool:
        assert sum(pool.map(attempt, range(12))) == 2
    assert len(listed(tokens, "ann")) == 2
    assert len(listed(tokens, "bob")) == 1


@pytest.mark.parametrize("lifetime", [timedelta(0), timedelta(days=-1), timedelta(days=40_000)])
def test_lifetimes_that_are_refused(engine, lifetime):
    tokens = Tokens(engine)
    with pytest.raises(TokenError, match="more than 0 and at most 36500 days"):
        tokens.create("ann", "client", lifetime)
    tokens.create("bob", "client")
    with pytest.raises(TokenError, match="more than 0 and at most 36500 days"):
        tokens.rotate("bob", timedelta(hours=1), lifetime)
    with pytest.raises(TokenError, match="the overlap must be between 0 and 36500 days"):
        tokens.rotate("bob", lifetime - timedelta(days=1))
    with pytest.raises(TokenError, match="'eve' has no valid token: create one"):
        tokens.rotate("eve", timedelta(hours=1))
    assert len(tokens.list()) == 1


def test_many_requests_at_once_cause_one_look_up(gates):
    token, other = (gates.tokens.create(name, "client") for name in ("ann", "bob"))
    for later in (0, REMEMBERED + 0.1):  # it is new, and it is no longer remembered
        gates.now += later
        assert gates.callers(*[token] * 16) == [Caller("ann", "client")] * 16
        assert gates.callers(*[token] * 16, *[other] * 16)[-1] == Caller("bob", "client")
        assert gates.lookups == 2
        gates.lookups = 0


def test_a_token_in_use_is_looked_up_again_while_requests_go_on(gates, engine):
    token = gates.tokens.create("ann", "client")
    gates.caller(token)
    may_answer = threading.Event()
    event.listen(engine, "checkout", lambda *_: may_answer.wait(20))

    async def ask_meanwhile():
        found = await asyncio.wait_for(asyncio.gather(*(gates.tokens.caller(token) for _ in range(16))), 5)
        may_answer.set()
        await asyncio.gather(*gates.tokens._under_way.values())
        return found

    gates.now = REFRESHED + 0.1
    assert asyncio.run(ask_meanwhile()) == [Caller("ann", "client")] * 16
    assert gates.lookups == 2
    gates.now = REMEMBERED + 0.1  # of the first look-up, not of the second
    assert gates.caller(token) == Caller("ann", "client")


def test_a_revoked_token_is_refused_at_once_where_it_was_not_seen(gate, second):
    token = gate.token("fired", "client")
    assert ask(gate, "GET", "/v1/model", token) == 200
    engine = connect(gate.database)
    Tokens(engine).revoke("fired")
    engine.dispose()
    assert ask(second, "GET", "/v1/model", token) == 401


def test_without_the_database_good_tokens_stay_good_for_a_while(gates, shared_database):
    tokens = gates.tokens
    good, revoked, unseen = (tokens.create(name, "client") for name in ("ann", "bob", "eve"))
    gates.callers(good, revoked)
    tokens.revoke("bob")
    gates.now = REMEMBERED + 1
    with pytest.raises(BadTokenError):
        gates.caller(revoked)
    with away(shared_database):
        assert gates.callers(*[good] * 16) == [Caller("ann", "client")] * 16
        for bad in (revoked, unseen, WRONG):
            with pytest.raises(UncheckedError):
                gates.caller(bad)
        with pytest.raises(BadTokenError):
            gates.caller("tg_whatever")
        gates.now = WITHOUT_DATABASE - 1
        assert gates.caller(good) == Caller("ann", "client")
        gates.now = WITHOUT_DATABASE + 1
        with pytest.raises(UncheckedError):
            gates.caller(good)
    gates.now += AWAY
    assert gates.caller(good) == Caller("ann", "client")


def test_the_database_has_the_sha_256_of_256_random_bits_compared_in_constant_time(engine, monkeypatch):
    tokens = Tokens(engine)
    token = tokens.create("ann", "client")
    secret = token.split("_", 2)[2]
    with engine.connect() as connection:
        stored = connection.execute(text("SELECT hash FROM token")).scalar_one()
    assert stored == hashlib.sha256(secret.encode()).hexdigest()
    assert len(secret) * 6 >= 256
    compared = []
    monkeypatch.setattr(
        access.hmac, "compare_digest", lambda *two: compared.append(two) or stored.encode() == two[1]
    )
    assert tokens.check(token) == Caller("ann", "client")
    with pytest.raises(BadTokenError):
        tokens.check(token[:-1] + ("A" if token[-1] != "A" else "B"))
    assert len(compared) == 2


def test_tokens_that_cannot_be_made(engine):
    tokens = Tokens(engine)
    tokens.create("ann", "client")
    for name, role, said in (
        ("ann", "analyst", "'ann' already has a token: rotate or revoke it"),
        ("bob", "root", "one of client, analyst, labeller, operator, metrics, viewer, not 'root'"),
        ("", "client", "1 to 100 printable"),
        ("a\nb", "client", "1 to 100 printable"),
        ("x" * 101, "client", "1 to 100 printable"),
    ):
        with pytest.raises(TokenError, match=said):
            tokens.create(name, role)
    with pytest.raises(TokenError, match="'bob' has no valid token"):
        tokens.revoke("bob")
    assert [(each["name"], each["role"]) for each in tokens.list()] == [("ann", "client")]


def test_wrong_tokens_lock_nobody_out(gate):
    good = gate.token("beside a guesser", "client")
    wrong = [f"{good[:16]}{i:043}" for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        assert {*pool.map(lambda token: ask(gate, "GET", "/v1/model", token), wrong)} == {401}
    assert ask(gate, "GET", "/v1/model", good) == 200


def test_secrets_are_neither_logged_nor_stored(gate, problem):
    made = [gate.token(f"keeper {role}", role) for role in ROLES]
    for token in made:
        for method, path in RULES:
            ask(gate, method, path, token)
    ask(gate, "GET", "/v1/model", WRONG)
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
