"""The example that opens and closes tickets, run as it is documented, with a real gate."""

import json
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.gate.conftest import gate_of, tables_on
from transcendent.gate.database import connect
from transcendent.gate.paging import raise_alarm
from transcendent.monitoring import Alarm

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[3] / "examples/tickets.py"


@pytest.fixture(scope="module")
def gate(server, artifact, tmp_path_factory):
    with tables_on(server) as url, gate_of(url, artifact, tmp_path_factory.mktemp("gate"), audit=0.2) as gate:
        yield gate


@pytest.fixture(scope="module")
def token(gate):
    return gate.token("soar", "operator")


@pytest.fixture(scope="module")
def sensor(gate):
    return gate.client()


@pytest.fixture(scope="module")
def ann(gate):
    return gate.client("ann", "analyst")


@pytest.fixture
def arguments(gate, token, tmp_path, monkeypatch):
    """The script's command line; its environment is that of the test."""
    monkeypatch.setenv("GATE_ADDRESS", gate.address)
    monkeypatch.setenv("GATE_TOKEN", token)
    return [str(SCRIPT), str(tmp_path / "tickets")]


@pytest.fixture
def once(arguments, monkeypatch):
    """Run the script once, in this process."""

    def run_once():
        monkeypatch.setattr(sys, "argv", [*arguments, "--once"])
        runpy.run_path(str(SCRIPT), run_name="__main__")

    return run_once


@pytest.fixture
def tickets(tmp_path):
    def read(prefix=""):
        files = (tmp_path / "tickets").glob("*.json")
        found = {each.stem: json.loads(each.read_text()) for each in files}
        return {
            key: each for key, each in found.items() if each["about"].get("object_id", "").startswith(prefix)
        }

    return read


def states(tickets):
    return {key: each["state"] for key, each in tickets.items()}


def test_tickets_follow_what_becomes_of_objects(sensor, ann, problem, once, tickets):
    X, _ = problem
    decided = sensor.decide([f"some-{i}" for i in range(60)], X[1000:1060])
    rejected = {each["id"] for each in decided if not each["accepted"]}
    once()
    found = tickets("some")
    assert {each["about"]["object_id"] for each in found.values()} == rejected
    assert set(states(found).values()) == {"open"}

    items = []
    while claimed := ann.claim(100)["items"]:
        items += claimed
        for item in claimed:
            ann.resolve(item["id"], "malware", reason="packed")
    drawn = [each for each in items if each["object_id"].startswith("some")]
    assert len(drawn) > len(rejected)  # the audit, too, which has no tickets
    once()
    assert set(tickets("some")) == set(found)
    assert set(states(tickets("some")).values()) == {"closed"}
    one = next(each for each in items if f"item-{each['id']}" in found)
    assert tickets("some")[f"item-{one['id']}"]["last"] == {
        "label": "malware",
        "author": "ann",
        "reason": "packed",
    }
    ann.undo(one["id"])
    once()
    assert [key for key, state in states(tickets("some")).items() if state == "open"] == [f"item-{one['id']}"]


def test_an_alarm_gets_a_ticket(gate, once, tickets):
    engine = connect(gate.database)
    with engine.begin() as connection:
        deployment = connection.execute(text("SELECT max(id) FROM deployment")).scalar_one()
        number = raise_alarm(connection, deployment, "drift", Alarm(9, 5.0))
    engine.dispose()
    once()
    assert states(tickets())[f"alarm-{number}"] == "open"


def test_a_kill_at_any_time_changes_nothing_in_the_end(
    sensor, ann, problem, arguments, once, tickets, tmp_path
):
    X, _ = problem
    sensor.decide([f"many-{i}" for i in range(300)], X[1000:1300])
    for item in ann.claim(20)["items"]:
        ann.resolve(item["id"], "malware")
    for wanted in (7, 20):
        process = subprocess.Popen([sys.executable, *arguments])
        while len(list((tmp_path / "tickets").glob("*.json"))) < wanted:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    once()
    killed = tickets()
    for each in (tmp_path / "tickets").iterdir():
        each.unlink()
    once()
    assert tickets() == killed
    (tmp_path / "tickets/cursor").unlink()  # every event is read again
    once()
    assert tickets() == killed
