"""The output folder: the run it belongs to, the parts that are done, and stale files."""

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from transcendent._utils.extras import extra
from transcendent.batch.outputs import ASIDE, Folder
from transcendent.batch.part import RECORD, TableJob
from transcendent.batch.patience import passes, patiently
from transcendent.batch.places import hidden
from transcendent.batch.plan import FILES_AT_ONCE, Digest, Part, data_digest, data_length
from transcendent.errors import TableRefusedError

MANIFEST = "_manifest.json"
_RUN = "_run.json"
_WAY_OUT = "Choose another folder, or remove this one."


def resume(
    job: TableJob,
    held: list[str],
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
    out = job.out
    if _RUN in held:
        before = out.read_json(_RUN)
        if differ := [key for key, value in run.items() if before.get(key) != value]:
            raise TableRefusedError(
                f"{out.path} holds decisions made with another {' and '.join(differ)}. {_WAY_OUT}"
            )
    elif any(not hidden(name) for name in held):
        raise TableRefusedError(f"{out.path} holds other files. Choose another folder, or an empty one.")
    records = _finished(job, held, parts)
    sweep(out, held, records)
    if _RUN not in held:
        out.write_json(_RUN, run)
    return records


def _finished(job: TableJob, held: list[str], parts: list[Part]) -> dict[str, dict[str, Any]]:
    """Return the records of complete parts; raise on parts of other input files or another model."""
    inputs = {part.name: part.file.digest for part in parts}
    visible = [name for name in held if not hidden(name)]
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        found = zip(
            visible, pool.map(partial(patiently, job.out.filesystem, _record, job.out), visible), strict=True
        )
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
        raise TableRefusedError(f"{name} in {job.out.path} was {wrong}. {_WAY_OUT}")
    return records


def _record(out: Folder, name: str) -> dict[str, Any] | None:
    """Return a part's record, or None if the part or the file of its bad rows is damaged."""
    try:
        with out.open(name) as opened:
            footer = extra("pyarrow.parquet", "dask").read_metadata(opened)
            record: dict[str, Any] = json.loads(footer.metadata[RECORD])
            whole = _is_whole(out, opened, footer, sum(record["objects"]), record["written"])
        if record["bad"]:
            with out.open(f"_bad/{name}") as opened:
                footer = extra("pyarrow.parquet", "dask").read_metadata(opened)
                whole &= _is_whole(out, opened, footer, record["bad"], record["bad_written"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        if passes(out.filesystem, error):
            raise
        return None
    return record if whole else None


def _is_whole(out: Folder, opened: Any, footer: Any, rows: int, written: dict[str, Any]) -> bool:
    """Return whether a file has the rows and the data that were written."""
    if footer.num_rows != rows or data_length(opened) != written["bytes"]:
        return False
    return out.keeps_content or data_digest(opened) == written["sha256"]


def sweep(out: Folder, held: list[str], records: dict[str, dict[str, Any]]) -> None:
    """Remove an earlier run's manifest, files of tasks that died, and stale bad rows.

    Bad rows are stale if their part is not done or has none.
    """
    for name in held:
        part = name.removeprefix("_bad/")
        stale = part != name and not records.get(part, {}).get("bad")
        if name.endswith(ASIDE) or stale or name == MANIFEST:
            out.delete(name)
