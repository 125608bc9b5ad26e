"""The measure to take against drift, chosen on evidence; see the benchmarks in the documentation."""

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
    """The recommended measure where the world moves: three opinions about the detector's answers.

    Two boosted ensembles, one coarse, one of large trees that each see a twentieth of the columns at a time,
    and one of extremely randomised trees are fitted beside the detector; their p-values are merged by
    Fisher's rule and ranked among all calibration objects. Any detector can be judged so: it is asked for
    its label only. Of sparse rows with more than 2,000 columns, boosting sees the 2,000 that tell the classes
    apart best.

    Parameters
    ----------
    n_jobs : int or None
        How many of the randomised trees are fitted and asked at once; boosting takes the threads OpenMP has.
    random_state : int, RandomState or None
        Seeds the three.

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
    opinions = [SecondOpinion(model, Probability()) for model in models]
    return CombinedMeasure(opinions, bag="all", random_state=random_state)


class DenseColumns(TransformerMixin, BaseEstimator):
    """Rows as a dense array of single precision, for models that take no sparse ones.

    Parameters
    ----------
    max_columns : int
        With more columns than that, those that tell the classes apart best by the F-test.
    """

    def __init__(self, max_columns: int = 2000) -> None:
        self.max_columns = max_columns

    def fit(self, X: Any, y: Any) -> Self:
        """Choose the columns."""
        rows = self._checked(X)
        self.columns_: IntArray = np.arange(rows.shape[1])
        if rows.shape[1] > self.max_columns:
            with np.errstate(divide="ignore", invalid="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that some columns are constant
                power = np.nan_to_num(f_classif(rows, y)[0], nan=0.0, posinf=np.inf)
            self.columns_ = np.sort(np.argsort(-power, kind="stable")[: self.max_columns])
        return self

    def transform(self, X: Any) -> AnyArray:
        """The chosen columns."""
        rows = self._checked(X)[:, self.columns_]
        dense: AnyArray = rows.toarray() if sp.issparse(rows) else rows
        return dense

    def _checked(self, X: Any) -> Any:
        return check_array(X, dtype=np.float32, accept_sparse="csr", ensure_all_finite="allow-nan")
