"""The folder of the output: whose it is, what is done in it, and what dead tasks left there."""

import json
from functools import partial
from typing import Any

from transcendent.batch.part import RECORD, Job
from transcendent.batch.places import ASIDE, each_at_once, hidden, list_files, write_json_whole
from transcendent.batch.plan import Part
from transcendent.errors import BatchError
from transcendent.extras import extra


def claim(job: Job, rows_per_task: int) -> dict[str, str]:
    """Say what the folder is for, or refuse if it is for something else; what it holds already."""
    layout = job.layout
    run = {
        "model": job.digest,
        "features": list(layout.columns),
        "values": layout.values,
        "id": job.identifier,
        "p_values": job.p_values,
        "rows_per_task": int(rows_per_task),
    }
    path = f"{job.folder}/_run.json"
    job.target.create_dir(job.folder, recursive=True)
    held = list_files(job.target, job.folder)
    if "_run.json" in held:
        with job.target.open_input_file(path) as file:
            before = json.loads(file.read())
        differ = [key for key, value in run.items() if before.get(key) != value]
        if differ:
            raise BatchError(
                f"{job.folder} holds decisions made with another {' and '.join(differ)}. Give another "
                "folder, or remove this one."
            )
    elif any(not hidden(name) for name in held):
        raise BatchError(f"{job.folder} holds other files. Give another folder, or an empty one.")
    else:
        write_json_whole(job.target, path, json.dumps(run, indent=1).encode())
    return held


def finished(job: Job, held: dict[str, str], parts: list[Part]) -> dict[str, dict[str, Any]]:
    """The records of parts that are done, by name; refused if they were made from something else."""
    planned = {part.name: part for part in parts}
    visible = [name for name in held if not hidden(name)]
    found = each_at_once(partial(_record, job.target), map(held.__getitem__, visible))
    records: dict[str, dict[str, Any]] = {}
    for name, record in zip(visible, found, strict=True):
        if name not in planned or (record is not None and record["input"] != planned[name].file.digest):
            raise BatchError(
                f"{name} in {job.folder} was made from a file that has changed since, or is gone. Give "
                "another folder, or remove this one."
            )
        if record is not None:
            records[name] = record
    return records


def _record(filesystem: Any, path: str) -> dict[str, Any] | None:
    """What a part says of itself; None if it is damaged, and has to be made again."""
    try:
        with filesystem.open_input_file(path) as file:
            metadata = extra("pyarrow.parquet", "dask").read_metadata(file).metadata
        record: dict[str, Any] = json.loads(metadata[RECORD])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record


def sweep(job: Job, held: dict[str, str]) -> None:
    """Remove what tasks that died have left."""
    for path in held.values():
        if path.endswith(ASIDE):
            job.target.delete_file(path)
