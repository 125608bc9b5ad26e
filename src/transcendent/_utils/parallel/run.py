"""Return results of tasks in order, on any backend, and repeat tasks of workers that die."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from joblib import effective_n_jobs
from joblib.parallel import BACKENDS, get_active_backend
from sklearn.utils.parallel import Parallel, delayed

from transcendent._utils.parallel.dask import on_dask
from transcendent._utils.parallel.progress import Progress
from transcendent._utils.parallel.sharing import Shared
from transcendent._utils.parallel.worker import (
    LostDataError,
    share_of_cores,
    warn_of_lost,
    work,
    work_as_child,
    workers_died,
)
from transcendent.errors import WorkerDiedError

T = TypeVar("T")
Task = tuple[Any, ...]
Report = Callable[[int], None]

_MAX_DEATHS = 3


def run(
    function: Callable[..., T],
    tasks: Iterable[Task],
    *,
    total: int,
    shared: tuple[Any, ...] = (),
    n_jobs: int | None = None,
    shared_memory: bool = False,
    label: str = "",
    verbose: bool = False,
) -> list[T]:
    """Return the results of ``function(*shared, *task)`` for every task, in order; see `stream`."""
    with Progress(label, total, verbose=verbose) as progress:
        results = stream(
            function, tasks, shared=shared, n_jobs=n_jobs, shared_memory=shared_memory, report=progress.show
        )
        return list(results)


def stream(
    function: Callable[..., T],
    tasks: Iterable[Task],
    *,
    shared: tuple[Any, ...] = (),
    n_jobs: int | None = None,
    shared_memory: bool = False,
    report: Report = lambda _: None,
) -> Generator[T]:
    """Yield the results of ``function(*shared, *task)`` in order, each as soon as possible.

    ``joblib.parallel_config(backend=...)`` around the call sets where tasks run. Each process runs one task
    at a time on its share of the cores, and gets ``shared`` once. Tasks of a process that dies are repeated.
    With ``shared_memory``, tasks run in threads and may write to the caller's arrays. ``report`` is called
    with the number of tasks done.
    """
    backend = get_active_backend()[0]
    client = getattr(backend, "client", None)  # only Dask's backend has one
    if n_jobs == 1 or (client is None and effective_n_jobs(n_jobs) == 1):
        for done, task in enumerate(tasks, 1):
            yield function(*shared, *task)
            report(done)
    elif shared_memory:
        pool = _ProgressPool(report, n_jobs=n_jobs, require="sharedmem", return_as="generator")
        yield from pool(delayed(function)(*shared, *task) for task in tasks)
    elif client is not None:
        yield from _repeat_lost(partial(on_dask, client, function, shared), tasks, report)
    else:
        streams = getattr(backend, "supports_return_generator", False)
        how = {"n_jobs": n_jobs, "return_as": "generator" if streams else "list"}
        # Only loky's workers are known to be children of this process.
        begin = partial(work_as_child, os.getpid()) if type(backend) is BACKENDS.get("loky") else work
        yield from _repeat_lost(partial(_on_joblib, how, partial(begin, function), shared), tasks, report)


def _repeat_lost(
    start: Callable[[Iterator[Task], Report], Iterable[T]], tasks: Iterable[Task], report: Report
) -> Iterator[T]:
    """Yield results in order; if workers die, start again with the tasks that have no result yet."""
    given, unfinished = iter(tasks), deque[Task]()
    done = deaths = all_deaths = 0
    while True:
        try:
            for result in start(_remembered(given, unfinished), partial(_report_sum, report, done)):
                unfinished.popleft()
                done, deaths = done + 1, 0
                yield result
            if all_deaths:
                warn_of_lost(all_deaths)
            return
        except (BrokenProcessPool, LostDataError):
            deaths, all_deaths = deaths + 1, all_deaths + 1
            if deaths == _MAX_DEATHS:
                raise WorkerDiedError(workers_died(f"{deaths} times in a row")) from None
            given, unfinished = chain(unfinished, given), deque()


def _report_sum(report: Report, before: int, done: int) -> None:
    report(before + done)


def _remembered(tasks: Iterator[Task], into: deque[Task]) -> Iterator[Task]:
    for task in tasks:
        into.append(task)
        yield task


def _on_joblib(
    how: dict[str, Any], begin: Callable[..., T], shared: Task, tasks: Iterator[Task], report: Report
) -> Iterable[T]:
    pickled, threads = Shared(shared), share_of_cores(effective_n_jobs(how["n_jobs"]))
    calls = (delayed(begin)(threads, pickled, task) for task in tasks)
    results: Iterable[T] = _ProgressPool(report, **how)(calls)
    return results


class _ProgressPool(Parallel):
    """A pool that reports the number of tasks done, on every backend."""

    def __init__(self, report: Report, **how: Any) -> None:
        super().__init__(**how)
        self._on_progress = report

    def print_progress(self) -> None:
        """Report progress; joblib calls this whenever tasks are done."""
        self._on_progress(self.n_completed_tasks)
