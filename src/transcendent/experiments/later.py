"""Labels that came after a fit: read from a table or from the gate's export, in the types of the fit."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import AnyArray, BoolArray, is_missing, missing_rows, of_kind
from transcendent._utils.digests import float_type, number_digests, row_digests
from transcendent._utils.extras import extra
from transcendent.experiments.survey import columns_of_text, in_words
from transcendent.tables.frames import Columns
from transcendent.tables.layout import Layout
from transcendent.tables.objects import Objects
from transcendent.tables.reading import read_objects

_MAX_LABELS = 5


class LaterLabels(NamedTuple):
    """Objects with labels of the fit's classes, and the number of those left out, by cause."""

    objects: Objects
    left_out: dict[str, int]


def labelled_later(file: Path, columns: Columns, old: Objects) -> LaterLabels:
    """Return the objects of a file that a rejector fitted on ``old`` can learn from.

    The file is a table with the columns of the experiment, or an export of the gate.
    """
    causes: Counter[str] = Counter()
    found = _read(file, columns, old, causes)
    classes = np.unique(np.asarray(old.y))
    y = _as_classes(found.y, classes, causes)
    kept = np.delete(np.arange(len(y)), missing_rows(y))
    new = replace(found.take(kept), y=np.array(y[kept].tolist(), dtype=classes.dtype))
    new = replace(new, X=_in_types_of(old.X, new.X))
    if len(new):
        again = _are_among(old, new, classes)
        causes["row of the fit"] = int(again.sum())
        new = new.take(np.flatnonzero(~again))
    left_out = {cause: n for cause, n in causes.items() if n}
    if not len(new):
        raise ValueError(f"{file} has nothing to learn from; left out: {in_words(left_out) or 'nothing'}.")
    return LaterLabels(new, left_out)


def in_order_of_columns(objects: Objects, names: Any) -> Objects:
    """Return objects with columns in the order of ``names``, if both have the same columns."""
    if names is None or not hasattr(objects.X, "columns") or set(names) != set(objects.X.columns):
        return objects
    return replace(objects, X=objects.X[list(names)])


def _read(file: Path, columns: Columns, old: Objects, causes: Counter[str]) -> Objects:
    """Return rows and labels of a file; objects that other models were given do not match and are counted."""
    there = _columns_of_parquet(file)
    if {"positions", "values", "gate_width"} <= there:
        return _from_positions(file, old, causes)
    columns = replace(columns, time=None, id=None, text=tuple(columns_of_text(old.X)))
    if "gate_label" in there:
        whole_texts = np.ndim(old.X) == 1
        columns = replace(columns, label="gate_label", features="text" if whole_texts else None)
    if columns.label is None and file.suffix in (".parquet", ".csv"):
        raise ValueError(f'{file}: name the column with labels, label = "..." under [data].')
    if hasattr(old.X, "columns"):
        columns = replace(columns, features=list(old.X.columns), without=())
    width = old.X.shape[1] if np.ndim(old.X) == 2 else None
    return read_objects(file, columns, width=width)


def _columns_of_parquet(file: Path) -> set[str]:
    """Return the columns of a Parquet file; none of another or a broken file."""
    if file.suffix.lower() != ".parquet" or not file.is_file():
        return set()
    try:
        return set(extra("pyarrow.parquet", "cli").read_schema(file).names)
    except extra("pyarrow", "cli").ArrowException:
        return set()


