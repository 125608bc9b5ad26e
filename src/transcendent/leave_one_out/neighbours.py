"""Nearest neighbours and nearest centroids."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, take_rows
from transcendent.errors import NoShortcutError
from transcendent.leave_one_out import shared
from transcendent.leave_one_out.registry import LeftOut, register
from transcendent.leave_one_out.shared import refuse_if

_ACCURATE = 1e-8
"""Smallest share of a value that may remain after a subtraction: half of the digits are then correct."""


@register(KNeighborsClassifier, kind="exact")
def k_neighbours(knn: Any, X: Any, y: AnyArray) -> LeftOut:  # noqa: ARG001
    """Use the nearest other rows, which scikit-learn returns for ``X=None``."""
    refuse_if(knn.metric == "precomputed", "metric='precomputed' is not supported")
    return LeftOut(knn.classes_, predict=knn.predict(None), predict_proba=knn.predict_proba(None))


@register(NearestCentroid, kind="exact")
def nearest_centroid(model: Any, X: Any, y: AnyArray) -> LeftOut:
    """Remove each row from the centroid of its class.

    The mean of n rows without x is mean - (x - mean) / (n - 1), so x is n / (n - 1) times as far from it.
    """
    refuse_if(model.metric != "euclidean", f"metric={model.metric!r} is not supported")
    refuse_if(model.shrink_threshold is not None, "shrink_threshold is not supported")
    rows, codes = shared.rows_and_codes(model, X, y)
    _check_variety(rows)
    sizes = np.bincount(codes)[codes]
    distances = euclidean_distances(rows, model.centroids_)
    distances[np.arange(len(codes)), codes] *= sizes / (sizes - 1)
    nearest = np.argmin(distances, axis=1)
    empirical = isinstance(model.priors, str) and model.priors == "empirical"
    given = None if empirical else model.class_prior_
    log_priors = shared.left_out_log_priors(codes, len(model.classes_), given)
    # For equal priors, scikit-learn predicts the nearest centroid by unscaled distances.
    unequal = ~np.isclose(np.exp(log_priors), 1 / len(model.classes_)).all(axis=1)
    try:
        scores = 2 * log_priors - _scaled_squares(model, rows, codes)
    except NoShortcutError:
        if unequal.any():
            raise
        return LeftOut(model.classes_, predict=model.classes_[nearest])
    best = np.where(unequal, np.argmax(scores, axis=1), nearest)
    return LeftOut(model.classes_, model.classes_[best], **shared.score_answers(scores))


def _check_variety(rows: Any) -> None:
    """Refuse rows that are all equal except one: without that one scikit-learn raises an error."""
    mean = np.asarray(rows.mean(axis=0)).reshape(1, -1)
    squares = euclidean_distances(rows, mean, squared=True)[:, 0]
    if squares.max() < squares.sum() / 2:
        return
    rest = take_rows(rows, np.delete(np.arange(len(squares)), np.argmax(squares)))
    refuse_if((rest.max(axis=0) - rest.min(axis=0)).max() == 0, "all rows except one are equal")


def _scaled_squares(model: Any, rows: Any, codes: IntArray) -> FloatArray:
    """Return squared left-out distances, each feature in units of its left-out deviation within classes.

    The sum of squares of n rows without one of deviation u is smaller by n / (n - 1) u² (Welford, 1962).
    """
    refuse_if(sp.issparse(rows), "unequal priors are not supported for sparse rows")
    centroids, sizes = model.centroids_, np.bincount(codes)
    spare = len(rows) - len(centroids)
    constant = model.within_class_std_dev_ <= _ACCURATE * np.abs(centroids).max(axis=0)
    undefined = spare < 2 or np.any(centroids[:, constant])
    refuse_if(undefined, "a feature does not vary within the classes")
    scaled, squares = np.empty((len(rows), len(centroids))), model.within_class_std_dev_**2 * spare
    for cut, part in shared.blocks(rows):
        factors = (sizes / (sizes - 1))[codes[cut], None]
        remaining = squares - factors * (part - centroids[codes[cut]]) ** 2
        lost = remaining < _ACCURATE * squares
        refuse_if(lost.any(), "a feature hardly varies within the classes without one row")
        variances = np.where(constant, 1, remaining / (spare - 1))
        for c, centroid in enumerate(centroids):
            scaled[cut, c] = ((part - centroid) ** 2 / variances).sum(axis=1)
    # Its own centroid moves, too: x is n / (n - 1) times as far from it.
    scaled[np.arange(len(codes)), codes] *= (sizes / (sizes - 1))[codes] ** 2
    return scaled
