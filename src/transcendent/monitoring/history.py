"""What a monitor saw over time, in memory that does not grow."""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from transcendent._utils.arrays import AnyArray, IntArray
from transcendent.monitoring.state import as_numbers, check_counts, check_fields

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

    @classmethod
    def from_json(cls, state: dict[str, Any], n: int, *names: str) -> "History":
        """Return the history that had this state, of n objects or batches and columns with these names."""
        check_fields(state, "every", "n", "columns")
        every, columns = state["every"], state["columns"]
        check_counts(every=every - 1, n=n if state["n"] == n else -1)
        check_fields(columns, *(names if n else ()))
        for name, column in columns.items():
            as_numbers(column, n // every, name)
        return cls(**state)

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
