"""The best thresholds from 0 to 1, with a proof or a bound.

Every ratio metric is a sum over predicted classes of counts that depend on one threshold each, so
Dinkelbach's iteration turns "maximise N / D" into "maximise Σ_c g_c(τ_c)" with g = N − λD, and a constraint
into "Σ_c h_c(τ_c) ≥ 1". All counts are integers and stay so: equality is equality.

Two classes are solved by one sweep over the thresholds of the first and a running maximum over those of the
second. More classes start from a Lagrangian relaxation, which also gives the bound, and are improved by the
same sweep over every pair of classes.

Where a correct answer more never hurts, few thresholds are worth trying: see `_correct_answers_pay`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, chunks
from transcendent._utils.text import suggestion
from transcendent.metrics.ratios import METRICS, Accuracy, Constraint, Metric, Ratio, Tally, resolve_metric
from transcendent.thresholds.base import (
    ConstrainedSearch,
    Incumbent,
    Problem,
    Search,
    SearchResult,
    infeasible,
)
from transcendent.thresholds.counts import LevelCounts, boundary_counts
from transcendent.thresholds.sweep import Pair, PairLimits, best_pair, relax

# Below every ratio: with λ = −1 the gain is N + D, whose maximum is undefined only where everything is.
_UNDEFINED = Fraction(-1)


class ExactSearch(ConstrainedSearch):
    """Thresholds that are proven best on the calibration set, or come with a bound on what could be better.

    With two classes the result is certified. With more, ``result.gap`` tells how far from the best it can
    be at most; 0 is a proof. Best means best of thresholds from 0 to 1, none of which rejects an answer whose
    credibility is 1. ``MacroF1`` is not a ratio of sums: it is improved class by class, without proof.

    Parameters
    ----------
    objective : str or Metric
        What is optimised, in the direction the metric prefers: ``"f1"``, ``"precision"``, ``"recall"``,
        ``"accuracy"``, ``"error"``, ``"macro_f1"``, ``"rejection_rate"`` or a metric.
    max_rejection : float or None
        Shorthand for the constraint ``RejectionRate() <= max_rejection``.
    constraints : Constraint, str or sequence of them
        Any number of limits on rejection rates, and at most one other, such as ``F1() >= 0.8`` or, in
        words, ``"f1 >= 0.8"``.
    on : {"credibility", "confidence"}
        Which value gets thresholds. (Both at once: `RandomSearch`.)

    Examples
    --------
    >>> from transcendent import ExactSearch
    >>> y      = [0, 0, 0, 0, 1, 1, 1, 1, 1, 0]
    >>> labels = [0, 0, 0, 0, 1, 1, 1, 1, 0, 1]
    >>> credibility = [.9, .8, .7, .6, .9, .8, .7, .6, .1, .2]
    >>> found = ExactSearch("f1", max_rejection=0.1).find(y, labels, credibility)
    >>> found.credibility_thresholds, round(found.value, 3), found.certified
    (array([0. , 0.6]), 0.889, True)
    >>> least = ExactSearch("rejection_rate", max_rejection=None, constraints="f1 >= 0.95")
    >>> least.find(y, labels, credibility).rejection_rate
    0.2
    """

    def _find(
        self, actual: IntArray, predicted: IntArray, values: FloatArray, classes: AnyArray
    ) -> SearchResult:
        if self.on == "both":
            raise ValueError(
                "ExactSearch thresholds one value; use RandomSearch or GridSearch for on='both'."
            )
        objective, limits = resolve_metric(self.objective), self._limits()
        if _correct_answers_pay(objective, limits, classes):
            counts = boundary_counts(predicted, actual, values[:, 0], len(classes))
            problem = Problem(counts, classes, self.on, objective, limits)
        else:
            problem = self._problem(actual, predicted, values, classes)
        if isinstance(problem.objective, Ratio):
            return _solve(problem, problem.objective)
        start = _solve(problem, Accuracy())
        on_credibility = self.on == "credibility"
        thresholds = start.credibility_thresholds if on_credibility else start.confidence_thresholds
        return _climb(problem, thresholds)


def resolve_search(search: Search | str, n_classes: int) -> Search:
    """Return the search itself, or the exact one for an objective's name; ``"auto"`` is F1 or accuracy."""
    if isinstance(search, Search):
        return search
    if not isinstance(search, str):
        raise ValueError(
            "search must be a Search such as ExactSearch('f1'), the name of an objective such as 'f1', or "
            f"'auto', not {search!r}."
        )
    if search == "auto":
        return ExactSearch("f1" if n_classes == 2 else "accuracy")
    if search not in METRICS:
        raise ValueError(f"there is no search {search!r}{suggestion(search, ['auto', *METRICS])}")
    return ExactSearch(search)


