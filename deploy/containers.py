"""The image and its containers, by podman, for the rehearsal."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
PYTHON = "3.11"  # of Debian bookworm, which the base is made of
PACKAGES = "python3,python3-venv,ca-certificates"
LIMITS = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")
HARDENED = ("--read-only", "--cap-drop=all", "--security-opt=no-new-privileges")


def run(*command: Any, **given: Any) -> str:
    """Run a command and return what it prints; raise with what it says if it fails."""
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True, **given)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    said: str = done.stdout
    return said


def collect_wheels(folder: Path) -> int:
    """Build the project's wheel, and download those of what it needs; return their number."""
    run(sys.executable, "-m", "uv", "build", "--wheel", "--out-dir", folder, ROOT)
    (wheel,) = folder.glob("transcendent-*.whl")
    only = ("--python-version", PYTHON, "--only-binary", ":all:")
    run(sys.executable, "-m", "pip", "download", *only, "--dest", folder, f"{wheel}[gate]")
    return len(list(folder.glob("*.whl")))


def make_base(tag: str, folder: Path) -> str:
    """Make an image of Debian's Python, and return its name."""
    archive = folder / "base.tar"
    run("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", archive)
    run("podman", "import", archive, tag)
    archive.unlink()
    return tag


def build(tag: str, base: str, wheels: Path) -> str:
    """Build the image from a folder of wheels, and return its id."""
    file = ROOT / "deploy/Containerfile"
    how = ("--isolation=chroot", "--format=docker", "--timestamp=0", "--layers=false")
    run("podman", "build", *how, "--build-arg", f"BASE={base}", "--file", file, "--tag", tag, wheels)
    return run("podman", "inspect", "--format", "{{.Id}}", tag).strip()


class Containers:
    """Containers of an image on the network of the host, read-only and without capabilities.

    Parameters
    ----------
    image : str
        What they run.
    models : path
        A folder that they may read, as /models.
    **settings : object
        Settings of all of them.
    """

    def __init__(self, image: str, models: Path, **settings: Any) -> None:
        self.image, self._models, self._settings = image, models, settings
        self._names: list[str] = []

    def command(self, database: str, *arguments: Any) -> str:
        """Run a command of the gate in a container of its own, and return what it prints."""
        return run(*self._run("--rm"), *self._with(database), self.image, "gate", *arguments)

    def start(self, name: str, database: str, port: int, **settings: Any) -> None:
        """Start a gate that follows deployments."""
        given = {"host": "127.0.0.1", "port": port, **settings}
        self._names.append(name)
        run(*self._run("--detach", "--name", name), *self._with(database, **given), self.image)

    def stop(self, name: str) -> None:
        """Stop a gate by SIGTERM, and remove its container."""
        run("podman", "stop", "--time", 45, name)
        run("podman", "rm", name)
        self._names.remove(name)

    def execute(self, name: str, *command: str) -> str:
        """Run a command in a container that runs."""
        return run("podman", "exec", name, *command)

    def remove(self) -> None:
        """Remove the containers that are left."""
        for name in self._names:
            subprocess.run(["podman", "rm", "--force", "--time", "1", name], capture_output=True, check=False)

    def _run(self, *options: str) -> tuple[str, ...]:
        where = ("--network=host", f"--volume={self._models}:/models:ro")
        return ("podman", "--runtime", "runc", "run", *options, *where, *LIMITS, *HARDENED)

    def _with(self, database: str, **settings: Any) -> list[str]:
        given = {**self._settings, "database": database, **settings}
        return [f"--env=TRANSCENDENT_GATE_{name.upper()}={value}" for name, value in given.items()]


class Proxy:
    """Debian's nginx with ``deploy/nginx.conf`` and a certificate of its own."""

    def __init__(self, folder: Path, port: int, plain_port: int) -> None:
        self.folder, self.port, self._plain = folder, port, plain_port
        self.certificate = folder / "gate.pem"
        key = folder / "gate-key.pem"
        subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
        new = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
        run(*new, "-nodes", "-days", 2, *subject, "-keyout", key, "-out", self.certificate)

    @property
    def address(self) -> str:
        """Where clients find the gates."""
        return f"https://localhost:{self.port}"

    def point_to(self, *ports: int) -> None:
        """Write the configuration for gates on these ports."""
        given = (ROOT / "deploy/nginx.conf").read_text()
        lines = [each for each in given.splitlines() if "server 127.0.0.1:" not in each]
        servers = [f"    server 127.0.0.1:{port} max_fails=0;" for port in ports]
        lines[2:2] = servers
        text = (
            "\n".join(lines)
            .replace("gate.example", "localhost")
            .replace("listen 80;", f"listen {self._plain};")
        )
        text = text.replace("listen 443", f"listen {self.port}").replace("/etc/gate", str(self.folder))
        text = text.replace("/var/log/nginx", str(self.folder))
        (self.folder / "gate.conf").write_text(text)
        places = "".join(
            f"{kind}_temp_path {self.folder}/{kind};"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        user = "user root; " if os.geteuid() == 0 else ""  # others may not enter the folder
        main = f"{user}pid {self.folder}/pid; error_log {self.folder}/error.log; events {{}}\n"
        main += f"http {{ access_log off; {places} include {self.folder}/gate.conf; }}\n"
        (self.folder / "nginx.conf").write_text(main)

    def nginx(self, *options: str) -> None:
        """Run nginx: without options, start it; ``-s reload`` and ``-s stop`` are for the one that runs."""
        run("/usr/sbin/nginx", "-c", self.folder / "nginx.conf", *options)


@contextmanager
def proxy_in(folder: Path, *, port: int, plain_port: int, gates: tuple[int, ...]) -> Iterator[Proxy]:
    """Run nginx in front of gates."""
    folder.mkdir()
    proxy = Proxy(folder, port, plain_port)
    proxy.point_to(*gates)
    proxy.nginx()
    try:
        yield proxy
    finally:
        proxy.nginx("-s", "stop")


@contextmanager
def containers_of(image: str, models: Path, **settings: Any) -> Iterator[Containers]:
    """Run containers, and remove those that are left."""
    containers = Containers(image, models, **settings)
    try:
        yield containers
    finally:
        containers.remove()


@contextmanager
def folder_for_all() -> Iterator[Path]:
    """A temporary folder that other users may enter."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def wait_until(true: Any, what: str, seconds: float = 180) -> None:
    """Wait until a function returns something true."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise RuntimeError(f"{what}: not after {seconds:g} seconds")
        time.sleep(0.2)
