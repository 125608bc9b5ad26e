"""A gate as a process: when it starts, when it is ready, how it ends, and what it logs."""

import json
import os
import shutil
import signal
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import numpy as np
import pandas as pd
import psutil
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import LinearSVC
from sqlalchemy import text
from sqlalchemy.engine import make_url
from typer.testing import CliRunner

from tests.gate.conftest import away
from transcendent import InductiveEvaluator, RejectionBudget, ScoreEvaluator, StreamingBudget, save
from transcendent.artifacts import open_artifact
from transcendent.cli.app import app
from transcendent.errors import GateError
from transcendent.gate.database import connect, migrate


def until(found, seconds=60):
    """Wait until something is found."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if result := found():
            return result
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def fresh(engine, sql):
    """Ask in a transaction of its own: statistics do not change within one."""
    with engine.connect() as connection:
        return connection.execute(sql).scalar_one()


def lines_of(gate):
    return [json.loads(line) for line in gate.log.read_text().splitlines()]


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
            answer = httpx2.get(f"{gate.address}/readyz")
            assert (answer.status_code, answer.json()["status"]) == (503, 503)
            assert "the database cannot be used" in answer.json()["detail"]
            assert httpx2.get(f"{gate.address}/healthz").status_code == 200
        assert httpx2.get(f"{gate.address}/readyz").status_code == 200

    def test_it_is_not_ready_with_tables_of_another_version(self, gate):
        engine = connect(gate.database)
        migrate(engine, "0001")
        answer = httpx2.get(f"{gate.address}/readyz")
        assert (answer.status_code, "DatabaseError" in answer.json()["detail"]) == (503, True)
        migrate(engine)
        engine.dispose()
        assert httpx2.get(f"{gate.address}/readyz").status_code == 200


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
            GateError, match=r"500: the gate failed; its log has request [0-9a-f]{32}"
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
    def test_what_is_in_flight_is_answered_and_kept_before_the_end(
        self, start_gate, artifact, rejected, own_engine
    ):
        engine = own_engine
        gate = start_gate(tried=open_artifact(artifact).digest)
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

    def test_a_worker_that_dies_is_replaced_and_the_others_go_on(
        self, start_gate, artifact, rejected, problem, tmp_path
    ):
        own = Path(shutil.copy(artifact, tmp_path / "own"))
        gate = start_gate(artifact=own, workers=2, tried=open_artifact(artifact).digest)
        client = gate.client()
        parent = psutil.Process(gate.process.pid)

        def ready():
            return {line["process"] for line in lines_of(gate) if line["event"] == "ready"}

        until(lambda: len(ready()) == 2)
        first, other = sorted(ready())
        assert {first, other} <= {child.pid for child in parent.children()}
        with away(gate.database):  # the new one waits for it, too
            os.kill(first, signal.SIGKILL)
            until(lambda: any(line["event"] == "waiting for the database" for line in lines_of(gate)))
        answered = 0
        end = time.monotonic() + 60
        while len(ready()) < 3 and time.monotonic() < end:
            try:
                client.decide([f"object {answered}"], rejected[:1])
                answered += 1
            except GateError:  # of a connection to the one that died
                pass
            time.sleep(0.05)
        (new,) = ready() - {first, other}
        assert answered > 0
        assert {child.pid for child in parent.children()} >= {other, new}
        died = [line for line in lines_of(gate) if "died" in line["event"] and line["process"] == first]
        assert len(died) == 1
        assert client.decide(["after"], rejected[:1])

        X, y = problem
        save(InductiveEvaluator(LinearSVC(), random_state=1).fit(X[:500], y[:500]), own)
        os.kill(new, signal.SIGKILL)
        until(lambda: any("cannot start" in line["event"] for line in lines_of(gate)))
        assert "the artifact has changed since the gate was started" in gate.log.read_text()
        assert {child.pid for child in parent.children() if child.pid in ready()} == {other}
        with httpx2.Client() as left:
            assert left.get(f"{gate.address}/readyz").status_code == 200
        assert gate.stop() == 0
        until(lambda: not psutil.pid_exists(other))


@pytest.fixture
def serve(monkeypatch, tmp_path):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which a command replaces
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        tried = open_artifact(arguments[0]).digest if Path(arguments[0]).is_file() else ""
        monkeypatch.setenv("TRANSCENDENT_GATE_TRIED", tried)  # as if: it takes seconds
        done = CliRunner().invoke(app, ["gate", "serve", *map(str, arguments)])
        (line,) = done.stderr.splitlines()
        return done.exit_code, line

    return run


class TestRefusals:
    def test_no_artifact(self, serve, database):
        code, line = serve("--database", database)
        assert (
            code,
            line.startswith("error: artifact is not set: name it, as in 'gate serve ARTIFACT'"),
        ) == (2, True)

    def test_an_artifact_that_is_not_there(self, serve, database):
        code, line = serve("nowhere", "--database", database)
        assert code in (2, 4, 5)
        assert "nowhere" in line

    def test_no_database(self, serve, artifact):
        code, line = serve(artifact)
        assert (code, "put it in TRANSCENDENT_GATE_DATABASE, or in the file" in line) == (2, True)

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

    def test_an_artifact_that_judges_scores(self, serve, database, problem, tmp_path):
        X, y = problem
        scores = LinearSVC(random_state=0).fit(X[:500], y[:500]).decision_function(X[500:1000])
        answers = [["goodware", "malware"][int(score > 0)] for score in scores]
        judge = ScoreEvaluator().fit([[s, -s] for s in scores], y[500:1000], answers)
        save(judge, tmp_path / "scores")
        code, line = serve(tmp_path / "scores", "--database", database)
        assert (code, "judges scores, not objects: a gate needs the detector too" in line) == (5, True)

    @pytest.mark.parametrize("budget", [RejectionBudget, StreamingBudget])
    def test_an_artifact_with_a_budget(self, serve, database, problem, tmp_path, budget):
        X, y = problem
        evaluator = InductiveEvaluator(LinearSVC(random_state=0), random_state=0)
        save(budget(evaluator, rate=0.1).fit(X[:500], y[:500]), tmp_path / "budget")
        code, line = serve(tmp_path / "budget", "--database", database)
        assert (code, "depend on other objects: save its evaluator" in line) == (5, True)

    def test_an_artifact_that_encodes_words(self, serve, database, problem, tmp_path):
        X, y = problem
        words = np.where(X[:500, 2] > 0, "upx", "none")
        frame = pd.DataFrame(X[:500, :2], columns=["a", "b"]).assign(packer=words)
        encoder = ColumnTransformer([("words", OneHotEncoder(), ["packer"])], remainder="passthrough")
        detector = make_pipeline(encoder, LinearSVC(random_state=0))
        save(InductiveEvaluator(detector, random_state=0).fit(frame, y[:500]), tmp_path / "words")
        code, line = serve(tmp_path / "words", "--database", database)
        assert (code, "its detector decides no rows of numbers" in line) == (5, True)
        assert "encode them as numbers before the fit, or leave them out" in line

    def test_strangers_without_tokens(self, serve, artifact, database):
        code, line = serve(artifact, "--database", database, "--host", "0.0.0.0", "--no-tokens")
        assert (code, "0.0.0.0 can be reached by others: tokens = none is refused" in line) == (2, True)
