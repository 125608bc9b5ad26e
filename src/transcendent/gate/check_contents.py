"""Contradictions between items, their contents and campaigns, and the labels that nobody gave."""

from sqlalchemy import Connection, text

from transcendent.gate.inferring import LABELLED_BY_PEOPLE, UNUSED
from transcendent.gate.intake import COPY, REJECTED, WAITS
from transcendent.gate.label_work import STANDS

# What changes while a request's work is being finished is no contradiction.
_NO_WORK = "NOT EXISTS (SELECT FROM label_work)"
_NO_CONTENT = "FROM item_content WHERE NOT EXISTS (SELECT FROM content WHERE content.key = item_content.key)"
_WITHOUT = "NOT EXISTS (SELECT FROM item_content WHERE item_content.item = item.id)"
_NOT_FOUND = f"FROM item WHERE id < (SELECT before FROM contents_known) AND {_WITHOUT}"
_LED_BY_OTHERS = """EXISTS (
    SELECT FROM item_content WHERE item_content.item = content.leader AND item_content.key <> content.key)"""
_ALONE = f"""FROM item LEFT JOIN item_content AS known ON known.item = item.id LEFT JOIN content USING (key)
WHERE item.state = 0 AND item.tier = {COPY} AND {_NO_WORK}
    AND NOT EXISTS (SELECT FROM item WHERE item.id = content.leader AND {WAITS})"""
_LAST = "(SELECT max(id) FROM label AS later WHERE later.item = {0})"
_MISLABELLED = f"""(content.label IS NULL) <> (content.labelled IS NULL) OR (content.label IS NOT NULL
    AND NOT EXISTS (SELECT FROM label WHERE label.id = {_LAST.format("content.labelled")}
        AND label.action = 'label' AND label.label = content.label
        AND NOT EXISTS (SELECT FROM inferred WHERE inferred.label = label.id)))"""
_NOT_OPENED = """NOT opened AND EXISTS (
    SELECT FROM label WHERE label.item = item_content.item AND label.action = 'label'
        AND NOT EXISTS (SELECT FROM inferred WHERE inferred.label = label.id)
        AND NOT EXISTS (SELECT FROM outside_label WHERE outside_label.action = label.id))"""
_NO_LABEL = """FROM inferred WHERE NOT EXISTS (
    SELECT FROM label WHERE label.id = inferred.label AND label.item = inferred.item AND action = 'label')"""
# Labels of campaigns are those that two analysts agree on, which may not be that of the item itself.
_BASELESS = f"""FROM inferred JOIN item ON item.id = inferred.item JOIN label ON label.id = inferred.label,
    unnest(inferred.sources) AS source (id)
WHERE {STANDS} AND NOT EXISTS (
    SELECT FROM label AS said WHERE said.id = source.id AND said.action = 'label'
        AND said.id = {_LAST.format("said.item")} AND (inferred.how = 'campaign' OR said.label = label.label)
) AND NOT EXISTS (
    SELECT FROM label_work AS work WHERE work.kind = 'undo' AND inferred.sources && work.sources
        AND inferred.how = ANY(work.how) AND inferred.label < work.before
)"""
_NO_CAMPAIGN = """campaign IS NOT NULL
AND NOT EXISTS (SELECT FROM campaign WHERE campaign.id = content.campaign)"""

COUNTED: dict[str, tuple[str, str]] = {
    "items whose content is missing": (
        f"SELECT count(*) {_NO_CONTENT}",
        "their copies and labels are not known; --repair lets gates find their contents again.",
    ),
    "items that have no content although later ones do": (
        f"SELECT count(*) {_NOT_FOUND}",
        "they are copies of nothing and in no campaign; --repair lets gates find their contents.",
    ),
    "contents that an item with other features stands for": (
        f"SELECT count(*) FROM content WHERE {_LED_BY_OTHERS}",
        "their copies may wait for a label that never comes; --repair lets gates choose another item.",
    ),
    "copies for which no item of the queue stands": (
        f"SELECT count(*) {_ALONE}",
        "nobody can claim them; a gate that runs lets one of each content wait within five minutes.",
    ),
    "contents whose label is not that of their item": (
        f"SELECT count(*) FROM content WHERE {_MISLABELLED}",
        "they suggest or settle what nobody said; --repair takes the last labels of people.",
    ),
    "items that people have labelled and that are not marked so": (
        f"SELECT count(*) FROM item_content WHERE {_NOT_OPENED}",
        "an undo of another label forgets theirs; --repair marks them.",
    ),
    "inferred labels without a label": (
        f"SELECT count(*) {_NO_LABEL}",
        "restore the table label from a backup, or delete these rows of inferred.",
    ),
    "inferred labels that follow from no label": (
        f"SELECT count(DISTINCT inferred.label) {_BASELESS}",
        "what they were inferred from was undone or is another label; --repair lets gates take them back.",
    ),
    "contents of a campaign that does not exist": (
        f"SELECT count(*) FROM content WHERE {_NO_CAMPAIGN}",
        "nobody can label it; --repair takes them out, and gates look for campaigns again.",
    ),
}
"""For each contradiction, the SQL that counts it and the way out."""

_RELABEL = f"""
UPDATE content SET (label, labelled) = (
    SELECT last.label, known.item FROM {LABELLED_BY_PEOPLE}
    WHERE known.key = content.key ORDER BY last.id DESC LIMIT 1
) WHERE {_MISLABELLED}
"""
_TAKE_BACK = f"""
INSERT INTO label_work (kind, before, how, sources, author)
SELECT 'undo', (SELECT max(id) + 1 FROM label), ARRAY['copy', 'campaign', 'settled'],
    array_agg(DISTINCT source.id), 'gate' {_BASELESS} HAVING count(*) > 0
"""
_REPAIRS = (
    f"DELETE {_NO_CONTENT}",
    f"""UPDATE contents_known SET before = (SELECT min(id) FROM item WHERE {_WITHOUT})
    WHERE EXISTS (SELECT {_NOT_FOUND})""",
    f"UPDATE item SET tier = {REJECTED} WHERE state = 0 AND tier = {COPY} AND {_WITHOUT}",
    f"UPDATE content SET leader = NULL WHERE {_LED_BY_OTHERS}",
    f"UPDATE item_content SET opened = true WHERE {_NOT_OPENED}",
    _RELABEL,
    _TAKE_BACK,
    f"UPDATE content SET campaign = NULL WHERE {_NO_CAMPAIGN}",
    UNUSED,
)


def repair_contents(connection: Connection) -> None:
    """Repair what can be repaired, or let gates do so that run."""
    connection.execute(text("SELECT pg_advisory_xact_lock(3, 2)"))  # contents are found meanwhile
    for sql in _REPAIRS:
        connection.execute(text(sql))
