"""The layout of rows: the columns that a rejector was fitted on and needs again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from transcendent._utils.arrays import AnyArray, column_names
from transcendent._utils.extras import extra

Kind = Literal["number", "boolean", "text"]


@dataclass(frozen=True)
class Layout:
    """The columns of rows.

    Attributes
    ----------
    width : int
        The number of columns; 0 if unknown, or if rows are texts.
    names : sequence of str or None
        The names of the columns of a frame.
    kinds : dict of str
        The kinds of columns, where known: ``"number"``, ``"boolean"`` or ``"text"``.
    """

    width: int
    names: Sequence[str] | None = None
    kinds: Mapping[str, Kind] = field(default_factory=dict)

    @classmethod
    def of(cls, X: Any) -> "Layout":
        """Return the layout of rows."""
        names = column_names(X)
        if names is None:
            shape = np.shape(X)
            return cls(shape[1] if len(shape) == 2 else 0)
        dtypes = zip(names, X.dtypes if hasattr(X, "dtypes") else (), strict=False)
        return cls(
            len(names), names, {name: _kind(dtype) for name, dtype in dtypes if hasattr(dtype, "kind")}
        )

    @cached_property
    def known(self) -> frozenset[str]:
        """The names, as a set."""
        return frozenset(self.names or ())

    @property
    def text(self) -> list[str]:
        """The columns that hold text."""
        return [name for name, kind in self.kinds.items() if kind == "text"]

    def rows(self, cells: AnyArray) -> Any:
        """Return cells as the detector was fitted on them: as a frame, if the columns have names.

        ``cells`` is an array of numbers, or of numbers, texts, booleans, and None for missing values.
        """
        if self.names is None:
            return cells
        frame = extra("pandas", "gate").DataFrame
        if cells.dtype.kind != "O":
            return frame(cells, columns=self.names)
        kinds = [self.kinds.get(name, "number") for name in self.names]
        columns = zip(self.names, cells.T, kinds, strict=True)
        return frame({name: _typed(column, kind) for name, column, kind in columns})


def _kind(dtype: Any) -> Kind:
    return "boolean" if dtype.kind == "b" else "number" if dtype.kind in "iuf" else "text"


def _typed(column: AnyArray, kind: Kind) -> AnyArray:
    """Return a column with its own type: None becomes NaN in numbers, and stays None in other columns."""
    if kind == "number":
        return column.astype(np.float64)
    return column.astype(bool) if kind == "boolean" and not any(cell is None for cell in column) else column


def ascend(indices: AnyArray, indptr: AnyArray) -> bool:
    """Return whether the indices of every sparse row strictly ascend."""
    steps = indices[1:] > indices[:-1]
    starts = indptr[1:-1]
    steps[starts[(starts > 0) & (starts < len(indices))] - 1] = True  # steps to the next row may go down
    return bool(steps.all())
