"""What waits, as rows of the desk's first page."""

from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, Engine, text

from transcendent.decisions import DOUBTS
from transcendent.gate.campaign_labels import MAX_LISTED, CampaignLabels
from transcendent.gate.intake import AUDITED, REJECTED
from transcendent.gate.opinions import wanting_opinions
from transcendent.gate.quarantine import Quarantine

_MEDOIDS = """
SELECT payload.id, payload.object_id, payload.context, payload.doubt FROM payload JOIN item USING (id)
WHERE payload.id = ANY(:items) AND item.id = ANY(:items) AND NOT payload.accepted
"""
_HELD = """
SELECT id, object_id, context FROM payload WHERE id = ANY(array(
    SELECT id FROM item WHERE holder = :who AND held_until > now()
    UNION ALL SELECT item FROM unconfirmed WHERE holder = :who AND held_until > now() LIMIT 20))
ORDER BY id
"""


class QueueRow(NamedTuple):
    """A part of the queue, and the ``source`` by which its items are claimed.

    ``size`` is the number of items to look at; ``copies`` of them follow. ``seconds`` is the age of the
    oldest. Of a campaign, ``proven`` says what opening members has shown.
    """

    source: str
    name: str
    size: int
    chips: list[tuple[str, str]]
    like: str | None = None
    first: datetime | None = None
    last: datetime | None = None
    seconds: float | None = None
    proven: str | None = None
    copies: int = 0


class Queue(NamedTuple):
    """The rows of the queue, all that is counted, and the items that the analyst holds, by name."""

    rows: list[QueueRow]
    counts: dict[str, int]
    alone: int
    held: list[tuple[int, str]]


def queue_of(
    engine: Engine, quarantine: Quarantine, campaigns: CampaignLabels, who: str, *, opinions: bool, new: bool
) -> Queue:
    """Return what waits, by campaign; with ``new``, only what nobody has looked at."""
    counts, (_, ages), listed = quarantine.counts(), quarantine.queue(), campaigns.list()
    if len(listed) < MAX_LISTED:
        members = sum(each["waiting"] - each["copies"] for each in listed)
        counts |= {"campaigns": len(listed), "in_campaigns": members}
    alone = max(0, counts["rejected"] + counts["skipped"] - counts["in_campaigns"])
    blind = quarantine.blind_items([_medoid(each) for each in listed], who)
    with engine.connect() as connection:
        rows = _campaigns(connection, [each for each in listed if not new or not _opened(each)], blind)
        wanted = wanting_opinions(connection, who) if opinions and not new else 0
        found = connection.execute(text(_HELD), {"who": who})
        held = [(row.id, title_of(row.object_id, _context(row.context))) for row in found]
    if counts["audit"]:
        chips = [("plain", "answer hidden")]
        rows.append(QueueRow("audit", "Audit", counts["audit"], chips, seconds=ages.get(AUDITED)))
    if wanted:
        rows.append(QueueRow("opinions", "Second opinions", wanted, [("plain", "first label hidden")]))
    if alone:
        chips = [("plain", "least trusted first")]
        rows.append(QueueRow("alone", "Alone", alone, chips, seconds=ages.get(REJECTED)))
    return Queue(rows, counts, alone, held)


def _opened(campaign: dict[str, Any]) -> bool:
    return bool(campaign["opened"] or campaign["labels"])


def _medoid(campaign: dict[str, Any]) -> int:
    return int(campaign["described"].get("medoid", -1))


def _campaigns(connection: Connection, listed: list[dict[str, Any]], blind: set[int]) -> list[QueueRow]:
    """Return rows of campaigns; one whose medoid is to be judged blind is not named after it."""
    medoids = [each for each in map(_medoid, listed) if each not in blind]
    found = connection.execute(text(_MEDOIDS), {"items": medoids}).mappings()
    known = {row["id"]: row for row in found}
    return [_campaign(each, known.get(_medoid(each))) for each in listed]


def _campaign(campaign: dict[str, Any], medoid: Any) -> QueueRow:
    described, chips = campaign["described"], []
    if medoid is not None and medoid["doubt"] is not None:
        chips.append(("bad" if medoid["doubt"] == 1 else "", DOUBTS[medoid["doubt"]]))
    if not _opened(campaign):
        chips.append(("warn", "not triaged"))
    return QueueRow(
        source=f"campaign:{campaign['id']}",
        name="like",
        size=campaign["waiting"] - campaign["copies"],
        copies=campaign["copies"],
        chips=chips,
        like=campaign["id"] if medoid is None else title_of(medoid["object_id"], _context(medoid["context"])),
        first=_time(described.get("first_seen")),
        last=_time(described.get("last_seen")),
        proven=_proven(campaign),
    )


def _proven(campaign: dict[str, Any]) -> str | None:
    if not campaign["opened"]:
        return None
    label = f", all {campaign['label']}" if campaign["label"] is not None else ""
    return f"{campaign['opened']} of {campaign['needed']} opened{label}"


def _context(stored: Any) -> Any:
    return None if stored is None else orjson.loads(stored)


def title_of(object_id: str, context: Any) -> str:
    """Return what an object is called: the name in its context, or its id."""
    name = context.get("name") if isinstance(context, dict) else None
    return name if isinstance(name, str) and name.strip() else object_id


def _time(given: Any) -> datetime | None:
    """Return a time of a campaign's description, which is in UTC."""
    try:
        return datetime.fromisoformat(str(given)).replace(tzinfo=UTC)
    except ValueError:
        return None
