"""The proxy's configuration, run by nginx in front of a server that shows what it is sent."""

import json
import shutil
import ssl
import threading
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2
import pytest

from deploy.containers import proxy_in
from tests.gate.processes import free_port

NGINX = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NGINX is None or shutil.which("openssl") is None, reason="needs nginx and openssl"),
]


class Echo(BaseHTTPRequestHandler):
    """Answers with the headers of a request and the length of its body; as often as told, with a 503."""

    refusals = 0
    protocol_version = "HTTP/1.1"

    def answer(self):
        length = len(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        body = json.dumps({"headers": {k.lower(): v for k, v in self.headers.items()}, "length": length})
        status = 200
        if Echo.refusals:
            Echo.refusals, status = Echo.refusals - 1, 503
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    do_GET = do_POST = answer  # noqa: N815, the names that the server looks for

    def log_message(self, *_):
        pass


@contextmanager
def echoing():
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("proxy")
    ports = {"port": free_port(), "plain_port": free_port()}
    with ExitStack() as stack:
        gates = (stack.enter_context(echoing()), stack.enter_context(echoing()), free_port())
        yield stack.enter_context(proxy_in(folder / "nginx", **ports, gates=gates)), ports["plain_port"]


@pytest.fixture(scope="module")
def client(proxy):
    context = ssl.create_default_context(cafile=str(proxy[0].certificate))
    with httpx2.Client(base_url=proxy[0].address, verify=context) as client:
        yield client


def test_only_known_headers_reach_the_gate(client):
    sent = {
        "authorization": "Bearer tg_x",
        "cookie": "session=1",
        "origin": "https://localhost",
        "x-request-id": "abc",
        "x-forwarded-user": "root",
        "x-auth-request-email": "root@example.org",
        "x-forwarded-for": "127.0.0.1",
        "x-forwarded-host": "evil.example",
        "forwarded": "for=127.0.0.1",
        "x-real-ip": "127.0.0.1",
    }
    got = client.post("/v1/decisions?x=1", headers=sent, json={"objects": []}).json()
    assert got["length"] > 0
    expected = {name: sent[name] for name in ("authorization", "cookie", "origin", "x-request-id")}
    extra = {"host": "localhost", "content-type": "application/json", "accept": "*/*"}
    assert got["headers"] == {**expected, **extra, "content-length": str(got["length"])}


def test_metrics_stay_inside(client):
    assert client.get("/metrics").status_code == 404
    assert client.get("/metrics?x=1").status_code == 404
    assert client.get("/v1/../metrics").status_code == 404
    assert client.get("/%6detrics").status_code == 404


def test_a_body_that_is_too_large_is_refused(client):
    assert client.post("/v1/decisions", content=b"x" * (8 << 20)).status_code == 200
    assert client.post("/v1/decisions", content=b"x" * ((8 << 20) + 1)).status_code == 413


def test_another_gate_answers_for_one_that_cannot(client):
    for _ in range(10):  # one of the three gates is not there
        Echo.refusals = 1
        assert client.post("/v1/decisions", content=b"x").status_code == 200


def test_only_tls_and_only_by_its_name(proxy, client):
    there, plain = proxy
    answer = httpx2.get(f"http://127.0.0.1:{plain}/desk", headers={"host": "localhost"})
    assert (answer.status_code, answer.headers["location"]) == (301, "https://localhost/desk")
    context = ssl.create_default_context(cafile=str(there.certificate))
    context.check_hostname = False
    with pytest.raises(httpx2.ConnectError), httpx2.Client(verify=context) as other:
        other.get(f"https://127.0.0.1:{there.port}/")
    assert "max-age" in client.get("/").headers["strict-transport-security"]
    log = there.folder / "gate.log"
    client.get("/sign-in?token=secret")
    assert "secret" not in log.read_text()
