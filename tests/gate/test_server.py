"""A gate as a process: when it starts, when it is ready, how it ends, and what it logs."""

import asyncio
import json
import os
import signal
import socket
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import httpx2
import numpy as np
import pandas as pd
import pytest
import uvicorn
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import LinearSVC
from sqlalchemy import text
from sqlalchemy.engine import make_url
from typer.testing import CliRunner

from tests.gate.conftest import Forked, ForkedGate, away, gate_of, pretend_version, tables_on
from tests.gate.conftest import serve as serve_gate
from tests.gate.inside import application
from tests.gate.inside import ask as ask_inside
from transcendent import Answers, InductiveEvaluator, RejectionBudget, ScoreEvaluator, StreamingBudget, save
from transcendent.baselines import CPReject
from transcendent.cli.app import app
from transcendent.errors import GateError, GateSettingsError
from transcendent.gate import GateClient, model
from transcendent.gate import server as gate_server
from transcendent.gate.database import connect, newest_version
from transcendent.gate.server import bind, notify, seconds_between_beats


def until(found, seconds=60):
    """Wait until something is found."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if result := found():
            return result
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def fresh(engine, sql):
    """Query in a new transaction: statistics do not change within one."""
    with engine.connect() as connection:
        return connection.execute(sql).scalar_one()


def lines_of(gate):
    return [json.loads(line) for line in gate.log.read_text().splitlines()] if gate.log.exists() else []


def logged(gate, request):
    return [line for line in lines_of(gate) if line.get("request") == request]


@pytest.fixture(scope="module")
def rejected(problem, rejector):
    X = problem[0][1000:1400]
    return X[rejector.decide(X).rejected]


class TestReady:
    def test_a_gate_is_alive_and_ready_without_a_token(self, gate):
        for path, status in (("healthz", "alive"), ("readyz", "ready")):
            answer = httpx2.get(f"{gate.address}/{path}")
            assert (answer.status_code, answer.json()["status"]) == (200, status)

    def test_it_is_not_ready_without_its_database(self, gate):
        with away(gate.database):
            answer = until(lambda: asked(gate, 503))
            assert answer["status"] == 503
            assert "the database cannot be used" in answer["detail"]
            assert httpx2.get(f"{gate.address}/healthz").status_code == 200
        assert until(lambda: asked(gate, 200))

    def test_it_is_not_ready_with_tables_of_another_version(self, gate):
        engine = connect(gate.database)
        pretend_version(engine, "0000")
        said = until(lambda: asked(gate, 503))["detail"]
        needs = f"but this gate needs {newest_version()}: run 'transcendent gate migrate'."
        assert f"the database has version 0000, {needs}" in said
        pretend_version(engine, newest_version())
        engine.dispose()
        assert until(lambda: asked(gate, 200))


def asked(gate, status):
    """The answer of /readyz if it has this status; results are reused for a second."""
    answer = httpx2.get(f"{gate.address}/readyz")
    return answer.json() if answer.status_code == status else None


class TestLogs:
    def test_every_answer_has_an_id_that_the_log_has(self, gate):
        token = gate.token("logged", "client")
        headers = {"authorization": f"Bearer {token}"}
        given = httpx2.get(f"{gate.address}/v1/model", headers={**headers, "x-request-id": "abc123"})
        assert given.headers["x-request-id"] == "abc123"
        made = [
            httpx2.get(f"{gate.address}/v1/model", headers={**headers, "x-request-id": bad})
            for bad in ("a" * 65, "a b", '"}{"', "")
        ]
        refused = httpx2.get(f"{gate.address}/nowhere")
        names = [answer.headers["x-request-id"] for answer in (*made, refused)]
        assert len({len(name) for name in names}) == 1
        assert len(set(names)) == 5
        until(lambda: logged(gate, names[-1]))
        (line,) = logged(gate, "abc123")
        assert (line["method"], line["path"], line["status"]) == ("GET", "/v1/model", 200)
        assert (line["caller"], line["level"], line["milliseconds"] >= 0) == ("logged", "info", True)
        assert [each["status"] for name in names for each in logged(gate, name)] == [200] * 4 + [404]
        assert "caller" not in logged(gate, names[-1])[0]

    def test_a_path_cannot_write_lines_of_its_own(self, gate):
        httpx2.get(f'{gate.address}/%0A{{"event":"forged"}}%0A')
        assert not any(line["event"] == "forged" for line in lines_of(gate))

    def test_a_defect_is_answered_with_the_id_to_look_for(self, gate, rejected):
        gate.client("unlucky").decide(["corrupt"], rejected[:1])
        ann = gate.client("ann", "analyst")
        item = until(lambda: ann.claim(1)["items"])[0]["id"]
        engine = connect(gate.database)
        with engine.begin() as connection:
            connection.execute(text("UPDATE payload SET features = '\\x03ff'"))
        engine.dispose()
        with pytest.raises(
            GateError, match=r"500: the gate failed: see its log for request [0-9a-f]{32}"
        ) as error:
            ann.show(item)
        name = str(error.value).rpartition(" ")[2].rstrip(".")
        lines = until(
            lambda: (found := logged(gate, name))[-1:] and found[-1]["event"] == "request" and found
        )
        assert [line["event"] for line in lines] == ["a request failed", "request"]
        assert "ValueError" in lines[0]["exception"]
        assert lines[1]["status"] == 500
        assert httpx2.get(f"{gate.address}/readyz").status_code == 200


class TestEnd:
    def test_what_is_in_flight_is_answered_and_kept_before_the_end(self, start_gate, rejected, own_engine):
        engine = own_engine
        gate = start_gate()
        clients = [gate.client(f"in flight {i}") for i in range(8)]
        for client in clients:
            client.model()
        with ThreadPoolExecutor(8) as pool:
            with engine.connect() as connection:
                connection.execute(text("LOCK TABLE identity IN ACCESS EXCLUSIVE MODE"))
                sent = [
                    pool.submit(client.decide, [f"{i}"], rejected[[i]]) for i, client in enumerate(clients)
                ]
                until(lambda: sum(each.running() for each in sent) == 8)
                waiting = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
                until(lambda: fresh(engine, waiting))
                time.sleep(0.5)
                gate.process.send_signal(signal.SIGTERM)
                with pytest.raises(httpx2.HTTPError):
                    until(lambda: httpx2.get(f"{gate.address}/healthz").status_code != 200)
                assert not any(each.done() for each in sent)
                connection.rollback()
            assert [each.result()[0]["accepted"] for each in sent] == [False] * 8
        assert gate.process.wait(30) == -signal.SIGTERM
        with engine.connect() as connection:
            kept = connection.execute(text("SELECT object_id FROM payload ORDER BY 1")).scalars().all()
        assert kept == [str(i) for i in range(8)]
        assert lines_of(gate)[-1]["event"].startswith("Finished server process")


class TestSupervision:
    def test_the_supervisor_hears_of_the_start_of_life_and_of_the_end(self, database, artifact):
        def hear(seconds):
            heard.settimeout(seconds)
            return heard.recv(100)

        def all_heard():
            with suppress(TimeoutError):
                return [hear(1), *all_heard()]
            return []

        with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
            heard.bind(f"{folder}/notify")
            asked = {"NOTIFY_SOCKET": f"{folder}/notify", "WATCHDOG_USEC": "400000"}

            class Watched(ForkedGate):
                def _start(self, environment, log):
                    return Forked(serve_gate, environment | asked, log)

            gate = Watched(database, artifact, Path(folder) / "log")
            assert [hear(60) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
            gate.process.send_signal(signal.SIGSTOP)
            assert {*all_heard()} <= {b"WATCHDOG=1"}  # this ends: one that hangs gives no sign of life
            gate.process.send_signal(signal.SIGCONT)
            assert hear(60) == b"WATCHDOG=1"
            gate.stop()
            assert all_heard()[-1] == b"STOPPING=1"

    def test_nobody_is_told_if_nobody_asks(self, monkeypatch):
        for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
            monkeypatch.delenv(name, raising=False)
        notify("READY=1")
        assert seconds_between_beats() is None
        monkeypatch.setenv("WATCHDOG_USEC", "30000000")
        assert seconds_between_beats() == 15
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
        assert seconds_between_beats() == 15
        monkeypatch.setenv("WATCHDOG_PID", "1")
        assert seconds_between_beats() is None
        monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere")
        notify("READY=1")

    @pytest.mark.parametrize("alive", [True, False])
    def test_a_gate_whose_threads_have_died_gives_no_sign_of_life(self, monkeypatch, alive):
        said = []
        monkeypatch.setattr(gate_server, "notify", said.append)
        monkeypatch.setenv("WATCHDOG_USEC", "1000000")
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
        state = SimpleNamespace(service=SimpleNamespace(alive=alive))
        edge = SimpleNamespace(app=SimpleNamespace(state=state))
        asyncio.run(gate_server.Server(uvicorn.Config(None), edge, 1).on_tick(1))
        assert said == ["WATCHDOG=1"] * alive

    def test_gates_share_a_port_and_one_that_dies_leaves_the_other(self, start_gate, rejected):
        gates = [start_gate(share_port=True)]
        gates.append(start_gate(share_port=True, port=gates[0].port))
        until(lambda: all("ready" in [line["event"] for line in lines_of(gate)] for gate in gates))
        token = gates[0].token("many", "client")

        def ask(i):
            with GateClient(gates[0].address, token) as client:
                return client.decide([f"object {i}"], rejected[:1])

        assert len([ask(i) for i in range(40)]) == 40
        until(lambda: all("POST" in [line.get("method") for line in lines_of(gate)] for gate in gates))
        gates[0].process.kill()
        gates[0].process.wait(10)
        assert len([ask(i) for i in range(10)]) == 10


@pytest.mark.parametrize(
    ("method", "path", "sent", "status"),
    [
        ("GET", "/nowhere", {}, 404),
        ("GET", "/v1/model", {"host": "evil.example"}, 403),
        ("POST", "/v1/model", {}, 405),
        ("POST", "/v1/decisions", {"content-length": "99999999"}, 413),
    ],
)
def test_browsers_make_no_page_of_what_is_none(method, path, sent, status):
    answer = ask_inside(application(), method, path, headers=sent)
    assert answer.status_code == status
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"


def test_a_port_in_use_is_reported_before_a_gate_is_ready(gate, artifact, tmp_path):
    for shared in (False, True):
        log = tmp_path / f"log {shared}"
        second = ForkedGate(gate.database, artifact, log, port=gate.port, share_port=shared)
        assert second.process.wait(60) == 2
        (line,) = log.read_text().splitlines()
        assert line.startswith(f"error: port {gate.port} of 127.0.0.1 is in use by another process")


def test_an_address_of_another_machine_is_refused():
    with pytest.raises(GateSettingsError, match=r"cannot listen on 192\.0\.2\.1, port 8040: Cannot assign"):
        bind("192.0.2.1", 8040, share=False)
    with pytest.raises(GateSettingsError, match=r"cannot listen on nowhere\.invalid"):
        bind("nowhere.invalid", 8040, share=False)


def test_connections_are_refused_until_a_gate_is_ready_and_one_of_two_that_start_at_once_gives_up():
    with bind("127.0.0.1", 0, share=False) as first:
        port = first.getsockname()[1]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        with bind("127.0.0.1", port, share=False) as second:
            first.listen()
            config = uvicorn.Config(lambda *_: None, lifespan="off", log_config=None)
            config.load()
            edge = SimpleNamespace(app=SimpleNamespace(state=None))
            server = gate_server.Server(config, edge, 1)
            server.lifespan = config.lifespan_class(config)
            with pytest.raises(GateSettingsError, match=f"port {port} of 127.0.0.1 is in use"):
                asyncio.run(server.startup([second]))


@pytest.fixture(scope="module")
def strict(server, artifact, tmp_path_factory):
    """A gate with a timeout of a second and at most ten connections."""
    folder = tmp_path_factory.mktemp("strict")
    with tables_on(server) as url, gate_of(url, artifact, folder, timeout=1, max_connections=10) as gate:
        yield gate


class TestClients:
    @pytest.mark.parametrize(
        "sent",
        [
            b"",
            b"POST /v1/dec",
            b"POST /v1/decisions HTTP/1.1\r\nHost: x\r\nX: ",
            b"POST /v1/quarantine/claim HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{",
            b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /he",
        ],
    )
    def test_a_slow_request_is_given_up(self, strict, sent):
        started = time.monotonic()
        with socket.create_connection(("127.0.0.1", strict.port), timeout=60) as raw:
            if sent.count(b"GET") == 2:
                raw.sendall(sent[:-7])
                assert raw.recv(10_000).startswith(b"HTTP/1.1 200")
                raw.sendall(sent[-7:])
            else:
                raw.sendall(sent)
            with suppress(ConnectionError):
                while raw.recv(10_000):
                    pass
        assert time.monotonic() - started > 0.5

    def test_an_answer_that_nobody_reads_is_given_up(self, strict):
        token = strict.token("deaf", "client")
        head = f"POST /v1/decisions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        body = json.dumps({"objects": [{"id": "x" * 200}] * 1000}).encode()
        request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        with socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.connect(("127.0.0.1", strict.port))
            raw.settimeout(20)
            with pytest.raises(ConnectionError):
                raw.sendall(100 * request)

    def test_connections_are_limited(self, strict):
        time.sleep(0.2)
        taken = [socket.create_connection(("127.0.0.1", strict.port), timeout=10) for _ in range(20)]
        closed = 0
        for each in taken[10:]:
            with suppress(ConnectionError):
                assert each.recv(1) == b""
            closed += 1
        assert closed == 10
        for each in taken:
            each.close()
        until(lambda: _is_alive(strict))

    def test_a_steady_client_is_not_taken_for_a_slow_one(self, strict):
        with httpx2.Client() as client:
            for _ in range(15):
                assert client.get(f"{strict.address}/healthz").status_code == 200
                time.sleep(0.2)

    def test_a_method_that_is_not_allowed_is_answered_with_those_that_are(self, gate):
        for method, path, allowed in (
            ("GET", "/v1/decisions", "POST"),
            ("DELETE", "/v1/quarantine", "GET"),
            ("POST", "/healthz", "GET"),
        ):
            answer = httpx2.request(method, gate.address + path)
            assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
            assert answer.json()["title"] == "Method not allowed"

    def test_nobody_is_sent_elsewhere(self, gate):
        for path in ("/v1/model/", "/healthz/", "//v1/model", "/v1/quarantine/"):
            answer = httpx2.get(gate.address + path, headers={"host": "evil.example"})
            assert answer.status_code == 404
            assert "evil" not in str(answer.headers) + answer.text

    def test_a_body_that_is_not_said_to_be_json(self, gate):
        headers = {"authorization": f"Bearer {gate.token('curl', 'operator')}"}
        for kind in (
            {},
            {"content-type": "application/x-www-form-urlencoded"},
            {"content-type": "text/plain"},
        ):
            for path in ("claim", "renew", "release", "7/resolve", "7/skip", "7/undo"):
                url = f"{gate.address}/v1/quarantine/{path}"
                answer = httpx2.post(url, content=b"{}", headers=headers | kind)
                assert answer.status_code == 415
                assert "the header Content-Type: application/json" in answer.json()["detail"]
        said = headers | {"content-type": "application/json; charset=utf-8"}
        assert (
            httpx2.post(f"{gate.address}/v1/quarantine/claim", content=b"{}", headers=said).status_code == 200
        )


def _is_alive(gate):
    try:
        return httpx2.get(f"{gate.address}/healthz").status_code == 200
    except httpx2.HTTPError:
        return False


@pytest.fixture
def serve(monkeypatch, tmp_path):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which a command replaces
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(model, "try_out", lambda *_: None)  # which takes seconds
        done = CliRunner().invoke(app, ["gate", "serve", *map(str, arguments)])
        (line,) = done.stderr.splitlines()
        return done.exit_code, line

    return run


class TestRefusals:
    def test_an_artifact_that_is_not_there(self, serve, database):
        code, line = serve("nowhere", "--database", database)
        assert code in (2, 4, 5)
        assert "nowhere" in line

    def test_no_database(self, serve, artifact):
        code, line = serve(artifact)
        assert (code, "set TRANSCENDENT_GATE_DATABASE, or add it to the file" in line) == (2, True)

    def test_a_database_that_is_not_there(self, serve, artifact, database):
        code, line = serve(artifact, "--database", "postgresql://ann:hunter2@127.0.0.1:1/gate")
        assert code == 4
        assert "the database that --database or TRANSCENDENT_GATE_DATABASE names cannot be used" in line
        assert "refused" in line
        assert "hunter2" not in line
        other = make_url(database).set(database="nowhere").render_as_string(hide_password=False)
        assert 'database "nowhere" does not exist' in serve(artifact, "--database", other)[1]

    def test_a_database_of_another_kind(self, serve, artifact):
        assert "PostgreSQL, not sqlite" in serve(artifact, "--database", "sqlite://")[1]
        assert "a URL such as postgresql://" in serve(artifact, "--database", "my database")[1]

    def test_a_database_without_tables(self, serve, artifact, empty_database):
        code, line = serve(artifact, "--database", empty_database)
        assert (code, "run 'transcendent gate migrate'" in line) == (4, True)

    def test_an_artifact_that_judges_scores_of_unnamed_columns(self, serve, database, problem, tmp_path):
        X, y = problem
        scores = LinearSVC(random_state=0).fit(X[:500], y[:500]).decision_function(X[500:1000])
        answers = [["goodware", "malware"][int(score > 0)] for score in scores]
        judge = ScoreEvaluator().fit(Answers(answers, [[s, -s] for s in scores]), y[500:1000])
        save(judge, tmp_path / "scores")
        code, line = serve(tmp_path / "scores", "--database", database)
        assert (code, "judges scores, and does not name their columns" in line) == (5, True)

    @pytest.mark.parametrize(
        "rejector",
        [
            CPReject(LinearSVC(random_state=0), random_state=0),
            StreamingBudget(CPReject(LinearSVC(random_state=0), random_state=0), rate=0.1),
        ],
        ids=lambda rejector: type(rejector).__name__,
    )
    def test_an_artifact_whose_decisions_depend_on_other_objects(
        self, serve, database, problem, tmp_path, rejector
    ):
        X, y = problem
        save(rejector.fit(X[:500], y[:500]), tmp_path / "dependent")
        code, line = serve(tmp_path / "dependent", "--database", database)
        assert (code, "decision about an object depends on other objects" in line) == (5, True)
        assert "Save a rejector that decides each object by itself" in line

    @pytest.mark.parametrize("given", [{"count": 20}, {"rate": 0.0}])
    def test_a_budget_that_is_no_share(self, serve, database, problem, tmp_path, given):
        X, y = problem
        ice = InductiveEvaluator(LinearSVC(random_state=0), random_state=0)
        save(RejectionBudget(ice, **given).fit(X[:500], y[:500]), tmp_path / "budget")
        code, line = serve(tmp_path / "budget", "--database", database)
        assert (code, "write budget = 0.15 in the TOML file" in line) == (5, True)

    def test_an_artifact_that_encodes_an_array_of_words(self, serve, database, problem, tmp_path):
        X, y = problem
        words = np.column_stack([X[:500, 0].astype(object), np.where(X[:500, 2] > 0, "upx", "none")])
        encoder = ColumnTransformer([("words", OneHotEncoder(), [1])], remainder="passthrough")
        detector = make_pipeline(encoder, LinearSVC(random_state=0))
        save(InductiveEvaluator(detector, random_state=0).fit(words, y[:500]), tmp_path / "words")
        code, line = serve(tmp_path / "words", "--database", database)
        assert (code, "its detector cannot decide rows of numbers" in line) == (5, True)
        assert "fit it again on a frame" in line

    @pytest.mark.parametrize(
        ("column", "said"), [("gate_size", "begins with gate_"), ("day", "holds datetime64")]
    )
    def test_an_artifact_with_columns_that_cannot_be_sent(
        self, serve, database, problem, tmp_path, column, said
    ):
        X, y = problem
        frame = pd.DataFrame(X[:500, :2], columns=["a", "gate_size"])
        if column == "day":
            frame = frame.rename(columns={"gate_size": "b"}).assign(day=pd.Timestamp("2026-01-01"))
        detector = make_pipeline(ColumnTransformer([("a", "passthrough", ["a"])]), LinearSVC(random_state=0))
        save(InductiveEvaluator(detector, random_state=0).fit(frame, y[:500]), tmp_path / "odd")
        code, line = serve(tmp_path / "odd", "--database", database)
        assert (code, said in line, "before the fit" in line) == (5, True, True)

    def test_strangers_without_tokens(self, serve, artifact, database):
        code, line = serve(artifact, "--database", database, "--host", "0.0.0.0", "--no-tokens")
        assert (code, "so tokens = none is refused" in line) == (2, True)
