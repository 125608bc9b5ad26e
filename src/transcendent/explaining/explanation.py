"""Why an object was rejected or accepted, what it is like, and what would change that."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import (
    IntArray,
    canonical_rows,
    count_rows,
    take_rows,
)
from transcendent.decisions import Decisions, Rejector, declared
from transcendent.evaluators.cross import check_quorum
from transcendent.explaining.contributions import contributions
from transcendent.explaining.known_objects import KnownObjects, Neighbour, nearest
from transcendent.explaining.measured import Measured
from transcendent.explaining.neighbourhood import FEW, accepted_near, decide_with_neighbours
from transcendent.explaining.strangeness import strange_columns
from transcendent.explaining.subject import Subject
from transcendent.explaining.variants import (
    as_rows,
    cell,
    cells,
    numbers_of,
    plain,
)
from transcendent.explaining.wording import as_html, as_text, sentence


class Requirement(NamedTuple):
    """A value that decides about acceptance: what the object has, and the least that is accepted."""

    what: str
    has: float
    needs: float


class StrangeFeature(NamedTuple):
    """An unusual value; see `Explanation`."""

    name: str
    value: Any
    usual: Any
    n_alike: int
    effect: float | None


class Contribution(NamedTuple):
    """The part of the detector's score that one feature contributes."""

    name: str
    value: Any
    amount: float


class Score(NamedTuple):
    """The detector's score for the label, and the features that make most of it; see `Explanation`."""

    method: str
    of: str
    base_of: str
    against: Any
    score: float
    base: float
    speak_for: list[Contribution]
    speak_against: list[Contribution]
    others: float
    rest: float


