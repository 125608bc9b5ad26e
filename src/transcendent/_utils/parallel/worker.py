"""Run one task at a time in a worker process, on its share of the cores."""

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import Any, TypeVar

from joblib import cpu_count, parallel_config
from threadpoolctl import ThreadpoolController

from transcendent._utils.parallel.sharing import Shared
from transcendent.errors import WorkerLostWarning

T = TypeVar("T")

_alone = threading.Lock()


class LostDataError(Exception):
    """All workers that held the shared value have died."""


def workers_died(how_often: str) -> str:
    """Return an error message with the most likely cause and the way out."""
    return (
        f"worker processes died, {how_often}. Most often they lack memory: run fewer at once, or give each "
        "more memory."
    )


def warn_of_lost(n: int, named: str = "") -> None:
    """Say that workers were lost, and that nothing is missing."""
    warnings.warn(
        f"{n} {'worker was' if n == 1 else 'workers were'} lost{named}: killed, cut off, or without a sign "
        "of life. What was left to do has been done by others.",
        WorkerLostWarning,
        stacklevel=2,
    )


def share_of_cores(n_jobs: int) -> int:
    """Return the number of threads for each worker."""
    return max(1, int(cpu_count()) // n_jobs)


def work(function: Callable[..., T], threads: int, shared: Shared, task: tuple[Any, ...]) -> T:
    """Run a task alone in this process (liblinear is not thread-safe), on its share of the cores."""
    with _alone, _at_most(threads), parallel_config(backend="sequential"):
        return function(*shared.open(), *task)


def work_as_child(caller: int, *task: Any) -> Any:
    """Run a task in a child process, which exits if its caller dies, since nothing else would notify it."""
    name = f"exits with {caller}"
    if caller != os.getpid() and not any(thread.name == name for thread in threading.enumerate()):
        threading.Thread(target=_exit_with, args=(caller,), name=name, daemon=True).start()
    return work(*task)


def _exit_with(caller: int) -> None:
    while os.getppid() == caller:  # an orphan gets another parent (except on Windows)
        time.sleep(1)
    os._exit(1)


@lru_cache(maxsize=1)
def _thread_pools(n_modules: int) -> ThreadpoolController:  # noqa: ARG001
    """Return the thread pools of this process; further imports may add some, so the cache depends on them."""
    return ThreadpoolController()


def openmp_threads(threads: int) -> AbstractContextManager[Any]:
    """Return a context that limits the OpenMP threads of the calling thread."""
    pools = _thread_pools(len(sys.modules))
    limited: AbstractContextManager[Any] = pools.limit(limits=threads, user_api="openmp")
    return limited


@contextmanager
def _at_most(threads: int) -> Iterator[None]:
    """Limit thread pools: BLAS and OpenMP directly, LightGBM through the number of cores joblib reports."""
    before = os.environ.get("LOKY_MAX_CPU_COUNT")
    os.environ["LOKY_MAX_CPU_COUNT"] = str(threads)
    try:
        with _thread_pools(len(sys.modules)).limit(limits=threads):
            yield
    finally:
        if before is None:
            del os.environ["LOKY_MAX_CPU_COUNT"]
        else:
            os.environ["LOKY_MAX_CPU_COUNT"] = before
