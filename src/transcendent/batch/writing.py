"""Files of the output, which get their names when they are complete."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from uuid import uuid4

from transcendent._utils.extras import extra

ASIDE = ".aside"

_BYTES_AT_ONCE = 1 << 24


@contextmanager
def aside(filesystem: Any, path: str) -> Iterator[Any]:
    """Open a stream to a hidden file, and rename that file at the end; an error removes it.

    `transcendent._utils.files.write_whole` does the same for local files only. On an object store a rename
    is a copy, which readers see when it is complete.
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
    """Write a JSON file."""
    with aside(filesystem, path) as file:
        file.write(json.dumps(content).encode())


def open_writer(file: Any, schema: Any) -> Any:
    """Return a Parquet writer of decisions, with dictionaries where values repeat."""
    repeat = [name for name in schema.names if name not in ("id", "row")]
    vary = [name for name in schema.names if name != "model"]
    parquet = extra("pyarrow.parquet", "dask")
    return parquet.ParquetWriter(file, schema, use_dictionary=repeat, write_statistics=vary)


class ParquetAside(ExitStack):
    """A Parquet file that is opened when there are rows to write, and named when it is complete."""

    def __init__(self, filesystem: Any, path: str) -> None:
        super().__init__()
        self.place, self.rows = (filesystem, path), 0
        self.waiting: list[Any] = []
        self.stream: Any = None
        self.writer: Any = None

    def write(self, table: Any) -> None:
        """Append rows; several batches make one row group."""
        self.waiting.append(table)
        self.rows += len(table)
        if sum(waiting.nbytes for waiting in self.waiting) >= _BYTES_AT_ONCE:
            self._write_waiting()

    def _write_waiting(self) -> None:
        arrow = extra("pyarrow", "dask")
        table = arrow.concat_tables(self.waiting)
        if self.writer is None:
            self.stream = _Digesting(self.enter_context(aside(*self.place)))
            self.writer = open_writer(arrow.PythonFile(self.stream, mode="w"), table.schema)
            self.callback(_abandon, self.writer)
        self.writer.write_table(table)
        self.waiting.clear()

    def digest(self) -> str | None:
        """Write the last rows; return the SHA-256 of everything before the footer, None without rows."""
        if self.waiting:
            self._write_waiting()
        return None if self.stream is None else self.stream.sha256.hexdigest()

    def finish(self, record: dict[bytes, str]) -> None:
        """Write the footer, if there are rows."""
        if self.writer is not None:
            self.writer.add_key_value_metadata(record)
            self.writer.close()


def _abandon(writer: Any) -> None:
    """Close a writer; if it is still open, its file will be removed."""
    with suppress(OSError, ValueError):
        writer.close()
    writer.is_open = False  # its destructor would close it a second time


class _Digesting:
    """A stream that computes the digest of the data written to it."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.sha256 = stream, hashlib.sha256()

    def write(self, data: Any) -> Any:
        self.sha256.update(data)
        return self.stream.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
