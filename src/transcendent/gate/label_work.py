"""Labels, undos and contradictions that concern many items: the first of them at once, the others soon after.

A request changes at most `AT_ONCE` items beside its own. What is left is a row of ``label_work``: the process
that finds contents goes on with the oldest row, in small transactions, and deletes it in the last of them. So
nothing is lost or done twice if a process dies.
"""

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Engine, text

from transcendent.gate.intake import COPY, FREE, REJECTED

AT_ONCE = 1000
"""Limit on the items that one transaction changes, and on those that it reads at a time."""
_READS = 5  # how often a request reads that many: most of them may have their label already

_INFER = """
WITH written AS (
    INSERT INTO label (item, action, label, reason, note, author)
    SELECT item, 'label', :label, :reason, :note, :who FROM unnest(CAST(:items AS bigint[])) AS chosen (item)
    RETURNING id, item
), marked AS (
    INSERT INTO inferred (label, item, how, sources) SELECT id, item, :how, :sources FROM written
)
UPDATE item SET state = 1, holder = NULL, held_until = NULL WHERE id = ANY(:items)
"""
# A trigger has put them there: nobody is asked for a second opinion on a label that nobody gave.
_NO_OPINION = "DELETE FROM unconfirmed WHERE item = ANY(:items)"
STANDS = "item.state = 1 AND inferred.label = (SELECT max(id) FROM label WHERE label.item = inferred.item)"
"""Whether an inferred label is still that of its item: people may have labelled it since."""
# An item of contested content waits by itself. Only an undo that follows from something else has a reason.
_WAIT_AGAIN = f"""
WITH history AS (
    INSERT INTO label (item, action, reason, author)
    SELECT unnest(CAST(:items AS bigint[])), 'undo', :why, :who
)
UPDATE item SET state = 0, tier = CASE WHEN tier = {COPY} AND EXISTS (
    SELECT FROM item_content AS known JOIN content USING (key) WHERE known.item = item.id AND contested
) THEN {REJECTED} ELSE tier END WHERE id = ANY(:items)
"""

_ADD = """
INSERT INTO label_work (kind, key, before, how, sources, label, model, remark, author)
VALUES (:kind, :key, :before, :how, :sources, :label, :model, :remark, :author) RETURNING *
"""
_UNDOING = "SELECT EXISTS (SELECT FROM label_work WHERE kind = 'undo')"
_FORGET = """
DELETE FROM label_work WHERE kind = 'label'
    AND (key = :key OR (sources && CAST(:sources AS bigint[]) AND how && CAST(:how AS text[])))
"""
# Excludes other processes that do this, and who would begin with a later row. See `contents` for the timeout.
_OLDEST = """
SELECT * FROM label_work WHERE pg_try_advisory_xact_lock(3, 5) ORDER BY id LIMIT 1 FOR UPDATE
"""
_TIMEOUT = "SELECT set_config('idle_in_transaction_session_timeout', '60s', true)"
_MOVE = "UPDATE label_work SET before = :before WHERE id = :id"
_DONE = "DELETE FROM label_work WHERE id = :id"

