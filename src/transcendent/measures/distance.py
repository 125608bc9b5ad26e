"""How far an object is from the training objects of each class."""

from collections.abc import Iterator
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import paired_cosine_distances
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from transcendent.arrays import FloatArray, chunks, encode_labels, take_rows
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

    def left_out_scores(self, answers: Any, X: Any, y: Any) -> FloatArray:
        """Distances to the centroids; to that of its own class, to the mean of the other members."""
        codes = encode_labels(y, answers.classes_, "y")
        distances, size = self.scores(answers, X), np.bincount(codes)[codes]
        rows = np.arange(len(codes))
        if self.metric == "cosine":
            # A direction does not change with its length: n times the centroid, less the row.
            distances[rows, codes] = np.concatenate(
                [
                    paired_cosine_distances(part, size[cut, None] * self.centroids_[codes[cut]] - part)
                    for cut, part in _dense_chunks(X)
                ]
            )
        else:
            distances[rows, codes] *= size / (size - 1)
        return distances


def _dense_chunks(X: Any) -> Iterator[tuple[slice, FloatArray]]:
    """The rows as float64 arrays of some megabytes."""
    rows: Any = sp.csr_array(X) if sp.issparse(X) else np.asarray(X)
    for cut in chunks(rows.shape[0], max(1, (1 << 20) // rows.shape[1])):
        yield cut, np.asarray(rows[cut].toarray() if sp.issparse(X) else rows[cut], dtype=np.float64)


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

    def left_out_scores(self, answers: Any, X: Any, y: Any) -> FloatArray:  # noqa: ARG002
        """Shares among the nearest other training objects."""
        share: FloatArray = 1.0 - self.neighbours_.predict_proba(None)
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
        return _relative(np.column_stack([_mean_distance(index, X) for index in self.neighbours_]))

    def left_out_scores(self, answers: Any, X: Any, y: Any) -> FloatArray:
        """Relative distances, with the row itself not among the members of its class."""
        codes = encode_labels(y, answers.classes_, "y")
        d = np.column_stack([_mean_distance(index, X) for index in self.neighbours_])
        for c, index in enumerate(self.neighbours_):
            d[codes == c, c] = _mean_distance(index, None)
        return _relative(d)


def _mean_distance(index: Any, X: Any) -> FloatArray:
    """To the nearest indexed objects: of ``X``, or of each indexed object to the others."""
    k = index.n_neighbors if X is not None else min(index.n_neighbors, index.n_samples_fit_ - 1)
    mean: FloatArray = index.kneighbors(X, n_neighbors=k)[0].mean(axis=1)
    return mean


def _relative(d: FloatArray) -> FloatArray:
    """Each distance against itself and the smallest of the other classes."""
    rows, nearest = np.arange(len(d)), np.argmin(d, axis=1)
    other = np.repeat(d[rows, nearest][:, None], d.shape[1], axis=1)
    other[rows, nearest] = np.partition(d, 1, axis=1)[:, 1]
    total = d + other
    ratio: FloatArray = np.divide(d, total, out=np.full_like(d, 0.5), where=total > 0)
    return ratio
