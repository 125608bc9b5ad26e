"""How shadows' decisions compare with those that were answered: counts by hour, and items drawn for a label.

Both are held in memory, and flushed to the database every few seconds. A row of counts belongs to one
process, hour and pair of deployments, and is replaced as a whole by a larger one; an item is drawn once. So a
flush may be repeated, even if nobody knows whether it was committed.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Engine, text

from transcendent.gate.intake import Kept, keep

_MAX_HELD = 96  # hours of pairs with counts that are held while the database is away
_MAX_DRAWN = 2000  # items that are held; further ones are not drawn, whatever they look like
_AT_ONCE = 100  # items in a transaction, so that no request waits long for its locks

Outcome = str | None
"""The label of an accepted object, or None if it is rejected."""
Key = tuple[int, int, int]
"""The active deployment, that of the shadow, and an hour."""

_ADD = """
INSERT INTO shadow_counts AS known (active, shadow, hour, process, objects, undecided, dropped,
    active_outcomes, shadow_outcomes, counts)
VALUES (:active, :shadow, :hour, :process, :objects, :undecided, :dropped,
    CAST(:active_outcomes AS text[]), CAST(:shadow_outcomes AS text[]), CAST(:counts AS bigint[]))
ON CONFLICT (shadow, active, hour, process) DO UPDATE SET objects = excluded.objects,
    undecided = excluded.undecided, dropped = excluded.dropped, active_outcomes = excluded.active_outcomes,
    shadow_outcomes = excluded.shadow_outcomes, counts = excluded.counts
