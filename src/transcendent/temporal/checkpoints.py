"""Checkpoints of an unfinished backtest, from which it resumes."""

import hashlib
import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from transcendent._utils.arrays import AnyArray, from_npz, to_npz
from transcendent._utils.files import write_whole
from transcendent.temporal.result import FILES, Backtest

_WAY_OUT = "Use another folder, or replace its backtest with fresh=True or --fresh."


def check_place(folder: Path) -> None:
    """Raise if a folder has files that a backtest would overwrite but did not write."""
    checkpoints = folder / "checkpoints"
    if (checkpoints / "run.json").exists():
        return
    there = [name for name in FILES if (folder / name).exists() and not is_backtest(folder)]
    if checkpoints.exists() and (not checkpoints.is_dir() or any(checkpoints.iterdir())):
        there.append("checkpoints")
    if there:
        raise ValueError(f"{folder} holds {there[0]}, which no backtest wrote. Use another folder.")


def is_backtest(folder: Path) -> bool:
    """Return whether a folder has the manifest, intact or damaged, of a finished backtest."""
    try:
        return "rejectors" in json.loads((folder / "manifest.json").read_text())
    except ValueError:
        return (folder / "decisions.parquet").exists()  # a damaged manifest; only `fresh` replaces it
    except OSError:
        return False


def open_checkpoints(folder: Path, manifest: dict[str, Any]) -> Path:
    """Create the folder for this run's periods; raise if it holds periods of another run."""
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir(parents=True, exist_ok=True)
    written = checkpoints / "run.json"
    if written.exists() and any(checkpoints.glob("*.npz")):
        _check_same(written, manifest, folder)
    else:
        write_whole(written, json.dumps(manifest, indent=2).encode())
    return checkpoints


def discard(folder: Path) -> None:
    """Remove the files of a backtest, finished or not, from a folder, and no others."""
    remove_checkpoints(folder)
    for name in (*FILES, "report.html"):
        (folder / name).unlink(missing_ok=True)


def remove_checkpoints(folder: Path) -> None:
    """Remove the checkpoints from a folder."""
    checkpoints = folder / "checkpoints"
    for path in [*checkpoints.glob("*.npz"), checkpoints / "run.json"]:
        path.unlink(missing_ok=True)
    with suppress(OSError):  # it may hold other files
        checkpoints.rmdir()


def finished(folder: Path, manifest: dict[str, Any]) -> Backtest | None:
    """Load the result of this run; None if it is not finished."""
    written = folder / "manifest.json"
    if not written.exists():
        return None
    _check_same(written, manifest, folder)
    return Backtest.load(folder)


def read_period(checkpoints: Path | None, name: str, period: int) -> dict[str, AnyArray] | None:
    """Read a rejector's decisions of a period; None if there is no readable file."""
    if checkpoints is None or not (path := _file(checkpoints, name, period)).exists():
        return None
    try:
        with path.open("rb") as file:
            return from_npz(file)
    except (OSError, ValueError, EOFError, BadZipFile):
        return None


def write_period(checkpoints: Path | None, name: str, period: int, part: dict[str, AnyArray]) -> None:
    """Write a rejector's decisions of a period, atomically."""
    if checkpoints is not None:
        write_whole(_file(checkpoints, name, period), to_npz(part))


def _check_same(written: Path, here: dict[str, Any], folder: Path) -> None:
    try:
        there = json.loads(written.read_text())
    except ValueError:
        raise ValueError(f"{written} cannot be read. {_WAY_OUT}") from None
    differ = [key for key in here if there.get(key) != here[key]]
    if differ:
        what = _difference(differ[0], there.get(differ[0]), here[differ[0]])
        raise ValueError(f"{folder} holds another backtest: {what}. {_WAY_OUT}")


def _difference(key: str, was: Any, now: Any) -> str:
    """Describe the first difference between two values."""
    if isinstance(was, dict) and isinstance(now, dict):
        name = next(name for name in {**was, **now} if was.get(name) != now.get(name))
        return f"{key}: {_difference(name, was.get(name), now.get(name))}"
    if key == "data":
        return "the data differ"
    if was is None or now is None:
        return f"{key} is {'new' if was is None else 'missing'}"
    was, now = repr(was), repr(now)
    same = next((i for i, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), 0)
    start = max(0, same - 40)
    before = "… " if start else ""
    return f"{key} was {before}{was[start : start + 160]}, is {before}{now[start : start + 160]}"


def _file(checkpoints: Path, name: str, period: int) -> Path:
    safe = re.sub(r"[^A-Za-z0-9]+", "_", name)[:40]
    return checkpoints / f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:8]}-{period:05}.npz"
