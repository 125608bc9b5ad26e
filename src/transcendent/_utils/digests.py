"""Digests of rows: 16 bytes for each, equal for equal rows."""

import math
from collections.abc import Iterator
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import (
    AnyArray,
    IntArray,
    chunks,
    column_names,
    count_rows,
    is_missing,
    take_column,
    take_rows,
)

_SIZE = 16
_CELLS = 1 << 16
_MAX_EXACT = 1 << 53  # above it, different integers become the same floating-point number


def row_digests(X: Any, dtype: Any = np.float64) -> AnyArray:
    """Return a digest of every row, for any type that `take_rows` accepts.

    Numbers are compared as ``dtype``, however they are stored: 0 equals -0 and False, and all missing values
    are equal. The order of entries in a sparse row does not matter, nor do stored zeros.
    """
    digests = b"".join(_sparse(X, dtype) if sp.issparse(X) else _dense(X, dtype))
    return np.frombuffer(digests, dtype=f"V{_SIZE}")


def row_entries(X: Any) -> Iterator[tuple[Any, list[list[tuple[int, Any]]]]]:
    """Yield blocks of rows in one form, the same for dense rows, sparse rows and frames.

    A block has the numbers other than 0 as CSR, in float64, and for each row its other cells: their columns
    and what they hold, such as text. Those cells are NaN among the numbers, and so are missing values.
    """
    return _sparse_entries(X) if sp.issparse(X) else _dense_entries(X)


def float_type(X: Any) -> str:
    """Return the floating-point type of the rows; ``"float64"`` if it is unclear."""
    types = [X.dtype] if hasattr(X, "dtype") else list(getattr(X, "dtypes", ()))
    known = [kind for kind in types if isinstance(kind, np.dtype) and kind.kind in "biuf"]
    common = np.result_type(*known) if known and len(known) == len(types) else np.dtype(np.float64)
    return common.name if common in (np.float16, np.float32) else "float64"


def pair_up(wanted: IntArray, given: IntArray) -> IntArray:
    """Return a different position in ``given`` for each of ``wanted``, or -1 where none is left."""
    if len(given) == 0:
        return np.full(len(wanted), -1)
    size = len(wanted) + len(given)
    sought, offered = (ids * size + _rank_among_equals(ids) for ids in (wanted, given))
    order = np.argsort(offered)
    places = np.minimum(np.searchsorted(offered, sought, sorter=order), len(given) - 1)
    return np.where(offered[order[places]] == sought, order[places], -1)


def number_digests(*each: AnyArray) -> list[IntArray]:
    """Number the digests of all arrays, with the same number for equal digests."""
    ids = np.unique(np.concatenate(each), return_inverse=True)[1]
    return np.split(ids, np.cumsum([len(digests) for digests in each])[:-1])


def _rank_among_equals(ids: IntArray) -> IntArray:
    order = np.argsort(ids, kind="stable")
    ranks = np.empty(len(ids), dtype=np.intp)
    ranks[order] = np.arange(len(ids)) - np.searchsorted(ids[order], ids[order])
    return ranks


def _sparse_entries(X: Any) -> Iterator[tuple[Any, list[list[tuple[int, Any]]]]]:
    for chunk in _sparse_chunks(X):
        others: list[list[tuple[int, Any]]] = [[] for _ in range(chunk.shape[0])]
        values = _in_one_form(chunk.data, np.float64)
        if not _are_exact(chunk.data):
            rows = np.repeat(np.arange(chunk.shape[0]), np.diff(chunk.indptr))
            for at, value in enumerate(chunk.data.tolist()):
                if not _is_exact(value):
                    others[rows[at]].append((int(chunk.indices[at]), _text(value)))
                    values[at] = np.nan
        yield sp.csr_array((values, chunk.indices, chunk.indptr), shape=chunk.shape), others