def _correct_answers_pay(objective: Metric, limits: Sequence[Constraint], classes: AnyArray) -> bool:
    """Whether raising a threshold over correct answers alone can only harm.

    Keeping one correct answer more adds a to a ratio's numerator N and b to its denominator D. If a ≥ b ≥ 0,
    no gain N − λD at λ = −1 or λ in [0, 1] falls, nor does the slack of a bound, which is such a gain. So a
    threshold right above a value that only correct answers have is no better than one at that value,
    which keeps more: neither the best nor, as more kept wins ties, the choice among equals. The thresholds at
    incorrect answers stay: with them a constraint is seen to be monotone if it is so over all thresholds.
    """
    goals = [(objective, objective.higher_is_better), *((c.metric, c.sense == ">=") for c in limits)]
    return all(_gains_by_correct_answers(metric, maximise, classes) for metric, maximise in goals)


def _gains_by_correct_answers(metric: Metric, maximise: bool, classes: AnyArray) -> bool:
    if not isinstance(metric, Ratio):
        return False
    one_of_each = np.eye(len(classes), dtype=np.intp)
    kept = Tally(one_of_each, one_of_each, one_of_each)
    n, d = metric.parts(kept, Tally(-one_of_each, -one_of_each, -one_of_each), classes)
    return bool(np.all((d >= 0) & (d <= (n if maximise else d - n))))


@dataclass(frozen=True)
class _Terms:
    """A ratio to maximise, as integers per class and candidate threshold."""

    numerators: list[AnyArray]
    denominators: list[AnyArray]
    needs: list[list[AnyArray]]
    """For each constraint, per class: over the chosen candidates they must sum to at least 1."""
    monotone: list[bool]
    """Whether a constraint only gets harder with higher thresholds."""
    kept: list[AnyArray]

    def gain(self, c: int, ratio: Fraction) -> AnyArray:
        """What each candidate of class c adds to N − λD."""
        gain: AnyArray = ratio.denominator * self.numerators[c] - ratio.numerator * self.denominators[c]
        return gain

    def ratio(self, chosen: Sequence[int]) -> Fraction:
        """The objective at one candidate per class."""
        denominator = _total(self.denominators, chosen)
        return Fraction(_total(self.numerators, chosen), denominator) if denominator else _UNDEFINED

    def feasible(self, chosen: Sequence[int]) -> bool:
        """Whether every constraint holds."""
        return all(_total(need, chosen) >= 1 for need in self.needs)

    def limits(self, a: int, b: int, chosen: Sequence[int]) -> PairLimits:
        """What the constraints leave to classes a and b, the other classes as chosen."""
        pairs = [(need[a], need[b]) for need in self.needs]
        required = [
            1 - _total(need, chosen) + int(need[a][chosen[a]]) + int(need[b][chosen[b]])
            for need in self.needs
        ]
        return PairLimits.of(pairs, self.monotone, required, (len(self.kept[a]), len(self.kept[b])))


def _solve(problem: Problem, objective: Ratio) -> SearchResult:
    counts = problem.counts
    assert isinstance(counts, LevelCounts)
    found = _best(problem, objective, objective.higher_is_better, problem.constraints)
    if found is None:
        proven = len(problem.classes) == 2
        how = "reachable value" if proven else "value found (with more than two classes no proof)"
        raise infeasible(problem, _reachable(problem), how)
    chosen, bound = found
    thresholds = np.array([_threshold(levels, j) for levels, j in zip(counts.levels, chosen, strict=True)])
    return problem.result(thresholds[None], bound if objective == problem.objective else None)


