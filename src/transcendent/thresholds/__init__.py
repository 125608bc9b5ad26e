"""Threshold searches, objectives and constraints; the ones to use are imported from ``transcendent``."""

from transcendent.thresholds.base import Search, SearchResult
from transcendent.thresholds.metrics import Constraint, Metric, Ratio

__all__ = ["Constraint", "Metric", "Ratio", "Search", "SearchResult"]
