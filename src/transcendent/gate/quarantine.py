"""The quarantine as analysts see it: claim, label, skip, undo.

An item waits, has a label, or is closed. Claiming a waiting item holds it for the time of a lease. After
that, others may claim it; no cleanup job is needed. Claims come in this order: the audit sample, objects
drawn because a shadow disagrees, rejected objects (least trusted first), skipped objects.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection, Engine, text

from transcendent.errors import TranscendentError
from transcendent.gate.blinding import blind_items, blinded
from transcendent.gate.days import begin_work
from transcendent.gate.inferring import (
    await_content,
    disprove,
    label_copies,
    note_opened,
    remember,
    take_back,
)
from transcendent.gate.intake import AUDITED, COPY, FREE, REJECTED, SKIPPED, WAITS
from transcendent.gate.label_work import count_pending
from transcendent.gate.members import claim_members, count_members, exists
from transcendent.gate.shown_items import shown_items
from transcendent.gate.suggesting import with_suggestions

LONGEST_LABEL = 200
LONGEST_NOTE = 2000
MAX_CLAIMED = 100
MAX_HISTORY = 50
"""Number of the last actions that are shown with an item, and of the labels of other systems."""

# The order is that of the index `item_waiting`, so a claim reads the first waiting items and stops. SKIP
# LOCKED passes over items that another claim is taking at this moment: analysts neither wait for each other
# nor get the same item.
_CLAIM = f"""
SELECT id FROM item WHERE {WAITS} AND {FREE} AND (:skipped OR skipped_by IS DISTINCT FROM :who) AND {{}}
ORDER BY tier, rank, id LIMIT :count FOR UPDATE SKIP LOCKED
"""
_AMONG = {
    None: "true",
    "audit": f"tier = {AUDITED}",
    "alone": f"""tier >= {REJECTED} AND NOT EXISTS (SELECT FROM item_content AS known JOIN content USING (key)
        WHERE known.item = item.id AND content.campaign IS NOT NULL)""",
}
_HOLD = """
UPDATE item SET holder = :who, held_until = now() + make_interval(secs => :seconds) WHERE id = ANY(:ids)
"""
# Few items have a holder, and an index lists them. With outdated statistics the planner would not know that,
# and would read the whole table.
_BY_INDEX = """
SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true),
    set_config('max_parallel_workers_per_gather', '0', true)"""
# Every item with a lease has a holder, but without that condition the planner could not use `item_held`.
_HELD = "SELECT count(*), min(held_until) FROM item WHERE holder IS NOT NULL AND held_until > now()"
# Partitions dropped by hand leave their rows in `tally`. The sum of bigints is numeric, hence the cast.
_COUNTED = """
SELECT state, tier, sum(n)::bigint FROM tally WHERE month IN (SELECT number FROM month) GROUP BY 1, 2
"""
# The index `item_oldest` has the order, so each tier costs one step in it for every month. With outdated
# statistics the planner might use another index and sort.
_BY_INDEX_IN_ORDER = f"{_BY_INDEX}, set_config('enable_sort', 'off', true)"
_OLDEST = """
SELECT tier, extract(epoch FROM now() - first.received_at)::float8
FROM unnest(ARRAY[0, 1, 2, 3]::int2[]) AS tier, LATERAL (
    SELECT received_at FROM item WHERE state = 0 AND item.tier = tier.tier ORDER BY received_at LIMIT 1
) AS first
"""
_OVER = "SELECT coalesce(sum(over), 0)::bigint FROM sender_day"
_GIVE_BACK = "UPDATE item SET holder = NULL, held_until = NULL WHERE id = ANY(:ids)"
_FROM = """
(SELECT array_agg(DISTINCT source.item) FROM label AS source WHERE source.id = ANY(inferred.sources))"""
# MATERIALIZED: for ORDER BY with LIMIT the planner might read the latest items until enough of them match. A
# sender must not learn which accepted objects were drawn for the audit, so it sees only those with a label.
_FOUND = f"""
WITH found AS MATERIALIZED (
    SELECT payload.*, item.model, item.received_at, item.state, item.held_until > now() AS is_held
    FROM payload JOIN item ON item.id = payload.id
    WHERE hashtextextended(object_id, 0) = hashtextextended(:object, 0) AND object_id = :object
        AND (CAST(:sender AS text) IS NULL OR (sender = :sender AND (state = 1 OR NOT accepted)))
)
SELECT found.id AS item, found.object_id, found.sender, found.received_at, found.state, found.is_held,
    found.label AS predicted, model.digest AS model, last.label, last.written_at AS labelled_at,
    inferred.how AS inferred, {_FROM} AS inferred_from
