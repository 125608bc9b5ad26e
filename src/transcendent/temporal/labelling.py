"""The choice of objects to label in each period, what they are called, and when rejectors learn it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, abbreviate
from transcendent._utils.checks import check_choices
from transcendent._utils.estimators import see_through, transform
from transcendent.decisions import Decisions, Learner, declared
from transcendent.monitoring.labels import LabelPlan

Choice = Literal["rejected", "drawn", "margin", "random"]

_ENOUGH = 20
_NEVER = np.iinfo(np.int32).max  # more periods than there are, and far from overflowing
_NOISE, _DELAY = 1, 2  # streams of random numbers, apart from the one that chooses


class Candidates(NamedTuple):
    """The objects of a period, for a function that chooses which to label; it does not see their labels.

    Attributes
    ----------
    rows : int array of shape (n,)
        Their positions in the data.
    X : n rows
        Their features, or the scores of the detector's answers.
    times : array of shape (n,)
        When each was seen.
    decisions : Decisions
        Those of the rejector.
    rejector : rejector
        As it was when it decided.
    generator : numpy Generator
        For choices by chance, so that a run can be repeated.
    """

    rows: IntArray
    X: Any
    times: AnyArray
    decisions: Decisions
    rejector: Any
    generator: np.random.Generator


class Chosen(NamedTuple):
    """The objects of a period that are labelled, for functions that return their labels or delays.

    Attributes
    ----------
    rows : int array of shape (n,)
        Their positions in the data.
    X : n rows
        Their features, or the scores of the detector's answers.
    y : array of shape (n,)
        Their true labels.
    times : array of shape (n,)
        When each was seen.
    classes : array
        The labels of training, and of the periods so far.
    generator : numpy Generator
        For chance, so that a run can be repeated.
    """

    rows: IntArray
    X: Any
    y: AnyArray
    times: AnyArray
    classes: AnyArray
    generator: np.random.Generator


class Labels(NamedTuple):
    """Rows that were labelled, what each was called, and the first period in which that is known."""

    rows: IntArray
    given: AnyArray
    since: IntArray

    def joined(self, other: "Labels") -> "Labels":
        """Return these labels and others."""
        return Labels(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))

    def known(self, period: int) -> "Labels":
        """Return what is known when a period begins."""
        return self.of(self.since <= period)

    def of(self, which: AnyArray) -> "Labels":
        """Return some of the labels."""
        return Labels(*(column[which] for column in self))


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
    choose : {"rejected", "drawn", "margin", "random"} or function
        The objects to label: the least credible rejected ones, then the least credible accepted ones;
        rejected ones drawn at random; those closest to the detector's decision boundary; or any, at random.
        A function gets the `Candidates` of a period, and returns positions among them, most wanted first;
        labels that it does not want go to accepted objects drawn at random.
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
    delay : int or function
        Periods for which a label stays unknown: with 0, labels of a period are known when the next one
        begins. A function gets the `Chosen` objects, and returns a whole number for each.
    noise : float or function
        Share of labels that are wrong: one of the other classes, by chance. A function gets the `Chosen`
        objects, and returns a label for each. Metrics use the true labels.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent import InductiveEvaluator, backtest
    >>> from transcendent.datasets import make_stream
    >>> from transcendent.temporal import Retraining
    >>> stream = make_stream(6000, n_periods=12, concept=0.5, random_state=0)
    >>> def least_confident(candidates):
    ...     return np.argsort(candidates.decisions.confidence, kind="stable")
    >>> retrain = Retraining(50, least_confident, delay=2, noise=0.05)
    >>> ice = InductiveEvaluator(LinearSVC())
    >>> result = backtest(ice, stream.X, stream.y, stream.times, train="2020-05", retrain=retrain)
    >>> result.labelled["InductiveEvaluator"]["known"][:3]
    array([3, 3, 3])
    """

    labels: int
    choose: Choice | Callable[[Candidates], IntArray] = "rejected"
    every: int = 1
    apart: float = 0.0
    audit: float = 0.2
    what: Learner = "both"
    delay: int | Callable[[Chosen], IntArray] = 0
    noise: float | Callable[[Chosen], AnyArray] = 0.0

    def __post_init__(self) -> None:
        if not callable(self.choose):
            check_choices(Choice, choose=self.choose)
        wholes = {"labels": 1, "every": 1}
        wholes |= {} if callable(self.delay) else {"delay": 0}
        for name, least in wholes.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}.")
        shares = {"apart": "cosine distance", "audit": "share"}
        shares |= {} if callable(self.noise) else {"noise": "share"}
        for name, meaning in shares.items():
            value = getattr(self, name)
            if not isinstance(value, int | float | np.number) or not 0 <= value <= 1:
                raise ValueError(f"{name} must be a {meaning} between 0 and 1, not {value!r}.")
        if self.apart and self.choose == "drawn":
            raise ValueError("apart needs objects in an order, but choose='drawn' draws them: leave it out.")
        check_choices(Learner, what=self.what)

    @property
    def functions(self) -> dict[str, Any]:
        """The fields that are functions."""
        given = {"choose": self.choose, "delay": self.delay, "noise": self.noise}
        return {name: value for name, value in given.items() if callable(value)}

    def select(self, candidates: Candidates) -> LabelPlan:
        """Choose the objects to label."""
        X, decisions, generator = candidates.X, candidates.decisions, candidates.generator
        n = min(self.labels, len(decisions))
        audits = round(self.audit * n)
        shuffled = generator.permutation(len(decisions))
        accepted, first = shuffled[decisions.accepted[shuffled]], partial(self._first, X)
        if callable(self.choose):
            ranked = _positions(self.choose(candidates), len(decisions))
            plan = LabelPlan.spend(n, ranked, accepted, audits, first=first)
            return plan._replace(probabilities=np.where(plan.audited, plan.probabilities, np.nan))
        if self.choose == "random":
            plan = LabelPlan.spend(n, shuffled, shuffled[:0], 0, drawn=True, first=first)
            return plan if self.apart == 0 else plan._replace(probabilities=np.full(n, np.nan))
        if self.choose == "drawn":
            return LabelPlan.spend(n, shuffled[decisions.rejected[shuffled]], accepted, audits, drawn=True)
        if self.choose == "margin":
            ranked = np.argsort(margins(candidates.rejector, X), kind="stable")
        else:
            ranked = np.lexsort((decisions.ranking, decisions.accepted))
        return LabelPlan.spend(n, ranked, accepted, audits, first=first)

    def ask(self, chosen: Chosen, period: int, seed: int) -> Labels:
        """Return what objects that were chosen in a period are called, and when that is known."""
        noise, delay = (np.random.default_rng((seed, period, which)) for which in (_NOISE, _DELAY))
        rows = chosen.rows.copy()  # functions may write to what they get
        given = self._named(chosen._replace(generator=noise))
        late = self._late(chosen._replace(generator=delay))
        return Labels(rows, given, period + 1 + late)

    def _named(self, chosen: Chosen) -> AnyArray:
        y, classes, generator = chosen.y, chosen.classes, chosen.generator
        if not callable(self.noise):
            wrong = generator.random(len(y)) < self.noise
            step = generator.integers(1, max(len(classes), 2), len(y))
            others = classes[(np.searchsorted(classes, y) + step) % len(classes)]
            return np.where(wrong, others, y)
        given = np.asarray(self.noise(chosen))
        if given.dtype.kind == "b" and classes.dtype.kind != "b":
            raise ValueError("noise must return what each object is called, not which labels are wrong.")
        if given.shape != y.shape or not np.isin(given, classes).all():
            raise ValueError(f"noise must return one of the labels {abbreviate(classes)} for each object.")
        return given.astype(y.dtype)

    def _late(self, chosen: Chosen) -> IntArray:
        n = len(chosen.rows)
        if not callable(self.delay):
            return np.full(n, min(self.delay, _NEVER), dtype=np.intp)
        late = np.asarray(self.delay(chosen))
        if late.shape != (n,) or (n and late.dtype.kind not in "iu") or (late < 0).any():
            raise ValueError("delay must return a whole number of at least 0 for each object.")
        return np.minimum(late, _NEVER).astype(np.intp)

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


