"""Settling: items that wait take the label of a resolved case, if the operator has chosen so.

The rules are those of `CaseMemory`. A random share of the items is looked at by people all the same. If these
looks show that too many labels are wrong, settling stops until an operator resumes it.
"""

import math
import time
from collections import defaultdict
from collections.abc import Collection
from itertools import islice
from typing import Any, NamedTuple

import structlog
from sqlalchemy import Connection, Engine, text

from transcendent.errors import TranscendentError
from transcendent.explaining import CaseMemory, content_keys
from transcendent.gate.auditing import AuditItem, Harm, harm_of
from transcendent.gate.intake import AUDITED, COPY, FREE, REJECTED, SKIPPED, WAITS, Draw
from transcendent.gate.label_work import infer, pending
from transcendent.gate.opinions import opinions_on
from transcendent.gate.paging import raise_alarm
from transcendent.gate.shared_columns import ContentColumns, SharedColumns
from transcendent.gate.suggesting import (
    ALL_EVERY,
    LAST,
    MOST,
    StoredCase,
    as_rows,
    marker_of_cases,
    read_cases,
)

LOOK = 0.05
"""Share of the items that is looked at all the same."""
MAX_LOOKS = 200
"""Limit on the looks that wait: nothing is settled until people have labelled some."""
WHO = "gate"
"""The author of labels that were settled."""
_AT_ONCE = 500  # items in a transaction
_MOST_IN_A_ROW = 20  # transactions, so that a gate that stops does not wait for many

log = structlog.get_logger("transcendent.gate")

# Never items that people have skipped, labelled before or are looking at, and none that was drawn: for the
# audit, because a shadow disagrees, or here. Rows without any feature say nothing.
_MAY = f"""item.state = 0 AND item.tier IN ({REJECTED}, {COPY}) AND NOT payload.accepted
    AND {FREE} AND octet_length(payload.features) > 1 AND NOT {pending("own")}
    AND NOT EXISTS (SELECT FROM label WHERE label.item = item.id AND label.author <> '{WHO}')
    AND NOT EXISTS (SELECT FROM disagreement WHERE disagreement.item = item.id)
    AND NOT EXISTS (SELECT FROM settled_look WHERE settled_look.item = item.id)"""
