"""Streams of objects through the function that folds minutes, for tests and benchmarks of monitors."""

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from tests.monitoring.answers import objects
from transcendent import ScoreEvaluator
from transcendent._utils.arrays import IntArray
from transcendent.gate.folding import fold
from transcendent.monitoring import Alarm, DriftMonitor

START = 29_000_000


def cells_of(observer: DriftMonitor, rng: np.random.Generator, n: int, shift: float = 0.0) -> list[int]:
    """Return the cells of new objects."""
    cells: list[int] = observer.observe(objects(rng, n, shift)[0]).cells.tolist()
    return cells


def streams(
    n_streams: int, n_minutes: int, per_minute: int, shift: Callable[[int], float] = lambda minute: 0.0
) -> Iterator[tuple[DriftMonitor, list[tuple[str, int, Alarm]], DriftMonitor, IntArray]]:
    """Yield monitors and alarms of streams through the function that folds, and arrivals for comparison."""
    for seed in range(n_streams):
        rng = np.random.default_rng([1, seed])
        judge = ScoreEvaluator().fit(*objects(rng, 800))
        observer, arrived = DriftMonitor.of(judge), []
        state: str | None = None
        raised: list[tuple[str, int, Alarm]] = []
        for minute in range(n_minutes):
            cells = cells_of(observer, rng, per_minute, shift(minute))
            arrived.append(np.array(cells))
            monitor, alarms = fold(judge, state, START + minute, Counter(cells))
            state = monitor.to_json()
            raised += [(kind, minute, alarm) for kind, alarm in alarms.items()]
        yield monitor, raised, observer, np.concatenate(arrived)
