"""Files and folders on whatever file system they are."""

import os
from typing import Any
from uuid import uuid4

from transcendent.extras import extra


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


def list_files(filesystem: Any, folder: str) -> list[Any]:
    """All files in a folder, in depth, in order of their paths."""
    fs = extra("pyarrow.fs", "dask")
    found = filesystem.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
    return sorted((info for info in found if info.type == fs.FileType.File), key=lambda info: str(info.path))


def hidden(name: str) -> bool:
    """Whether readers of tables pass over a file of this relative path."""
    return any(part.startswith((".", "_")) for part in name.split("/"))


def aside(path: str) -> str:
    """A name in the same folder that readers pass over, and no other process uses."""
    folder, name = os.path.split(path)
    return f"{folder}/.{name}.{uuid4().hex}{ASIDE}"


ASIDE = ".aside"


def write_json_whole(filesystem: Any, path: str, content: bytes) -> None:
    """Write aside and rename."""
    beside = aside(path)
    with filesystem.open_output_stream(beside) as file:
        file.write(content)
    filesystem.move(beside, path)
