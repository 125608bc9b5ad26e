"""A gate to look at: a throwaway database, synthetic apps that drift, and simulated analysts."""

import math
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx2
import threadpoolctl
from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError

from transcendent.errors import TranscendentError
from transcendent.experiments import read
from transcendent.experiments.experiment import Experiment
from transcendent.gate.access import Tokens
from transcendent.gate.campaigns import Grouping
from transcendent.gate.client import GateClient
from transcendent.gate.database import connect, migrate
from transcendent.gate.demo_history import ANALYSTS, PROMISED, Apps, write_history
from transcendent.gate.deployments import Deployment, deploy
from transcendent.gate.learning import SHADOW, ToLearn, learn
from transcendent.gate.model import Model
from transcendent.gate.pages.sessions import LONGEST_LINK, Sessions
from transcendent.gate.promotion import retire
from transcendent.gate.settings import PREFIX
from transcendent.gate.shadows import shadow
from transcendent.gate.stored import add, find
from transcendent.gate.throwaway import DemoError, KeptProcess, free_port, start_server

_SETTINGS: dict[str, Any] = {"audit": 0.1, "budget": 0.1}
_TOML = """
data = {{ file = "{table}", label = "label", time = "first_seen", id = "sha256" }}
detector = {{ class = "sklearn.svm.LinearSVC", C = 0.1 }}
rejectors.ICE.measure = {{ class = "CombinedMeasure", measures = ["auto", "neighbour_distance"] }}
rejectors.ICE.budget = {budget}
"""
_FITTED_ON = 1500  # objects
_OBJECTS = 4  # that arrive a second
_ENOUGH = 30  # waiting items that are left to whoever looks
_LEARN_EVERY = 300.0


def run(
    database: str | None,
    port: int | None,
    seconds: float | None,
    keep: Path | None,
    days: int,
    drift_after: float,
    say: Callable[[str], None],
    show: Callable[[str], None],
) -> None:
    """Show a gate until a signal, or for some seconds, and remove everything.

    ``database`` is the URL of an empty database, None for a throwaway server; ``keep`` is a folder for data
    that stay. The history has ``days``, and drift begins ``drift_after`` seconds after it ends. ``say`` takes
    lines about progress, ``show`` the links: of an operator, an analyst and a viewer.
    """
    warnings.simplefilter("ignore")  # detectors would warn about every row, as in a gate
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.default_int_handler)
    os.environ["OMP_NUM_THREADS"] = "1"  # of the gate; more would wait for each other on a busy machine
    with suppress(KeyboardInterrupt), threadpoolctl.threadpool_limits(1), ExitStack() as stack:
        short = "/tmp" if Path("/tmp").is_dir() else None  # the path of a socket has at most 103 characters
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="transcendent-demo-", dir=short))
        )
        demo = Demo(stack, folder, say)
        live = demo.start(database, port, keep or folder, days, drift_after)
        stack.callback(say, "stopping.")
        say("Each link signs in once. Ctrl-C ends the demo.")
        for role in ("operator", "analyst", "viewer"):
            say(f"{role}:")
            show(live.link(role))
        live.start()
        end = math.inf if seconds is None else time.monotonic() + seconds
        while time.monotonic() < end:
            demo.check()
            time.sleep(0.2)


