"""Parquet files of the output."""

import hashlib
from contextlib import ExitStack, suppress
from typing import Any

from transcendent._utils.extras import extra
from transcendent.batch.outputs import Folder

_BYTES_AT_ONCE = 1 << 24


def open_writer(file: Any, schema: Any) -> Any:
    """Return a Parquet writer of decisions, with dictionaries where values repeat."""
    repeat = [name for name in schema.names if name not in ("id", "row")]
    vary = [name for name in schema.names if name != "model"]
    parquet = extra("pyarrow.parquet", "dask")
    return parquet.ParquetWriter(file, schema, use_dictionary=repeat, write_statistics=vary)


class ParquetOutput(ExitStack):
    """A Parquet file that is opened when there are rows to write, and appears when it is complete."""

    def __init__(self, out: Folder, name: str) -> None:
        super().__init__()
        self.out, self.name, self.rows = out, name, 0
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
            self.stream = _Digesting(self.enter_context(self.out.writing(self.name)))
            self.writer = open_writer(arrow.PythonFile(self.stream, mode="w"), table.schema)
            self.callback(_abandon, self.writer)
        self.writer.write_table(table)
        self.waiting.clear()

    def written(self) -> dict[str, Any] | None:
        """Write the last rows; return length and SHA-256 of all before the footer, None without rows."""
        if self.waiting:
            self._write_waiting()
        if self.stream is None:
            return None
        return {"bytes": self.stream.bytes, "sha256": self.stream.sha256.hexdigest()}

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
    """A stream that counts the data written to it, and computes their digest."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.sha256, self.bytes = stream, hashlib.sha256(), 0

    def write(self, data: Any) -> Any:
        self.sha256.update(data)
        self.bytes += len(data)
        return self.stream.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