WHERE excluded.objects > known.objects
"""
# Rejected objects are items already, unless they were deleted since. Those that wait move behind the audit,
# in the order of the draw, so that what is labelled first is a random part. Items are locked in the order of
# ids, as claims do, and before anything is written about them, as deletion needs it. LATERAL with LIMIT finds
# each identity by its index; a join would read all of them.
_DRAW = """
WITH drawn AS (
    SELECT * FROM unnest(CAST(:key AS bytea[]), CAST(:active AS bigint[]), CAST(:shadow AS bigint[]),
        CAST(:hour AS bigint[]), CAST(:draw AS float8[]), CAST(:active_outcome AS text[]),
        CAST(:shadow_outcome AS text[]))
    AS drawn (key, active, shadow, hour, draw, active_outcome, shadow_outcome)
), known AS (
    SELECT item.id, drawn.* FROM drawn
    CROSS JOIN LATERAL (SELECT identity.item FROM identity WHERE identity.key = drawn.key LIMIT 1) AS found
    JOIN item ON item.id = found.item ORDER BY item.id FOR UPDATE OF item
), moved AS (
    UPDATE item SET tier = 0, rank = 1 + known.draw FROM known
    WHERE item.id = known.id AND item.state = 0 AND item.tier IN (1, 3)
)
INSERT INTO disagreement (item, shadow, active, hour, draw, active_outcome, shadow_outcome)
SELECT id, shadow, active, hour, draw, active_outcome, shadow_outcome FROM known ON CONFLICT DO NOTHING
"""
# No hour is later than the database's clock says: after a clock that was wrong, others would wait for it.
THIS_HOUR = "SELECT floor(extract(epoch FROM now()) / 3600)::bigint"
_DELETED = """
SELECT EXISTS (SELECT FROM deletion WHERE written_at > now() - make_interval(secs => :age))
"""


class Drawn(NamedTuple):
    """An object on which a shadow disagrees, drawn for a label; ``draw`` is its place in a random order.

    ``answered_at`` is a time of `time.monotonic`.
    """

    kept: Kept
    active: int
    shadow: int
    draw: float
    active_outcome: Outcome
    shadow_outcome: Outcome
    answered_at: float


@dataclass
class Compared:
    """Numbers of objects: compared, by the outcomes of both, not decided by the shadow, and dropped."""

    cells: Counter[tuple[Outcome, Outcome]] = field(default_factory=Counter)
    undecided: int = 0
    dropped: int = 0

    def add(self, other: "Compared") -> None:
        """Add other numbers to these."""
        self.cells.update(other.cells)
        self.undecided += other.undecided
        self.dropped += other.dropped


class Comparisons:
    """What one process has compared. ``clock`` returns seconds since 1970."""

    def __init__(self, engine: Engine, process: UUID, clock: Callable[[], float] = time.time) -> None:
        self._engine, self._process, self._clock = engine, process, clock
        self._lock, self._hour = Lock(), 0
        self._counts: dict[Key, Compared] = {}
        self._drawn: list[tuple[int, Drawn]] = []

    def add(self, active: int, shadow: int, compared: Compared, drawn: Sequence[Drawn] = ()) -> None:
        """Count objects of a pair of deployments, and hold those that were drawn."""
        with self._lock:
            key = active, shadow, self._now()
            if key not in self._counts:
                self._counts[key] = Compared()
                if len(self._counts) > _MAX_HELD:
                    del self._counts[min(self._counts, key=lambda key: key[2])]
            self._counts[key].add(compared)
            self._drawn += [(key[2], each) for each in drawn[: _MAX_DRAWN - len(self._drawn)]]

    def flush(self) -> None:
        """Store the counts, and the objects that were drawn."""
        with self._engine.connect() as connection:
            latest = connection.execute(text(THIS_HOUR)).scalar_one()
        with self._lock:
            now = self._move(latest)
            drawn = list(self._drawn)
            rows = [self._row(*each) for each in self._counts.items()]
        for start in range(0, len(drawn), _AT_ONCE):
            self._draw(drawn[start : start + _AT_ONCE])
        if rows:
            with self._engine.begin() as connection:
                connection.execute(text(_ADD), rows)
        with self._lock:
            for key in [key for key in self._counts if key[2] < now]:
                del self._counts[key]
            del self._drawn[: len(drawn)]

    def _draw(self, drawn: Sequence[tuple[int, Drawn]]) -> None:
        """Store items, unless objects were deleted since they were answered: they may be among those."""
        age = time.monotonic() - min(each.answered_at for _, each in drawn)
        with self._engine.connect() as connection:
            if connection.execute(text(_DELETED), {"age": age}).scalar_one():
                return
        accepted = [each.kept for _, each in drawn if each.active_outcome is not None]
        if accepted:
            keep(self._engine, accepted, decided_now=False)
        with self._engine.begin() as connection:
            connection.execute(text(_DRAW), _columns(drawn))

    def _now(self) -> int:
        """Return the current hour; never one before that of the last flush, whose row may be complete."""
        return max(self._hour, int(self._clock() // 3600))

    def _move(self, latest: int) -> int:
        """Move what is of an hour to come to the current one, and return that.

        No row of an hour to come is stored, so it does not matter whether this flush is committed.
        """
        now = self._hour = max(self._hour, min(self._now(), latest))
        for key in [key for key in self._counts if key[2] > now]:
            ahead = self._counts.pop(key)
            self._counts.setdefault((*key[:2], now), Compared()).add(ahead)
        self._drawn = [(min(hour, now), each) for hour, each in self._drawn]
        return now

    def _row(self, key: Key, compared: Compared) -> dict[str, Any]:
        active, shadow, hour = key
        cells = list(compared.cells)
        key_columns = {"active": active, "shadow": shadow, "hour": hour, "process": self._process}
        return {
            **key_columns,
            "objects": compared.cells.total() + compared.undecided + compared.dropped,
            "undecided": compared.undecided,
            "dropped": compared.dropped,
            "active_outcomes": [first for first, _ in cells],
            "shadow_outcomes": [second for _, second in cells],
            "counts": [compared.cells[cell] for cell in cells],
        }


def _columns(drawn: Sequence[tuple[int, Drawn]]) -> dict[str, list[Any]]:
    rows = [(each.kept[0], hour, *each[1:-1]) for hour, each in drawn]
    names = ("key", "hour", *Drawn._fields[1:-1])
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
