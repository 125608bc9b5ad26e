"""Try out an artifact in another process, so that a crafted file cannot harm this one.

The other process loads the artifact and decides a few rows within limits on memory and time. If it dies, the
file is refused. A file that passes may still be crafted to fail, or to decide wrongly, on other rows: only a
signature says who made it.
"""

import json
import os
import pickle
import signal
import subprocess
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import joblib
import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from transcendent._utils.text import visible
from transcendent.artifacts.artifact import Artifact, open_artifact
from transcendent.artifacts.signatures import Key
from transcendent.decisions import Answers, declared
from transcendent.errors import ArtifactError, MissingExtraError, TranscendentError
from transcendent.tables.layout import Layout

TIMEOUT = 120  # seconds, and one more for each megabyte of the artifact
MEMORY = 4 << 30  # bytes, and 16 for each byte of the artifact
ROWS = 16

_CODE = "from transcendent.artifacts.sandbox import answer; answer()"
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_SIGNALS = {number.value: number.name for number in signal.Signals}
_MAX_DENSE = 1 << 20
_TEXTS = ("", "a", "http://example.org/ 0x90 \u00e9\u4e2d\u6587 WORDS and words, 1 2 3", "word " * 500)

_tried: set[tuple[str, frozenset[str]]] = set()


class TrialOutcome(NamedTuple):
    """The end of a trial: ``refused`` or ``died`` says why it failed; both are None if it passed."""

    refused: str | None = None
    died: str | None = None
    missing_extra: bool = False


@dataclass(frozen=True)
class Access:
    """Requirements on an artifact: trusted types, a signature and, if ``strict``, the versions used here."""

    trusted: Collection[str] = ()
    public_key: Key | None = None
    strict: bool = False

    def open_and_try(self, path: Any) -> Artifact:
        """Open, check and try out an artifact."""
        artifact = open_artifact(path, public_key=self.public_key)
        self.check_and_try(artifact)
        return artifact

    def check_and_try(self, artifact: Artifact, rows: Any = None) -> None:
        """Check an open artifact, and try it out on some rows."""
        artifact.check(self.trusted, strict=self.strict)
        try_out(artifact, self.trusted, rows)


def try_out(artifact: Artifact, trusted: Collection[str] = (), rows: Any = None) -> None:
    """Load an artifact and decide rows with it in another process; refuse it if that process dies.

    It decides the given rows, if any, and some made from the manifest. An artifact that passed is not tried
    again.
    """
    key = (artifact.digest, frozenset(trusted))
    if key in _tried:
        return
    size = sum(map(len, artifact.entries.values()))
    limits = {"timeout": TIMEOUT + (size >> 20), "memory": MEMORY + 16 * size}
    died = _run(pickle.dumps((limits, artifact, list(trusted), rows)), limits["timeout"])
    if died is not None:
        message = f"{artifact.path} is refused: the process that tried it out {died}."
        raise ArtifactError(f"{visible(message)} The file may be crafted: only a signature says who made it.")
    _tried.add(key)


def _run(task: bytes, timeout: int) -> str | None:
    """Run a task in another process. Return how the process died, or None; raise its refusal, if any."""
    with subprocess.Popen(
        [sys.executable, "-P", "-c", _CODE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | _ONE_THREAD,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(task, timeout=timeout)
        except subprocess.TimeoutExpired:
            _kill(process)
            return f"took more than {timeout} seconds"
        except BaseException:
            _kill(process)
            raise
    if process.returncode < 0:
        return f"was ended by {_SIGNALS.get(-process.returncode, f'signal {-process.returncode}')}"
    try:
        found = TrialOutcome(**json.loads(output.splitlines()[-1]))
    except (IndexError, ValueError, TypeError):
        return f"ended with code {process.returncode} and without an answer"
    if found.refused is not None:
        raise (MissingExtraError if found.missing_extra else ArtifactError)(found.refused)
    return found.died


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process and its children."""
    with suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def answer() -> None:
    """Run the task on the standard input, and write a `TrialOutcome` as the last line of the output."""
    limits, artifact, trusted, rows = pickle.load(sys.stdin.buffer)  # from the parent, not from the file
    _limit(**limits)
    warnings.simplefilter("ignore")
    found = TrialOutcome()
    try:
        with joblib.parallel_config(backend="sequential"):
            _use(artifact, trusted, rows)
    except MemoryError:
        found = TrialOutcome(died=f"needed more than {limits['memory'] >> 20:,} MB of memory")
    except TranscendentError as error:
        found = TrialOutcome(refused=str(error), missing_extra=isinstance(error, MissingExtraError))
    sys.stdout.write(f"\n{json.dumps(found._asdict())}\n")


def _limit(timeout: int, memory: int) -> None:
    try:
        import resource
    except ImportError:  # on Windows
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (timeout, timeout + 5))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _use(artifact: Artifact, trusted: list[str], rows: Any) -> None:
    """Load it and decide rows; an error about rows that do not suit its detector is not a refusal."""
    rejector = artifact.rejector(trusted)
    for sample in _samples(rejector, artifact.manifest["features"], rows):
        try:
            rejector.decide(sample)
        except MemoryError:
            raise
        except AttributeError as error:
            if isinstance(error.obj, BaseEstimator) and artifact.version_hint():
                artifact.refuse_failure(error)
        except Exception:
            continue


def _samples(rejector: Any, features: Mapping[str, Any], rows: Any) -> Iterator[Any]:
    """Yield rows to decide: the given ones, and random numbers or texts like those it was fitted on."""
    generator = np.random.default_rng()  # not seeded: a file could be crafted to pass on known rows
    if declared(rejector).judges_scores:
        for judge in declared(rejector).fitted.judges:
            shape = (ROWS, *judge.calibration_.scores.shape[1:])
            yield Answers(np.resize(judge.classes_, ROWS), generator.normal(size=shape))
        return
    if rows is not None:
        yield rows
    width = features["count"]
    if width is None:
        yield np.array(_TEXTS, dtype=object)
        return
    if ROWS * width <= _MAX_DENSE:
        few = [np.zeros((2, width)), np.ones((2, width)), generator.normal(size=(ROWS - 4, width))]
        numbers = np.concatenate(few)
        yield _named(numbers, features)
        yield _named(1e6 * numbers, features)
    places = np.repeat(np.arange(ROWS), 64), generator.integers(width, size=64 * ROWS)
    yield sp.csr_matrix((generator.normal(size=64 * ROWS), places), shape=(ROWS, width))


def _named(numbers: Any, features: Mapping[str, Any]) -> Any:
    """Return numbers as a frame if the rejector was fitted on one, with texts in its columns of text."""
    layout = Layout.described(features)
    try:
        if not layout.text:
            return layout.rows(numbers)
        cells = numbers.astype(object)
        for j, name in enumerate(features["names"]):
            if name in layout.text:
                cells[:, j] = np.resize(_TEXTS, len(cells))
        return layout.rows(cells)
    except MissingExtraError:
        return numbers
