"""Tells the owner of a classifier which of its answers can still be trusted."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transcendent.artifacts.artifact import load, save
    from transcendent.decisions import Decisions, Rejector
    from transcendent.evaluators.budget import RejectionBudget, StreamingBudget
    from transcendent.evaluators.cross import CrossConformalEvaluator
    from transcendent.evaluators.inductive import InductiveEvaluator
    from transcendent.evaluators.transductive import TransductiveEvaluator
    from transcendent.judging.judge import ScoreEvaluator
    from transcendent.measures.combined import CombinedMeasure
    from transcendent.temporal.backtest import backtest
    from transcendent.thresholds.exact import ExactSearch
    from transcendent.thresholds.guaranteed import GuaranteedSearch
    from transcendent.thresholds.quartile import QuartileSearch
    from transcendent.thresholds.trial import GridSearch, RandomSearch

__version__ = "0.1.0.dev0"

__all__ = [
    "CombinedMeasure",
    "CrossConformalEvaluator",
    "Decisions",
    "ExactSearch",
    "GridSearch",
    "GuaranteedSearch",
    "InductiveEvaluator",
    "QuartileSearch",
    "RandomSearch",
    "RejectionBudget",
    "Rejector",
    "ScoreEvaluator",
    "StreamingBudget",
    "TransductiveEvaluator",
    "backtest",
    "load",
    "save",
]

_HOMES = {
    "artifacts.artifact": ("load", "save"),
    "decisions": ("Decisions", "Rejector"),
    "evaluators.budget": ("RejectionBudget", "StreamingBudget"),
    "evaluators.cross": ("CrossConformalEvaluator",),
    "evaluators.inductive": ("InductiveEvaluator",),
    "evaluators.transductive": ("TransductiveEvaluator",),
    "judging.judge": ("ScoreEvaluator",),
    "measures.combined": ("CombinedMeasure",),
    "temporal.backtest": ("backtest",),
    "thresholds.exact": ("ExactSearch",),
    "thresholds.guaranteed": ("GuaranteedSearch",),
    "thresholds.quartile": ("QuartileSearch",),
    "thresholds.trial": ("GridSearch", "RandomSearch"),
}
_SUBPACKAGES = (
    "artifacts",
    "baselines",
    "batch",
    "datasets",
    "errors",
    "gate",
    "judging",
    "leave_one_out",
    "measures",
    "metrics",
    "monitoring",
    "plots",
    "report",
    "temporal",
    "thresholds",
)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line answers without scikit-learn."""
    if name in _SUBPACKAGES:
        return import_module(f"transcendent.{name}")
    for module, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"transcendent.{module}"), name)
            return value
    raise AttributeError(f"module 'transcendent' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBPACKAGES, *(name for name in globals() if name.startswith("__"))])
