"""Exact search for the nearest of many sparse rows, one block of queries at a time."""

import math
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.preprocessing import normalize

from transcendent._utils.arrays import FloatArray, chunks, group_equal_rows

SparseMetric = Literal["cosine", "jaccard"]

_BLOCK = 128
_DENSE_CELLS = 1 << 28
_ROUNDING = 1e-6  # of single precision


class SparseSearch(BaseEstimator):
    """Finds distances to the nearest of the rows it was fitted on.

    If the rows fit in 1 GiB when dense, they are made dense: a sparse block of queries times a dense matrix
    is several times faster than a product of two sparse ones. Equal queries are searched once. Products are
    in single precision, and distances below 1e-6 are set to 0.
    """

    def __init__(self, metric: SparseMetric) -> None:
        self.metric = metric

    def fit(self, X: Any) -> Self:
        """Store the rows."""
        self.rows_ = self._prepared(sp.csr_array(X, dtype=np.float64))
        return self

    def distances(self, X: Any, k: int) -> FloatArray:
        """Return (n, k) distances to the k nearest rows, ascending."""
        queries = sp.csr_array(X, dtype=np.float64)
        groups, first = group_equal_rows(queries)
        prepared, size = self._prepared(queries[first]), np.asarray(self.rows_.sum(axis=1))
        rows = self.rows_.T.toarray() if math.prod(self.rows_.shape) <= _DENSE_CELLS else self.rows_.T
        nearest = np.empty((len(first), k))
        for cut in chunks(len(first), _BLOCK):
            product = prepared[cut] @ rows
            shared = product.toarray() if sp.issparse(product) else product
            if self.metric == "jaccard":
                union = size + np.asarray(prepared[cut].sum(axis=1))[:, None] - shared
                shared = np.divide(shared, union, out=np.ones_like(shared), where=union > 0)
            nearest[cut] = 1.0 - np.sort(np.partition(shared, -k, axis=1)[:, -k:], axis=1)[:, ::-1]
        nearest[nearest < _ROUNDING] = 0.0
        return nearest[groups]

    def _prepared(self, X: Any) -> Any:
        """Return rows scaled to length 1 for cosine, and to zeros and ones for Jaccard."""
        rows = normalize(X) if self.metric == "cosine" else (X != 0)
        return sp.csr_array(rows, dtype=np.float32)
