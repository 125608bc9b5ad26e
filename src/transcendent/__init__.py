"""Tell which answers of a classifier can still be trusted."""

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transcendent.artifacts.artifact import load, save
    from transcendent.decisions import Answers, Decisions, Rejector
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
    "Answers",
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
    "decisions": ("Answers", "Decisions", "Rejector"),
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
_PRIVATE = {"__main__", "_utils", "cli", "decisions", "evaluators", "merging"}
_SUBPACKAGES = {module.name for module in iter_modules(__path__)} - _PRIVATE


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that the command line starts without scikit-learn."""
    if name in _SUBPACKAGES:
        return import_module(f"transcendent.{name}")
    for module, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"transcendent.{module}"), name)
            return value
    raise AttributeError(f"module 'transcendent' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBPACKAGES, *(name for name in globals() if name.startswith("__"))])
