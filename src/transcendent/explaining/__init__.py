"""Why an object was rejected, what it is like, and with what else."""

from transcendent.explaining.campaigns import Campaign, Campaigns, SharedFeature, Spread, find_campaigns
from transcendent.explaining.content import content_keys
from transcendent.explaining.distances import NearestRows, nearest_rows
from transcendent.explaining.explanation import Explanation, explain
from transcendent.explaining.known_objects import KnownObjects
from transcendent.explaining.looking import looks_needed, may_differ, what_looks_prove
from transcendent.explaining.memory import CaseMemory
from transcendent.explaining.suggestions import Settled, Suggestion

__all__ = [
    "Campaign",
    "Campaigns",
    "CaseMemory",
    "Explanation",
    "KnownObjects",
    "NearestRows",
    "Settled",
    "SharedFeature",
    "Spread",
    "Suggestion",
    "content_keys",
    "explain",
    "find_campaigns",
    "looks_needed",
    "may_differ",
    "nearest_rows",
    "what_looks_prove",
]
