"""The default measure of each detector."""

from typing import Any

from sklearn.base import clone
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import AdaBoostClassifier, GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, ComplementNB, GaussianNB, MultinomialNB
from sklearn.neighbors import NearestCentroid

from transcendent._utils.estimators import see_through
from transcendent.errors import MeasureError
from transcendent.measures.base import FunctionMeasure, Measure
from transcendent.measures.density import Density
from transcendent.measures.distance import CentroidDistance
from transcendent.measures.ensemble import POLLED, TreeDisagreement
from transcendent.measures.margin import Margin
from transcendent.measures.names import from_name
from transcendent.measures.probability import Probability

_NAIVE_BAYES = (GaussianNB, BernoulliNB, MultinomialNB, ComplementNB, CategoricalNB)
_BOOSTED = (GradientBoostingClassifier, HistGradientBoostingClassifier, AdaBoostClassifier)


def choose_measure(estimator: Any) -> Measure:
    """Return the measure that ``"auto"`` stands for, given a detector.

    Parameters
    ----------
    estimator : classifier or pipeline
        The detector, fitted or not.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent.measures import choose_measure
    >>> choose_measure(make_pipeline(StandardScaler(), LinearSVC()))
    Margin()
    """
    classifier = see_through(estimator)[1]
    if isinstance(classifier, POLLED):
        return TreeDisagreement()
    if isinstance(classifier, (QuadraticDiscriminantAnalysis, *_NAIVE_BAYES)):
        return Density()
    if isinstance(classifier, NearestCentroid) and classifier.metric == "euclidean":
        return CentroidDistance()
    library = type(classifier).__module__.partition(".")[0]
    boosted = isinstance(classifier, _BOOSTED) or library in {"lightgbm", "xgboost", "catboost"}
    # The decision_function of boosted trees is not a distance to a hyperplane.
    if hasattr(classifier, "decision_function") and not boosted:
        return Margin()
    if hasattr(classifier, "predict_proba"):
        return Probability()
    raise MeasureError(
        f"no measure is known for {type(classifier).__name__}: it has neither decision_function nor "
        "predict_proba. Pass measure=, a Measure or a function (estimator, X) -> (n, classes) scores."
    )


def resolve_measure(measure: Any, estimator: Any) -> Measure:
    """Return a fresh measure from ``"auto"``, a name, a measure, a frozen one, or a function."""
    measure = from_name(measure)
    if isinstance(measure, str):
        return choose_measure(estimator)
    if isinstance(measure, Measure | FrozenEstimator):
        fresh: Measure = clone(measure)
        return fresh
    if callable(measure) and not isinstance(measure, type):
        return FunctionMeasure(measure)
    raise MeasureError(
        "measure must be 'auto', a measure such as transcendent.measures.Margin(), its name, or a function, "
        f"not {measure!r}."
    )
