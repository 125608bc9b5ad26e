"""The gate refuses hostile requests and continues; it neither fails nor fills its memory."""

import gzip
import json
import re
import socket
import time

import httpx2
import psutil
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from sqlalchemy import text

from transcendent.gate.database import connect

VALUES = [0.5] * 12


@pytest.fixture(scope="module")
def http(gate):
    """A client with all rights."""
    token = gate.token("tester", "operator")
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    with httpx2.Client(base_url=gate.address, headers=headers, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def item(gate, http, problem, rejector):
    """A rejected object in the quarantine."""
    X = problem[0][1000:1100]
    row = X[rejector.decide(X).rejected][0]
    http.post("/v1/decisions", json={"objects": [{"id": "kept", "values": row.tolist()}]})
    return http.post("/v1/quarantine/claim", json={}).json()["items"][0]["id"]


@pytest.fixture(autouse=True)
def goes_on(gate, http):
    """After every test the gate answers as before, from the same process, and has logged no defect."""
    yield
    answer = http.post("/v1/decisions", json={"objects": [{"id": "fine", "values": VALUES}]})
    assert (answer.status_code, gate.process.poll()) == (200, None)
    assert '"a request failed"' not in gate.log.read_text()
    assert '"the model failed"' not in gate.log.read_text()


def one(**features):
    return json.dumps({"objects": [{"id": "hostile", **features}]}).encode()


BODIES = {
    "nothing": b"",
    "blank": b" ",
    "NaN": b'{"objects": [{"id": "a", "values": [NaN%s]}]}' % (b", 0" * 11),
    "Infinity": b'{"objects": [{"id": "a", "values": [-Infinity%s]}]}' % (b", 0" * 11),
    "1e999": b'{"objects": [{"id": "a", "values": [1e999%s]}]}' % (b", 0" * 11),
    "nesting": b"[" * 100_000,
    "closed nesting": b'{"objects": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "nested values": one(values=[[0.5]] * 12),
    "values nested as deep as JSON may be": one(positions=[0], values=["@"]).replace(
        b'"@"', b"[" * 1010 + b"]" * 1010
    ),
    "positions nested as deep as JSON may be": one(positions=["@"], values=[0]).replace(
        b'"@"', b"[" * 1010 + b"]" * 1010
    ),
    "nested objects": b'{"a":' * 100_000,
    "no UTF-8": b'{"objects": [{"id": "\xff\xfe", "values": []}]}',
    "a lone surrogate": b'{"objects": [{"id": "\\ud800", "values": []}]}',
    "a lone surrogate as a key": b'{"\\ud800": 1}',
    "a lone surrogate as a feature": b'{"objects": [{"id": "a", "features": {"\\udfff": 1}}]}',
    "NUL in an id": b'{"objects": [{"id": "a\\u0000b", "values": %s}]}' % json.dumps(VALUES).encode(),
    "a newline in an id": b'{"objects": [{"id": "a\\nb", "values": %s}]}' % json.dumps(VALUES).encode(),
    "a long id": json.dumps({"objects": [{"id": "a" * 10**6, "values": VALUES}]}).encode(),
    "a number as id": json.dumps({"objects": [{"id": 1, "values": VALUES}]}).encode(),
    "a huge integer": b'{"objects": [{"id": "a", "values": [%s]}]}' % (b"9" * 5000),
    "huge positions": one(positions=[2**31, 2**63, 2**64, 10**30], values=[1, 1, 1, 1]),
    "negative positions": one(positions=[-1], values=[1]),
    "broken positions": one(positions=[0.5], values=[1]),
    "null positions": one(positions=[None], values=[1]),
    "true positions": one(positions=[True], values=[True]),
    "positions twice": one(positions=[3, 3], values=[1, 1]),
    "a million positions": one(positions=[0] * 10**6, values=[1] * 10**6),
    "a million features": one(features={f"f{i}": 1 for i in range(10**5)}),
    "too narrow": one(values=[1]),
    "too wide": one(values=[1] * 10**6),
    "text values": one(values="0" * 12),
    "an object as values": one(values={"0": 1}),
    "names where there are none": one(features={"a": 1}),
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "null objects": b'{"objects": null}',
    "objects of null": b'{"objects": [null]}',
    "more beside": b'{"objects": [], "more": 1}',
    "many keys": json.dumps({f"k{i}": 1 for i in range(10**5)}).encode(),
    "two documents": b'{"objects": []}{"objects": []}',
    "a byte order mark": b'\xef\xbb\xbf{"objects": []}',
    "UTF-16": '{"objects": []}'.encode("utf-16"),
    "gzip": gzip.compress(b'{"objects": []}'),
    "XML": b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>",
    "pickle": b"cos\nsystem\n(S'true'\ntR.",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("path", ["/v1/decisions", "/v1/quarantine/claim", "/v1/quarantine/{item}/resolve"])
def test_hostile_bodies_are_refused(http, item, path, body):
    headers = {"content-encoding": "gzip"} if body[:2] == b"\x1f\x8b" else {}
    answer = http.post(path.format(item=item), content=body, headers=headers)
    assert 400 <= answer.status_code < 500
    said = answer.json()
    assert said["status"] == answer.status_code
    assert said["detail"]
    assert answer.headers["content-type"] == "application/problem+json"
    assert len(answer.content) < 20_000


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("claim", {"count": 0}),
        ("claim", {"count": 2**70}),
        ("claim", {"count": "1; DROP TABLE item"}),
        ("claim", {"count": 1, "\ud800": 1}),
        ("claim", {"count": 1, "k" * 10**6: 1}),
        ("renew", {"items": [-1]}),
        ("renew", {"items": [2**63]}),
        ("renew", {"items": [1] * 1001}),
        ("release", {"items": "all"}),
        ("{item}/resolve", {"label": "\ud800"}),
        ("{item}/resolve", {"label": "a\0"}),
        ("{item}/resolve", {"label": "unheard of"}),
        ("{item}/resolve", {"label": "x" * 201}),
        ("{item}/resolve", {"label": ["malware"]}),
        ("{item}/resolve", {"label": "malware", "note": "\0"}),
        ("{item}/resolve", {"label": "malware", "note": "x" * 2001}),
        ("{item}/resolve", {"label": "malware", "author": "somebody else"}),
        ("{item}/resolve", {"label": "malware'; DELETE FROM item; --"}),
        ("{item}/skip", {"reason": "\ud800"}),
        ("{item}/undo", {"note": "\udfff"}),
        ("-1/skip", {}),
        ("9223372036854775808/skip", {}),
        ("9223372036854775807/skip", {}),
        ("abc/skip", {}),
        ("1%00/skip", {}),
        ("%F0%9F%92%A9/skip", {}),
        ("1%20OR%201=1/undo", {}),
        ("1e3/undo", {}),
        ("%EF%BC%91/undo", {}),
    ],
)
def test_hostile_requests_about_items_are_refused(http, item, path, body):
    answer = http.post(f"/v1/quarantine/{path.format(item=item)}", content=json.dumps(body))
    assert 400 <= answer.status_code < 500
    assert len(answer.content) < 5000
    shown = http.get(f"/v1/quarantine/{item}").json()
    assert (shown["holder"], shown["labelled"], shown["history"]) == ("tester", False, [])


