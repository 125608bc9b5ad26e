"""Experiments in TOML files: data, a split, a detector, rejectors."""

from transcendent.experiments.answers import propose_answers
from transcendent.experiments.experiment import Experiment, read
from transcendent.experiments.proposing import propose

__all__ = ["Experiment", "propose", "propose_answers", "read"]
