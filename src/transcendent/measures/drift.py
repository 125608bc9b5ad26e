"""The measure recommended against drift, chosen by the benchmarks in the documentation."""

import warnings
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.feature_selection import f_classif
from sklearn.pipeline import make_pipeline
from sklearn.utils import check_array

from transcendent._utils.arrays import AnyArray, IntArray
from transcendent.measures.combined import CombinedMeasure
from transcendent.measures.probability import Probability
from transcendent.measures.second_opinion import SecondOpinion


def drift_measure(*, n_jobs: int | None = None, random_state: Any = None) -> CombinedMeasure:
    """Return the measure recommended under drift: three second opinions on the detector's answers.

    Three ensembles are fitted beside the detector: a coarse boosted one, a boosted one of large trees that
    consider a twentieth of the columns at each split, and one of extremely randomised trees. Their p-values
    are merged by Fisher's rule and ranked among all calibration objects. It works with any detector, since
    only its labels are needed. Of rows with more than 2,000 columns, boosting uses the 2,000 that best
    separate the classes.

    It ranks objects of all classes together. Thresholds per class, found on calibration objects, may then
    reject far more of a rare class than they promised once the world has moved; a `RejectionBudget` holds
    the share, and is how the benchmarks use it.

    Parameters
    ----------
    n_jobs : int or None
        How many threads the ensembles use, one by default. On a machine that does nothing else, ``-1`` (one
        per core) is quicker; beside other work boosting with several threads takes several times as long.
    random_state : int, RandomState or None
        Seed of the three ensembles.

    Returns
    -------
    CombinedMeasure
        For the ``measure`` of any evaluator.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent import InductiveEvaluator
    >>> from transcendent.measures import drift_measure
    >>> X, y = make_classification(600, flip_y=0.1, random_state=0)
    >>> ice = InductiveEvaluator(LinearSVC(), measure=drift_measure(random_state=0), random_state=0)
    >>> ice.fit(X[:500], y[:500]).decide(X[500:]).labels.shape
    (100,)
    """
    coarse = HistGradientBoostingClassifier(early_stopping=False)
    fine = HistGradientBoostingClassifier(
        max_iter=200, max_leaf_nodes=127, min_samples_leaf=5, max_features=0.05, early_stopping=False
    )
    trees = ExtraTreesClassifier(200, n_jobs=n_jobs)
    models = [make_pipeline(DenseColumns(), coarse), make_pipeline(DenseColumns(), fine), trees]
    opinions = [SecondOpinion(model, Probability(), n_jobs=n_jobs or 1) for model in models]
    return CombinedMeasure(opinions, bag="all", random_state=random_state)


class DenseColumns(TransformerMixin, BaseEstimator):
    """Turns rows into a dense array of single precision, for models that accept no sparse ones.

    Parameters
    ----------
    max_columns : int
        With more columns than that, keep those that best separate the classes by the F-test.
    """

    def __init__(self, max_columns: int = 2000) -> None:
        self.max_columns = max_columns

    def fit(self, X: Any, y: Any) -> Self:
        """Choose the columns."""
        rows = self._checked(X)
        self.columns_: IntArray = np.arange(rows.shape[1])
        if rows.shape[1] > self.max_columns:
            with np.errstate(divide="ignore", invalid="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # about constant columns
                power = np.nan_to_num(f_classif(rows, y)[0], nan=0.0, posinf=np.inf)
            self.columns_ = np.sort(np.argsort(-power, kind="stable")[: self.max_columns])
        return self

    def transform(self, X: Any) -> AnyArray:
        """Return the chosen columns."""
        rows = self._checked(X)[:, self.columns_]
        return np.asarray(rows.toarray() if sp.issparse(rows) else rows)

    def _checked(self, X: Any) -> Any:
        return check_array(X, dtype=np.float32, accept_sparse="csr", ensure_all_finite="allow-nan")
