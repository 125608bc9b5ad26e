"""What analysts do not see of items that check answers, until they have given their own.

Accepted objects, and objects that are looked at although they could be settled, are drawn at random to say
how often such answers are wrong. An analyst who knew the answer, or what the object is like, would confirm
it.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, text

NOT_YET = (
    "This item checks answers that nobody else looks at. What the detector said, what the item is like and "
    "its campaign are shown once you have labelled it."
)
"""What an explanation says in place of reasons."""

# Also with a label: an undo may put the item back, for anyone to judge.
_BLIND = """
SELECT item.id FROM item JOIN payload ON payload.id = item.id
WHERE item.id = ANY(:items) AND payload.id = ANY(:items)
    AND (payload.accepted OR EXISTS (SELECT FROM settled_look WHERE settled_look.item = item.id))
    AND (item.state = 0 OR (item.state = 1
        AND :who <> (SELECT author FROM label WHERE label.item = item.id ORDER BY id DESC LIMIT 1)
        AND 'opinion' IS DISTINCT FROM (
            SELECT action FROM opinion WHERE opinion.item = item.id AND author = :who ORDER BY id DESC LIMIT 1
        )))
"""
# A rejected object is kept with probability 1, and scores are the answer of a detector that runs elsewhere.
_HIDDEN = (
    *("predicted", "accepted", "credibility", "confidence", "votes", "doubt", "p_values", "probability"),
    *("scores", "copies", "campaign", "suggestion"),
)


def blind_items(connection: Connection, who: str | None, items: Sequence[int]) -> set[int]:
    """Return the items whose decision an analyst must not see yet; none for an operator, None."""
    if who is None or not items:
        return set()
    return set(connection.execute(text(_BLIND), {"items": list(items), "who": who}).scalars())


def blinded(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item without its decision; both kinds of items that check answers look the same."""
    return {**item, **dict.fromkeys(_HIDDEN), "audit": True, "blind": True}


def blind_explanation() -> dict[str, Any]:
    """Return what an explanation says of an item whose decision must not be seen yet."""
    decided = ("sentence", "label", "accepted", "credibility", "confidence", "doubt", "votes")
    lists = ("requirements", "nearest", "only_here", "only_there", "strange")
    return {
        **dict.fromkeys((*decided, "pooled", "metric", "n_compared", "score")),
        **{name: [] for name in lists},
        "p_values": {},
        "members": {},
        "notes": [NOT_YET],
        "text": NOT_YET,
        "blind": True,
    }
