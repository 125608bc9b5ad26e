"""The best thresholds from 0 to 1, with a proof or a bound.

Numerator N and denominator D of a ratio metric are sums over predicted classes, and each term depends on one
threshold. Dinkelbach's iteration (Management Science, 1967) turns "maximise N / D" into several problems
"maximise Σ_c g_c(τ_c)" with g = N − λD. A constraint becomes "Σ_c h_c(τ_c) ≥ 1". All terms are integers, so
comparisons are exact.

Two classes are solved by one sweep over the thresholds of the first and a running maximum over those of the
second. More classes start from a Lagrangian relaxation, which also gives the bound, and are improved by the
same sweep over every pair of classes.

Where one more correct answer never hurts, few thresholds are worth trying: see `_correct_answers_pay`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np

from transcendent._utils.arrays import AnyArray, FloatArray, chunks
from transcendent._utils.text import suggestion
from transcendent.metrics.ratios import (
    METRICS,
    Accuracy,
    Constraint,
    Metric,
    Ratio,
    Sums,
    Tally,
    resolve_metric,
)
from transcendent.thresholds.base import (
    Codes,
    ConstrainedSearch,
    Incumbent,
    Search,
    SearchLike,
    SearchResult,
    ThresholdProblem,
    infeasible,
)
from transcendent.thresholds.counts import LevelCounts
from transcendent.thresholds.sweep import PairLimits, best_pair, relax, total

Limits = Sequence[Constraint]

# The first λ is below every ratio: the gain is then N + D, which is 0 only where N / D is undefined.
_UNDEFINED = Fraction(-1)


class ExactSearch(ConstrainedSearch):
    """Finds the thresholds that are best on the calibration set, with a proof or a bound.

    With two classes the result is proven best. With more, ``result.gap`` is the largest possible distance
    from the best; 0 is a proof. Best means best of thresholds from 0 to 1, none of which rejects an answer
    whose credibility is 1. ``MacroF1`` is not a ratio of sums: it is improved class by class, without proof.

    Parameters
    ----------
    objective : str or Metric
        Metric to optimise, in its better direction: ``"f1"``, ``"precision"``, ``"recall"``,
        ``"accuracy"``, ``"error"``, ``"macro_f1"``, ``"rejection_rate"`` or a metric.
    max_rejection : float or None
        Shorthand for the constraint ``RejectionRate() <= max_rejection``.
    constraints : Constraint, str or sequence of them
        Limits on rejection rates, and at most one other: ``F1() >= 0.8`` or, as text, ``"f1 >= 0.8"``.
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

    def _find(self, actual: Codes, predicted: Codes, values: FloatArray, classes: AnyArray) -> SearchResult:
        if self.on == "both":
            raise ValueError("on='both' needs RandomSearch or GridSearch: ExactSearch thresholds one value.")
        objective, limits = resolve_metric(self.objective), self._limits()
        few = _correct_answers_pay(objective, limits, classes)
        counts = LevelCounts(predicted, actual, values[:, 0], len(classes), boundaries=few)
        problem = ThresholdProblem(counts, classes, self.on, objective, limits)
        if isinstance(objective, Ratio):
            return _solve(problem, objective)
        start = _solve(problem, Accuracy())
        # One of the two is 0 everywhere.
        return _climb(problem, start.credibility_thresholds + start.confidence_thresholds)


def resolve_search(search: SearchLike, n_classes: int) -> Search:
    """Return the search itself, or the exact one for a metric or its name; ``"auto"`` is F1 or accuracy."""
    if isinstance(search, Search):
        return search
    if isinstance(search, Metric):
        return ExactSearch(search)
    if not isinstance(search, str):
        raise ValueError(
            "search must be a Search such as ExactSearch('f1'), a metric such as F1() or its name 'f1', or "
            f"'auto', not {search!r}."
        )
    if search == "auto":
        return ExactSearch("f1" if n_classes == 2 else "accuracy")
    if search not in METRICS:
        raise ValueError(f"there is no search {search!r}{suggestion(search, ['auto', *METRICS])}")
    return ExactSearch(search)


def _correct_answers_pay(objective: Metric, limits: Limits, classes: AnyArray) -> bool:
    """Return whether raising a threshold above correct answers alone never helps.

    Keeping one more correct answer adds a to a ratio's numerator N and b to its denominator D. If a ≥ b ≥ 0,
    no gain N − λD falls for λ = −1 or λ in [0, 1], and no slack of a bound, which is such a gain. So a
    threshold right above a value that only correct answers have is no better than one at that value, which
    also keeps more and therefore wins the tie. Thresholds at incorrect answers are needed, also to see
    whether a constraint is monotone.
    """
    one_of_each = np.eye(len(classes), dtype=np.intp)
    kept = Tally(one_of_each, one_of_each, one_of_each)
    rejected = Tally(-one_of_each, -one_of_each, -one_of_each)
    for metric, up in (
        (objective, objective.higher_is_better),
        *((c.metric, c.sense == ">=") for c in limits),
    ):
        if not isinstance(metric, Ratio):
            return False
        n, d = metric.sums(kept, rejected, classes)
        if not np.all((d >= 0) & (d <= (n if up else d - n))):
            return False
    return True


