"""What a gate has decided, counted together with other gates: the cutoff of a budget, and the cap on senders.

Requests only read the cutoff and add to counts in memory. A thread takes both to the database and back.
"""

import time
from collections import Counter, deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import numpy as np
import psycopg
import structlog
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from transcendent._utils.arrays import BoolArray, FloatArray
from transcendent.decisions import Decisions
from transcendent.gate.cutoff import (
    Cutoff,
    Interval,
    Rule,
    decide_by,
    next_cutoff,
    objects_until_move,
    sample_ranks,
)
from transcendent.gate.database import retry_if_disconnected
from transcendent.gate.features import Group, encode

EVERY = 1.0  # seconds between moves of the cutoff
PAUSE = 0.05  # seconds before it moves again, even after many objects
_MAX_RANKS = 1 << 16  # while the database is away, further objects are counted without their ranks

# One gate at a time counts for a model. A gate that stops in between must not hold the lock for ever.
_LOCK = """SELECT set_config('idle_in_transaction_session_timeout', '2s', true),
    set_config('synchronous_commit', 'on', true), pg_advisory_xact_lock(1, :model)"""
_FIELDS = ", ".join(Cutoff._fields)
_NEWEST = f"SELECT {_FIELDS} FROM cutoff WHERE model = :model ORDER BY number DESC LIMIT 1"
_RANKS = (
    "SELECT number, key, gate, decided, rejected, lag, sample FROM ranks WHERE model = :model "
    "ORDER BY number DESC"
)
_MADE = """INSERT INTO cutoff (model, rank, second, share, decided, rejected)
VALUES (:model, :rank, :second, :share, :decided, :rejected) RETURNING number"""
_COUNTED = """INSERT INTO ranks (key, gate, model, decided, rejected, lag, sample)
VALUES (:key, :gate, :model, :decided, :rejected, :lag, :sample)"""
_RESTART = """INSERT INTO cutoff (model, rank, second, share, decided, rejected)
SELECT model, rank, second, share, 0, 0 FROM cutoff WHERE model = :model ORDER BY number DESC LIMIT 1"""
_OUTDATED = "DELETE FROM ranks WHERE model = :model AND number <= :number"
_TODAY = "(now() AT TIME ZONE 'UTC')::date"
# In the order of names, so that gates with different models cannot deadlock.
_ADD = f"""INSERT INTO sender_day AS known (day, sender, kept, over)
SELECT {_TODAY}, * FROM unnest(CAST(:sender AS text[]), CAST(:kept AS int[]), CAST(:over AS int[])) ORDER BY 2
ON CONFLICT (day, sender) DO UPDATE
SET kept = known.kept + excluded.kept, over = known.over + excluded.over"""
_KEPT = f"SELECT sender, kept FROM sender_day WHERE day = {_TODAY}"

log = structlog.get_logger("transcendent.gate")


class Counted(NamedTuple):
    """What a request adds to the counts once it is answered.

    ``ranks`` are those of the objects that count for the cutoff, ``spent`` the number of them that are
    rejected. ``kept`` are the rejected objects that are kept, ``over`` those beyond the sender's cap,
    ``since`` the number of objects that its cutoff was made from.
    """

    sender: str
    ranks: FloatArray
    spent: int
    kept: int
    over: int
    since: int


class Copies:
    """Limits what copies of one object spend of a budget, so that nobody exhausts it by sending one again.

    They are at most a tenth of the last rejected objects that were counted, as many as a window's budget, or
    20 of them.
    """

    def __init__(self, budget: int) -> None:
        self._budget, self._most = max(1, budget), max(20, budget // 10)
        self._last: deque[int] = deque()
        self._counts: Counter[int] = Counter()

    def count(self, content: int) -> bool:
        """Return whether a rejected object counts, given by a hash of its content."""
        if self._counts[content] >= self._most:
            return False
        self._last.append(content)
        self._counts[content] += 1
        if len(self._last) > self._budget:
            oldest = self._last.popleft()
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]
        return True


class Ruling(NamedTuple):
    """Decisions about the objects of requests, the number of the cutoff, and what each request adds.

    ``over`` are the places of the rejected objects that are not kept.
    """

    decided: list[tuple[Group, Decisions]]
    cutoff: int | None = None
    counted: Sequence[Counted] = ()
    over: Collection[int] = ()


