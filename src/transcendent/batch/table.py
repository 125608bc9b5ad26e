"""Decide a table: plan it, hand out its parts, and count; or resume an earlier run."""

import time
from collections.abc import Collection
from contextlib import nullcontext
from copy import copy
from pathlib import Path
from pickle import PicklingError
from typing import Any, get_args
from uuid import uuid4

import joblib
import numpy as np

from transcendent.artifacts import Artifact, open_artifact
from transcendent.batch.feature_columns import check_column, find_rows
from transcendent.batch.folder import MANIFEST, resume, sweep
from transcendent.batch.lock import sole_writer
from transcendent.batch.outputs import output_at
from transcendent.batch.part import TableJob, decide_parts
from transcendent.batch.patience import patiently
from transcendent.batch.places import find_files, locate
from transcendent.batch.plan import Digest, plan_parts
from transcendent.batch.result import TableDecisions
from transcendent.decisions import declared, is_rejector
from transcendent.evaluators.cross import set_quorum


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
    ten thousand rows at a time. The same call resumes an interrupted run. Files added to the table since
    are decided too; if a decided file has changed, an error is raised.

    Parameters
    ----------
    rejector : path, Artifact or fitted rejector
        The rejector, or its artifact.
    table : path or URI
        A Parquet file, or a folder of them with its subfolders: files that end in ``.parquet``, ``.parq`` or
        ``.pq``, in any case. Names that begin with ``.`` or ``_`` are skipped. Links are followed; a file
        with several links is decided once.
    out : path or URI
        The folder to write: one file per part, named after its input, with the columns ``id`` (or ``file``
        and ``row``), those of `Decisions.to_dict`, and ``model``, the rejector's digest.
    features : list of str, str or None
        The columns with features, in the order of ``fit``; or the name of one column that holds whole rows:
        lists of fixed size (dense), lists of the positions that are not zero (sparse), or text. By default
        the columns the rejector was fitted on.
    values : str or None
        For sparse rows, the column with lists of the values at those positions; by default all are 1.
    identifier : str or None
        The column with ids of objects.
    quorum : int or None
        For a `CrossConformalEvaluator`, as in its ``decide``; by default its own.
    p_values : bool
        Whether to write a p-value per class, if the rejector has them.
    rows_per_task : int
        Row groups are joined to parts of at most this number of rows; a row group is never cut.
    digest : {"footer", "content"}
        How a later run checks whether an input file has changed: by its size and footer, or by all its
        content, which takes one more pass over the table.
    n_jobs : int or None
        Number of processes without a client; ``joblib.parallel_config`` can choose other backends.
    client : distributed.Client or None
        A Dask cluster whose workers can reach the table and the folder.
    filesystem : pyarrow or fsspec file system, or None
        Where ``table`` and ``out`` are; by default taken from their URIs, or the local one.
    trusted, public_key
        For an artifact, as in `transcendent.artifacts.load`; a key only with a path.
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
        raise ValueError(f"rows_per_task must be a positive number of rows, not {rows_per_task!r}.")
    if digest not in get_args(Digest):
        raise ValueError(f"digest must be one of {', '.join(get_args(Digest))}, not {digest!r}.")
    loaded, model, notes, written_by = _load(rejector, trusted, public_key)
    if quorum is not None:
        set_quorum(loaded, quorum)
    source, where, target, folder = locate(table, out, filesystem)
    parts, schema = plan_parts(source, patiently(source, find_files, source, where), digest, rows_per_task)
    reader = find_rows(loaded, schema, features if features is not None else notes.get("features"), values)
    if identifier is not None:
        check_column(schema, identifier)
    elif notes.get("id") in schema.names:
        identifier = notes["id"]
    out = output_at(target, folder)
    job = TableJob(loaded, model, written_by, reader, identifier, p_values, source, out)
    out.create()
    with sole_writer(target, folder):
        records = resume(job, out.files(), parts, rows_per_task, digest, quorum)
        skipped = sum(sum(record["objects"]) + record["bad"] for record in records.values())
        folders = sorted({part.name.rpartition("/")[0] for part in parts})
        out.create(prefix + name for name in folders for prefix in ("", "_bad/"))
        undone = [part for part in parts if part.name not in records]
        with nullcontext() if client is None else joblib.parallel_config(backend="dask", client=client):
            decide_parts(job, undone, records, n_jobs, verbose)
        if out.leaves_halves:
            sweep(out, out.files(), records)
        in_order = [records[part.name] for part in parts]
        counts = np.array([(record["objects"], record["accepted"]) for record in in_order], dtype=int)
        classes = np.asarray(declared(loaded).fitted.classes)
        objects, accepted = counts.reshape(-1, 2, len(classes)).sum(axis=0)
        result = TableDecisions(
            folder,
            model,
            classes,
            objects,
            accepted,
            bad=sum(record["bad"] for record in in_order),
            skipped=skipped,
            seconds=time.perf_counter() - started,
        )
        out.write_json(MANIFEST, {**result.to_dict(), "parts": in_order})
        return result


def _load(
    rejector: Any, trusted: Collection[str], public_key: Any
) -> tuple[Any, str, dict[str, Any], dict[str, str] | None]:
    """Return the rejector, its digest, and from an artifact its notes and the versions that wrote it."""
    notes: dict[str, Any] = {}
    written_by: dict[str, str] | None = None
    if isinstance(rejector, str | Path):
        rejector = open_artifact(rejector, public_key=public_key)
    elif isinstance(rejector, Artifact) and public_key is not None:
        raise ValueError("an open artifact is already checked: pass public_key to open_artifact instead.")
    if isinstance(rejector, Artifact):
        loaded, digest = rejector.rejector(trusted), rejector.digest
        notes, written_by = rejector.manifest["notes"], rejector.manifest.get("versions")
    else:
        loaded = copy(rejector)
        try:
            hashed = str(joblib.hash(rejector, hash_name="sha1"))
        except (PicklingError, AttributeError, TypeError):  # it holds a lambda, which differs in each process
            hashed = uuid4().hex
        digest = f"unsaved:{hashed}"
    declares, kind = declared(loaded), type(loaded).__name__
    if declares.verbose:
        loaded.verbose = False  # progress is shown for the table, not for each part
    if declares.judges_scores:
        raise ValueError(
            f"{kind} judges scores, not rows of features: decide a single file, or in Python "
            "decide(Answers(labels, scores))."
        )
    if declares.depends_on_others:
        raise ValueError(
            f"decisions of {kind} depend on the other objects, so a table cannot be decided in parts. Pass "
            "the rejector inside it, or one with thresholds."
        )
    if not is_rejector(loaded) or declares.fitted.classes is None:
        raise TypeError(f"{kind} is not a fitted rejector, such as InductiveEvaluator(detector).fit(X, y).")
    return loaded, digest, notes, written_by
