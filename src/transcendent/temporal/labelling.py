"""The choice of objects to label in each period, and how often rejectors are refitted with them."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray
from transcendent._utils.estimators import see_through, transform
from transcendent.decisions import Decisions
from transcendent.rejectors import Traits

Choice = Literal["rejected", "margin", "random", "mixed"]

_ENOUGH = 20


@dataclass(frozen=True)
class Retraining:
    """A budget of labels for every period, and how often rejectors are refitted with them.

    A class that was not trained on joins the training rows when 20 of its objects have been labelled: with
    fewer there is nothing to calibrate on.

    Attributes
    ----------
    labels : int
        How many objects of each period get their label and join the training rows.
    choose : {"rejected", "margin", "random", "mixed"}
        Which: the rejected ones first, least credible before others, then accepted ones likewise; those
        closest to the detector's decision boundary; any; or half of them as in ``"rejected"``, the rest at
        random.
    every : int
        Refit every ``every`` periods.
    apart : float
        Least cosine distance between the objects chosen in one period, 0 to 1: of near-duplicates only the
        first is labelled, as long as there are others. Needs rows of numbers.
    """

    labels: int
    choose: Choice = "rejected"
    every: int = 1
    apart: float = 0.0

    def __post_init__(self) -> None:
        if self.choose not in get_args(Choice):
            raise ValueError(f"choose must be one of {get_args(Choice)}, not {self.choose!r}.")
        if self.labels < 1 or self.every < 1:
            raise ValueError(f"labels and every must be at least 1, not {self.labels} and {self.every}.")
        if not 0 <= self.apart <= 1:
            raise ValueError(f"apart is a cosine distance between 0 and 1, not {self.apart!r}.")

    def select(self, rejector: Any, X: Any, decisions: Decisions, generator: np.random.Generator) -> IntArray:
        """Positions of the objects to label, sorted."""
        n = min(self.labels, len(decisions))
        shuffled = generator.permutation(len(decisions))
        if self.choose == "random":
            ranked = shuffled
        elif self.choose == "margin":
            ranked = np.argsort(margins(rejector, X), kind="stable")
        else:
            ranked = np.lexsort((decisions.ranking, decisions.accepted))
        if self.choose != "mixed":
            return np.sort(self._first(n, ranked, X))
        strange = self._first(-(-n // 2), ranked, X)
        return np.sort(np.concatenate([strange, shuffled[~np.isin(shuffled, strange)]])[:n])

    def _first(self, n: int, ranked: IntArray, X: Any) -> IntArray:
        """The first n in this order that are apart; if there are too few, the first of the others too."""
        if self.apart == 0:
            return ranked[:n]
        rows = normalize(sp.csr_array(X, dtype=np.float64))[ranked]
        chosen, near = np.zeros(len(ranked), dtype=bool), np.zeros(len(ranked), dtype=bool)
        for i in range(len(ranked)):
            if not near[i]:
                chosen[i] = True
                near |= (rows @ rows[[i]].T).toarray().ravel() > 1 - self.apart
                if chosen.sum() == n:
                    break
        return np.concatenate([ranked[chosen], ranked[~chosen]])[:n]


def margins(rejector: Any, X: Any) -> FloatArray:
    """Distance of each object from the decision boundary; of several detectors, that of their mean."""
    detectors = Traits.of(rejector).detectors
    if not detectors:
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
    """Return the labelled rows whose class was trained on, or has enough of them to be."""
    classes, codes, counts = np.unique(y[labelled], return_inverse=True, return_counts=True)
    ready = np.isin(classes, y[trained]) | (counts >= _ENOUGH)
    return labelled[ready[codes]]


def _decision_values(detector: Any, X: Any) -> FloatArray:
    transformers, classifier = see_through(detector)
    score = "decision_function" if hasattr(classifier, "decision_function") else "predict_proba"
    if not hasattr(classifier, score):
        raise ValueError(f"{type(classifier).__name__} has neither decision_function nor predict_proba.")
    return np.asarray(getattr(classifier, score)(transform(transformers, X)), dtype=np.float64)
