"""Upgrades: a gate works with newer compatible tables, and no request fails during a migration."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from sqlalchemy import text

from tests.gate.conftest import gate_of, tables_on
from transcendent.gate.database import (
    DatabaseError,
    check_version,
    connect,
    migrate,
    newest_version,
    opened,
    version_of,
)

MIGRATION = """
from alembic import op

revision = "{version}"
down_revision = "{before}"
works_from = "{works_from}"


def upgrade():
    op.execute("ALTER TABLE item ADD COLUMN note{version} text")
    op.execute("ALTER TABLE identity ADD COLUMN note{version} text")
    op.execute("CREATE INDEX model_note{version} ON model (first_used)")


def downgrade():
    op.execute("DROP INDEX model_note{version}")
    op.execute("ALTER TABLE identity DROP COLUMN note{version}")
    op.execute("ALTER TABLE item DROP COLUMN note{version}")
"""
OWN = newest_version()
COMPATIBLE, INCOMPATIBLE = f"{int(OWN) + 1:04}", f"{int(OWN) + 2:04}"


@pytest.fixture(scope="module")
def later(tmp_path_factory):
    """A folder with two later versions; gates of this version work with the first."""
    folder = tmp_path_factory.mktemp("later")
    for version, before, works_from in (
        (COMPATIBLE, OWN, OWN),
        (INCOMPATIBLE, COMPATIBLE, INCOMPATIBLE),
    ):
        text = MIGRATION.format(version=version, before=before, works_from=works_from)
        (folder / f"v{version}.py").write_text(text)
    return [folder]


@pytest.fixture(scope="module")
def gate(server, artifact, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gate")
    with tables_on(server) as url, gate_of(url, artifact, folder, tokens="none") as gate:
        yield gate


@pytest.fixture
def engine(gate, later):
    """An engine of the gate's database, which has the gate's version in the end."""
    engine = connect(gate.database)
    yield engine
    migrate(engine, OWN, later)
    engine.dispose()


@pytest.fixture(scope="module")
def rejected(problem, rejector):
    X = problem[0][1000:1400]
    return X[rejector.decide(X).rejected]


def test_an_upgrade_under_load_loses_no_request(gate, engine, later, rejected):
    done = threading.Event()

    def send(number):
        statuses, turn = [], 0
        with httpx2.Client(timeout=30) as client:
            while not done.is_set():
                turn += 1
                row = rejected[turn % len(rejected)].tolist()
                objects = [{"id": f"{number}-{turn}-{i}", "values": row} for i in range(5)]
                statuses.append(
                    client.post(f"{gate.address}/v1/decisions", json={"objects": objects}).status_code
                )
        return statuses

    def probe():
        statuses = []
        with httpx2.Client(timeout=30) as client:
            while not done.is_set():
                statuses.append(client.get(f"{gate.address}/readyz").status_code)
                time.sleep(0.1)
        return statuses

    with ThreadPoolExecutor(5) as pool:
        sent, probed = [pool.submit(send, number) for number in range(3)], pool.submit(probe)
        time.sleep(0.5)
        with engine.connect() as reader:  # as an export: the upgrade has to wait for it, and nobody behind it
            reader.execute(text("SELECT count(*) FROM item"))
            upgraded = pool.submit(migrate, engine, COMPATIBLE, later)
            time.sleep(2)
            assert not upgraded.done()
        assert upgraded.result() == COMPATIBLE
        time.sleep(1.5)
        done.set()
    statuses = [status for each in sent for status in each.result()]
    assert len(statuses) > 20
    assert set(statuses) == {200}
    assert set(probed.result()) == {200}
    with engine.connect() as connection:
        kept = connection.execute(text("SELECT count(*) FROM payload")).scalar_one()
        check_version(connection)
    assert kept == 5 * len(statuses)


def test_tables_that_do_not_work_with_a_gate_make_it_not_ready_and_it_says_what_to_upgrade(
    gate, engine, later
):
    assert migrate(engine, "head", later) == INCOMPATIBLE
    time.sleep(1)
    answer = httpx2.get(f"{gate.address}/readyz")
    assert answer.status_code == 503
    said = f"has version {INCOMPATIBLE}, which needs gates of version {INCOMPATIBLE} or newer, but this"
    assert f"{said} gate has {OWN}: upgrade the gate." in answer.json()["detail"]
    with pytest.raises(DatabaseError, match="upgrade the gate"), opened(gate.database):
        pass
    with pytest.raises(DatabaseError, match=f"this package knows is {OWN}: upgrade the package"):
        migrate(engine)
    assert migrate(engine, COMPATIBLE, later) == COMPATIBLE  # and back
    time.sleep(1)
    assert httpx2.get(f"{gate.address}/readyz").status_code == 200
    assert migrate(engine, OWN, later) == OWN
    with engine.connect() as connection:
        assert version_of(connection) == OWN
        check_version(connection)


def test_the_connections_of_a_gate_are_not_left_locked_by_an_upgrade_that_fails(own_engine, tmp_path):
    (tmp_path / "broken.py").write_text(
        MIGRATION.format(version=COMPATIBLE, before=OWN, works_from=OWN).replace("ON model (", "ON nowhere (")
    )
    with pytest.raises(Exception, match="nowhere"):
        migrate(own_engine, "head", [tmp_path])
    other = connect(own_engine.url.render_as_string(hide_password=False))
    with other.connect() as connection:
        assert version_of(connection) == OWN
    assert migrate(other) == OWN
    other.dispose()
