"""The members of campaigns, and what people have found out about them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from transcendent.gate.intake import FREE, WAITS
from transcendent.gate.label_work import STANDS

Unsettled = Callable[[Sequence[int]], Collection[int]]
"""Returns those of some items on whose label another opinion is wanted: nobody is told about it."""
LOOKS_NEEDED = 3
"""Number of members that people label, drawn at random, before the others get their label."""

# An object that is looked at although it could be settled is judged without its campaign: it is drawn for
# nobody, and its label counts once it has one.
_NO_LOOK = "NOT EXISTS (SELECT FROM settled_look WHERE settled_look.item = {}.id)"
IN_CAMPAIGN = """
CASE WHEN item.tier = 2 THEN NOT (SELECT accepted FROM payload WHERE payload.id = item.id)
    AND (SELECT true FROM settled_look WHERE settled_look.item = item.id) IS NULL ELSE item.tier > 0 END"""
"""SQL that says whether an item is judged with its campaign: what checks answers is not, nor if skipped."""
# The order is that of a keyed hash of the content, which no sender can foresee.
_CLAIM = f"""
SELECT item.id FROM content JOIN item ON item.id = content.leader
WHERE content.campaign = :campaign AND content.label IS NULL AND {WAITS} AND {FREE}
    AND {_NO_LOOK.format("item")} AND (:skipped OR item.skipped_by IS DISTINCT FROM :who)
ORDER BY content.place LIMIT :count FOR UPDATE OF item SKIP LOCKED
"""
# A content may have a label while items of it wait: one of the audit got it, or an item has left its copies.
# They change nothing about what is drawn, so they come last.
_CLAIM_LEFT = f"""
SELECT item.id FROM content JOIN item_content AS known ON known.key = content.key
JOIN item ON item.id = known.item
WHERE content.campaign = :campaign AND {WAITS} AND {FREE} AND {IN_CAMPAIGN}
    AND (:skipped OR item.skipped_by IS DISTINCT FROM :who)
    AND NOT item.id = ANY(:drawn)
ORDER BY content.place, item.id LIMIT :count FOR UPDATE OF item SKIP LOCKED
"""
_OF_ITEMS = """
SELECT known.item, content.campaign FROM item_content AS known JOIN content ON content.key = known.key
WHERE known.item = ANY(:items) AND content.campaign IS NOT NULL
"""
# The label of a content is that of the item `labelled`. If it has none, the item that stood for it may have
# one that is no class, or one of another system: `aside`. `resolved` is one of the labels that follow from
# that of the content: they were written together, after all labels that people had given then.
_MEMBERS = f"""
SELECT content.campaign, content.label, content.labelled, content.leader, content.contested,
    last.id AS action, campaign.looks_after,
    coalesce(leader.state = 0 AND leader.tier < 3, false) AND {_NO_LOOK.format("leader")} AS waits,
    aside.id AS aside,
    (SELECT inferred.label FROM inferred JOIN item ON item.id = inferred.item
    WHERE inferred.sources @> ARRAY[last.id] AND inferred.how = 'campaign' AND {STANDS} LIMIT 1) AS resolved
