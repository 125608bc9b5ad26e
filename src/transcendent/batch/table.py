"""Decide a table: plan it, hand out its parts, and count; or resume where an earlier run stopped."""

import os
import time
from collections.abc import Collection, Iterable
from contextlib import closing, nullcontext
from copy import copy
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from pickle import PicklingError
from typing import Any, get_args
from uuid import uuid4

import joblib
import numpy as np

from transcendent._utils import parallel
from transcendent._utils.arrays import AnyArray
from transcendent.artifacts import Artifact, open_artifact
from transcendent.batch.folder import MANIFEST, claim, finished, sweep
from transcendent.batch.lock import sole_writer
from transcendent.batch.part import Failure, Job, decide_part
from transcendent.batch.places import hidden, is_local, list_files, locate, write_json
from transcendent.batch.plan import Digest, Part, cut, find_files
from transcendent.batch.rows import check_column, find_layout
from transcendent.decisions import Rejector, summary_as_dict, summary_as_text
from transcendent.errors import BatchError, WorkerDiedError
from transcendent.judging.judge import ScoreEvaluator
from transcendent.rejectors import Traits, set_quorum, silence


@dataclass(frozen=True, repr=False)
class TableDecisions:
    """What was decided about a table, counted.

    Attributes
    ----------
    folder : str
        Where the decisions are.
    digest : str
        Of the rejector: that of its artifact, or of the object if it was never saved.
    classes : array of shape (classes,)
        The labels there are.
    objects, accepted : int arrays of shape (classes,)
        How many were given each label, and how many of these answers were accepted.
    bad : int
        Rows that could not be decided; ``_bad`` in the folder has them, with reasons.
    skipped : int
        Rows that an earlier run had decided.
    seconds : float
        How long this run took.
    """

    folder: str
    digest: str
    classes: AnyArray
    objects: AnyArray
    accepted: AnyArray
    bad: int
    skipped: int
    seconds: float

    @property
    def rows(self) -> int:
        """All rows of the table, bad ones included."""
        return int(self.objects.sum()) + self.bad

    @property
    def rejected(self) -> AnyArray:
        """How many answers of each label were rejected."""
        return self.objects - self.accepted

    @property
    def rejection_rate(self) -> float:
        """Share of the decided objects that were rejected; NaN when there are none."""
        return float(summary_as_dict(self.summary())["rejection_rate"])

    def summary(self) -> list[tuple[Any, int, int, int]]:
        """For each predicted class: the class, objects, accepted, rejected."""
        columns = (self.classes, self.objects, self.accepted, self.rejected)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain Python."""
        return {
            "folder": self.folder,
            "model": self.digest,
            "rows": self.rows,
            "bad": self.bad,
            "skipped": self.skipped,
            "seconds": self.seconds,
            **summary_as_dict(self.summary()),
        }

    def __repr__(self) -> str:
        kept, out = int(self.accepted.sum()), int(self.rejected.sum())
        share = f" ({self.rejection_rate:.1%})" if kept + out else ""
        headline = f"{self.rows:,} rows: {kept:,} accepted, {out:,} rejected{share}, {self.bad:,} bad"
        where = [f"bad rows, with reasons, are in {self.folder}/_bad"] if self.bad else []
        return "\n".join([headline, summary_as_text(self.summary()), *where])


def decide_table(
    rejector: Any,
    table: Any,
    out: Any,
    *,
    features: str | Collection[str] | None = None,
    values: str | None = None,
    identifier: str | None = None,
    quorum: int | None = None,
    p_values: bool = True,
    rows_per_task: int = 1_000_000,
    digest: Digest = "footer",
    n_jobs: int | None = None,
    client: Any = None,
    filesystem: Any = None,
    trusted: Collection[str] = (),
    public_key: Any = None,
    verbose: bool = True,
) -> TableDecisions:
    """Decide all rows of a Parquet table of any size, and write Parquet.

    The table is cut into parts, which any number of processes decide; each reads and decides some
    ten thousand rows at a time. Called again after an interruption, it does what is not done yet. Objects
    that were added to the table meanwhile are decided too; if others changed, it refuses.

    Parameters
    ----------
    rejector : path, Artifact or fitted rejector
        An artifact, or a rejector itself.
    table : path or URI
        A Parquet file, or a folder of them, in depth: files that end in ``.parquet``, ``.parq`` or ``.pq``,
        in capitals or not. Names that begin with ``.`` or ``_`` are passed over. Links are followed; a file
        to which several lead is decided once.
    out : path or URI
        The folder to write: for every part a file named after what it was made from, with the columns
        ``id`` (or ``file`` and ``row``), those of `Decisions.to_dict`, and ``model``, the rejector's digest.
    features : list of str, str or None
        The columns with features, in the order of ``fit``; or the name of one column that holds whole rows:
        lists of fixed size (dense), lists of the positions that are not zero (sparse), or text. By default
        the columns the rejector was fitted on.
    values : str or None
        For sparse rows, the column with lists of the values at those positions; by default all are 1.
    identifier : str or None
        The column that names objects.
    quorum : int or None
        For a `CrossConformalEvaluator`, as in its ``decide``; by default its own.
    p_values : bool
        Whether to write a p-value per class, if the rejector gives them.
    rows_per_task : int
        Row groups are joined to parts of at most this number of rows; a row group is never cut.
    digest : {"footer", "content"}
        How a later run knows whether a file has changed since it was decided: by its size and footer, or by
        all its content, which is then read once more before anything is decided.
    n_jobs : int or None
        How many processes, if there is no client; ``joblib.parallel_config`` can choose other backends.
    client : distributed.Client or None
        A Dask cluster to work on, whose workers can reach both places.
    filesystem : pyarrow or fsspec file system, or None
        Where ``table`` and ``out`` are; by default what their URIs say, or the local one.
    trusted, public_key
        For an artifact, as in `transcendent.artifacts.load`; a key for one that is given by its path.
    verbose : bool
        Whether to show progress.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa, pyarrow.parquet as pq, tempfile
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from transcendent import InductiveEvaluator
    >>> from transcendent.batch import decide_table
    >>> X, y = make_classification(3000, n_features=4, random_state=0)
    >>> ice = InductiveEvaluator(LogisticRegression(), random_state=0).fit(X[:1000], y[:1000])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     columns = {f"x{j}": X[1000:, j] for j in range(4)}
    ...     pq.write_table(pa.table({"id": np.arange(2000), **columns}), f"{folder}/new.parquet")
    ...     decided = decide_table(
    ...         ice, f"{folder}/new.parquet", f"{folder}/out", features=list(columns), identifier="id")
    ...     written = pq.read_table(f"{folder}/out")
    >>> written.column_names
    ['id', 'label', 'accepted', 'credibility', 'confidence', 'p_value[0]', 'p_value[1]', 'model']
    >>> decided.rows, bool(np.all(written["accepted"] == ice.decide(X[1000:]).accepted))
    (2000, True)
    """
    started = time.perf_counter()
    if not isinstance(rows_per_task, int | np.integer) or rows_per_task < 1:
        raise ValueError(f"rows_per_task is a number of rows, not {rows_per_task!r}.")
    if digest not in get_args(Digest):
        raise ValueError(f"digest is one of {', '.join(get_args(Digest))}, not {digest!r}.")
    loaded, model, notes, written_by = _load(rejector, trusted, public_key)
    if quorum is not None:
        set_quorum(loaded, quorum)
    source, where = locate(table, filesystem)
    target, folder = locate(out, filesystem)
    if where == folder:
        raise ValueError(f"{out} is the table itself: write to another folder.")
    files, schema = find_files(source, where, digest)
    real, inside = (os.path.realpath(path) if is_local(source) else path for path in (where, folder))
    if inside.startswith(f"{real}/") and not hidden(inside[len(real) + 1 :]):
        raise ValueError(f"{out} is inside the table, which would grow by it: write to another folder.")
    layout = find_layout(loaded, schema, features if features is not None else notes.get("features"), values)
    if identifier is not None:
        check_column(schema, identifier)
    elif notes.get("id") in schema.names:
        identifier = notes["id"]
    job = Job(loaded, model, written_by, layout, identifier, p_values, source, target, folder)
    parts = cut(files, rows_per_task)
    target.create_dir(folder, recursive=True)
    with sole_writer(target, folder):
        held = claim(job, rows_per_task, digest, quorum)
        records = finished(job, held, parts)
        skipped = _rows(records.values())
        sweep(job, held, records)
        for name in sorted({part.name.rpartition("/")[0] for part in parts}):
            for prefix in ("", "_bad/"):
                target.create_dir(f"{folder}/{prefix}{name}", recursive=True)
        undone = [part for part in parts if part.name not in records]
        on = nullcontext() if client is None else joblib.parallel_config(backend="dask", client=client)
        with on:
            _decide_parts(job, undone, records, n_jobs, verbose)
        sweep(job, list_files(target, folder), records)
        return _conclude(job, parts, records, skipped, started)


def _load(
    rejector: Any, trusted: Collection[str], public_key: Any
) -> tuple[Any, str, dict[str, Any], dict[str, str] | None]:
    """The rejector, what it is known by, and what its artifact says of its training and who wrote it."""
    notes: dict[str, Any] = {}
    written_by: dict[str, str] | None = None
    if isinstance(rejector, str | Path):
        rejector = open_artifact(rejector, public_key=public_key)
    elif isinstance(rejector, Artifact) and public_key is not None:
        raise ValueError(
            "public_key goes with a path: an artifact that is open was checked when it was opened."
        )
    if isinstance(rejector, Artifact):
        loaded, digest = rejector.rejector(trusted), rejector.digest
        notes, written_by = rejector.manifest["notes"], rejector.manifest.get("versions")
    else:
        loaded, digest = copy(rejector), f"unsaved:{_hash(rejector)}"
    silence(loaded)  # progress is shown for the table, not for each part
    kind = type(loaded).__name__
    if isinstance(loaded, ScoreEvaluator):
        raise ValueError(
            f"{kind} judges scores, not rows of features: give its decide(scores, labels) those."
        )
    if Traits.of(loaded).depends_on_others:
        raise ValueError(
            f"what {kind} decides about an object depends on other objects, so a table cannot be decided in "
            "parts. Give the rejector inside it, or one with thresholds."
        )
    if not isinstance(loaded, Rejector) or Traits.of(loaded).classes is None:
        raise TypeError(f"{kind} is not a fitted rejector, such as InductiveEvaluator(detector).fit(X, y).")
    return loaded, digest, notes, written_by


def _hash(rejector: Any) -> str:
    try:
        return str(joblib.hash(rejector, hash_name="sha1"))
    except (PicklingError, AttributeError, TypeError):  # a lambda is in it: another one each time
        return uuid4().hex


def _decide_parts(
    job: Job, parts: list[Part], records: dict[str, dict[str, Any]], n_jobs: int | None, verbose: bool
) -> None:
    """Decide parts and add their records; a part that fails does not keep the others from being decided."""
    failed: list[Failure] = []
    done = rejected = 0
    kept = f"What is done is kept in {job.folder}; the same call resumes from there."
    try:
        there_is_room = takewhile(lambda _: not any(failure.no_room for failure in failed), parts)
        tasks = ((part,) for part in there_is_room)
        rows = sum(part.rows for part in parts)
        with (
            parallel.Progress("deciding", rows, verbose=verbose, unit="row") as progress,
            closing(parallel.stream(decide_part, tasks, shared=(job,), n_jobs=n_jobs)) as results,
        ):
            for part, result in zip(parts, results, strict=False):
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


def _rows(records: Iterable[dict[str, Any]]) -> int:
    return sum(sum(record["objects"]) + record["bad"] for record in records)


def _conclude(
    job: Job, parts: list[Part], records: dict[str, dict[str, Any]], skipped: int, started: float
) -> TableDecisions:
    """Write the manifest, and count."""
    classes, in_order = job.rejector.classes_, [records[part.name] for part in parts]
    counts = [(record["objects"], record["accepted"]) for record in in_order]
    objects, accepted = np.array(counts, dtype=int).reshape(-1, 2, len(classes)).sum(axis=0)
    result = TableDecisions(
        folder=job.folder,
        digest=job.digest,
        classes=classes,
        objects=objects,
        accepted=accepted,
        bad=sum(record["bad"] for record in in_order),
        skipped=skipped,
        seconds=time.perf_counter() - started,
    )
    write_json(job.target, f"{job.folder}/{MANIFEST}", {**result.to_dict(), "parts": in_order})
    return result
