"""Objects from files: Parquet, CSV, npz and libsvm."""

import zlib
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import (
    AnyArray,
    IntArray,
    check_sparse,
    count_rows,
    missing_rows,
    take_rows,
)
from transcendent._utils.dates import first_and_last, undated_rows
from transcendent._utils.extras import extra
from transcendent._utils.text import suggestion
from transcendent.cli.delimited import read_csv
from transcendent.cli.settings import Settings

_LOADERS = ("apigraph", "lamda", "nvd", "trec07p")
_LIBSVM = dict.fromkeys((".svm", ".libsvm", ".svmlight"), "libsvm")
_KINDS = {".parquet": "table", ".csv": "table", ".npz": "npz", **_LIBSVM}
_PLACES = ("file", "table", "dataset", "folder")
_KEYS = (*_PLACES, "label", "time", "id", "features", "without", "unlabelled", "undated", "deduplicate")


@dataclass(frozen=True)
class Objects:
    """Rows, and what is known of each.

    Attributes
    ----------
    name : str
        Where they come from.
    X : array, sparse matrix or frame of n rows
        The features.
    y, times, ids : arrays of shape (n,) or None
        Labels, when each was seen, and what it is called; None for rows where it is missing.
    """

    name: str
    X: Any
    y: AnyArray | None = None
    times: AnyArray | None = None
    ids: AnyArray | None = None

    def __post_init__(self) -> None:
        for what, values in (("labels", self.y), ("times", self.times), ("ids", self.ids)):
            if values is not None and np.shape(values) != (len(self),):
                raise ValueError(f"{self.name} has {len(self)} rows, but {what} of shape {np.shape(values)}.")

    def __len__(self) -> int:
        return count_rows(self.X)

    def take(self, rows: Any) -> "Objects":
        """Return some of them."""
        values = (None if values is None else values[rows] for values in (self.y, self.times, self.ids))
        return Objects(self.name, take_rows(self.X, rows), *values)

    def with_labels(self) -> "Objects":
        """Those that have a label."""
        return self if self.y is None else self._without(missing_rows(self.y))

    def complete(self, dates: bool) -> "Objects":
        """Those that have a label and a time, as far as these are known at all."""
        known = self.with_labels()
        return known if known.times is None else known._without(without_time(known.times, dates))

    def _without(self, rows: IntArray) -> "Objects":
        """These without some rows; labels and names of periods get their type back if none is missing now."""
        if not len(rows):
            return self
        kept = self.take(np.setdiff1d(np.arange(len(self)), rows))
        y, times = (
            values
            if values is None or values.dtype != object or len(missing_rows(values))
            else np.array(values.tolist())
            for values in (kept.y, kept.times)
        )
        return replace(kept, y=y, times=times)

    def with_times(self, dates: bool) -> "Objects":
        """These, without the labels of rows whose time is missing or, where it has to be a date, is none."""
        if self.y is None or self.times is None or not len(rows := without_time(self.times, dates)):
            return self
        y = self.y.astype(object)
        y[rows] = None
        return replace(self, y=y)

    def period(self) -> tuple[str, str] | None:
        """When the first and the last were seen."""
        if self.times is None:
            return None
        first, last = (
            str(time).removesuffix(".000000").removesuffix("T00:00:00") for time in first_and_last(self.times)
        )
        return first, last

    def labelled(self, hint: str) -> "Objects":
        """Return these, or refuse them if they have no labels or no times."""
        for what, values in (("label", self.y), ("time", self.times)):
            if values is None:
                raise ValueError(f"{self.name} has no {what}s: {hint}")
        return self


class ColumnError(ValueError):
    """There are no columns, or arrays, of some names; ``key`` says what they would have been for."""

    def __init__(self, key: str, missing: list[str], there: list[str], where: str) -> None:
        if len(missing) == 1:
            hint = suggestion(missing[0], there) if there else "."
            if key == "features":
                hint = hint.replace("; there are", "; besides the features there are")
            super().__init__(f"{where} has no column {missing[0]!r}{hint}")
        else:
            names = ", ".join(missing[:5]) + (" …" if len(missing) > 5 else "")
            super().__init__(f"{where} lacks {len(missing)} columns: {names}.")
        self.key = key


@dataclass(frozen=True)
class Columns:
    """Which columns (of a table) or arrays (of an npz file) mean what.

    ``text`` are columns whose values are text even where all of them look like numbers, or are missing.
    """

    label: str | None = None
    time: str | None = None
    id: str | None = None
    features: str | list[str] | None = None
    without: tuple[str, ...] = ()
    text: tuple[str, ...] = ()

    def special(self) -> dict[str, str]:
        """Those that are no features, by what they are for."""
        named = {"label": self.label, "time": self.time, "id": self.id}
        return {key: name for key, name in named.items() if name is not None}


