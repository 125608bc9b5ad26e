"""One part of a table: read, decided and written by one task, which may be done twice without harm."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from transcendent._utils.arrays import IntArray
from transcendent._utils.extras import extra
from transcendent._utils.files import is_about_writing
from transcendent._utils.provenance import versions
from transcendent.batch.columns import decision_table, named_by_row, open_writer
from transcendent.batch.places import aside
from transcendent.batch.plan import Part, footer_digest
from transcendent.batch.refusals import decide_rows
from transcendent.batch.rows import REASONS, Layout
from transcendent.decisions import Decisions
from transcendent.evaluators.cross import CrossConformalEvaluator
from transcendent.rejectors import Traits

RECORD = b"transcendent"

_BYTES_AT_ONCE = 1 << 24


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
    """Decide the rows of a part and write the decisions; return its record, or what went wrong."""
    decided = _ParquetAside(job.target, f"{job.folder}/{part.name}")
    bad = _ParquetAside(job.target, f"{job.folder}/_bad/{part.name}")
    classes = job.rejector.classes_
    counts = np.zeros((len(classes), 2), dtype=np.int64)  # rejected and accepted
    try:
        with decided, bad:  # which get their names in reverse: decisions are there only if all is
            with job.source.open_input_file(part.file.path) as opened:
                _check_unchanged(opened, part)
                for first_row, batch, with_nulls in _batches(job, part, opened):
                    names, decisions, refused = _decide(job, part, batch, first_row, with_nulls)
                    if refused is not None:
                        bad.write(refused)
                    if decisions is not None:
                        decided.write(decision_table(names, decisions, job.digest, job.p_values))
                        cells = 2 * np.searchsorted(classes, decisions.labels) + decisions.accepted
                        counts += np.bincount(cells, minlength=counts.size).reshape(counts.shape)
                _check_unchanged(opened, part)
            if not decided.rows:
                decided.write(decision_table(names, _no_decisions(job.rejector), job.digest, job.p_values))
            record = _record(job, part, counts, decided, bad)
            bad.finish({})
            decided.finish({RECORD: json.dumps(record)})
        return record
    except Exception as error:  # of any type, from a detector: the other parts are still decided
        full = isinstance(error, OSError) and is_about_writing(error)
        where = f"{job.folder}/{part.name}" if full else part.file.path
        said = str(error).rstrip(".")
        return Failure(f"{where}, row groups {part.first} to {part.stop - 1}: {said}.", full)


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


def _decide(
    job: Job, part: Part, batch: Any, first_row: int, with_nulls: frozenset[str]
) -> tuple[dict[str, Any], Decisions | None, Any]:
    """Return names of decided objects, decisions about them, and a table of bad rows; None for no rows."""
    arrow = extra("pyarrow", "dask")
    X, faults = job.layout.rows(batch, with_nulls, job.identifier)
    if job.identifier is not None:
        names = {"id": batch.column(job.identifier)}
    else:
        names = named_by_row(part.file.name, first_row, batch.num_rows)
    decisions, refused = decide_rows(job.rejector, X)
    if not refused and not faults.any():
        return names, decisions, None
    reasons = np.array(REASONS, dtype=object)[faults]
    reasons[np.flatnonzero(faults == 0)[list(refused)]] = list(refused.values())
    bad = reasons != ""
    table = arrow.table(names | {"reason": arrow.array(reasons, arrow.string())})
    good = table.filter(arrow.array(~bad))
    return {name: good.column(name) for name in names}, decisions, table.filter(arrow.array(bad))


def _record(
    job: Job, part: Part, counts: IntArray, decided: "_ParquetAside", bad: "_ParquetAside"
) -> dict[str, Any]:
    return {
        "part": part.name,
        "model": job.digest,
        "input": part.file.digest,
        "decided_by": versions("lightgbm", "xgboost"),
        "model_written_by": job.written_by,
        "objects": counts.sum(axis=1).tolist(),
        "accepted": counts[:, 1].tolist(),
        "bad": bad.rows,
        "sha256": decided.digest(),
        "bad_sha256": bad.digest(),
    }


def _no_decisions(rejector: Any) -> Decisions:
    """Return decisions about no objects, with the columns that this rejector's have."""
    classes, none = rejector.classes_, np.empty(0)
    p_values = np.empty((0, len(classes))) if Traits.of(rejector).has_p_values else None
    votes = none.astype(int) if isinstance(rejector, CrossConformalEvaluator) else None
    doubts = none.astype(np.int8) if Traits.of(rejector).tells_doubt else None
    return Decisions(classes[:0], none.astype(bool), none, none, classes, p_values, votes, doubts=doubts)


class _ParquetAside(ExitStack):
    """A Parquet file that is opened with its first rows, and gets its name when it is whole."""

    def __init__(self, filesystem: Any, path: str) -> None:
        super().__init__()
        self.place, self.rows = (filesystem, path), 0
        self.waiting: list[Any] = []
        self.stream: Any = None
        self.writer: Any = None

    def write(self, table: Any) -> None:
        """Append rows; those of several batches make a row group."""
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
        """Write the last rows; return the SHA-256 of all before the footer, None if there is nothing."""
        if self.waiting:
            self._write_waiting()
        return None if self.stream is None else self.stream.sha256.hexdigest()

    def finish(self, record: dict[bytes, str]) -> None:
        """Write the footer, if there are rows."""
        if self.writer is not None:
            self.writer.add_key_value_metadata(record)
            self.writer.close()


def _abandon(writer: Any) -> None:
    """Close a writer, whose file is of no use if it is still open."""
    with suppress(OSError, ValueError):
        writer.close()
    writer.is_open = False  # otherwise it is closed once more when it is deleted


class _Digesting:
    """A stream with the digest of what was written to it."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.sha256 = stream, hashlib.sha256()

    def write(self, data: Any) -> Any:
        """Write, and add to the digest."""
        self.sha256.update(data)
        return self.stream.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
