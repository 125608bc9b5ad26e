"""What waits, as rows of the desk's first page."""

from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, Engine, text

from transcendent.decisions import DOUBTS
from transcendent.gate.campaign_labels import CampaignLabels
from transcendent.gate.intake import AUDITED, REJECTED
from transcendent.gate.opinions import wanting_opinions
from transcendent.gate.quarantine import Quarantine

_MEDOIDS = """
SELECT payload.id, payload.object_id, payload.context, payload.doubt FROM payload JOIN item USING (id)
WHERE payload.id = ANY(:items) AND item.id = ANY(:items) AND NOT payload.accepted
"""
_HELD = """
SELECT id, object_id FROM payload WHERE id = ANY(array(
    SELECT id FROM item WHERE holder = :who AND held_until > now()
    UNION ALL SELECT item FROM unconfirmed WHERE holder = :who AND held_until > now() LIMIT 20))
ORDER BY id
"""


class QueueRow(NamedTuple):
    """A part of the queue, and the ``source`` by which its items are claimed.

    ``seconds`` is the age of the oldest. Of a campaign, ``proven`` says what opening members has shown.
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


class Queue(NamedTuple):
    """The rows of the queue, all that is counted, and the items that the analyst holds."""

    rows: list[QueueRow]
    counts: dict[str, int]
    alone: int
    held: list[Any]


def queue_of(
    engine: Engine, quarantine: Quarantine, campaigns: CampaignLabels, who: str, *, opinions: bool, new: bool
) -> Queue:
    """Return what waits, by campaign; with ``new``, only what nobody has looked at."""
    counts, (_, ages), listed = quarantine.counts(), quarantine.queue(), campaigns.list()
    alone = max(0, counts["rejected"] - counts["in_campaigns"])
    with engine.connect() as connection:
        rows = _campaigns(connection, [each for each in listed if not new or not _opened(each)])
        wanted = wanting_opinions(connection, who) if opinions and not new else 0
        held = list(connection.execute(text(_HELD), {"who": who}).mappings())
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


def _campaigns(connection: Connection, listed: list[dict[str, Any]]) -> list[QueueRow]:
    medoids = [each["described"].get("medoid", -1) for each in listed]
    found = connection.execute(text(_MEDOIDS), {"items": medoids}).mappings()
    known = {row["id"]: row for row in found}
    return [_campaign(each, known.get(medoid)) for each, medoid in zip(listed, medoids, strict=True)]


def _campaign(campaign: dict[str, Any], medoid: Any) -> QueueRow:
    described, chips = campaign["described"], []
    if medoid is not None and medoid["doubt"] is not None:
        chips.append(("bad" if medoid["doubt"] == 1 else "", DOUBTS[medoid["doubt"]]))
    if not _opened(campaign):
        chips.append(("warn", "not triaged"))
    return QueueRow(
        source=f"campaign:{campaign['id']}",
        name="like",
        size=campaign["waiting"],
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
