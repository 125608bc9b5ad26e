"""What an evaluator's measure says of an object: p-values of members, and how strange variants would be."""

from typing import Any

import numpy as np

from transcendent._utils.arrays import FloatArray
from transcendent._utils.estimators import see_through
from transcendent.decisions import Answers, declared
from transcendent.evaluators.base import ConformalEvaluator
from transcendent.explaining.strangeness import Scores
from transcendent.judging.judge import ScoreEvaluator
from transcendent.measures.second_opinion import SecondOpinion


class Measured:
    """An object and the evaluator whose measure scores it, once for all purposes: that can take long."""

    def __init__(self, evaluator: Any, row: Any) -> None:
        self._evaluator, self._row = evaluator, row
        self._own: list[Answers] | None = None

    def strangeness(self, label: Any) -> Scores | None:
        """Return a function that scores variants of the object for a label, the object itself first.

        The score is that of the measure, a mean over detectors; of other rejectors, minus the trust.
        """
        if not isinstance(self._evaluator, ConformalEvaluator):
            return self._distrust(label) if decides_alone(self._evaluator) else None
        code = int(np.flatnonzero(self._evaluator.classes_ == label)[0])
        calibrations = [judge.calibration_ for judge in self._evaluator.judges_]

        def scores(rows: Any) -> FloatArray:
            answers = self._evaluator.answers(rows)
            if self._own is None:
                self._own = [each[0] for each in answers]
            merged = [
                own.merge(each.scores)[:, code] for own, each in zip(calibrations, answers, strict=True)
            ]
            return np.asarray(np.mean(merged, axis=0))

        return scores

    def _distrust(self, label: Any) -> Scores:
        def scores(rows: Any) -> FloatArray:
            decisions = self._evaluator.decide(rows)
            return np.where(decisions.labels == label, -decisions.ranking, 0.0)

        return scores

    def members(self) -> dict[str, dict[Any, float]]:
        """Return the p-values of classes by each member of a combined measure, means over detectors."""
        if not isinstance(self._evaluator, ConformalEvaluator | ScoreEvaluator):
            return {}
        evaluator: Any = self._evaluator
        of_scores = isinstance(evaluator, ScoreEvaluator)
        judges = [evaluator] if of_scores else evaluator.judges_
        if judges[0].calibration_.merging is None:
            return {}
        if self._own is None:
            self._own = [evaluator.answer(self._row)] if of_scores else evaluator.answers(self._row)
        pairs = zip(judges, self._own, strict=True)
        p = np.mean([judge.calibration_.member_p_values(own.scores)[0] for judge, own in pairs], axis=0)
        named = [] if of_scores else _member_names(evaluator.detectors_[0].measure)
        names = named if len(named) == p.shape[1] else [f"score {m + 1}" for m in range(p.shape[1])]
        classes = evaluator.classes_.tolist()
        return {name: dict(zip(classes, p[:, m].tolist(), strict=True)) for m, name in enumerate(names)}


def decides_alone(evaluator: Any) -> bool:
    """Return whether decisions about an object depend on it alone."""
    told = declared(evaluator)
    return not (told.depends_on_others or told.evolves)


def _member_names(measure: Any) -> list[str]:
    """Return a name for each member; equal ones are numbered."""
    members = getattr(measure, "measures_", None) or list(measure.measures)
    names = [_member_name(member) for member in members]
    seen = [names[: m + 1].count(name) for m, name in enumerate(names)]
    return [f"{name} {seen[m]}" if names.count(name) > 1 else name for m, name in enumerate(names)]


def _member_name(member: Any) -> str:
    if isinstance(member, SecondOpinion):
        return f"second opinion of {type(see_through(member.estimator)[1]).__name__}"
    return member if isinstance(member, str) else type(member).__name__
