"""Which contents form campaigns."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from transcendent.explaining import content_keys, find_campaigns
from transcendent.gate.features import decode

DISTANCE = 0.1
"""The largest Jaccard distance of near contents."""


class GroupedContents(NamedTuple):
    """Contents with the same columns, all rows of ones: what is known of each, and its campaign so far.

    ``taken`` are ids of other campaigns, and ``names`` those of the columns. Times are seconds since 1970.
    """

    features: list[bytes]
    times: list[int]
    p_values: list[float]
    labels: list[str | None]
    campaigns: list[str | None]
    names: Sequence[str] | None
    taken: list[str]


class FoundCampaign(NamedTuple):
    """A campaign of several contents: their places, that of the medoid, and a description in plain values."""

    id: str
    rows: list[int]
    medoid: int
    described: dict[str, Any]


def group_all(given: list[GroupedContents]) -> list[list[FoundCampaign]]:
    """Return the campaigns of each group of contents, with different ids."""
    found: list[list[FoundCampaign]] = []
    for each in given:
        names = [campaign.id for campaigns in found for campaign in campaigns]
        found.append(group(each._replace(taken=[*each.taken, *names])))
    return found


def group(given: GroupedContents) -> list[FoundCampaign]:
    """Return the campaigns of two or more contents."""
    if len(given.features) < 2:
        return []
    rows = _rows(given)
    keys = content_keys(rows).tolist()
    before = {key: name for key, name in zip(keys, given.campaigns, strict=True) if name is not None}
    # No key is like these, so that they match nothing; ids that are in use are not given again.
    before |= {f"taken {name}": name for name in given.taken}
    found = find_campaigns(
        rows,
        distance=DISTANCE,
        times=np.array(given.times, dtype="datetime64[s]").astype("datetime64[m]"),
        p_values=given.p_values,
        names=given.names,
        before=before,
        labels=given.labels,
    )
    campaigns = []
    for campaign in found:
        if campaign.n_contents > 1:
            described = campaign.to_dict()
            members, medoid = described.pop("rows"), described.pop("medoid")
            del described["id"], described["size"]
            campaigns.append(FoundCampaign(campaign.id, members, medoid, described))
    return campaigns


def _rows(given: GroupedContents) -> Any:
    positions = [decode(each)[0] for each in given.features]
    ends = np.cumsum([0, *map(len, positions)])
    indices = np.concatenate(positions)
    width = int(indices.max(initial=-1)) + 1 if given.names is None else len(given.names)
    return sp.csr_array((np.ones(len(indices)), indices, ends), shape=(len(positions), width))
