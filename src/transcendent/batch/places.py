"""Where a table and its output are, on any file system."""

import os
import re
from collections import deque
from typing import Any

from transcendent._utils.extras import extra
from transcendent.errors import TableRefusedError

_STORES = {"s3", "s3a", "gcs", "gs", "abfs", "abfss", "az", "adl", "oss", "oci", "memory"}
_ENDINGS = (".parquet", ".parq", ".pq")


def locate(table: Any, out: Any, filesystem: Any) -> tuple[Any, str, Any, str]:
    """Return the file system and the path of a table and of its output; raise if one is inside the other."""
    source, where = _locate(table, filesystem)
    target, folder = _locate(out, filesystem)
    if where == folder:
        raise ValueError(f"{out} is the table itself: write to another folder.")
    real, inside = (os.path.realpath(path) if is_local(source) else path for path in (where, folder))
    if inside.startswith(f"{real}/") and not hidden(inside[len(real) + 1 :]):
        raise ValueError(f"{out} is inside the table and would become part of it: write to another folder.")
    return source, where, target, folder


def _locate(path: Any, filesystem: Any) -> tuple[Any, str]:
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


def find_files(filesystem: Any, table: str) -> list[tuple[str, str]]:
    """Return the files of a table, which is a file or a folder: their paths, and names relative to it."""
    fs = extra("pyarrow.fs", "dask")
    kind = filesystem.get_file_info(table).type
    if kind == fs.FileType.NotFound:
        raise TableRefusedError(f"{table} does not exist.")
    if kind == fs.FileType.File:
        return [(table, table.rpartition("/")[2])]
    inside = _list_visible(filesystem, table).items()
    named = [(path, name) for name, path in inside if name.lower().endswith(_ENDINGS)]
    if not named:
        raise TableRefusedError(f"{table} holds no file whose name ends in {', '.join(_ENDINGS)}.")
    return named


def _list_visible(filesystem: Any, folder: str) -> dict[str, str]:
    """Return files as `list_files`, without hidden ones; the target of several links is listed once."""
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
            if not hidden(entry.name):  # links last, so that a file inside the folder keeps its own name
                put = waiting.append if entry.is_symlink() else waiting.appendleft
                put(os.path.join(name, entry.name))
    return dict(sorted(found.items()))


def is_local(filesystem: Any) -> bool:
    """Return whether paths are on this machine, mounted file systems included."""
    return str(filesystem.type_name).startswith(("local", "py::fsspec+file", "py::fsspec+('file'"))


def is_store(filesystem: Any) -> bool:
    """Return whether this is an object store, which shows an object when it is whole, and has no rename."""
    kind = str(filesystem.type_name)
    if not kind.startswith("py::fsspec+"):
        return kind in _STORES
    return not _STORES.isdisjoint(re.findall(r"\w+", kind.removeprefix("py::fsspec+")))


def fsspec_of(filesystem: Any) -> Any:
    """Return the file system of fsspec that this one stands for, or None."""
    return getattr(getattr(filesystem, "handler", None), "fs", None)


def open_to_read(filesystem: Any, path: str) -> Any:
    """Open a file; of an object, only what is asked for is fetched, where fsspec would read far ahead."""
    if not is_store(filesystem) or (known := fsspec_of(filesystem)) is None:
        return filesystem.open_input_file(path)
    return extra("pyarrow", "dask").PythonFile(known.open(path, "rb", cache_type="none"), mode="r")


def hidden(name: str) -> bool:
    """Return whether readers of tables skip a file with this relative path."""
    return any(part.startswith((".", "_")) for part in name.split("/"))


def list_files(filesystem: Any, folder: str) -> dict[str, str]:
    """Return all files under a folder, sorted: paths by their names relative to the folder."""
    fs = extra("pyarrow.fs", "dask")
    if (known := fsspec_of(filesystem)) is not None:
        known.invalidate_cache()  # fsspec remembers listings, which others may have changed
    found = filesystem.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
    paths = sorted(info.path for info in found if info.type == fs.FileType.File)
    return {path[len(folder) :].lstrip("/"): path for path in paths}
