"""The one seam over joblib: many independent tasks, on whichever backend the caller chose."""

import os
import pickle
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import chain, islice
from platform import node
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
from joblib import cpu_count, effective_n_jobs, parallel_config
from joblib.externals.loky.cloudpickle_wrapper import dumps  # cloudpickle, wherever joblib keeps it
from joblib.parallel import get_active_backend
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import ThreadpoolController

from transcendent.arrays import AnyArray
from transcendent.errors import WorkerDiedError
from transcendent.extras import extra

T = TypeVar("T")

_BAR = 24
_DEATHS = 3
_PATIENCE = 60

silenced = False
"""True silences progress everywhere in this process, whatever ``verbose`` says."""


def _nobody(done: int) -> None:
    pass


def run(
    function: Callable[..., T],
    tasks: Iterable[tuple[Any, ...]],
    *,
    total: int,
    shared: tuple[Any, ...] = (),
    n_jobs: int | None = None,
    shared_memory: bool = False,
    label: str = "",
    verbose: bool = False,
) -> list[T]:
    """Results of ``function(*shared, *task)`` for every task, in order.

    With ``verbose`` and a person watching, a line on standard error tells how far it is. The rest is as
    `stream` has it.
    """
    progress = Progress(label, total, verbose=verbose)
    results = stream(
        function, tasks, shared=shared, n_jobs=n_jobs, shared_memory=shared_memory, tell=progress.show
    )
    gathered = list(results)
    progress.close()
    return gathered


def stream(
    function: Callable[..., T],
    tasks: Iterable[tuple[Any, ...]],
    *,
    shared: tuple[Any, ...] = (),
    n_jobs: int | None = None,
    shared_memory: bool = False,
    tell: Callable[[int], None] = _nobody,
) -> Generator[T]:
    """Each result of ``function(*shared, *task)`` as soon as it and all before it are there.

    No backend is named here: ``joblib.parallel_config(backend=...)`` around the call decides. Tasks run in
    processes, one at a time in each and on its share of the cores, and what is ``shared`` reaches each
    process once; those of a process that dies are done again. Tasks that write to arrays of the caller ask
    for ``shared_memory`` and run in threads. ``tell`` is called with the number that is done.
    """
    backend = get_active_backend()[0]
    client = getattr(backend, "client", None)  # which Dask's has
    if n_jobs == 1 or (client is None and effective_n_jobs(n_jobs) == 1):
        for done, task in enumerate(tasks, 1):
            yield function(*shared, *task)
            tell(done)
    elif shared_memory:
        pool = _Pool(tell, n_jobs=n_jobs, require="sharedmem", return_as="generator")
        yield from pool(delayed(function)(*shared, *task) for task in tasks)
    elif client is not None:
        yield from _insist(lambda given, told: _on_dask(client, function, given, shared, told), tasks, tell)
    else:
        streams = getattr(backend, "supports_return_generator", False)
        how = {"n_jobs": n_jobs, "return_as": "generator" if streams else "list"}
        yield from _insist(lambda given, told: _on_joblib(how, function, given, shared, told), tasks, tell)


def _tell_more(tell: Callable[[int], None], before: int, done: int) -> None:
    tell(before + done)


def _insist(
    start: Callable[[Iterator[tuple[Any, ...]], Callable[[int], None]], Iterable[T]],
    tasks: Iterable[tuple[Any, ...]],
    tell: Callable[[int], None],
) -> Iterator[T]:
    """Results in order; should workers die and take the call with them, the rest of it is started again."""
    given, unanswered = iter(tasks), deque[tuple[Any, ...]]()
    done = deaths = 0
    while True:
        try:
            for result in start(_remembered(given, unanswered), partial(_tell_more, tell, done)):
                unanswered.popleft()
                done, deaths = done + 1, 0
                yield result
            return
        except (BrokenProcessPool, _LostDataError):
            deaths += 1
            if deaths == _DEATHS:
                raise WorkerDiedError(_dead(f"{deaths} times in a row")) from None
            given, unanswered = chain(unanswered, given), deque()


