"""Objects that were labelled after a fit."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from transcendent._utils.arrays import missing_rows
from transcendent.experiments.survey import columns_of_text
from transcendent.tables.frames import ColumnError, Columns
from transcendent.tables.objects import Objects, have
from transcendent.tables.reading import read_objects


def labelled_later(file: Path, columns: Columns, old: Objects) -> Objects:
    """Return the labelled objects of a file; raise if one of them is among the old ones."""
    columns = replace(columns, time=None, text=tuple(columns_of_text(old.X)))
    if hasattr(old.X, "columns"):
        columns = replace(columns, features=list(old.X.columns), without=())
    width = old.X.shape[1] if np.ndim(old.X) == 2 else None
    try:
        found = read_objects(file, columns, width=width)
    except ColumnError as error:
        if error.key != "id":
            raise
        found = read_objects(file, replace(columns, id=None), width=width)
    new = found.with_labels()
    if new.y is None or not len(new):
        raise ValueError(f"{file} has no labels in the column {columns.label!r}.")
    if len(new) < len(found):
        rows = missing_rows(np.asarray(found.y))
        warnings.warn(f"{file}: {have('no label', rows, len(found))}; left out.", stacklevel=3)
    if old.ids is not None and new.ids is not None:
        again = np.isin(new.ids.astype(str), old.ids.astype(str))
        if again.any():
            first = str(new.ids[again][0])
            raise ValueError(
                f"{file}: {again.sum():,} of {len(new):,} objects, such as {first!r}, are among the rows of "
                "the fit. Remove them: a rejector learns from later objects."
            )
    return new


def in_order_of_columns(objects: Objects, names: Any) -> Objects:
    """Return objects with columns in the order of ``names``, if both have the same columns."""
    if names is None or not hasattr(objects.X, "columns") or set(names) != set(objects.X.columns):
        return objects
    return replace(objects, X=objects.X[list(names)])
