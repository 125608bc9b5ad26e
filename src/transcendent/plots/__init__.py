"""Figures. Each Display holds the arrays it draws; ``plot`` draws them with matplotlib."""

from transcendent.plots.calibration import AlphaAssessmentDisplay, TradeOffDisplay
from transcendent.plots.comparison import ComparisonDisplay
from transcendent.plots.differences import DifferenceDisplay
from transcendent.plots.monitoring import EvidenceDisplay, MonitorDisplay
from transcendent.plots.performance import PerformanceDisplay
from transcendent.plots.quorum import QuorumDisplay
from transcendent.plots.risk_coverage import RiskCoverageDisplay
from transcendent.plots.shift import CovariateShiftDisplay
from transcendent.plots.staffing import StaffingDisplay

__all__ = [
    "AlphaAssessmentDisplay",
    "ComparisonDisplay",
    "CovariateShiftDisplay",
    "DifferenceDisplay",
    "EvidenceDisplay",
    "MonitorDisplay",
    "PerformanceDisplay",
    "QuorumDisplay",
    "RiskCoverageDisplay",
    "StaffingDisplay",
    "TradeOffDisplay",
]
