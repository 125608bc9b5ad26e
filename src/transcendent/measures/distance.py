"""How far an object is from the training objects of each class."""

from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from transcendent.arrays import FloatArray, encode_labels, take_rows
from transcendent.measures.base import Measure

Metric = Literal["euclidean", "cosine"]


class CentroidDistance(Measure):
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

    needs_rows = True

    def __init__(self, metric: Metric = "euclidean") -> None:
        self.metric = metric

    def fit(self, estimator: Any, X: Any, y: Any) -> Self:
        """Average the training rows of each class."""
        codes = encode_labels(y, estimator.classes_, "y")
        n_classes = len(estimator.classes_)
        weights = 1.0 / np.bincount(codes, minlength=n_classes)[codes]
        averaging = sp.csr_array((weights, (codes, np.arange(len(codes)))), shape=(n_classes, len(codes)))
        centroids = averaging @ (X if sp.issparse(X) else np.asarray(X, dtype=np.float64))
        self.centroids_ = centroids.toarray() if sp.issparse(centroids) else centroids
        return self

    def scores(self, estimator: Any, X: Any) -> FloatArray:  # noqa: ARG002
        """Distances to the class centroids."""
        distances: FloatArray = pairwise_distances(X, self.centroids_, metric=self.metric)
        return distances


class _Neighbours(Measure):
    needs_rows = True

    def __init__(self, n_neighbors: int = 5, *, metric: Metric = "euclidean") -> None:
        self.n_neighbors = n_neighbors
        self.metric = metric


class NeighbourShare(_Neighbours):
    """Share of the nearest training objects that belong to other classes.

    Parameters
    ----------
    n_neighbors : int
        How many nearest objects are asked.
    metric : {"euclidean", "cosine"}
        Which distance.
    """

    def fit(self, estimator: Any, X: Any, y: Any) -> Self:
        """Index the training rows."""
        codes = encode_labels(y, estimator.classes_, "y")
        self.neighbours_ = KNeighborsClassifier(self.n_neighbors, metric=self.metric).fit(X, codes)
        return self

    def scores(self, estimator: Any, X: Any) -> FloatArray:  # noqa: ARG002
        """Shares in [0, 1]."""
        share: FloatArray = 1.0 - self.neighbours_.predict_proba(X)
        return share


class NeighbourRatio(_Neighbours):
    """Distance to the nearest objects of the class, relative to those of the nearest other class.

    With ``d_y`` the mean distance to the ``n_neighbors`` nearest training objects of class y, and ``o``
    the smallest such mean over the other classes, the score is ``d_y / (d_y + o)``: 0 on top of the class,
    1/2 half way, 1 on top of another. It orders objects as the ratio ``d_y / o`` does, and stays finite.
    A class with fewer than ``n_neighbors`` rows is judged by all it has.

    Parameters
    ----------
    n_neighbors : int
        How many objects of each class the mean is over.
    metric : {"euclidean", "cosine"}
        Which distance.
    """

    def fit(self, estimator: Any, X: Any, y: Any) -> Self:
        """Index the training rows of each class."""
        codes = encode_labels(y, estimator.classes_, "y")
        rows_of = [np.flatnonzero(codes == c) for c in range(len(estimator.classes_))]
        self.neighbours_ = [
            NearestNeighbors(n_neighbors=min(self.n_neighbors, len(rows)), metric=self.metric).fit(
                take_rows(X, rows)
            )
            for rows in rows_of
        ]
        return self

    def scores(self, estimator: Any, X: Any) -> FloatArray:  # noqa: ARG002
        """Relative distances in [0, 1]."""
        d = np.column_stack([index.kneighbors(X)[0].mean(axis=1) for index in self.neighbours_])
        rows, nearest = np.arange(len(d)), np.argmin(d, axis=1)
        other = np.repeat(d[rows, nearest][:, None], d.shape[1], axis=1)
        other[rows, nearest] = np.partition(d, 1, axis=1)[:, 1]
        total = d + other
        ratio: FloatArray = np.divide(d, total, out=np.full_like(d, 0.5), where=total > 0)
        return ratio