_LAST_ITEM = "SELECT coalesce(max(item), 0) + 1 FROM item_content WHERE key = :key"
_LAST_LABEL = "SELECT coalesce(max(id), 0) + 1 FROM label"
_PAGE_OF_ITEMS = """
SELECT item FROM item_content WHERE key = :key AND item < :before ORDER BY item DESC LIMIT :limit
"""
_PAGE_OF_LABELS = """
SELECT label FROM inferred WHERE sources && CAST(:sources AS bigint[]) AND how = ANY(:how) AND label < :before
    AND (CAST(:key AS bytea) IS NULL OR item IN (SELECT item FROM item_content WHERE key = :key))
ORDER BY label DESC LIMIT :limit
"""
# Found by their ids: no index has these sums, and with outdated statistics the planner might read all copies.
_COPIES = f"""
SELECT id FROM item WHERE state + 0 = 0 AND tier + 0 = {COPY} AND id = ANY(:page)
    AND {FREE} AND (CAST(:model AS integer) IS NULL OR model IN (
        SELECT id FROM model WHERE classes = (SELECT classes FROM model AS own WHERE own.id = :model)))
ORDER BY id FOR UPDATE
"""
_FOLLOWING = f"""
SELECT item.id FROM inferred JOIN item ON item.id = inferred.item
WHERE inferred.label = ANY(:page) AND {STANDS} ORDER BY item.id FOR UPDATE OF item
"""
_REMARK = "SELECT reason, note FROM remark WHERE label = :label"
_RELEASE = f"UPDATE item SET tier = {REJECTED} WHERE id = ANY(:items)"

# LATERAL with LIMIT finds each copy by its id, since no index has these sums.
_PENDING = f"""
SELECT count(DISTINCT known.item) FROM label_work AS work
JOIN item_content AS known ON known.key = work.key AND known.item < work.before, LATERAL (
    SELECT FROM item WHERE item.id = known.item AND state + 0 = 0 AND tier + 0 = {COPY} LIMIT 1
) AS copy
WHERE work.kind = 'label' AND (CAST(:ids AS bigint[]) IS NULL OR work.id = ANY(:ids))
"""
_ANY = "SELECT EXISTS (SELECT FROM label_work WHERE kind = 'label')"
_LEFT = f"""
SELECT count(*) FROM label_work AS work JOIN inferred ON inferred.sources && work.sources
    AND inferred.how = ANY(work.how) AND inferred.label < work.before
JOIN item ON item.id = inferred.item WHERE work.id = :id AND {STANDS}
"""


def pending(known: str) -> str:
    """Return SQL that says whether a row of ``item_content`` is a copy that is about to get its label."""
    return f"""EXISTS (SELECT FROM label_work AS work
    WHERE work.kind = 'label' AND work.key = {known}.key AND {known}.item < work.before)"""


def infer(
    connection: Connection,
    items: Sequence[int],
    label: str,
    who: str,
    how: str,
    sources: Sequence[int],
    *,
    reason: str | None = None,
    note: str | None = None,
) -> None:
    """Give items, which are locked and wait, a label that follows from others."""
    if not items:
        return
    given = {"items": list(items), "label": label, "who": who, "how": how, "sources": list(sources)}
    connection.execute(text(_INFER), {**given, "reason": reason, "note": note})
    connection.execute(text(_NO_OPINION), given)


def label_copies_of(
    connection: Connection,
    keys: Sequence[bytes],
    label: str,
    who: str,
    how: str,
    sources: Sequence[int],
    *,
    model: int,
    remark: int | None = None,
    count: bool = False,
) -> int:
    """Give the copies of contents that wait a label that follows from others.

    Only items of models with the classes of ``model`` get it. Reason and note are those of the label
    ``remark``. While labels are still being taken back, all is left for later. Return how many got the label;
    with ``count``, also those that soon will.
    """
    given: dict[str, Any] = {"how": [how], "sources": list(sources), "label": label, "author": who}
    given |= {"model": model, "remark": remark}
    done, ids, waits = 0, [], connection.execute(text(_UNDOING)).scalar_one()
    for key in keys:
        before = connection.execute(text(_LAST_ITEM), {"key": key}).scalar_one()
        row = _add(connection, "label", key=key, before=before, **given)
        ids.append(row["id"])
        if done < AT_ONCE and not waits:
            done += _work(connection, row, AT_ONCE - done, _READS)
    return done + (connection.execute(text(_PENDING), {"ids": ids}).scalar_one() if count else 0)


