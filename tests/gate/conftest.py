"""A real PostgreSQL server, a database for each test, and gates in separate processes."""

import os
import signal
from contextlib import contextmanager
from functools import cache
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import httpcore2
import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.svm import LinearSVC
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from tests.gate import processes
from tests.gate.processes import cluster_in
from transcendent import InductiveEvaluator, save
from transcendent.cli.app import app
from transcendent.gate import GateClient, model
from transcendent.gate.access import Tokens
from transcendent.gate.database import connect, make_months, migrate, partition

_numbers = count()


@pytest.fixture(scope="session", autouse=True)
def one_ssl_context():
    """One context for all clients: each reads a bundle of certificates, which takes longer than a request."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", cache(httpcore2.default_ssl_context))
        yield


@pytest.fixture(scope="session")
def server():
    """The URL of a server: the one in the environment, or a throwaway one."""
    if given := os.environ.get("TRANSCENDENT_TEST_DATABASE"):
        yield given
        _administer(make_url(given), f"DROP DATABASE IF EXISTS tables_{os.getpid()}")
        return
    with TemporaryDirectory() as folder, cluster_in(Path(folder), "-c fsync=off") as own:
        yield own.url


def _administer(url, statement):
    admin = create_engine(url.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(statement))
    admin.dispose()


@contextmanager
def database_on(server, like="template1"):
    """A new database without tables, or with those of another one."""
    name, url = f"gate_{os.getpid()}_{next(_numbers)}", make_url(server)
    _administer(url, f"CREATE DATABASE {name} TEMPLATE {like}")
    try:
        yield url.set(database=name).render_as_string(hide_password=False)
    finally:
        _administer(url, f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def away(database):
    """Refuse all connections to a database for a while."""
    url = make_url(database)
    admin = create_engine(
        url.set(database="postgres", drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
    )
    with admin.connect() as connection:
        connection.execute(text(f"ALTER DATABASE {url.database} ALLOW_CONNECTIONS false"))
        sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"
        connection.execute(text(sql), {"name": url.database})
        yield
        connection.execute(text(f"ALTER DATABASE {url.database} ALLOW_CONNECTIONS true"))
    admin.dispose()


def drop_all(engine):
    """Drop every month, including this one and the next, as if no partition had ever been created."""
    with engine.begin() as connection:
        for month in connection.execute(text("DELETE FROM month RETURNING number")).scalars().all():
            for table in ("item", "payload"):
                connection.execute(text(f"DROP TABLE {partition(table, month)}"))
        for table in (
            *("identity", "example", "unswept", "remark", "outside_reason"),
            *("context_key", "context_field", "deletion", "unconfirmed"),
            *("item_content", "content", "campaign", "inferred", "settled_look", "settling_switch"),
            "label_work",
            *("work", "waiting_day"),
        ):
            connection.execute(text(f"DELETE FROM {table}"))
        connection.execute(text("DELETE FROM tally"))  # dropping a partition fires no trigger


def pretend_version(engine, version):
    """Make a database seem to have another version."""
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :version"), {"version": version})


@pytest.fixture
def empty_database(server):
    with database_on(server) as url:
        yield url


def with_tables(url):
    """Make the tables of a database, and return its URL."""
    engine = connect(url)
    migrate(engine)
    engine.dispose()
    return url


@cache
def empty_tables(server):
    """The name of a database to copy, which is faster than to migrate each."""
    name = f"tables_{os.getpid()}"
    url = make_url(server)
    _administer(url, f"CREATE DATABASE {name}")
    with_tables(url.set(database=name).render_as_string(hide_password=False))
    return name


@contextmanager
def tables_on(server):
    """A new database with all tables."""
    with database_on(server, empty_tables(server)) as url:
        yield url


@pytest.fixture
def database(server):
    """The URL of a database with all tables."""
    with tables_on(server) as url:
        yield url


@pytest.fixture
def own_engine(database):
    engine = connect(database)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def shared_database(server):
    """The URL of a database with all tables, for tests that use ``engine``."""
    with tables_on(server) as url:
        yield url


@pytest.fixture
def engine(shared_database):
    """An engine of a database that is empty except for labels of dropped items."""
    engine = connect(shared_database, 20)
    drop_all(engine)
    with engine.begin() as connection:
        for table in (
            *("disagreement", "shadow_counts", "compared", "decided_day", "monitor_day"),
            *("alarm", "monitor", "minute_counts", "process", "deployment", "artifact", "learning"),
            *("sender_day", "ranks", "cutoff", "model", "token"),
        ):
            connection.execute(text(f"DELETE FROM {table}"))
    make_months(engine)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def problem():
    """Rows and labels; the second half differs from the first."""
    X, y = make_classification(2000, n_features=12, n_informative=6, flip_y=0.05, random_state=0)
    X[1000:] += np.random.default_rng(0).normal(scale=1.5, size=(1000, 12))
    return X, np.where(y, "malware", "goodware")


@pytest.fixture(scope="session")
def rejector(problem):
    X, y = problem
    return InductiveEvaluator(LinearSVC(random_state=0), random_state=0).fit(X[:1000], y[:1000])


@pytest.fixture(scope="session")
def artifact(rejector, tmp_path_factory):
    path = tmp_path_factory.mktemp("artifact") / "gate.transcendent"
    save(rejector, path)
    return path


class Gate(processes.Gate):
    """A gate in a separate process, and its clients."""

    def __init__(self, *given, **settings) -> None:
        super().__init__(*given, **settings)
        self._clients = []

    def token(self, name, role):
        engine = connect(self.database)
        made = Tokens(engine).create(name, role)
        engine.dispose()
        return made

    def client(self, name="sensor", role="client"):
        """A client with a new token."""
        self._clients.append(GateClient(self.address, self.token(name, role), retries=0))
        return self._clients[-1]

    def stop(self, how=signal.SIGTERM):
        for client in self._clients:
            client.close()
        return super().stop(how)


class ForkedGate(Gate):
    """A gate whose interpreter has already imported what gates need, which takes seconds."""

    def _start(self, environment, log):
        return Forked(serve, environment, log)


class Forked:
    """A process that runs a function of its environment and the path of its log."""

    _context = get_context("forkserver")
    _context.set_forkserver_preload(
        ["lightgbm", "sklearn.svm", "uvloop", "transcendent.cli.app", "transcendent.gate.server"]
    )

    def __init__(self, target, environment, log) -> None:
        self._process = self._context.Process(target=target, args=(environment, log))
        self._process.start()
        self.pid, self.kill = self._process.pid, self._process.kill

    def poll(self):
        return self._process.exitcode

    def send_signal(self, how):
        os.kill(self.pid, how)

    def wait(self, seconds):
        self._process.join(seconds)
        return self._process.exitcode


def serve(environment, log):
    """Run the command that serves."""
    os.environ.update(environment)
    model.try_out = lambda *_: None  # which takes seconds
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    app(["gate", "serve"])


@contextmanager
def gate_of(url, artifact, folder, **settings):
    """A gate on a database with all tables."""
    gate = ForkedGate(url, artifact, folder / "log", **settings)
    try:
        yield gate.wait()
    finally:
        gate.stop()


@pytest.fixture
def start_gate(database, artifact, tmp_path):
    """Start gates on the test's database; settings are arguments."""
    started = []

    def start(artifact=artifact, **settings):
        started.append(ForkedGate(database, artifact, tmp_path / f"gate{len(started)}.log", **settings))
        return started[-1].wait()

    yield start
    for gate in started:
        if gate.process.poll() is None:
            gate.stop()


@pytest.fixture(scope="module")
def gate(server, artifact, tmp_path_factory):
    """A gate that the tests of a module share."""
    with tables_on(server) as url, gate_of(url, artifact, tmp_path_factory.mktemp("gate")) as shared:
        yield shared
