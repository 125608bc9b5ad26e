"""A thread that does waiting jobs in batches."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Thread
from typing import Generic, TypeVar

T = TypeVar("T")
_CLOSE_TIMEOUT = 30  # seconds to finish the jobs that wait


class Batcher(Generic[T]):
    """A thread that does waiting jobs together, in one call of ``work``.

    A batch has a size of at most ``max_size``, or is a single larger job. Exceptions are suppressed.
    """

    def __init__(
        self, work: Callable[[list[T]], None], size: Callable[[T], int], max_size: int, name: str
    ) -> None:
        self._work, self._size, self._max_size = work, size, max_size
        self._jobs: deque[T] = deque()
        self.waiting = 0  # the total size of the jobs that wait
        self._working = self._closed = False
        self._changed = Condition()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether jobs wait or are being done."""
        return bool(self._jobs) or self._working

    @property
    def alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def put(self, jobs: list[T]) -> None:
        """Add jobs."""
        with self._changed:
            self._jobs.extend(jobs)
            self.waiting += sum(map(self._size, jobs))
            self._changed.notify()

    def close(self) -> None:
        """Finish the jobs that wait, and stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(_CLOSE_TIMEOUT)

    def _run(self) -> None:
        while jobs := self._take():
            with suppress(Exception):  # the thread must survive, even if a log cannot be written
                self._work(jobs)

    def _take(self) -> list[T]:
        with self._changed:
            self._working = False
            self._changed.wait_for(lambda: self._jobs or self._closed)
            jobs: list[T] = []
            taken = 0
            while self._jobs and (not jobs or taken + self._size(self._jobs[0]) <= self._max_size):
                jobs.append(self._jobs.popleft())
                taken += self._size(jobs[-1])
            self.waiting -= taken
            self._working = bool(jobs)
            return jobs