@dataclass(frozen=True)
class _Terms:
    """A ratio to maximise, as integers per class and candidate threshold."""

    numerators: list[AnyArray]
    denominators: list[AnyArray]
    needs: list[list[AnyArray]]
    """Of each constraint, one array per class: over the chosen candidates they must sum to at least 1."""
    monotone: list[bool]
    """Whether a constraint only gets harder with higher thresholds."""
    kept: list[AnyArray]

    def gain(self, c: int, ratio: Fraction) -> AnyArray:
        """Return what each candidate of class c adds to N − λD, times the denominator of λ."""
        return np.asarray(ratio.denominator * self.numerators[c] - ratio.numerator * self.denominators[c])

    def ratio(self, chosen: Sequence[int]) -> Fraction:
        """Return the objective at one candidate per class."""
        denominator = total(self.denominators, chosen)
        return Fraction(total(self.numerators, chosen), denominator) if denominator else _UNDEFINED

    def feasible(self, chosen: Sequence[int]) -> bool:
        """Return whether every constraint holds."""
        return all(total(need, chosen) >= 1 for need in self.needs)

    def limits(self, a: int, b: int, chosen: Sequence[int]) -> PairLimits:
        """Return which candidates of classes a and b are allowed, with the other classes as chosen."""
        last, other = np.full(len(self.kept[a]), len(self.kept[b]) - 1), None
        for need, falls in zip(self.needs, self.monotone, strict=True):
            required = 1 - total(need, chosen) + int(need[a][chosen[a]]) + int(need[b][chosen[b]])
            if falls:
                last = np.minimum(last, np.searchsorted(-need[b], need[a] - required, side="right") - 1)
            else:
                other = required - need[a], need[b]
        return PairLimits(last, other)


def _solve(problem: ThresholdProblem, objective: Ratio) -> SearchResult:
    found = _best(problem, objective, objective.higher_is_better, problem.constraints)
    if found is None:
        two = len(problem.classes) == 2
        how = "reachable value" if two else "value found (not proven, with more than two classes)"
        raise infeasible(problem, _reachable(problem), how)
    chosen, bound = found
    levels = zip(_level_counts(problem).levels, chosen, strict=True)
    thresholds = np.array([np.append(of_class, 1.0)[j] if j else 0.0 for of_class, j in levels])
    return problem.result(thresholds[None], bound if objective == problem.objective else None)


def _best(
    problem: ThresholdProblem, objective: Ratio, maximise: bool, constraints: Limits
) -> tuple[list[int], float] | None:
    """Return the best candidate of each class and a bound on the objective, or None if none is allowed."""
    terms = _terms(problem, objective, maximise, constraints)
    if sum(not falls for falls in terms.monotone) > 1:
        raise ValueError(
            "ExactSearch takes any number of limits on rejection but at most one other constraint; "
            "use RandomSearch for more."
        )
    two = len(problem.classes) == 2
    found = _best_of_two(terms) if two else _best_of_many(terms, _start(problem, constraints, terms.monotone))
    if found is None:
        return None
    chosen, bound = found
    return chosen, float(bound if maximise else 1 - bound)


def _best_of_two(terms: _Terms) -> tuple[list[int], Fraction] | None:
    """Run Dinkelbach's iteration. Its inner maximum is exact, so the last choice is optimal."""
    limits = terms.limits(0, 1, [0, 0])
    ratio, chosen = _UNDEFINED, None
    while True:
        best = best_pair(terms.gain(0, ratio), terms.gain(1, ratio), limits, (terms.kept[0], terms.kept[1]))
        if best is None:
            return None
        new = [best.first, best.second]
        reached = terms.ratio(new)
        if reached <= ratio:
            if chosen is None:
                return None
            more = reached == ratio and total(terms.kept, new) > total(terms.kept, chosen)
            return (new if more else chosen), ratio
        chosen, ratio = new, reached


def _best_of_many(terms: _Terms, starts: list[list[int]]) -> tuple[list[int], Fraction] | None:
    """Improve every pair of classes in turn until nothing does, from starts and a bound by relaxation."""
    n_classes = len(terms.kept)
    starts, bound = [[0] * n_classes, *starts], np.inf
    for need in terms.needs or [[np.ones(len(kept), dtype=np.int64) for kept in terms.kept]]:
        relaxed = relax(terms.numerators, terms.denominators, need)
        if relaxed is None:
            return None
        bound = min(bound, relaxed[0])
        starts += relaxed[1]
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


def _start(problem: ThresholdProblem, constraints: Limits, monotone: Sequence[bool]) -> list[list[int]]:
    """Return the best choice for the one constraint that does not limit rejection, under those that do."""
    if all(monotone):
        return []
    hard = constraints[monotone.index(False)]
    assert isinstance(hard.metric, Ratio)
    limits = [constraint for constraint in constraints if constraint is not hard]
    found = _best(problem, hard.metric, hard.sense == ">=", limits)
    return [] if found is None else [found[0]]


