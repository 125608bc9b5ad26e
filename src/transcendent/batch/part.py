"""One part of a table: read, decided and written by one task, which may be done twice without harm."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from transcendent._utils.arrays import AnyArray, IntArray
from transcendent._utils.extras import extra
from transcendent._utils.files import is_about_writing
from transcendent._utils.provenance import versions
from transcendent.batch.places import aside
from transcendent.batch.plan import Part, footer_digest
from transcendent.batch.refusals import decide_rows
from transcendent.batch.rows import REASONS, Layout
from transcendent.decisions import Decisions

RECORD = b"transcendent"


@dataclass(frozen=True)
class Job:
    """What all parts have in common.

    ``digest`` is that of the rejector, ``written_by`` the versions its artifact says it was written by.
    """

    rejector: Any
    digest: str
    written_by: dict[str, str] | None
    layout: Layout
    identifier: str | None
    p_values: bool
    source: Any
    target: Any
    folder: str


@dataclass(frozen=True)
class Failure:
    """Why a part was not decided; ``no_room`` if nothing more can be written."""

    message: str
    no_room: bool = False


def decide_part(job: Job, part: Part) -> dict[str, Any] | Failure:
    """Decide the rows of a part and write what was decided; counts, or what went wrong."""
    output = _Output(job, part)
    try:
        with job.source.open_input_file(part.file.path) as opened:
            _check_unchanged(opened, part)
            for first_row, batch, with_nulls in _batches(job, part, opened):
                output.add(batch, first_row, with_nulls)
            _check_unchanged(opened, part)
        return output.commit()
    except Exception as error:  # whatever a detector raises: the other parts go on
        full = isinstance(error, OSError) and is_about_writing(error)
        where = f"{job.folder}/{part.name}" if full else part.file.path
        said = str(error).rstrip(".")
        return Failure(f"{where}, row groups {part.first} to {part.stop - 1}: {said}.", full)
    finally:
        output.discard()


def _check_unchanged(opened: Any, part: Part) -> None:
    if footer_digest(opened) != part.file.footer:
        raise ValueError("the file has changed since the run began.")


def _batches(job: Job, part: Part, opened: Any) -> Iterator[tuple[int, Any, frozenset[str]]]:
    """Batches of few rows each, the number of their first row in the file, and its columns with nulls."""
    parquet = extra("pyarrow.parquet", "dask")
    with parquet.ParquetFile(opened, page_checksum_verification=True, pre_buffer=False) as file:
        columns = list(dict.fromkeys([*job.layout.to_read(), *([job.identifier] if job.identifier else [])]))
        missing = set(columns).difference(file.schema_arrow.names)
        if missing:
            raise ValueError(f"there is no column {min(missing)!r}.")
        row = part.first_row
        with_nulls = job.layout.columns_with_nulls(file.metadata)
        for batch in file.iter_batches(
            job.layout.rows_at_once(file.metadata.row_group(part.first_with_rows)),
            row_groups=range(part.first, part.stop),
            columns=columns,
            use_threads=False,
        ):
            yield row, batch, with_nulls
            row += batch.num_rows
    if row != part.first_row + part.rows:
        raise ValueError(f"{part.rows:,} rows were announced, {row - part.first_row:,} were found.")


class _Output:
    """The decisions of a part and its bad rows, each in a file that gets its name when all is written."""

    def __init__(self, job: Job, part: Part) -> None:
        self.job, self.part = job, part
        self.decided = _Aside(job.target, f"{job.folder}/{part.name}")
        self.bad = _Aside(job.target, f"{job.folder}/_bad/{part.name}")
        self.counts = np.zeros((2, len(job.rejector.classes_)), dtype=np.int64)

    def add(self, batch: Any, first_row: int, with_nulls: frozenset[str]) -> None:
        """Decide a batch, and write what comes of it."""
        arrow = extra("pyarrow", "dask")
        X, faults = self.job.layout.rows(batch, with_nulls, self.job.identifier)
        names = _names(self.job, self.part, batch, first_row)
        decisions, refused = decide_rows(self.job.rejector, X)
        if refused or faults.any():
            reasons = np.array(REASONS, dtype=object)[faults]
            reasons[np.flatnonzero(faults == 0)[list(refused)]] = list(refused.values())
            bad = reasons != ""
            beside = names.append_column("reason", arrow.array(reasons, arrow.string()))
            self.bad.write(beside.filter(arrow.array(bad)))
            names = names.filter(arrow.array(~bad))
        if decisions is None:
            decisions = _nothing(self.job.rejector.classes_)
        codes = np.searchsorted(self.job.rejector.classes_, decisions.labels)
        self.decided.write(_table(self.job, names, decisions, codes))
        each = (codes, codes[decisions.accepted])
        self.counts += [np.bincount(some, minlength=self.counts.shape[1]) for some in each]

    def commit(self) -> dict[str, Any]:
        """Give the files their names, the decisions last: these are there only if all is."""
        objects, accepted = self.counts.tolist()
        record = {
            "part": self.part.name,
            "model": self.job.digest,
            "input": self.part.file.digest,
            "decided_by": versions("lightgbm", "xgboost"),
            "model_written_by": self.job.written_by,
            "objects": objects,
            "accepted": accepted,
            "bad": self.bad.rows,
            "sha256": self.decided.digest(),
            "bad_sha256": self.bad.digest(),
        }
        self.bad.commit({})
        self.decided.commit({RECORD: json.dumps(record)})
        return record

    def discard(self) -> None:
        """Leave nothing behind."""
        self.bad.discard()
        self.decided.discard()


class _Aside:
    """A Parquet file under a name that readers pass over, until it is complete."""

    def __init__(self, filesystem: Any, path: str) -> None:
        self.filesystem, self.path, self.aside = filesystem, path, aside(path)
        self.stream: Any = None
        self.writer: Any = None
        self.rows = 0

    def write(self, table: Any) -> None:
        """Append rows."""
        if self.writer is None:
            repeat = [name for name in table.column_names if name not in ("id", "row")]
            self.stream = _Digesting(self.filesystem.open_output_stream(self.aside))
            file = extra("pyarrow", "dask").PythonFile(self.stream, mode="w")
            parquet = extra("pyarrow.parquet", "dask")
            self.writer = parquet.ParquetWriter(file, table.schema, use_dictionary=repeat)
        self.writer.write_table(table)
        self.rows += len(table)

    def digest(self) -> str | None:
        """SHA-256 of what is written, which is all but the footer; None if there is nothing."""
        return None if self.stream is None else self.stream.sha256.hexdigest()

    def commit(self, record: dict[bytes, str]) -> None:
        """Rename it, if there is anything in it."""
        if self.writer is None:
            return
        self.writer.add_key_value_metadata(record)
        self.writer.close()
        self.stream.close()
        self.filesystem.move(self.aside, self.path)

    def discard(self) -> None:
        """Remove it."""
        if self.stream is None:
            return
        if self.writer is not None:
            with suppress(OSError, ValueError):
                self.writer.close()
            self.writer.is_open = False  # or it is closed once more when it is forgotten
        with suppress(OSError, ValueError):
            self.stream.close()
        with suppress(OSError):
            self.filesystem.delete_file(self.aside)


class _Digesting:
    """A stream that knows the digest of what went through it."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self.stream, self.sha256 = stream, hashlib.sha256()

    def write(self, data: Any) -> int:
        """Pass on."""
        self.sha256.update(data)
        written: int = self.stream.write(data)
        return written

    def tell(self) -> int:
        """Pass on."""
        position: int = self.stream.tell()
        return position

    def flush(self) -> None:
        """Pass on."""
        self.stream.flush()

    def close(self) -> None:
        """Pass on."""
        self.closed = True
        self.stream.close()