# All that are not labelled: those that people have skipped wait, too. Few of the audit have such a rank.
_LOOKS_WAITING = f"""
SELECT id FROM item WHERE state = 0 AND ((tier = {AUDITED} AND rank >= 1) OR tier = {SKIPPED})
    AND EXISTS (SELECT FROM settled_look WHERE settled_look.item = item.id)
"""
# Copies wait with their leader, also if that was drawn to be looked at.
_KEYS = f"""
SELECT DISTINCT key FROM (
    (SELECT id FROM item WHERE state = 0 AND tier = {REJECTED} ORDER BY id DESC LIMIT {MOST})
    UNION ALL {_LOOKS_WAITING}
) AS waiting JOIN item_content AS known ON known.item = waiting.id JOIN content USING (key)
WHERE NOT content.contested AND (content.label IS NOT NULL OR content.distance <= :within)
"""
# What has changed since the time before: contents of new items or with another case, and what was left then.
# LATERAL with LIMIT finds each by its key: the planner might otherwise join whole tables.
_CHANGED_KEYS = f"""
SELECT content.key FROM (
    SELECT key FROM item_content WHERE item >= :before
    UNION SELECT key FROM content WHERE compared_at >= :since AND distance IS NOT NULL
) AS changed, LATERAL (SELECT * FROM content WHERE content.key = changed.key LIMIT 1) AS content,
    LATERAL (SELECT FROM item WHERE item.id = content.leader AND {WAITS} LIMIT 1) AS leader
WHERE NOT content.contested AND (content.label IS NOT NULL OR content.distance <= :within)
UNION SELECT unnest(CAST(:left AS bytea[]))
"""
# A label may be committed a minute after others that were written later, and so may what was compared.
_NOW = """
SELECT before, now() - interval '1 minute' AS since, set_config('jit', 'off', true) FROM contents_known
"""
# An object with the content of a case takes its label alone. A case whose item is gone is forgotten.
_CANDIDATES = f"""
SELECT item.id AS item, item.model, own.key, source.labelled AS case, last.id AS action, source.label,
    CASE WHEN content.label IS NULL THEN content.distance ELSE 0 END AS distance, payload.features
FROM ({{keys}}) AS chosen JOIN content USING (key) JOIN item_content AS own USING (key)
JOIN item ON item.id = own.item JOIN payload ON payload.id = item.id
LEFT JOIN item_content AS near ON near.item = content.near AND content.label IS NULL
JOIN content AS source ON source.key = CASE WHEN content.label IS NULL THEN near.key ELSE content.key END
{LAST.format("source")}
JOIN item AS known ON known.id = source.labelled
JOIN model ON model.id = item.model
    AND lower(source.label) IN (SELECT lower(jsonb_array_elements_text(model.classes)))
WHERE {_MAY} AND NOT content.contested AND NOT source.contested AND item.model = ANY(:models)
    AND NOT EXISTS (SELECT FROM item AS leader WHERE leader.id = content.leader AND leader.held_until > now())
    AND (content.label IS NOT NULL OR (content.distance <= :within AND source.label <> ALL(:negative)))
    {{among}}
ORDER BY item.id LIMIT {_AT_ONCE}
"""
_TO_SETTLE = _CANDIDATES.format(
    keys="SELECT unnest(CAST(:keys AS bytea[])) AS key", among="AND item.id > :after"
)
_STILL = _CANDIDATES.format(
    keys="SELECT DISTINCT key FROM item_content WHERE item = ANY(:items)", among="AND item.id = ANY(:items)"
)
# Whoever labels or undoes locks the item first. Nobody is waited for, so nothing can deadlock: what somebody
# else has locked is left for the next time.
_LOCK = "SELECT id FROM item WHERE id = ANY(:ids) ORDER BY id FOR UPDATE SKIP LOCKED"
_LOOK = f"""
WITH drawn AS (
    SELECT * FROM unnest(CAST(:items AS bigint[]), CAST(:labels AS text[]), CAST(:distances AS float8[]),
        CAST(:draws AS float8[])) AS drawn (item, label, distance, draw)
), noted AS (
    INSERT INTO settled_look (item, label, distance, draw) SELECT * FROM drawn
)
UPDATE item SET tier = {AUDITED}, rank = 1 + drawn.draw FROM drawn WHERE item.id = drawn.item
"""
_SWITCH = "SELECT action, author, reason, written_at FROM settling_switch ORDER BY id DESC LIMIT 1"
_RESUMED = "SELECT coalesce(max(written_at), '-infinity') FROM settling_switch WHERE action = 'resume'"
_TURN = "INSERT INTO settling_switch (action, author, reason) VALUES (:action, :author, :reason)"
# One of two at a time: both would see that it is on, and stop or resume it.
_ALONE = "SELECT pg_advisory_xact_lock(3, 4)"
# The labels of other systems do not count: they do not choose objects at random.
_LOOKS = f"""
SELECT (drawn_at AT TIME ZONE 'UTC')::date AS day, draw, look.item, look.label AS predicted,
    CASE WHEN last.action = 'label' AND inferred.label IS NULL AND outside.action IS NULL
        THEN last.label END AS label
FROM settled_look AS look
LEFT JOIN LATERAL (SELECT * FROM label WHERE label.item = look.item ORDER BY label.id DESC LIMIT 1) AS last
    ON true
LEFT JOIN inferred ON inferred.label = last.id LEFT JOIN outside_label AS outside ON outside.action = last.id
WHERE drawn_at > ({_RESUMED}) AND drawn_at < date_trunc('day', now(), 'UTC')
"""
_CLASSES = "SELECT classes FROM model"
# The newest deployment that decides.
_DEPLOYMENT = """
SELECT id FROM deployment WHERE action IN ('pinned', 'active', 'observe') ORDER BY id DESC LIMIT 1
"""
_COUNTS = """
SELECT (SELECT count(*) FROM inferred JOIN item ON item.id = inferred.item AND item.state = 1
        WHERE how = 'settled') AS settled,
    (SELECT count(*) FROM settled_look) AS drawn,
    (SELECT count(*) FROM settled_look AS look JOIN item ON item.id = look.item
        AND item.state = 0) AS waiting,
    (SELECT count(*) FROM content WHERE labelled IS NOT NULL AND label IS NOT NULL) AS cases,
    (SELECT count(*) FROM content WHERE contested) AS contested
"""


class SettlingError(TranscendentError):
    """Settling cannot be resumed."""


class Candidate(NamedTuple):
    """An item that waits, and the label that it would take: that of a ``case``, which its ``action`` gave."""

    item: int
    model: int
    key: bytes
    case: int
    action: int
    label: str
    distance: float
    features: bytes


