"""What searches share: the problem, the best trial so far, the result, and the checks of settings."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator

from transcendent._utils.arrays import (
    AnyArray,
    BoolArray,
    FloatArray,
    IntArray,
    abbreviate,
    as_labels,
    encode_labels,
)
from transcendent._utils.checks import check_choices, check_shares
from transcendent._utils.listing import Listing
from transcendent._utils.text import as_percent
from transcendent.errors import InfeasibleError
from transcendent.metrics.ratios import Constraint, Metric, RejectionRate, resolve_metric
from transcendent.thresholds.counts import Counts, count

On = Literal["credibility", "confidence", "both"]
Codes = IntArray
"""Labels as positions in the classes."""
Constraints = Constraint | str | Sequence[Constraint | str]

_MOST_SHOWN = 12
_WORDS = {
    "F1": "F1",
    "MacroF1": "mean F1 of the classes",
    "Precision": "precision",
    "Recall": "recall",
    "Accuracy": "accuracy",
    "ErrorRate": "error",
    "RejectionRate": "rejection rate",
}
_CONSTRAINT = re.compile(r"\s*(\w+)\s*(>=|<=)\s*([0-9]*\.?[0-9]+(?:e-?[0-9]+)?)\s*(%?)\s*")


@dataclass(frozen=True, repr=False)
class SearchResult:
    """Thresholds, and what they achieve on the calibration set.

    Attributes
    ----------
    credibility_thresholds, confidence_thresholds : arrays of shape (classes,)
        Per predicted class; 0 everywhere for the value that was not thresholded.
    objective : Metric or None
        The metric that was optimised; None for thresholds by a rule.
    value : float
        Its value on the calibration set.
    bound : float or None
        The best value that thresholds from 0 to 1 could reach on this calibration set; None without a proof.
    rejection_rate : float
        Share of the calibration set that is rejected.
    trials : int
        Number of threshold vectors evaluated; 0 for searches without trials.
    """

    credibility_thresholds: FloatArray
    confidence_thresholds: FloatArray
    objective: Metric | None
    value: float
    bound: float | None
    rejection_rate: float
    trials: int = 0

    def accepts(self, codes: IntArray, credibility: FloatArray, confidence: FloatArray) -> BoolArray:
        """Return which answers reach the thresholds of their class; NaN reaches any."""
        low = credibility < self.credibility_thresholds[codes]
        return ~(low | (confidence < self.confidence_thresholds[codes]))

    @property
    def gap(self) -> float | None:
        """Distance between value and bound; None without a proof."""
        return None if self.bound is None else abs(self.bound - self.value)

    @property
    def certified(self) -> bool:
        """Whether no thresholds from 0 to 1 reach a better value.

        None of these rejects an answer whose credibility (or confidence) is 1.
        """
        return self.gap is not None and self.gap <= 1e-9

    def __repr__(self) -> str:
        thresholds = "; ".join(f"{name} >= {abbreviate(v.round(4))}" for name, v in self._used().items())
        return f"{type(self).__name__}({thresholds or 'nothing is rejected'}; {self._promise()})"

    def _repr_html_(self) -> str:
        used, n_classes = self._used(), len(self.credibility_thresholds)
        shown = range(min(n_classes, _MOST_SHOWN))
        listing = Listing(
            head=["position of the class", *(f"{name} ≥" for name in used)],
            rows=[[str(c), *(f"{values[c]:.4f}" for values in used.values())] for c in shown],
        )
        notes = [f"… and {n_classes - _MOST_SHOWN} more classes"] if n_classes > _MOST_SHOWN else []
        kind = "thresholds per predicted class" if used else "nothing is rejected"
        return listing.as_html(f"{type(self).__name__}: {kind}", [*notes, self._promise()])

    def _used(self) -> dict[str, FloatArray]:
        """Return the thresholds that reject something, by the value they are on."""
        given = {"credibility": self.credibility_thresholds, "confidence": self.confidence_thresholds}
        return {name: values for name, values in given.items() if values.any()}

    def _promise(self) -> str:
        proof = "not proven best"
        if self.gap is not None:
            near = "proven best" if self.certified else f"at most {self.gap:.2g} from the best"
            proof = f"{near} of thresholds from 0 to 1"
        reached = "a rule" if self.objective is None else f"{self.objective} = {self.value:.4g}, {proof}"
        return f"in calibration: {reached}, {self.rejection_rate:.1%} rejected"


@dataclass(frozen=True)
class ThresholdProblem:
    """The counts of a calibration set, with an objective and constraints; a rule has neither."""

    counts: Counts
    classes: AnyArray
    on: On
    objective: Metric | None = None
    constraints: tuple[Constraint, ...] = ()

    def evaluate(self, thresholds: FloatArray) -> tuple[FloatArray, IntArray, FloatArray]:
        """Return how good each trial is (-inf if not allowed), how many it keeps, its constraints' values.

        The values are (constraints, trials), NaN where an earlier constraint already fails.
        """
        kept = self.counts.kept(thresholds)
        rejected = self.counts.total - kept
        allowed: BoolArray = np.ones(len(thresholds), dtype=bool)
        reached = np.full((len(self.constraints), len(thresholds)), np.nan)
        for i, constraint in enumerate(self.constraints):
            values = constraint.metric.value(kept, rejected, self.classes)
            reached[i] = np.where(allowed, values, np.nan)
            allowed = allowed & constraint.satisfied(kept, rejected, self.classes)
        assert self.objective is not None
        value = self.objective.value(kept, rejected, self.classes)
        goodness = value if self.objective.higher_is_better else -value
        goodness = np.where(allowed & ~np.isnan(goodness), goodness, -np.inf)
        return goodness, kept.actual.sum(axis=-1), reached

    def result(self, thresholds: FloatArray, bound: float | None = None, trials: int = 0) -> SearchResult:
        """Return what (values, classes) thresholds achieve on the calibration set."""
        # Nothing is known about answers of a class that was never predicted: none is rejected.
        thresholds = np.where(self.counts.total.predicted > 0, thresholds, 0.0)
        kept = self.counts.kept(thresholds[None])
        rejected = self.counts.total - kept

        def value(metric: Metric | None) -> float:
            return float("nan") if metric is None else float(metric.value(kept, rejected, self.classes)[0])

        off = np.zeros(len(self.classes))
        return SearchResult(
            credibility_thresholds=off if self.on == "confidence" else thresholds[0],
            confidence_thresholds=off if self.on == "credibility" else thresholds[-1],
            objective=self.objective,
            value=value(self.objective),
            bound=bound,
            rejection_rate=value(RejectionRate()),
            trials=trials,
        )


@dataclass
class Incumbent:
    """The best trial so far; a later one replaces it if it is better, or as good and keeps more."""

    goodness: float = -np.inf
    kept: int = -1
    thresholds: FloatArray | None = None
    trials: int = 0
    since_update: int = 0
    reached: list[float] = field(default_factory=list)

    def consider(self, problem: ThresholdProblem, trials: FloatArray, patience: int | None = None) -> bool:
        """Consider a batch of trials in order; return False after ``patience`` trials without an update."""
        goodness, kept, reached = problem.evaluate(trials)
        self._remember_reached(problem, reached)
        start = 0
        while True:
            value, n_kept = goodness[start:], kept[start:]
            better = (value > self.goodness) | ((value == self.goodness) & (n_kept > self.kept))
            better &= np.isfinite(value)
            step = int(np.argmax(better)) if better.any() else len(better)
            if patience is not None and self.since_update + step >= patience:
                self.trials += patience - self.since_update
                return False
            self.trials += step
            self.since_update += step
            if start + step == len(goodness):
                return True
            best = start + step
            self.goodness, self.kept, self.thresholds = goodness[best], int(kept[best]), trials[best]
            self.trials, self.since_update, start = self.trials + 1, 0, best + 1

    def result(self, problem: ThresholdProblem) -> SearchResult:
        """Return the result of the best trial, or raise an error with the values that were reached."""
        if self.thresholds is None:
            raise infeasible(problem, self.reached, f"value in {self.trials} trials")
        return problem.result(self.thresholds, trials=self.trials)

    def _remember_reached(self, problem: ThresholdProblem, reached: FloatArray) -> None:
        signs = np.array([1.0 if c.sense == ">=" else -1.0 for c in problem.constraints])
        best = np.where(np.isnan(reached), -np.inf, signs[:, None] * reached).max(axis=1)
        old = np.array(self.reached) * signs if self.reached else np.full(len(signs), -np.inf)
        self.reached = (signs * np.maximum(best, old)).tolist()


class Search(BaseEstimator, ABC):
    """Finds per-class thresholds from calibration objects alone."""

    on: On

    @property
    def held_out_seed(self) -> int | None:
        """Seed that draws the calibration objects which only test thresholds; None if all are in bags."""
        return None

    @property
    def in_words(self) -> str:
        """Which answers are rejected, as the end of a sentence."""
        return f"answers whose {self._on_in_words} is below a threshold of their class, set by {self!r}"

    @property
    def under_drift(self) -> str:
        """What drift does to the thresholds."""
        return (
            "Thresholds were set on calibration objects from training, and do not follow drift: under it the "
            "rejection rate and the error of the kept change."
        )

    @property
    def promised_error(self) -> float | None:
        """The share of accepted answers that is guaranteed to be wrong at most; None without a guarantee."""
        return None

    @property
    def _on_in_words(self) -> str:
        return "credibility or confidence" if self.on == "both" else self.on

    def find(
        self, y: Any, labels: Any, credibility: Any, confidence: Any = None, *, classes: Any = None
    ) -> SearchResult:
        """Search thresholds on a calibration set.

        Parameters
        ----------
        y, labels : arrays of shape (n,)
            True labels, and the detector's answers.
        credibility, confidence : arrays of shape (n,)
            Of the calibration objects; only what ``on`` names is needed. Any threshold keeps an object whose
            value is NaN (the only member of its class, with nothing to compare it with).
        classes : array or None
            All labels, in order; by default those that occur.
        """
        y, labels = as_labels(y), as_labels(labels, "labels")
        classes = np.unique(np.concatenate([y, labels])) if classes is None else np.asarray(classes)
        actual, predicted = encode_labels(y, classes, "y"), encode_labels(labels, classes, "labels")
        return self.find_coded(actual, predicted, credibility, confidence, classes=classes)

    def find_coded(
        self, actual: Codes, predicted: Codes, credibility: Any, confidence: Any, *, classes: AnyArray
    ) -> SearchResult:
        """Search thresholds as `find` does, given labels as positions in ``classes``."""
        check_choices(On, on=self.on)
        values = _values(self.on, credibility, confidence)
        lengths = [len(actual), len(predicted), len(values)]
        if len(set(lengths)) > 1:
            raise ValueError(f"y, labels and values differ in length: {lengths}.")
        if len(actual) == 0:
            raise ValueError("there are no calibration objects to search thresholds on.")
        return self._find(actual, predicted, values, classes)

    @abstractmethod
    def _find(self, actual: Codes, predicted: Codes, values: FloatArray, classes: AnyArray) -> SearchResult:
        """Search thresholds, given positions in ``classes`` and (n, 1 or 2) values."""


SearchLike = Search | Metric | str
"""A search, a metric to optimise by the exact search, or its name; ``"auto"`` is F1 or accuracy."""


class ConstrainedSearch(Search):
    """A search with an objective, a limit on rejections and further constraints."""

    def __init__(
        self,
        objective: str | Metric = "f1",
        *,
        max_rejection: float | None = 0.15,
        constraints: Constraints = (),
        on: On = "credibility",
    ) -> None:
        self.objective = objective
        self.max_rejection = max_rejection
        self.constraints = constraints
        self.on = on

    @property
    def in_words(self) -> str:
        """Which answers are rejected, as the end of a sentence."""
        metric = resolve_metric(self.objective)
        name = _WORDS.get(type(metric).__name__, str(metric))
        limits = " and ".join(
            f"at most {as_percent(limit.bound)} rejected"
            if isinstance(limit.metric, RejectionRate)
            else str(limit)
            for limit in self._limits()
        )
        return (
            f"answers whose {self._on_in_words} is below a threshold of their class, set for the "
            f"{'best' if metric.higher_is_better else 'lowest'} {name} of calibration objects"
            + (f" with {limits}" if limits else "")
        )

    def _problem(
        self, actual: Codes, predicted: Codes, values: FloatArray, classes: AnyArray
    ) -> ThresholdProblem:
        counts = count(predicted, actual, values, len(classes))
        return ThresholdProblem(counts, classes, self.on, resolve_metric(self.objective), self._limits())

    def _limits(self) -> tuple[Constraint, ...]:
        """Return all constraints, the limit on rejections first."""
        one = isinstance(self.constraints, str) or not isinstance(self.constraints, Iterable)
        given: Any = [self.constraints] if one else self.constraints
        limits = tuple(parse_constraint(one) if isinstance(one, str) else one for one in given)
        if not all(isinstance(one, Constraint) for one in limits):
            raise ValueError(f"constraints must look like F1() >= 0.8 or 'f1 >= 0.8', not {given!r}.")
        if self.max_rejection is not None:
            check_shares(ends="included", max_rejection=self.max_rejection)
            limits = (RejectionRate() <= float(self.max_rejection), *limits)
        return limits


def parse_constraint(text: str) -> Constraint:
    """Return the constraint that a text such as ``recall >= 0.9`` or ``rejection_rate <= 10%`` describes."""
    found = _CONSTRAINT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a constraint such as 'recall >= 0.9' or 'rejection_rate <= 10%'.")
    metric, bound = resolve_metric(found[1]), float(found[3]) / (100 if found[4] else 1)
    return metric >= bound if found[2] == ">=" else metric <= bound


def infeasible(problem: ThresholdProblem, reached: Iterable[float], how: str) -> InfeasibleError:
    """Return an error that names the first constraint that cannot be met together with those before it."""
    before: list[str] = []
    for constraint, best in zip(problem.constraints, reached, strict=True):
        met = best >= constraint.bound if constraint.sense == ">=" else best <= constraint.bound
        if not met:
            given = f" with {' and '.join(before)}" if before else ""
            value = f"{best:.6g}" if np.isfinite(best) else "undefined"
            return InfeasibleError(
                f"no thresholds satisfy {constraint}{given}: the best {how} is {value}. "
                f"Relax {'one of these constraints' if before else 'this constraint'}."
            )
        before.append(str(constraint))
    given = f" that satisfy {' and '.join(before)}" if before else ""
    return InfeasibleError(f"the objective {problem.objective} is undefined (0/0) for all thresholds{given}.")


def _values(on: On, credibility: Any, confidence: Any) -> FloatArray:
    wanted = {"credibility": [credibility], "confidence": [confidence], "both": [credibility, confidence]}[on]
    if any(column is None for column in wanted):
        needed = "credibility and confidence" if on == "both" else on
        raise ValueError(f"on={on!r} needs the {needed} of the calibration objects: pass it to find().")
    columns = [np.asarray(column, dtype=np.float64) for column in wanted]
    values = columns[0][:, None] if len(columns) == 1 else np.column_stack(columns)
    lowest, highest = (f.reduce(values, axis=None, initial=0.5) for f in (np.fmin, np.fmax))  # ignoring NaN
    if lowest < 0 or highest > 1:
        raise ValueError(f"credibility or confidence is not between 0 and 1: {lowest:g} to {highest:g}.")
    return values


def refuse_guaranteed_search(search: Any, rejector: Any) -> None:
    """Raise if a guaranteed search is given to a rejector for which its proof does not hold."""
    if getattr(search, "held_out_seed", None) is not None:
        raise ValueError(
            f"{type(search).__name__} proves thresholds for one detector and calibration objects that it has "
            "not seen: use it with InductiveEvaluator or ScoreEvaluator, and without a budget, not "
            f"{type(rejector).__name__}."
        )
