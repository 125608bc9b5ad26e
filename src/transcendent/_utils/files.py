"""Read regular files only, and write files completely or not at all."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4


def is_about_writing(error: OSError) -> bool:
    """Return whether the disk is full or read-only."""
    return error.errno in (errno.ENOSPC, errno.EROFS, errno.EDQUOT) or "No space left" in str(error)


@contextmanager
def open_regular(path: Path, max_bytes: int) -> Iterator[BinaryIO]:
    """Open a regular file for reading; refuse pipes, devices and files that are too large."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if found.st_size > max_bytes:
            reason = f"it has {found.st_size:,} bytes, more than the limit of {max_bytes:,}"
            raise OSError(errno.EFBIG, reason, str(path))
        with os.fdopen(handle, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(handle)


def write_whole(path: Path, content: bytes) -> None:
    """Write a temporary file and rename it, so readers never see half of it; replace only regular files."""
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        kind = "a link" if path.is_symlink() else "not a regular file"
        raise OSError(errno.EINVAL, f"it is {kind}, so it is not replaced", str(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"there is no folder {path.parent}", str(path))
    aside = path.parent / f".{path.name}.{uuid4().hex[:8]}"
    mode = path.stat().st_mode & 0o777 if path.exists() else None
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(aside, flags, 0o666 if mode is None else 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            aside.chmod(mode)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
