"""Tells the owner of a classifier which of its answers can still be trusted."""

from transcendent.decisions import Decisions, Rejector
from transcendent.evaluators.cross import CrossConformalEvaluator
from transcendent.evaluators.inductive import InductiveEvaluator
from transcendent.evaluators.scores import ScoreEvaluator
from transcendent.evaluators.transductive import TransductiveEvaluator
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
    "RejectionRate",
    "Rejector",
    "ScoreEvaluator",
    "TransductiveEvaluator",
]
