"""Kinds of evidence that were tried and not kept."""

from typing import Any, Self

import numpy as np
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.mixture import GaussianMixture
from sklearn.svm import LinearSVC
from sklearn.utils import check_random_state

from transcendent.measures import Measure


class _OfRows(Measure):
    needs_rows = True

    def __init__(self, random_state: Any = None) -> None:
        self.random_state = random_state


class BaggedSVMs(_OfRows):
    """Mean over deviation of 25 SVMs, each fitted on a bootstrap sample and a quarter of the columns."""

    def fit(self, estimator: Any, X: Any, y: Any) -> Self:  # noqa: ARG002
        rng, (n, width) = check_random_state(self.random_state), X.shape
        self.members_ = []
        for _ in range(25):
            columns, rows = rng.permutation(width)[: width // 4], rng.randint(n, size=n)
            self.members_.append((columns, LinearSVC(C=0.1).fit(X[rows][:, columns], y[rows])))
        return self

    def scores(self, estimator: Any, X: Any) -> Any:  # noqa: ARG002
        answers = np.array([svm.decision_function(X[:, columns]) for columns, svm in self.members_])
        ratio = answers.mean(axis=0) / (answers.std(axis=0) + 1e-3)
        return np.column_stack([ratio, -ratio])


class ProjectedDensity(_OfRows):
    """Density of the class in 30 dimensions: ten Gaussians each."""

    def fit(self, estimator: Any, X: Any, y: Any) -> Self:
        self.projection_ = TruncatedSVD(30, random_state=self.random_state).fit(X)
        points = self.projection_.transform(X)
        self.mixtures_ = [
            GaussianMixture(10, reg_covar=1e-3, random_state=self.random_state).fit(points[y == c])
            for c in estimator.classes_
        ]
        return self

    def scores(self, estimator: Any, X: Any) -> Any:  # noqa: ARG002
        points = self.projection_.transform(X)
        return np.column_stack([-mixture.score_samples(points) for mixture in self.mixtures_])


class ClusterDistance(_OfRows):
    """Distance to the nearest of a hundred clusters of the class, relative to that of the other class."""

    def fit(self, estimator: Any, X: Any, y: Any) -> Self:
        make = {"n_clusters": 100, "n_init": 3, "random_state": self.random_state}
        self.clusters_ = [MiniBatchKMeans(**make).fit(X[y == c]) for c in estimator.classes_]
        return self

    def scores(self, estimator: Any, X: Any) -> Any:  # noqa: ARG002
        d = np.column_stack([clusters.transform(X).min(axis=1) for clusters in self.clusters_])
        return d / (d.sum(axis=1, keepdims=True) + 1e-9)


class Novelty(_OfRows):
    """How rare an object's features are in training: their mean inverse document frequency."""

    def fit(self, estimator: Any, X: Any, y: Any) -> Self:  # noqa: ARG002
        self.idf_ = np.log((X.shape[0] + 1) / (np.asarray(X.sum(axis=0)).ravel() + 1))
        return self

    def scores(self, estimator: Any, X: Any) -> Any:
        rarity = np.asarray(X @ self.idf_).ravel() / np.maximum(np.asarray(X.sum(axis=1)).ravel(), 1)
        return np.repeat(rarity[:, None], len(estimator.classes_), axis=1)