def _improve(terms: _Terms, ratio: Fraction, chosen: list[int], a: int, b: int) -> list[int] | None:
    """Return the choice with the best candidates of two classes, or None if it is no better."""
    gain_a, gain_b = terms.gain(a, ratio), terms.gain(b, ratio)
    best = best_pair(gain_a, gain_b, terms.limits(a, b, chosen), (terms.kept[a], terms.kept[b]))
    if best is None or best.gain <= gain_a[chosen[a]] + gain_b[chosen[b]]:
        return None
    return [*chosen[:a], best.first, *chosen[a + 1 : b], best.second, *chosen[b + 1 :]]


def _reachable(problem: ThresholdProblem) -> list[float]:
    """Return the best value of each constraint's metric under those before it, up to the first that fails."""
    reached = [float("nan")] * len(problem.constraints)
    for i, constraint in enumerate(problem.constraints):
        assert isinstance(constraint.metric, Ratio)
        found = _best(problem, constraint.metric, constraint.sense == ">=", problem.constraints[:i])
        if found is None:
            break
        value = _terms(problem, constraint.metric, maximise=True, constraints=()).ratio(found[0])
        reached[i] = float("nan") if value == _UNDEFINED else float(value)
    return reached


def _terms(problem: ThresholdProblem, objective: Ratio, maximise: bool, constraints: Limits) -> _Terms:
    counts = _level_counts(problem)
    tallies = [_class_tallies(counts, c) for c in range(counts.n_classes)]
    numerators, denominators = [], []
    for kept, rejected in tallies:
        n, d = _sums(objective, kept, rejected, problem.classes)
        numerators.append(n if maximise else d - n)
        denominators.append(d)
    needs = [_need(constraint, tallies, problem.classes) for constraint in constraints]
    monotone = [all(bool(np.all(column[1:] <= column[:-1])) for column in need) for need in needs]
    return _Terms(numerators, denominators, needs, monotone, [kept.actual.sum(axis=1) for kept, _ in tallies])


def _sums(ratio: Ratio, kept: Tally, rejected: Tally, classes: AnyArray) -> Sums:
    """Return numerators and denominators of a ratio; refuse those for which the search proves nothing."""
    n, d = (np.asarray(each) for each in ratio.sums(kept, rejected, classes))
    if n.dtype.kind not in "iu" or d.dtype.kind not in "iu" or (n < 0).any() or (n > d).any():
        raise ValueError(
            f"sums() of {ratio} must return integers with 0 <= numerator <= denominator: multiply both, or "
            "derive it from Metric instead of Ratio."
        )
    return n, d


def _class_tallies(counts: LevelCounts, c: int) -> tuple[Tally, Tally]:
    """Count what each candidate threshold of class c keeps and rejects of the objects predicted c."""
    levels, rows = counts.levels[c], counts.suffix[c]
    if len(levels) and levels[-1] >= 1.0:
        rows = rows[:-1]  # no threshold in [0, 1] rejects a value of 1
    correct, predicted = np.zeros_like(rows), np.zeros_like(rows)
    correct[:, c] = rows[:, c]
    predicted[:, c] = rows.sum(axis=1)
    kept = Tally(correct, rows, predicted)
    return kept, Tally(correct[:1], rows[:1], predicted[:1]) - kept


def _need(constraint: Constraint, tallies: list[tuple[Tally, Tally]], classes: AnyArray) -> list[AnyArray]:
    """Return the constraint as integers, one array per class, that must sum to at least 1.

    The slack must be at least 0 and the denominator positive. With k classes, slack · (k + 1) plus the
    number of classes with a positive denominator is at least 1 only if both hold.
    """
    if not isinstance(constraint.metric, Ratio):
        raise ValueError(f"ExactSearch cannot constrain {constraint.metric}; use RandomSearch.")
    need = []
    for kept, rejected in tallies:
        n, d = _sums(constraint.metric, kept, rejected, classes)
        need.append((len(classes) + 1) * constraint.slack(n, d) + (d > 0))
    return need


def _level_counts(problem: ThresholdProblem) -> LevelCounts:
    assert isinstance(problem.counts, LevelCounts)
    return problem.counts


def _climb(problem: ThresholdProblem, thresholds: FloatArray) -> SearchResult:
    """Improve one class at a time, from the best of some starts, until no class improves."""
    counts = _level_counts(problem)
    best = Incumbent()
    random = np.random.default_rng(0).random((1000, counts.n_classes))
    best.consider(problem, np.vstack([thresholds, np.zeros_like(thresholds), random])[:, None])
    before = -np.inf
    while best.thresholds is not None and best.goodness > before:
        before = best.goodness
        for c, levels in enumerate(counts.levels):
            candidates = np.concatenate([[0.0, 1.0], levels])
            for part in chunks(len(candidates), counts.batch):
                trials = np.repeat(best.thresholds[None], part.stop - part.start, axis=0)
                trials[:, 0, c] = candidates[part]
                best.consider(problem, trials)
    return best.result(problem)
