"""What rejection was done with before: rejectors to compare an evaluator with."""

from transcendent.baselines.cp_reject import CPReject
from transcendent.baselines.droidevolver import DroidEvolver
from transcendent.baselines.probability import ProbabilityThresholds

__all__ = ["CPReject", "DroidEvolver", "ProbabilityThresholds"]
