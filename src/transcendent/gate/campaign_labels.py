"""Label whole campaigns, once people have opened some members that chance has drawn."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from sqlalchemy import Connection, Engine, text

from transcendent._utils.text import counted
from transcendent.explaining import what_looks_prove
from transcendent.gate.inferring import take_back_all
from transcendent.gate.intake import COPY, FREE, WAITS
from transcendent.gate.label_work import STANDS, infer, label_copies_of, pending
from transcendent.gate.members import IN_CAMPAIGN, CampaignStanding, Unsettled, standings
from transcendent.gate.opinions import opinions_on, unsettled_items
from transcendent.gate.quarantine import ConflictError, NoItemError

MAX_LISTED = 100
_UNDONE = "the label of the campaign was undone"

_WAITING = f"""
SELECT campaign.id, campaign.described, campaign.found_at, count(*) AS waiting,
    count(*) FILTER (WHERE item.tier = {COPY}) AS copies
FROM campaign JOIN content ON content.campaign = campaign.id
JOIN item_content AS known ON known.key = content.key JOIN item ON item.id = known.item
WHERE item.state = 0 AND {IN_CAMPAIGN} AND NOT {pending("known")} {{}}
GROUP BY campaign.id
"""
_WAITING_OF = _WAITING.format("AND campaign.id = :campaign")
_MAY_CHANGE = "SELECT pg_advisory_xact_lock_shared(3, 3)"  # no grouping changes members meanwhile
_LOCK_LABELLED = "SELECT id FROM item WHERE id = ANY(:items) ORDER BY id FOR UPDATE"
# Neither the audit nor objects that a shadow drew: each of those is looked at.
_LOCK_MEMBERS = f"""
SELECT item.id FROM content JOIN item_content AS known ON known.key = content.key
JOIN item ON item.id = known.item JOIN payload ON payload.id = item.id
WHERE content.campaign = :campaign AND {WAITS} AND item.tier > 0 AND {FREE} AND NOT payload.accepted
    AND NOT EXISTS (SELECT FROM disagreement WHERE disagreement.item = item.id)
    AND NOT EXISTS (SELECT FROM settled_look WHERE settled_look.item = item.id)
    AND NOT EXISTS (SELECT FROM item AS leader WHERE leader.id = content.leader AND leader.held_until > now())
ORDER BY item.id FOR UPDATE OF item
"""
# Whoever holds the leader of a content labels its copies, too. LATERAL as in `quarantine`.
_WITH_COPIES = f"""
SELECT content.key FROM content WHERE content.campaign = :campaign
    AND NOT EXISTS (SELECT FROM item AS leader WHERE leader.id = content.leader AND leader.held_until > now())
    AND EXISTS (
        SELECT FROM item_content AS known, LATERAL (
            SELECT FROM item WHERE item.id = known.item AND state + 0 = 0 AND tier + 0 = {COPY} LIMIT 1
        ) AS copy WHERE known.key = content.key AND NOT {pending("known")}
    ) ORDER BY content.key