def _remembered(tasks: Iterator[tuple[Any, ...]], into: deque[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    for task in tasks:
        into.append(task)
        yield task


def _on_joblib(
    how: dict[str, Any],
    function: Callable[..., T],
    tasks: Iterator[tuple[Any, ...]],
    shared: tuple[Any, ...],
    tell: Callable[[int], None],
) -> Iterable[T]:
    everybody, threads = Shared(shared), _share_of_cores(effective_n_jobs(how["n_jobs"]))
    results: Iterable[T] = _Pool(tell, **how)(
        delayed(_work_for)(node(), os.getpid(), function, threads, everybody, task) for task in tasks
    )
    return results


def _on_dask(
    client: Any,
    function: Callable[..., T],
    tasks: Iterator[tuple[Any, ...]],
    shared: tuple[Any, ...],
    tell: Callable[[int], None],
) -> Iterator[T]:
    """Dask without joblib between, which would wait forever for a task that killed its workers.

    A window of tasks is out at any time: however many there are, the scheduler knows of few.
    """
    distributed = extra("distributed", "dask")
    try:
        if not client.ncores():
            client.submit(int, pure=False).result(timeout=_PATIENCE)  # for which a cluster may grow workers
        everybody = client.scatter(Shared(shared), broadcast=True, hash=False)
    except TimeoutError:
        raise WorkerDiedError(
            "the Dask cluster has no worker that is alive; if some died, most often of too little memory."
        ) from None
    cores = sum(client.ncores().values()) or 1
    threads, window = _share_of_cores(cores), max(16, 4 * cores)
    out: dict[Any, int] = {}
    arrived: dict[int, T] = {}
    numbered, given_back = enumerate(tasks), 0
    completed = distributed.as_completed(with_results=True, raise_errors=False)

    def refill() -> None:
        for number, task in islice(numbered, window - len(out)):
            future = client.submit(_work, function, threads, everybody, task, pure=False)
            out[future] = number
            completed.add(future)

    try:
        refill()
        for future, result in completed:
            number = out.pop(future)
            if future.status == "error":
                if isinstance(result[1], distributed.KilledWorker):
                    raise WorkerDiedError(_dead("every time a task was tried"))
                raise result[1].with_traceback(result[2])
            if future.status != "finished":
                if client.status != "running":
                    raise WorkerDiedError("the connection to the Dask scheduler is lost.")
                raise _LostDataError
            arrived[number] = result
            refill()
            tell(given_back + len(arrived))
            while given_back in arrived:
                yield arrived.pop(given_back)
                given_back += 1
    finally:
        client.cancel([*out, everybody], force=True)


class _LostDataError(Exception):
    """All workers that held what is shared have died."""


def _dead(how_often: str) -> str:
    return (
        f"worker processes died, {how_often}. Most often the memory is not enough: run fewer at once, or "
        "give each more of it."
    )


def _share_of_cores(n_jobs: int) -> int:
    return max(1, int(cpu_count()) // n_jobs)


class Shared:
    """What all tasks of a call need: pickled once, opened once in each process.

    The pickle is a few arrays of bytes, without copies of what it was made from. Backends know what to do
    with large arrays: on loky they become memory maps, on Dask this object is sent to each worker once.
    """

    def __init__(self, value: Any) -> None:
        buffers: list[pickle.PickleBuffer] = []
        head = dumps(value, protocol=5, buffer_callback=buffers.append)
        self._pieces = [_as_bytes(piece) for piece in (head, *(buffer.raw() for buffer in buffers))]
        self._key = uuid4().hex
        self._value = value

    def __sizeof__(self) -> int:
        """What Dask goes by when it asks whether to send this apart from the tasks."""
        return 1024 + sum(piece.nbytes for piece in self._pieces)

    def __getstate__(self) -> dict[str, Any]:
        return {"_key": self._key, "_pieces": self._pieces}

    def open(self) -> Any:
        """The value; in another process than the one that made this, with arrays that are read-only."""
        if "_value" not in vars(self):
            self._value = self._opened_before() or self._load()
        return self._value

    def _load(self) -> Any:
        global _last_mapped
        head, *buffers = (_kept(piece).data.toreadonly() for piece in self._pieces)
        value = pickle.loads(head, buffers=buffers)
        if self._mapped:
            _last_mapped = (self._key, value)
        return value

    def _opened_before(self) -> Any:
        """With memory maps every task brings a new instance of this."""
        return _last_mapped[1] if self._mapped and _last_mapped[0] == self._key else None

    @property
    def _mapped(self) -> bool:
        return any(isinstance(piece, np.memmap) for piece in self._pieces)


_last_mapped: tuple[str, Any] = ("", None)


def _kept(piece: AnyArray) -> AnyArray:
    """A memory map of our own: joblib waits for those it gave out to be forgotten."""
    if not isinstance(piece, np.memmap):
        return piece
    file: Any = piece.filename
    return np.memmap(file, dtype=np.uint8, mode="r", offset=piece.offset, shape=piece.shape)


def _as_bytes(piece: Any) -> AnyArray:
    return np.frombuffer(piece, dtype=np.uint8) if len(piece) else np.empty(0, dtype=np.uint8)


_alone = threading.Lock()


def _work(function: Callable[..., T], threads: int, shared: Shared, task: tuple[Any, ...]) -> T:
    """A task in a worker process: alone there (liblinear is not thread-safe), on its share of the cores."""
    with _alone, _at_most(threads), parallel_config(backend="sequential"):
        return function(*shared.open(), *task)


def _work_for(host: str, caller: int, *task: Any) -> Any:
    """A task for a process on this machine: ours ends when that is killed, which would not be told."""
    name = f"ends with {caller}"
    if (
        host == node()
        and caller != os.getpid()
        and not any(thread.name == name for thread in threading.enumerate())
    ):
        threading.Thread(target=_end_with, args=(caller,), name=name, daemon=True).start()
    return _work(*task)


def _end_with(caller: int) -> None:
    try:
        while True:
            os.kill(caller, 0)  # does nothing, but to whom there is not
            time.sleep(1)
    except ProcessLookupError:
        os._exit(1)


@lru_cache(maxsize=1)
def _thread_pools(n_modules: int) -> ThreadpoolController:  # noqa: ARG001
    """Those of this process, looked for again when it has imported more: that takes some milliseconds."""
    return ThreadpoolController()


@contextmanager
def _at_most(threads: int) -> Iterator[None]:
    """Hold thread pools to a number: BLAS and OpenMP directly, LightGBM by the cores joblib tells it of."""
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


class _Pool(Parallel):
    """Tells how many tasks are done, on every backend."""

    def __init__(self, tell: Callable[[int], None], **how: Any) -> None:
        super().__init__(**how)
        self._tell = tell

    def print_progress(self) -> None:
        """Called by joblib whenever tasks are done."""
        self._tell(self.n_completed_tasks)


class Progress:
    """One line on standard error, silent for the first two seconds and when nobody watches."""

    silent_for = 2.0

    def __init__(self, label: str, total: int, *, verbose: bool) -> None:
        self.label, self.total = label, total
        self.watched = verbose and not silenced and _someone_watches()
        self.started = self.shown = time.monotonic()
        self.visible = False

    def show(self, done: int, note: str = "", *, rate: bool = False) -> None:
        """Say how many are done, and how many a second, at most five times a second."""
        now = time.monotonic()
        if (
            not self.watched
            or now - self.started < self.silent_for
            or (now - self.shown < 0.2 and done < self.total)
        ):
            return
        self.shown, self.visible = now, True
        left = (now - self.started) / done * (self.total - done)
        bar = "━" * round(_BAR * done / self.total)
        speed = f", {done / (now - self.started):,.0f} a second" if rate else ""
        sys.stderr.write(
            f"\r{self.label} {bar:<{_BAR}} {done:,} of {self.total:,}{note}{speed}, {left:.0f} s left   "
        )
        sys.stderr.flush()

    def close(self) -> None:
        """End the line, if there is one."""
        if self.visible:
            ended = f"{self.label}: done in {time.monotonic() - self.started:.0f} s"
            sys.stderr.write(f"\r{ended:<{_BAR + len(self.label) + 40}}\n")


def _someone_watches() -> bool:
    return sys.stderr.isatty() or "ipykernel" in sys.modules
