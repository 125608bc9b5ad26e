"""Show progress with tqdm, on terminals and in notebooks."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, Self

DELAY = 2.0

silenced = False
"""True silences progress everywhere in this process, whatever ``verbose`` says."""


class Progress:
    """A progress bar that appears after two seconds, on terminals and in notebooks only."""

    def __init__(self, label: str, total: int, *, verbose: bool, unit: str = "task") -> None:
        self._bar: Any = None
        if verbose and _is_visible():
            from tqdm.auto import tqdm  # imported late, since it starts a thread

            self._bar = tqdm(desc=label, total=total, unit=unit, delay=DELAY, disable=False)

    def show(self, done: int, note: str = "") -> None:
        """Show the number of tasks done."""
        if self._bar is not None:
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(done - self._bar.n)

    def skip(self, done: int) -> None:
        """Show the number of tasks done; the forecast ignores the new ones, which were done before."""
        if self._bar is not None:
            self._bar.initial += done - self._bar.n
            self.show(done)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Leave the time inside the block out of the forecast."""
        began = 0.0 if self._bar is None else self._bar._time()
        yield
        if self._bar is not None:
            self._bar.start_t += self._bar._time() - began

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


@contextmanager
def working(label: str, *, verbose: bool) -> Iterator[None]:
    """Show a label and the elapsed time if the block takes more than two seconds."""
    if not (verbose and _is_visible()):
        yield
        return
    done = Event()
    clock = Thread(target=_tick, args=(label, done), daemon=True)
    clock.start()
    try:
        yield
    finally:
        done.set()
        clock.join()


def _tick(label: str, done: Event) -> None:
    if done.wait(DELAY):
        return
    from tqdm.auto import tqdm

    with tqdm(desc=label, bar_format="{desc} [{elapsed}]", leave=False) as bar:
        bar.start_t -= DELAY
        while not done.wait(1.0):
            bar.refresh()


def _is_visible() -> bool:
    return not silenced and (sys.stderr.isatty() or "ipykernel" in sys.modules)
