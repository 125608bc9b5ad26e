"""Threshold searches; the ones to use are imported from ``transcendent``, metrics from its ``metrics``."""

from transcendent.thresholds.base import Search, SearchResult

__all__ = ["Search", "SearchResult"]
