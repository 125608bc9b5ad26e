"""Run tasks on a Dask cluster."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeVar

from transcendent._utils.extras import extra
from transcendent._utils.parallel.sharing import Shared
from transcendent._utils.parallel.worker import (
    LostDataError,
    share_of_cores,
    warn_of_lost,
    work,
    workers_died,
)
from transcendent.errors import WorkerDiedError

T = TypeVar("T")

_TIMEOUT = 60  # seconds


def on_dask(
    client: Any,
    function: Callable[..., T],
    shared: tuple[Any, ...],
    tasks: Iterator[tuple[Any, ...]],
    report: Callable[[int], None],
) -> Iterator[T]:
    """Yield results in order. With joblib's own Dask backend the call would hang if a task kills its workers.

    Only a window of tasks is submitted at a time, so the scheduler never holds many.
    """
    distributed = extra("distributed", "dask")
    try:
        if not client.ncores():  # an adaptive cluster starts workers for a task
            client.submit(int, pure=False).result(timeout=_TIMEOUT)
        scattered = client.scatter(Shared(shared), broadcast=True, hash=False)
    except TimeoutError:
        raise WorkerDiedError(
            "the Dask cluster has no live worker. If workers died, they most often lacked memory."
        ) from None
    cores = sum(client.ncores().values()) or 1
    threads, window = share_of_cores(cores), max(16, 4 * cores)
    out: dict[Any, int] = {}
    arrived: dict[int, T] = {}
    numbered, yielded = enumerate(tasks), 0
    lost_before = _lost_workers(client)
    completed = distributed.as_completed(with_results=True, raise_errors=False)

    def refill() -> None:
        for number, task in islice(numbered, window - len(out)):
            future = client.submit(work, function, threads, scattered, task, pure=False)
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
                    raise WorkerDiedError("the connection to the Dask scheduler was lost.")
                raise LostDataError
            arrived[number] = result
            refill()
            report(yielded + len(arrived))
            while yielded in arrived:
                yield arrived.pop(yielded)
                yielded += 1
        if lost := _lost_workers(client) - lost_before:
            warn_of_lost(len(lost), f" ({', '.join(sorted(worker for _, worker in lost))})")
    finally:
        client.cancel([*out, scattered], force=True)


def _lost_workers(client: Any) -> set[tuple[float, str]]:
    """Return the times and addresses of workers that left unexpectedly, as far as the scheduler remembers."""

    def lost(dask_scheduler: Any) -> list[tuple[float, str]]:  # not all events can be sent
        events = [each for each in dask_scheduler.get_events("all") if isinstance(each[1], dict)]
        gone = [(time, event) for time, event in events if event.get("action") == "remove-worker"]
        return [(time, event["worker"]) for time, event in gone if not event.get("expected")]

    return set(client.run_on_scheduler(lost))