"""
_MODEL = "SELECT model FROM item JOIN label ON label.item = item.id WHERE label.id = ANY(:sources) LIMIT 1"
_REMARK = "SELECT max(label) FROM inferred WHERE item = ANY(:items)"
_AUTHORS = f"""
SELECT DISTINCT label.author FROM inferred JOIN item ON item.id = inferred.item
JOIN label ON label.id = inferred.label
WHERE inferred.sources && CAST(:sources AS bigint[]) AND inferred.how = 'campaign' AND {STANDS}
"""
_SOURCES = """
SELECT last.id FROM content JOIN LATERAL (
    SELECT id FROM label WHERE label.item = content.labelled ORDER BY id DESC LIMIT 1
) AS last ON true WHERE content.campaign = :campaign AND content.label IS NOT NULL
"""


class CampaignLabels:
    """The campaigns of a database. With ``opinions=2``, labels count once two analysts agree on them.

    ``acted`` is called after each label and undo, as that of `Quarantine`.
    """

    def __init__(
        self,
        engine: Engine,
        opinions: int = 1,
        acted: Callable[[str, str, str | None], None] = lambda *_: None,
    ) -> None:
        self._engine, self._opinions, self._acted = engine, opinions, acted

    def list(self) -> list[dict[str, Any]]:
        """Return the campaigns with members that wait, those with the most for each look first."""
        with self._engine.connect() as connection:
            rows = connection.execute(text(_WAITING.format(""))).mappings().all()
            known = standings(connection, [row["id"] for row in rows], self._unsettled(connection))
            rows = sorted(rows, key=lambda row: (-_gain(row["waiting"], known[row["id"]]), row["id"]))
            return [self._shown(connection, dict(row), known[row["id"]]) for row in rows[:MAX_LISTED]]

    def get(self, campaign: str) -> dict[str, Any] | None:
        """Return a campaign with members that wait, if it has some."""
        with self._engine.connect() as connection:
            row = connection.execute(text(_WAITING_OF), {"campaign": campaign}).mappings().first()
            known = standings(connection, [campaign], self._unsettled(connection)) if row else {}
            return self._shown(connection, dict(row), known[campaign]) if row else None

    def _shown(self, connection: Connection, row: dict[str, Any], of: CampaignStanding) -> dict[str, Any]:
        labels = self._labels(connection, of)
        missing = _missing(of, labels)
        return {
            **row,
            "contents": of.contents,
            "opened": of.opened,
            "needed": of.needed,
            "unlike": of.unlike,
            "labels": dict(Counter(label for label in labels.values() if label is not None)),
            "label": next(iter(labels.values())) if missing is None else None,
            "missing": missing,
            "proves": _proof(of, labels),
        }

    def resolve(
        self, who: str, campaign: str, label: str, *, reason: str | None = None, note: str | None = None
    ) -> dict[str, Any]:
        """Label the members of a campaign that wait and that nobody holds, and return their number."""
        with self._engine.begin() as connection:
            of = _locked(connection, campaign, self._unsettled(connection))
            labels = self._labels(connection, of)
            if missing := _missing(of, labels):
                raise ConflictError(f"campaign {campaign} cannot be labelled: {missing}.")
            found = next(iter(labels.values()))
            if label != found:
                raise ConflictError(f"the members of campaign {campaign} that were opened are {found!r:.80}.")
            connection.execute(text("SET LOCAL synchronous_commit = on"))  # the role's default may be off
            items = list(connection.execute(text(_LOCK_MEMBERS), {"campaign": campaign}).scalars())
            infer(connection, items, label, who, "campaign", of.sources, reason=reason, note=note)
            copies = _label_copies(connection, campaign, label, who, of.sources, items)
        self._acted("label", who, label)
        return {"campaign": campaign, "label": label, "items": len(items) + copies}

    def undo(self, who: str, campaign: str, *, anyone: bool = False) -> dict[str, Any]:
        """Take back the labels that a campaign's members got together: one's own, or those of ``anyone``."""
        with self._engine.begin() as connection:
            _locked(connection, campaign, self._unsettled(connection))
            sources = list(connection.execute(text(_SOURCES), {"campaign": campaign}).scalars())
            authors = connection.execute(text(_AUTHORS), {"sources": sources}).scalars().all()
            if not authors:
                raise ConflictError(f"no labels of campaign {campaign} are there to undo.")
            if set(authors) != {who} and not anyone:
                raise ConflictError(
                    f"campaign {campaign} was labelled by {', '.join(sorted(authors)):.200}: only its author "
                    "or an operator may undo that."
                )
            connection.execute(text("SET LOCAL synchronous_commit = on"))
            taken = take_back_all(connection, sources, who, ["campaign"], why=_UNDONE, count=True)
        self._acted("undo", who, None)
        return {"campaign": campaign, "label": None, "items": taken}

    def _unsettled(self, connection: Connection) -> Unsettled:
        return partial(unsettled_items, connection) if self._opinions > 1 else lambda _: ()

    def _labels(self, connection: Connection, of: CampaignStanding) -> dict[int, str | None]:
        """Return labels by item, None where two analysts do not agree yet: nobody is to see those."""
        if self._opinions == 1 or not of.labels:
            return dict(of.labels)
        return {item: said.agreed for item, said in opinions_on(connection, list(of.labels)).items()}


def _label_copies(
    connection: Connection, campaign: str, label: str, who: str, sources: list[int], members: list[int]
) -> int:
    """Label the copies of members, some of them soon, and return their number."""
    keys = connection.execute(text(_WITH_COPIES), {"campaign": campaign}).scalars().all()
    model = connection.execute(text(_MODEL), {"sources": sources}).scalar()
    if not keys or model is None:
        return 0
    remark = connection.execute(text(_REMARK), {"items": members}).scalar()
    given = {"model": model, "remark": remark, "count": True}
    return label_copies_of(connection, keys, label, who, "campaign", sources, **given)


def _locked(connection: Connection, campaign: str, unsettled: Unsettled) -> CampaignStanding:
    """Return what people have found out about a campaign, none of which can change until the commit."""
    connection.execute(text(_MAY_CHANGE))
    sql = text("SELECT FROM campaign WHERE id = :id FOR UPDATE")
    if connection.execute(sql, {"id": campaign}).first() is None:
        raise NoItemError(f"campaign {campaign!r:.80} does not exist: it may have become part of another.")
    of = standings(connection, [campaign], unsettled).get(campaign)
    if of is None:
        raise NoItemError(f"campaign {campaign} has no members any more.")
    connection.execute(text(_LOCK_LABELLED), {"items": list(of.labels)})
    # Labels may have been undone before the lock.
    return standings(connection, [campaign], unsettled)[campaign]


def _gain(waiting: int, of: CampaignStanding) -> float:
    """Return the number of waiting items for each look; to label the campaign is one, too."""
    return waiting / (1 + of.needed - of.opened)


def _proof(of: CampaignStanding, labels: dict[int, str | None]) -> str | None:
    """Return what the opened members prove, unless they have different labels."""
    found = set(labels.values()) or {None}
    if len(found) > 1:
        return None
    return what_looks_prove(of.opened, unlike=of.unlike, label=found.pop(), members=of.among)


def _missing(of: CampaignStanding, labels: dict[int, str | None]) -> str | None:
    """Return why a campaign cannot be labelled; None if it can."""
    given = Counter(labels.values())
    if of.contested:
        return f"{counted(of.contested, 'content')} had two labels; the next grouping leaves it out"
    if n := given.pop(None, 0):
        return f"analysts do not agree yet on the label of {counted(n, 'member')}"
    if len(given) > 1:
        found = ", ".join(f"{label}: {n}" for label, n in sorted(given.items(), key=str))
        return f"its members have different labels ({found:.200}); the next grouping splits it"
    if not of.needed:
        return "nobody has opened a member since it was last labelled or split"
    if of.opened < of.needed:
        rest = counted(of.needed - of.opened, "more member")
        return f"{of.opened} of {of.needed} are opened: claim and label {rest} of it, drawn at random"
    return None
