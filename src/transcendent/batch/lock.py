"""A lock, so that one run at a time writes to a folder."""

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
    """Lock a local folder for this run; raise if another run has locked it.

    The kernel holds the lock, on a file that names the holder, and releases it however the process ends.
    Other file systems and Windows have no such lock: there, nothing is locked.
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
            os.unlink(path)  # before the release, so that a waiting run sees that its file is gone
        os.close(handle)


def _acquire(path: str) -> int:
    import fcntl

    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(handle, path):
                os.ftruncate(handle, 0)  # a killed run may have left its name
                started = datetime.now(UTC).isoformat(timespec="seconds")
                holder = {"host": node(), "pid": os.getpid(), "started": started}
                os.write(handle, json.dumps(holder).encode())
                return handle
        except BlockingIOError:
            holder_name = _describe(os.pread(handle, 1 << 12, 0))
            os.close(handle)
            raise BatchError(
                f"{os.path.dirname(path)} is in use by {holder_name}. Wait until that run has ended, or "
                "choose another folder."
            ) from None
        except OSError:
            os.close(handle)
            raise
        os.close(handle)


def _is_at(handle: int, path: str) -> bool:
    """Return whether the path still names this file: an earlier holder may have removed it."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _describe(content: bytes) -> str:
    try:
        holder = json.loads(content)
        return f"process {holder['pid']} on {holder['host']}, since {holder['started']}"
    except (ValueError, KeyError, TypeError):  # the holder has not written its name yet
        return "another run"