def _from_positions(file: Path, old: Objects, causes: Counter[str]) -> Objects:
    """Return the objects of an export whose rows are positions and values of features that are not zero."""
    label, width = "gate_label", "gate_width"
    table = extra("pyarrow.parquet", "cli").read_table(file, columns=["positions", "values", label, width])
    wanted = Layout.of(old.X).width
    for other, n in Counter(table[width].to_pylist()).items():
        if other != wanted:
            causes[f"{other:,} features where the fit has {wanted:,}"] = n
    table = table.filter(np.asarray(table[width]) == wanted)
    positions, values = (table[name].combine_chunks() for name in ("positions", "values"))
    ends = np.cumsum(np.concatenate([[0], positions.value_lengths().to_numpy()]))
    cells = values.flatten().to_numpy(), positions.flatten().to_numpy(), ends
    X: Any = of_kind(sp.csr_matrix(cells, shape=(len(table), wanted)), sparse=sp.issparse(old.X))
    if hasattr(old.X, "columns"):
        X = extra("pandas", "cli").DataFrame(X, columns=old.X.columns)
    return Objects(str(file), X, np.array(table[label].to_pylist(), dtype=object))


def _as_classes(labels: AnyArray | None, classes: AnyArray, causes: Counter[str]) -> AnyArray:
    """Return labels as the classes that they equal, or whose text they are; None for others."""
    known = {str(label): label for label in classes.tolist()} | {label: label for label in classes.tolist()}
    y, others = np.full(0 if labels is None else len(labels), None, dtype=object), Counter[str]()
    for i, label in enumerate([] if labels is None else labels.tolist()):
        if is_missing(label) or label == "":
            causes["no label"] += 1
        elif (found := known.get(label, known.get(str(label)))) is None:
            others[str(label)] += 1
        else:
            y[i] = found
    for label, n in others.most_common(_MAX_LABELS):
        causes[f"label {label!r:.40} is not a class"] = n
    if more := others.total() - sum(n for _, n in others.most_common(_MAX_LABELS)):
        causes["other labels that are not classes"] = more
    return y


def _are_among(old: Objects, new: Objects, classes: AnyArray) -> BoolArray:
    """Return which new objects equal an old one, in their rows and labels."""
    kind = float_type(old.X)
    rows = number_digests(row_digests(old.X, kind), row_digests(new.X, kind))
    before, now = (
        ids * len(classes) + np.searchsorted(classes, np.asarray(objects.y))
        for ids, objects in zip(rows, (old, new), strict=True)
    )
    return np.isin(now, before)


def _in_types_of(old: Any, new: Any) -> Any:
    """Return new rows with the types of the old ones, where that changes no value but the last digits."""
    if hasattr(old, "columns"):
        columns = {name: _as_column(new[name], old[name]) for name in old.columns}
        return extra("pandas", "cli").DataFrame(columns, columns=old.columns, index=new.index)
    if np.ndim(old) != 2 or old.dtype.kind not in "biuf":
        return new
    new = of_kind(new, sparse=sp.issparse(old))
    with np.errstate(all="ignore"):
        cast = new.astype(old.dtype)
    differ = cast != new
    equal = old.dtype.kind == "f" or not (differ.nnz if sp.issparse(new) else differ.any())
    return cast if equal else new


def _as_column(new: Any, old: Any) -> Any:
    if old.dtype == object:
        return _as_known(new, old)
    if new.dtype == old.dtype:
        return new
    try:
        with np.errstate(all="ignore"):
            cast = new.astype(old.dtype)
    except (ValueError, TypeError):  # such as a missing value among integers
        return new
    exact = old.dtype.kind not in "biu" or (cast == new).all()
    return cast if exact and cast.isna().equals(new.isna()) else new


def _as_known(new: Any, old: Any) -> Any:
    """Return a column of text and others, each value as the one of the fit that has the same text."""
    values = old.unique().tolist()
    known = {str(value): value for value in values if not is_missing(value)}
    if any(isinstance(value, bool) for value in values):
        known = {"True": True, "False": False} | known
    missing = next(filter(is_missing, values), np.nan)
    only_text = all(isinstance(value, str) for value in known.values())
    cells = [
        missing if is_missing(cell) else known.get(str(cell), str(cell) if only_text else cell)
        for cell in new.tolist()
    ]
    return extra("pandas", "cli").Series(cells, index=new.index, dtype=object)
