"""A measure to try under drift, chosen by the benchmarks in the documentation."""

import warnings
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.feature_selection import f_classif
from sklearn.pipeline import make_pipeline
from sklearn.utils import check_array

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray
from transcendent.measures.combined import CombinedMeasure
from transcendent.measures.distance import NeighbourDistance, NeighbourMetric
from transcendent.measures.probability import Probability
from transcendent.measures.second_opinion import SecondOpinion

_MANY = 10
_CLASSES_OF_ALL_ROUNDS = 4


def drift_measure(
    *, n_jobs: int | None = None, random_state: Any = None, new_classes: bool | None = None
) -> CombinedMeasure:
    """Return a measure to try under drift: second opinions on the detector's answers.

    Three ensembles are fitted beside the detector: a coarse boosted one, a boosted one of large trees that
    consider a twentieth of the columns at each split, and one of extremely randomised trees. Their p-values
    are merged by Fisher's rule and ranked among all calibration objects. It works with any detector, since
    it needs only labels. Boosting uses at most 2,000 columns, those that best separate the classes, and fewer
    rounds with more than four classes.

    If there are many classes, such as families, some objects will belong to new ones. The cosine distance to
    the nearest training object of the class is then added, with the weight of the three opinions together.
    If all classes are known, it costs more than it finds.

    Objects of all classes are ranked together. Under drift, thresholds per class may reject
    far more of a rare class than promised; a `RejectionBudget` holds the share, as in the benchmarks.

    Parameters
    ----------
    n_jobs : int or None
        Number of threads of the ensembles, by default one. On an idle machine ``-1`` (one per core) is
        faster; beside other work, boosting with several threads takes several times as long.
    random_state : int, RandomState or None
        Seed for the three ensembles.
    new_classes : bool or None
        Whether to expect new classes; by default if there are ten classes or more.

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
    coarse = Boosting()
    fine = Boosting(max_iter=200, max_leaf_nodes=127, min_samples_leaf=5, max_features=0.05)
    trees = ExtraTreesClassifier(200, n_jobs=n_jobs)
    models = [make_pipeline(DenseColumns(), coarse), make_pipeline(DenseColumns(), fine), trees]
    opinions = [SecondOpinion(model, Probability(), n_jobs=n_jobs or 1) for model in models]
    if new_classes is False:
        return CombinedMeasure(opinions, bag="all", random_state=random_state)
    distance = NewClassDistance(1, metric="cosine", min_classes=2 if new_classes else _MANY)
    return CombinedMeasure(
        [*opinions, distance], weights=[1.0, 1.0, 1.0, 3.0], bag="all", random_state=random_state
    )


class NewClassDistance(NeighbourDistance):
    """A distance for combined measures of at least ``min_classes`` classes; missing values count as 0."""

    def __init__(
        self, n_neighbors: int = 1, *, metric: NeighbourMetric = "cosine", min_classes: int = _MANY
    ) -> None:
        super().__init__(n_neighbors, metric=metric)
        self.min_classes = min_classes

    def fit(self, estimator: Any, X: Any, y: Any) -> Self:
        """Index the training rows of each class."""
        return super().fit(estimator, _filled(X), y)

    def scores(self, estimator: Any, X: Any) -> FloatArray:
        """Return distances."""
        return super().scores(estimator, _filled(X))


def _filled(X: Any) -> Any:
    rows = check_array(X, dtype=np.float64, accept_sparse="csr", ensure_all_finite="allow-nan", copy=True)
    values = rows.data if sp.issparse(rows) else rows
    values[np.isnan(values)] = 0.0
    return rows


class Boosting(ClassifierMixin, BaseEstimator):
    """A faster ``HistGradientBoostingClassifier`` without early stopping.

    Columns of zeros and ones get two bins, which give the same trees as more bins. A round fits one tree for
    each class, so with more than four classes there are fewer rounds.
    """

    def __init__(
        self,
        *,
        max_iter: int = 100,
        max_leaf_nodes: int = 31,
        min_samples_leaf: int = 20,
        max_features: float = 1.0,
        random_state: Any = None,
    ) -> None:
        self.max_iter = max_iter
        self.max_leaf_nodes = max_leaf_nodes
        self.min_samples_leaf = min_samples_leaf
        self.max_features = max_features
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the trees on dense rows."""
        self.classes_ = np.unique(y)
        rounds = self.max_iter * _CLASSES_OF_ALL_ROUNDS // max(len(self.classes_), _CLASSES_OF_ALL_ROUNDS)
        binary = np.all((X == 0) | (X == 1) | np.isnan(X))
        params = self.get_params() | {"max_iter": rounds, "max_bins": 2 if binary else 255}
        self.model_ = HistGradientBoostingClassifier(early_stopping=False, **params).fit(X, y)
        return self

    def predict(self, X: Any) -> AnyArray:
        """Return the most probable classes."""
        return np.asarray(self.model_.predict(X))

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each class."""
        return np.asarray(self.model_.predict_proba(X))


class DenseColumns(TransformerMixin, BaseEstimator):
    """Turns rows into a dense array of single precision, for models that accept no sparse rows.

    If there are more than ``max_columns``, it keeps those that best separate the classes by the F-test.
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
