"""Objects with the same features: in the queue one of them stands for all.

Keeping an object must stay quick, so this is done soon afterwards, by one process at a time. The first item
of a content that waits is its *leader*; those that come later are *copies*, which no claim reads. A copy gets
the label of its leader. Objects of the audit are never copies: each of them is looked at.
"""

import math
import time
from hashlib import blake2b
from typing import Any

from sqlalchemy import Engine, text

from transcendent.gate.inferring import LABELLED_BY_PEOPLE
from transcendent.gate.intake import COPY, FREE, REJECTED, WAITS, Draw
from transcendent.gate.label_work import go_on
from transcendent.gate.shared_columns import SharedColumns

EVERY = 5.0
"""Seconds between two looks for new items."""
REPAIR_EVERY = 300.0
"""Seconds between two looks for copies without a leader."""
_AT_ONCE = 2000  # items in a transaction
_LONGEST = 4.0  # seconds for new items, and for what requests have left: neither waits long for the other
_KEY_BYTES = 16

# Excludes other processes that do this, and labels of items without a content. One that stops in between must
# not hold the locks for ever.
_LOCK = """
SELECT set_config('idle_in_transaction_session_timeout', '60s', true),
    pg_try_advisory_xact_lock(3, 2) AND pg_try_advisory_xact_lock(3, 7) AS free
"""
# Numbers are drawn before they are committed, so an item may appear below others. All transactions that add
# items are shorter than five minutes.
_NEW = """
SELECT item.id, item.model, payload.features FROM item JOIN payload ON payload.id = item.id
WHERE item.id >= :before
    AND NOT EXISTS (SELECT FROM item_content WHERE item_content.item = item.id)
ORDER BY item.id LIMIT :limit
"""
_KNOWN = """
UPDATE contents_known SET before = coalesce((
    SELECT max(id) FROM item WHERE id >= before AND received_at < now() - interval '5 minutes'
        AND (CAST(:last AS bigint) IS NULL OR id < :last)
), before)
"""
_ADD = """
WITH new AS (
    SELECT * FROM unnest(CAST(:items AS bigint[]), CAST(:keys AS bytea[]), CAST(:places AS float8[]))
        AS new (item, key, place)
), added AS (
    INSERT INTO content (key, place) SELECT DISTINCT key, place FROM new ON CONFLICT DO NOTHING
)
INSERT INTO item_content (item, key, opened) SELECT item, key, EXISTS (
    SELECT FROM label WHERE label.item = new.item AND action = 'label'
        AND NOT EXISTS (SELECT FROM outside_label WHERE outside_label.action = label.id)
) FROM new ON CONFLICT DO NOTHING
"""
# Analysts may have labelled items before their contents were known.
_LABELLED = f"""
UPDATE content SET label = coalesce(content.label, found.label),
    labelled = CASE WHEN content.label IS NULL THEN found.item ELSE labelled END,
    contested = contested OR found.labels > 1 OR coalesce(content.label <> found.label, false)
FROM (
    SELECT known.key, count(DISTINCT last.label) AS labels, max(known.item) AS item,
        (array_agg(last.label ORDER BY known.item DESC))[1] AS label
    FROM {LABELLED_BY_PEOPLE} WHERE known.item = ANY(:items) GROUP BY known.key
) AS found WHERE content.key = found.key
"""
_LEAD = f"""
UPDATE content SET leader = chosen.item FROM (
    SELECT known.key, min(known.item) AS item FROM item_content AS known JOIN item ON item.id = known.item
    WHERE known.item = ANY(:items) AND item.state = 0 AND item.tier = 1 GROUP BY known.key
) AS chosen WHERE content.key = chosen.key
    AND NOT EXISTS (SELECT FROM item WHERE item.id = content.leader AND {WAITS})
"""
# Items are locked in the order of ids, as claims and releases do.
_COPY = f"""
WITH copies AS (
    SELECT item.id FROM item JOIN item_content AS known ON known.item = item.id JOIN content USING (key)
    WHERE item.id = ANY(:items) AND item.state = 0 AND item.tier = {REJECTED} AND {FREE}
        AND content.leader <> item.id AND NOT content.contested
    ORDER BY item.id FOR UPDATE OF item
)
UPDATE item SET tier = {COPY} FROM copies WHERE item.id = copies.id
"""
# Copies whose leader was deleted or dropped, was closed, or got its label while they became copies; not while
# others wait for their label.
_ORPHANS = f"""
SELECT min(item.id) AS item, known.key FROM item LEFT JOIN item_content AS known ON known.item = item.id
LEFT JOIN content USING (key)
WHERE item.state = 0 AND item.tier = {COPY} AND NOT EXISTS (SELECT FROM label_work)
    AND NOT EXISTS (SELECT FROM item WHERE item.id = content.leader AND {WAITS})
GROUP BY known.key LIMIT :limit
"""
_PROMOTE = f"""
WITH chosen AS (
    SELECT id FROM item WHERE id = ANY(:items) AND state = 0 AND tier = {COPY} ORDER BY id FOR UPDATE
), led AS (
    UPDATE content SET leader = chosen.id FROM chosen JOIN item_content AS known ON known.item = chosen.id
    WHERE content.key = known.key
)
UPDATE item SET tier = {REJECTED} FROM chosen WHERE item.id = chosen.id
"""


