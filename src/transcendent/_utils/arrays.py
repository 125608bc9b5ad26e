"""Array types, and common operations on rows and labels."""

import io
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils import _safe_indexing, column_or_1d

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]
BoolArray = npt.NDArray[np.bool_]
AnyArray = npt.NDArray[Any]


def as_finite(values: Any, name: str, *, ndim: int) -> FloatArray:
    """Return ``values`` as float64; refuse NaN, infinity, empty arrays and a wrong number of dimensions."""
    _refuse_masked(values, name)
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got shape {array.shape}.")
    if array.size == 0:
        raise ValueError(f"{name} is empty (shape {array.shape}).")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} contains NaN or infinity; remove or impute those objects first.")
    return array


def missing_rows(values: AnyArray) -> IntArray:
    """Return the positions of None, NaN, NaT and NA in a one-dimensional array."""
    if values.dtype.kind in "biuSU":
        return np.empty(0, dtype=np.intp)
    if values.dtype.kind in "fcmM":
        return np.flatnonzero(np.isnan(values))
    return np.flatnonzero(np.fromiter(map(is_missing, values), dtype=bool, count=len(values)))


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or NA."""
    if isinstance(value, str):
        return False
    if value is None or type(value).__name__ == "NAType":  # comparing pandas' NA returns NA
        return True
    differs = value != value
    return differs if isinstance(differs, bool) else bool(np.any(differs))


def unlabelled_rows(y: Any) -> IntArray:
    """Return the positions of missing labels: None, NaN, NA or empty text."""
    if isinstance(y, np.ma.MaskedArray):
        y = y.tolist()  # None where it is masked
    if isinstance(y, list | tuple):  # NumPy would turn NaN among text into the text "nan"
        y = np.fromiter(y, dtype=object, count=len(y))
    labels = column_or_1d(y)
    texts = labels.tolist() if labels.dtype.kind in "OSUT" else []
    empty = [row for row, text in enumerate(texts) if isinstance(text, str | bytes) and not text]
    return np.union1d(missing_rows(labels), np.array(empty, dtype=np.intp))


def as_labels(y: Any, name: str = "y") -> AnyArray:
    """Return labels as a one-dimensional array; refuse missing labels."""
    labels: AnyArray = column_or_1d(y, warn=True)
    if len(missing := unlabelled_rows(y)):
        known = f"{name} != ''" if isinstance(labels[missing[0]], str) else f"~pandas.isna({name})"
        raise ValueError(
            f"{name} has missing labels: {len(missing):,} of {len(labels):,} (None, NaN, NA or empty), the "
            f"first at row {missing[0]}. Leave such rows out: known = {known}; X[known], {name}[known]."
        )
    return np.array(labels.tolist()) if labels.dtype.kind == "T" else _whole_numbers(y, labels)


def labels_to_fit(y: Any) -> AnyArray:
    """Return labels as `as_labels` does; refuse text mixed with other types, since these cannot be sorted."""
    labels = as_labels(y)
    values = y if isinstance(y, list | tuple) else labels.tolist() if labels.dtype.kind == "O" else []
    first = {isinstance(label, str): label for label in reversed(values)}
    if len(first) == 2:
        raise ValueError(
            f"y has labels of different types, such as {first[True]!r} and {first[False]!r}: make them one "
            "type, for example by [str(label) for label in y]."
        )
    return labels


def _whole_numbers(y: Any, labels: AnyArray) -> AnyArray:
    """Return labels of nullable columns or lists as integers or booleans if they are such values."""
    if hasattr(y, "to_numpy") and labels.dtype.kind == "f":
        exact = np.asarray(y.to_numpy())
        labels = exact if exact.dtype.kind in "biuO" and exact.shape == labels.shape else labels
    if labels.dtype.kind == "O":
        for kind in (bool, int):
            if all(isinstance(label, kind) for label in labels.tolist()):
                return np.array(labels.tolist())
    return labels


def warn_of_other_order(X: Any, y: Any, *, stacklevel: int) -> None:
    """Warn if rows and labels, which are matched by position, have equal index values in another order."""
    ours: Any = getattr(X, "index", None)
    theirs: Any = getattr(y, "index", None)
    if not (hasattr(ours, "equals") and hasattr(theirs, "equals")) or ours.equals(theirs):
        return
    if len(ours) == len(theirs) and ours.isin(theirs).all() and theirs.isin(ours).all():
        warnings.warn(
            "y has the index values of X in another order. Labels are matched to rows by position, as in "
            "scikit-learn. To match them by index, pass y.loc[X.index].",
            UserWarning,
            stacklevel=stacklevel,
        )


def encode_labels(labels: Any, classes: AnyArray, name: str) -> IntArray:
    """Return the positions of ``labels`` in ``classes``; raise an error that lists unknown labels."""
    array = np.asarray(labels)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}.")
    if len(missing_rows(array)):
        as_labels(array, name)
    order = np.argsort(classes)
    codes = order[np.minimum(np.searchsorted(classes, array, sorter=order), len(classes) - 1)]
    unknown = classes[codes] != array
    if np.any(unknown):
        examples = np.unique(array[unknown])[:5].tolist()
        raise ValueError(f"{name} has labels outside the classes {abbreviate(classes)}: {examples}.")
    return codes


def abbreviate(classes: AnyArray) -> str:
    """Return at most ten classes as text, for an error message."""
    shown = ", ".join(repr(c) for c in classes[:10].tolist())
    return f"[{shown}{', …' if len(classes) > 10 else ''}]"


def divide(numerator: AnyArray, denominator: AnyArray) -> FloatArray:
    """Return the ratio; NaN where the denominator is 0."""
    n, d = np.broadcast_arrays(np.asarray(numerator, dtype=np.float64), denominator)
    quotient: FloatArray = np.divide(n, d, out=np.full(n.shape, np.nan), where=d > 0)
    return quotient


def mean_of_defined(values: FloatArray) -> FloatArray:
    """Return the mean over the last axis without NaN values; NaN if there are no others."""
    defined = ~np.isnan(values)
    return divide(np.where(defined, values, 0.0).sum(axis=-1), defined.sum(axis=-1))


def take_rows(X: Any, rows: IntArray | slice) -> Any:
    """Return rows of an array, sparse matrix, frame of any library, or list; slices of CSR are not copied."""
    if sp.issparse(X) and X.format == "csr" and isinstance(rows, slice):
        start, stop, _ = rows.indices(X.shape[0])
        low, high = X.indptr[start], X.indptr[stop]
        arrays = (X.data[low:high], X.indices[low:high], X.indptr[start : stop + 1] - low)
        return type(X)(arrays, shape=(stop - start, X.shape[1]), copy=False)
    if _is_arrow(X):  # scikit-learn indexes it from 1.8 on, and never with slices
        return X.take(np.arange(len(X))[rows])
    if not hasattr(X, "shape") and not isinstance(X, Sequence):  # such as a detector's `Answers`
        return X[rows]
    return _safe_indexing(X, rows)


def stack_rows(above: Any, below: Any) -> Any:
    """Return rows of one type above others: of arrays, sparse matrices, frames of one library, or lists."""
    if column_names(above) != column_names(below) or sp.issparse(above) != sp.issparse(below):
        raise ValueError("rows to learn from and rows of fit differ in type or columns: pass both as in fit.")
    if sp.issparse(above):
        return sp.vstack([above, below], format="csr")
    if column_names(above) is None:
        return [*above, *below] if isinstance(above, list) else np.concatenate([above, below])
    library = import_module(type(above).__module__.partition(".")[0])
    if _is_arrow(above):
        return library.concat_tables([above, below], promote_options="permissive")
    relaxed: dict[str, Any] = (
        {"ignore_index": True} if hasattr(above, "iloc") else {"how": "vertical_relaxed"}
    )
    return library.concat([above, below], **relaxed)


def take_column(X: Any, j: int) -> AnyArray:
    """Return a column of an array or frame."""
    if isinstance(X, np.ndarray):  # scikit-learn's function takes fifty times as long
        return X[:, j]
    if hasattr(X, "iloc"):
        return np.asarray(X.iloc[:, j])
    return np.asarray(X.column(j) if _is_arrow(X) else _safe_indexing(X, j, axis=1))


def column_names(X: Any) -> list[str] | None:
    """Return the column names of a frame, or None if X is not a frame."""
    names = X.column_names if _is_arrow(X) else getattr(X, "columns", None)
    return None if names is None else [str(name) for name in names]


def _is_arrow(X: Any) -> bool:
    return hasattr(X, "column_names") and hasattr(X, "take")


def as_slice(rows: IntArray) -> IntArray | slice:
    """Return consecutive rows as a slice, since taking a slice copies nothing."""
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows) and np.all(np.diff(rows) == 1):
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def check_sparse(matrix: Any, where: str) -> None:
    """Refuse a sparse matrix with indices out of range, which compiled code would follow."""
    try:
        if hasattr(matrix, "check_format"):  # other formats are checked when they are made
            matrix.check_format(full_check=True)
    except ValueError as error:
        raise ValueError(f"{where} is not a valid sparse matrix: {error}.") from None


def canonical_rows(X: Any) -> Any:
    """Return sparse rows as CSR with sorted, summed entries, and other rows unchanged; refuse masked arrays.

    X itself is never changed, and only copied if it is in another form.
    """
    for row in X if isinstance(X, list | tuple) else [X]:
        _refuse_masked(row, "X")
    if not sp.issparse(X) or X.ndim != 2:
        return X
    csr = X.tocsr()
    indices, ends = _in_32_bits(csr.indices), _in_32_bits(csr.indptr)
    # SciPy caches whether a matrix is canonical: a new matrix of the same arrays is checked again.
    fresh = type(csr)((csr.data, indices, ends), shape=csr.shape, copy=False)
    if fresh.has_canonical_format:
        return csr if indices is csr.indices and ends is csr.indptr else fresh
    summed = fresh.copy()
    summed.sum_duplicates()
    return summed


def _refuse_masked(values: Any, name: str) -> None:
    """Refuse a masked array, since its mask would be ignored."""
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(
            f"{name} is a masked array, and its mask would be ignored. Leave masked rows out, or fill them: "
            f"{name}.filled(0), or {name}.filled(nan) if the detector accepts missing values."
        )


def _in_32_bits(indices: AnyArray) -> AnyArray:
    """Return indices as int32, which detectors expect, if they fit."""
    if indices.dtype == np.int32 or (len(indices) and indices.max() > np.iinfo(np.int32).max):
        return indices
    return indices.astype(np.int32)


def of_kind(X: Any, *, sparse: bool) -> Any:
    """Return rows of numbers as a sparse matrix or as an array; other rows are returned unchanged."""
    if sp.issparse(X) == sparse:
        return X
    if not sparse:
        return X.toarray()
    values = X.to_numpy() if hasattr(X, "to_numpy") else np.asarray(X)
    return sp.csr_matrix(values) if values.ndim == 2 and values.dtype.kind in "biuf" else X


def group_equal_rows(X: Any) -> tuple[IntArray, IntArray]:
    """Return each row's group of equal rows, and the first row of each group; X is float64 or CSR."""
    _, first, groups = np.unique(row_keys(X), return_index=True, return_inverse=True)
    same = X[first[groups]]
    equal = not (same != X).nnz if sp.issparse(X) else np.array_equal(same, X, equal_nan=True)
    if not equal:  # different rows share a key: treat all rows as different
        return np.arange(X.shape[0]), np.arange(X.shape[0])
    return groups, first


