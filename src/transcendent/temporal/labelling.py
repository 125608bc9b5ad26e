"""Which objects of a period an analyst labels, and when the detector learns from them."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from transcendent.arrays import AnyArray, FloatArray, IntArray
from transcendent.decisions import Decisions
from transcendent.measures.base import see_through, transform

Choice = Literal["rejected", "margin", "random", "mixed"]

_ENOUGH = 20


@dataclass(frozen=True)
class Retraining:
    """A budget of labels for every period, and how often rejectors are refitted with them.

    Attributes
    ----------
    labels : int
        How many objects of each period get their label and join the training rows.
    choose : {"rejected", "margin", "random", "mixed"}
        Which: the rejected ones first, least credible before others, then accepted ones likewise; those
        closest to the detector's decision boundary; any; or half of them as in ``"rejected"``, the rest at
        random.
    every : int
        Refit before the first of every so many periods.

    A class that was not trained on joins the training rows when 20 of its objects have been labelled: with
    fewer there is nothing to calibrate on.
    """

    labels: int
    choose: Choice = "rejected"
    every: int = 1

    def __post_init__(self) -> None:
        if self.choose not in get_args(Choice):
            raise ValueError(f"choose must be one of {get_args(Choice)}, not {self.choose!r}.")
        if self.labels < 1 or self.every < 1:
            raise ValueError(f"labels and every must be at least 1, not {self.labels} and {self.every}.")

    def select(self, rejector: Any, X: Any, decisions: Decisions, generator: np.random.Generator) -> IntArray:
        """Positions of the objects to label, sorted."""
        n = min(self.labels, len(decisions))
        shuffled = generator.permutation(len(decisions))
        if self.choose == "random":
            chosen = shuffled[:n]
        elif self.choose == "margin":
            chosen = np.argsort(margins(rejector, X), kind="stable")[:n]
        else:
            trust = getattr(decisions, getattr(rejector, "ranked_by", "credibility"))
            ranked = np.lexsort((trust, decisions.accepted))
            first = ranked[: n if self.choose == "rejected" else -(-n // 2)]
            chosen = np.concatenate([first, shuffled[~np.isin(shuffled, first)]])[:n]
        return np.sort(chosen)


def margins(rejector: Any, X: Any) -> FloatArray:
    """Distance of each object from the decision boundary; of several detectors, that of their mean."""
    if hasattr(rejector, "detectors_"):
        detectors = [calibrated.detector.estimator for calibrated in rejector.detectors_]
    elif hasattr(rejector, "estimator_"):
        detectors = [rejector.estimator_]
    else:
        raise ValueError(
            f"{type(rejector).__name__} shows no detector, so there is no margin to choose labels by; "
            "choose 'rejected', 'random' or 'mixed'."
        )
    values = np.mean([_decision_values(detector, X) for detector in detectors], axis=0)
    if values.ndim == 1:
        return np.asarray(np.abs(values))
    top = np.partition(values, -2, axis=1)
    return np.asarray(top[:, -1] - top[:, -2])


def joining(labelled: IntArray, y: AnyArray, trained: IntArray) -> IntArray:
    """Those of the labelled rows that can be trained on: their class was, or has enough of them."""
    classes, codes, counts = np.unique(y[labelled], return_inverse=True, return_counts=True)
    ready = np.isin(classes, y[trained]) | (counts >= _ENOUGH)
    return labelled[ready[codes]]


def _decision_values(detector: Any, X: Any) -> FloatArray:
    transformers, classifier = see_through(detector)
    score = "decision_function" if hasattr(classifier, "decision_function") else "predict_proba"
    if not hasattr(classifier, score):
        raise ValueError(f"{type(classifier).__name__} has neither decision_function nor predict_proba.")
    return np.asarray(getattr(classifier, score)(transform(transformers, X)), dtype=np.float64)
