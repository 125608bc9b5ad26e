"""Pipelines, wrappers, tags and seeds of scikit-learn estimators."""

from inspect import getattr_static
from typing import Any

from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from transcendent._utils.arrays import canonical_rows


def see_through(estimator: Any) -> tuple[list[Any], Any]:
    """Return the transformers before the classifier, and the classifier itself."""
    if isinstance(estimator, FrozenEstimator):
        return see_through(estimator.estimator)
    if hasattr(estimator, "best_estimator_"):
        return see_through(estimator.best_estimator_)
    # Pipelines that resample are subclasses with a predict of their own.
    own_predict = getattr_static(type(estimator), "predict", None) is not getattr_static(Pipeline, "predict")
    if isinstance(estimator, Pipeline) and not own_predict:
        steps = [step for _, step in estimator.steps[:-1] if step not in (None, "passthrough")]
        inner, classifier = see_through(estimator.steps[-1][1])
        return steps + inner, classifier
    return [], estimator


def detector_in_words(estimator: Any) -> str:
    """Return the name of a detector, looking through a pipeline, for a sentence."""
    before, classifier = see_through(estimator)
    return f"{type(classifier).__name__}{' in a pipeline' if before else ''}"


def check_detector(estimator: Any) -> None:
    """Raise unless the detector has the interface of a scikit-learn classifier; name a way to use it."""
    if isinstance(estimator, type):
        raise TypeError(f"the detector is a class: pass an instance, {estimator.__name__}().")
    if isinstance(estimator, FrozenEstimator):
        estimator = estimator.estimator
    missing = [name for name in ("fit", "predict", "get_params") if not hasattr(estimator, name)]
    if missing == ["predict"] and hasattr(type(estimator), "predict") and is_classifier(estimator):
        missing = []  # available after fit, as in a StackingClassifier
    if missing or not hasattr(estimator, "__sklearn_tags__"):
        lacks = f"it has no {missing[0]}" if missing else "it does not derive from BaseEstimator"
        raise TypeError(
            f"the detector, {type(estimator).__name__}, is not a scikit-learn classifier: {lacks}. Derive "
            "its class from ClassifierMixin and BaseEstimator (skorch does that for PyTorch), or use only "
            "its scores: ScoreEvaluator().fit(Answers(labels, scores), y)."
        )


def copy_input_tags(tags: Any, inner: Any) -> Any:
    """Give a wrapper the input and classifier tags of the estimator it wraps, if that has tags."""
    if not hasattr(inner, "__sklearn_tags__"):
        return tags
    inner_tags = get_tags(inner)
    tags.input_tags = inner_tags.input_tags
    tags.classifier_tags = inner_tags.classifier_tags
    return tags


def transform(transformers: list[Any], X: Any) -> Any:
    """Apply the transformers of a pipeline in turn, and return sparse rows in canonical form."""
    for transformer in transformers:
        X = canonical_rows(transformer.transform(X))
    return X


def seeded(estimator: Any, seed: int) -> Any:
    """Return a clone with every ``random_state`` that is None, nested ones included, set to the seed."""
    if not isinstance(estimator, BaseEstimator):
        return estimator
    copy = clone(estimator)
    for name, value in copy.get_params(deep=True).items():
        if name.split("__")[-1] == "random_state" and value is None:
            copy.set_params(**{name: seed})
        elif getattr(value, "shuffle", False) and getattr(value, "random_state", seed) is None:
            value.random_state = seed  # a splitter, copied by clone
    return copy


def has_own_seed(estimator: Any) -> bool:
    """Return whether a ``random_state`` is set in an estimator, nested ones included."""
    params = estimator.get_params(deep=True) if isinstance(estimator, BaseEstimator) else {}
    return any(name.split("__")[-1] == "random_state" and params[name] is not None for name in params)