def _names(job: Job, part: Part, batch: Any, first_row: int) -> Any:
    """What the objects are called: by their own column, or by file and row."""
    arrow = extra("pyarrow", "dask")
    if job.identifier is not None:
        return arrow.table({"id": batch.column(job.identifier)})
    return arrow.table(
        {
            "file": _constant(part.file.name, batch.num_rows),
            "row": np.arange(first_row, first_row + batch.num_rows),
        }
    )


def _table(job: Job, names: Any, decisions: Decisions, codes: IntArray) -> Any:
    classes = job.rejector.classes_
    columns = {name: names.column(name) for name in names.column_names} | {
        "label": decisions.labels if classes.dtype.kind in "biuf" else _repeated(codes, classes),
        "accepted": decisions.accepted,
        "credibility": decisions.credibility,
        "confidence": decisions.confidence,
    }
    if job.p_values:
        given = decisions.to_dict()
        columns |= {name: given[name] for name in given if name.startswith("p_value[")}
    return extra("pyarrow", "dask").table(columns | {"model": _constant(job.digest, len(names))})


def _constant(text: str, n: int) -> Any:
    return _repeated(np.zeros(n, dtype=np.intp), np.array([text]))


def _repeated(codes: IntArray, values: AnyArray) -> Any:
    return extra("pyarrow", "dask").DictionaryArray.from_arrays(codes.astype(np.int32), values.astype(str))


def _nothing(classes: AnyArray) -> Decisions:
    none = np.empty(0)
    return Decisions(classes[:0], none.astype(bool), none, none, classes, np.empty((0, len(classes))))
