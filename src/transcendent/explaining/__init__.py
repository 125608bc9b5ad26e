"""Why an object was rejected, and with what else."""

from transcendent.explaining.campaigns import Campaign, Campaigns, SharedFeature, Spread, find_campaigns
from transcendent.explaining.content import content_keys
from transcendent.explaining.distances import NearestRows, nearest_rows
from transcendent.explaining.looking import looks_needed, may_differ, what_looks_prove
from transcendent.explaining.memory import CaseMemory, Settled, Suggestion

__all__ = [
    "Campaign",
    "Campaigns",
    "CaseMemory",
    "NearestRows",
    "Settled",
    "SharedFeature",
    "Spread",
    "Suggestion",
    "content_keys",
    "find_campaigns",
    "looks_needed",
    "may_differ",
    "nearest_rows",
    "what_looks_prove",
]
