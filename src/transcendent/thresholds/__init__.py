"""Base class and results of the threshold searches, which are themselves imported from ``transcendent``."""

from transcendent.thresholds.base import Search, SearchLike, SearchResult
from transcendent.thresholds.guaranteed import GuaranteedResult

__all__ = ["GuaranteedResult", "Search", "SearchLike", "SearchResult"]
