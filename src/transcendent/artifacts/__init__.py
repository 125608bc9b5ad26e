"""A fitted rejector as one file that can be checked before it is believed."""

from transcendent.artifacts.artifact import Artifact, load, open_artifact, save

__all__ = ["Artifact", "load", "open_artifact", "save"]
