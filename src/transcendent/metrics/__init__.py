"""Metrics of kept and rejected objects: objectives, constraints, tables, rankings, areas under time."""

from transcendent.metrics.performance import performance, rejection_metrics
from transcendent.metrics.ranking import RiskCoverage, errors_caught, risk_coverage
from transcendent.metrics.ratios import (
    F1,
    Accuracy,
    ClassRejectionRate,
    ErrorRate,
    MacroF1,
    Metric,
    Precision,
    Ratio,
    Recall,
    RejectionRate,
    Tally,
)
from transcendent.metrics.time import AreaUnderTime, area_under_time

__all__ = [
    "F1",
    "Accuracy",
    "AreaUnderTime",
    "ClassRejectionRate",
    "ErrorRate",
    "MacroF1",
    "Metric",
    "Precision",
    "Ratio",
    "Recall",
    "RejectionRate",
    "RiskCoverage",
    "Tally",
    "area_under_time",
    "errors_caught",
    "performance",
    "rejection_metrics",
    "risk_coverage",
]
