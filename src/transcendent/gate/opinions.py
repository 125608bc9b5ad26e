"""Second opinions: with ``opinions = 2``, labels teach only once two analysts agree.

The label of an item is the first opinion. Other analysts give further ones, without seeing it: a second, and
a third if the first two differ. The label that two of them share is taught, if there is one. The label of
the item stays what it is: the audit, the history and events know nothing of opinions.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection, text

from transcendent.gate.days import begin_work
from transcendent.gate.inferring import take_back_all
from transcendent.gate.quarantine import (
    MAX_CLAIMED,
    Claimed,
    ConflictError,
    LabelError,
    Quarantine,
    last_action,
    locked_item,
)

_MOST = 3

# The newest opinion of each analyst stands, unless they have labelled the item themselves since.
_STANDING = """
SELECT newest.* FROM (
    SELECT DISTINCT ON (item, author) * FROM opinion WHERE {} ORDER BY item, author, id DESC
) AS newest
WHERE action <> 'undo' AND NOT EXISTS (
    SELECT FROM label WHERE label.item = newest.item AND label.author = newest.author
        AND label.action = 'label' AND label.id > newest.after
)
"""
_OF_ITEMS = f"SELECT * FROM ({_STANDING.format('item = ANY(:items)')}) AS standing ORDER BY id"
# A label of another system is an opinion of its source, if it is to teach.
_OWN = """
SELECT chosen.item, last.id, last.label, last.author, outside.source, outside.teach
FROM unnest(CAST(:items AS bigint[])) AS chosen (item)
JOIN LATERAL (SELECT * FROM label WHERE label.item = chosen.item ORDER BY id DESC LIMIT 1) AS last ON true
LEFT JOIN outside_label AS outside ON outside.action = last.id WHERE last.action = 'label'
"""
# What a label follows from that nobody gave, if it is the last action of its item.
_SOURCES = """
SELECT chosen.item, source.item AS source, item.id IS NOT NULL AS is_kept
FROM unnest(CAST(:items AS bigint[])) AS chosen (item)
JOIN LATERAL (SELECT id FROM label WHERE label.item = chosen.item ORDER BY id DESC LIMIT 1) AS last ON true
JOIN inferred ON inferred.label = last.id JOIN label AS source ON source.id = ANY(inferred.sources)
LEFT JOIN item ON item.id = source.item
"""
# Analysts give one opinion on an item, and none on their own label.
_WANTED = f"""
SELECT unconfirmed.item FROM unconfirmed JOIN item ON item.id = unconfirmed.item AND item.state = 1
WHERE unconfirmed.item > :after AND (CAST(:item AS bigint) IS NULL OR unconfirmed.item = :item)
    AND (unconfirmed.held_until IS NULL OR unconfirmed.held_until <= now())
    AND :who <> (SELECT author FROM label WHERE label.item = unconfirmed.item ORDER BY id DESC LIMIT 1)
    AND NOT EXISTS ({_STANDING.format("opinion.item = unconfirmed.item AND opinion.author = :who")})
ORDER BY unconfirmed.item LIMIT :count FOR UPDATE OF unconfirmed SKIP LOCKED
"""
_HOLD = """
UPDATE unconfirmed SET holder = :who, held_until = now() + make_interval(secs => :seconds)
WHERE item = ANY(:items)
"""
_LISTED = "SELECT item FROM unconfirmed WHERE item = ANY(:items)"
_GIVE_BACK = "UPDATE unconfirmed SET holder = NULL, held_until = NULL WHERE item = ANY(:items)"
_HELD_BY = "SELECT item FROM unconfirmed WHERE holder = :who {} ORDER BY item FOR UPDATE"
_HELD_BY_OTHERS = """
SELECT count(*), min(held_until) FROM unconfirmed WHERE holder <> :who AND held_until > now()
"""
_HELD = "SELECT count(*) FROM unconfirmed WHERE held_until > now()"
_HOLDS = "SELECT item, holder, held_until FROM unconfirmed WHERE item = ANY(:items) AND holder IS NOT NULL"
_SETTLED = "DELETE FROM unconfirmed WHERE item = ANY(:items)"
_WANT = """
INSERT INTO unconfirmed AS known (item) VALUES (:item) ON CONFLICT (item) DO UPDATE
SET holder = nullif(known.holder, :author),
    held_until = CASE WHEN known.holder <> :author THEN known.held_until END
