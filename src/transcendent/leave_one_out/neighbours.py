"""Nearest neighbours and nearest centroids."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import softmax
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.utils import check_array

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, encode_labels, take_rows
from transcendent.errors import NoShortcutError
from transcendent.leave_one_out.classes import blocks, decision_values, left_out_log_priors
from transcendent.leave_one_out.registry import LeftOut, register

_ACCURATE = 1e-8
"""What must remain, relative to what was there, where numbers are subtracted: half of the digits."""


@register(KNeighborsClassifier, kind="exact")
def k_neighbours(knn: Any, X: Any, y: AnyArray) -> LeftOut:  # noqa: ARG001
    """Ask for the neighbours of each row other than itself."""
    if knn.metric == "precomputed":
        raise NoShortcutError("metric='precomputed' has no rows to leave out")
    return LeftOut(knn.classes_, predict=knn.predict(None), predict_proba=knn.predict_proba(None))


@register(NearestCentroid, kind="exact")
def nearest_centroid(model: Any, X: Any, y: AnyArray) -> LeftOut:
    """Take each row away from the centroid of its class: it ends up size / (size - 1) times as far."""
    if model.metric != "euclidean":
        raise NoShortcutError(f"metric={model.metric!r} has no centroid to take a row away from")
    if model.shrink_threshold is not None:
        raise NoShortcutError("shrink_threshold is not supported")
    rows = check_array(X, accept_sparse="csr", dtype=np.float64)
    codes = encode_labels(y, model.classes_, "y")
    _check_variety(rows)
    sizes = np.bincount(codes)[codes]
    distances = euclidean_distances(rows, model.centroids_)
    distances[np.arange(len(codes)), codes] *= sizes / (sizes - 1)
    nearest = np.argmin(distances, axis=1)
    empirical = isinstance(model.priors, str) and model.priors == "empirical"
    log_priors = left_out_log_priors(codes, len(model.classes_), None if empirical else model.class_prior_)
    # Only unequal priors make predict ask for more than the distances.
    unequal = ~np.isclose(np.exp(log_priors), 1 / len(model.classes_)).all(axis=1)
    try:
        scores = 2 * log_priors - _scaled_squares(model, rows, codes)
    except NoShortcutError:
        if unequal.any():
            raise
        return LeftOut(model.classes_, predict=model.classes_[nearest])
    return LeftOut(
        model.classes_,
        predict=model.classes_[np.where(unequal, np.argmax(scores, axis=1), nearest)],
        decision_function=decision_values(scores),
        predict_proba=softmax(scores, axis=1),
    )


def _check_variety(rows: Any) -> None:
    """Scikit-learn raises an error where all rows but the one left out are equal."""
    mean = np.asarray(rows.mean(axis=0)).reshape(1, -1)
    squares = euclidean_distances(rows, mean, squared=True)[:, 0]
    if squares.max() < squares.sum() / 2:
        return
    rest = take_rows(rows, np.delete(np.arange(len(squares)), np.argmax(squares)))
    if (rest.max(axis=0) - rest.min(axis=0)).max() == 0:
        raise NoShortcutError("all rows are equal but one")


def _scaled_squares(model: Any, rows: Any, codes: IntArray) -> FloatArray:
    """Squared left-out distances, each feature in units of its left-out deviation within the classes."""
    if sp.issparse(rows):
        raise NoShortcutError("unequal priors are not supported for sparse rows")
    centroids, sizes = model.centroids_, np.bincount(codes)
    spare = len(rows) - len(centroids)
    constant = model.within_class_std_dev_ <= _ACCURATE * np.abs(centroids).max(axis=0)
    if spare < 2 or np.any(centroids[:, constant]):
        raise NoShortcutError("a feature does not vary within the classes")
    scaled, squares = np.empty((len(rows), len(centroids))), model.within_class_std_dev_**2 * spare
    for cut, part in blocks(rows):
        factors = (sizes / (sizes - 1))[codes[cut], None]
        remaining = squares - factors * (part - centroids[codes[cut]]) ** 2
        if np.any(remaining < _ACCURATE * squares):
            raise NoShortcutError("a feature hardly varies within the classes without one row")
        variances = np.where(constant, 1, remaining / (spare - 1))
        for c, centroid in enumerate(centroids):
            scaled[cut, c] = ((part - centroid) ** 2 / variances).sum(axis=1)
    scaled[np.arange(len(codes)), codes] *= (sizes / (sizes - 1))[codes] ** 2
    return scaled