@dataclass(frozen=True)
class Explanation:
    """Why an object was rejected or accepted, as plain data.

    ``str()`` gives a text, notebooks show tables, and ``to_dict`` gives JSON values.

    Attributes
    ----------
    sentence : str
        The explanation in one sentence.
    label : class label
        The detector's answer.
    accepted : bool
        Whether it is accepted.
    credibility, confidence : float
        As in `Decisions`.
    doubt : str or None
        The kind of doubt, if the measure tells; see ``Decisions.doubt``.
    p_values : dict
        The p-value of each class; empty if there are none.
    members : dict of dicts
        The p-value of each class by each member of a combined measure; means over the folds of a
        cross-conformal evaluator.
    pooled : bool
        Whether p-values compare with the calibration objects of all classes, not with those of the class.
    votes : tuple of int or None
        Cross-conformal only: the number of folds that accept the label, and the number of folds.
    requirements : list of (what, has, needs)
        The values that decide about acceptance: what the object has, and the least that is accepted.
    metric : str or None
        The distance of the nearest known objects; see `KnownObjects`.
    nearest : list of (position, id, label, time, distance)
        The nearest known objects, of any label.
    only_here, only_there : list of str
        Features that the object has and none of the nearest known objects has; and features that all of
        them have, and the object has not.
    n_compared : int
        The number of known objects that ``strange`` compares with: the nearest ones of the same label, only
        accepted ones if there are at least five. 0 if there are fewer than five of the label.
    strange : list of (name, value, usual, n_alike, effect)
        Unexpected values of the object, the most unexpected first: texts, and zeros and ones, by the number
        of compared objects that share them; other numbers by how far they are from the usual value, and
        from what the other numbers of the object lead one to expect. ``n_alike`` of the compared objects
        have such a value, or one as far from the usual one. With the usual value, the object's score would
        fall by ``effect``; among equally unexpected values the largest effect comes first.
    score : (method, of, base_of, against, score, base, speak_for, speak_against, others, rest) or None
        The detector's score for the label (against another class, if there are more than two), and the
        features that contribute most to it, each as (name, value, amount): ``base`` plus all amounts plus
        ``others`` plus ``rest`` is the score. ``method`` is ``"exact"``; ``"paths"`` for the path
        contributions of LightGBM and XGBoost; or ``"occlusion"``: the amount by which the score falls if
        the value is replaced by the usual one, where ``rest`` is what single replacements do not account
        for. ``base`` is the score of what ``base_of`` names: an object with the usual values of the known
        objects (if they are at least 50, of two classes or more) or else of ``X``, the average of the
        training rows, or no values at all.
    """

    sentence: str
    label: Any
    accepted: bool
    credibility: float
    confidence: float
    doubt: str | None
    p_values: dict[Any, float]
    members: dict[str, dict[Any, float]]
    pooled: bool
    votes: tuple[int, int] | None
    requirements: list[Requirement]
    metric: str | None
    nearest: list[Neighbour]
    only_here: list[str]
    only_there: list[str]
    n_compared: int
    strange: list[StrangeFeature]
    score: Score | None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {name: _as_json(value) for name, value in vars(self).items()}

    def __str__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def explain(
    rejector: Any,
    X: Any,
    i: int,
    known: KnownObjects | None = None,
    *,
    names: Sequence[str] | None = None,
    decisions: Decisions | None = None,
    requirements: Sequence[Requirement] | None = None,
    itself: int | None = None,
    n: int = 5,
) -> Explanation:
    """Explain why an object was rejected or accepted, which known objects it resembles, and what is unusual.

    Nothing is changed by it, not even the state of a stream. Without ``known`` objects, only the detector's
    score is compared with something: the usual values of ``X``.

    Parameters
    ----------
    rejector : rejector
        The fitted rejector.
    X : array, sparse matrix, frame, or `Answers`
        The rows that were decided together. Only the row ``i`` is decided again, unless decisions depend on
        other objects, as with a budget.
    i : int
        The position of the object.
    known : KnownObjects or None
        Objects with known labels to compare with.
    names : sequence of str or None
        The names of columns; by default those of a frame, or of ``fit``.
    decisions : Decisions or None
        The decisions about ``X``, if they were made before, such as by a stream.
    requirements : sequence of (what, has, needs) or None
        What decided in place of the rejector's own rule, such as the cutoff of a gate.
    itself : int or None
        The position of the object among the known objects, if it is one of them: it is left out.
    n : int
        The number of known objects and of features to name.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent import InductiveEvaluator
    >>> from transcendent.explaining import KnownObjects, explain
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(["goodware", "malware"], 500)
    >>> X = (rng.random((1000, 6)) < np.where(y == "malware", 0.7, 0.2)[:, None]).astype(float)
    >>> ice = InductiveEvaluator(LinearSVC(), random_state=0).fit(X, y)
    >>> why = explain(ice, [[1.0, 1, 0, 0, 1, 0]], 0, KnownObjects(X, y), names=list("abcdef"))
    >>> why.accepted, why.requirements[0].what, why.score.method
    (False, 'credibility', 'exact')
    """
    X = canonical_rows(as_rows(X))
    _check(rejector, X, i, n, decisions)
    told = declared(rejector)
    evaluator = told.without_budget if isinstance(rejector, Rejector) else rejector
    subject = Subject.of(told, evaluator, X, i, known, names, itself)
    near = None
    if decisions is not None:
        place = i
    elif evaluator is rejector and (together := decide_with_neighbours(subject)) is not None:
        (decisions, near), place = together, 0
    else:
        decisions, place = _decide(rejector, told, X, i)
    decision = decisions[[place]]
    label = decision.labels.tolist()[0]
    measured = Measured(evaluator, take_rows(X, np.array([i])))
    found = {
        **_of_decision(decision, told),
        "requirements": _requirements(told, evaluator, decisions, place)
        if requirements is None
        else list(requirements),
        **_of_neighbours(subject, n),
        **_strange(subject, measured, label, near, n),
        "members": measured.members(),
        "score": _score(subject, label, _rival(decision), n),
    }
    within_budget = told.budget is not None or requirements is not None
    return Explanation(sentence=sentence(found, within_budget), **found)


