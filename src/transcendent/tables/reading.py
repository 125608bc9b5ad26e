"""Objects from files: Parquet, CSV, npz and libsvm."""

import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import check_sparse
from transcendent.tables.frames import Columns, check_columns, read_frame
from transcendent.tables.objects import Objects, check_exact, with_plain_labels

_WIDEST = 100_000_000
_LIBSVM = dict.fromkeys((".svm", ".libsvm", ".svmlight"), "libsvm")
_KINDS = {".parquet": "table", ".csv": "table", ".npz": "npz", **_LIBSVM}


def read_table(
    path: str | Path,
    *,
    label: str | None = None,
    time: str | None = None,
    identifier: str | None = None,
    features: str | list[str] | None = None,
    without: Sequence[str] = (),
) -> Objects:
    """Return the objects of a file: Parquet, CSV, npz or libsvm, by its ending.

    Where a reader would silently shift, rename or fill in values, an error names the place.

    Parameters
    ----------
    path : path
        The file.
    label, time, identifier : str or None
        The columns, or arrays of an npz file, with labels, times and ids of objects.
    features : list of str, str or None
        The columns with features, or the one with texts; by default all others.
    without : sequence of str
        Columns to leave out of the features.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from transcendent.tables import read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "objects.csv")
    ...     _ = file.write_text("sha,size,verdict\\n007,3,malware\\n008,5,\\n")
    ...     objects = read_table(file, label="verdict", identifier="sha")
    >>> objects.X["size"].tolist(), objects.y.tolist(), objects.ids.tolist()
    ([3, 5], ['malware', None], ['007', '008'])
    """
    return read_objects(Path(path), Columns(label, time, identifier, features, tuple(without)))


def read_objects(
    path: Path, columns: Columns, beside: Path | None = None, *, width: int | None = None
) -> Objects:
    """Return the objects of a file; labels, times and ids come from the table ``beside`` it, if given."""
    kind = _KINDS.get(path.suffix.lower())
    if kind is None:
        raise ValueError(f"{path}: the name must end in one of {', '.join(_KINDS)}.")
    columns.check()
    if not path.is_file():
        raise FileNotFoundError(2, "there is no such file", str(path))
    if is_table(path):
        found = read_frame(path, columns)
    elif kind == "npz":
        try:
            found = _from_npz(path, columns, beside is not None)
        except (BadZipFile, EOFError, TypeError, zlib.error) as error:
            raise ValueError(f"{path} cannot be read: {error}.") from None
    else:
        found = _from_libsvm(path, width)
    if len(found) == 0:
        raise ValueError(f"{path} has no rows.")
    if beside is not None:
        table = read_frame(beside, replace(columns, features=[]))
        y = found.y if table.y is None else table.y
        found = Objects(f"{found.name} with {beside}", found.X, y, table.times, table.ids)
    return with_plain_labels(found, columns.missing_labels)


def is_table(path: Path) -> bool:
    """Return whether a file has columns with names."""
    return _KINDS.get(path.suffix.lower()) == "table"


def _from_npz(path: Path, columns: Columns, labels_elsewhere: bool) -> Objects:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        if "format" in stored.files:
            return Objects(str(path), _sparse(path, stored))
        special = {} if labels_elsewhere else columns.special()
        features = columns.features if isinstance(columns.features, str) else "X"
        named = {"features": features, **special}
        check_columns({key: [array] for key, array in named.items()}, stored.files, str(path))
        values = {key: stored[array] for key, array in special.items()}
        if stored[features].ndim == 0:
            raise ValueError(f"{path}: {features!r} is a single value, not rows.")
        return Objects(str(path), stored[features], values.get("label"), values.get("time"), values.get("id"))


def _sparse(path: Path, stored: Any) -> Any:
    """Return a sparse matrix saved by SciPy, with checked and sorted indices and duplicates summed."""
    for name in set(stored.files) & {"indices", "indptr", "row", "col", "offsets"}:
        if stored[name].dtype.kind not in "iu":
            raise ValueError(f"{path} is not a valid sparse matrix: {name} holds {stored[name].dtype}.")
    try:
        matrix = sp.load_npz(path)
    except (ValueError, KeyError, IndexError, NotImplementedError) as error:
        raise ValueError(f"{path} is not a valid sparse matrix: {error}.") from None
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise ValueError(
            f"{path} must hold a matrix of numbers, not {matrix.dtype} in {matrix.ndim} dimensions."
        )
    check_sparse(matrix, str(path))
    _check_width(matrix, path)
    rows = matrix.tocsr()
    rows.sum_duplicates()
    return rows


def _from_libsvm(path: Path, width: int | None) -> Objects:
    from sklearn.datasets import load_svmlight_file

    try:
        X, y = load_svmlight_file(str(path), n_features=width, zero_based=False)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{path} is not a libsvm file with columns counted from 1: {error}") from None
    check_sparse(X, str(path))
    _check_width(X, path)
    found = Objects(str(path), X, y)
    check_exact(found)
    return replace(found, y=y.astype(np.intp)) if np.all(y == np.rint(y)) else found


def _check_width(X: Any, path: Path) -> None:
    """Raise if there are too many columns: a detector has a number for each, and would run out of memory."""
    if X.shape[1] > _WIDEST:
        raise ValueError(
            f"{path} has {X.shape[1]:,} columns, more than {_WIDEST:,}: a detector needs memory for each. "
            "Number the columns without gaps."
        )
