"""Tells the owner of a classifier which of its answers can still be trusted."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transcendent.decisions import Decisions, Rejector
    from transcendent.evaluators.budget import RejectionBudget, StreamingBudget
    from transcendent.evaluators.cross import CrossConformalEvaluator
    from transcendent.evaluators.inductive import InductiveEvaluator
    from transcendent.evaluators.transductive import TransductiveEvaluator
    from transcendent.judging.judge import ScoreEvaluator
    from transcendent.thresholds.exact import ExactSearch
    from transcendent.thresholds.metrics import (
        F1,
        Accuracy,
        ClassRejectionRate,
        Error,
        MacroF1,
        Precision,
        Recall,
        RejectionRate,
    )
    from transcendent.thresholds.quartile import QuartileSearch
    from transcendent.thresholds.trial import GridSearch, RandomSearch

__version__ = "0.1.0.dev0"

__all__ = [
    "F1",
    "Accuracy",
    "ClassRejectionRate",
    "CrossConformalEvaluator",
    "Decisions",
    "Error",
    "ExactSearch",
    "GridSearch",
    "InductiveEvaluator",
    "MacroF1",
    "Precision",
    "QuartileSearch",
    "RandomSearch",
    "Recall",
    "RejectionBudget",
    "RejectionRate",
    "Rejector",
    "ScoreEvaluator",
    "StreamingBudget",
    "TransductiveEvaluator",
]

_HOMES = {
    "evaluators.budget": ("RejectionBudget", "StreamingBudget"),
    "decisions": ("Decisions", "Rejector"),
    "evaluators.cross": ("CrossConformalEvaluator",),
    "evaluators.inductive": ("InductiveEvaluator",),
    "judging.judge": ("ScoreEvaluator",),
    "evaluators.transductive": ("TransductiveEvaluator",),
    "thresholds.exact": ("ExactSearch",),
    "thresholds.metrics": (
        "F1",
        "Accuracy",
        "ClassRejectionRate",
        "Error",
        "MacroF1",
        "Precision",
        "Recall",
        "RejectionRate",
    ),
    "thresholds.quartile": ("QuartileSearch",),
    "thresholds.trial": ("GridSearch", "RandomSearch"),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line answers without scikit-learn."""
    for module, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"transcendent.{module}"), name)
            return value
    raise AttributeError(f"module 'transcendent' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
