"""Distance of an object from the training objects of each class."""

from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import (
    cosine_distances,
    euclidean_distances,
    paired_cosine_distances,
    paired_euclidean_distances,
)
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_array
from sklearn.utils.extmath import row_norms

from transcendent._utils.arrays import (
    FloatArray,
    IntArray,
    canonical_rows,
    chunks,
    encode_labels,
    of_kind,
    take_rows,
)
from transcendent.errors import MeasureError
from transcendent.measures.base import Measure, training_codes
from transcendent.measures.probability import smallest_of_others
from transcendent.measures.sparse_search import SparseSearch

Metric = Literal["euclidean", "cosine"]
NeighbourMetric = Literal["euclidean", "cosine", "jaccard"]

_NEAR = 1e-3
_TIED = 2.0**-42
_EQUAL = 2.0**-36


class _Distance(Measure):
    """A measure that subtracts the mean of the training rows from all rows.

    Otherwise large terms would cancel: far from the origin, the expanded square of a distance has no digits.
    """

    metric: Any
    needs_rows = needs_rows_alone = True
    centre_: FloatArray | None

    def _learn_centre(self, X: Any) -> None:
        centred = self.metric == "euclidean" and not sp.issparse(X)
        self.centre_ = X.mean(axis=0) if centred else None

    def _centred(self, X: Any) -> Any:
        return X if self.centre_ is None else of_kind(X, sparse=False) - self.centre_


