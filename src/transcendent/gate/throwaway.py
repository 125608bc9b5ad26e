"""Processes that end with this one, however it ends, and a throwaway PostgreSQL server.

Each process has a keeper, which is this file run as a script: it holds the end of a pipe that the kernel
closes with this process, even after a kill, and ends the process then. Nothing from a terminal reaches it.
"""

import os
import pwd
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from transcendent.errors import TranscendentError

_PLACES = (
    *("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "usr/local/pgsql/bin"),
    *("opt/homebrew/opt/postgresql*/bin", "usr/local/opt/postgresql*/bin"),
)
_MISSING = (
    "PostgreSQL is needed, and its programs initdb and postgres were not found. Install it: apt install "
    "postgresql (Debian, Ubuntu), dnf install postgresql-server (Fedora, RHEL), brew install postgresql "
    "(macOS). Or name an empty database: --database postgresql://user@host/name"
)


class DemoError(TranscendentError):
    """The demo cannot run."""


class KeptProcess:
    """A process that ends with this one, by the signal ``stop``; then a ``folder`` of its own is removed.

    Its log is a file with the process's ``name`` beside ``log``. It runs as ``user``, by default this one.
    """

    def __init__(
        self, log: Path, command: Sequence[str], stop: int, user: int | None = None, folder: str = ""
    ) -> None:
        self._log = log
        keeper = [sys.executable, "-I", __file__, str(int(stop)), str(user or ""), folder]
        with log.open("wb") as file:
            self._keeper = subprocess.Popen(
                [*keeper, *command], stdin=subprocess.PIPE, stdout=file, stderr=file, start_new_session=True
            )

    def check(self) -> None:
        """Raise if the process has ended."""
        if self._keeper.poll() is not None:
            said = self._log.read_text(errors="replace").splitlines()[-12:]
            raise DemoError("\n".join([f"{self._log.stem} has ended:", *said]))

    def close(self) -> None:
        """End the process."""
        if self._keeper.stdin is not None:
            self._keeper.stdin.close()
        self._keeper.wait()


def start_server(folder: Path, data: Path) -> tuple[KeptProcess, str]:
    """Start a PostgreSQL server with its socket in a folder, and return its URL.

    It has no address in any network, and only its user may enter the folder: nobody else reaches it.
    """
    binaries, user = find_binaries(), _server_user()
    for each in (folder, data):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chown(each, *(user or (-1, -1)))
    options = ("--auth=trust", "--username=demo", "--encoding=UTF8", "--locale=C", "--no-sync")
    initialise = [f"{binaries}/initdb", "-D", str(data), *options]
    serve = [f"{binaries}/postgres", "-D", str(data), "-k", str(folder), "-c", "listen_addresses="]
    both = f"cd / && {shlex.join(initialise)} && exec {shlex.join(serve)}"
    log = folder / "postgresql.log"
    server = KeptProcess(log, ["sh", "-c", both], signal.SIGINT, user[0] if user else None, str(folder))
    return server, f"postgresql://demo@/postgres?host={folder}"


def find_binaries() -> Path:
    """Return the folder with the newest of PostgreSQL's programs that is installed."""
    places = [place for pattern in _PLACES for place in Path("/").glob(pattern)]
    places += [Path(each) for each in os.environ.get("PATH", "").split(os.pathsep)]
    found = [each.resolve() for each in places if (each / "initdb").exists() and (each / "postgres").exists()]
    if not found:
        raise DemoError(_MISSING)
    return max(found, key=lambda each: [int(number) for number in re.findall("[0-9]+", str(each))])


def _server_user() -> tuple[int, int] | None:
    """Return user and group of PostgreSQL, which refuses to run as root; None if it may run as this user."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)[2:4]
    raise DemoError("PostgreSQL refuses to run as root: run the demo as another user.")


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _keep(stop: int, user: str, folder: str, command: Sequence[str]) -> None:
    """Run a command until the input is closed, end it then, and remove a folder."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    given: dict[str, Any] = {"stdin": subprocess.DEVNULL, "process_group": 0}
    if user:
        given |= {"user": int(user), "group": pwd.getpwuid(int(user)).pw_gid, "extra_groups": []}
    process = subprocess.Popen(command, **given)
    while not (closed := select.select([0], [], [], 0.2)[0]) and process.poll() is None:
        pass
    with suppress(ProcessLookupError):
        os.killpg(process.pid, stop)
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if closed and folder:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _keep(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
