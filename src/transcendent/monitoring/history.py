"""What a monitor saw over time, in memory that does not grow."""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from transcendent._utils.arrays import AnyArray, IntArray
from transcendent.monitoring.state import check_counts

_MOST = 512


@dataclass
class History:
    """Values after every ``every``-th object or batch; if that makes too many, after every second of these.

    Attributes
    ----------
    every : int
        Number of objects, or batches, from one point to the next.
    n : int
        Number of objects, or batches, so far.
    columns : dict of lists
        The values at each point, by name.
    """

    every: int = 1
    n: int = 0
    columns: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_counts(n=self.n, every=self.every - 1)

    def update(self, **values: AnyArray) -> None:
        """Take in values after each object or batch, in order of arrival."""
        points = slice(self.every - 1 - self.n % self.every, None, self.every)
        for name, column in values.items():
            self.columns.setdefault(name, []).extend(column[points].tolist())
        self.n += len(next(iter(values.values())))
        while self.n // self.every > _MOST:
            self.every *= 2
            self.columns = {name: column[1::2] for name, column in self.columns.items()}

    @property
    def at(self) -> IntArray:
        """Number of objects, or batches, at each point."""
        return np.arange(1, self.n // self.every + 1) * self.every

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain numbers."""
        return asdict(self)