def _best(
    problem: Problem, objective: Ratio, maximise: bool, constraints: Sequence[Constraint]
) -> tuple[list[int], float] | None:
    """The chosen candidate of each class and a bound on the objective, or None if nothing is allowed."""
    terms = _terms(problem, objective, maximise, constraints)
    if sum(not falls for falls in terms.monotone) > 1:
        raise ValueError(
            "ExactSearch takes any number of limits on rejection but at most one other constraint; "
            "use RandomSearch for several."
        )
    two = len(problem.classes) == 2
    found = _best_of_two(terms) if two else _best_of_many(terms, _start(problem, constraints, terms.monotone))
    if found is None:
        return None
    chosen, bound = found
    return chosen, float(bound if maximise else 1 - bound)


def _best_of_two(terms: _Terms) -> tuple[list[int], Fraction] | None:
    """Dinkelbach with an exact inner maximum: what it ends with is optimal."""
    limits = terms.limits(0, 1, [0, 0])
    ratio = _UNDEFINED
    chosen: list[int] | None = None
    while True:
        best = best_pair(terms.gain(0, ratio), terms.gain(1, ratio), limits, (terms.kept[0], terms.kept[1]))
        if best is None:
            return None
        reached = terms.ratio([best.first, best.second])
        if reached <= ratio:
            return None if chosen is None else (_prefer(terms, chosen, best, ratio), ratio)
        chosen, ratio = [best.first, best.second], reached


def _prefer(terms: _Terms, chosen: list[int], best: Pair, ratio: Fraction) -> list[int]:
    """Among the last two choices, equally good, the one that keeps more."""
    other = [best.first, best.second]
    if terms.ratio(other) == ratio and _total(terms.kept, other) > _total(terms.kept, chosen):
        return other
    return chosen


def _best_of_many(terms: _Terms, starts: list[list[int]]) -> tuple[list[int], Fraction] | None:
    """A relaxation for starts and a bound, then every pair of classes in turn until nothing improves."""
    n_classes = len(terms.kept)
    starts, bound = [[0] * n_classes, *starts], np.inf
    for need in terms.needs or [[np.ones(len(kept), dtype=np.int64) for kept in terms.kept]]:
        relaxed = relax(terms.numerators, terms.denominators, need)
        if relaxed is None:
            return None
        starts += relaxed.choices
        bound = min(bound, relaxed.bound)
    allowed = [(terms.ratio(s), s) for s in starts if terms.feasible(s)]
    if not allowed:
        return None
    ratio, chosen = max(allowed, key=lambda pair: pair[0])
    improved = True
    while improved and float(ratio) < bound - 1e-12:
        improved = False
        for a, b in combinations(range(n_classes), 2):
            better = _improve(terms, ratio, chosen, a, b)
            if better is not None:
                chosen, ratio, improved = better, terms.ratio(better), True
    return None if ratio == _UNDEFINED else (chosen, max(Fraction(bound), ratio))


def _start(problem: Problem, constraints: Sequence[Constraint], monotone: Sequence[bool]) -> list[list[int]]:
    """The best choice for the one constraint that does not limit rejection, under those that do."""
    if all(monotone):
        return []
    hard = constraints[monotone.index(False)]
    assert isinstance(hard.metric, Ratio)
    limits = [constraint for constraint in constraints if constraint is not hard]
    found = _best(problem, hard.metric, hard.sense == ">=", limits)
    return [] if found is None else [found[0]]


def _improve(terms: _Terms, ratio: Fraction, chosen: list[int], a: int, b: int) -> list[int] | None:
    """The choice with the best candidates for two classes, or None if it has them already."""
    gain_a, gain_b = terms.gain(a, ratio), terms.gain(b, ratio)
    best = best_pair(gain_a, gain_b, terms.limits(a, b, chosen), (terms.kept[a], terms.kept[b]))
    if best is None or best.gain <= gain_a[chosen[a]] + gain_b[chosen[b]]:
        return None
    better = list(chosen)
    better[a], better[b] = best.first, best.second
    return better


