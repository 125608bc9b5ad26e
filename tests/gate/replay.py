"""Gates that share a cutoff, without a database. What a gate decides is counted when it moves the cutoff."""

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any
from uuid import uuid4

import numpy as np

from transcendent.gate.cutoff import (
    Cutoff,
    Interval,
    Rule,
    next_cutoff,
    objects_until_move,
    sample_ranks,
)


@dataclass
class Shared:
    """What the gates share, as the tables hold it."""

    rule: Rule
    cutoff: Cutoff = field(init=False)
    intervals: list[Interval] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cutoff, _ = next_cutoff(self.rule, None, [])

    def move(self, ranks: Any, rejected: int, since: int, gate: Any = None) -> Cutoff:
        """Count objects, and set the next cutoff."""
        lag = self.cutoff.decided + len(ranks) - since
        self.intervals.insert(0, Interval(sample_ranks(ranks), len(ranks), rejected, lag, gate))
        made, used = next_cutoff(self.rule, self.cutoff, self.intervals)
        del self.intervals[used:]
        self.cutoff = made._replace(number=self.cutoff.number + 1)
        return self.cutoff


class Process:
    """A gate: it decides by the cutoff of its last move."""

    def __init__(self, shared: Shared) -> None:
        self.shared, self.gate, self.moves_after = shared, uuid4(), objects_until_move(())
        self.restart()

    def restart(self) -> None:
        """Forget what is not counted."""
        self.cutoff = self.shared.cutoff
        self.ranks: list[Any] = []
        self.rejected = 0

    def decide(self, ranks: Any, draws: Any) -> Any:
        """Return which objects are rejected."""
        rejected = self.cutoff.rejects(ranks[:, 0], ranks[:, 1], lambda places: draws[places])
        self.ranks.append(ranks)
        self.rejected += int(rejected.sum())
        return rejected

    def move(self) -> None:
        """Count, and take the next cutoff."""
        if self.ranks:
            self.shared.move(np.concatenate(self.ranks), self.rejected, self.cutoff.decided, self.gate)
            self.moves_after = objects_until_move(self.shared.intervals)
        self.restart()


def replay(rule: Rule, ranks: Any, draws: Any, every: int | None, gates: int = 1, killed: Any = ()) -> Any:
    """Return which objects are rejected: dealt to gates in turn, each moves after ``every`` objects of all.

    If ``every`` is None, each moves after as many objects of its own as the gates in the window say. A gate
    that is killed instead of its n-th move, for the n in ``killed``, loses its counts.
    """
    shared = Shared(rule)
    processes = [Process(shared) for _ in range(gates)]
    done, rejected, n, queue = [0] * gates, np.zeros(len(ranks), dtype=bool), 0, list[tuple[int, int, int]]()
    for g, one in enumerate(processes):
        # At different times, so that they do not move all at once.
        own = one.moves_after if every is None else every // gates * (g + 1) // gates
        heappush(queue, (gates * own + g, g, own))
    while queue:
        end, g, own = heappop(queue)
        places = np.arange(gates * done[g] + g, min(end, len(ranks)), gates)
        rejected[places] = processes[g].decide(ranks[places], draws[places])
        done[g] = own
        processes[g].restart() if n in killed else processes[g].move()
        if end < len(ranks):
            own += processes[g].moves_after if every is None else every // gates
            heappush(queue, (gates * own + g, g, own))
        n += 1
    return rejected