def rows_by_code(codes: IntArray, n: int) -> list[IntArray]:
    """Return the positions of each code from 0 to n - 1, in ascending order."""
    return np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes, minlength=n))[:-1])


def row_keys(X: Any) -> npt.NDArray[np.uint64]:
    """Return a number for each row: equal rows share it, and different rows do with probability 2⁻⁶⁴."""
    noise = np.random.default_rng(0).integers(1 << 63, size=X.shape[1], dtype=np.uint64)
    if sp.issparse(X):
        X = sp.csr_array(X, copy=True, dtype=np.float64)
        X.sum_duplicates()
        X.eliminate_zeros()
        sums = np.cumsum(_digest(X.data) * noise[X.indices])
        return np.asarray(np.diff(np.concatenate([np.zeros(1, np.uint64), sums])[X.indptr]))
    keys = np.empty(X.shape[0], dtype=np.uint64)
    for rows in chunks(X.shape[0], max(1, (1 << 22) // X.shape[1])):
        keys[rows] = _digest(X[rows].astype(np.float64) + 0.0) @ noise  # + 0.0 turns -0.0 into 0.0
    return keys


def _digest(values: FloatArray) -> npt.NDArray[np.uint64]:
    """Return the bits, mixed with the exponent at the low end, where round numbers have only zeros."""
    bits = values.view(np.uint64)
    return bits ^ (bits >> np.uint64(52))


def count_rows(X: Any) -> int:
    """Return the number of rows of any type that `take_rows` accepts."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def chunks(n_rows: int, size: int) -> Iterator[slice]:
    """Yield consecutive slices of at most ``size`` rows."""
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def to_npz(arrays: dict[str, AnyArray]) -> bytes:
    """Return arrays of numbers or text as ``.npz``, without compression."""
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def from_npz(file: Any) -> dict[str, AnyArray]:
    """Read arrays from an open ``.npz`` file; nothing is unpickled."""
    with np.load(file, allow_pickle=False) as stored:
        return {key: stored[key] for key in stored.files}