"""
_WRITE = """
INSERT INTO opinion (item, after, action, label, author, writer)
VALUES (:item, :after, :action, :label, :author, :writer)
RETURNING id, action, label, NULL AS reason, NULL AS note, writer AS author, written_at,
    NULL AS inferred, NULL AS inferred_from
"""
_WITH_OPINIONS = "SELECT DISTINCT item FROM opinion WHERE item > :after ORDER BY item LIMIT 5000"
_FOR = """
SELECT count(*) FROM (
    SELECT FROM unconfirmed JOIN item ON item.id = unconfirmed.item AND item.state = 1
    WHERE :who <> (SELECT author FROM label WHERE label.item = unconfirmed.item ORDER BY id DESC LIMIT 1)
        AND NOT EXISTS (SELECT FROM opinion WHERE opinion.item = unconfirmed.item AND author = :who)
    LIMIT 1000
) AS first
"""
_WAITING = """
SELECT count(*) FROM unconfirmed JOIN item ON item.id = unconfirmed.item AND item.state = 1
"""


class Opinions(NamedTuple):
    """What analysts say about an item: its own label, None if it has none, and others in their order.

    If not ``teaches``, the label is that of another system, which is not to be taught. A label that nobody
    gave has the opinions on what it follows from; nobody is ``asked`` any more if that is deleted.
    """

    own: str | None
    others: tuple[str, ...] = ()
    teaches: bool = True
    asked: bool = True

    @property
    def agreed(self) -> str | None:
        """The label that two analysts share, if the item has a label at all."""
        if self.own is None or not self.teaches:
            return None
        label, n = Counter((self.own, *self.others)).most_common(1)[0]
        return label if n > 1 else None

    @property
    def wants_another(self) -> bool:
        """Whether another analyst should be asked."""
        can_be = self.own is not None and self.teaches and 1 + len(self.others) < _MOST
        return self.asked and can_be and self.agreed is None


class Agreement(NamedTuple):
    """How often the first two opinions agree: their number, the share, and Cohen's kappa.

    The share is None without pairs, and kappa also if all opinions are the same label. ``third`` counts items
    on which two of three agree, ``none`` those on which three differ, ``wanted`` those that want an opinion.
    """

    pairs: int
    share: float | None
    kappa: float | None
    third: int
    none: int
    wanted: int


def opinions_on(connection: Connection, items: Sequence[int]) -> dict[int, Opinions]:
    """Return the opinions on items that stand; items without a label have an empty one.

    A label that nobody gave is agreed on once all labels are from which it follows.
    """
    sources: dict[int, list[tuple[int, bool]]] = defaultdict(list)
    for row in connection.execute(text(_SOURCES), {"items": list(items)}):
        sources[row.item].append((row.source, row.is_kept))
    own = _own_opinions(connection, [*items, *{each for known in sources.values() for each, _ in known}])
    found = {item: own[item] for item in items}
    for item, known in sources.items():
        said = [own[each]._replace(asked=is_kept) for each, is_kept in known]
        found[item] = min(said, key=lambda each: (each.agreed is not None, not each.wants_another))
    return found


def unsettled_items(connection: Connection, items: Sequence[int]) -> set[int]:
    """Return those of some items that people have labelled on which another opinion is wanted."""
    listed = connection.execute(text(_LISTED), {"items": list(items)}).scalars().all()
    said = opinions_on(connection, listed) if listed else {}
    return {item for item, each in said.items() if each.wants_another}


def _own_opinions(connection: Connection, items: Sequence[int]) -> dict[int, Opinions]:
    """Return what analysts said about items themselves."""
    given = {"items": list(items)}
    others: dict[int, list[str]] = {item: [] for item in items}
    for row in connection.execute(text(_OF_ITEMS), given).mappings().all():
        if row["action"] == "opinion":
            others[row["item"]].append(row["label"])
    own = {row["item"]: row for row in connection.execute(text(_OWN), given).mappings().all()}
    return {
        item: Opinions(own[item]["label"], tuple(said), own[item]["teach"] is not False)
        if item in own
        else Opinions(None, tuple(said))
        for item, said in others.items()
    }


def wanting_opinions(connection: Connection, who: str) -> int:
    """Return the number of items that may want the opinion of an analyst: at most 1,000, as they are."""
    return int(connection.execute(text(_FOR), {"who": who}).scalar_one())


def agreement(connection: Connection) -> Agreement:
    """Return how analysts agree, over all items with two opinions that stand."""
    pairs, third, none, after = Counter[tuple[str, str]](), 0, 0, -1
    while items := connection.execute(text(_WITH_OPINIONS), {"after": after}).scalars().all():
        after = max(items)
        for each in _own_opinions(connection, items).values():
            if each.own is None or not each.others:
                continue
            pairs[each.own, each.others[0]] += 1
            third += len(each.others) == 2 and each.agreed is not None
            none += len(each.others) == 2 and each.agreed is None
    wanted = connection.execute(text(_WAITING)).scalar_one()
    return Agreement(pairs.total(), *_kappa(pairs), third, none, wanted)


def _kappa(pairs: Counter[tuple[str, str]]) -> tuple[float | None, float | None]:
    """Return the share of equal pairs, and Cohen's kappa: how far it is above what chance would give."""
    n = pairs.total()
    if not n:
        return None, None
    first, second = Counter[str](), Counter[str]()
    for (one, other), count in pairs.items():
        first[one] += count
        second[other] += count
    share = sum(count for (one, other), count in pairs.items() if one == other) / n
    chance = sum(first[label] * second[label] for label in first) / n**2
    return share, None if chance == 1 else (share - chance) / (1 - chance)


