"""Everything works through PgBouncer in transaction mode, where each transaction may have another session."""

import os
import shutil
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx2
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from tests.gate.conftest import database_on, gate_of
from tests.gate.processes import free_port
from tests.gate.test_database import fill
from tests.gate.test_quarantine import rows
from transcendent.gate.access import Tokens
from transcendent.gate.check import check
from transcendent.gate.database import connect, drop_months, make_month, migrate, month_of, newest_version
from transcendent.gate.export import export_labelled, read_labelled
from transcendent.gate.intake import keep
from transcendent.gate.quarantine import Quarantine


@pytest.fixture(scope="module")
def pooled(server, tmp_path_factory):
    """The URL of a database without tables, through a pooler that has few sessions."""
    program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
    with database_on(server) as url:
        given, port, folder = make_url(url), free_port(), tmp_path_factory.mktemp("pgbouncer")
        (folder / "users").write_text(f'"{given.username}" "{given.password or ""}"\n')
        settings = {
            "listen_addr": "127.0.0.1", "listen_port": port, "unix_socket_dir": "", "auth_type": "trust",
            "auth_file": folder / "users", "pool_mode": "transaction", "default_pool_size": 4,
            "max_client_conn": 100, "server_lifetime": 1,
        }  # fmt: skip
        lines = [f"{name} = {value}" for name, value in settings.items()]
        (folder / "ini").write_text(
            "\n".join(["[databases]", f"* = host={given.host} port={given.port}", "[pgbouncer]", *lines])
        )
        for place in (folder, *folder.parents):
            if place.stat().st_uid == os.geteuid() and str(place) != "/":
                place.chmod(place.stat().st_mode | 0o055)
        user = ["-u", "postgres"] if os.geteuid() == 0 else []  # it does not run as root
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([program, *user, str(folder / "ini")], stdout=log, stderr=log)
        try:
            end = time.monotonic() + 20
            while time.monotonic() < end and process.poll() is None:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.05)
            assert process.poll() is None, (folder / "log").read_text()
            yield given.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)
        finally:
            process.terminate()
            process.wait(20)


def test_the_quarantine_works(pooled, tmp_path):
    engine = connect(pooled, 8, timeout=20)
    assert migrate(engine) == newest_version()
    quarantine = Quarantine(engine, max_held=50)

    def work(number):
        for turn in range(10):
            keep(engine, rows(engine, range(6), f"{number}_{turn}_"))
            keep(engine, rows(engine, range(6), f"{number}_{turn}_"))
            first, second, third = quarantine.claim(f"analyst{number}", 3).items
            quarantine.resolve(f"analyst{number}", first["id"], "malware")
            quarantine.skip(f"analyst{number}", second["id"])
            quarantine.renew(f"analyst{number}")
            quarantine.release(f"analyst{number}", [third["id"]])
        quarantine.undo(f"analyst{number}", first["id"])
        quarantine.show(first["id"])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    counts = quarantine.counts()
    assert (counts["waiting"], counts["labelled"], counts["held"]) == (360 - 54, 54, 0)
    assert export_labelled(engine, tmp_path / "labelled") == 54
    assert len(read_labelled(tmp_path / "labelled").y) == 54
    tokens = Tokens(engine)
    tokens.create("ann", "analyst")
    tokens.revoke("ann")
    assert [each["name"] for each in tokens.list()] == ["ann"]
    with engine.begin() as connection:
        make_month(connection, month_of("2020-01"))
    assert drop_months(engine, month_of("2020-02")) == ["2020-01"]
    assert check(engine) == []
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM pg_prepared_statements")).scalar_one() == 0
    engine.dispose()


def test_a_gate_serves(pooled, artifact, tmp_path, problem, rejector):
    engine = connect(pooled)
    migrate(engine)
    X = problem[0][1000:1400]
    X = X[rejector.decide(X).rejected][:20]
    with gate_of(pooled, artifact, tmp_path, tokens="none") as gate:
        objects = [{"id": f"pooled{i}", "values": row} for i, row in enumerate(X.tolist())]
        for _ in range(10):
            assert httpx2.post(f"{gate.address}/v1/decisions", json={"objects": objects}).status_code == 200
        assert httpx2.get(f"{gate.address}/readyz").status_code == 200
        claimed = httpx2.post(f"{gate.address}/v1/quarantine/claim", json={"count": 5}).json()
        assert (len(claimed["items"]), claimed["room"]) == (5, 195)
    with engine.connect() as connection:
        sql = text("SELECT count(*) FROM payload WHERE object_id LIKE 'pooled%'")
        assert connection.execute(sql).scalar_one() == 20
    fill(engine, 3, "more")
    engine.dispose()
