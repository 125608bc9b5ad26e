"""What a person has done last, and how it is taken back."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, Engine, text

from transcendent.gate.access import Caller
from transcendent.gate.campaign_labels import CampaignLabels
from transcendent.gate.pages.desk_queue import title_of
from transcendent.gate.quarantine import ConflictError, Quarantine

MOST = 50
"""Number of actions that are listed."""

_ACTED = ("label", "skip", "opinion")
# Whether an action still holds: only the last one of an item can be taken back. An undo with a reason has
# followed from another action.
_ACTIONS = """
(SELECT mine.item, mine.action, mine.label, mine.written_at, mine.id AS number, payload.object_id,
    payload.context, mine.action <> 'undo' AND payload.id IS NOT NULL
        AND NOT EXISTS (SELECT FROM label AS later
            WHERE later.item = mine.item AND later.id > mine.id) AS holds
FROM label AS mine LEFT JOIN inferred ON inferred.label = mine.id
LEFT JOIN payload ON payload.id = mine.item
WHERE mine.author = :who AND inferred.label IS NULL AND mine.action = ANY(:actions)
    AND NOT (mine.action = 'undo' AND EXISTS (
        SELECT FROM remark WHERE remark.label = mine.id AND remark.reason IS NOT NULL))
ORDER BY mine.written_at DESC, mine.id DESC LIMIT :most)
UNION ALL
(SELECT mine.item, mine.action, mine.label, mine.written_at, mine.id AS number, payload.object_id,
    payload.context, mine.action <> 'undo' AND mine.author = mine.writer AND payload.id IS NOT NULL
        AND NOT EXISTS (SELECT FROM opinion AS later
            WHERE later.item = mine.item AND later.author = :who AND later.id > mine.id) AS holds
FROM opinion AS mine LEFT JOIN payload ON payload.id = mine.item
WHERE mine.writer = :who AND mine.action = ANY(:actions)
ORDER BY mine.written_at DESC, mine.id DESC LIMIT :most)
"""
# Members of a campaign got their labels in one transaction, which has one time.
_CAMPAIGNS = """
SELECT found.written_at, found.label, found.items, content.campaign, EXISTS (
    SELECT FROM item WHERE item.id = found.item AND item.state = 1
        AND found.number = (SELECT max(id) FROM label WHERE label.item = found.item)
) AND content.campaign IS NOT NULL AS holds
FROM (
    SELECT mine.written_at, min(mine.label) AS label, count(*) AS items, max(mine.id) AS number,
        (array_agg(mine.item ORDER BY mine.id DESC))[1] AS item
    FROM label AS mine JOIN inferred ON inferred.label = mine.id AND inferred.how = 'campaign'
    WHERE mine.author = :who AND mine.written_at >= CAST(:since AS timestamptz) AND mine.action = 'label'
    GROUP BY mine.written_at ORDER BY mine.written_at DESC LIMIT :most
) AS found
LEFT JOIN item_content AS known ON known.item = found.item LEFT JOIN content ON content.key = known.key
"""
_FOLLOWED = """
SELECT remark.reason, count(*) AS items FROM label JOIN remark ON remark.label = label.id
WHERE author = :who AND written_at = :at AND action = 'undo' AND remark.reason IS NOT NULL GROUP BY 1
"""
_SINCE = "date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'"
_TODAY = f"""
SELECT (SELECT count(*) FROM (
    SELECT FROM label LEFT JOIN inferred ON inferred.label = label.id
    WHERE author = :who AND action = 'label' AND inferred.label IS NULL AND written_at >= {_SINCE} LIMIT 10000
) AS given) + (
    SELECT count(*) FROM opinion
    WHERE writer = :who AND author = :who AND action = 'opinion' AND written_at >= {_SINCE}
)
"""


class OwnAction(NamedTuple):
    """What a person did with an item, or with the members of a campaign.

    ``which`` names it for a form that takes it back, if it still ``holds``. ``number`` orders those of one
    time.
    """

    which: str
    action: str
    label: str | None
    written_at: datetime
    holds: bool
    item: int | None
    items: int
    name: str = ""
    number: int = 0


def own_actions(
    connection: Connection, who: str, most: int = MOST, actions: Sequence[str] = (*_ACTED, "undo")
) -> list[OwnAction]:
    """Return what a person has done, latest first."""
    given: dict[str, Any] = {"who": who, "most": most, "actions": list(actions)}
    found = [_of_item(row) for row in connection.execute(text(_ACTIONS), given)]
    found = sorted(found, key=_place, reverse=True)[:most]
    given["since"] = "-infinity" if len(found) < most else found[-1].written_at
    for row in connection.execute(text(_CAMPAIGNS), given):
        which = f"campaign:{row.campaign}"
        found.append(OwnAction(which, "campaign", row.label, row.written_at, row.holds, None, row.items))
    return sorted(found, key=_place, reverse=True)[:most]


def _place(action: OwnAction) -> tuple[datetime, int]:
    return action.written_at, action.number


def _of_item(row: Any) -> OwnAction:
    which = f"item:{row.item}"
    context = None if row.context is None else orjson.loads(row.context)
    name = f"item {row.item}" if row.object_id is None else title_of(row.object_id, context)
    return OwnAction(which, row.action, row.label, row.written_at, row.holds, row.item, 1, name, row.number)


def last_to_undo(connection: Connection, who: str) -> OwnAction | None:
    """Return the last action of a person that can be taken back, if it is among their latest."""
    for most in (10, MOST):  # mostly the last one holds
        found = own_actions(connection, who, most, _ACTED)
        if (last := next((each for each in found if each.holds), None)) or len(found) < most:
            return last
    return None


def followed(connection: Connection, who: str, action: OwnAction) -> list[Any]:
    """Return how many labels were taken back because of an action of a person, by the reason."""
    return list(connection.execute(text(_FOLLOWED), {"who": who, "at": action.written_at}))


def labelled_today(connection: Connection, who: str) -> int:
    """Return the number of labels and opinions that a person has given today, in UTC."""
    return int(connection.execute(text(_TODAY), {"who": who}).scalar_one())


def take_back(
    engine: Engine, quarantine: Quarantine, campaigns: CampaignLabels, caller: Caller, which: str
) -> tuple[int | None, int]:
    """Take back an action of a person, the last one by default.

    Return the item, which they hold again if they can, or None and the number of items of a campaign.
    """
    if not which:
        with engine.connect() as connection:
            last = last_to_undo(connection, caller.name)
        if last is None:
            raise ConflictError("there is nothing of yours to undo.")
        which = last.which
    kind, _, name = which.partition(":")
    if kind == "campaign":
        return None, campaigns.undo(caller.name, name)["items"]
    quarantine.undo(caller.name, int(name))
    with suppress(ConflictError):  # it is undone, also if they hold too many items
        quarantine.take(caller.name, int(name))
    return int(name), 1
