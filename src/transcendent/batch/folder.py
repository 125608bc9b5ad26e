"""The folder of the output: whose it is, what is done in it, and what dead tasks left there."""

import json
from typing import Any

from transcendent.batch.part import RECORD, Job
from transcendent.batch.places import ASIDE, hidden, list_files, write_json_whole
from transcendent.batch.plan import Part
from transcendent.errors import BatchError
from transcendent.extras import extra


def claim(job: Job, rows_per_task: int) -> None:
    """Say what the folder is for, or refuse if it is for something else."""
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
    held = {info.path[len(job.folder) + 1 :] for info in list_files(job.target, job.folder)}
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


def finished(job: Job, parts: list[Part]) -> dict[str, dict[str, Any]]:
    """The records of parts that are done, by name; refused if they were made from something else."""
    planned = {part.name: part for part in parts}
    found = [info.path for info in list_files(job.target, job.folder)]
    names = [path[len(job.folder) + 1 :] for path in found]
    visible = [(path, name) for path, name in zip(found, names, strict=True) if not hidden(name)]
    records: dict[str, dict[str, Any]] = {}
    for path, name in visible:
        record = _record(job.target, path)
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


def sweep(job: Job) -> None:
    """Remove what tasks that died have left."""
    for info in list_files(job.target, job.folder):
        if info.path.endswith(ASIDE):
            job.target.delete_file(info.path)