def test_duplicate_keys_have_one_meaning(http):
    body = b'{"objects": [{"id": "x", "id": "y", "values": %s}]}' % json.dumps(VALUES).encode()
    answer = http.post("/v1/decisions", content=body)
    assert [each["id"] for each in answer.json()["decisions"]] == ["y"]


def test_sql_in_an_id_is_text(gate, http, problem, rejector):
    X = problem[0][1000:1100]
    row = X[rejector.decide(X).rejected][1].tolist()
    names = ["'; DROP TABLE item; --", "$1", "%s", "%(id)s", ":id", "\\N", "{}", '"', "é🦠"]
    answer = http.post("/v1/decisions", json={"objects": [{"id": name, "values": row} for name in names]})
    assert [each["id"] for each in answer.json()["decisions"]] == names
    engine = connect(gate.database)
    with engine.connect() as connection:
        sql = "SELECT object_id FROM payload WHERE object_id <> 'kept'"
        found = connection.execute(text(sql)).scalars().all()
    engine.dispose()
    assert sorted(found) == sorted(names)


@pytest.mark.parametrize(
    "head",
    [
        "POST /v1/decisions HTTP/1.1\r\nContent-Length: -5",
        "POST /v1/decisions HTTP/1.1\r\nContent-Length: five",
        "POST /v1/decisions HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 200",
        "POST /v1/decisions HTTP/1.1\r\nContent-Length: 99999999999999999999999",
        "POST /v1/decisions HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked",
        "POST /v1/decisions HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "GET /v1/model HTTP/9.9",
        "GET /v1/../../etc/passwd HTTP/1.1",
        "GET //v1/model HTTP/1.1",
        "BREW /v1/model HTTP/1.1",
        "DELETE /v1/quarantine HTTP/1.1",
        "GET /" + "a" * 100_000 + " HTTP/1.1",
        "GET /v1/model HTTP/1.1\r\nX: " + "a" * 100_000,
        "\x16\x03\x01",
    ],
    ids=lambda head: head[:60].encode("unicode_escape").decode(),
)
def test_hostile_heads_are_refused(gate, head):
    with socket.create_connection(("127.0.0.1", gate.port), timeout=10) as raw:
        raw.sendall(head.encode("latin1") + b"\r\nHost: x\r\nConnection: close\r\n\r\n{}\r\n0\r\n\r\n")
        assert 400 <= status_of(raw) < 500


