"""What there is to do: the files of a table, cut into parts."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from transcendent._utils.extras import extra
from transcendent.batch.places import each_at_once, list_visible
from transcendent.errors import TableRefusedError

Digest = Literal["footer", "content"]

MAGIC = b"PAR1"
_CHUNK = 1 << 22
_ENDINGS = (".parquet", ".parq", ".pq")


@dataclass(frozen=True)
class InputFile:
    """A Parquet file: where it is, what it is called seen from the table, and what its footer says.

    ``footer`` is the digest of its size and footer, which holds the place, size and statistics of all its
    columns; ``digest``, by which a later run knows the file again, is that one or the digest of all content.
    """

    path: str
    name: str
    footer: str
    digest: str
    group_rows: tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """Consecutive row groups of one file: what one task decides, and writes to one file."""

    file: InputFile
    first: int
    stop: int

    @property
    def name(self) -> str:
        """What its output is called, seen from the folder of the output."""
        return f"{self.file.name.removesuffix('.parquet')}.{self.first}-{self.stop}.parquet"

    @property
    def first_row(self) -> int:
        """Number of its first row in the file."""
        return sum(self.file.group_rows[: self.first])

    @property
    def first_with_rows(self) -> int:
        """Its first row group that is not empty."""
        return next(group for group in range(self.first, self.stop) if self.file.group_rows[group])

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(self.file.group_rows[self.first : self.stop])


def find_files(filesystem: Any, table: str, digest: Digest) -> tuple[list[InputFile], Any]:
    """The files of a table, which is one or a folder of them, and the columns of the first."""
    fs = extra("pyarrow.fs", "dask")
    kind = filesystem.get_file_info(table).type
    if kind == fs.FileType.NotFound:
        raise TableRefusedError(f"{table} does not exist.")
    if kind == fs.FileType.File:
        named = [(table, table.rpartition("/")[2])]
    else:
        inside = list_visible(filesystem, table).items()
        named = [(path, name) for name, path in inside if name.lower().endswith(_ENDINGS)]
    if not named:
        raise TableRefusedError(f"{table} has no file in it whose name ends in {', '.join(_ENDINGS)}.")
    looked = each_at_once(partial(_look, filesystem, digest), *zip(*named, strict=True))
    broken = [found for found in looked if isinstance(found, str)]
    if broken:
        more = f" And {len(broken) - 5} more." if len(broken) > 5 else ""
        raise TableRefusedError(" ".join(broken[:5]) + more + " Nothing was decided.")
    files = [found for found in looked if isinstance(found, InputFile)]
    with filesystem.open_input_file(files[0].path) as opened:
        return files, extra("pyarrow.parquet", "dask").read_schema(opened)


def cut(files: list[InputFile], rows_per_task: int) -> list[Part]:
    """Row groups in order, joined as long as they have no more rows together than asked for."""
    parts = [part for file in files for part in _parts(file, rows_per_task)]
    by_name: dict[str, Part] = {}
    for part in parts:
        other = by_name.setdefault(part.name, part)
        if other is not part:
            raise TableRefusedError(
                f"{other.file.name} and {part.file.name} would both be written to {part.name}. Rename one."
            )
    return parts


def _parts(file: InputFile, rows_per_task: int) -> Iterator[Part]:
    first = rows = 0
    for group, more in enumerate(file.group_rows):
        if rows and rows + more > rows_per_task:
            yield Part(file, first, group)
            first, rows = group, 0
        rows += more
    if rows:
        yield Part(file, first, len(file.group_rows))


def footer_digest(opened: Any) -> str:
    """SHA-256 of an open Parquet file's size and footer."""
    size, start = opened.size(), _footer_start(opened)
    opened.seek(start)
    return hashlib.sha256(size.to_bytes(8, "little") + opened.read(size - 8 - start)).hexdigest()


def data_digest(opened: Any) -> str:
    """SHA-256 of all that comes before an open Parquet file's footer."""
    return _digest(opened, _footer_start(opened))


def _footer_start(opened: Any) -> int:
    size: int = opened.size()
    opened.seek(max(0, size - 8))
    end = opened.read(8)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != MAGIC or length + 8 > size:
        raise ValueError("it does not end like a Parquet file: it is cut off, or something else.")
    return size - 8 - length


def _digest(opened: Any, stop: int) -> str:
    digest = hashlib.sha256()
    opened.seek(0)
    for start in range(0, stop, _CHUNK):
        digest.update(opened.read(min(_CHUNK, stop - start)))
    return digest.hexdigest()


def _look(filesystem: Any, digest: Digest, path: str, name: str) -> InputFile | str:
    """What is known of a file, or a sentence on why it cannot be read."""
    parquet = extra("pyarrow.parquet", "dask")
    try:
        with filesystem.open_input_file(path) as opened:
            footer = footer_digest(opened)
            known_by = _digest(opened, opened.size()) if digest == "content" else footer
            metadata = parquet.read_metadata(opened)
            rows = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
    except (OSError, ValueError) as error:
        return f"{path} cannot be read: {str(error).rstrip('.')}."
    return InputFile(path, name, footer, known_by, rows)
