"""The choice of objects to label in each period, and how often rejectors are refitted with them."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from transcendent._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from transcendent._utils.estimators import see_through, transform
from transcendent.decisions import Decisions
from transcendent.evaluators.training import Learner
from transcendent.monitoring.plan import LabelPlan
from transcendent.rejectors import Traits

Choice = Literal["rejected", "drawn", "margin", "random"]

_ENOUGH = 20


@dataclass(frozen=True)
class Retraining:
    """A budget of labels for every period, and what learns from them how often.

    Evaluators learn as by `InductiveEvaluator.learn`: labelled objects train, and do not calibrate, since
    they were chosen. Other rejectors are fitted anew on old and new rows. A class that was not trained on
    joins the training rows when 20 of its objects have been labelled: with fewer there is nothing to
    calibrate on.

    Attributes
    ----------
    labels : int
        How many objects of each period get their label and join the training rows.
    choose : {"rejected", "drawn", "margin", "random"}
        Which: the rejected ones first, least credible before others, then accepted ones likewise; rejected
        ones drawn at random; those closest to the detector's decision boundary; or any.
    every : int
        Learn every ``every`` periods.
    apart : float
        Least cosine distance between the objects chosen in one period, 0 to 1: of near-duplicates only the
        first is labelled, as long as there are others. Needs rows of numbers.
    audit : float
        Share of the labels that goes to accepted objects drawn at random, so that somebody looks at what is
        trusted, too. ``choose="random"`` draws from all objects, and needs no audit.
    learns : {"both", "detector", "judge"}
        What learns: the detector, the models of the measure beside it, or both.
    """

    labels: int
    choose: Choice = "rejected"
    every: int = 1
    apart: float = 0.0
    audit: float = 0.2
    learns: Learner = "both"

    def __post_init__(self) -> None:
        if self.choose not in get_args(Choice):
            raise ValueError(f"choose must be one of {get_args(Choice)}, not {self.choose!r}.")
        for name in ("labels", "every"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name} is a whole number, at least 1, not {value!r}.")
        if not _is_share(self.apart):
            raise ValueError(f"apart is a cosine distance between 0 and 1, not {self.apart!r}.")
        if self.apart and self.choose == "drawn":
            raise ValueError("apart is for objects that are chosen in an order; choose='drawn' draws them.")
        if not _is_share(self.audit):
            raise ValueError(f"audit is a share between 0 and 1, not {self.audit!r}.")
        if self.learns not in get_args(Learner):
            raise ValueError(f"learns must be one of {get_args(Learner)}, not {self.learns!r}.")

    def select(
        self, rejector: Any, X: Any, decisions: Decisions, generator: np.random.Generator
    ) -> LabelPlan:
        """Choose the objects to label."""
        n = min(self.labels, len(decisions))
        shuffled = generator.permutation(len(decisions))
        if self.choose == "random":
            chance = n / len(decisions) if self.apart == 0 else np.nan
            return LabelPlan.of(self._first(n, shuffled, X), shuffled[:0], chance)
        if self.choose == "drawn":
            return self._drawn(n, shuffled, decisions.accepted[shuffled])
        if self.choose == "margin":
            ranked = np.argsort(margins(rejector, X), kind="stable")
        else:
            ranked = np.lexsort((decisions.ranking, decisions.accepted))
        n_audited = round(self.audit * n)
        strange = self._first(n - n_audited, ranked, X)
        trusted = shuffled[decisions.accepted[shuffled] & ~np.isin(shuffled, strange)]
        audited = trusted[:n_audited]
        others = ranked[~np.isin(ranked, np.concatenate([strange, audited]))]
        strange = np.concatenate([strange, self._first(n - len(strange) - len(audited), others, X)])
        return LabelPlan.of(strange, audited, 1.0, len(audited) / max(len(trusted), 1))

    def _drawn(self, n: int, shuffled: IntArray, accepted: BoolArray) -> LabelPlan:
        """Draw from the rejected and from the accepted objects; if one lacks objects, more from the other."""
        rejected, trusted = shuffled[~accepted], shuffled[accepted]
        n_audited = min(max(round(self.audit * n), n - len(rejected)), len(trusted))
        chances = ((n - n_audited) / max(len(rejected), 1), n_audited / max(len(trusted), 1))
        return LabelPlan.of(rejected[: n - n_audited], trusted[:n_audited], *chances)

    def _first(self, n: int, ranked: IntArray, X: Any) -> IntArray:
        """The first n in this order that are apart; if there are too few, the first of the others too."""
        if self.apart == 0 or n == 0:
            return ranked[:n]
        try:
            rows = normalize(sp.csr_array(X, dtype=np.float64))[ranked]
        except (TypeError, ValueError):
            raise ValueError(
                "apart compares rows of numbers; these hold text or missing values: leave it out."
            ) from None
        chosen, near = np.zeros(len(ranked), dtype=bool), np.zeros(len(ranked), dtype=bool)
        for i in range(len(ranked)):
            if not near[i]:
                chosen[i] = True
                near |= (rows @ rows[[i]].T).toarray().ravel() > 1 - self.apart
                if chosen.sum() == n:
                    break
        return np.concatenate([ranked[chosen], ranked[~chosen]])[:n]


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and bool(0 <= value <= 1)


def margins(rejector: Any, X: Any) -> FloatArray:
    """Distance of each object from the decision boundary; of several detectors, that of their mean."""
    detectors = Traits.of(rejector).detectors
    if not detectors:
        raise ValueError(
            f"{type(rejector).__name__} shows no detector, so there is no margin to choose labels by; "
            "choose 'rejected' or 'random'."
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
