"""What a run of a backtest leaves on disk, so that it can be taken up again."""

import hashlib
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from transcendent.arrays import AnyArray
from transcendent.temporal.result import Backtest


def digest(*things: Any) -> str:
    """SHA-256 of data of any form."""
    sha = hashlib.sha256()
    for thing in things:
        for part in _parts(thing):
            sha.update(part)
    return sha.hexdigest()


def _parts(thing: Any) -> Any:
    """Bytes that determine an array, sparse matrix, frame or list."""
    if sp.issparse(thing):
        csr = thing.tocsr()
        arrays = [csr.indptr, csr.indices, csr.data]
    elif hasattr(thing, "columns"):
        arrays = [np.asarray(thing[column]) for column in thing.columns]
    else:
        arrays = [np.asarray(thing)]
    for array in arrays:
        yield f"{array.shape}{array.dtype}".encode()
        if array.dtype == object:
            yield from (str(item).encode() + b"\0" for item in array.tolist())
        else:
            yield np.ascontiguousarray(array).view(np.uint8).data if array.size else b""


def open_checkpoints(folder: Path, manifest: dict[str, Any]) -> Path:
    """A folder for this run's periods; one that holds another run's is refused."""
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir(parents=True, exist_ok=True)
    written = checkpoints / "run.json"
    if written.exists():
        _check_same(json.loads(written.read_text()), manifest, folder)
    else:
        _replace(written, json.dumps(manifest, indent=2, default=str).encode())
    return checkpoints


def finished(folder: Path, manifest: dict[str, Any]) -> Backtest | None:
    """The result of this very run, if it is there."""
    written = folder / "manifest.json"
    if not written.exists():
        return None
    _check_same(json.loads(written.read_text()), manifest, folder)
    return Backtest.load(folder)


def read_period(checkpoints: Path | None, name: str, period: int) -> dict[str, AnyArray] | None:
    """What a rejector decided in a period, None if it has not yet."""
    if checkpoints is None or not (path := _file(checkpoints, name, period)).exists():
        return None
    with np.load(path, allow_pickle=False) as stored:
        return {key: stored[key] for key in stored.files}


def write_period(checkpoints: Path | None, name: str, period: int, part: dict[str, AnyArray]) -> None:
    """Write it down at once or not at all."""
    if checkpoints is not None:
        content = io.BytesIO()
        np.savez(content, **part)  # type: ignore[arg-type]
        _replace(_file(checkpoints, name, period), content.getvalue())


def _check_same(there: dict[str, Any], here: dict[str, Any], folder: Path) -> None:
    plain = json.loads(json.dumps(here, default=str))
    differ = [key for key in plain if there.get(key) != plain[key]]
    if differ:
        raise ValueError(
            f"{folder} holds another backtest: {', '.join(differ)} differ. "
            "Give another folder, or delete this one."
        )


def _file(checkpoints: Path, name: str, period: int) -> Path:
    safe = re.sub(r"[^A-Za-z0-9]+", "_", name)[:40]
    return checkpoints / f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:8]}-{period:05}.npz"


def _replace(path: Path, content: bytes) -> None:
    aside = path.with_suffix(f".{os.getpid()}.tmp")
    aside.write_bytes(content)
    aside.replace(path)
