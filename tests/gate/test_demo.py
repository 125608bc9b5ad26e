"""The command that shows a gate: what it shows, and that nothing of it is left behind."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx2
import psutil
import pytest
from sqlalchemy import text

from transcendent.cli.app import app
from transcendent.gate import throwaway
from transcendent.gate.database import connect
from transcendent.gate.demo import Demo
from transcendent.gate.quarantine import Quarantine

pytestmark = [pytest.mark.slow, pytest.mark.postgresql]

DAY = 86_400


@contextmanager
def demo(tmp_path, *options):
    """A demo with a small history, which is ended."""
    command = [sys.executable, "-m", "transcendent", "gate", "demo", "--days", "6", *options]
    environment = {**os.environ, "TRANSCENDENT_GATE_PORT": "no number"}  # settings of others do not matter
    with (tmp_path / "said").open("wb") as said:
        process = psutil.Popen(command, stdout=subprocess.PIPE, stderr=said, env=environment)
    try:
        yield process
    finally:
        with suppress(psutil.NoSuchProcess):
            process.kill()
        process.wait()
        process.stdout.close()


def wait_for(found, what, seconds=120):
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, f"there was no {what}"
        time.sleep(0.1)
    return value


def folder_of(process):
    """The folder of a demo, which the processes that end its database remove."""
    for each in process.children():
        with suppress(psutil.NoSuchProcess):
            if found := re.search("/[^ ]*transcendent-demo-[^ /]*", " ".join(each.cmdline())):
                return Path(found[0])
    return None


def assert_nothing_left(processes, folder):
    _, alive = psutil.wait_procs(processes, timeout=60)
    assert alive == []
    wait_for(lambda: not folder.exists(), "end of the folder")


def role_of(http, link):
    """The role with which a link signs in."""
    return re.search(r"\b(operator|analyst|viewer)\b", http.get(link).text)[0]


def test_a_demo_is_alive_and_leaves_nothing_behind(tmp_path):
    with demo(tmp_path, "--drift-after", str(-5 * DAY)) as process:
        link = process.stdout.readline().decode().strip()
        assert link.startswith("http://127.0.0.1:"), (tmp_path / "said").read_text()
        page, _, key = link.partition("?key=")
        others = [process.stdout.readline().decode().strip() for _ in range(2)]
        with httpx2.Client(timeout=60) as http:
            assert [role_of(http, each) for each in (link, *others)] == ["operator", "analyst", "viewer"]
            origin = {"origin": link.partition("/sign-in")[0]}
            assert http.post(page, data={"key": key}, headers=origin).status_code == 303
            assert http.get(f"{origin['origin']}/").headers["location"] == "/desk"
            assert http.post(page, data={"key": key}, headers=origin).status_code == 410

        folder, started = folder_of(process), process.children(recursive=True)
        engine = connect(f"postgresql://demo@/postgres?host={folder}")
        assert Quarantine(engine).counts()["waiting"] > 0
        with engine.connect() as connection:
            oldest = "SELECT now() - min(received_at) > interval '3 days' FROM item"
            assert connection.execute(text(oldest)).scalar_one()
        for sql in ("SELECT kind FROM alarm WHERE kind = 'drift'", "SELECT id FROM campaign"):
            with engine.connect() as connection:
                wait_for(lambda: connection.execute(text(sql)).all(), sql)  # noqa: B023  # called at once
        engine.dispose()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert_nothing_left(started, folder)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_demo_that_is_ended_while_it_starts_leaves_nothing_behind(how, tmp_path):
    with demo(tmp_path) as process:
        folder = wait_for(lambda: folder_of(process), "folder")
        wait_for(lambda: (folder / ".s.PGSQL.5432").exists(), "server")
        started = process.children(recursive=True)
        process.send_signal(how)
        assert process.wait(60) == (0 if how == signal.SIGTERM else -how)
        assert_nothing_left(started, folder)


def test_without_postgresql_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(throwaway, "_PLACES", ())
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(throwaway.DemoError, match=r"apt install postgresql \("):
        throwaway.find_binaries()


def test_a_database_in_use_is_refused(database, tmp_path):
    with ExitStack() as stack, pytest.raises(throwaway.DemoError, match="the database is not empty"):
        Demo(stack, tmp_path, print).start(database, None, tmp_path, 6, 60)


def test_a_folder_in_use_is_refused(tmp_path, capsys):
    (tmp_path / "data").touch()
    with pytest.raises(SystemExit) as ended:
        app(["gate", "demo", "--keep", str(tmp_path)])
    assert ended.value.code == 2
    assert "must be a new folder" in capsys.readouterr().err


def test_a_process_that_ends_is_named_with_its_last_lines(tmp_path):
    process = throwaway.KeptProcess(tmp_path / "x.log", ["sh", "-c", "echo so it is; exit 3"], signal.SIGTERM)

    def ended():
        try:
            process.check()
        except throwaway.DemoError as error:
            return str(error)
        return None

    assert wait_for(ended, "end") == "x has ended:\nso it is"
    process.close()
