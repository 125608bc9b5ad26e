"""Checks of a rejector that was built: numbers out of range would make wrong decisions without an error."""

from typing import Any

import numpy as np

from transcendent._utils.checks import check_choices
from transcendent.artifacts.contents import reachable
from transcendent.errors import ArtifactError
from transcendent.evaluators.base import ConformalEvaluator
from transcendent.evaluators.budget import RejectionBudget, StreamingBudget
from transcendent.evaluators.cross import CrossConformalEvaluator, check_quorum
from transcendent.judging.calibration import Calibration
from transcendent.judging.judge import ScoreEvaluator
from transcendent.judging.pvalues import Form
from transcendent.thresholds.base import SearchResult
from transcendent.thresholds.guaranteed import NOTHING


def check_rejector(root: Any) -> None:
    """Refuse thresholds, quorums and budgets out of range, and classes that differ."""
    for thing in reachable(root):
        held = getattr(thing, "__dict__", {})
        if isinstance(thing, SearchResult):
            _check_thresholds(thing)
        elif isinstance(thing, Calibration):
            _check_calibration(thing)
        elif isinstance(thing, ScoreEvaluator) and "calibration_" in held:
            _check_judge(thing)
        elif isinstance(thing, ConformalEvaluator) and "judges_" in held:
            _check_evaluator(thing)
        elif isinstance(thing, RejectionBudget | StreamingBudget) and "rejector_" in held:
            _check_budget(thing)


def _check_thresholds(result: SearchResult) -> None:
    for thresholds in (result.credibility_thresholds, result.confidence_thresholds):
        is_array = type(thresholds) is np.ndarray and thresholds.dtype.kind == "f" and thresholds.ndim == 1
        if not is_array or not ((thresholds >= 0) & (thresholds <= NOTHING)).all():
            raise ArtifactError(f"its thresholds are not between 0 and 1: {thresholds!r:.80}.")


def _check_calibration(calibration: Calibration) -> None:
    classes = calibration.classes
    is_array = type(classes) is np.ndarray and classes.ndim == 1
    if not is_array or len(np.unique(classes)) != len(classes) or len(classes) < 2:
        raise ArtifactError(f"its calibration objects have invalid classes: {classes!r:.80}.")
    if not calibration.counts.all():
        raise ArtifactError("it has a class without calibration objects.")


def _check_judge(judge: ScoreEvaluator) -> None:
    check_choices(Form, p_value=judge.p_value)
    _check_same_classes(judge.classes_, judge.calibration_.classes)
    if "result_" in vars(judge) and len(judge.thresholds_) != len(judge.classes_):
        raise ArtifactError("it does not have a threshold for each class.")


def _check_evaluator(evaluator: ConformalEvaluator) -> None:
    if not len(evaluator.judges_) == len(evaluator.detectors_) >= 1:
        raise ArtifactError("it does not have a judge for each detector.")
    for judge in evaluator.judges_:
        _check_same_classes(judge.classes_, evaluator.classes_)
    if isinstance(evaluator, CrossConformalEvaluator):
        check_quorum(evaluator.quorum, len(evaluator.judges_))


def _check_same_classes(one: Any, other: Any) -> None:
    if not np.array_equal(one, other):
        raise ArtifactError(f"its judge and its detector have different classes: {one!r:.60}, {other!r:.60}.")


def _check_budget(budget: RejectionBudget | StreamingBudget) -> None:
    budget._check_budget()
    if isinstance(budget, RejectionBudget):
        return
    decided, rejected, recent = budget.decided_, budget.rejected_, budget.recent_
    counts = type(decided) is type(rejected) is int and 0 <= rejected <= decided
    valid = counts and recent.dtype.kind == "f" and recent.shape == (len(recent), 2)
    if not valid or len(recent) > min(decided, budget.window - 1) or np.isnan(recent).any():
        raise ArtifactError("its budget has invalid counts.")
