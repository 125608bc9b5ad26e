"""Output for people and for programs, and the exit codes of commands."""

import io
import json
import math
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

from transcendent import errors
from transcendent._utils.files import is_about_writing
from transcendent._utils.text import visible
from transcendent.cli.settings import SettingsError, UsageError

EXIT_CODES = {
    1: "a defect of transcendent itself",
    2: "the command line cannot be understood",
    3: "the TOML file cannot be understood",
    4: "the data, or the folder for results, cannot be used",
    5: "an artifact is refused, or a rejector cannot be saved as one",
    6: "no thresholds satisfy the constraints",
    7: "something cannot be written: folder read-only, disk full",
    8: "an optional dependency is missing",
    9: "the split has a bias that results must not rest on",
    10: "a table is not decided to its end; the same command resumes it",
    130: "interrupted",
    141: "output pipe closed",
}


T = ParamSpec("T")

_LAST_STREAM = 2  # the number of standard error


class OutputError(Exception):
    """Something cannot be written."""


def run(function: Callable[T, None], *args: T.args, **given: T.kwargs) -> int:
    """Call a command's function; print what went wrong, and return the exit code."""
    show_warnings_as_lines()
    try:
        _prepare_streams()
        function(*args, **given)
        sys.stdout.flush()
    except BrokenPipeError:
        forget_output()
        return 141
    except KeyboardInterrupt as interrupt:
        say(str(interrupt) or "interrupted; nothing was written.")
        return 130
    except (errors.TranscendentError, UsageError, OutputError, OSError, ValueError) as error:
        say(f"error: {_in_words(error)}")
        return _code(error)
    except Exception:
        say(traceback.format_exc())  # what files hold may be in it
        return 1
    return 0


def _prepare_streams() -> None:
    """Refuse a closed output; elsewhere, let nothing that is opened take the place of a closed stream."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _LAST_STREAM:
        pass
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # as long as the process
    if sys.stdout is None:
        raise OutputError("standard output is closed: to see nothing, send it to /dev/null.")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may know no more than ASCII


def guarded(function: Callable[T, None]) -> Callable[T, None]:
    """Return a command's function that on a failure prints a line and ends with an exit code."""

    @wraps(function)
    def command(*args: T.args, **given: T.kwargs) -> None:
        code = run(function, *args, **given)
        if code:
            import typer

            raise typer.Exit(code)

    return command


def _in_words(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}."
    return str(error)


def _code(error: Exception) -> int:
    kinds: dict[type[Exception], int] = {
        UsageError: 2,
        errors.GateSettingsError: 2,
        SettingsError: 3,
        errors.ArtifactError: 5,
        errors.InfeasibleError: 6,
        OutputError: 7,
        errors.MissingExtraError: 8,
        errors.TemporalBiasError: 9,
        errors.TableRefusedError: 4,
        errors.BatchError: 10,
    }
    full = isinstance(error, OSError) and is_about_writing(error)
    return next((code for kind, code in kinds.items() if isinstance(error, kind)), 7 if full else 4)


def silence(quiet: bool) -> None:
    """Show no progress if ``quiet``."""
    if quiet:
        from transcendent._utils.parallel import progress

        progress.silenced = True


def show(text: str, data: dict[str, Any], as_json: bool) -> None:
    """Print for a person, or for a program."""
    sys.stdout.write((json.dumps(plain(data), indent=2) if as_json else visible(text, keep="\n")) + "\n")


def say(text: str) -> None:
    """Print a line to standard error."""
    sys.stderr.write(visible(text, keep="\n") + "\n")


def lines(**entries: Any) -> str:
    """Return names and values in aligned lines, without values that are None."""
    shown = {name.replace("_", " "): value for name, value in entries.items() if value is not None}
    width = max(map(len, shown))
    return "\n".join(f"{name.ljust(width)}  {visible(str(value))}" for name, value in shown.items())


def plain(value: Any) -> Any:
    """Return a value that JSON can hold; undefined numbers are null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | None) else str(value)


def spare(out: Any, *inputs: Any, option: str = "--out") -> None:
    """Refuse to write over a file that is read."""
    for path in inputs:
        if Path(out).exists() and Path(path).exists() and Path(out).samefile(path):
            raise UsageError(f"{option} {out} would overwrite {path}: give another name.")


@contextmanager
def writing(what: Any) -> Iterator[None]:
    """Raise errors of the operating system as errors about writing ``what``."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"{what} cannot be written: {error.strerror or error}.") from error


@contextmanager
def filling(folder: Path) -> Iterator[None]:
    """Make a folder to write to, and remove it should nothing have been written."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):  # it is not empty
            folder.rmdir()


def show_warnings_as_lines() -> None:
    """Print each warning as one line, without the place in the source."""

    def line(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if not issubclass(category, DeprecationWarning | FutureWarning):
            say(f"warning: {message}")

    warnings.showwarning = line


def forget_output() -> None:
    """Send Python's last flush nowhere, since the output pipe is closed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