class SecondOpinions(Quarantine):
    """A quarantine whose labelled items are shown to further analysts, for an opinion of their own.

    While an item wants another opinion, analysts see no label of it but their own.
    """

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
        """Hold up to ``count`` free items or, with ``opinions``, items that want another opinion."""
        if not opinions:
            return super().claim(who, count, skipped=skipped, campaign=campaign, among=among)
        with self._engine.begin() as connection:
            items, room = self._claim_for_opinions(connection, who, count)
            held, next_free = connection.execute(text(_HELD_BY_OTHERS), {"who": who}).one()
            return Claimed(self._shown(connection, items, who), held, next_free, room)

    def claim_next(self, who: str, *, opinions: bool = False, **given: Any) -> int | None:
        """Hold one free item, or with ``opinions`` one that wants another; return only its id."""
        if not opinions:
            return super().claim_next(who, **given)
        with self._engine.begin() as connection:
            items, _ = self._claim_for_opinions(connection, who, 1)
            return items[0] if items else None

    def _claim_for_opinions(self, connection: Connection, who: str, count: int) -> tuple[list[int], int]:
        room = self._room_for_opinions(connection, who, count)
        items = self._wanted(connection, who, min(count, room))
        connection.execute(text(_HOLD), {"who": who, "seconds": self._lease, "items": items})
        begin_work(connection, who, items)
        return items, room - len(items)

    def _room_for_opinions(self, connection: Connection, who: str, count: int) -> int:
        """Return the number of items that an analyst may still hold for an opinion."""
        # One claim of an analyst at a time, as for other claims.
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:who, 0))"), {"who": who})
        room = self._max_held - len(self._for_opinions(connection, who))
        if room < count:
            expired = self._for_opinions(connection, who, "AND held_until <= now()")
            connection.execute(text(_GIVE_BACK), {"items": expired})
            room += len(expired)
        return max(room, 0)

    def _wanted(self, connection: Connection, who: str, count: int, item: int | None = None) -> list[int]:
        """Lock items that want an opinion of this analyst, of all or one; drop settled ones."""
        found: list[int] = []
        after = -1
        while len(found) < count:
            given = {"who": who, "count": count - len(found), "after": after, "item": item}
            items = list(connection.execute(text(_WANTED), given).scalars())
            if not items:
                break
            after = max(items)
            said = opinions_on(connection, items)
            found += [item for item in items if said[item].wants_another]
            settled = [item for item in items if not said[item].wants_another]
            connection.execute(text(_SETTLED), {"items": settled})
        return found

    def _for_opinions(
        self, connection: Connection, who: str, among: str = "", items: Sequence[int] | None = None
    ) -> list[int]:
        if items is not None:
            among = "AND item = ANY(:items)"
        sql = text(_HELD_BY.format(among))
        return list(connection.execute(sql, {"who": who, "items": items}).scalars())

    def held(self, who: str) -> list[dict[str, Any]]:
        """Return the items that an analyst holds, for a label or for an opinion."""
        found = super().held(who)
        with self._engine.begin() as connection:
            more = self._shown(connection, self._for_opinions(connection, who), who)
            return (found + more)[:MAX_CLAIMED]

    def _shown(self, connection: Connection, ids: list[int], who: str | None) -> list[dict[str, Any]]:
        """Return items as analysts see them; an item with a label has the holder and lease of an opinion."""
        holds = {
            item: {"holder": holder, "held_until": until}
            for item, holder, until in connection.execute(text(_HOLDS), {"items": ids})
        }
        return [item | holds.get(item["id"], {}) for item in super()._shown(connection, ids, who)]

    def counts(self) -> dict[str, int]:
        """Count the items; those that are held for a label or for an opinion count as held."""
        counted = super().counts()
        with self._engine.connect() as connection:
            return counted | {"held": counted["held"] + connection.execute(text(_HELD)).scalar_one()}

    def show(self, item: int, who: str | None = None) -> dict[str, Any]:
        """Return an item with its features, history and opinions, as far as an analyst may see it."""
        shown = super().show(item, who)
        with self._engine.connect() as connection:
            rows = connection.execute(text(_OF_ITEMS), {"items": [item]}).mappings().all()
            said = opinions_on(connection, [item])[item]
        # An item without a label may get one from any analyst, who must not know the opinions either.
        own_only = who is not None and (said.own is None or said.wants_another or shown["blind"])
        given = [
            {name: row[name] for name in ("label", "author", "written_at")}
            for row in rows
            if row["action"] == "opinion" and (row["author"] == who or not own_only)
        ]
        return {**shown, "opinions": given}

    def renew(self, who: str, items: Sequence[int] | None = None) -> list[int]:
        """Restart the lease of items, by default all that are held; return their ids."""
        renewed = super().renew(who, items)
        with self._engine.begin() as connection:
            more = self._for_opinions(connection, who, items=items)
            connection.execute(text(_HOLD), {"who": who, "seconds": self._lease, "items": more})
        return renewed + more

    def take(self, who: str, item: int) -> None:
        """Hold one item, for a label or for an opinion."""
        with self._engine.begin() as connection:
            room = self._room_for_opinions(connection, who, 1)
            items = self._for_opinions(connection, who, items=[item])
            items = items or self._wanted(connection, who, min(1, room), item)
            connection.execute(text(_HOLD), {"who": who, "seconds": self._lease, "items": items})
            begin_work(connection, who, items)
        if not items:
            super().take(who, item)

    def release(self, who: str, items: Sequence[int] | None = None) -> list[int]:
        """Release items, by default all that are held; return their ids."""
        released = super().release(who, items)
        with self._engine.begin() as connection:
            more = self._for_opinions(connection, who, items=items)
            connection.execute(text(_GIVE_BACK), {"items": more})
        return released + more

    def resolve(
        self, who: str, item: int, label: str, *, reason: str | None = None, note: str | None = None
    ) -> dict[str, Any]:
        """Label a held item, or give an opinion on it. Repeating the same changes nothing."""
        with self._engine.begin() as connection:
            state, last = locked_item(connection, item), last_action(connection, item)
            if state["state"] == 1 and last is not None and last["author"] != who:
                allowed = [*map(str, state["classes"]), *self._labels]
                if label not in allowed:
                    raise LabelError(f"{label!r:.80} is not one of the labels {', '.join(allowed):.300}.")
                _refuse_remarks(reason, note)
                return self._opine(connection, who, item, last["id"], label)
        return super().resolve(who, item, label, reason=reason, note=note)

    def _opine(self, connection: Connection, who: str, item: int, after: int, label: str) -> dict[str, Any]:
        """Add an opinion. Errors do not tell the label that the item has."""
        mine = self._opinion_of(connection, who, item)
        if mine is not None and mine["action"] == "opinion":
            if mine["label"] == label:
                return mine
            raise ConflictError(f"your opinion on item {item} is {mine['label']!r}: undo it first.")
        if not self._for_opinions(connection, who, items=[item]):
            raise ConflictError(f"item {item} has a label, and you do not hold it for an opinion.")
        return self._write_opinion(connection, item, after, "opinion", who, label)

    def skip(
        self, who: str, item: int, *, reason: str | None = None, note: str | None = None
    ) -> dict[str, Any]:
        """Move a held item to the end of the queue, or leave an opinion on it to others."""
        with self._engine.begin() as connection:
            locked_item(connection, item)
            last = last_action(connection, item)
            if last is not None and self._for_opinions(connection, who, items=[item]):
                _refuse_remarks(reason, note)
                return self._write_opinion(connection, item, last["id"], "skip", who)
        return super().skip(who, item, reason=reason, note=note)

    def undo(self, who: str, item: int, *, note: str | None = None, anyone: bool = False) -> dict[str, Any]:
        """Take back the last label, skip or opinion: the analyst's own unless ``anyone``.

        Nobody takes back that another analyst left an opinion to others.
        """
        with self._engine.begin() as connection:
            locked_item(connection, item)
            last, given = (
                last_action(connection, item),
                self._opinion_of(connection, who, item, anyone=anyone),
            )
            if given is not None and last is not None:
                is_later = last["id"] > given["after"] and last["action"] in ("label", "skip")
                if not (is_later and (anyone or last["author"] == who)):
                    _refuse_remarks(None, note)
                    return self._write_opinion(
                        connection, item, last["id"], "undo", given["author"], writer=who
                    )
        return super().undo(who, item, note=note, anyone=anyone)

    def _opinion_of(
        self, connection: Connection, who: str, item: int, *, anyone: bool = False
    ) -> dict[str, Any] | None:
        """Return the last opinion or skip of an analyst that stands, or opinion of ``anyone``."""
        rows = connection.execute(text(_OF_ITEMS), {"items": [item]}).mappings().all()
        found = [dict(row) for row in rows if row["author"] == who or (anyone and row["action"] == "opinion")]
        return {**found[-1], "reason": None, "note": None} if found else None

    def _write_opinion(
        self,
        connection: Connection,
        item: int,
        after: int,
        action: str,
        author: str,
        label: str | None = None,
        writer: str | None = None,
    ) -> dict[str, Any]:
        """Add an opinion, or what was done with it, and put the item into the queue or take it out.

        If analysts do not agree on the label any more, what needed that is taken back.
        """
        connection.execute(text("SET LOCAL synchronous_commit = on"))  # the role's default may be off
        given = {"item": item, "after": after, "action": action, "label": label, "author": author}
        given["writer"] = writer or author
        before = opinions_on(connection, [item])[item].agreed
        written = connection.execute(text(_WRITE), given).mappings().one()
        now = opinions_on(connection, [item])[item]
        if before not in (None, now.agreed):
            why = "analysts do not agree any more"
            take_back_all(connection, [after], writer or author, ["campaign", "settled"], why=why)
        if now.wants_another:
            connection.execute(text(_WANT), given)
        else:
            connection.execute(text(_SETTLED), {"items": [item]})
        return dict(written)

    def hidden_from(self, who: str | None, items: Iterable[int]) -> set[int]:
        """Return the items that want another opinion; none for an operator, None."""
        with self._engine.connect() as connection:
            return self._hidden_from(connection, who, items)

    def _unsettled(self, connection: Connection, items: Sequence[int]) -> set[int]:
        """Return the labelled items on which another opinion is wanted."""
        return unsettled_items(connection, items)

    def _hidden_from(self, connection: Connection, who: str | None, items: Iterable[int]) -> set[int]:
        """Return the items that want another opinion."""
        if who is None:
            return set()
        said = opinions_on(connection, list(items))
        return {item for item, each in said.items() if each.wants_another}


def _refuse_remarks(reason: str | None, note: str | None) -> None:
    """Raise if a reason or a note would be lost."""
    if reason or note:
        raise LabelError("opinions have no reason and no note: send the request without them.")
