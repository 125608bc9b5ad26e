"""Results that are computed once and kept, each beside a record of the code and libraries that made it."""

import hashlib
import json
import os
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CACHE = Path(os.environ.get("TRANSCENDENT_CACHE", "benchmarks/drift/cache"))
LIBRARIES = ("numpy", "scipy", "scikit-learn", "lightgbm", "xgboost-cpu")
SOURCE = Path(__file__).parents[2] / "src/transcendent"
SERVES = {"batch", "cli", "gate", "plots", "report"}  # parts of the library that decide nothing
_FRESH = "TRANSCENDENT_FRESH"  # of the environment, so that worker processes know it, too


def run_stale_again() -> None:
    """From now on compute stale results anew."""
    os.environ[_FRESH] = "1"


def keep(path: Path, compute: Callable[[], None], made_by: dict[str, str]) -> None:
    """Let ``compute`` write a result, unless it is there; one that other code has made is noted as stale."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stale = path.exists() and _record(path) != made_by
    if path.exists() and not (stale and _FRESH in os.environ):
        if stale:
            with (path.parent / "stale.txt").open("a") as file:
                file.write(f"{path.name}\n")
        return
    compute()
    _beside(path).write_text(json.dumps(made_by))


def take_stale(folder: Path = CACHE) -> list[str]:
    """Names of the stale results used since the last call, by any process."""
    notes = folder / "stale.txt"
    names = sorted(set(notes.read_text().splitlines())) if notes.exists() else []
    notes.unlink(missing_ok=True)
    return names


def flag_stale(text: str, names: list[str]) -> str:
    """Say below a table which of its results other code or libraries have made."""
    if not names:
        return text
    made = "**Stale**, made by other code or libraries; `--fresh` runs them again"
    return f"{text}\n\n{made}: {', '.join(names)}."


@cache
def maker(*modules: str, settings: str = "") -> dict[str, str]:
    """Digest of what decides, and of a benchmark's modules and settings; versions of the libraries."""
    digest = hashlib.sha256(settings.encode())
    decides = (path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] not in SERVES)
    for path in (*sorted(decides), *map(Path, modules)):
        digest.update(path.name.encode() + path.read_bytes())
    return {"code": digest.hexdigest()} | {name: _version(name) for name in LIBRARIES}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.made")


def _record(path: Path) -> dict[str, str] | None:
    record = _beside(path)
    return json.loads(record.read_text()) if record.exists() else None
