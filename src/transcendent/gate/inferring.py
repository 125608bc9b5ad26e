"""Labels that nobody gave to an item: they follow from the labels of others.

Each is an action of the item's history, marked by a row of ``inferred``. They are exported only on request,
do not calibrate and do not count as an audit.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, text

from transcendent.gate.label_work import forget_work, label_copies_of, release_copies, undo_following

DISAGREE = "people disagree about these features"
SOURCE_UNDONE = "the label it followed from was undone"
UNUSED = """
DELETE FROM content WHERE NOT contested AND NOT EXISTS (
    SELECT FROM item_content WHERE item_content.key = content.key)
"""
"""Forgets contents without items, except that they were contested."""
# Whoever finds the content of an item does not see a label that is not committed yet, and that label does not
# see the content: one waits for the other. This comes before all locks of rows, to exclude deadlocks.
_AWAIT = """
SELECT pg_advisory_xact_lock_shared(3, 7) WHERE NOT EXISTS (SELECT FROM item_content WHERE item = :item)
"""
_OPENED = "UPDATE item_content SET opened = true WHERE item = :item AND NOT opened"
_OWN = "SELECT key, model FROM item_content JOIN item ON item.id = item_content.item WHERE item = :item"
# A content is contested if people have given two of its items different labels.
_REMEMBER = """
UPDATE content SET label = :label, labelled = :item,
    contested = contested OR coalesce(content.label <> :label AND labelled <> :item, false)
FROM item_content AS known WHERE known.item = :item AND content.key = known.key
RETURNING contested, content.key
"""
# The labels that people gave objects with the same features.
_OF_CONTENT = """
SELECT label.id FROM item_content AS own JOIN item_content AS known ON known.key = own.key AND known.opened
JOIN label ON label.item = known.item AND label.action = 'label'
WHERE own.item = :item AND NOT EXISTS (SELECT FROM inferred WHERE inferred.label = label.id)
"""
_CONTESTED = """
SELECT contested FROM content JOIN item_content AS known USING (key) WHERE known.item = :item
"""
LABELLED_BY_PEOPLE = """
item_content AS known JOIN item ON item.id = known.item AND item.state = 1 AND known.opened
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
# What other labels of objects with the same features were inferred from, in some way.
_DISPROVED = """
SELECT DISTINCT unnest(inferred.sources) FROM item_content AS own
JOIN item_content AS known ON known.key = own.key JOIN inferred ON inferred.item = known.item
JOIN label ON label.id = inferred.label
WHERE own.item = :item AND inferred.how = :how AND label.label <> :label
"""


def await_content(connection: Connection, item: int) -> None:
    """Wait while the content of a new item is being found; nobody begins to look for it until the end."""
    connection.execute(text(_AWAIT), {"item": item})


def note_opened(connection: Connection, item: int) -> None:
    """Note that a person has given an item a label."""
    connection.execute(text(_OPENED), {"item": item})


def remember(connection: Connection, item: int, label: str, who: str) -> None:
    """Note that a person has given an item a label that is a class.

    If its content is contested now, what followed from it is taken back: equal features are not equal files.
    Objects with these features wait one by one from then on.
    """
    content = connection.execute(text(_REMEMBER), {"item": item, "label": label}).first()
    if content is not None and content.contested:
        sources = connection.execute(text(_OF_CONTENT), {"item": item}).scalars().all()
        forget_work(connection, key=content.key)
        take_back_all(connection, sources, who, ["copy", "settled"], why=DISAGREE)
        release_copies(connection, content.key, who)


def label_copies(connection: Connection, item: int, action: int, label: str, who: str) -> None:
    """Give the copies of an item its label; none if the content is contested."""
    own = connection.execute(text(_OWN), {"item": item}).first()
    if own is None or connection.execute(text(_CONTESTED), {"item": item}).scalar():
        return
    label_copies_of(connection, [own.key], label, who, "copy", [action], model=own.model)


def take_back(connection: Connection, item: int, action: int, who: str) -> None:
    """Take back the labels that follow from one of an item."""
    take_back_all(connection, [action], who, ["copy", "campaign", "settled"], why=SOURCE_UNDONE)
    connection.execute(text(_FORGET), {"item": item})


def take_back_all(
    connection: Connection,
    sources: Sequence[int],
    who: str,
    how: Sequence[str],
    *,
    why: str,
    count: bool = False,
) -> int:
    """Take back the labels that follow from others in some ways, also those that copies are about to get.

    Return how many were taken back; with ``count``, also those that soon will be.
    """
    forget_work(connection, sources=sources, how=how)
    return undo_following(connection, sources, who, how, why=why, count=count)


def disprove(connection: Connection, item: int, label: str, who: str) -> None:
    """Take back what a person disproves who gives an object another label than was inferred for its content.

    That is what was settled for the same content, and all that was inferred for its campaign.
    """
    given = {"item": item, "label": label}
    settled = connection.execute(text(_DISPROVED), {**given, "how": "settled"}).scalars().all()
    if settled:
        key = connection.execute(text(_OWN), given).one().key
        undo_following(connection, settled, who, ["settled"], key, why=DISAGREE)
    sources = connection.execute(text(_DISPROVED), {**given, "how": "campaign"}).scalars().all()
    if sources:
        why = "a person gave another member of the campaign another label"
        take_back_all(connection, sources, who, ["campaign"], why=why)