def read_settings(settings: Settings, needed: Collection[str]) -> tuple[Objects, Columns]:
    """Read the objects that ``[data]`` names, by which columns; paths are relative to the file's folder.

    ``needed`` are the keys without which what is asked for cannot be done: of ``label`` and ``time``.
    """
    data = settings.table("data")
    data.check(_KEYS)
    here = settings.path.parent
    if (name := data.get("dataset", str)) is not None:
        if name not in _LOADERS:
            raise data.error(f"there is no dataset {name!r}{suggestion(name, _LOADERS)}", "dataset")
        return _load(data, name, here), Columns()
    file = here / data.require("file", str, 'for example file = "objects.parquet"')
    beside = data.get("table", str)
    for key in needed:
        if is_table(file) or key == "time":
            data.require(key, str, f'the column with {key}s: {key} = "..."')
    columns = Columns(
        label=data.get("label", str),
        time=data.get("time", str),
        id=data.get("id", str),
        features=data.get("features", (str, list)),
        without=tuple(data.get("without", list, [])),
    )
    if isinstance(columns.features, list) and not all(isinstance(name, str) for name in columns.features):
        raise data.error("features is the name of a column of text, or a list of names.", "features")
    if columns.without and columns.features is not None:
        raise data.error("features names the columns to use, without those not to use: give one.", "without")
    try:
        return read_objects(file, columns, here / beside if beside else None), columns
    except ColumnError as error:
        raise data.error(str(error), error.key) from None
    except FileNotFoundError as error:
        raise data.error(f"there is no file {error.filename}", "file") from None


def read_objects(
    path: Path, columns: Columns, beside: Path | None = None, *, width: int | None = None
) -> Objects:
    """Read objects of a file; labels, times and ids come from the table beside it, if one is given."""
    kind = _KINDS.get(path.suffix.lower())
    if kind is None:
        raise ValueError(f"{path}: files are read by their ending, which is one of {', '.join(_KINDS)}.")
    if not path.is_file():
        raise FileNotFoundError(2, "there is no such file", str(path))
    if is_table(path):
        found = _from_frame(_read_frame(path, columns), columns, str(path))
    elif kind == "npz":
        try:
            found = _from_npz(path, columns, beside is not None)
        except (BadZipFile, EOFError, TypeError, zlib.error) as error:
            raise ValueError(f"{path} cannot be read: {error}.") from None
    else:
        found = _from_libsvm(path, width)
    if len(found) == 0:
        raise ValueError(f"{path} has no rows.")
    return _with_plain_labels(found if beside is None else _join(found, beside, columns))


def is_table(path: Path) -> bool:
    """Whether a file has columns with names."""
    return _KINDS.get(path.suffix.lower()) == "table"


def _load(data: Settings, name: str, here: Path) -> Objects:
    from transcendent import datasets

    folder = data.get("folder", str)
    given = {"deduplicate": True} if data.get("deduplicate", bool, False) else {}
    if given and name != "apigraph":
        raise data.error("deduplicate is for apigraph only.", "deduplicate")
    found = getattr(datasets, f"load_{name}")(here / folder if folder else None, **given)
    return Objects(name, found.X, found.y, found.times)


def _read_frame(path: Path, columns: Columns) -> Any:
    pandas = extra("pandas", "cli")
    try:
        if path.suffix.lower() == ".parquet":
            frame = pandas.read_parquet(path).rename(columns=str)
            return frame if frame.index.names == [None] else frame.reset_index()
        return read_csv(
            path,
            identifier=columns.id,
            label=columns.label,
            time=columns.time,
            text=columns.text,
            use_all=columns.features is None,
        )
    except (ValueError, OSError, extra("pyarrow", "cli").ArrowException) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # not about what is in the file
        said = str(error)
        raise ValueError(said if said.startswith(str(path)) else f"{path} cannot be read: {said}") from None


def _from_frame(frame: Any, columns: Columns, name: str) -> Objects:
    special = columns.special()
    features = columns.features
    if features is None:
        features = [c for c in frame.columns if c not in special.values() and c not in columns.without]
    wanted = {key: [column] for key, column in special.items()} | {"without": list(columns.without)}
    if columns.features is not None:
        wanted["features"] = [features] if isinstance(features, str) else features
    _check_columns(wanted, frame.columns, name)
    _check_flat(frame[[*special.values(), *([features] if isinstance(features, str) else features)]], name)
    X: Any = frame[features]
    if isinstance(features, str):  # a column of texts
        if len(missing := np.flatnonzero(X.isna())):
            raise ValueError(f"{name}: {have(f'no {features!r}', missing, len(X))}. Take these rows out.")
        X = _plain(X).astype(object)
    values = {key: _plain(frame[column]) for key, column in special.items()}
    return Objects(name, X, values.get("label"), values.get("time"), values.get("id"))


def _check_columns(wanted: dict[str, list[str]], there: Iterable[Any], name: str) -> None:
    found = [str(column) for column in there]
    if twice := [column for column, times in Counter(found).items() if times > 1]:
        raise ValueError(f"{name} has {len(twice)} names of several columns: {', '.join(twice[:5])}.")
    for key, columns in wanted.items():
        if missing := [str(column) for column in columns if column not in found]:
            raise ColumnError(key, missing, [column for column in found if column not in columns], name)


