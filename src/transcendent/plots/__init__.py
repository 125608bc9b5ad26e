"""Displays: computed first, as plain arrays, then drawn by ``plot`` with matplotlib."""

from transcendent.plots.calibration import AlphaAssessmentDisplay, TradeOffDisplay
from transcendent.plots.monitoring import EvidenceDisplay, MonitorDisplay
from transcendent.plots.performance import PerformanceDisplay
from transcendent.plots.quorum import QuorumDisplay
from transcendent.plots.risk_coverage import RiskCoverageDisplay
from transcendent.plots.shift import CovariateShift, CovariateShiftDisplay, covariate_shift

__all__ = [
    "AlphaAssessmentDisplay",
    "CovariateShift",
    "CovariateShiftDisplay",
    "EvidenceDisplay",
    "MonitorDisplay",
    "PerformanceDisplay",
    "QuorumDisplay",
    "RiskCoverageDisplay",
    "TradeOffDisplay",
    "covariate_shift",
]
