"""What evaluators are made of; the evaluators themselves are imported from ``transcendent``."""

from transcendent.evaluators.base import CalibratedDetector, Detector
from transcendent.evaluators.calibration import AlphaAssessment, Calibration

__all__ = ["AlphaAssessment", "CalibratedDetector", "Calibration", "Detector"]