class Demo:
    """A demo; what it starts ends with ``stack``."""

    def __init__(self, stack: ExitStack, folder: Path, say: Callable[[str], None]) -> None:
        self._stack, self._folder, self._say = stack, folder, say
        self._processes: list[KeptProcess] = []
        self._began = self._last = time.monotonic()

    def start(
        self, database: str | None, port: int | None, data: Path, days: int, drift_after: float
    ) -> "Live":
        """Start a gate with a history."""
        url = database
        if url is None:
            server, url = start_server(self._folder, data / "data")
            self._start(server)
        engine = connect(url)
        self._stack.callback(engine.dispose)
        if database is not None:
            _check_empty(engine)
        apps = Apps()
        experiment = self._fit(apps)
        self._done("a detector is fitted")
        self._wait_until(lambda: _answers(engine), "PostgreSQL")
        migrate(engine)
        self._done("the database has its tables")
        address = self._start_gate(url, port or free_port())
        deployed = self._deploy(engine)
        self._done("the detector is promoted")
        drift_at = time.time() + drift_after
        n = write_history(engine, *deployed, apps, days, drift_at)
        self._done(f"a history of {n:,} objects is written")
        self._wait_until(lambda: _is_ready(address), "the gate")
        self._done("the gate is ready")
        self._say(f"all of it took {time.monotonic() - self._began:.1f} s.")
        live = Live(engine, address, apps, experiment, drift_at)
        self._stack.callback(live.close)
        return live

    def check(self) -> None:
        """Raise if a process has ended."""
        for each in self._processes:
            each.check()

    def _done(self, what: str) -> None:
        now = time.monotonic()
        self._say(f"{what:<40}{now - self._last:6.1f} s")
        self._last = now

    def _start(self, process: KeptProcess) -> None:
        self._processes.append(process)
        self._stack.callback(process.close)

    def _fit(self, apps: Apps) -> Experiment:
        """Write a table of apps and an experiment about it, and fit that."""
        table = self._folder / "apps.parquet"
        apps.table(_FITTED_ON).to_parquet(table, index=False)
        toml = self._folder / "apps.toml"
        toml.write_text(_TOML.format(table=table, budget=_SETTINGS["budget"]))
        experiment = read(toml)
        experiment.fit().save(self._folder / "apps.transcendent")
        return experiment

    def _start_gate(self, url: str, port: int) -> str:
        """Start a gate on this machine, and return its address."""
        settings = {
            "database": url,
            "port": port,
            "promised_error": PROMISED,
            "reference": self._folder / "apps.parquet",
            "reference_time": "first_seen",
            "log_level": "warning",
        }
        for name in [name for name in os.environ if name.startswith(PREFIX)]:
            del os.environ[name]
        os.environ |= {f"{PREFIX}{name.upper()}": str(value) for name, value in settings.items()}
        command = [sys.executable, "-m", "transcendent", "gate", "serve"]
        self._start(KeptProcess(self._folder / "gate.log", command, signal.SIGTERM))
        return f"http://127.0.0.1:{port}"

    def _deploy(self, engine: Engine) -> tuple[Model, Deployment]:
        """Deploy the detector. Nothing is served yet, so this waits for no gate."""
        given = ((), None, "apps", "demo", "the first model")
        model = add(engine, self._folder / "apps.transcendent", *given)
        with engine.begin() as connection:
            known = find(connection, model.digest).number
            number = deploy(connection, known, "active", _SETTINGS, "demo", "the first model")
        return model, Deployment(number, known, "active", _SETTINGS)

    def _wait_until(self, ready: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + 120
        while not ready():
            self.check()
            if time.monotonic() >= end:
                raise DemoError(f"{what} was not ready within two minutes.")
            time.sleep(0.1)


def _check_empty(engine: Engine) -> None:
    sql = "SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
    with engine.connect() as connection:
        if connection.execute(text(sql)).scalar_one():
            raise DemoError("the database is not empty: name one without tables.")


def _answers(engine: Engine) -> bool:
    with suppress(SQLAlchemyError), engine.connect():
        return True
    return False


def _is_ready(address: str) -> bool:
    with suppress(httpx2.HTTPError):
        return bool(httpx2.get(f"{address}/readyz", trust_env=False).status_code == 200)
    return False


class Live:
    """Senders, analysts and learning."""

    def __init__(
        self, engine: Engine, address: str, apps: Apps, experiment: Experiment, drift_at: float
    ) -> None:
        tokens, self.address = Tokens(engine), address
        self._engine, self._apps, self._drift_at = engine, apps, drift_at
        self._wanted, self._learnt = ToLearn(experiment, "both"), ""
        self._sender = GateClient(address, tokens.create("store", "client"))
        self._analysts = [GateClient(address, tokens.create(name, "analyst")) for name in ANALYSTS]
        self._grouping, self._stopped = Grouping(engine), Event()

    def start(self) -> None:
        """Start to send, to label, to group and to learn."""
        work: list[tuple[float, float, Callable[[], object]]]
        work = [
            (0.0, 1.0, self._send),
            (6.0, 60.0, self._grouping.regroup),
            (10.0, _LEARN_EVERY, self._learn),
        ]
        work += [(3.0, 3.0, partial(self._analyse, each)) for each in self._analysts]
        for each in work:
            Thread(target=self._repeat, args=each, daemon=True).start()

    def link(self, role: str) -> str:
        """Return a link with which somebody of a role signs in, once."""
        key = Sessions(self._engine).invite(role, role, LONGEST_LINK)
        return f"{self.address}/sign-in/link?key={key}"

    def close(self) -> None:
        """Stop."""
        self._stopped.set()
        self._grouping.stop()

    def _repeat(self, begins: float, every: float, work: Callable[[], object]) -> None:
        """Repeat work; what fails is tried again, since others may do the same at once."""
        wait = begins
        while not self._stopped.wait(wait):
            with suppress(TranscendentError, SQLAlchemyError):
                work()
            wait = every

    def _send(self) -> None:
        now = time.time()
        objects = self._apps.arrive(_OBJECTS, now, drifted=now >= self._drift_at)
        for each in self._sender.decide_objects(objects):
            if not each["accepted"]:
                self._apps.follow(each["id"])

    def _analyse(self, analyst: GateClient) -> None:
        """Label an item if enough others wait."""
        if analyst.counts()["waiting"] > _ENOUGH:
            for each in analyst.claim()["items"]:
                analyst.resolve(each["id"], self._apps.said(each["object_id"]))

    def _learn(self) -> None:
        """Learn from all labels; the result is a shadow of all traffic, in place of the last one."""
        found = learn(self._engine, self._wanted, "demo")
        with self._engine.connect() as connection:
            new = find(connection, found["model"])
            old = find(connection, self._learnt or found["model"])
        settings = {**SHADOW, "sample": 1.0, "budget": _SETTINGS["budget"]}
        shadow(self._engine, new, settings, "demo", "has learnt from the labels")
        self._learnt = new.digest
        if old != new:  # refused if somebody has promoted it meanwhile
            retire(self._engine, old, "demo", "a newer model has learnt")