def _dense_entries(X: Any) -> Iterator[tuple[Any, list[list[tuple[int, Any]]]]]:
    columns = _columns(X)
    width = sum(numbers.shape[1] for numbers, _ in columns)
    for rows in chunks(count_rows(X), max(1, _CELLS // max(1, width))):
        values = _in_one_form(np.hstack([numbers[rows] for numbers, _ in columns]), np.float64)
        cells = [(j, others[rows]) for j, (_, others) in enumerate(columns) if others is not None]
        texts = [[(j, held[i]) for j, held in cells if held[i] is not None] for i in range(len(values))]
        yield sp.csr_array(values), texts


def _sparse_chunks(X: Any) -> Iterator[Any]:
    """Yield copies of blocks of rows, with summed entries and without stored zeros."""
    X = X.tocsr()
    for rows in chunks(X.shape[0], max(1, _CELLS * X.shape[0] // max(1, X.nnz))):
        chunk = sp.csr_array(take_rows(X, rows), copy=True)
        chunk.sum_duplicates()
        chunk.eliminate_zeros()
        yield chunk


def _sparse(X: Any, dtype: Any) -> Iterator[bytes]:
    for chunk in _sparse_chunks(X):
        entries = np.empty(chunk.nnz, dtype=[("column", "<i8"), ("value", "<f8")])
        entries["column"], entries["value"] = chunk.indices, _in_one_form(chunk.data, dtype)
        ends = (chunk.indptr * entries.itemsize).tolist()
        content = memoryview(entries.tobytes())
        for start, end in pairwise(ends):
            yield blake2b(content[start:end], digest_size=_SIZE).digest()


def _dense(X: Any, dtype: Any) -> Iterator[bytes]:
    columns = _columns(X)
    width = sum(numbers.shape[1] for numbers, _ in columns)
    for rows in chunks(count_rows(X), max(1, _CELLS // max(1, width))):
        values = _in_one_form(np.hstack([numbers[rows] for numbers, _ in columns]), dtype)
        cells = [(j, others[rows]) for j, (_, others) in enumerate(columns) if others is not None]
        for i, row in enumerate(values):
            digest = blake2b(row, digest_size=_SIZE)
            if texts := [(j, others[i]) for j, others in cells if others[i] is not None]:
                digest.update(repr(texts).encode("utf-8", "surrogatepass"))
            yield digest.digest()


def _columns(X: Any) -> list[tuple[AnyArray, list[Any] | None]]:
    """Return blocks of columns: numbers (NaN for other values), and the other values (None for numbers)."""
    n = count_rows(X)
    if column_names(X) is not None:
        return [_split(take_column(X, j)) for j in range(X.shape[1])]
    values = _as_array(X)
    width = math.prod(values.shape[1:])
    if _are_exact(values):
        return [(values.reshape(n, width), None)]
    return [_split(column) for column in values.reshape(n, width).T]


def _split(column: AnyArray) -> tuple[AnyArray, list[Any] | None]:
    if _are_exact(column):
        return column[:, None], None
    cells = list(map(_plain, (column.astype(str) if column.dtype.kind in "mM" else column).tolist()))
    are_numbers = [isinstance(cell, float) or _is_exact(cell) for cell in cells]
    numbers = [cell if known else np.nan for cell, known in zip(cells, are_numbers, strict=True)]
    others = [None if known else _text(cell) for cell, known in zip(cells, are_numbers, strict=True)]
    return np.array(numbers, dtype=np.float64)[:, None], others


def _are_exact(values: AnyArray) -> bool:
    """Return whether all values are numbers that float64 can hold exactly."""
    if values.dtype.kind in "iu" and values.itemsize == 8:
        return not np.any((values > _MAX_EXACT) | (values < -_MAX_EXACT))
    return values.dtype.kind in "biuf"


def _is_exact(cell: Any) -> bool:
    return isinstance(cell, int) and -_MAX_EXACT <= cell <= _MAX_EXACT


def _plain(cell: Any) -> Any:
    """Return a NumPy scalar as the Python value that it equals."""
    return cell.item() if isinstance(cell, np.number | np.bool_ | np.str_ | np.bytes_) else cell


def _as_array(X: Any) -> AnyArray:
    """Return rows as an array of numbers, or else of dtype object."""
    if isinstance(X, list | tuple):
        try:
            values = np.asarray(X)
        except ValueError:  # of different lengths
            return np.fromiter(X, dtype=object, count=len(X))
        return values if values.dtype.kind in "biuf" else np.asarray(X, dtype=object)
    return np.asarray(X.to_numpy() if hasattr(X, "to_numpy") else X)


def _in_one_form(values: AnyArray, dtype: Any) -> AnyArray:
    """Return numbers of one type, without negative zeros and with only one kind of NaN."""
    with np.errstate(over="ignore", invalid="ignore"):
        cast: AnyArray = values.astype(dtype, order="C")
        cast += 0.0
        if np.isnan(cast.sum()):  # or infinities of both signs
            cast[np.isnan(cast)] = np.nan
    return cast


def _text(value: Any) -> Any:
    """Return a value that is not a number in a form that can be compared; None for a missing value."""
    value = _plain(value)
    if isinstance(value, str | bytes):
        return value
    if isinstance(value, dict):
        return sorted((repr(key), _text(held)) for key, held in value.items())
    if isinstance(value, list | tuple | np.ndarray):
        return [_text(held) for held in value]
    if isinstance(value, float) or _is_exact(value):
        return float(value)
    return None if is_missing(value) else repr(value)