class CentroidDistance(_Distance):
    """Distance to the centroid of the class: the mean of its training rows.

    Parameters
    ----------
    metric : {"euclidean", "cosine"}
        Which distance.

    Examples
    --------
    >>> from sklearn.neighbors import NearestCentroid
    >>> from transcendent.measures import CentroidDistance
    >>> X, y = [[0.0], [2.0], [9.0], [11.0]], [0, 0, 1, 1]
    >>> detector = NearestCentroid().fit(X, y)
    >>> CentroidDistance().fit(detector, X, y).scores(detector, [[4.0]])
    array([[3., 6.]])
    """

    def __init__(self, metric: Metric = "euclidean") -> None:
        self.metric = metric

    def fit(self, estimator: Any, X: Any, y: Any) -> Self:
        """Average the training rows of each class."""
        codes, n_classes = training_codes(estimator, y), len(estimator.classes_)
        X = X if sp.issparse(X) else np.asarray(X, dtype=np.float64)
        self._learn_centre(X)
        weights = 1.0 / np.bincount(codes, minlength=n_classes)[codes]
        averaging = sp.csr_array((weights, (codes, np.arange(len(codes)))), shape=(n_classes, len(codes)))
        centroids = averaging @ self._centred(X)
        self.centroids_ = centroids.toarray() if sp.issparse(centroids) else centroids
        return self

    def scores(self, estimator: Any, X: Any) -> FloatArray:  # noqa: ARG002
        """Return distances to the class centroids."""
        X = self._centred(_in_double_precision(X))
        distances: FloatArray = pairwise_distances(X, self.centroids_, metric=self.metric)
        if self.metric == "cosine":
            return distances
        every = np.broadcast_to(np.arange(len(self.centroids_)), distances.shape)
        return _sharpened(distances, X, self.centroids_, every)

    def left_out_scores(self, answers: Any, X: Any, y: Any) -> FloatArray:
        """Return distances to the centroids, with each row left out of the centroid of its own class."""
        codes = encode_labels(y, answers.classes_, "y")
        distances, size = self.scores(answers, X), np.bincount(codes)[codes]
        rows = np.arange(len(codes))
        if self.metric == "euclidean":
            # Without the row x, the mean of n rows m becomes m' = (n m - x) / (n - 1), so
            # x - m' = (x - m) n / (n - 1).
            distances[rows, codes] *= size / (size - 1)
            return distances
        X = sp.csr_array(X) if sp.issparse(X) else np.asarray(X)
        for cut in chunks(X.shape[0], max(1, (1 << 20) // X.shape[1])):
            own = of_kind(X[cut], sparse=False).astype(np.float64)
            # Only the direction counts, so n m - x need not be divided by n - 1.
            others = size[cut, None] * self.centroids_[codes[cut]] - own
            distances[rows[cut], codes[cut]] = paired_cosine_distances(own, others)
        return distances


class NeighbourShare(_Distance):
    """Share of the nearest training objects that belong to other classes.

    Training objects at the same distance share the remaining places: if four tie for the last place, each
    counts a quarter. So chance does not break ties, such as among copies with different labels.

    Parameters
    ----------
    n_neighbors : int
        Number of nearest objects to count.
    metric : {"euclidean", "cosine"}
        Which distance.
    """

    def __init__(self, n_neighbors: int = 5, *, metric: Metric = "euclidean") -> None:
        self.n_neighbors = n_neighbors
        self.metric = metric

    def fit(self, estimator: Any, X: Any, y: Any) -> Self:
        """Store the training rows, class by class."""
        codes, rows = training_codes(estimator, y), _in_double_precision(X)
        self.order_ = np.argsort(codes, kind="stable")
        self.starts_ = np.searchsorted(codes[self.order_], np.arange(len(estimator.classes_)))
        self._learn_centre(rows)
        self.rows_ = self._centred(rows[self.order_])
        self.norms_ = row_norms(self.rows_, squared=True)
        return self

    def scores(self, estimator: Any, X: Any) -> FloatArray:  # noqa: ARG002
        """Return shares in [0, 1]."""
        rows = of_kind(_in_double_precision(X), sparse=sp.issparse(self.rows_))
        return self._shares(self._centred(rows))

    def left_out_scores(self, answers: Any, X: Any, y: Any) -> FloatArray:  # noqa: ARG002
        """Return shares among the nearest other training objects."""
        return self._shares(self.rows_, left_out=True)[np.argsort(self.order_)]

    def _shares(self, X: Any, *, left_out: bool = False) -> FloatArray:
        k, n_others = self.n_neighbors, len(self.order_) - left_out
        if k > n_others:
            raise MeasureError(f"NeighbourShare({k}) compares with {k} training rows; there are {n_others}.")
        shares = np.empty((X.shape[0], len(self.starts_)))
        for cut in chunks(X.shape[0], max(1, (1 << 23) // len(self.order_))):
            distances, noise = self._distances(X[cut])
            if left_out:
                np.fill_diagonal(distances[:, cut], np.inf)
            last = np.partition(distances, k - 1, axis=1)[:, k - 1, None]
            closer = np.add.reduceat(distances < last - noise, self.starts_, axis=1, dtype=np.intp)
            tied = np.add.reduceat(np.abs(distances - last) <= noise, self.starts_, axis=1, dtype=np.intp)
            left = k - closer.sum(axis=1, keepdims=True)
            shares[cut] = 1.0 - (closer + left * (tied / tied.sum(axis=1, keepdims=True))) / k
        return shares

    def _distances(self, X: Any) -> tuple[FloatArray, Any]:
        """Return (n, rows) distances, squared if Euclidean, and the largest rounding error of each."""
        if self.metric == "cosine":
            return cosine_distances(X, self.rows_), _TIED
        squares = euclidean_distances(X, self.rows_, Y_norm_squared=self.norms_, squared=True)
        return squares, _TIED * (row_norms(X, squared=True)[:, None] + self.norms_)


class NeighbourDistance(_Distance):
    """Mean distance to the nearest training objects of the class.

    An object far from all classes is strange for each of them, whichever class it resembles most.

    Parameters
    ----------
    n_neighbors : int
        Number of objects of each class in the mean; all of them if a class has fewer.
    metric : {"euclidean", "cosine", "jaccard"}
        Which distance; Jaccard compares the sets of columns that are not 0. For sparse rows, cosine and
        Jaccard are fastest.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from transcendent.measures import NeighbourDistance
    >>> X, y = [[0.0], [2.0], [9.0], [11.0]], [0, 0, 1, 1]
    >>> detector = GaussianNB().fit(X, y)
    >>> NeighbourDistance(1).fit(detector, X, y).scores(detector, [[4.0], [99.0]])
    array([[ 2.,  5.],
           [97., 88.]])
    """

    absolute = True

    def __init__(self, n_neighbors: int = 5, *, metric: NeighbourMetric = "euclidean") -> None:
        self.n_neighbors = n_neighbors
        self.metric = metric

    def fit(self, estimator: Any, X: Any, y: Any) -> Self:
        """Index the training rows of each class."""
        codes, X = training_codes(estimator, y), _in_double_precision(X)
        index: Any = NearestNeighbors(metric=self.metric)
        if self.metric == "jaccard" or (self.metric == "cosine" and sp.issparse(X)):
            index = SparseSearch(self.metric)
        self._learn_centre(X)
        X, own = self._centred(X), [np.flatnonzero(codes == c) for c in range(len(estimator.classes_))]
        self.neighbours_ = [clone(index).fit(take_rows(X, rows)) for rows in own]
        return self

    def scores(self, estimator: Any, X: Any) -> FloatArray:  # noqa: ARG002
        """Return mean distances."""
        k, X = self.n_neighbors, X if self.centre_ is None else self._centred(_in_double_precision(X))
        return np.column_stack([_nearest(index, X, k).mean(axis=1) for index in self.neighbours_])

    def left_out_scores(self, answers: Any, X: Any, y: Any) -> FloatArray:
        """Return mean distances, with each row left out of its own class."""
        codes = encode_labels(y, answers.classes_, "y")
        d = NeighbourDistance.scores(self, answers, X)
        for c, index in enumerate(self.neighbours_):
            own = np.flatnonzero(codes == c)
            k = min(self.n_neighbors, len(own) - 1)
            if isinstance(index, SparseSearch):  # the nearest is the row itself, or a copy at distance 0
                nearest = index.distances(take_rows(X, own), k + 1)[:, 1:]
            else:
                nearest = _nearest(index, None, k)
            d[own, c] = nearest.mean(axis=1)
        return d


class NeighbourRatio(NeighbourDistance):
    """Distance to the nearest objects of the class, relative to those of the nearest other class.

    With ``d_y`` the mean distance to the ``n_neighbors`` nearest training objects of class y, and ``o``
    the smallest such mean over the other classes, the score is ``d_y / (d_y + o)``: 0 on top of the class,
    1/2 half way, 1 on top of another. It orders objects as the ratio ``d_y / o`` does, and stays finite.

    Parameters
    ----------
    n_neighbors, metric
        As for `NeighbourDistance`.
    """

    absolute = False

    def scores(self, estimator: Any, X: Any) -> FloatArray:
        """Return relative distances in [0, 1]."""
        return _relative(super().scores(estimator, X))

    def left_out_scores(self, answers: Any, X: Any, y: Any) -> FloatArray:
        """Return relative distances, with each row left out of its own class."""
        return _relative(super().left_out_scores(answers, X, y))


def _in_double_precision(X: Any) -> Any:
    """Return rows as float64: in single precision, distances between equal rows would not be 0."""
    return check_array(canonical_rows(X), accept_sparse="csr", dtype=np.float64)


def _nearest(index: Any, X: Any, k: int) -> FloatArray:
    """Return distances to the k nearest indexed rows; without ``X``, from each indexed row to the others."""
    X = None if X is None else _in_double_precision(X)
    if isinstance(index, SparseSearch):
        return index.distances(X, min(k, index.rows_.shape[0]))
    X = None if X is None else of_kind(X, sparse=sp.issparse(index._fit_X))
    distances, found = index.kneighbors(X, n_neighbors=min(k, index.n_samples_fit_))
    if index.metric == "cosine":
        return np.where(distances < _TIED, 0.0, distances)  # rounding leaves some 1e-16 between parallel rows
    return _sharpened(distances, index._fit_X if X is None else X, index._fit_X, found)


def _sharpened(distances: FloatArray, queries: Any, rows: Any, found: IntArray) -> FloatArray:
    """Return (n, k) Euclidean distances to the ``found`` rows, the small ones computed from differences.

    scikit-learn expands the square, which leaves about 1e-8 between equal rows, different in every batch.
    Transformers of columns far from 0 may leave about 1e-12 between them, which counts as 0, too.
    """
    targets = sp.csr_array(rows) if sp.issparse(queries) else np.asarray(rows)
    norms = row_norms(queries)[:, None]
    i, j = np.nonzero(distances < _NEAR * norms)
    for cut in chunks(len(i), max(1, (1 << 20) // queries.shape[1])):
        pairs = queries[i[cut]], targets[found[i[cut], j[cut]]]
        distances[i[cut], j[cut]] = paired_euclidean_distances(*pairs)
    return np.where(distances < _EQUAL * norms, 0.0, distances)


def _relative(d: FloatArray) -> FloatArray:
    """Divide each distance by the sum of itself and the smallest distance to another class."""
    total = d + smallest_of_others(d)
    ratio: FloatArray = np.divide(d, total, out=np.full_like(d, 0.5), where=total > 0)
    return ratio