class Contents:
    """Finds the contents of new items; ``secret`` orders contents at random."""

    def __init__(self, engine: Engine, secret: bytes) -> None:
        self._engine, self._place = engine, Draw(secret, 1.0).rank
        self._columns = SharedColumns()
        self._repair_at = -math.inf

    def work(self) -> bool:
        """Add what is new, continue labels of many copies, and now and then repair what is left behind.

        Return whether the time for one of these ran out, so there may be more.
        """
        began = time.monotonic()
        self.add_new(_LONGEST)
        go_on(self._engine, _LONGEST)
        more = time.monotonic() - began >= _LONGEST
        if time.monotonic() >= self._repair_at:
            self.repair()
            self._repair_at = time.monotonic() + REPAIR_EVERY
        return more

    def add_new(self, seconds: float = math.inf) -> int:
        """Add the contents of new items, and make copies of those that can be; return their number."""
        added, end = 0, time.monotonic() + seconds
        while n := self._add_some():
            added += n
            if n < _AT_ONCE or time.monotonic() >= end:
                break
        return added

    def _add_some(self) -> int:
        with self._engine.begin() as connection:
            if not connection.execute(text(_LOCK)).one().free:
                return 0
            before = connection.execute(text("SELECT before FROM contents_known")).scalar_one()
            rows = connection.execute(text(_NEW), {"before": before, "limit": _AT_ONCE}).all()
            self._columns.read(connection)
            keys = [self._key(row.id, row.model, bytes(row.features)) for row in rows]
            given: dict[str, Any] = {"items": [row.id for row in rows], "keys": keys}
            if rows:
                places = [self._place(key.hex()) for key in keys]
                connection.execute(text(_ADD), {**given, "places": places})
                for sql in (_LABELLED, _LEAD, _COPY):
                    connection.execute(text(sql), given)
            last = rows[-1].id if len(rows) == _AT_ONCE else None
            connection.execute(text(_KNOWN), {"last": last})
            return len(rows)

    def repair(self) -> int:
        """Let a copy lead where no leader waits, and return the number of such contents."""
        with self._engine.begin() as connection:
            if not connection.execute(text(_LOCK)).one().free:
                return 0
            orphans = connection.execute(text(_ORPHANS), {"limit": _AT_ONCE}).all()
            if orphans:
                connection.execute(text(_PROMOTE), {"items": [row.item for row in orphans]})
            return len(orphans)

    def _key(self, item: int, model: int, features: bytes) -> bytes:
        columns = self._columns.of(model)
        # Scores that are equal, or no features at all, do not make equal objects.
        if columns.of_scores or len(features) == 1:
            features += item.to_bytes(8, "big")
        return blake2b(features, key=columns.digest, digest_size=_KEY_BYTES).digest()
