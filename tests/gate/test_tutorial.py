"""The tutorial about a gate: its commands run beside its examples, which print what the page shows."""

import doctest
import os
import re
import subprocess
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from tests.gate.conftest import _administer
from tests.gate.processes import Gate, free_port

pytest.importorskip("pyarrow")  # writes the labels

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs/learn/tutorials/gate.md"
SERVE = "transcendent gate serve"


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def database(server, monkeypatch):
    """The name of a database that does not exist yet, on a server that commands find."""
    url, name = make_url(server), f"tutorial_{os.getpid()}"
    given = {"PGHOST": url.host, "PGPORT": url.port, "PGUSER": url.username, "PGPASSWORD": url.password}
    for variable, value in given.items():
        if value:
            monkeypatch.setenv(variable, str(value))
    yield name
    _administer(url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
def serve(database, port, tmp_path):
    """Serve an artifact; the gate before it ends."""
    started = []

    def stop():
        for gate in started:
            gate.stop()
        started.clear()

    def serve(artifact):
        stop()
        url = f"postgresql:///{database}"
        started.append(Gate(url, tmp_path / artifact, tmp_path / "gate.log", port=port, audit=0.01))
        started[0].wait(300)

    yield serve
    stop()


def test_the_page_shows_what_its_examples_print(database, port, serve, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRANSCENDENT_GATE_PORT", str(port))
    monkeypatch.setenv("TRANSCENDENT_GATE_DATABASE", f"postgresql:///{database}")  # as its terminals have it
    page = PAGE.read_text("utf-8").replace(":8040", f":{port}")
    page = page.replace("createdb gate", f"createdb {database}").replace(":///gate", f":///{database}")
    names = {"__name__": "__main__"}
    parser = doctest.DocTestParser()
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for kind, block in re.findall(r"^```(sh|pycon)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        if block.startswith(SERVE):
            serve(block.split()[-1])
        elif kind == "sh":
            subprocess.run(["bash", "-ec", block], check=True)
        else:
            test = parser.get_doctest(block, names, PAGE.name, str(PAGE), 0)
            assert runner.run(test, clear_globs=False).failed == 0
            names = test.globs
