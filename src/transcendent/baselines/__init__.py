"""Earlier rejection methods, for comparison with an evaluator."""

from transcendent.baselines.cp_reject import CPReject
from transcendent.baselines.droidevolver import DroidEvolver
from transcendent.baselines.probability import ProbabilityThresholds

__all__ = ["CPReject", "DroidEvolver", "ProbabilityThresholds"]
