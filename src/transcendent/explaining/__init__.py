"""Why an object was rejected, and what it is like."""

from transcendent.explaining.explanation import Explanation, explain
from transcendent.explaining.known_objects import KnownObjects

__all__ = ["Explanation", "KnownObjects", "explain"]