def _check_flat(frame: Any, name: str) -> None:
    for column in frame.columns[frame.dtypes == "object"]:
        there = frame[column].dropna()
        if len(there) and isinstance(there.iloc[0], list | dict | tuple | np.ndarray):
            raise ValueError(
                f"{name}: the column {column!r} holds lists or structs, not a number or text per row. "
                "Lists of columns that are not zero are decided in parts: transcendent decide --workers."
            )


def have(what: str, rows: IntArray, n: int) -> str:
    """A sentence about some of n rows: what they have, and which is the first."""
    if len(rows) == 1:
        return f"row {rows[0]} of {n:,} has {what}"
    return f"{len(rows):,} of {n:,} rows have {what}, the first is row {rows[0]}"


def stacked(above: Any, below: Any) -> Any:
    """Rows of two kinds of one form, one above the other."""
    if hasattr(above, "columns"):
        return extra("pandas", "cli").concat([above, below], ignore_index=True)
    return sp.vstack([above, below], format="csr") if sp.issparse(above) else np.concatenate([above, below])


def without_time(times: AnyArray, dates: bool) -> IntArray:
    """Rows whose time is missing or, where times have to be dates, is none."""
    return undated_rows(times) if dates and times.dtype.kind not in "iuf" else missing_rows(times)


def _plain(column: Any) -> AnyArray:
    """Return a column as an array, of text if all of it is."""
    values: AnyArray = column.to_numpy()
    if values.dtype.kind != "O" or not all(isinstance(value, str) for value in values.tolist()):
        return values
    return np.array(values.tolist(), dtype=str)


def _from_npz(path: Path, columns: Columns, labels_elsewhere: bool) -> Objects:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        if "format" in stored.files:
            return Objects(str(path), _sparse(path, stored))
        special = {} if labels_elsewhere else columns.special()
        features = columns.features if isinstance(columns.features, str) else "X"
        named = {"features": features, **special}
        _check_columns({key: [array] for key, array in named.items()}, stored.files, str(path))
        values = {key: stored[array] for key, array in special.items()}
        if stored[features].ndim == 0:
            raise ValueError(f"{path}: {features!r} has no rows, it is a single value.")
        return Objects(str(path), stored[features], values.get("label"), values.get("time"), values.get("id"))


def _sparse(path: Path, stored: Any) -> Any:
    """A sparse matrix as SciPy saves it: every index inside, each column of a row once, in order."""
    for name in set(stored.files) & {"indices", "indptr", "row", "col", "offsets"}:
        if stored[name].dtype.kind not in "iu":
            raise ValueError(f"{path} is no valid sparse matrix: {name} holds {stored[name].dtype}.")
    try:
        matrix = sp.load_npz(path)
    except (ValueError, KeyError, IndexError, NotImplementedError) as error:
        raise ValueError(f"{path} is no valid sparse matrix: {error}.") from None
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise ValueError(
            f"{path} is no matrix of numbers, but of {matrix.dtype} in {matrix.ndim} dimensions."
        )
    check_sparse(matrix, str(path))
    rows = matrix.tocsr()
    rows.sum_duplicates()
    return rows


def _from_libsvm(path: Path, width: int | None) -> Objects:
    from sklearn.datasets import load_svmlight_file

    try:
        X, y = load_svmlight_file(str(path), n_features=width, zero_based=False)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{path} is no libsvm file with columns counted from 1: {error}") from None
    check_sparse(X, str(path))
    if np.isinf(y).any():
        raise ValueError(f"{path}: the label of row {np.flatnonzero(np.isinf(y))[0]} is infinite.")
    return Objects(str(path), X, y.astype(np.intp) if np.all(y == np.rint(y)) else y)


def _with_plain_labels(found: Objects) -> Objects:
    """Return the same with None for missing labels."""
    texts = [] if found.y is None or found.y.dtype.kind not in "OS" else found.y.tolist()
    if any(isinstance(label, bytes) for label in texts):
        raise ValueError(f"{found.name}: labels are numbers or text, not bytes.")
    if found.y is None or not len(missing := missing_rows(found.y)):
        return found
    known = np.delete(found.y, missing)
    if known.dtype.kind == "f" and np.all(known == np.rint(known)):
        known = known.astype(np.intp)  # they are floats only for want of an integer that is missing
    y = np.full(len(found), None, dtype=object)
    y[np.setdiff1d(np.arange(len(found)), missing)] = known.tolist()
    return replace(found, y=y)


def _join(found: Objects, beside: Path, columns: Columns) -> Objects:
    table = _from_frame(_read_frame(beside, columns), replace(columns, features=[]), str(beside))
    y = found.y if table.y is None else table.y
    return Objects(f"{found.name} with {beside}", found.X, y, table.times, table.ids)
