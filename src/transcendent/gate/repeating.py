"""Work that a gate repeats in the background."""

from collections.abc import Callable
from threading import Event, Thread

import structlog

log = structlog.get_logger("transcendent.gate")


class Repeated:
    """Repeats work in a thread of its own, until it is closed.

    If the work returns True, there is more of it, and it is repeated without a pause. A failure is logged
    when it begins, and the work is tried again after the pause: most failures are a database that is away.
    """

    def __init__(self, name: str, seconds: float, work: Callable[[], bool | None]) -> None:
        self._name, self._seconds, self._work = name, seconds, work
        self._failing = False
        self._closed, self._wake = Event(), Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def wake(self) -> None:
        """Do the work now."""
        self._wake.set()

    def close(self) -> None:
        """Stop after the work under way."""
        self._closed.set()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.is_set():
            more = None
            try:
                more = self._work()
                self._failing = False
            except Exception as error:
                if not self._failing:
                    detail = str(getattr(error, "orig", error)).partition("\n")[0][:300]
                    log.warning(f"{self._name} failed", error=type(error).__name__, detail=detail)
                self._failing = True
            if not more:
                self._wake.wait(self._seconds)
                self._wake.clear()
