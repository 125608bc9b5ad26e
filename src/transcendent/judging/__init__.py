"""From scores to decisions: calibration objects, p-values, thresholds."""

from transcendent.judging.calibration import AlphaAssessment, Calibration
from transcendent.judging.pvalues import p_values

__all__ = ["AlphaAssessment", "Calibration", "p_values"]