def _reachable(problem: Problem) -> list[float]:
    """For each constraint the best value of its metric under those before it, up to the first that fails."""
    reached = [float("nan")] * len(problem.constraints)
    for i, constraint in enumerate(problem.constraints):
        assert isinstance(constraint.metric, Ratio)
        found = _best(problem, constraint.metric, constraint.sense == ">=", problem.constraints[:i])
        if found is None:
            break
        terms = _terms(problem, constraint.metric, maximise=True, constraints=())
        value = terms.ratio(found[0])
        reached[i] = float("nan") if value == _UNDEFINED else float(value)
    return reached


def _terms(problem: Problem, objective: Ratio, maximise: bool, constraints: Sequence[Constraint]) -> _Terms:
    counts = problem.counts
    assert isinstance(counts, LevelCounts)
    tallies = [_class_tallies(counts, c) for c in range(counts.n_classes)]
    numerators, denominators = [], []
    for kept, rejected in tallies:
        n, d = objective.parts(kept, rejected, problem.classes)
        numerators.append(n if maximise else d - n)
        denominators.append(d)
    needs = [_need(constraint, tallies, problem.classes) for constraint in constraints]
    monotone = [all(bool(np.all(column[1:] <= column[:-1])) for column in need) for need in needs]
    return _Terms(numerators, denominators, needs, monotone, [kept.actual.sum(axis=1) for kept, _ in tallies])


def _class_tallies(counts: LevelCounts, c: int) -> tuple[Tally, Tally]:
    """What each candidate threshold of class c keeps and rejects among the objects predicted c."""
    levels, rows = counts.levels[c], counts.suffix[c]
    if len(levels) and levels[-1] >= 1.0:
        rows = rows[:-1]  # no threshold in [0, 1] rejects a value of 1
    correct, predicted = np.zeros_like(rows), np.zeros_like(rows)
    correct[:, c] = rows[:, c]
    predicted[:, c] = rows.sum(axis=1)
    kept = Tally(correct, rows, predicted)
    return kept, Tally(correct[:1], rows[:1], predicted[:1]) - kept


def _need(
    constraint: Constraint, tallies: Sequence[tuple[Tally, Tally]], classes: AnyArray
) -> list[AnyArray]:
    """The constraint as integers that must sum to at least 1.

    The slack must be at least 0 and the denominator positive. With k classes, slack · (k + 1) plus the
    number of classes with a positive denominator says both at once.
    """
    if not isinstance(constraint.metric, Ratio):
        raise ValueError(f"ExactSearch cannot constrain {constraint.metric}; use RandomSearch.")
    need = []
    for kept, rejected in tallies:
        n, d = constraint.metric.parts(kept, rejected, classes)
        need.append((len(classes) + 1) * constraint.slack(n, d) + (d > 0))
    return need


def _threshold(levels: FloatArray, j: int) -> float:
    if j == 0:
        return 0.0
    return float(levels[j]) if j < len(levels) else 1.0


def _climb(problem: Problem, thresholds: FloatArray) -> SearchResult:
    """From the best of some starts, improve one class at a time until no class improves."""
    counts = problem.counts
    assert isinstance(counts, LevelCounts)
    best = Incumbent()
    random = np.random.default_rng(0).random((1000, counts.n_classes))
    best.consider(problem, np.vstack([thresholds, np.zeros_like(thresholds), random])[:, None])
    before = -np.inf
    while best.thresholds is not None and best.goodness > before:
        before = best.goodness
        for c, levels in enumerate(counts.levels):
            candidates = np.array([_threshold(levels, j) for j in (0, len(levels))])
            candidates = np.concatenate([candidates, levels])
            for part in chunks(len(candidates), counts.batch):
                trials = np.repeat(best.thresholds[None], part.stop - part.start, axis=0)
                trials[:, 0, c] = candidates[part]
                best.consider(problem, trials)
    return best.result(problem)


def _total(columns: Sequence[AnyArray], chosen: Sequence[int]) -> int:
    return sum(int(column[j]) for column, j in zip(columns, chosen, strict=True))