class Settling:
    """Settles items that wait. ``within`` and the next two are settings of the gate.

    With ``opinions=2``, cases settle once two analysts agree on their label.
    """

    def __init__(
        self,
        engine: Engine,
        within: float,
        negative: Collection[str],
        max_error: float,
        secret: bytes,
        opinions: int = 1,
    ) -> None:
        self._opinions = opinions
        self._engine, self._within, self._negative = engine, within, list(negative)
        self._max_error = max_error
        self._draw = Draw(secret, LOOK)
        self._columns = SharedColumns()
        self._marker: Any = None
        self._all_at = -math.inf
        self._changed: dict[str, Any] = {}
        self._refused: set[bytes] = set()
        self._left: set[bytes] = set()

    def work(self) -> None:
        """Settle what can be settled, unless the error was too high."""
        with self._engine.begin() as connection:
            if not check_error(connection, self._max_error):
                return
        self.settle()

    def settle(self) -> int:
        """Settle items that wait; return their number, including those to be looked at all the same."""
        settled, after, memory = 0, -1, _Memory(self._within, self._negative, self._columns)
        keys = self._keys()
        self._left = set()
        for _ in range(_MOST_IN_A_ROW if keys else 0):
            with self._engine.connect() as connection:
                found = self._candidates(connection, _TO_SETTLE, after=after, keys=keys)
                if any(each.distance > 0 for each in found):
                    memory.read(connection)
            if not found:
                break
            after = found[-1].item
            self._left |= {each.key for each in found}
            near = memory.allowed(found)
            self._refused |= {each.key for each in found if each.distance > 0} - {each.key for each in near}
            settled += self._settle([each for each in found if each.distance == 0] + near)
        self._left -= self._refused
        return settled

    def _keys(self) -> list[bytes]:
        """Return contents that may be settled, except those refused before, if the cases are the same.

        All that wait are looked at if cases may have changed, and otherwise what has changed.
        """
        with self._engine.connect() as connection:
            marker, changed = marker_of_cases(connection), self._changed
            self._changed = dict(connection.execute(text(_NOW)).mappings().one())
            given = {**changed, "within": self._within, "left": list(self._left)}
            sql = _CHANGED_KEYS
            if marker != self._marker or time.monotonic() >= self._all_at:
                self._marker, self._refused, sql = marker, set(), _KEYS
                self._all_at = time.monotonic() + ALL_EVERY
            keys = connection.execute(text(sql), given).scalars()
            return [bytes(key) for key in keys if bytes(key) not in self._refused]

    def _candidates(self, connection: Connection, sql: str, **given: Any) -> list[Candidate]:
        given |= {"within": self._within, "negative": self._negative}
        given["models"] = self._columns.read(connection)
        rows = connection.execute(text(sql), given)
        found = [Candidate(*row)._replace(key=bytes(row.key), features=bytes(row.features)) for row in rows]
        if self._opinions > 1:
            said = opinions_on(connection, list({each.case for each in found}))
            found = [each for each in found if said[each.case].agreed == each.label]
        return found

    def _settle(self, chosen: list[Candidate]) -> int:
        ids = {number for each in chosen for number in (each.item, each.case)}
        with self._engine.begin() as connection:
            connection.execute(text("SET LOCAL synchronous_commit = on"))  # the role's default may be off
            locked = set(connection.execute(text(_LOCK), {"ids": sorted(ids)}).scalars())
            items = [each.item for each in chosen if {each.item, each.case} <= locked]
            # What was committed before the lock is seen from here on.
            now = set(self._candidates(connection, _STILL, items=items))
            sure = self._with_room(connection, [each for each in chosen if each in now])
            by_source: dict[tuple[str, int], list[int]] = defaultdict(list)
            for each in sure:
                if not self._draw(str(each.item)):
                    by_source[each.label, each.action].append(each.item)
            connection.execute(text(_LOOK), self._drawn(sure))
            for (label, action), settled in by_source.items():
                infer(connection, settled, label, WHO, "settled", [action])
        return len(sure)

    def _with_room(self, connection: Connection, sure: list[Candidate]) -> list[Candidate]:
        """Return candidates up to the first look for which there is no room.

        Others are settled once it is looked at, so the share of looks is that of the draw.
        """
        waiting = f"SELECT count(*) FROM ({_LOOKS_WAITING} LIMIT {MAX_LOOKS}) AS found"
        room = MAX_LOOKS - int(connection.execute(text(waiting)).scalar_one())
        looks = (place for place, each in enumerate(sure) if self._draw(str(each.item)))
        return sure[: next(islice(looks, room, None), len(sure))] if room > 0 else []

    def _drawn(self, sure: list[Candidate]) -> dict[str, list[Any]]:
        """Return the columns of the items that are looked at all the same."""
        drawn = [each for each in sure if self._draw(str(each.item))]
        return {
            "items": [each.item for each in drawn],
            "labels": [each.label for each in drawn],
            "distances": [each.distance for each in drawn],
            "draws": [self._draw.rank(str(each.item)) for each in drawn],
        }