FROM found JOIN model ON model.id = found.model
LEFT JOIN LATERAL (SELECT * FROM label WHERE item = found.id ORDER BY id DESC LIMIT 1) AS last
    ON found.state = 1
LEFT JOIN inferred ON inferred.label = last.id
ORDER BY found.id DESC LIMIT :limit
"""
_CLOSE = f"""
WITH chosen AS (
    SELECT item.id FROM item JOIN model ON model.id = item.model
    WHERE model.digest = :model AND item.id > :last AND state = 0 AND {FREE}
    ORDER BY item.id LIMIT :step FOR UPDATE OF item
), history AS (
    INSERT INTO label (item, action, reason, author) SELECT id, 'close', 'retired', :who FROM chosen
)
UPDATE item SET state = 2, holder = NULL, held_until = NULL FROM chosen WHERE item.id = chosen.id
RETURNING item.id
"""
_TO_CLOSE = """
SELECT count(*), count(*) FILTER (WHERE held_until > now()) FROM item JOIN model ON model.id = item.model
WHERE digest = :model AND state = 0
"""
_BY = "(CAST(:author AS text) IS NULL OR author = :author)"
_HISTORY = f"""
SELECT label.id, action, label.label, coalesce(remark.reason, label.reason) AS reason, remark.note, author,
    written_at, inferred.how AS inferred, {_FROM} AS inferred_from
FROM label LEFT JOIN remark ON remark.label = label.id LEFT JOIN inferred ON inferred.label = label.id
WHERE label.item = :item AND {_BY} ORDER BY label.id DESC LIMIT :most
"""
# A trigger moves the note and the reason to `remark`, which can be deleted: labels cannot.
_WRITE = """
INSERT INTO label (item, action, label, reason, note, author)
VALUES (:item, :action, :label, :reason, :note, :who)
RETURNING id, action, label, CAST(:reason AS text) AS reason, CAST(:note AS text) AS note, author, written_at,
    NULL AS inferred, NULL AS inferred_from
"""
_OUTSIDE = f"""
SELECT known.item, label, source, reason, teach, author, written_at, action IS NOT NULL AS settled
FROM outside_label AS known LEFT JOIN outside_reason ON outside = known.id
WHERE known.item = :item AND {_BY} ORDER BY known.id DESC LIMIT :most
"""
_RECORDED = f"""
SELECT (SELECT count(*) FROM label WHERE item = :item AND {_BY})
    + (SELECT count(*) FROM outside_label WHERE item = :item AND {_BY})
"""


class NoItemError(TranscendentError, LookupError):
    """The item does not exist."""


class ConflictError(TranscendentError):
    """An item is not in the state that the request needs."""


class LabelError(TranscendentError, ValueError):
    """The label is not a class of the item's model or in `labels`, or an opinion has a reason or a note."""


class Claimed(NamedTuple):
    """Claimed items, and what `GateClient.claim` says about others."""

    items: list[dict[str, Any]]
    held: int
    next_free: datetime | None
    room: int


