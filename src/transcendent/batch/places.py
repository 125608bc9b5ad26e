"""Files and folders on whatever file system they are."""

import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from uuid import uuid4

from transcendent._utils.extras import extra

ASIDE = ".aside"

_AT_ONCE = 16

T = TypeVar("T")


def locate(path: Any, filesystem: Any) -> tuple[Any, str]:
    """A pyarrow file system, and the path on it, of a local path or a URI."""
    fs = extra("pyarrow.fs", "dask")
    if filesystem is not None:
        if not isinstance(filesystem, fs.FileSystem):
            filesystem = fs.PyFileSystem(fs.FSSpecHandler(filesystem))
        return filesystem, str(path).rstrip("/")
    if "://" not in str(path):
        return fs.LocalFileSystem(), os.path.abspath(path)
    try:
        found, inside = fs.FileSystem.from_uri(str(path))
    except extra("pyarrow", "dask").ArrowInvalid:
        known, inside = extra("fsspec", "dask").url_to_fs(str(path))
        found = fs.PyFileSystem(fs.FSSpecHandler(known))
    return found, inside.rstrip("/")


def list_files(filesystem: Any, folder: str) -> dict[str, str]:
    """All files in a folder, in depth and in order: names seen from the folder, and paths."""
    fs = extra("pyarrow.fs", "dask")
    found = filesystem.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
    paths = sorted(info.path for info in found if info.type == fs.FileType.File)
    return {path[len(folder) :].lstrip("/"): path for path in paths}


def is_local(filesystem: Any) -> bool:
    """Whether paths are those of this machine's own file systems, mounted ones included."""
    return str(filesystem.type_name).startswith(("local", "py::fsspec+file", "py::fsspec+('file'"))


def list_visible(filesystem: Any, folder: str) -> dict[str, str]:
    """As `list_files`, without hidden ones; a file or folder to which several links lead is there once."""
    if not is_local(filesystem):
        return {name: path for name, path in list_files(filesystem, folder).items() if not hidden(name)}
    found, seen = {}, set[str]()
    waiting = deque([""])
    while waiting:
        name = waiting.popleft()
        path = os.path.join(folder, name)
        real = os.path.realpath(path)
        if real in seen:
            continue
        seen.add(real)
        if not os.path.isdir(path):
            found[name] = path
            continue
        for entry in os.scandir(path):
            if not hidden(entry.name):  # links come last: what has a name of its own here goes by that
                put = waiting.append if entry.is_symlink() else waiting.appendleft
                put(os.path.join(name, entry.name))
    return dict(sorted(found.items()))


def each_at_once(function: Callable[..., T], *arguments: Iterable[Any]) -> list[T]:
    """Results of a function that waits for files, some calls at a time."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(function, *arguments))


def hidden(name: str) -> bool:
    """Whether readers of tables pass over a file of this relative path."""
    return any(part.startswith((".", "_")) for part in name.split("/"))


@contextmanager
def aside(filesystem: Any, path: str) -> Iterator[Any]:
    """Open a stream to a name that readers pass over, and rename the file at the end; an error removes it.

    All files of a batch are written so: `transcendent._utils.files.write_whole` knows local files only. On an
    object store a rename is a copy, which readers see when it is complete.
    """
    folder, name = os.path.split(path)
    beside = f"{folder}/.{name}.{uuid4().hex}{ASIDE}"
    stream = filesystem.open_output_stream(beside)
    try:
        yield stream
        stream.close()
        filesystem.move(beside, path)
    except BaseException:
        with suppress(OSError, ValueError):
            stream.close()
        with suppress(OSError):
            filesystem.delete_file(beside)
        raise


def write_json(filesystem: Any, path: str, content: Any) -> None:
    """Write a JSON file, by way of `aside`."""
    with aside(filesystem, path) as file:
        file.write(json.dumps(content).encode())
