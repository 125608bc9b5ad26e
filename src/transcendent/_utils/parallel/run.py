"""Tasks in order, whatever the backend and whichever workers die."""

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
    work,
    work_as_child,
    workers_died,
)
from transcendent.errors import WorkerDiedError

T = TypeVar("T")
Task = tuple[Any, ...]
Tell = Callable[[int], None]

_DEATHS = 3


def _silent(done: int) -> None:
    pass


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
        return list(
            stream(
                function, tasks, shared=shared, n_jobs=n_jobs, shared_memory=shared_memory, tell=progress.show
            )
        )


def stream(
    function: Callable[..., T],
    tasks: Iterable[Task],
    *,
    shared: tuple[Any, ...] = (),
    n_jobs: int | None = None,
    shared_memory: bool = False,
    tell: Tell = _silent,
) -> Generator[T]:
    """Yield each result of ``function(*shared, *task)`` as soon as it and all before it are there.

    ``joblib.parallel_config(backend=...)`` around the call decides where tasks run. They run in processes,
    one at a time in each and on its share of the cores, and ``shared`` reaches each process once; the tasks
    of a process that dies are repeated. With ``shared_memory`` tasks run in threads and may write to the
    caller's arrays. ``tell`` is called with the number of tasks done.
    """
    backend = get_active_backend()[0]
    client = getattr(backend, "client", None)  # only Dask's backend has one
    if n_jobs == 1 or (client is None and effective_n_jobs(n_jobs) == 1):
        for done, task in enumerate(tasks, 1):
            yield function(*shared, *task)
            tell(done)
    elif shared_memory:
        pool = _Pool(tell, n_jobs=n_jobs, require="sharedmem", return_as="generator")
        yield from pool(delayed(function)(*shared, *task) for task in tasks)
    elif client is not None:
        yield from _insist(partial(on_dask, client, function, shared), tasks, tell)
    else:
        streams = getattr(backend, "supports_return_generator", False)
        how = {"n_jobs": n_jobs, "return_as": "generator" if streams else "list"}
        # Only loky's workers are known to be children of this process.
        begin = partial(work_as_child, os.getpid()) if type(backend) is BACKENDS.get("loky") else work
        yield from _insist(partial(_on_joblib, how, partial(begin, function), shared), tasks, tell)


def _insist(
    start: Callable[[Iterator[Task], Tell], Iterable[T]], tasks: Iterable[Task], tell: Tell
) -> Iterator[T]:
    """Yield results in order; if workers die and end the call, start it again with the remaining tasks."""
    given, unanswered = iter(tasks), deque[Task]()
    done = deaths = 0
    while True:
        try:
            for result in start(_remembered(given, unanswered), partial(_tell_all, tell, done)):
                unanswered.popleft()
                done, deaths = done + 1, 0
                yield result
            return
        except (BrokenProcessPool, LostDataError):
            deaths += 1
            if deaths == _DEATHS:
                raise WorkerDiedError(workers_died(f"{deaths} times in a row")) from None
            given, unanswered = chain(unanswered, given), deque()


def _tell_all(tell: Tell, before: int, done: int) -> None:
    tell(before + done)


def _remembered(tasks: Iterator[Task], into: deque[Task]) -> Iterator[Task]:
    for task in tasks:
        into.append(task)
        yield task


def _on_joblib(
    how: dict[str, Any], begin: Callable[..., T], shared: Task, tasks: Iterator[Task], tell: Tell
) -> Iterable[T]:
    everybody, threads = Shared(shared), share_of_cores(effective_n_jobs(how["n_jobs"]))
    results: Iterable[T] = _Pool(tell, **how)(delayed(begin)(threads, everybody, task) for task in tasks)
    return results


class _Pool(Parallel):
    """Tells how many tasks are done, on every backend."""

    def __init__(self, tell: Tell, **how: Any) -> None:
        super().__init__(**how)
        self._tell = tell

    def print_progress(self) -> None:
        """Called by joblib whenever tasks are done."""
        self._tell(self.n_completed_tasks)
