"""How good the kept answers are, how bad the rejected ones, and how well objects were ranked."""

from transcendent.metrics.performance import performance, rejection_metrics
from transcendent.metrics.ranking import RiskCoverage, errors_caught, risk_coverage
from transcendent.metrics.time import AreaUnderTime, area_under_time

__all__ = [
    "AreaUnderTime",
    "RiskCoverage",
    "area_under_time",
    "errors_caught",
    "performance",
    "rejection_metrics",
    "risk_coverage",
]
