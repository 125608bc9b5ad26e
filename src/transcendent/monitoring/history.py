"""Values of a monitor over time, in bounded memory."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from transcendent._utils.arrays import AnyArray, IntArray
from transcendent.monitoring.state import as_numbers, check_counts, check_fields

_MAX_POINTS = 512


@dataclass
class History:
    """Columns of values after every ``every``-th object or batch; ``every`` doubles when they are full."""

    every: int = 1
    n: int = 0
    columns: dict[str, list[Any]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, state: dict[str, Any], n: int, *names: str) -> "History":
        """Return the history with this state, of n objects or batches and columns with these names."""
        check_fields(state, "every", "n", "columns")
        every, columns = state["every"], state["columns"]
        check_counts(every=every - 1, n=n if state["n"] == n else -1)
        check_fields(columns, *(names if n else ()))
        for name, column in columns.items():
            as_numbers(column, n // every, name)
        return cls(**state)

    def update(self, **values: AnyArray) -> None:
        """Add the values after each object or batch, in order of arrival."""
        points = slice(self.every - 1 - self.n % self.every, None, self.every)
        for name, column in values.items():
            self.columns.setdefault(name, []).extend(column[points].tolist())
        self.n += len(next(iter(values.values())))
        while self.n // self.every > _MAX_POINTS:
            self.every *= 2
            self.columns = {name: column[1::2] for name, column in self.columns.items()}

    @property
    def at(self) -> IntArray:
        """Number of objects, or batches, at each point."""
        return np.arange(1, self.n // self.every + 1) * self.every
