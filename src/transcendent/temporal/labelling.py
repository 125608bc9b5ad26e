"""The choice of objects to label in each period, and how often rejectors are refitted with them."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray
from transcendent._utils.checks import check_choices
from transcendent._utils.estimators import see_through, transform
from transcendent.decisions import Decisions, Learner, declared
from transcendent.monitoring.labels import LabelPlan

Choice = Literal["rejected", "drawn", "margin", "random"]

_ENOUGH = 20


@dataclass(frozen=True)
class Retraining:
    """A budget of labels for every period, and what learns from them.

    Evaluators learn as in `InductiveEvaluator.learn`: labelled objects train, but do not calibrate, since
    they were not drawn at random. Other rejectors are refitted on old and new rows. A class that is not in
    training joins when 20 of its objects have been labelled; fewer are not enough to calibrate on.

    Attributes
    ----------
    labels : int
        Number of objects per period that are labelled and join the training rows.
    choose : {"rejected", "drawn", "margin", "random"}
        The objects to label: the least credible rejected ones, then the least credible accepted ones;
        rejected ones drawn at random; those closest to the detector's decision boundary; or any, at random.
    every : int
        Learn every ``every`` periods.
    apart : float
        Minimum cosine distance, 0 to 1, between the objects chosen in one period: of near-duplicates only the
        first is labelled, unless there are no others. Needs rows of numbers.
    audit : float
        Share of the labels that goes to accepted objects drawn at random, which estimate the error among
        them. ``choose="random"`` draws from all objects and needs no audit.
    what : {"both", "detector", "judge"}
        What learns: the detector, the models of its measure, or both.
    """

    labels: int
    choose: Choice = "rejected"
    every: int = 1
    apart: float = 0.0
    audit: float = 0.2
    what: Learner = "both"

    def __post_init__(self) -> None:
        check_choices(Choice, choose=self.choose)
        for name in ("labels", "every"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}.")
        for name, meaning in (("apart", "cosine distance"), ("audit", "share")):
            value = getattr(self, name)
            if not isinstance(value, int | float | np.number) or not 0 <= value <= 1:
                raise ValueError(f"{name} must be a {meaning} between 0 and 1, not {value!r}.")
        if self.apart and self.choose == "drawn":
            raise ValueError("apart needs objects in an order, but choose='drawn' draws them: leave it out.")
        check_choices(Learner, what=self.what)

    def select(
        self, rejector: Any, X: Any, decisions: Decisions, generator: np.random.Generator
    ) -> LabelPlan:
        """Choose the objects to label."""
        n = min(self.labels, len(decisions))
        audits = round(self.audit * n)
        shuffled = generator.permutation(len(decisions))
        accepted, first = shuffled[decisions.accepted[shuffled]], partial(self._first, X)
        if self.choose == "random":
            plan = LabelPlan.spend(n, shuffled, shuffled[:0], 0, drawn=True, first=first)
            return plan if self.apart == 0 else plan._replace(probabilities=np.full(n, np.nan))
        if self.choose == "drawn":
            return LabelPlan.spend(n, shuffled[decisions.rejected[shuffled]], accepted, audits, drawn=True)
        if self.choose == "margin":
            ranked = np.argsort(margins(rejector, X), kind="stable")
        else:
            ranked = np.lexsort((decisions.ranking, decisions.accepted))
        return LabelPlan.spend(n, ranked, accepted, audits, first=first)

    def _first(self, X: Any, n: int, ranked: IntArray) -> IntArray:
        """Return the first n objects that are apart; if there are too few, also the first others."""
        if self.apart == 0 or n == 0:
            return ranked[:n]
        try:
            rows = normalize(sp.csr_array(X, dtype=np.float64))[ranked]
        except (TypeError, ValueError):
            raise ValueError(
                "apart compares rows of numbers, but these have text or missing values: leave it out."
            ) from None
        chosen, near = np.zeros(len(ranked), dtype=bool), np.zeros(len(ranked), dtype=bool)
        for i in range(len(ranked)):
            if not near[i]:
                chosen[i] = True
                near |= (rows @ rows[[i]].T).toarray().ravel() > 1 - self.apart
                if chosen.sum() == n:
                    break
        return np.concatenate([ranked[chosen], ranked[~chosen]])[:n]


def margins(rejector: Any, X: Any) -> FloatArray:
    """Return the distance of each object from the decision boundary (of the mean of several detectors)."""
    detectors = declared(rejector).fitted.detectors
    if not detectors:
        raise ValueError(
            f"{type(rejector).__name__} declares no detector, so choose='margin' has no margin to rank by: "
            "use 'rejected' or 'random'."
        )
    values = np.mean([_decision_values(detector, X) for detector in detectors], axis=0)
    if values.ndim == 1:
        return np.asarray(np.abs(values))
    top = np.partition(values, -2, axis=1)
    return np.asarray(top[:, -1] - top[:, -2])


def joining(labelled: IntArray, y: AnyArray, trained: IntArray) -> IntArray:
    """Return the labelled rows whose class is in training, or has enough of them to join."""
    classes, codes, counts = np.unique(y[labelled], return_inverse=True, return_counts=True)
    ready = np.isin(classes, y[trained]) | (counts >= _ENOUGH)
    return labelled[ready[codes]]


def _decision_values(detector: Any, X: Any) -> FloatArray:
    transformers, classifier = see_through(detector)
    score = "decision_function" if hasattr(classifier, "decision_function") else "predict_proba"
    if not hasattr(classifier, score):
        raise ValueError(
            f"{type(classifier).__name__} has neither decision_function nor predict_proba: use "
            "choose='rejected' or 'random'."
        )
    return np.asarray(getattr(classifier, score)(transform(transformers, X)), dtype=np.float64)