def undo_following(
    connection: Connection,
    sources: Sequence[int],
    who: str,
    how: Sequence[str],
    key: bytes | None = None,
    *,
    why: str,
    count: bool = False,
) -> int:
    """Take back the labels that follow from others in some ways, of all contents or of one.

    Their history says ``why``, as the reason. Return how many were taken back; with ``count``, also those
    that will soon be.
    """
    if not sources:
        return 0
    before = connection.execute(text(_LAST_LABEL)).scalar_one()
    given: dict[str, Any] = {"how": list(how), "sources": list(sources), "author": who, "label": why}
    row = _add(connection, "undo", key=key, before=before, **given)
    done = _work(connection, row, AT_ONCE, _READS)
    return done + (connection.execute(text(_LEFT), {"id": row["id"]}).scalar_one() if count else 0)


def release_copies(connection: Connection, key: bytes, who: str) -> None:
    """Let the copies of a content wait one by one."""
    before = connection.execute(text(_LAST_ITEM), {"key": key}).scalar_one()
    row = _add(connection, "release", key=key, before=before, author=who)
    _work(connection, row, AT_ONCE, _READS)


def forget_work(
    connection: Connection,
    *,
    key: bytes | None = None,
    sources: Sequence[int] = (),
    how: Sequence[str] = (),
) -> None:
    """Give no further copies a label: those of a content, or labels that follow from others in some ways."""
    connection.execute(text(_FORGET), {"key": key, "sources": list(sources), "how": list(how)})


def count_pending(connection: Connection) -> int:
    """Count the copies that are about to get their label."""
    if not connection.execute(text(_ANY)).scalar_one():
        return 0
    return int(connection.execute(text(_PENDING), {"ids": None}).scalar_one())


def go_on(engine: Engine, seconds: float) -> None:
    """Go on with what requests have left, for some seconds, unless another process does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with engine.begin() as connection:
            connection.execute(text(_TIMEOUT))
            row = connection.execute(text(_OLDEST)).mappings().first()
            if row is None:
                return
            connection.execute(text("SET LOCAL synchronous_commit = on"))  # the role's default may be off
            _work(connection, dict(row), AT_ONCE, 1)


def _add(connection: Connection, kind: str, **given: Any) -> dict[str, Any]:
    """Add a row of work, and return it."""
    empty: dict[str, Any] = {"how": [], "sources": [], "label": None, "model": None, "remark": None}
    return dict(connection.execute(text(_ADD), {"kind": kind, **empty, **given}).mappings().one())


def _work(connection: Connection, row: dict[str, Any], limit: int, reads: int) -> int:
    """Change up to ``limit`` items of a row of work; note where to go on, or that it is done."""
    pages = _PAGE_OF_LABELS if row["kind"] == "undo" else _PAGE_OF_ITEMS
    given, done = dict(row), 0
    for _ in range(reads):
        given["limit"] = limit - done
        page = list(connection.execute(text(pages), given).scalars())
        done += _change(connection, given, page)
        if len(page) < given["limit"]:
            connection.execute(text(_DONE), given)
            return done
        given["before"] = page[-1]
        if done == limit:
            break
    connection.execute(text(_MOVE), given)
    return done


def _change(connection: Connection, row: dict[str, Any], page: list[int]) -> int:
    """Do what a row of work says with some items or inferred labels; return the number of items."""
    found = text(_FOLLOWING if row["kind"] == "undo" else _COPIES)
    items = list(connection.execute(found, {"page": page, "model": row["model"]}).scalars()) if page else []
    if not items:
        return 0
    if row["kind"] == "undo":
        connection.execute(text(_WAIT_AGAIN), {"items": items, "who": row["author"], "why": row["label"]})
    elif row["kind"] == "release":
        connection.execute(text(_RELEASE), {"items": items})
    else:
        said = connection.execute(text(_REMARK), {"label": row["remark"]}).first()
        reason, note = said or (None, None)
        given = row["label"], row["author"], row["how"][0], row["sources"]
        infer(connection, items, *given, reason=reason, note=note)
    return len(items)
