"""What a sender says about an object for analysts: never used to decide, and deleted with the item."""

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

LONGEST_CONTEXT = 4096
DEEPEST_CONTEXT = 8
LONGEST_FEATURES = 65_536

FIELDS = frozenset(["context", "seen_at"])
"""Optional fields of an object."""


class Origin(NamedTuple):
    """The context of an object as JSON text, and the time at which the sender saw it.

    ``shown`` are the features of an object that is decided by scores, as JSON text.
    """

    context: str | None = None
    seen_at: datetime | None = None
    shown: str | None = None


UNKNOWN = Origin()


def read_context(given: Any) -> str | None:
    """Return a context as JSON text; raise `ValueError` if it is too large or too deep."""
    if given is None:
        return None
    if type(given) is not dict:
        raise ValueError("context must be a JSON object, such as a name, a path and a link.")
    try:
        written = orjson.dumps(given)
    except TypeError as error:  # such as halves of characters
        raise ValueError(f"context cannot be stored as JSON: {error!s:.80}.") from None
    if len(written) > LONGEST_CONTEXT:
        raise ValueError(f"context has {len(written):,} bytes; at most {LONGEST_CONTEXT:,} are kept.")
    if _is_deep(given):
        raise ValueError(f"context may be nested {DEEPEST_CONTEXT} levels deep, not more.")
    return written.decode()


def _is_deep(given: Any) -> bool:
    level = [given]
    for _ in range(DEEPEST_CONTEXT):
        level = [value for each in level for value in _values(each)]
    return any(type(each) in (dict, list) for each in level)


def _values(given: Any) -> Iterable[Any]:
    return given.values() if type(given) is dict else given if type(given) is list else ()


def read_features(given: Any) -> str | None:
    """Return features that are only shown as JSON text; raise `ValueError` if they cannot be stored."""
    if given is None:
        return None
    if type(given) is not dict:
        raise ValueError("features must map feature names to values.")
    for name, value in given.items():
        if type(value) not in (str, int, float, bool, type(None)) or value in (math.inf, -math.inf):
            raise ValueError(f"{name!r:.80} is neither a finite number nor text, true, false or null.")
    try:
        written = orjson.dumps(given)
    except TypeError as error:
        raise ValueError(f"features cannot be stored as JSON: {error!s:.80}.") from None
    if len(written) > LONGEST_FEATURES:
        raise ValueError(f"features have {len(written):,} bytes; at most {LONGEST_FEATURES:,} are kept.")
    return written.decode()


def read_time(given: Any) -> datetime | None:
    """Return an ISO time in UTC; raise `ValueError` if it is none. A time without an offset is in UTC."""
    if given is None:
        return None
    try:
        moment = datetime.fromisoformat(given)
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        if 1900 <= moment.year <= 2200:
            return moment
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError("seen_at must be an ISO time such as 2026-11-18T09:30:00Z.")
