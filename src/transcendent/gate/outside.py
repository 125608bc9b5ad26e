"""Labels of other systems, such as verdicts of a sandbox or closed tickets.

Such a label settles a rejected object that waits and that nobody holds. Other items stay as they are, and the
label is only recorded: an analyst's label counts more, and the audit of accepted objects is for analysts
alone, since other systems do not choose objects at random.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Engine, text

from transcendent.gate.quarantine import (
    ConflictError,
    LabelError,
    NoItemError,
    last_action,
    locked_item,
    set_item,
    write_action,
)

_MAX_ITEMS = 100

_OF_OBJECT = """
SELECT id, sender FROM payload
WHERE hashtextextended(object_id, 0) = hashtextextended(:object, 0) AND object_id = :object
    AND (CAST(:sender AS text) IS NULL OR sender = :sender) ORDER BY id LIMIT :limit
"""
# The role's default of the first may be off. The second says that what follows is no work of analysts.
_LOCAL = "SELECT set_config('synchronous_commit', 'on', true), set_config('transcendent.outside', 'on', true)"
_COLUMNS = "label, source, reason, teach, author, written_at, action IS NOT NULL AS settled"
_BEFORE = f"""
SELECT known.item, {_COLUMNS}, action FROM outside_label AS known
LEFT JOIN outside_reason ON outside = known.id WHERE known.item = :item AND source = :source
ORDER BY known.id DESC LIMIT 1
"""
# The reason is in a table of its own, which can be deleted: labels cannot.
_ADD = f"""
WITH added AS (
    INSERT INTO outside_label (item, action, label, source, teach, author)
    VALUES (:item, :action, :label, :source, :teach, :author) RETURNING *
), said AS (
    INSERT INTO outside_reason (outside, item, reason)
    SELECT id, item, :reason FROM added WHERE CAST(:reason AS text) IS NOT NULL
)
SELECT item, {_COLUMNS} FROM added, (SELECT CAST(:reason AS text) AS reason) AS given
"""


class OutsideLabels:
    """Takes in labels of other systems; ``labels`` are allowed besides the classes of an item's model."""

    def __init__(self, engine: Engine, labels: Sequence[str] = ()) -> None:
        self._engine, self._labels = engine, list(labels)

    def add(
        self,
        author: str,
        label: str,
        source: str,
        *,
        item: int | None = None,
        object_id: str | None = None,
        sender: str | None = None,
        reason: str | None = None,
        teach: bool = False,
    ) -> list[dict[str, Any]]:
        """Label an item, or the kept objects with an id. Repeating the same label changes nothing."""
        given = {"label": label, "source": source, "reason": reason, "teach": teach, "author": author}
        with self._engine.begin() as connection:
            connection.execute(text(_LOCAL))
            items = _items_of(connection, object_id, sender) if item is None else [item]
            return [self._add(connection, each, given) for each in items]

    def _add(self, connection: Connection, item: int, given: dict[str, Any]) -> dict[str, Any]:
        state = locked_item(connection, item)
        allowed = [*map(str, state["classes"]), *self._labels]
        if given["label"] not in allowed:
            raise LabelError(f"{given['label']!r:.80} is not one of the labels {', '.join(allowed):.300}.")
        asked = {"item": item, "source": given["source"]}
        before: Any = connection.execute(text(_BEFORE), asked).mappings().first()
        last = last_action(connection, item)
        stands = before is not None and last is not None and before["action"] == last["id"]
        is_current = before is not None and (stands or before["action"] is None)
        if is_current and all(before[name] == value for name, value in given.items()):
            return dict(before)
        action = None
        if not state["accepted"] and _may_settle(state, stands):
            set_item(connection, item, state=1, holder=None)
            said = {"label": given["label"], "reason": given["reason"] or given["source"]}
            action = write_action(connection, item, "label", given["author"], **said)["id"]
        added = connection.execute(text(_ADD), {"item": item, "action": action, **given})
        return dict(added.mappings().one())


def _items_of(connection: Connection, object_id: str | None, sender: str | None) -> list[int]:
    given = {"object": object_id, "sender": sender, "limit": _MAX_ITEMS + 1}
    found = connection.execute(text(_OF_OBJECT), given).all()
    if not found:
        raise NoItemError("no object with this id is kept: accepted objects are not, nor are old ones.")
    if len({each.sender for each in found}) > 1:
        raise ConflictError("several senders have sent an object with this id: name the sender.")
    if len(found) > _MAX_ITEMS:
        raise ConflictError(f"more than {_MAX_ITEMS} kept objects have this id: label them by item.")
    return [each.id for each in found]


def _may_settle(state: dict[str, Any], stands: bool) -> bool:
    """Return whether a label may become the item's own: it waits, or a label of the same source stands."""
    if state["state"] == 0:
        return not state["held"] and not state["looked"]  # analysts look at what was drawn
    return state["state"] == 1 and stands