class Quarantine:
    """The items of a database; most parameters are described in `GateSettings`.

    ``acted`` is called after each label, skip and undo with the action, its author and its label.
    """

    def __init__(
        self,
        engine: Engine,
        lease: float = 900,
        labels: Sequence[str] = (),
        max_held: int = 200,
        acted: Callable[[str, str, str | None], None] = lambda *_: None,
    ) -> None:
        self._acted = acted
        self._engine, self._lease, self._labels, self._max_held = engine, lease, list(labels), max_held

    def claim(
        self,
        who: str,
        count: int = 1,
        *,
        skipped: bool = False,
        opinions: bool = False,
        campaign: str | None = None,
        among: Literal["audit", "alone"] | None = None,
    ) -> Claimed:
        """Hold up to ``count`` free items, unless the analyst has skipped them.

        They are of any kind, of one campaign, or ``among`` those of the audit or of no campaign.
        """
        if opinions:
            raise ConflictError("this gate asks for no second opinions: its setting opinions is 1.")
        with self._engine.begin() as connection:
            ids, room = self._claim(connection, who, count, skipped=skipped, campaign=campaign, among=among)
            held, next_free = 0, None
            if len(ids) < count:
                others = text(f"{_HELD} AND holder <> :who")
                held, next_free = connection.execute(others, {"who": who}).one()
            return Claimed(self._shown(connection, ids, who), held, next_free, room)

    def claim_next(self, who: str, **given: Any) -> int | None:
        """Hold one free item as `claim` does, and return only its id; None if there is none."""
        with self._engine.begin() as connection:
            ids, _ = self._claim(connection, who, 1, **given)
            return ids[0] if ids else None

    def _claim(
        self,
        connection: Connection,
        who: str,
        count: int,
        *,
        skipped: bool = False,
        campaign: str | None = None,
        among: Literal["audit", "alone"] | None = None,
    ) -> tuple[list[int], int]:
        """Hold free items; return their ids, and the number of items that the analyst may still hold."""
        room = self._room(connection, who, count)
        given = {"who": who, "count": min(count, room), "skipped": skipped}
        if campaign is None:
            ids = list(connection.execute(text(_CLAIM.format(_AMONG[among])), given).scalars())
        elif exists(connection, campaign):
            ids = claim_members(connection, campaign, given)
        else:
            raise NoItemError(f"campaign {campaign!r:.80} does not exist: it may have joined another.")
        self._hold(connection, who, ids)
        begin_work(connection, who, ids)
        return ids, room - len(ids)

    def _room(self, connection: Connection, who: str, count: int) -> int:
        """Return the number of items that an analyst may still hold; release expired ones to make room.

        Until then expired leases count, so the number of items with a holder stays bounded.
        """
        # One claim of an analyst at a time: two would both count before either holds, and exceed the limit.
        locked = text(f"{_BY_INDEX}, pg_advisory_xact_lock(hashtextextended(:who, 0))")
        connection.execute(locked, {"who": who})
        sql = text("SELECT count(*) FROM item WHERE holder = :who")
        room = self._max_held - int(connection.execute(sql, {"who": who}).scalar_one())
        if room < count:
            expired = self._held(connection, who, among="AND held_until <= now()")
            connection.execute(text(_GIVE_BACK), {"ids": expired})
            room += len(expired)
        return max(room, 0)

    def held(self, who: str) -> list[dict[str, Any]]:
        """Return the items that an analyst holds, at most `MAX_CLAIMED`."""
        with self._engine.begin() as connection:
            return self._shown(connection, self._held(connection, who)[:MAX_CLAIMED], who)

    def renew(self, who: str, items: Sequence[int] | None = None) -> list[int]:
        """Restart the lease of items, by default all that are held; return their ids."""
        with self._engine.begin() as connection:
            ids = self._held(connection, who, items)
            self._hold(connection, who, ids)
            return ids

    def take(self, who: str, item: int) -> None:
        """Hold one item that waits and that nobody else holds."""
        with self._engine.begin() as connection:
            room, state = self._room(connection, who, 1), locked_item(connection, item)
            if state["holder"] != who or state["state"] != 0:
                _check_holder({**state, "holder": who if not state["held"] else state["holder"]}, who)
                if not room:
                    raise ConflictError(f"you hold {self._max_held} items: label or release some first.")
            self._hold(connection, who, [item])
            begin_work(connection, who, [item])

    def release(self, who: str, items: Sequence[int] | None = None) -> list[int]:
        """Release items, by default all that are held; return their ids."""
        with self._engine.begin() as connection:
            ids = self._held(connection, who, items)
            connection.execute(text(_GIVE_BACK), {"ids": ids})
            return ids

    def resolve(
        self, who: str, item: int, label: str, *, reason: str | None = None, note: str | None = None
    ) -> dict[str, Any]:
        """Label a held item. Repeating the same label changes nothing."""
        with self._engine.begin() as connection:
            await_content(connection, item)
            state = locked_item(connection, item)
            allowed = [*map(str, state["classes"]), *self._labels]
            if label not in allowed:
                raise LabelError(f"{label!r:.80} is not one of the labels {', '.join(allowed):.300}.")
            if state["state"] == 1 and (last := last_action(connection, item)):
                if (last["author"], last["label"]) == (who, label):
                    return last
                # The label is not named: other gates of this database may still ask for an opinion on it.
                raise ConflictError(f"item {item} already has a label, by {last['author']}.")
            _check_holder(state, who)
            set_item(connection, item, state=1, holder=None)
            written = write_action(connection, item, "label", who, label=label, reason=reason, note=note)
            note_opened(connection, item)
            if label in map(str, state["classes"]):
                remember(connection, item, label, who)
                disprove(connection, item, label, who)
            if not state["accepted"]:
                label_copies(connection, item, written["id"], label, who)
        self._acted("label", who, label)
        return written

    def skip(
        self, who: str, item: int, *, reason: str | None = None, note: str | None = None
    ) -> dict[str, Any]:
        """Move a held item to the end of the queue, for other analysts."""
        with self._engine.begin() as connection:
            _check_holder(locked_item(connection, item), who)
            set_item(connection, item, tier=SKIPPED, skipped_by=who, holder=None)
            written = write_action(connection, item, "skip", who, reason=reason, note=note)
        self._acted("skip", who, None)
        return written

    def undo(self, who: str, item: int, *, note: str | None = None, anyone: bool = False) -> dict[str, Any]:
        """Take back the last label or skip, the analyst's own unless ``anyone``; the item waits again."""
        with self._engine.begin() as connection:
            await_content(connection, item)
            state, last = locked_item(connection, item), last_action(connection, item)
            if last is None or last["action"] not in ("label", "skip"):
                raise ConflictError(f"item {item} has no label or skip to undo.")
            if last["author"] != who and not anyone:
                raise ConflictError(
                    f"the last {last['action']} is not yours: only its author or an operator may undo it."
                )
            if state["holder"] not in (None, who) and state["held"]:
                raise ConflictError(
                    f"{state['holder']} holds item {item} until {state['held_until']:%H:%M:%S}."
                )
            place: dict[str, Any] = {"tier": AUDITED if state["accepted"] else REJECTED}
            if not state["accepted"] and state["draw"] is not None:  # drawn before or after it was settled
                place = {"tier": AUDITED, "rank": 1 + state["draw"]}
            set_item(connection, item, state=0, skipped_by=None, holder=None, **place)
            take_back(connection, item, last["id"], who)
            written = write_action(connection, item, "undo", who, note=note)
        self._acted("undo", who, None)
        return written

    def show(self, item: int, who: str | None = None) -> dict[str, Any]:
        """Return an item with its features and last actions, as far as an analyst may see them."""
        with self._engine.connect() as connection:
            found = self._shown(connection, [item], who)
            if not found:
                raise NoItemError(f"item {item} does not exist.")
            (seen,) = self._as_seen(connection, found, who)
            own_only = seen["blind"] or self._hidden_from(connection, who, [item])
            return {**seen, **_recorded(connection, item, who if own_only else None)}

    def as_seen(self, items: list[dict[str, Any]], who: str | None) -> list[dict[str, Any]]:
        """Return claimed or held items as an analyst, or an operator (None), may see them."""
        with self._engine.connect() as connection:
            return self._as_seen(connection, items, who)

    def _as_seen(
        self, connection: Connection, items: list[dict[str, Any]], who: str | None
    ) -> list[dict[str, Any]]:
        blind = blind_items(connection, who, [item["id"] for item in items])
        hidden = [blinded(item) for item in items if item["id"] in blind]
        # The place of a blind item in the queue tells what it checks.
        hidden.sort(key=lambda item: sha256(str(item["id"]).encode()).digest())
        return hidden + [item for item in items if item["id"] not in blind]

    def blind_items(self, items: list[int], who: str | None) -> set[int]:
        """Return the items whose decision an analyst must not see before labelling them."""
        with self._engine.connect() as connection:
            return blind_items(connection, who, items)

    def hidden_from(self, who: str | None, items: list[int]) -> set[int]:  # noqa: ARG002
        """Return the items whose labels by others an analyst must not see; none from an operator, None."""
        return set()

    def _hidden_from(self, connection: Connection, who: str | None, items: list[int]) -> set[int]:  # noqa: ARG002
        """Return the items whose labels by others an analyst must not see."""
        return set()

    def _unsettled(self, connection: Connection, items: Sequence[int]) -> set[int]:  # noqa: ARG002
        """Return the labelled items on which another opinion is wanted."""
        return set()

    def find(self, object_id: str, sender: str | None = None, who: str | None = None) -> list[dict[str, Any]]:
        """Return what became of the objects with an id, latest first: all of them, or those of a sender.

        A sender does not learn the numbers of items, whose gaps would show the audit. ``who`` is an analyst
        who may not see all labels.
        """
        with self._engine.connect() as connection:
            connection.execute(text(_BY_INDEX))
            given = {"object": object_id, "sender": sender, "limit": MAX_CLAIMED}
            rows = connection.execute(text(_FOUND), given).mappings().all()
            items = [row["item"] for row in rows]
            hidden = self._hidden_from(connection, who, items)
            blind = blind_items(connection, who, items)
        found = []
        for row in rows:
            each = {name: row[name] for name in row if name not in ("state", "is_held")}
            # What was said about one object with this id is told about none while one of them is blind.
            if blind:
                each["predicted"] = None
            if blind or row["item"] in hidden:
                each |= dict.fromkeys(("label", "inferred", "inferred_from"))
            waits = "held" if row["is_held"] else "waiting"
            each["state"] = (waits, "labelled", "closed")[row["state"]]
            found.append(each if sender is None else {**each, "item": None, "inferred_from": None})
        return found

    def close(self, model: str, who: str, step: int = 10_000) -> int:
        """Close the waiting items of a model that nobody holds, and return their number."""
        closed, last = 0, 0
        while True:  # in steps, so that no transaction holds many locks
            with self._engine.begin() as connection:
                given = {"model": model, "who": who, "last": last, "step": step}
                ids = connection.execute(text(_CLOSE), given).scalars().all()
            if not ids:
                return closed
            closed, last = closed + len(ids), max(ids)

    def to_close(self, digest: str) -> tuple[str, int, int]:
        """Return the model whose digest begins like this, and the numbers of its waiting and held items."""
        with self._engine.connect() as connection:
            sql = text("SELECT digest FROM model ORDER BY first_used")
            known = connection.execute(sql).scalars().all()
            found = [each for each in known if digest and each.startswith(digest)]
            if len(found) != 1:
                raise NoItemError(
                    f"{len(found) or 'no'} models begin with {digest!r:.80}; those of the items are "
                    f"{', '.join(each[:12] for each in known[-20:]) or 'none'}."
                )
            counted = connection.execute(text(_TO_CLOSE), {"model": found[0]}).one()
        return found[0], counted[0], counted[1]

    def counts(self) -> dict[str, int]:
        """Count the items that wait, are held, have labels and are closed, and the objects over a cap.

        Copies that are about to get their label count as labelled.
        """
        with self._engine.connect() as connection:
            rows = connection.execute(text(_COUNTED)).all()
            connection.execute(text(_BY_INDEX))
            held, _ = connection.execute(text(_HELD)).one()
            over = connection.execute(text(_OVER)).scalar_one()
            members, soon = count_members(connection), count_pending(connection)
        waiting = {tier: n for state, tier, n in rows if state == 0}
        return {
            "waiting": sum(waiting.values()) - soon,
            "audit": waiting.get(AUDITED, 0),
            "rejected": waiting.get(REJECTED, 0),
            "skipped": waiting.get(SKIPPED, 0),
            "copies": waiting.get(COPY, 0) - soon,
            "held": held,
            "labelled": sum(n for state, _, n in rows if state == 1) + soon,
            "closed": sum(n for state, _, n in rows if state == 2),
            "over": over,
            **members,
        }

    def queue(self) -> tuple[dict[int, int], dict[int, float]]:
        """Return the number of waiting items by tier, and the seconds for which the oldest has waited."""
        with self._engine.connect() as connection:
            return queue_in(connection)

    def _shown(self, connection: Connection, ids: list[int], who: str | None) -> list[dict[str, Any]]:
        hidden_from = partial(self._hidden_from, connection, who)
        items = shown_items(connection, ids, partial(self._unsettled, connection))
        return with_suggestions(connection, items, who, hidden_from)

    def _hold(self, connection: Connection, who: str, ids: list[int]) -> None:
        if ids:
            connection.execute(text(_HOLD), {"who": who, "ids": ids, "seconds": self._lease})

    def _held(
        self, connection: Connection, who: str, items: Sequence[int] | None = None, among: str = ""
    ) -> list[int]:
        """Lock the items that an analyst holds, or those of ``items``, and return their ids.

        They are locked in the order of ids, so that two requests for the same items cannot deadlock.
        """
        if items is not None:
            among = "AND id = ANY(:items)"
        sql = f"SELECT id FROM item WHERE holder = :who {among} ORDER BY id FOR UPDATE"
        return list(connection.execute(text(sql), {"who": who, "items": items}).scalars())


