"""Items and their features as analysts see them."""

from itertools import islice
from typing import Any

import numpy as np
import orjson
from sqlalchemy import Connection, text

from transcendent.decisions import DOUBTS
from transcendent.gate.features import decode
from transcendent.gate.intake import COPY
from transcendent.gate.label_work import pending
from transcendent.gate.members import Unsettled, campaigns_of
from transcendent.tables.layout import Layout

_MAX_NAMED = 200

# The second condition on ids lets the planner skip the other months' partitions of `payload`, too. LATERAL
# with LIMIT finds each copy by its id, since no index has these sums: the planner might otherwise read all
# copies for every item.
_SHOWN = f"""
SELECT item.id, payload.object_id, payload.sender, item.received_at, item.state, item.holder, item.held_until,
    payload.label AS predicted, payload.accepted, payload.credibility, payload.confidence, payload.votes,
    payload.doubt, payload.p_values, payload.probability, payload.cutoff, payload.features, item.rank,
    model.digest AS model, model.classes, payload.context, payload.seen_at, payload.shown,
    (SELECT count(*) FROM (
        SELECT FROM item_content AS known, LATERAL (
            SELECT FROM item AS copy
            WHERE copy.id = known.item AND state + 0 = 0 AND tier + 0 = {COPY} LIMIT 1
        ) AS copy
        WHERE known.key = (SELECT key FROM item_content WHERE item_content.item = item.id)
            AND item.tier < {COPY} AND NOT {pending("known")}
        LIMIT 10000
    ) AS found) AS copies
FROM item JOIN payload ON payload.id = item.id JOIN model ON model.id = item.model
WHERE item.id = ANY(:ids) AND payload.id = ANY(:ids) ORDER BY item.tier, item.rank, item.id
"""


def shown_items(connection: Connection, ids: list[int], unsettled: Unsettled) -> list[dict[str, Any]]:
    """Return items as analysts see them."""
    if not ids:
        return []
    shown, rows = [], connection.execute(text(_SHOWN), {"ids": ids}).mappings().all()
    # Read once for each model rather than with each item: a model may have many feature names.
    sql = text("SELECT digest, features FROM model WHERE digest = ANY(:digests)")
    models = connection.execute(sql, {"digests": list({row["model"] for row in rows})})
    layouts = {digest: Layout.described(features) for digest, features in models}
    campaigns = campaigns_of(connection, ids, unsettled)
    for row in rows:
        item = {name: row[name] for name in row if name not in ("features", "shown", "state", "rank")}
        item["doubt"] = None if row["doubt"] is None or row["accepted"] else DOUBTS[row["doubt"]]
        if row["p_values"] is not None:
            p_values = np.frombuffer(row["p_values"], dtype="<f8").tolist()
            item["p_values"] = dict(zip(map(str, row["classes"]), p_values, strict=True))
        item["context"] = None if row["context"] is None else orjson.loads(row["context"])
        item["audit"] = row["accepted"] and row["rank"] < 1  # others were kept because a shadow disagreed
        item["blind"] = False
        item["labelled"], item["closed"] = row["state"] == 1, row["state"] == 2
        item["campaign"] = campaigns.get(row["id"])
        layout, encoded = layouts[row["model"]], bytes(row["features"])
        of_item = features_of(layout, encoded, row["shown"])
        shown.append(item | of_item)
    return shown


def features_of(layout: Layout, encoded: bytes, sent: str | None) -> dict[str, Any]:
    """Return the features of an item, or its scores and the features that were sent to be shown."""
    return _scores(layout, encoded, sent) if layout.scores else _features(layout, encoded)


def _features(layout: Layout, encoded: bytes) -> dict[str, Any]:
    """Return the features of an item: all by name, or if there are many those that are not zero."""
    positions, values = (each.tolist() for each in decode(encoded))
    found: dict[str, Any] = dict.fromkeys(("positions", "values", "scores", "features"))
    if layout.names is None:
        found |= {"positions": positions, "values": values, "more_features": 0}
        if layout.shown_names is None:
            return found
        names = [layout.shown_names[position] for position in positions[:_MAX_NAMED]]
        more = max(0, len(positions) - _MAX_NAMED)
        return found | {"features": dict(zip(names, values, strict=False)), "more_features": more}
    if layout.width <= _MAX_NAMED:
        known = dict(zip(positions, values, strict=True))
        positions, values = range(layout.width), [known.get(place, 0.0) for place in range(layout.width)]
    left_out = max(0, len(positions) - _MAX_NAMED)
    named = dict(zip((layout.names[position] for position in positions[:_MAX_NAMED]), values, strict=False))
    for name, value in named.items():
        if value != value:
            named[name] = None
        elif layout.kinds.get(name) == "boolean" and value is not None:
            named[name] = bool(value)
    return found | {"features": named, "more_features": left_out}


def _scores(layout: Layout, encoded: bytes, sent: str | None) -> dict[str, Any]:
    """Return the scores of an item by column, and the features that were sent to be shown."""
    positions, values = decode(encoded)
    known = dict(zip(positions.tolist(), values.tolist(), strict=True))
    scores = {name: known.get(place, 0.0) for place, name in enumerate(layout.names or ())}
    features = {} if sent is None else orjson.loads(sent)
    return {
        **dict.fromkeys(("positions", "values")),
        "scores": {name: scores[name] for name in layout.scores},
        "features": None if sent is None else dict(islice(features.items(), _MAX_NAMED)),
        "more_features": max(0, len(features) - _MAX_NAMED),
    }
