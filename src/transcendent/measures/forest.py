"""Class probabilities of forests, without the time that scikit-learn spends around each tree."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from transcendent._utils.arrays import FloatArray

_FORESTS = (RandomForestClassifier, ExtraTreesClassifier)
_FEW = 1 << 10


def class_probabilities(estimator: Any, X: Any) -> FloatArray:
    """Return ``predict_proba``; of a forest and few rows, without its overhead per tree.

    The sum over trees is the same, in the same order. A forest with ``n_jobs`` sums in the order in which its
    threads end, so its own answers differ in the last digit from call to call.
    """
    rows = _rows_for_trees(estimator, X)
    if rows is None:
        return np.asarray(estimator.predict_proba(X), dtype=np.float64)
    summed = np.zeros((rows.shape[0], estimator.n_classes_))
    for tree in estimator.estimators_:
        summed += tree.tree_.predict(rows)
    return summed / len(estimator.estimators_)


def _rows_for_trees(estimator: Any, X: Any) -> Any:
    """Return rows as the trees of a forest need them; None to leave checks and errors to scikit-learn."""
    # A subclass may predict in its own way.
    if (
        type(estimator) not in _FORESTS
        or estimator.n_outputs_ != 1
        or hasattr(estimator, "feature_names_in_")
    ):
        return None
    sparse = sp.issparse(X) and X.format == "csr"
    if not (sparse or isinstance(X, np.ndarray)) or X.ndim != 2 or X.dtype.kind not in "biuf":
        return None
    # Trees check neither of these: they would read beyond a row that is too short.
    if not 0 < X.shape[0] <= _FEW or X.shape[1] != estimator.n_features_in_:
        return None
    if sparse and X.indices.dtype != np.intc:
        return None
    with np.errstate(over="ignore"):
        rows = X.astype(np.float32)
    return rows if np.isfinite(rows.data if sparse else rows).all() else None
