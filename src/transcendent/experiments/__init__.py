"""Experiments in TOML files: data, a split, a detector, rejectors."""

from transcendent.experiments.experiment import Experiment, read
from transcendent.experiments.proposing import propose

__all__ = ["Experiment", "propose", "read"]
