"""Labels that nobody gave to an item: they follow from the labels of others.

Each is an action of the item's history, marked by a row of ``inferred``. They are exported only on request,
do not calibrate and do not count as an audit.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, text

from transcendent.gate.intake import COPY, REJECTED

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
# Found by their ids: no index has these sums, and with outdated statistics the planner might read all copies.
_COPIES = f"""
SELECT id FROM item WHERE state + 0 = 0 AND tier + 0 = {COPY} AND id = ANY(ARRAY(
    SELECT item FROM item_content WHERE key = (SELECT key FROM item_content WHERE item = :item)
)) AND (held_until IS NULL OR held_until <= now()) AND model IN (
    SELECT id FROM model WHERE classes = (
        SELECT own.classes FROM item JOIN model AS own ON own.id = item.model WHERE item.id = :item)
) ORDER BY id FOR UPDATE
"""
_RELEASE = f"UPDATE item SET tier = {REJECTED} WHERE id = ANY(:items)"
UNUSED = """
DELETE FROM content WHERE NOT contested AND NOT EXISTS (
    SELECT FROM item_content WHERE item_content.key = content.key)
"""
"""Forgets contents without items, except that they were contested."""
# A content is contested if people have given two of its items different labels.
_REMEMBER = """
UPDATE content SET label = :label, labelled = :item,
    contested = contested OR coalesce(content.label <> :label AND labelled <> :item, false)
FROM item_content AS known WHERE known.item = :item AND content.key = known.key RETURNING contested
"""
# The labels that people gave objects with the same features.
_OF_CONTENT = """
SELECT label.id FROM item_content AS own JOIN item_content AS known ON known.key = own.key
JOIN label ON label.item = known.item AND label.action = 'label'
WHERE own.item = :item AND NOT EXISTS (SELECT FROM inferred WHERE inferred.label = label.id)
"""
_CONTESTED = """
SELECT contested FROM content JOIN item_content AS known USING (key) WHERE known.item = :item
"""
LABELLED_BY_PEOPLE = """
item_content AS known JOIN item ON item.id = known.item AND item.state = 1
JOIN model ON model.id = item.model
JOIN LATERAL (SELECT * FROM label WHERE label.item = known.item ORDER BY id DESC LIMIT 1) AS last
    ON last.action = 'label' AND lower(last.label) IN (SELECT lower(jsonb_array_elements_text(model.classes)))
    AND NOT EXISTS (SELECT FROM inferred WHERE inferred.label = last.id)
    AND NOT EXISTS (SELECT FROM outside_label WHERE outside_label.action = last.id)
"""
"""Items with their contents and the label, a class, that a person gave them last."""
_FORGET = f"""
UPDATE content SET (label, labelled) = (
    SELECT last.label, known.item FROM {LABELLED_BY_PEOPLE}
    WHERE known.key = content.key AND known.item <> :item ORDER BY last.id DESC LIMIT 1
) FROM item_content AS known
WHERE known.item = :item AND content.key = known.key AND labelled = :item
"""
STANDS = "item.state = 1 AND inferred.label = (SELECT max(id) FROM label WHERE label.item = inferred.item)"
"""Whether an inferred label is still that of its item: people may have labelled it since."""
_FOLLOWING = f"""
SELECT item.id FROM inferred JOIN item ON item.id = inferred.item
WHERE inferred.sources && CAST(:sources AS bigint[]) AND inferred.how = ANY(:how) AND {STANDS}
ORDER BY item.id FOR UPDATE OF item
"""
# What another label of objects with the same features followed from, as a member of a campaign.
_DISPROVED = """
SELECT DISTINCT unnest(inferred.sources) FROM item_content AS own
JOIN item_content AS known ON known.key = own.key JOIN inferred ON inferred.item = known.item
JOIN label ON label.id = inferred.label
WHERE own.item = :item AND inferred.how = 'campaign' AND label.label <> :label
"""
# What was settled for objects with the same features, with another label.
_SAME_CONTENT = f"""
SELECT item.id FROM item_content AS own JOIN item_content AS known ON known.key = own.key
JOIN inferred ON inferred.item = known.item JOIN item ON item.id = inferred.item
JOIN label ON label.id = inferred.label
WHERE own.item = :item AND inferred.how = 'settled' AND label.label <> :label AND {STANDS}
ORDER BY item.id FOR UPDATE OF item
"""
_WAIT_AGAIN = """
WITH history AS (
    INSERT INTO label (item, action, author) SELECT unnest(CAST(:items AS bigint[])), 'undo', :who
)
UPDATE item SET state = 0 WHERE id = ANY(:items)
"""


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


def remember(connection: Connection, item: int, label: str, who: str) -> None:
    """Note that a person has given an item a label that is a class.

    If its content is contested now, what followed from it is taken back: equal features are not equal files.
    Objects with these features wait one by one from then on.
    """
    if connection.execute(text(_REMEMBER), {"item": item, "label": label}).scalar():
        sources = connection.execute(text(_OF_CONTENT), {"item": item}).scalars().all()
        take_back_all(connection, sources, who, ["copy", "settled"])
        copies = list(connection.execute(text(_COPIES), {"item": item}).scalars())
        connection.execute(text(_RELEASE), {"items": copies})


def label_copies(connection: Connection, item: int, action: int, label: str, who: str) -> int:
    """Give the copies of an item its label, and return their number; none if the content is contested."""
    if connection.execute(text(_CONTESTED), {"item": item}).scalar():
        return 0
    copies = list(connection.execute(text(_COPIES), {"item": item}).scalars())
    infer(connection, copies, label, who, "copy", [action])
    return len(copies)


def take_back(connection: Connection, item: int, action: int, who: str) -> int:
    """Take back the labels that follow from one of an item, and return their number."""
    taken = take_back_all(connection, [action], who, ["copy", "campaign", "settled"])
    connection.execute(text(_FORGET), {"item": item})
    return taken


def take_back_all(connection: Connection, sources: Sequence[int], who: str, how: Sequence[str]) -> int:
    """Take back the labels that follow from others in some ways, and return their number."""
    given = {"sources": list(sources), "how": list(how)}
    return _wait_again(connection, connection.execute(text(_FOLLOWING), given).scalars().all(), who)


def _wait_again(connection: Connection, items: Sequence[int], who: str) -> int:
    """Take back the labels of items, which are locked, and return their number."""
    return connection.execute(text(_WAIT_AGAIN), {"items": list(items), "who": who}).rowcount if items else 0


def disprove(connection: Connection, item: int, label: str, who: str) -> int:
    """Take back what a person disproves who gives an object another label than was inferred for its content.

    That is what was settled for the same content, and all that was inferred for its campaign.
    """
    given = {"item": item, "label": label}
    _wait_again(connection, connection.execute(text(_SAME_CONTENT), given).scalars().all(), who)
    sources = connection.execute(text(_DISPROVED), given).scalars().all()
    return take_back_all(connection, sources, who, ["campaign"]) if sources else 0