def status_of(raw):
    """Return the status of an answer, or 400 if the connection was closed without one."""
    try:
        first = raw.recv(100)
    except ConnectionError:
        first = b""
    return int(first.split(b" ")[1]) if first else 400


def test_a_client_that_disconnects_is_not_a_defect(gate, http):
    token = http.headers["authorization"]
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", gate.port)) as raw:
            head = f"POST /v1/decisions HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\nContent-Length: 500"
            raw.sendall(head.encode() + b'\r\n\r\n{"objects": [')
            time.sleep(0.1)
    time.sleep(0.2)  # the log is read after the test


def send(gate, head, parts):
    """Send a body in parts until the gate answers or closes the connection; return the status."""
    with socket.create_connection(("127.0.0.1", gate.port), timeout=30) as raw:
        try:
            raw.sendall(head.encode())
            for part in parts:
                raw.sendall(part)
        except ConnectionError:
            pass
        return status_of(raw)


@pytest.mark.parametrize("path", ["/v1/decisions", "/v1/quarantine/claim"])
@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("authorised", [True, False])
def test_a_huge_body_is_refused_without_being_stored(gate, http, path, chunked, authorised):
    process = psutil.Process(gate.process.pid)
    before = process.memory_info().rss
    part = b" " * 2**20
    chunk = b"%x\r\n%s\r\n" % (len(part), part)
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {100 * 2**20}"
    token = http.headers["authorization"] if authorised else "none"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\n{length}\r\n\r\n"
    most = 0

    def parts():
        nonlocal most
        for _ in range(100):
            yield chunk if chunked else part
            most = max(most, process.memory_info().rss)

    answered = send(gate, head, parts())
    assert answered == 413 or (not authorised and answered == 401)
    assert most - before < 50 * 2**20


def test_many_slow_clients_keep_nobody_waiting(gate, http):
    slow = [socket.create_connection(("127.0.0.1", gate.port)) for _ in range(100)]
    try:
        for raw in slow:
            raw.sendall(b"POST /v1/decisions HTTP/1.1\r\nHost: x\r\nContent-Le")
        assert http.get("/v1/model").status_code == 200
        for raw in slow:  # none was disconnected meanwhile
            raw.setblocking(False)
            with pytest.raises(BlockingIOError):
                raw.recv(1)
    finally:
        for raw in slow:
            raw.close()


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
def test_requests_made_from_the_description(gate, http, item, mode):
    description = http.get("/openapi.json").json()
    referred = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(description)))
    assert referred == description["components"]["schemas"].keys()
    schema = schemathesis.openapi.from_dict(description)
    tried = set()
    for found in schema.get_all_operations():
        operation = found.ok()

        @given(operation.as_strategy(generation_mode=mode))
        @settings(max_examples=12, database=None, suppress_health_check=list(HealthCheck), derandomize=True)
        def call(case):
            case.call_and_validate(
                base_url=gate.address, headers=dict(http.headers), checks=[not_a_server_error]
            )
            tried.add(case.operation.label)

        try:
            call()
        except Unsatisfiable:  # nothing can be wrong with a request that has no parts
            assert mode == schemathesis.GenerationMode.NEGATIVE
    assert {"POST /v1/decisions", "POST /v1/quarantine/{item}/resolve"} <= tried
