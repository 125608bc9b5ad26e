"""A fitted rejector as one file that can be checked before it is used."""

from transcendent.artifacts.artifact import Artifact, open_artifact
from transcendent.artifacts.artifact import load as load
from transcendent.artifacts.artifact import save as save

__all__ = ["Artifact", "open_artifact"]
