"""The work to do: the files of a table, cut into parts."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from transcendent._utils.extras import extra
from transcendent.batch.patience import passes, patiently
from transcendent.batch.places import open_to_read
from transcendent.errors import TableRefusedError

Digest = Literal["footer", "content"]

FILES_AT_ONCE = 16
_CHUNK = 1 << 22


@dataclass(frozen=True)
class InputFile:
    """A Parquet file of the table; its name is relative to the table.

    ``footer`` is the digest of its size and footer, which holds the place, size and statistics of all its
    columns. ``digest`` identifies the file in later runs: it is ``footer``, or the digest of all content.
    """

    path: str
    name: str
    footer: str
    digest: str
    group_rows: tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """Consecutive row groups of one file, from ``first`` to before ``stop``: the work of one task.

    ``name`` is the output file, relative to the output folder; ``first_row`` counts rows of the input file.
    """

    file: InputFile
    name: str
    first: int
    stop: int
    first_row: int
    rows: int


def plan_parts(
    filesystem: Any, named: list[tuple[str, str]], digest: Digest, rows_per_task: int
) -> tuple[list[Part], Any]:
    """Return the parts of a table, of files with their paths and names, and the schema of its first file."""
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        looked = list(
            pool.map(partial(patiently, filesystem, _look, filesystem, digest), *zip(*named, strict=True))
        )
    if broken := [found for found in looked if isinstance(found, str)]:
        more = f" And {len(broken) - 5} more." if len(broken) > 5 else ""
        raise TableRefusedError(" ".join(broken[:5]) + more + " Nothing was decided.")
    files = [found for found in looked if isinstance(found, InputFile)]
    by_name: dict[str, Part] = {}
    for part in (part for file in files for part in _cut(file, rows_per_task)):
        other = by_name.setdefault(part.name, part)
        if other is not part:
            raise TableRefusedError(
                f"{other.file.name} and {part.file.name} would both be written to {part.name}. Rename one."
            )
    with open_to_read(filesystem, files[0].path) as opened:
        return list(by_name.values()), extra("pyarrow.parquet", "dask").read_schema(opened)


def _look(filesystem: Any, digest: Digest, path: str, name: str) -> InputFile | str:
    """Return a file with its digests and row groups, or a sentence that says why it cannot be read."""
    try:
        with open_to_read(filesystem, path) as opened:
            footer = footer_digest(opened)
            known_by = _digest(opened, opened.size()) if digest == "content" else footer
            metadata = extra("pyarrow.parquet", "dask").read_metadata(opened)
            rows = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
    except (OSError, ValueError) as error:
        if passes(filesystem, error):
            raise
        return f"{path} cannot be read: {str(error).rstrip('.')}."
    return InputFile(path, name, footer, known_by, rows)


def _cut(file: InputFile, rows_per_task: int) -> Iterator[Part]:
    """Yield parts: consecutive row groups with at most ``rows_per_task`` rows, or one larger row group."""
    first = first_row = rows = 0
    stem, last = file.name.removesuffix(".parquet"), len(file.group_rows)
    for group, more in enumerate(file.group_rows):
        if rows and rows + more > rows_per_task:
            yield Part(file, f"{stem}.{first}-{group}.parquet", first, group, first_row, rows)
            first, first_row, rows = group, first_row + rows, 0
        rows += more
    if rows:
        yield Part(file, f"{stem}.{first}-{last}.parquet", first, last, first_row, rows)


def footer_digest(opened: Any) -> str:
    """Return the SHA-256 of an open Parquet file's size and footer."""
    size, start = opened.size(), data_length(opened)
    opened.seek(start)
    return hashlib.sha256(size.to_bytes(8, "little") + opened.read(size - 8 - start)).hexdigest()


def data_digest(opened: Any) -> str:
    """Return the SHA-256 of everything before an open Parquet file's footer."""
    return _digest(opened, data_length(opened))


def data_length(opened: Any) -> int:
    """Return where an open Parquet file's footer begins; its length and ``PAR1`` follow it."""
    size: int = opened.size()
    opened.seek(max(0, size - 8))
    end = opened.read(8)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != b"PAR1" or length + 8 > size:
        raise ValueError("it does not end like a Parquet file: it is truncated, or of another format.")
    return size - 8 - length


def _digest(opened: Any, stop: int) -> str:
    digest = hashlib.sha256()
    opened.seek(0)
    for start in range(0, stop, _CHUNK):
        digest.update(opened.read(min(_CHUNK, stop - start)))
    return digest.hexdigest()
