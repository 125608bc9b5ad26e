"""The folder of the output: what it is for, which parts are done, and what to remove."""

import json
from functools import partial
from typing import Any

from transcendent._utils.extras import extra
from transcendent.batch.part import RECORD, Job
from transcendent.batch.places import ASIDE, each_at_once, hidden, list_files, write_json
from transcendent.batch.plan import Digest, Part, data_digest
from transcendent.errors import TableRefusedError

MANIFEST = "_manifest.json"


def claim(job: Job, rows_per_task: int, digest: Digest, quorum: int | None) -> dict[str, str]:
    """Note what the folder is for, or refuse it if that is something else; return the files in it."""
    layout = job.layout
    run = {
        "model": job.digest,
        "features": list(layout.columns),
        "values": layout.values,
        "id": job.identifier,
        "quorum": quorum,
        "p_values": job.p_values,
        "rows_per_task": int(rows_per_task),
        "digest": digest,
    }
    path = f"{job.folder}/_run.json"
    held = list_files(job.target, job.folder)
    if "_run.json" in held:
        with job.target.open_input_file(path) as file:
            before = json.loads(file.read())
        differ = [key for key, value in run.items() if before.get(key) != value]
        if differ:
            raise TableRefusedError(
                f"{job.folder} holds decisions made with another {' and '.join(differ)}. Give another "
                "folder, or remove this one."
            )
    elif any(not hidden(name) for name in held):
        raise TableRefusedError(f"{job.folder} holds other files. Give another folder, or an empty one.")
    else:
        write_json(job.target, path, run)
    return held


def finished(job: Job, held: dict[str, str], parts: list[Part]) -> dict[str, dict[str, Any]]:
    """Return the records of parts that are done, by name; refuse those of other files or another model."""
    inputs = {part.name: part.file.digest for part in parts}
    visible = [name for name in held if not hidden(name)]
    found = zip(visible, each_at_once(partial(_record, job), visible), strict=True)
    records = {name: record for name, record in found if record is not None}
    for name in visible:
        record = records.get(name, {"input": inputs.get(name), "model": job.digest})  # if it is damaged
        if name not in inputs or record["input"] != inputs[name]:
            wrong = "made from a file that has changed since, or is gone"
        elif record["model"] != job.digest:
            wrong = f"decided by another model, {record['model']}"
        else:
            continue
        raise TableRefusedError(
            f"{name} in {job.folder} was {wrong}. Give another folder, or remove this one."
        )
    return records


def _record(job: Job, name: str) -> dict[str, Any] | None:
    """Return a part's record; None if it or its bad rows are damaged and have to be decided again."""
    try:
        metadata, digest = _looked_through(job.target, f"{job.folder}/{name}")
        record: dict[str, Any] = json.loads(metadata.metadata[RECORD])
        whole = (metadata.num_rows, digest) == (sum(record["objects"]), record["sha256"])
        if record["bad"]:
            metadata, digest = _looked_through(job.target, f"{job.folder}/_bad/{name}")
            whole &= (metadata.num_rows, digest) == (record["bad"], record["bad_sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record if whole else None


def _looked_through(filesystem: Any, path: str) -> tuple[Any, str]:
    """Return the metadata in the footer, and the digest of all before it."""
    with filesystem.open_input_file(path) as opened:
        return extra("pyarrow.parquet", "dask").read_metadata(opened), data_digest(opened)


def sweep(job: Job, held: dict[str, str], records: dict[str, dict[str, Any]]) -> None:
    """Remove an earlier run's manifest, files of tasks that died, and stale bad rows.

    Bad rows are stale if their part is not done or has none.
    """
    for name, path in held.items():
        part = name.removeprefix("_bad/")
        stale = part != name and not records.get(part, {}).get("bad")
        if path.endswith(ASIDE) or stale or name == MANIFEST:
            job.target.delete_file(path)
