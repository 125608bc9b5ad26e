"""Sign in and out of the gate's pages: sessions, forms, and what may not be done with them."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from urllib.parse import quote

import httpx2
import pytest
from sqlalchemy import text

from tests.gate.inside import application, ask
from tests.gate.pages.conftest import sign_in
from tests.gate.test_server import until
from transcendent.gate.access import SESSION_LIVES, Caller, TokenError, Tokens
from transcendent.gate.pages.sessions import MOST_SESSIONS, LinkError, Sessions
from transcendent.gate.pages.web import HEADERS, _local
from transcendent.gate.retention import tidy
from transcendent.gate.settings import GateSettings


def command(gate, *given, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "transcendent", "gate", *given, "--database", gate.database],
        env={"PATH": "/usr/bin:/bin", "TRANSCENDENT_GATE_PORT": str(gate.port)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stderr
    return done.stdout.strip() or done.stderr


class Browser:
    """A client that keeps cookies and does not follow redirects, as a page of the gate sends forms."""

    def __init__(self, gate) -> None:
        self.origin = gate.address
        self.http = httpx2.Client(base_url=gate.address, timeout=60)

    def post(self, path, fields=None, origin=None, **headers):
        given = {"origin": origin or self.origin, "sec-fetch-site": "same-origin", **headers}
        return self.http.post(path, data=fields or {}, headers={k: v for k, v in given.items() if v})

    def csrf(self, path):
        page = self.http.get(path).text
        return page.partition('name="csrf" value="')[2].partition('"')[0]


@pytest.fixture
def browser(gate):
    made = Browser(gate)
    yield made
    made.http.close()


def test_a_person_signs_in_by_token_and_by_link_and_out(gate, browser_page, axe):
    page = browser_page(gate, expected=["401"])
    page.goto("/")
    assert axe(page) == []
    page.get_by_label("Your token").fill("tg_wrong")
    page.keyboard.press("Enter")
    assert "not valid" in page.get_by_role("alert").inner_text()
    sign_in(page, gate, "ann")
    assert "ann · analyst" in page.get_by_role("banner").inner_text()
    page.get_by_role("button", name="Sign out").click()
    assert page.get_by_role("heading", level=1).inner_text() == "Sign in"
    page.goto("/")
    assert page.url.endswith("/sign-in")
    link = command(gate, "sign-in", "bob", "--role", "operator")
    other = browser_page(gate, expected=["410"])
    for again in range(2):  # looking at it does not use it up
        other.goto(link)
        assert "Sign in as bob" in other.get_by_role("heading", level=1).inner_text(), again
    assert axe(other) == []
    other.get_by_role("button", name="Sign in").click()
    assert "bob · operator" in other.get_by_role("banner").inner_text()
    other.goto(link)
    assert "used before" in other.get_by_role("alert").inner_text()
    assert link.partition("key=")[2] not in gate.log.read_text()


def test_cookies_are_strict_and_ids_are_new(gate, start_gate, browser):
    planted = "planted"
    token, name = gate.token("cid", "analyst"), f"session-{gate.port}"
    answer = browser.post("/sign-in", {"token": token}, cookie=f"{name}={planted}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    first = answer.headers["set-cookie"]
    assert first.partition("=")[2].partition(";")[0] != planted
    assert {part.strip().lower() for part in first.split(";")[1:]} == {
        "httponly",
        "path=/",
        "samesite=strict",
    }
    assert first.startswith(f"{name}=")  # servers on other ports of this host get and set cookies, too
    old = browser.http.cookies[name]
    again = browser.post("/sign-in", {"token": gate.token("cid again", "analyst")})
    assert again.headers["set-cookie"] != first
    for dead in (old, planted):
        asked = httpx2.get(f"{gate.address}/", headers={"cookie": f"{name}={dead}"})
        assert asked.headers["location"] == "/sign-in"
    behind = start_gate(public_url="https://gate.example/")
    form = {"token": behind.token("ann", "viewer")}
    headers = {"origin": "https://gate.example"}
    given = httpx2.post(f"{behind.address}/sign-in", data=form, headers=headers).headers["set-cookie"]
    assert given.startswith("__Host-session=")
    assert {"secure", "httponly"} <= {part.strip().lower() for part in given.split(";")}


def test_forms_of_others_are_refused_and_so_are_frames(gate, browser):
    token = gate.token("dora", "analyst")
    for given in (
        {"origin": "https://evil.example", "sec-fetch-site": None},
        {"origin": "https://evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "null", "sec-fetch-site": None},
    ):
        assert browser.post("/sign-in", {"token": token}, **given).status_code == 403, given
    bare = httpx2.post(f"{gate.address}/sign-in", data={"token": token})
    assert bare.status_code == 403
    browser.post("/sign-in", {"token": token})
    for fields in ({"other": ""}, {"csrf": ""}, {"csrf": "0" * 64}, {"csrf": "é"}):
        assert browser.post("/sign-out", fields).status_code == 403, fields
    sent = browser.post("/sign-out", {"csrf": browser.csrf("/desk")}, origin="null")
    assert sent.status_code == 303
    page = browser.http.get("/sign-in")
    for name, value in HEADERS:
        assert page.headers[name.decode()] == value.decode()
    assert page.headers["cache-control"] == "no-store"
    assert "unsafe" not in page.headers["content-security-policy"]
    strange = browser.http.post("/sign-in", json={}, headers={"origin": gate.address})
    assert strange.status_code == 415
    assert browser.post("/sign-in", {f"f{i}": "" for i in range(60)}).status_code == 400


def test_pages_and_the_api_do_not_share_a_way_in(gate, browser):
    token = gate.token("eve", "operator")
    asked = httpx2.get(f"{gate.address}/", headers={"authorization": f"Bearer {token}"})
    assert asked.headers["location"] == "/sign-in"
    browser.post("/sign-in", {"token": token})
    assert browser.http.get("/v1/quarantine").status_code == 401
    for role in ("client", "labeller", "metrics"):
        refused = browser.post("/sign-in", {"token": gate.token(f"some {role}", role)})
        assert refused.status_code == 403
        assert "set-cookie" not in refused.headers
    viewer = Browser(gate)
    viewer.post("/sign-in", {"token": gate.token("doorway", "viewer")})
    assert viewer.http.get("/").headers["location"] == "/wall"
    assert viewer.http.get("/desk").status_code == 403
    viewer.http.close()


@pytest.mark.parametrize("path", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:1",
    "/sign-in", "x", "/\n/evil", "/" + "a" * 500, "//[", "//\u2100"])  # fmt: skip
def test_nobody_is_led_to_another_host(gate, browser, path):
    assert _local(path) == "/"
    answer = browser.post("/sign-in", {"token": gate.token(f"led {path[:50]!r}", "viewer"), "next": path})
    assert answer.headers["location"] == "/"
    assert browser.http.get("/sign-in", params={"next": path}).status_code == 200
    assert _local("/desk/items/7?from=1") == "/desk/items/7?from=1"


def test_without_tokens_and_for_other_hosts_there_are_no_pages(start_gate):
    open_gate = start_gate(tokens="none")
    for method, path in (("GET", "/"), ("GET", "/sign-in"), ("POST", "/sign-in")):
        answer = httpx2.request(method, open_gate.address + path)
        assert answer.status_code == 403, path
        assert "without tokens" in answer.text
    closed = start_gate()
    for host in ("evil.example", ""):
        answer = httpx2.get(f"{closed.address}/sign-in", headers={"host": host})
        assert answer.status_code == 403, host
        assert "public_url" in answer.text
    style = httpx2.get(f"{closed.address}/static/style.css")
    assert style.headers["content-type"] == "text/css; charset=utf-8"
    same = httpx2.get(style.url, headers={"if-none-match": style.headers["etag"]})
    assert same.status_code == 304
    assert httpx2.get(f"{closed.address}/static/..%2fweb.py").status_code == 404


def test_sessions_end_with_time_with_their_token_and_with_their_name(own_engine):
    sessions, tokens = Sessions(own_engine), Tokens(own_engine)
    token = tokens.create("ann", "analyst")
    ann = Caller("ann", "analyst")
    by_token = sessions.begin(ann, token[3:15])
    assert sessions.visitor(by_token) == ann
    wall = sessions.accept(sessions.invite("door", "viewer", 15))
    desk = sessions.accept(sessions.invite("bob", "analyst", 15))

    def age(**columns):
        with own_engine.begin() as connection:
            for name, hours in columns.items():
                sql = f"UPDATE session SET {name} = now() - make_interval(hours => :hours)"
                connection.execute(text(sql), {"hours": hours})

    age(created_at=23, seen_at=7)
    assert sessions.visitor(desk) == Caller("bob", "analyst")
    age(created_at=25, seen_at=0)
    assert [sessions.visitor(each) is None for each in (by_token, desk, wall)] == [True, True, False]
    age(created_at=1, seen_at=9)
    assert sessions.visitor(wall) is None
    age(created_at=1, seen_at=0)
    tokens.rotate("ann", timedelta(0))
    assert sessions.visitor(by_token) is None
    key = sessions.invite("bob", "analyst", 15)
    tokens.revoke("bob")
    assert sessions.visitor(desk) is None
    with pytest.raises(LinkError):
        sessions.accept(key)
    with pytest.raises(TokenError, match="no valid token"):
        tokens.revoke("bob")
    key = sessions.invite("bob", "analyst", 15)
    with own_engine.begin() as connection:
        connection.execute(text("UPDATE sign_in SET ends_at = now()"))
    with pytest.raises(LinkError):
        sessions.invited(key)
    tidy(own_engine, None, None)
    with own_engine.connect() as connection:
        left = connection.execute(text("SELECT name FROM session")).scalars().all()
        assert left == ["door"]
        assert connection.execute(text("SELECT count(*) FROM sign_in")).scalar_one() == 0
        assert connection.execute(text(f"SELECT count(*) FROM session WHERE {SESSION_LIVES}")).scalar() == 1


def test_a_token_has_a_limited_number_of_sessions(own_engine):
    sessions, tokens = Sessions(own_engine), Tokens(own_engine)
    ann, bob = Caller("ann", "analyst"), Caller("bob", "analyst")
    one, other = (tokens.create(each.name, each.role)[3:15] for each in (ann, bob))
    beside = sessions.begin(bob, other), sessions.accept(sessions.invite("ann", "analyst", 15))
    begun = [sessions.begin(ann, one) for _ in range(MOST_SESSIONS + 3)]
    assert [sessions.visitor(each) for each in begun] == [None] * 3 + [ann] * MOST_SESSIONS
    assert [sessions.visitor(each) for each in beside] == [bob, ann]


@pytest.fixture(scope="module")
def inside():
    """A gate whose sessions are not looked at."""
    return application({"sessions": object()})


@pytest.mark.parametrize(
    ("path", "fields", "back"),
    [
        (
            "/desk/items/7/label",
            {"label": "malware", "from": "campaign:abc"},
            "/desk/items/7?from=campaign%3Aabc",
        ),
        ("/desk/items/7/skip", {}, "/desk/items/7"),
        ("/desk/claim", {"item": "7", "from": "alone"}, "/desk/items/7?from=alone"),
        ("/desk/campaigns/abc/label", {"item": "7"}, "/desk/items/7"),
        ("/desk/claim", {"from": "alone"}, "/desk"),
        ("/desk/undo", {"item": "//evil.example"}, "/desk/items/%2F%2Fevil.example"),
        ("/wall/alarms/3", {"reason": "x"}, "/wall/alarms/3"),
        ("/sign-out", {}, "/"),
    ],
)
def test_whoever_lost_the_session_is_led_back_to_the_page_of_the_form(inside, path, fields, back):
    for referer in ({}, {"referer": "http://["}, {"referer": "https://evil.example/desk"}):
        headers = {"origin": "http://127.0.0.1:8040", **referer}
        answer = ask(inside, "POST", path, data={"csrf": "", **fields}, headers=headers)
        query = f"next={quote(back)}&lost=1" if back != "/" else "lost=1"
        assert (answer.status_code, answer.headers["location"]) == (303, f"/sign-in?{query}")


def test_a_link_that_is_used_while_its_name_is_revoked_leaves_no_session(own_engine):
    sessions, tokens = Sessions(own_engine), Tokens(own_engine)
    key = sessions.invite("bob", "viewer", 15)
    with ThreadPoolExecutor(1) as threads, own_engine.connect() as connection:
        used = "DELETE FROM sign_in RETURNING name, role"
        assert connection.execute(text(used)).one() == ("bob", "viewer")
        revoked = threads.submit(tokens.revoke, "bob")
        waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%sign_in%'"
        with own_engine.connect().execution_options(isolation_level="AUTOCOMMIT") as other:
            until(lambda: other.execute(text(waits)).first() is not None)  # a transaction would see no change
        begun = "INSERT INTO session (hash, name, role) VALUES ('x', 'bob', 'viewer')"
        connection.execute(text(begun))
        connection.commit()
        revoked.result()
        assert connection.execute(text("SELECT count(*) FROM session")).scalar() == 0
    with pytest.raises(LinkError):
        sessions.accept(key)


def test_links_are_for_people_and_for_one_role_of_a_name(gate, own_engine):
    sessions = Sessions(own_engine)
    Tokens(own_engine).create("sensor", "client")
    for name, role, minutes, said in (
        ("sensor", "analyst", 15, "has a token with the role client"),
        ("zoe", "client", 15, "pages are for the roles"),
        ("zoe", "analyst", 0, "1 to 1440 minutes"),
        ("z\n", "analyst", 15, "printable"),
    ):
        with pytest.raises(TokenError, match=said):
            sessions.invite(name, role, minutes)
    assert "pages are for" in command(gate, "sign-in", "zoe", "--role", "client", code=4)


@pytest.mark.parametrize("given", ["gate.example", "ftp://gate.example", "https://", "https://a@b",
    "https://gate.example/path", "https://gate.example?x", "https://gäte.example", "https://gate .example",
    "https://gate.example:x", "https://[::1"])  # fmt: skip
def test_where_browsers_see_the_gate_is_checked(given):
    with pytest.raises(ValueError, match="public_url"):
        GateSettings(database="postgresql://x/y", public_url=given)
    for as_given, as_sent in (  # by browsers, as the origin of a form
        ("https://Gate.example/", "https://gate.example"),
        ("https://gate.example:443", "https://gate.example"),
        ("http://[::1]:80/", "http://[::1]"),
        ("https://gate.example:8443", "https://gate.example:8443"),
    ):
        good = GateSettings(database="postgresql://x/y", public_url=as_given)
        assert good.seen_at == as_sent
