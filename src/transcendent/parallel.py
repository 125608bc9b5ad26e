"""The one seam over joblib: many independent tasks, on whichever backend the caller chose."""

import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from joblib.parallel import get_active_backend
from sklearn.utils.parallel import Parallel, delayed

T = TypeVar("T")

_BAR = 24

silenced = False
"""True silences progress everywhere in this process, whatever ``verbose`` says."""


def run(
    function: Callable[..., T],
    tasks: Iterable[tuple[Any, ...]],
    *,
    total: int,
    n_jobs: int | None = None,
    shared_memory: bool = False,
    label: str = "",
    verbose: bool = False,
) -> list[T]:
    """Results of ``function(*task)`` for every task, in order.

    No backend is named here: ``joblib.parallel_config(backend=...)`` around the call decides. Fits run in
    processes (liblinear is not thread-safe); tasks that write to arrays of the caller ask for
    ``shared_memory`` and run in threads. With ``verbose`` and a person watching, a line on standard error
    tells how far it is.
    """
    progress = Progress(label, total, verbose=verbose)
    streams = progress.watched and getattr(get_active_backend()[0], "supports_return_generator", False)
    pool = Parallel(
        n_jobs=n_jobs,
        require="sharedmem" if shared_memory else None,
        return_as="generator" if streams else "list",
    )
    results = []
    for result in pool(delayed(function)(*task) for task in tasks):
        results.append(result)
        progress.show(len(results))
    progress.close()
    return results


class Progress:
    """One line on standard error, silent for the first two seconds and when nobody watches."""

    def __init__(self, label: str, total: int, *, verbose: bool) -> None:
        self.label, self.total = label, total
        self.watched = verbose and not silenced and _someone_watches()
        self.started = self.shown = time.monotonic()
        self.visible = False

    def show(self, done: int) -> None:
        """Say how many are done, at most five times a second."""
        now = time.monotonic()
        if not self.watched or now - self.started < 2 or (now - self.shown < 0.2 and done < self.total):
            return
        self.shown, self.visible = now, True
        left = (now - self.started) / done * (self.total - done)
        bar = "━" * round(_BAR * done / self.total)
        sys.stderr.write(f"\r{self.label} {bar:<{_BAR}} {done} of {self.total}, {left:.0f} s left   ")
        sys.stderr.flush()

    def close(self) -> None:
        """End the line, if there is one."""
        if self.visible:
            ended = f"{self.label}: done in {time.monotonic() - self.started:.0f} s"
            sys.stderr.write(f"\r{ended:<{_BAR + len(self.label) + 40}}\n")


def _someone_watches() -> bool:
    return sys.stderr.isatty() or "ipykernel" in sys.modules
