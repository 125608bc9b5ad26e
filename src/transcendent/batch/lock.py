"""One run at a time writes to a folder."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from platform import node
from typing import Any

from transcendent.batch.places import is_local
from transcendent.errors import BatchError


@contextmanager
def sole_writer(filesystem: Any, folder: str) -> Iterator[None]:
    """Hold a local folder for this run, or refuse if another run holds it.

    The lock is the kernel's, on a file that names its holder: it ends with the process that holds it,
    however that ends. Other file systems have no such lock, nor has Windows; nothing is held there.
    """
    if sys.platform == "win32" or not is_local(filesystem):
        yield
        return
    path = f"{folder}/_lock"
    handle = _acquire(path)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            os.unlink(path)  # while it is held: a run that has opened it finds that it is gone
        os.close(handle)


def _acquire(path: str) -> int:
    import fcntl

    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(handle, path):
                os.ftruncate(handle, 0)  # a run that was killed left its own
                started = datetime.now(UTC).isoformat(timespec="seconds")
                holder = {"host": node(), "pid": os.getpid(), "started": started}
                os.write(handle, json.dumps(holder).encode())
                return handle
        except BlockingIOError:
            said = _said(os.pread(handle, 1 << 12, 0))
            os.close(handle)
            raise BatchError(
                f"{os.path.dirname(path)} is being written to by {said}. Wait until that run has ended, or "
                "give another folder."
            ) from None
        except OSError:
            os.close(handle)
            raise
        os.close(handle)


def _is_at(handle: int, path: str) -> bool:
    """Whether the file is still the one of that name: an earlier holder may have removed it."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _said(content: bytes) -> str:
    try:
        holder = json.loads(content)
        return f"process {holder['pid']} on {holder['host']}, since {holder['started']}"
    except (ValueError, KeyError, TypeError):  # it has only just begun
        return "another run"
