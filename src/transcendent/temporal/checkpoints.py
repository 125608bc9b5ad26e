"""Files of an unfinished backtest, from which it resumes."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from transcendent._utils.arrays import AnyArray, from_npz, to_npz
from transcendent._utils.files import write_whole
from transcendent.temporal.result import Backtest


def open_checkpoints(folder: Path, manifest: dict[str, Any]) -> Path:
    """Open a folder for this run's periods; refuse one that holds another run's."""
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir(parents=True, exist_ok=True)
    written = checkpoints / "run.json"
    if written.exists():
        _check_same(written, manifest, folder)
    else:
        write_whole(written, json.dumps(manifest, indent=2).encode())
    return checkpoints


def finished(folder: Path, manifest: dict[str, Any]) -> Backtest | None:
    """Load the result of this run if it is finished."""
    written = folder / "manifest.json"
    if not written.exists():
        return None
    _check_same(written, manifest, folder)
    return Backtest.load(folder)


def read_period(checkpoints: Path | None, name: str, period: int) -> dict[str, AnyArray] | None:
    """Read what a rejector decided in a period; None if it has not, or the file cannot be read."""
    if checkpoints is None or not (path := _file(checkpoints, name, period)).exists():
        return None
    try:
        with path.open("rb") as file:
            return from_npz(file)
    except (OSError, ValueError, EOFError, BadZipFile):
        return None


def write_period(checkpoints: Path | None, name: str, period: int, part: dict[str, AnyArray]) -> None:
    """Write what a rejector decided in a period, whole or not at all."""
    if checkpoints is not None:
        write_whole(_file(checkpoints, name, period), to_npz(part))


def _check_same(written: Path, here: dict[str, Any], folder: Path) -> None:
    try:
        there = json.loads(written.read_text())
    except ValueError:
        raise ValueError(f"{written} cannot be read; delete {folder} and start anew.") from None
    differ = [key for key in here if there.get(key) != here[key]]
    if differ:
        what = _difference(differ[0], there.get(differ[0]), here[differ[0]])
        raise ValueError(f"{folder} holds another backtest: {what}. Give another folder, or delete this one.")


def _difference(key: str, was: Any, now: Any) -> str:
    """Where two values first differ, in words."""
    if isinstance(was, dict) and isinstance(now, dict):
        name = next(name for name in {**was, **now} if was.get(name) != now.get(name))
        return f"{key}: {_difference(name, was.get(name), now.get(name))}"
    if key == "data":
        return "the data are not the same"
    return f"{key} was {was!r:.200}, is {now!r:.200}"


def _file(checkpoints: Path, name: str, period: int) -> Path:
    safe = re.sub(r"[^A-Za-z0-9]+", "_", name)[:40]
    return checkpoints / f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:8]}-{period:05}.npz"
