"""How commands run: their streams, warnings, errors and exit codes."""

import io
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

import typer

from transcendent import errors
from transcendent._utils.files import is_about_writing
from transcendent._utils.text import visible
from transcendent.cli.options import UsageError
from transcendent.cli.outputs import OutputError

EXIT_CODES = {
    1: "a bug in transcendent",
    2: "the command line is not valid",
    3: "the TOML file is not valid",
    4: "the data, or the folder for results, cannot be used",
    5: "an artifact is refused, or a rejector cannot be saved as one",
    6: "no thresholds satisfy the constraints",
    7: "something cannot be written: folder read-only, disk full",
    8: "an optional dependency is missing",
    9: "the split has a bias that makes results misleading",
    10: "a table was not decided completely; the same command resumes it",
    11: "an alarm was raised",
    130: "interrupted",
    141: "output pipe closed",
}
T = ParamSpec("T")

_LAST_STREAM = 2  # the number of standard error
_ARGUMENTS = {"identifier": "--id", "file": "FILE"}


def run(function: Callable[T, int | None], *args: T.args, **given: T.kwargs) -> int:
    """Call a command's function; print errors, and return the exit code, which the function may set."""
    warnings.showwarning = _show_warning
    try:
        _prepare_streams()
        code = function(*args, **given)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the last flush, at exit
        return 141
    except KeyboardInterrupt as interrupt:
        say(str(interrupt) or "interrupted; nothing was written.")
        return 130
    except (errors.TranscendentError, UsageError, OutputError, OSError, ValueError) as error:
        say(f"error: {_in_words(error)}")
        return _code(error)
    except Exception:
        say(traceback.format_exc())  # escaped, since it may quote files
        return 1
    return code or 0


def _prepare_streams() -> None:
    """Raise if standard output is closed; reserve the descriptors of other closed streams."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _LAST_STREAM:
        pass
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # open until the process ends
    if sys.stdout is None:
        raise OutputError("standard output is closed; to discard it, redirect it to /dev/null.")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may be limited to ASCII


def guarded(function: Callable[T, int | None]) -> Callable[T, None]:
    """Return a command's function that prints an error as a line and exits with a code."""

    @wraps(function)
    def command(*args: T.args, **given: T.kwargs) -> None:
        if code := run(function, *args, **given):
            raise typer.Exit(code)

    return command


def _in_words(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}."
    if isinstance(error, errors.ArgumentError):
        return f"{_ARGUMENTS.get(error.argument, f'--{error.argument}')}: {error.message}"
    return str(error)


def _code(error: Exception) -> int:
    codes: dict[type[Exception], int] = {
        UsageError: 2,
        errors.ArgumentError: 2,
        errors.GateSettingsError: 2,
        errors.SettingsError: 3,
        errors.ArtifactError: 5,
        errors.InfeasibleError: 6,
        OutputError: 7,
        errors.MissingExtraError: 8,
        errors.TemporalBiasError: 9,
        errors.TableRefusedError: 4,
        errors.BatchError: 10,
    }
    full = isinstance(error, OSError) and is_about_writing(error)
    return next((code for kind, code in codes.items() if isinstance(error, kind)), 7 if full else 4)


def say(text: str) -> None:
    """Print a line to standard error."""
    sys.stderr.write(visible(text, keep="\n") + "\n")


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print a warning as one line, without its source location."""
    if not issubclass(category, DeprecationWarning | FutureWarning):
        say(f"warning: {message}")