def _positions(given: Any, n: int) -> IntArray:
    """Return the positions that a user's function wants, in its order."""
    ranked = np.asarray(given)
    whole = ranked.ndim == 1 and (ranked.dtype.kind in "iu" or len(ranked) == 0)
    if not whole or len(np.unique(ranked)) < len(ranked) or not np.isin(ranked, np.arange(n)).all():
        raise ValueError(f"choose must return different positions among {n} candidates, not {given!r:.60}.")
    return ranked.astype(np.intp)


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


def joining(labels: Labels, known: AnyArray) -> Labels:
    """Return the labels that training knows, or that have enough objects to join."""
    classes, codes, counts = np.unique(labels.given, return_inverse=True, return_counts=True)
    ready = np.isin(classes, known) | (counts >= _ENOUGH)
    return labels.of(ready[codes])


def _decision_values(detector: Any, X: Any) -> FloatArray:
    transformers, classifier = see_through(detector)
    score = "decision_function" if hasattr(classifier, "decision_function") else "predict_proba"
    if not hasattr(classifier, score):
        raise ValueError(
            f"{type(classifier).__name__} has neither decision_function nor predict_proba: use "
            "choose='rejected' or 'random'."
        )
    return np.asarray(getattr(classifier, score)(transform(transformers, X)), dtype=np.float64)
