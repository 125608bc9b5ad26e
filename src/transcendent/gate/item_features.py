"""The features of items as analysts see them."""

from itertools import islice
from typing import Any

import orjson

from transcendent.gate.features import decode
from transcendent.tables.layout import Layout

_MAX_NAMED = 200


def features_of(layout: Layout, encoded: bytes, sent: str | None) -> dict[str, Any]:
    """Return the features of an item, or its scores and the features that were sent to be shown."""
    return _scores(layout, encoded, sent) if layout.scores else _features(layout, encoded)


def _features(layout: Layout, encoded: bytes) -> dict[str, Any]:
    """Return the features of an item: all by name, or if there are many those that are not zero."""
    positions, values = (each.tolist() for each in decode(encoded))
    found: dict[str, Any] = dict.fromkeys(("positions", "values", "scores", "features"))
    if layout.names is None:
        return found | {"positions": positions, "values": values, "more_features": 0}
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
