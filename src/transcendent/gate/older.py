"""Objects that wait under other models, so that an item is closed if its object is accepted now.

Most accepted objects never reach the database, and should not be looked up there. So a gate remembers 8 bytes
of a hash for each object that waits under another model, and looks up only objects with such a hash.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Engine, text

from transcendent._utils.arrays import IntArray
from transcendent.gate.repeating import Repeated

EVERY = 60  # seconds between look-ups of items that gates with other models have kept meanwhile

# The same hash as `_hashes`. One value for all items: rows of their own would take ten times as long to read.
_READ = """
SELECT string_agg(substring(sha256(convert_to(sender || chr(10) || object_id, 'UTF8')) FOR 8), ''::bytea)
FROM item JOIN payload ON payload.id = item.id
WHERE item.id > :last AND payload.id > :last AND state = 0 AND NOT accepted AND model <> :model
"""


class OlderItems:
    """The objects that wait under other models than the one that a gate serves."""

    def __init__(self, engine: Engine, model: int) -> None:
        self._engine, self._model, self._last = engine, model, 0
        self._known: NDArray[Any] = np.empty(0, dtype="<u8")
        self._repeated: Repeated | None = None

    def follow(self) -> None:
        """Read them now, and new ones every minute, in a thread."""
        self._repeated = Repeated("reading the items of other models", EVERY, self.read)

    def close(self) -> None:
        """Stop reading."""
        if self._repeated is not None:
            self._repeated.close()

    def read(self) -> None:
        """Read the items that were kept since the last time."""
        with self._engine.connect() as connection:
            newest = connection.execute(text("SELECT coalesce(max(id), 0) FROM item")).scalar_one()
            given = {"last": self._last, "model": self._model}
            found = connection.execute(text(_READ), given).scalar_one()
        if found:
            self._known = np.union1d(self._known, np.frombuffer(found, dtype="<u8"))
        self._last = newest

    def places(self, senders: Sequence[str], ids: Sequence[str]) -> IntArray:
        """Return the places of objects that may be among them, given by sender and id."""
        known = self._known
        if len(known) == 0 or len(ids) == 0:
            return np.empty(0, dtype=np.int64)
        hashes = _hashes(senders, ids)
        near = known[np.minimum(np.searchsorted(known, hashes), len(known) - 1)]
        return np.flatnonzero(near == hashes)


def _hashes(senders: Sequence[str], ids: Sequence[str]) -> NDArray[Any]:
    pairs = zip(senders, ids, strict=True)
    digests = [hashlib.sha256(f"{sender}\n{name}".encode()).digest()[:8] for sender, name in pairs]
    return np.frombuffer(b"".join(digests), dtype="<u8")
