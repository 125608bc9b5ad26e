"""Files that are written whole or not at all."""

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def is_about_writing(error: OSError) -> bool:
    """Whether there is no room, or no leave, to write."""
    return error.errno in (errno.ENOSPC, errno.EROFS, errno.EDQUOT) or "No space left" in str(error)


@contextmanager
def open_regular(path: Path, most_bytes: int) -> Iterator[BinaryIO]:
    """A file to read, if it is a regular one, which a pipe or a device is not, and not too large."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if found.st_size > most_bytes:
            reason = f"it has {found.st_size:,} bytes, more than the {most_bytes:,} that are read"
            raise OSError(errno.EFBIG, reason, str(path))
        with os.fdopen(handle, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(handle)


def write_whole(path: Path, content: bytes) -> None:
    """Write aside and rename, so that a reader never meets half a file and a failure leaves none behind."""
    _check_replaceable(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"there is no folder {path.parent}", str(path))
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(aside, mode)
        os.replace(aside, path)
    finally:
        Path(aside).unlink(missing_ok=True)


def _check_replaceable(path: Path) -> None:
    """Refuse to rename over a device, a pipe, a folder or a link: to where it leads is not ours to change."""
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        kind = "a link" if path.is_symlink() else "not a regular file"
        raise OSError(errno.EINVAL, f"it is {kind}, and is not replaced", str(path))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
