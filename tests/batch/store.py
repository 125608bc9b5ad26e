"""A real object store on this machine: S3, served from a folder, which can be killed and started again."""

import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import s3fs

KEYS = ("KEY", "SECRET")
RCLONE = Path(sys.executable).with_name("rclone")


class ObjectStore:
    """What is put into ``bucket`` is a file of ``objects``."""

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self.objects = folder / "objects" / "bucket"
        self.objects.mkdir(parents=True, exist_ok=True)
        self.log = folder / "rclone.log"
        with socket.socket() as free:
            free.bind((host, 0))
            self.address = f"{host}:{free.getsockname()[1]}"
        self.process: Any = None
        self.start()

    def start(self) -> None:
        serve = ("serve", "s3", "--addr", self.address, "--auth-key", ",".join(KEYS))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [RCLONE, *serve, "--config", "/dev/null", self.objects.parent], stdout=log, stderr=log
            )
        end = time.monotonic() + 60
        while time.monotonic() < end:
            host, port = self.address.split(":")
            with suppress(OSError), socket.create_connection((host, int(port))):
                return
            time.sleep(0.05)
        raise RuntimeError(f"nothing listens on {self.address}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def options(self) -> dict[str, Any]:
        """With which fsspec finds it."""
        return {"key": KEYS[0], "secret": KEYS[1], "endpoint_url": f"http://{self.address}"}

    def filesystem(self) -> Any:
        """A new client of it, as each process has its own."""
        return s3fs.S3FileSystem(**self.options, skip_instance_cache=True)
