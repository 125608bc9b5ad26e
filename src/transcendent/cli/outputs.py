"""Files and folders that commands write."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from transcendent._utils.files import is_about_writing
from transcendent.cli.options import UsageError


class OutputError(Exception):
    """Something cannot be written."""


def refuse_overwrite(out: Any, *inputs: Any, option: str = "--out") -> None:
    """Raise if ``out`` would overwrite a file that is read."""
    for path in inputs:
        if Path(out).exists() and Path(path).exists() and Path(out).samefile(path):
            raise UsageError(f"{option} {out} would overwrite {path}: give another name.")


@contextmanager
def writing(what: Any) -> Iterator[None]:
    """Raise OSError as an error about writing ``what``."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"{what} cannot be written: {error.strerror or error}.") from error


@contextmanager
def resumable(place: Any) -> Iterator[None]:
    """Say that the same command resumes the run, if it is interrupted or the disk is full."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted. Finished work is kept in {place}; the same command resumes from there."
        ) from None
    except OSError as error:
        if not is_about_writing(error):
            raise
        raise OutputError(
            f"{place} cannot be written: {error.strerror or error}. Finished work is kept; once there "
            "is room, the same command resumes from there."
        ) from error


@contextmanager
def output_folder(folder: Path) -> Iterator[None]:
    """Create a folder to write to, and remove it if it stays empty."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):  # it is not empty
            folder.rmdir()
