"""Tasks on a Dask cluster."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeVar

from transcendent._utils.extras import extra
from transcendent._utils.parallel.sharing import Shared
from transcendent._utils.parallel.worker import LostDataError, share_of_cores, work, workers_died
from transcendent.errors import WorkerDiedError

T = TypeVar("T")

_PATIENCE = 60


def on_dask(
    client: Any,
    function: Callable[..., T],
    shared: tuple[Any, ...],
    tasks: Iterator[tuple[Any, ...]],
    tell: Callable[[int], None],
) -> Iterator[T]:
    """Results in order, without joblib's own Dask backend, which hangs when a task kills its workers.

    Only a window of tasks is submitted at a time, so the scheduler never holds many.
    """
    distributed = extra("distributed", "dask")
    try:
        if not client.ncores():
            client.submit(int, pure=False).result(
                timeout=_PATIENCE
            )  # an adaptive cluster starts workers for it
        everybody = client.scatter(Shared(shared), broadcast=True, hash=False)
    except TimeoutError:
        raise WorkerDiedError(
            "the Dask cluster has no worker that is alive; if some died, most often of too little memory."
        ) from None
    cores = sum(client.ncores().values()) or 1
    threads, window = share_of_cores(cores), max(16, 4 * cores)
    out: dict[Any, int] = {}
    arrived: dict[int, T] = {}
    numbered, given_back = enumerate(tasks), 0
    completed = distributed.as_completed(with_results=True, raise_errors=False)

    def refill() -> None:
        for number, task in islice(numbered, window - len(out)):
            future = client.submit(work, function, threads, everybody, task, pure=False)
            out[future] = number
            completed.add(future)

    try:
        refill()
        for future, result in completed:
            number = out.pop(future)
            if future.status == "error":
                if isinstance(result[1], distributed.KilledWorker):
                    raise WorkerDiedError(workers_died("every time a task was tried"))
                raise result[1].with_traceback(result[2])
            if future.status != "finished":
                if client.status != "running":
                    raise WorkerDiedError("the connection to the Dask scheduler is lost.")
                raise LostDataError
            arrived[number] = result
            refill()
            tell(given_back + len(arrived))
            while given_back in arrived:
                yield arrived.pop(given_back)
                given_back += 1
    finally:
        client.cancel([*out, everybody], force=True)
