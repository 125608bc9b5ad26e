"""The output folder: the run it belongs to, the parts that are done, and stale files."""

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from transcendent._utils.extras import extra
from transcendent.batch.part import RECORD, TableJob
from transcendent.batch.places import hidden
from transcendent.batch.plan import FILES_AT_ONCE, Digest, Part, data_digest
from transcendent.batch.writing import ASIDE, write_json
from transcendent.errors import TableRefusedError

MANIFEST = "_manifest.json"
_RUN = "_run.json"
_WAY_OUT = "Choose another folder, or remove this one."


def resume(
    job: TableJob,
    held: dict[str, str],
    parts: list[Part],
    rows_per_task: int,
    digest: Digest,
    quorum: int | None,
) -> dict[str, dict[str, Any]]:
    """Return the records of parts that are done, by name; raise if the folder belongs to another run.

    ``held`` are the files in the folder. Stale ones are removed.
    """
    run = {
        "model": job.digest,
        "features": list(job.reader.columns),
        "values": job.reader.values,
        "id": job.identifier,
        "quorum": quorum,
        "p_values": job.p_values,
        "rows_per_task": int(rows_per_task),
        "digest": digest,
    }
    path = f"{job.folder}/{_RUN}"
    if _RUN in held:
        with job.target.open_input_file(path) as file:
            before = json.loads(file.read())
        if differ := [key for key, value in run.items() if before.get(key) != value]:
            raise TableRefusedError(
                f"{job.folder} holds decisions made with another {' and '.join(differ)}. {_WAY_OUT}"
            )
    elif any(not hidden(name) for name in held):
        raise TableRefusedError(f"{job.folder} holds other files. Choose another folder, or an empty one.")
    records = _finished(job, held, parts)
    sweep(job, held, records)
    if _RUN not in held:
        write_json(job.target, path, run)
    return records


def _finished(job: TableJob, held: dict[str, str], parts: list[Part]) -> dict[str, dict[str, Any]]:
    """Return the records of complete parts; raise on parts of other input files or another model."""
    inputs = {part.name: part.file.digest for part in parts}
    visible = [name for name in held if not hidden(name)]
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        found = zip(visible, pool.map(partial(_record, job), visible), strict=True)
        records = {name: record for name, record in found if record is not None}
    for name in visible:
        # A damaged part has no record; it is decided again if its input is still there.
        record = records.get(name, {"input": inputs.get(name), "model": job.digest})
        if name not in inputs or record["input"] != inputs[name]:
            wrong = "made from a file that has changed since, or is gone"
        elif record["model"] != job.digest:
            wrong = f"decided by another model, {record['model']}"
        else:
            continue
        raise TableRefusedError(f"{name} in {job.folder} was {wrong}. {_WAY_OUT}")
    return records


def _record(job: TableJob, name: str) -> dict[str, Any] | None:
    """Return a part's record, or None if the part or the file of its bad rows is damaged."""
    try:
        metadata, digest = _read_footer(job.target, f"{job.folder}/{name}")
        record: dict[str, Any] = json.loads(metadata.metadata[RECORD])
        whole = (metadata.num_rows, digest) == (sum(record["objects"]), record["sha256"])
        if record["bad"]:
            metadata, digest = _read_footer(job.target, f"{job.folder}/_bad/{name}")
            whole &= (metadata.num_rows, digest) == (record["bad"], record["bad_sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record if whole else None


def _read_footer(filesystem: Any, path: str) -> tuple[Any, str]:
    """Return the metadata in the footer, and the digest of everything before it."""
    with filesystem.open_input_file(path) as opened:
        return extra("pyarrow.parquet", "dask").read_metadata(opened), data_digest(opened)


def sweep(job: TableJob, held: dict[str, str], records: dict[str, dict[str, Any]]) -> None:
    """Remove an earlier run's manifest, files of tasks that died, and stale bad rows.

    Bad rows are stale if their part is not done or has none.
    """
    for name, path in held.items():
        part = name.removeprefix("_bad/")
        stale = part != name and not records.get(part, {}).get("bad")
        if path.endswith(ASIDE) or stale or name == MANIFEST:
            job.target.delete_file(path)
