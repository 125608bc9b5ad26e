"""What a column seems to hold, by its name and values: labels, dates or ids."""

import re
from collections import Counter
from typing import Any

from transcendent._utils.dates import is_date
from transcendent.tables.times import find_formats, with_iso_dates

LABELS = ("label", "verdict", "class", "target", "y", "malicious", "malware", "is_malware", "spam")
TIMES = ("first_seen", "seen", "time", "timestamp", "datetime", "date", "received", "created")
NAMES = ("id", "uid", "sha256", "sha1", "md5", "hash", "name")
FEW_TEXTS = 50
"""The largest number of different texts for which a column gets one feature per text."""

_MISSING = ("unknown", "unlabelled", "unlabeled", "unclear", "n/a", "na", "none", "null", "nan", "?", "-", "")
_LOOKED_AT = 1000


def stands_for_missing(label: Any) -> bool:
    """Return whether a label is a text such as ``unknown``."""
    return isinstance(label, str) and label.strip().lower() in _MISSING


def find_missing_labels(y: Any) -> dict[str, int]:
    """Return the texts that seem to stand for a missing label, with their numbers.

    Two other labels must remain, since a class may have such a name.
    """
    counts = Counter(label for label in y.tolist() if isinstance(label, str))
    found = {label: n for label, n in counts.items() if stands_for_missing(label)}
    return found if len(counts) - len(found) >= 2 else {}


def holds_dates(column: Any) -> bool:
    """Return whether most values are dates; numbers only if the column is named like a time."""
    kind, named = column.dtype.kind, plain_name(column.name) in TIMES
    if kind in "bM" or (kind in "iuf" and not named):
        return bool(kind == "M")
    there = column.dropna().to_numpy(dtype=object)
    some_of = there[:: 1 + len(there) // _LOOKED_AT]
    meant = some_of.copy()
    meant[[not named and _is_number(cell) for cell in some_of]] = None
    dates = sum(map(is_date, with_iso_dates(meant, find_formats(meant).formats).tolist()))
    return dates > len(some_of) * (0.9 if kind in "iuf" else 0.5)


def plain_name(name: Any) -> str:
    """Return a column's name in lower case, with underscores: ``First Seen`` is ``first_seen``."""
    return re.sub(r"[\W_]+", "_", str(name).lower()).strip("_")


def _is_number(cell: Any) -> bool:
    """Return whether a cell is a number other than 20240901: 2048 is a size as well as a year."""
    return isinstance(cell, int | float) or (isinstance(cell, str) and cell.isdigit() and len(cell) != 8)


def is_name(values: Any) -> bool:
    """Return whether a text column names its objects: every row has a different text."""
    there = values.dropna()
    return len(there) > 1 and bool(there.nunique() == len(there))


def has_many_texts(column: Any) -> bool:
    """Return whether a column has too many different texts for one feature each."""
    return bool(column.nunique() > FEW_TEXTS)