def _check(rejector: Any, X: Any, i: Any, n: Any, decisions: Decisions | None) -> None:
    rows = count_rows(X)
    if isinstance(i, bool) or not isinstance(i, int | np.integer) or not 0 <= i < rows:
        raise ValueError(f"i={i!r} must be the position of a row, 0 to {rows - 1}.")
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ValueError(f"n={n!r} must be a number of objects and features, at least 1.")
    if decisions is not None and len(decisions) != rows:
        raise ValueError(f"there are {len(decisions)} decisions about {rows} rows.")
    if not hasattr(rejector, "decide"):
        raise TypeError(f"{type(rejector).__name__} is not a rejector: it has no decide.")


def _decide(rejector: Any, told: Rejector, X: Any, i: int) -> tuple[Decisions, int]:
    """Return decisions, and the position of the object among them; a rejector that evolves stays as it is."""
    if not told.depends_on_others and not told.evolves:
        return rejector.decide(take_rows(X, np.array([i]))), 0
    return (deepcopy(rejector) if told.evolves else rejector).decide(X), i


def _of_decision(decision: Decisions, told: Rejector) -> dict[str, Any]:
    classes, judges = decision.classes.tolist(), told.fitted.judges if told.has_p_values else ()
    merging = judges[0].calibration_.merging if judges else None
    p = [] if decision.p_values is None else decision.p_values[0].tolist()
    return {
        "label": decision.labels.tolist()[0],
        "accepted": bool(decision.accepted[0]),
        "credibility": float(decision.credibility[0]),
        "confidence": float(decision.confidence[0]),
        "doubt": None if decision.doubt is None else str(decision.doubt[0]),
        "p_values": dict(zip(classes, p, strict=False)),
        "pooled": merging is not None and merging.bag == "all",
        "votes": None if decision.votes is None else (int(decision.votes[0]), len(judges)),
    }


def _requirements(told: Rejector, evaluator: Any, decisions: Decisions, place: int) -> list[Requirement]:
    """Return the values that decide about acceptance."""
    if (budget := told.budget) is not None:
        if budget.window is not None or not decisions.accepted.any():
            return []
        least = float(decisions.ranking[decisions.accepted].min())
        return [Requirement(decisions.ranked_by, float(decisions.ranking[place]), least)]
    if decisions.votes is not None:
        quorum = check_quorum(getattr(evaluator, "quorum", None), len(told.fitted.judges))
        return [Requirement("votes", float(decisions.votes[place]), float(quorum))]
    if len(told.fitted.results) != 1:
        return []
    (result,) = told.fitted.results
    code = int(np.flatnonzero(decisions.classes == decisions.labels[place])[0])
    thresholds = {
        "credibility": (decisions.credibility[place], result.credibility_thresholds[code]),
        "confidence": (decisions.confidence[place], result.confidence_thresholds[code]),
    }
    return [Requirement(what, float(has), float(t)) for what, (has, t) in thresholds.items() if t > 0]


def _rival(decision: Decisions) -> Any:
    """Return the class that the label is compared with: the one with the highest p-value of all others."""
    own = int(np.flatnonzero(decision.classes == decision.labels[0])[0])
    p = np.zeros(len(decision.classes)) if decision.p_values is None else decision.p_values[0].copy()
    p[own] = -np.inf
    return decision.classes.tolist()[int(np.argmax(p))]


def _of_neighbours(subject: Subject, n: int) -> dict[str, Any]:
    """Return the nearest known objects, and what sets the object apart from all of them."""
    found: dict[str, Any] = {"metric": None, "nearest": [], "only_here": [], "only_there": []}
    if subject.known is None or subject.row is None:
        return found
    distances = subject.distances
    near = nearest(distances, n)
    near = near[np.isfinite(distances[near])]
    if not len(near):
        return found
    rows = take_rows(subject.known.X, near)
    metric = subject.known.metric
    here, there = _set_apart(subject.row, rows, metric)
    return {
        "metric": metric,
        "nearest": [subject.known.neighbour(place, distances[place]) for place in near],
        "only_here": [_with_value(subject, j, subject.row) for j in here],
        "only_there": [_with_value(subject, j, rows) for j in there],
    }