class _Memory:
    """The cases of zeros and ones, which decide whether near content may be settled."""

    def __init__(self, within: float, negative: list[str], columns: SharedColumns) -> None:
        self._within, self._negative, self._columns = within, negative, columns
        self._cases: dict[ContentColumns, list[StoredCase]] | None = None
        self._built: dict[ContentColumns, CaseMemory] = {}

    def read(self, connection: Connection) -> None:
        """Read the cases, unless that was done."""
        if self._cases is None:
            self._cases = self._columns.divide(read_cases(connection, self._columns.read(connection)))

    def allowed(self, found: list[Candidate]) -> list[Candidate]:
        """Return the candidates near a case that may take its label."""
        chosen = []
        for columns, near in self._columns.divide(each for each in found if each.distance > 0).items():
            # If none of the negative classes is one of this model's, they may be misspelt.
            if self._negative and not set(self._negative) & set(columns.classes):
                continue
            contents = {each.key: each.features for each in near}
            rows = as_rows(list(contents.values()), columns.width)
            answers = self._of(columns).settle(rows, [key.hex() for key in contents])
            labels = {key: answer and answer.label for key, answer in zip(contents, answers, strict=True)}
            chosen += [each for each in near if labels[each.key] == each.label]
        return chosen

    def _of(self, columns: ContentColumns) -> CaseMemory:
        if columns not in self._built:
            memory = CaseMemory(MOST, settle=self._within, negative=self._negative)
            cases = (self._cases or {}).get(columns, [])
            rows = as_rows([case.features for case in cases], columns.width)
            when = [case.written_at.timestamp() for case in cases]
            memory.add(rows, [case.label for case in cases], authors="people", times=when)
            contested = [case.features for case in cases if case.contested]
            memory.contested.update(content_keys(as_rows(contested, columns.width)).tolist())
            self._built[columns] = memory
        return self._built[columns]


def settling_secret(engine: Engine) -> bytes:
    """Return the key of the draw of items to look at."""
    with engine.connect() as connection:
        return bytes(connection.execute(text("SELECT value FROM secret WHERE name = 'settle'")).scalar_one())


def error_in(connection: Connection, max_error: float) -> Harm:
    """Return the error of settling since it was last resumed, from the looks of days that are over."""
    classes = {str(each) for known in connection.execute(text(_CLASSES)).scalars() for each in known}
    return harm_of((AuditItem(*row) for row in connection.execute(text(_LOOKS))), classes, max_error)


def is_on(connection: Connection) -> bool:
    """Return whether settling was not stopped, or was resumed since."""
    last = connection.execute(text(_SWITCH)).first()
    return last is None or last.action == "resume"


def check_error(connection: Connection, max_error: float) -> bool:
    """Return whether items may be settled; stop it if its error is too high, with an alarm."""
    connection.execute(text(_ALONE))
    if not is_on(connection):
        return False
    harm = error_in(connection, max_error)
    alarm = harm.unclear_right.alarm
    if alarm is None:
        return True
    low = harm.unclear_right.kept_error.low
    reason = f"at least {low:.2%} of settled labels are wrong, more than {max_error:.2%}"
    connection.execute(text(_TURN), {"action": "stop", "author": WHO, "reason": reason})
    log.warning("settling stopped", reason=reason)
    deployment = connection.execute(text(_DEPLOYMENT)).scalar()
    if deployment is not None:
        raise_alarm(connection, deployment, "settling", alarm)
    return False


def resume(engine: Engine, who: str, reason: str) -> None:
    """Settle again after it was stopped; its error is counted anew."""
    with engine.begin() as connection:
        connection.execute(text(_ALONE))
        if is_on(connection):
            raise SettlingError("settling was not stopped, so there is nothing to resume.")
        connection.execute(text(_TURN), {"action": "resume", "author": who, "reason": reason})


def status(connection: Connection, max_error: float) -> dict[str, Any]:
    """Return the last action of the switch, counts of items and cases, and the error with its interval.

    Settling is ``paused`` while as many looks wait as may.
    """
    switch = connection.execute(text(_SWITCH)).mappings().first()
    harm = error_in(connection, max_error)
    right, wrong = harm.unclear_right, harm.unclear_wrong
    error = {
        "labels": right.labels,
        "wrong": right.wrong,
        "unclear": harm.unclear,
        "low": right.kept_error.low,
        "high": wrong.kept_error.high,
    }
    counts = connection.execute(text(_COUNTS)).mappings().one()
    known = {"on": is_on(connection), "paused": counts["waiting"] >= MAX_LOOKS}
    return {**known, "switch": switch and dict(switch), **counts, "error": error}