@dataclass
class _Unsaved:
    """Counts that the database does not have yet. The key tells whether it has them after all."""

    key: UUID = field(default_factory=uuid4)
    ranks: list[FloatArray] = field(default_factory=list)
    stored: int = 0
    decided: int = 0
    rejected: int = 0
    since: int | None = None
    senders: dict[str, list[int]] = field(default_factory=dict)

    def add(self, counted: Counted) -> None:
        n = len(counted.ranks)
        if self.stored < _MAX_RANKS:
            self.ranks.append(counted.ranks)
            self.stored += n
        self.decided += n
        self.rejected += counted.spent
        self.since = counted.since if self.since is None else min(self.since, counted.since)
        sums = self.senders.setdefault(counted.sender, [0, 0])
        sums[0] += counted.kept
        sums[1] += counted.over


class Traffic:
    """Follows the cutoff of a model's budget, and counts the rejections of senders.

    ``rule`` is None for a model without a budget, ``max_kept`` for senders without a cap. The cutoff moves
    every second, or sooner after 400 objects of all gates: each gate that counted in the window moves it
    after its part of them. While the database is away it stays, and counts wait.
    """

    def __init__(
        self, engine: Engine, model: int, secret: bytes, rule: Rule | None, max_kept: int | None = None
    ) -> None:
        self._engine, self._model, self._rule, self._max_kept = engine, model, rule, max_kept
        self._secret = secret  # by which ties are broken
        self._copies = None if rule is None else Copies(int(rule.rate * rule.window))
        self._gate, self.moves_after = uuid4(), objects_until_move(())
        self.cutoff: Cutoff | None = None
        self._lock, self._moving = Lock(), Lock()
        self._counts, self._sent = _Unsaved(), _Unsaved()
        self._kept: dict[str, int] = {}  # by sender: today, in the database
        self._own: Counter[str] = Counter()  # by sender: of this gate, not yet in the database
        self._away = self._closed = False
        self._wake = Event()
        self.move()
        self._thread = Thread(target=self._run, name="traffic", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Count what is left, and stop."""
        self._closed = True
        self._wake.set()
        self._thread.join()
        with suppress(SQLAlchemyError, psycopg.Error):
            self.move()

    def rule(self, requests: Sequence[tuple[str, int]], decided: list[tuple[Group, Decisions]]) -> Ruling:
        """Decide the objects of requests by the cutoff, and reserve room for those that are to be kept.

        Requests are given by sender and number of objects. End each with `finish` or `release`.
        """
        cutoff = self.cutoff
        if cutoff is not None:
            decided = [(part, decide_by(cutoff, part.rows, each, self._secret)) for part, each in decided]
        places = np.concatenate([np.empty(0, dtype=int), *(part.places for part, _ in decided)])
        order = np.argsort(places)
        places = places[order]
        accepted = np.concatenate([np.empty(0, dtype=bool), *(each.accepted for _, each in decided)])[order]
        pairs = (np.column_stack([each.ranking, each.second_ranking]) for _, each in decided)
        ranks = np.concatenate([np.empty((0, 2)), *pairs])[order]
        fresh = np.concatenate([np.empty(0, dtype=bool), *(self._fresh(*each) for each in decided)])[order]
        ends = np.searchsorted(places, np.cumsum([n for _, n in requests])).tolist()
        counted, over, start = [], [], 0
        for (sender, _), end in zip(requests, ends, strict=True):
            part = slice(start, end)
            room, each = self._reserve(sender, ~accepted[part], ranks[part], fresh[part], cutoff)
            counted.append(each)
            if each.over:
                over += places[start + room : end][~accepted[start + room : end]].tolist()
            start = end
        return Ruling(decided, None if cutoff is None else cutoff.number, counted, frozenset(over))

    def _fresh(self, part: Group, decisions: Decisions) -> BoolArray:
        """Return which objects count for the cutoff: all but copies of a rejected one beyond the limit."""
        fresh = np.ones(len(decisions), dtype=bool)
        rejected = np.flatnonzero(decisions.rejected)
        if self._copies is not None and len(rejected):
            with self._lock:
                fresh[rejected] = [self._copies.count(hash(each)) for each in encode(part.rows, rejected)]
        return fresh

    def _reserve(
        self, sender: str, rejected: BoolArray, ranks: FloatArray, fresh: BoolArray, cutoff: Cutoff | None
    ) -> tuple[int, Counted]:
        """Return the number of objects until the sender reaches its cap, and what they add."""
        n, since = len(rejected), 0 if cutoff is None else cutoff.decided
        with self._lock:
            if self._max_kept is not None:
                room = self._max_kept - self._kept.get(sender, 0) - self._own[sender]
                n = int(np.count_nonzero(np.cumsum(rejected) - rejected < room))
            kept = int(np.count_nonzero(rejected[:n]))
            self._own[sender] += kept
        spent, over = (int(np.count_nonzero(each)) for each in (rejected[:n] & fresh[:n], rejected[n:]))
        return n, Counted(sender, ranks[:n][fresh[:n]], spent, kept, over, since)

    def release(self, counted: Sequence[Counted]) -> None:
        """Give back the room of requests that were not answered."""
        with self._lock:
            for each in counted:
                self._own[each.sender] -= each.kept

    def finish(self, counted: Sequence[Counted]) -> None:
        """Count requests that are answered."""
        with self._lock:
            for each in counted:
                self._counts.add(each)
            due = self._counts.decided >= self.moves_after
        if due:
            self._wake.set()

    def move(self) -> None:
        """Bring the counts to the database, and take the newest cutoff from there.

        Counts that could not be brought are brought first, with the same key: the commit may have succeeded.
        """
        with self._moving:
            with self._lock:
                if not self._sent.senders:
                    self._sent, self._counts = self._counts, _Unsaved()
            sent = self._sent
            cutoff, kept = retry_if_disconnected(
                self._engine, lambda connection: self._exchange(connection, sent)
            )
            with self._lock:
                self.cutoff, self._kept, self._sent = cutoff, kept, _Unsaved()
                for sender, (n, _) in sent.senders.items():
                    self._own[sender] -= n

    def _run(self) -> None:
        while not self._closed:
            self._wake.wait(EVERY)
            self._wake.clear()
            try:
                self.move()
                self._away = False
            except Exception as error:
                if not self._away:
                    log.warning("the cutoff stays: the database is away", error=type(error).__name__)
                self._away = True
            time.sleep(PAUSE)

    def _exchange(self, connection: Connection, sent: _Unsaved) -> tuple[Cutoff | None, dict[str, int]]:
        cutoff = None if sent.senders or self._rule is None else self._newest(connection)
        if sent.senders or (self._rule is not None and cutoff is None):
            connection.execute(text(_LOCK), {"model": self._model})
            is_new = True
            if self._rule is not None:
                cutoff, is_new = self._count(connection, self._rule, sent)
            if is_new and self._max_kept is not None:
                names = sorted(sent.senders)
                kept, over = ([sent.senders[name][i] for name in names] for i in (0, 1))
                connection.execute(text(_ADD), {"sender": names, "kept": kept, "over": over})
        if self._max_kept is None:
            return cutoff, {}
        return cutoff, {row.sender: row.kept for row in connection.execute(text(_KEPT))}

    def _newest(self, connection: Connection) -> Cutoff | None:
        found = connection.execute(text(_NEWEST), {"model": self._model}).first()
        return None if found is None else Cutoff(*found)

    def _count(self, connection: Connection, rule: Rule, sent: _Unsaved) -> tuple[Cutoff, bool]:
        """Count objects and set the next cutoff; return it, and whether these were not counted before."""
        last = self._newest(connection)  # of another gate, if the lock waited for that
        rows = connection.execute(text(_RANKS), {"model": self._model}).all()
        if last is not None and (not sent.decided or sent.key in [row.key for row in rows]):
            return last, not sent.decided
        intervals = [
            Interval(
                np.frombuffer(row.sample, "<f8").reshape(-1, 2),
                *(row.decided, row.rejected, row.lag, row.gate),
            )
            for row in rows
        ]
        given: dict[str, Any] = {"model": self._model}
        if sent.decided:
            lag = (0 if last is None else last.decided) + sent.decided - (sent.since or 0)
            sample = sample_ranks(np.concatenate(sent.ranks))
            new = Interval(sample, sent.decided, sent.rejected, lag, self._gate)
            intervals.insert(0, new)
            stored = {**new._asdict(), "key": sent.key, "sample": new.ranks.astype("<f8").tobytes()}
            connection.execute(text(_COUNTED), {**given, **stored})
        made, used = next_cutoff(rule, last, intervals)
        self.moves_after = objects_until_move(intervals[:used])
        if used < len(intervals):
            connection.execute(text(_OUTDATED), {**given, "number": rows[used - 1].number})
        number = connection.execute(text(_MADE), {**given, **made._asdict()}).scalar_one()
        return made._replace(number=number), True


def restart_counts(connection: Connection, model: int) -> None:
    """Let the cutoff of a model count from 0, such as under another budget; until it moves, it stays."""
    connection.execute(text(_LOCK), {"model": model})
    connection.execute(text(_RESTART), {"model": model})


def find_cutoff(engine: Engine, number: int) -> dict[str, Any] | None:
    """Return a cutoff with its model and time, or None."""
    sql = f"""SELECT {", ".join(f"cutoff.{name}" for name in Cutoff._fields)}, made_at, digest AS model
    FROM cutoff JOIN model ON model.id = cutoff.model WHERE number = :number"""
    with engine.connect() as connection:
        found = connection.execute(text(sql), {"number": number}).mappings().first()
    return None if found is None else dict(found)
