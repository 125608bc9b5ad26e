"""Where decisions are written: each file appears when it is complete, on disks and in object stores."""

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from transcendent.batch.patience import patiently
from transcendent.batch.places import fsspec_of, is_local, is_store, list_files, open_to_read

ASIDE = ".aside"


class Folder:
    """A folder on a file system that renames: files are written beside their place.

    On local file systems a file and its name are on the disk before they count, so that they outlive a loss
    of power.

    Attributes
    ----------
    leaves_halves : bool
        Whether a process that dies leaves a file which has to be removed.
    keeps_content : bool
        Whether what was written is sure to be what is read; otherwise a later run compares digests.
    """

    leaves_halves = True
    keeps_content = False

    def __init__(self, filesystem: Any, path: str) -> None:
        self.filesystem, self.path = filesystem, path

    def create(self, folders: Iterable[str] = ("",)) -> None:
        """Create folders, named relative to this one."""
        holding = set()
        for name in folders:
            path = f"{self.path}/{name}".rstrip("/")
            self.filesystem.create_dir(path, recursive=True)
            while len(path) >= len(self.path):
                path = os.path.dirname(path)
                holding.add(path)
        for path in holding:
            self._sync(path)

    def files(self) -> list[str]:
        """Return the names of all files, relative to the folder, from one listing."""
        return list(patiently(self.filesystem, list_files, self.filesystem, self.path))

    def open(self, name: str) -> Any:
        """Open a file to read."""
        return open_to_read(self.filesystem, f"{self.path}/{name}")

    def delete(self, name: str) -> None:
        """Remove a file."""
        patiently(self.filesystem, self.filesystem.delete_file, f"{self.path}/{name}")

    @contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        """Open a stream to a hidden file, and rename that file at the end; an error removes it.

        `transcendent._utils.files.write_whole` does the same for local files only.
        """
        folder, own = os.path.split(f"{self.path}/{name}")
        beside = f"{folder}/.{own}.{uuid4().hex}{ASIDE}"
        stream = self.filesystem.open_output_stream(beside)
        try:
            yield stream
            stream.close()
            self._sync(beside)
            self.filesystem.move(beside, f"{folder}/{own}")
            self._sync(folder)
        except BaseException:
            with suppress(OSError, ValueError):
                stream.close()
            with suppress(OSError):
                self.filesystem.delete_file(beside)
            raise

    def write_json(self, name: str, content: Any) -> None:
        """Write a JSON file."""
        patiently(self.filesystem, self._write, name, json.dumps(content).encode())

    def read_json(self, name: str) -> Any:
        """Read a JSON file."""
        return json.loads(patiently(self.filesystem, self._read, name))

    def _write(self, name: str, content: bytes) -> None:
        with self.writing(name) as file:
            file.write(content)

    def _read(self, name: str) -> Any:
        with self.open(name) as file:
            return file.read()

    def _sync(self, path: str) -> None:
        if os.name == "nt" or not is_local(self.filesystem):  # Windows opens no folder
            return
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class Store(Folder):
    """A prefix of an object store, which shows an object when its upload is complete, and renames nothing.

    A file is written on this machine, and uploaded whole.
    """

    leaves_halves = False
    keeps_content = True

    def create(self, folders: Iterable[str] = ("",)) -> None:
        """Nothing: names of objects need no folders."""

    @contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        """Open a stream to a file on this machine, which is uploaded at the end, unless there is an error."""
        handle, local = tempfile.mkstemp(prefix="transcendent-")
        try:
            with os.fdopen(handle, "wb") as stream:
                yield stream
            self._upload(Path(local), f"{self.path}/{name}")
        finally:
            Path(local).unlink()

    def _upload(self, local: Path, path: str) -> None:
        if (known := fsspec_of(self.filesystem)) is not None:
            known.put_file(str(local), path)  # a stream of fsspec's would upload half a file if it is cut off
            return
        with local.open("rb") as file, self.filesystem.open_output_stream(path) as stream:
            stream.upload(file)


def output_at(filesystem: Any, path: str) -> Folder:
    """Return the output in a folder, written as its file system allows."""
    return (Store if is_store(filesystem) else Folder)(filesystem, path)
