"""The parts of a table, each read, decided and written by one task; a task may safely run twice."""

import json
from contextlib import closing
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np

from transcendent._utils import parallel
from transcendent._utils.arrays import AnyArray, encode_labels
from transcendent._utils.extras import extra
from transcendent._utils.files import is_about_writing
from transcendent._utils.provenance import versions
from transcendent.batch.columns import decision_table, named_by_row
from transcendent.batch.outputs import Folder
from transcendent.batch.patience import patiently
from transcendent.batch.places import is_store, open_to_read
from transcendent.batch.plan import Part
from transcendent.batch.rows import REASONS, ArrowRows
from transcendent.batch.writing import ParquetOutput
from transcendent.decisions import Decisions, declared
from transcendent.errors import BatchError, WorkerDiedError
from transcendent.tables.bad_rows import decide_rows

RECORD = b"transcendent"


@dataclass(frozen=True)
class TableJob:
    """The settings that all parts share.

    ``digest`` identifies the rejector; ``written_by`` are the versions that wrote its artifact.
    """

    rejector: Any
    digest: str
    written_by: dict[str, str] | None
    reader: ArrowRows
    identifier: str | None
    p_values: bool
    source: Any
    out: Folder

    @property
    def remote(self) -> Any:
        """The file system that may be busy or out of reach: an object store, if there is one."""
        return self.source if is_store(self.source) else self.out.filesystem


@dataclass(frozen=True)
class Failure:
    """The reason why a part was not decided; ``no_room`` if nothing more can be written."""

    message: str
    no_room: bool = False


def decide_parts(
    job: TableJob, parts: list[Part], records: dict[str, dict[str, Any]], n_jobs: int | None, verbose: bool
) -> None:
    """Decide parts and add their records; if one fails, the others are still decided."""
    failed: list[Failure] = []
    done = rejected = 0
    kept = f"Finished parts are kept in {job.out.path}; the same call resumes from there."
    try:
        tasks = takewhile(
            lambda _: not any(failure.no_room for failure in failed), ((part,) for part in parts)
        )
        rows = sum(part.rows for part in parts)
        with (
            parallel.Progress("deciding", rows, verbose=verbose, unit="row") as progress,
            closing(parallel.stream(_decide_part, tasks, shared=(job,), n_jobs=n_jobs)) as results,
        ):
            for result, part in zip(results, parts, strict=False):  # to the end of the results
                if isinstance(result, Failure):
                    failed.append(result)
                    continue
                records[part.name] = result
                done += part.rows
                rejected += sum(result["objects"]) - sum(result["accepted"])
                progress.show(done, f"{rejected / done:.1%} rejected")
    except WorkerDiedError as error:
        raise BatchError(f"{error} {kept}") from error
    if failed:
        said = " ".join(failure.message for failure in failed[:3])
        more = f" And {len(failed) - 3} more." if len(failed) > 3 else ""
        raise BatchError(f"{len(failed)} of {len(parts)} parts failed. {said}{more} {kept}")


def _decide_part(job: TableJob, part: Part) -> dict[str, Any] | Failure:
    """Decide the rows of a part and write the decisions; return its record, or the reason for a failure."""
    try:
        record: dict[str, Any] = patiently(job.remote, _attempt, job, part)
        return record
    except Exception as error:  # detectors raise anything, and the other parts are still to be decided
        full = isinstance(error, OSError) and is_about_writing(error)
        where = f"{job.out.path}/{part.name}" if full else part.file.path
        said = str(error).rstrip(".")
        return Failure(f"{where}, row groups {part.first} to {part.stop - 1}: {said}.", full)


def _attempt(job: TableJob, part: Part) -> dict[str, Any]:
    """Decide the rows of a part, write the decisions, and return its record."""
    decided = ParquetOutput(job.out, part.name)
    bad = ParquetOutput(job.out, f"_bad/{part.name}")
    classes = np.asarray(declared(job.rejector).fitted.classes)
    counts = np.zeros((len(classes), 2), dtype=np.int64)  # all, and accepted
    # The two are closed, and named, in reverse: decisions appear only after their bad rows.
    with decided, bad:
        with open_to_read(job.source, part.file.path) as opened:
            ahead = is_store(job.source)
            for first_row, batch, X, faults in job.reader.batches(opened, part, job.identifier, ahead=ahead):
                names, decisions, refused = _decide(job, part, first_row, batch, X, faults)
                if refused is not None:
                    bad.write(refused)
                if decisions is not None:
                    decided.write(decision_table(names, decisions, job.digest, job.p_values))
                    counts += _counts(decisions, classes)
        if not decided.rows:
            decided.write(decision_table(names, _no_decisions(job.rejector), job.digest, job.p_values))
        record = {
            "part": part.name,
            "model": job.digest,
            "input": part.file.digest,
            "decided_by": versions("lightgbm", "xgboost"),
            "model_written_by": job.written_by,
            "objects": counts[:, 0].tolist(),
            "accepted": counts[:, 1].tolist(),
            "bad": bad.rows,
            "written": decided.written(),
            "bad_written": bad.written(),
        }
        bad.finish({})
        decided.finish({RECORD: json.dumps(record)})
    return record


def _decide(
    job: TableJob, part: Part, first_row: int, batch: Any, X: Any, faults: AnyArray
) -> tuple[dict[str, Any], Decisions | None, Any]:
    """Return names of decided objects, decisions about them, and a table of bad rows; None for no rows."""
    arrow = extra("pyarrow", "dask")
    sifted = decide_rows(job.rejector.decide, X)
    decisions, refused = sifted.joined(), sifted.refused
    if job.identifier is not None:
        names = {"id": batch.column(job.identifier)}
    else:
        names = named_by_row(part.file.name, first_row, batch.num_rows)
    if not refused and not faults.any():
        return names, decisions, None
    reasons = np.array(REASONS, dtype=object)[faults]
    reasons[np.flatnonzero(faults == 0)[list(refused)]] = list(refused.values())
    bad = reasons != ""
    table = arrow.table(names | {"reason": arrow.array(reasons, arrow.string())})
    good = table.filter(arrow.array(~bad))
    return {name: good.column(name) for name in names}, decisions, table.filter(arrow.array(bad))


def _counts(decisions: Decisions, classes: AnyArray) -> AnyArray:
    """Return how many objects of each class there are, and how many of them are accepted."""
    by_class = [decisions.labels == c for c in classes]
    counts = np.array([[own.sum(), (own & decisions.accepted).sum()] for own in by_class])
    if counts[:, 0].sum() < len(decisions):
        encode_labels(decisions.labels, classes, "labels")  # says which are unknown
    return counts


def _no_decisions(rejector: Any) -> Decisions:
    """Return decisions about no objects, with the columns of this rejector's decisions."""
    none, declares = np.empty(0), declared(rejector)
    classes = np.asarray(declares.fitted.classes)
    return Decisions(
        classes[:0],
        none.astype(bool),
        none,
        none,
        classes,
        np.empty((0, len(classes))) if declares.has_p_values else None,
        none.astype(int) if declares.has_votes else None,
        doubts=none.astype(np.int8) if declares.tells_doubt else None,
    )
