"""The layout of rows: the columns that a rejector was fitted on and needs again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from transcendent._utils.arrays import AnyArray, column_names
from transcendent._utils.extras import extra

Kind = Literal["number", "boolean", "text"]
DOCUMENT = "text"
"""The name of the only column if rows are texts."""

DIFFERING = frozenset({"dtypes", "shown_names"})
"""What may differ in descriptions of the same columns."""
_TYPES = ("kinds", "dtypes")


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
    dtypes : dict of str
        The types that the columns had in a fit, where known, as `FittedColumns` names them.
    documents : bool
        Whether rows are texts, in one column that a frame would have.
    scores : sequence of str
        The columns with a detector's scores, if rows are its answers instead of features.
    shown_names : sequence of str or None
        Names by which columns are only shown: rows are arrays or matrices without names.
    """

    width: int
    names: Sequence[str] | None = None
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    documents: bool = False
    scores: Sequence[str] = ()
    shown_names: Sequence[str] | None = None

    @classmethod
    def of(cls, X: Any) -> "Layout":
        """Return the layout of rows."""
        names = column_names(X)
        if names is None:
            shape = np.shape(X)
            return cls(shape[1] if len(shape) == 2 else 0)
        columns = [X.iloc[:, j] for j in range(len(names))] if hasattr(X, "iloc") else []
        return cls(len(names), names, dict(zip(names, map(_kind, columns), strict=False)))

    @classmethod
    def described(cls, features: Mapping[str, Any]) -> "Layout":
        """Return the layout that an artifact's manifest or `description` describes."""
        if features["count"] is None:
            return cls(1, [DOCUMENT], {DOCUMENT: "text"}, documents=True)
        names = features["names"]
        kinds, dtypes = (dict(zip(names or (), features.get(key) or (), strict=False)) for key in _TYPES)
        rest = {"scores": features.get("scores", ()), "shown_names": features.get("shown_names")}
        return cls(features["count"], names, kinds, dtypes, **rest)

    def description(self) -> dict[str, Any]:
        """Return the number, names and types of columns as JSON values."""
        if self.documents:
            return {"count": None, "names": None}
        names = None if self.names is None else list(self.names)
        types = {"kinds": list(self.kinds.values()), "dtypes": list(self.dtypes.values())}
        scores = {"scores": list(self.scores)} if self.scores else {}
        shown = {"shown_names": list(self.shown_names)} if self.shown_names else {}
        return {"count": self.width, "names": names, **(types if self.kinds else {}), **scores, **shown}

    @property
    def names_to_show(self) -> Sequence[str] | None:
        """The names of the columns, of a frame or only shown."""
        return self.shown_names if self.names is None else self.names

    @cached_property
    def known(self) -> frozenset[str]:
        """The names, as a set."""
        return frozenset(self.names or ())

    @cached_property
    def text(self) -> list[str]:
        """The columns that hold text."""
        return [name for name, kind in self.kinds.items() if kind == "text"]

    @cached_property
    def boolean(self) -> list[int]:
        """The positions of the columns that hold booleans."""
        return [j for j, name in enumerate(self.names or ()) if self.kinds.get(name) == "boolean"]

    def rows(self, cells: AnyArray) -> Any:
        """Return cells as the detector was fitted on them: as a frame, if the columns have names.

        ``cells`` is an array of numbers, or of numbers, texts, booleans, and None for missing values.
        """
        if self.names is None:
            return cells
        if cells.dtype.kind != "O" and not self._has_types:
            return extra("pandas", "gate").DataFrame(cells, columns=self.names)
        return self.frame(dict(zip(self.names, cells.T, strict=True)))

    def frame(self, columns: Mapping[str, AnyArray]) -> Any:
        """Return columns by name as a frame with the types of the fit, or as documents.

        Numbers are float64 unless they were float32: any of them may be missing, and the type of a column
        must not depend on the other objects of a request.
        """
        if self.documents:
            return next(iter(columns.values()))
        pandas = extra("pandas", "gate")
        typed = {
            name: _typed(column, self.kinds.get(name, "number"), self.dtypes.get(name), pandas)
            for name, column in columns.items()
        }
        return pandas.DataFrame(typed)

    def as_fitted(self, X: Any) -> Any:
        """Return the rows of a file with texts, booleans and missing values as they were in the fit.

        How pandas reads a column depends on all of its cells: True and False become text beside one text, and
        missing values are NaN in CSV and None in Parquet.
        """
        pandas, columns = extra("pandas", "cli"), {}
        for name, dtype in self.dtypes.items():
            if (kind := self.kinds[name]) in ("boolean", "text"):
                cells = _typed(X[name].to_numpy(dtype=object), kind, dtype, pandas)
                columns[name] = pandas.Series(cells).set_axis(X.index)
        return X.assign(**columns) if columns else X

    @cached_property
    def _has_types(self) -> bool:
        """Whether a column has another type than float64."""
        return any(kind != "number" for kind in self.kinds.values()) or "float32" in self.dtypes.values()


def _kind(column: Any) -> Kind:
    if column.dtype.kind != "O":
        return "boolean" if column.dtype.kind == "b" else "number" if column.dtype.kind in "iuf" else "text"
    cells = {type(cell) for cell in column.dropna()}
    return "boolean" if cells and cells <= {bool, np.bool_} else "text"


def _typed(column: AnyArray, kind: Kind, dtype: str | None, pandas: Any) -> Any:
    """Return a column with its own type, and missing values as they were in the fit."""
    if kind == "number":
        return column.astype(np.float32 if dtype == "float32" else np.float64)
    missing = pandas.isna(column)
    cells = column.astype(object)
    if kind == "boolean":
        cells = np.array([_boolean(cell) for cell in column], dtype=object)
        if dtype in (None, "bool") and not missing.any() and all(type(cell) is bool for cell in cells):
            return cells.astype(bool)
    cells[missing] = None if dtype in (None, "object|None") else np.nan
    own = dtype if kind == "text" and dtype not in (None, "object", "object|None") else object
    return pandas.Series(cells, dtype=own)


def _boolean(cell: Any) -> Any:
    """Return a cell of a column of booleans as a boolean, unless it is another text."""
    return {"true": True, "false": False}.get(cell.lower(), cell) if isinstance(cell, str) else bool(cell)


def ascend(indices: AnyArray, indptr: AnyArray) -> bool:
    """Return whether the indices of every sparse row strictly ascend."""
    steps = indices[1:] > indices[:-1]
    starts = indptr[1:-1]
    steps[starts[(starts > 0) & (starts < len(indices))] - 1] = True  # steps to the next row may go down
    return bool(steps.all())
