"""Work that is done by one thread, for all who wait for it at once."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Thread
from typing import Generic, TypeVar

T = TypeVar("T")
_LAST = 30  # seconds to finish what waits


class Together(Generic[T]):
    """A thread that takes all jobs that wait, and does them in one call.

    Parameters
    ----------
    work : callable
        Called with a list of jobs. What it raises is lost.
    size : callable
        The size of a job.
    most : int
        Take no more than this at once, except a single larger job.
    name : str
        Of the thread.
    """

    def __init__(
        self, work: Callable[[list[T]], None], size: Callable[[T], int], most: int, name: str
    ) -> None:
        self._work, self._size, self._most = work, size, most
        self._jobs: deque[T] = deque()
        self._waiting = 0
        self._working = False
        self._changed = Condition()
        self._closed = False
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The size of all jobs that wait."""
        return self._waiting

    @property
    def busy(self) -> bool:
        """Whether jobs wait or are being done."""
        return bool(self._jobs) or self._working

    @property
    def alive(self) -> bool:
        """Whether the thread still works."""
        return self._thread.is_alive()

    def put(self, jobs: list[T]) -> None:
        """Add jobs."""
        with self._changed:
            self._jobs.extend(jobs)
            self._waiting += sum(map(self._size, jobs))
            self._changed.notify()

    def close(self) -> None:
        """Do what waits, and stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(_LAST)

    def _run(self) -> None:
        while jobs := self._take():
            with suppress(Exception):  # such as a log that cannot be written: the thread has to live
                self._work(jobs)

    def _take(self) -> list[T]:
        with self._changed:
            self._working = False
            self._changed.wait_for(lambda: self._jobs or self._closed)
            jobs: list[T] = []
            taken = 0
            while self._jobs and (not jobs or taken + self._size(self._jobs[0]) <= self._most):
                jobs.append(self._jobs.popleft())
                taken += self._size(jobs[-1])
            self._waiting -= taken
            self._working = bool(jobs)
            return jobs
