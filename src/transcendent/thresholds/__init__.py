"""Threshold searches; the ones to use are imported from ``transcendent``, metrics from its ``metrics``."""

from transcendent.thresholds.base import Search, SearchResult
from transcendent.thresholds.guaranteed import GuaranteedResult, Proof

__all__ = ["GuaranteedResult", "Proof", "Search", "SearchResult"]
