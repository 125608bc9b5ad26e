"""A throwaway PostgreSQL server, and gates in processes, for tests and for benchmarks of the gate."""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil


def free_port() -> int:
    """Return a port that is free, and that the system does not give to outgoing connections."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port


class Cluster:
    """A throwaway PostgreSQL server in a folder.

    Parameters
    ----------
    folder : path
        Where its data go.
    options : str
        Further options of the server.
    """

    def __init__(self, folder: Path, options: str = "") -> None:
        self.folder, self.port, self._options = folder, free_port(), options
        self.bin = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
        self._as: list[str] = []
        if os.geteuid() == 0:  # PostgreSQL does not run as root
            shutil.chown(folder, "postgres", "postgres")
            self._as = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        self._run("initdb", "-D", f"{folder}/data", "-A", "trust", "-U", "postgres", "--no-sync")
        self.start()

    @property
    def url(self) -> str:
        """The URL of its first database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c max_connections=300"
        arguments = ("-l", f"{self.folder}/log", "-o", f"{options} {self._options}", "-w", "start")
        self._run("pg_ctl", "-D", f"{self.folder}/data", *arguments)

    def stop(self, how: str = "immediate") -> None:
        """Stop the server; ``"immediate"`` is a crash."""
        self._run("pg_ctl", "-D", f"{self.folder}/data", "-m", how, "-w", "stop")

    @property
    def process(self) -> psutil.Process:
        """The server's first process."""
        return psutil.Process(int((self.folder / "data/postmaster.pid").read_text().split()[0]))

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as, str(self.bin / program), *arguments]
        subprocess.run(command, check=True, cwd=self.folder, stdout=subprocess.DEVNULL)


@contextmanager
def cluster_in(folder: Path, options: str = "") -> Iterator[Cluster]:
    """Run a server in a folder, and let its user enter that folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for place in (folder, *folder.parents):
        if place != Path("/") and place.stat().st_uid == os.geteuid():
            place.chmod(place.stat().st_mode | 0o011)
    server = Cluster(folder, options)
    try:
        yield server
    finally:
        server.stop()


class Gate:
    """A gate in a separate process.

    Parameters
    ----------
    database : str
        URL of a database with all tables.
    artifact : path or None
        What to serve; if None, what is promoted.
    log : path
        Where its log goes.
    **settings : object
        Further settings.
    """

    def __init__(self, database: str, artifact: Path | None, log: Path, **settings: Any) -> None:
        self.database, self.log = database, log
        self.port = settings.setdefault("port", free_port())
        given = {"database": database, "artifact": artifact, "audit": 0, **settings}
        given = {name: value for name, value in given.items() if value is not None}
        environment = {f"TRANSCENDENT_GATE_{name.upper()}": str(value) for name, value in given.items()}
        self.process = self._start(environment, log)
        self.address = f"http://127.0.0.1:{self.port}"

    def _start(self, environment: dict[str, str], log: Path) -> Any:
        command = [sys.executable, "-m", "transcendent", "gate", "serve"]
        with log.open("ab") as file:
            return subprocess.Popen(command, env={**os.environ, **environment}, stderr=file, stdout=file)

    def wait(self, seconds: float = 60) -> "Gate":
        """Wait until it is ready."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            if self.ready:
                return self
            time.sleep(0.05)
        self.process.kill()
        raise RuntimeError(f"the gate did not start:\n{self.log.read_text()}")

    @property
    def ready(self) -> bool:
        """Whether it answers that it is ready."""
        try:
            return bool(httpx2.get(f"{self.address}/readyz").status_code == 200)
        except httpx2.HTTPError:
            return False

    def stop(self, how: int = signal.SIGTERM) -> int:
        """Send a signal, and return the exit code."""
        self.process.send_signal(how)
        return int(self.process.wait(40))