FROM content JOIN campaign ON campaign.id = content.campaign
LEFT JOIN item AS leader ON leader.id = content.leader
LEFT JOIN LATERAL (
    SELECT id FROM label WHERE content.label IS NOT NULL AND label.item = content.labelled
    ORDER BY id DESC LIMIT 1
) AS last ON true
LEFT JOIN LATERAL (
    SELECT id FROM label WHERE content.label IS NULL AND leader.state = 1 AND label.item = leader.id
    ORDER BY id DESC LIMIT 1
) AS aside ON NOT EXISTS (SELECT FROM inferred WHERE inferred.label = aside.id)
WHERE content.campaign = ANY(:campaigns) ORDER BY content.campaign, content.place
"""
# Of the rows of the queue, which copies are not: their number is bounded.
_COUNTED = f"""
SELECT count(DISTINCT content.campaign), count(*) FROM content JOIN item ON item.id = content.leader
WHERE content.campaign IS NOT NULL AND {WAITS}
"""


class CampaignStanding(NamedTuple):
    """What people have found out about a campaign.

    The first ``needed`` contents in the random order, of those that wait or that people have labelled since
    the campaign last got a label or was split, must be opened: ``opened`` of them are. ``unlike`` contents
    before the last of these have got a label meanwhile that says nothing about the campaign. ``sources`` are
    the numbers of the labels. ``labels`` has those of all contents, by the item that a person labelled.
    ``among`` counts the contents that are drawn from. A label on which another opinion is wanted is None,
    whatever it is, and its content is not opened yet.
    """

    contents: int
    among: int
    needed: int
    opened: int
    unlike: int
    sources: list[int]
    labels: dict[int, str | None]
    contested: int


def claim_members(connection: Connection, campaign: str, given: Mapping[str, Any]) -> list[int]:
    """Lock items of a campaign in a random order; those whose contents have a label already come last.

    ``given`` has ``who`` claims them, the ``count``, and whether to include those that they have ``skipped``.
    """
    given = {**given, "campaign": campaign}
    drawn = list(connection.execute(text(_CLAIM), given).scalars())
    given |= {"count": given["count"] - len(drawn), "drawn": drawn}
    left = list(connection.execute(text(_CLAIM_LEFT), given).scalars()) if given["count"] else []
    return drawn + left


def exists(connection: Connection, campaign: str) -> bool:
    """Return whether there is such a campaign."""
    sql = text("SELECT FROM campaign WHERE id = :id")
    return connection.execute(sql, {"id": campaign}).first() is not None


def standings(
    connection: Connection, campaigns: Sequence[str], unsettled: Unsettled
) -> dict[str, CampaignStanding]:
    """Return what people have found out about campaigns."""
    rows = connection.execute(text(_MEMBERS), {"campaigns": list(campaigns)}).all()
    judged = map(_judged, rows)
    wanted = unsettled([each.item for each in judged if each.action is not None])
    return {
        name: _standing(list(members), wanted)
        for name, members in groupby(rows, lambda row: str(row.campaign))
    }


class _ItemOfContent(NamedTuple):
    """The item of a content that a person has labelled, and that action; None if nobody has."""

    item: int
    action: int | None


def _judged(row: Any) -> _ItemOfContent:
    given = (row.leader, row.aside) if row.label is None else (row.labelled, row.action)
    return _ItemOfContent(*given)


def _standing(members: list[Any], wanted: Collection[int]) -> CampaignStanding:
    """Return what people have found out; another opinion is ``wanted`` on the label of some items."""
    before = max(max(row.resolved or 0, row.looks_after) for row in members)
    drawn: list[_ItemOfContent] = []
    labels: dict[int, str | None] = {}
    among = unlike = 0
    for row in members:
        item, action = _judged(row)
        is_open = action is not None and item in wanted
        if is_open or row.label is not None:
            labels[item] = None if is_open else row.label
        if row.waits if action is None else action > before:
            among += 1
            if action is not None and item not in labels:  # it says nothing
                unlike += len(drawn) < LOOKS_NEEDED
            elif len(drawn) < LOOKS_NEEDED:
                drawn.append(_ItemOfContent(item, action))
    sources = [action for item, action in drawn if action is not None and labels[item] is not None]
    contested = sum(row.contested for row in members)
    return CampaignStanding(len(members), among, len(drawn), len(sources), unlike, sources, labels, contested)


def campaigns_of(
    connection: Connection, items: Sequence[int], unsettled: Unsettled
) -> dict[int, dict[str, Any]]:
    """Return the campaign of each item that is in one, as analysts see it beside the item."""
    found = {row.item: row.campaign for row in connection.execute(text(_OF_ITEMS), {"items": list(items)})}
    known = standings(connection, sorted(set(found.values())), unsettled) if found else {}
    shown = {
        name: {"id": name, "contents": each.contents, "opened": each.opened, "needed": each.needed}
        for name, each in known.items()
    }
    return {item: shown[name] for item, name in found.items()}


def count_members(connection: Connection) -> dict[str, int]:
    """Count the campaigns that have members that wait, and these rows of the queue."""
    campaigns, members = connection.execute(text(_COUNTED)).one()
    return {"campaigns": campaigns, "in_campaigns": members}