def _set_apart(row: Any, near: Any, metric: str) -> tuple[IntArray, IntArray]:
    """Return the columns that only the row has, and those that all others have and the row has not.

    Of numbers that are mostly 0, a row has those that are not. Of other columns it has its own value, which
    no other has if a number is outside their range; a value that all others share is what they have.
    """
    if metric != "columns":
        mine = np.zeros(row.shape[1], dtype=bool)
        mine[sp.csr_array(numbers_of(row)).nonzero()[1]] = True
        theirs = np.bincount(sp.csr_array(numbers_of(near)).nonzero()[1], minlength=len(mine))
        return np.flatnonzero(mine & (theirs == 0)), np.flatnonzero(~mine & (theirs == near.shape[0]))
    own, others = cells(row, 0), list(zip(*(cells(near, i) for i in range(count_rows(near))), strict=True))
    here = [j for j, value in enumerate(own) if value is not None and _is_new(value, others[j])]
    there = [j for j, values in enumerate(others) if _is_shared(values) and own[j] != values[0]]
    return np.array(here, dtype=np.intp), np.array(there, dtype=np.intp)


def _is_new(value: Any, others: Sequence[Any]) -> bool:
    """Return whether no other has a text or boolean, or a number is outside the range of the others."""
    known = [other for other in others if other is not None]
    if isinstance(value, str | bool) or not known or isinstance(known[0], str):
        return value not in known
    return bool(value < min(known) or value > max(known))


def _is_shared(values: Sequence[Any]) -> bool:
    """Return whether all values are one text or boolean."""
    return isinstance(values[0], str | bool) and len(set(values)) == 1


def _with_value(subject: Subject, j: int, rows: Any) -> str:
    """Return the name of a column, with its value unless that matters only as not being 0."""
    assert subject.known is not None
    return subject.name(j) if subject.known.metric != "columns" else f"{subject.name(j)} = {cell(rows, 0, j)}"


def _strange(
    subject: Subject, measured: Measured, label: Any, near: IntArray | None, n: int
) -> dict[str, Any]:
    """Return unusual values of the object, compared with accepted known objects of its label."""
    nothing: dict[str, Any] = {"n_compared": 0, "strange": []}
    if subject.known is None or subject.row is None or subject.are_texts:
        return nothing
    near = accepted_near(subject, label) if near is None else near
    if len(near) < FEW:
        return nothing
    rows = take_rows(subject.known.X, near)
    expectation = subject.known.expectation(label)
    deviations = {} if expectation is None else expectation.deviations(subject.row, rows)
    found, usual = strange_columns(subject.row, rows, measured.strangeness(label), deviations, n)
    features = [
        StrangeFeature(
            subject.name(each.column),
            cell(subject.row, 0, each.column),
            cell(usual, 0, each.column),
            each.n_alike,
            each.effect,
        )
        for each in found
    ]
    return {"n_compared": len(near), "strange": features}


def _score(subject: Subject, label: Any, rival: Any, n: int) -> Score | None:
    """Return the detector's score for the label, and the features that make most of it."""
    if subject.row is None:
        return None
    found = contributions(subject.detectors, subject.row, label, rival, lambda: subject.usual)
    if found is None:
        return None
    order = np.argsort(-found.amounts, kind="stable")
    top = [j for j in order[:n] if found.amounts[j] > 0]
    bottom = [j for j in order[::-1][:n] if found.amounts[j] < 0]
    speak_for, speak_against = (
        [Contribution(subject.name(j), cell(subject.row, 0, j), float(found.amounts[j])) for j in chosen]
        for chosen in (top, bottom)
    )
    return Score(
        method=found.method,
        of=found.of,
        base_of=found.base_of,
        against=rival,
        score=found.score,
        base=found.base,
        speak_for=speak_for,
        speak_against=speak_against,
        others=float(np.delete(found.amounts, [*top, *bottom]).sum()),
        rest=found.rest,
    )


def _as_json(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return {name: _as_json(own) for name, own in value._asdict().items()}
    if isinstance(value, dict):
        return {str(key): _as_json(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(own) for own in value]
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else plain(value)