def queue_in(connection: Connection) -> tuple[dict[int, int], dict[int, float]]:
    """Return the number of waiting items by tier, and the seconds for which the oldest has waited."""
    rows = connection.execute(text(_COUNTED)).all()
    connection.execute(text(_BY_INDEX_IN_ORDER))
    ages = {tier: max(0.0, age) for tier, age in connection.execute(text(_OLDEST))}
    return {tier: n for state, tier, n in rows if state == 0}, ages


def locked_item(connection: Connection, item: int) -> dict[str, Any]:
    """Lock an item and return its state."""
    # OF item: all items share the row of a model, and analysts would wait for each other.
    sql = """
    SELECT item.state, item.holder, item.held_until, item.held_until > now() AS held, accepted, model.classes,
        settled_look.item IS NOT NULL AS looked, least(settled_look.draw,
            (SELECT min(draw) FROM disagreement WHERE disagreement.item = item.id)) AS draw
    FROM item JOIN payload ON payload.id = item.id JOIN model ON model.id = item.model
    LEFT JOIN settled_look ON settled_look.item = item.id
    WHERE item.id = :item FOR UPDATE OF item"""
    found = connection.execute(text(sql), {"item": item}).mappings().first()
    if found is None:
        raise NoItemError(f"item {item} does not exist.")
    return dict(found)


