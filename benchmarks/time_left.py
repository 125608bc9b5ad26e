"""Is the time left that a progress bar shows the time that is left?

OMP_NUM_THREADS=1 python benchmarks/time_left.py        # about two minutes

After a fifth of the work, the forecast of the bar is compared with the time that the rest took.
"""

import io
import sys
import time
from collections.abc import Callable
from typing import Any

from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.svm import LinearSVC

from transcendent import CrossConformalEvaluator, InductiveEvaluator, backtest
from transcendent._utils.parallel import progress
from transcendent.datasets import make_stream

SHARE = 0.2


class Watched(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def forecast(work: Callable[[], Any]) -> tuple[float, float]:
    """Return the forecast after a fifth of the longest bar, and the time that was left."""
    seen: dict[Any, tuple[float, float]] = {}
    show = progress.Progress.show

    def watch(self: progress.Progress, done: int, note: str = "") -> None:
        show(self, done, note)
        bar = self._bar
        if bar is not None and self not in seen and done >= SHARE * bar.total:
            said = bar.format_dict
            rate = said["rate"] or (said["n"] - said["initial"]) / said["elapsed"]
            seen[self] = (bar.total - done) / rate, time.perf_counter()

    progress.Progress.show = watch  # type: ignore[method-assign]
    terminal, sys.stderr = sys.stderr, Watched()
    try:
        work()
        ended = time.perf_counter()
    finally:
        progress.Progress.show, sys.stderr = show, terminal  # type: ignore[method-assign]
    said, at = max(seen.values(), key=lambda pair: ended - pair[1])
    return said, ended - at


def main() -> None:
    X, y = make_classification(3000, 60, n_informative=10, flip_y=0.05, random_state=0)
    stream = make_stream(60_000, n_periods=48, concept=0.5, random_state=0)
    forest = RandomForestClassifier(300, random_state=0)
    ice = {"drift": InductiveEvaluator(LinearSVC(), measure="drift", random_state=0)}
    given = {"X": stream.X, "y": stream.y, "times": stream.times, "train": "2020-07"}
    tasks: dict[str, Callable[[], Any]] = {
        "10 folds with the drift measure": lambda: CrossConformalEvaluator(
            LinearSVC(), measure="drift", cv=10, random_state=0
        ).fit(X[:800], y[:800]),
        "10 folds of a forest": lambda: CrossConformalEvaluator(forest, cv=10, random_state=0).fit(X, y),
        "a backtest of the drift measure, 42 periods": lambda: backtest(ice, **given),
    }
    print("| work | time left, forecast after a fifth | in truth | ratio |\n|---|---|---|---|")
    for name, work in tasks.items():
        said, left = forecast(work)
        print(f"| {name} | {said:.1f} s | {left:.1f} s | {said / left:.2f} |", flush=True)


if __name__ == "__main__":
    main()
