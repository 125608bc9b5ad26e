"""Jaccard distances between rows of zeros and ones: the share of their features that only one of them has.

Distances are quotients of whole numbers, so a row has the same distances alone and among others.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, chunks
from transcendent.explaining.content import Content

_CELLS = 1 << 22
_PAIRS = 1 << 16


class NearestRows(NamedTuple):
    """The k nearest rows of each of n rows.

    Attributes
    ----------
    positions : int array of shape (n, k)
        Their positions, nearest first.
    distances : array of shape (n, k)
        Their distances.
    """

    positions: IntArray
    distances: FloatArray


class JaccardIndex:
    """Finds the nearest of many rows of zeros and ones, given as CSR."""

    def __init__(self, rows: Any) -> None:
        self._columns = sp.csr_array(rows.T)
        self._sizes = np.diff(rows.indptr)

    def distances(self, rows: Any) -> Iterator[tuple[slice, FloatArray]]:
        """Yield the distances of blocks of rows to all indexed ones."""
        for block in chunks(rows.shape[0], max(1, _CELLS // max(1, len(self._sizes)))):
            shared = (rows[block] @ self._columns).toarray().astype(np.float64)
            yield block, _distances(shared, np.diff(rows[block].indptr)[:, None] + self._sizes)

    def nearest(self, rows: Any, k: int) -> NearestRows:
        """Return the k nearest of the indexed rows; the first of those at equal distances."""
        positions = np.empty((rows.shape[0], k), dtype=np.intp)
        found = np.empty((rows.shape[0], k))
        for block, distances in self.distances(rows):
            for row, own in enumerate(distances, start=block.start):
                near = np.flatnonzero(own <= np.partition(own, k - 1)[k - 1])
                positions[row] = near[np.argsort(own[near], kind="stable")[:k]]
                found[row] = own[positions[row]]
        return NearestRows(positions, found)


def nearest_rows(known: Any, X: Any, k: int = 1) -> NearestRows:
    """Return the k nearest known rows of each row of zeros and ones, by Jaccard distance.

    Parameters
    ----------
    known : array, sparse matrix or frame of shape (m, features)
        The known rows, at least k.
    X : array, sparse matrix or frame of shape (n, features)
        The rows.
    k : int
        Number of known rows for each row. Of rows at equal distances the first come first.

    Examples
    --------
    >>> import numpy as np
    >>> from transcendent.explaining import nearest_rows
    >>> known = np.array([[1, 1, 0, 0], [0, 1, 1, 1]])
    >>> nearest_rows(known, np.array([[1, 1, 1, 0]])).distances.round(2)
    array([[0.33]])
    """
    rows, others = _binary(known, "known"), _binary(X, "X")
    if rows.shape[1] != others.shape[1]:
        raise ValueError(f"known has {rows.shape[1]} columns, but X has {others.shape[1]}.")
    if not 1 <= k <= rows.shape[0]:
        raise ValueError(f"k must be between 1 and the number of known rows, {rows.shape[0]}, not {k!r}.")
    return JaccardIndex(rows).nearest(others, k)


def connected_within(rows: Any, distance: float) -> IntArray:
    """Return the number of each row's component, where rows within a distance below 1 are connected.

    Rows are different rows of zeros and ones, as CSR. Rows within the distance share one of their rarest
    features, so only pairs that do are compared. Pairs that are connected already are not. Memory grows with
    the number of rows, not with that of pairs.
    """
    n, sizes = rows.shape[0], np.diff(rows.indptr)
    rarest = _rarest_features(rows, distance)
    columns, groups = sp.csr_array(rarest.T), np.arange(n)
    shared = _SharedFeatures(rows)
    for block in chunks(n, max(1, _CELLS // max(1, n))):
        pairs = (rarest[block] @ columns).tocoo()
        i, j = pairs.row.astype(np.intp) + block.start, pairs.col.astype(np.intp)
        smaller, larger = np.minimum(sizes[i], sizes[j]), np.maximum(sizes[i], sizes[j])
        possible = (i < j) & (groups[i] != groups[j]) & ((larger - smaller) / larger <= distance)
        i, j = i[possible], j[possible]
        for cut in chunks(len(i), shared.most_at_once(block, len(i))):
            apart = groups[i[cut]] != groups[j[cut]]
            one, other = i[cut][apart], j[cut][apart]
            near = _distances(shared.of(block, one, other), sizes[one] + sizes[other]) <= distance
            groups = _connect(groups, one[near], other[near])
    return groups


class _SharedFeatures:
    """Counts the features that pairs of rows share, one pair at a time or for a whole block of rows."""

    def __init__(self, rows: Any) -> None:
        self._rows, self._columns = rows, sp.csr_array(rows.T)
        self._frequency = np.diff(self._columns.indptr)

    def most_at_once(self, block: slice, n_pairs: int) -> int:
        """Return the number of pairs to count together: all of them if comparing all rows is less work."""
        return max(1, n_pairs) if self._all_rows(block, n_pairs) else _PAIRS

    def of(self, block: slice, i: IntArray, j: IntArray) -> FloatArray:
        """Return the number of features that the rows i, of a block, share with the rows j."""
        if self._all_rows(block, len(i)):
            counts = (self._rows[block] @ self._columns).toarray()[i - block.start, j]
        else:
            counts = self._rows[i].multiply(self._rows[j]).sum(axis=1)
        return np.asarray(counts, dtype=np.float64).ravel()

    def _all_rows(self, block: slice, n_pairs: int) -> bool:
        work = self._frequency[self._rows[block].indices].sum()
        return bool(work < 2 * n_pairs * self._rows.nnz / self._rows.shape[0])


def _connect(groups: IntArray, i: IntArray, j: IntArray) -> IntArray:
    """Return the components after connecting pairs of rows."""
    if len(i) == 0:
        return groups
    edges = (np.ones(len(i)), (groups[i], groups[j]))
    joined = connected_components(sp.coo_array(edges, shape=(len(groups),) * 2), directed=False)[1]
    return np.asarray(joined[groups], dtype=np.intp)


def _rarest_features(rows: Any, distance: float) -> Any:
    """Return for each row so many of its rarest features that near rows have one of them in common.

    If at most a share t of the union of two rows is not shared, a row of size a lacks at most t·a features of
    the other. In one order of all features, the first t·a + 1 of either then include a common one.
    """
    frequency = np.bincount(rows.indices, minlength=rows.shape[1])
    rank = np.empty(rows.shape[1], dtype=rows.indices.dtype)
    rank[np.argsort(frequency, kind="stable")] = np.arange(rows.shape[1])
    ranked = sp.csr_array((rows.data, rank[rows.indices], rows.indptr), shape=rows.shape, copy=True)
    ranked.sort_indices()
    sizes = np.diff(ranked.indptr)
    place = np.arange(ranked.nnz) - np.repeat(ranked.indptr[:-1], sizes)
    first = place <= np.repeat(np.floor(distance * sizes + 1e-9), sizes)  # rounding must not lose a pair
    ends = np.concatenate([[0], np.cumsum(first)])[ranked.indptr]
    return sp.csr_array((ranked.data[first], ranked.indices[first], ends), shape=rows.shape)


def _distances(shared: FloatArray, both: AnyArray) -> FloatArray:
    """Return distances from the number of shared features and the sum of both sizes; 0 of empty rows."""
    union = both - shared
    return np.divide(union - shared, union, out=np.zeros_like(shared), where=union > 0)


def _binary(X: Any, name: str) -> Any:
    content = Content.of(X)
    if not (binary := content.are_binary()).all():
        row = int(np.flatnonzero(~binary)[0])
        raise ValueError(
            f"distances need rows of zeros and ones, but row {row} of {name} has other values. Such rows can "
            "only be compared by content_keys."
        )
    return content.binary()