def _check_holder(state: dict[str, Any], who: str) -> None:
    """Raise unless the analyst holds the item. An expired lease counts until another analyst claims it."""
    if state["state"] == 1:
        raise ConflictError("the item already has a label: undo it first.")
    if state["state"] == 2:
        raise ConflictError("the item is closed.")
    if state["holder"] != who:
        other = f"{state['holder']} holds it" if state["holder"] and state["held"] else "claim it first"
        raise ConflictError(f"you do not hold the item: {other}.")


def set_item(connection: Connection, item: int, **values: Any) -> None:
    """Change columns of an item, and end its lease."""
    changes = ", ".join(f"{name} = :{name}" for name in values)
    connection.execute(
        text(f"UPDATE item SET held_until = NULL, {changes} WHERE id = :item"), {"item": item, **values}
    )


def _recorded(connection: Connection, item: int, author: str | None) -> dict[str, Any]:
    """Return the last actions of an item, of all authors or one, and how many earlier ones there are."""
    given = {"item": item, "author": author, "most": MAX_HISTORY}
    names = {"history": _HISTORY, "outside": _OUTSIDE}
    rows = {name: connection.execute(text(sql), given).mappings().all() for name, sql in names.items()}
    shown = {name: [dict(row) for row in reversed(found)] for name, found in rows.items()}
    n = connection.execute(text(_RECORDED), given).scalar_one()
    return {**shown, "earlier": n - sum(map(len, shown.values()))}


def last_action(connection: Connection, item: int) -> dict[str, Any] | None:
    """Return the last action of an item's history."""
    given = {"item": item, "author": None, "most": 1}
    found = connection.execute(text(_HISTORY), given).mappings().first()
    return None if found is None else dict(found)


def write_action(
    connection: Connection, item: int, action: str, who: str, **given: str | None
) -> dict[str, Any]:
    """Add an action to the history of an item."""
    values = {"label": None, "reason": None, "note": None, **given}
    connection.execute(text("SET LOCAL synchronous_commit = on"))  # the role's default may be off
    written = connection.execute(text(_WRITE), {"item": item, "action": action, "who": who, **values})
    return dict(written.mappings().one())
