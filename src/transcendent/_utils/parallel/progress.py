"""Progress bars, by tqdm, on terminals and in notebooks."""

import sys
from types import TracebackType
from typing import Any, Self

DELAY = 2.0

silenced = False
"""True silences progress everywhere in this process, whatever ``verbose`` says."""


class Progress:
    """A bar that appears after two seconds, and only where someone can see it."""

    def __init__(self, label: str, total: int, *, verbose: bool, unit: str = "task") -> None:
        self._bar: Any = None
        if verbose and not silenced and _someone_watches():
            from tqdm.auto import tqdm  # which starts a thread: only where there is a bar

            self._bar = tqdm(desc=label, total=total, unit=f" {unit}s", delay=DELAY, disable=False)

    def show(self, done: int, note: str = "") -> None:
        """Show how many are done."""
        if self._bar is not None:
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(done - self._bar.n)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()


def _someone_watches() -> bool:
    return sys.stderr.isatty() or "ipykernel" in sys.modules
