"""Retention: how long objects are kept, and what goes with them.

Items and payloads are dropped by whole months. Labelled objects of a dropped month become rows of
``example``, which have a retention of their own. Every step is short and can be repeated, so that a run that
is killed is completed by the next one.
"""

from typing import NamedTuple

from sqlalchemy import Engine, text

from transcendent.gate.access import SESSION_LIVES
from transcendent.gate.database import (
    FIRST_KEPT,
    OLD_EVENTS,
    DatabaseError,
    drop_months,
    make_months,
    may_make_months,
    months_before,
    this_month,
)
from transcendent.gate.inferring import UNUSED
from transcendent.gate.minutes import STORED

# In a transaction that only holds the lock: the work is done over another connection. A server may end
# transactions that are idle, which this one is.
_ALONE = """SELECT pg_try_advisory_xact_lock(1951555954)
FROM set_config('idle_in_transaction_session_timeout', '0', true)"""
# Two processes that met the rows in different orders could deadlock.
_ONE_SWEEP = "SELECT pg_advisory_xact_lock(1951555953)"
_LEFT_BEHIND = f"""DELETE FROM {{0}} WHERE item < {FIRST_KEPT}
AND NOT EXISTS (SELECT FROM example WHERE example.id = {{0}}.item)"""
_EXPIRE = """
WITH gone AS (
    DELETE FROM example WHERE id IN (SELECT id FROM example WHERE id < :first ORDER BY id LIMIT :step)
    RETURNING id
), notes AS (DELETE FROM remark USING gone WHERE remark.item = gone.id
), reasons AS (DELETE FROM outside_reason USING gone WHERE outside_reason.item = gone.id
), keys AS (DELETE FROM context_key USING gone WHERE context_key.item = gone.id)
SELECT count(*) FROM gone
"""
_EXPIRED = "SELECT count(*) FROM example WHERE id < :first"
_DEAD = "FROM process WHERE seen_at < now() - interval '1 day'"
# Folding deletes rows of its deployment; of deployments that have ended, nothing else does. Twice as long as
# processes look for rows that were folded.
_OLD_MINUTES = f"DELETE FROM minute_counts WHERE minute < extract(epoch FROM now()) / 60 - {2 * STORED}"
_OLD_EVENTS = OLD_EVENTS.format("now() - make_interval(days => :days)")
_FORGET_EVENTS = f"""
DELETE FROM event WHERE (transaction, number) IN (
    SELECT transaction, number {_OLD_EVENTS} ORDER BY 1, 2 LIMIT :step)
"""
_STEP = 10_000


class Tidied(NamedTuple):
    """What was tidied up, or would be."""

    months: list[str]
    examples: int
    processes: int
    identities: int | None = None
    events: int = 0

    def __str__(self) -> str:
        """Return it as a sentence."""
        said = [
            f"months dropped: {', '.join(self.months) or 'none'}",
            f"examples deleted: {self.examples:,}",
            f"processes forgotten: {self.processes:,}",
            f"events deleted: {self.events:,}",
        ]
        if self.identities is not None:
            said.append(f"identities forgotten: {self.identities:,}")
        return "; ".join(said) + "."


def to_tidy(
    engine: Engine,
    keep_months: int | None,
    keep_examples_months: int | None,
    keep_events_days: int | None = None,
) -> Tidied:
    """Return what `tidy` would do."""
    with engine.connect() as connection:
        this = this_month(connection)
        examples = 0
        if keep_examples_months is not None:
            examples = connection.execute(text(_EXPIRED), _first(this, keep_examples_months)).scalar_one()
        processes = connection.execute(text(f"SELECT count(*) {_DEAD}")).scalar_one()
        events, days = 0, {"days": keep_events_days}
        if keep_events_days is not None:
            events = connection.execute(text(f"SELECT count(*) {_OLD_EVENTS}"), days).scalar_one()
    months = [] if keep_months is None else months_before(engine, this - keep_months)
    return Tidied(months, examples, processes, events=events)


def tidy(
    engine: Engine,
    keep_months: int | None,
    keep_examples_months: int | None,
    keep_events_days: int | None = None,
) -> Tidied | None:
    """Create the partitions of the next months, and delete what is too old; None if another process does so.

    The months are those before the current one; None keeps everything.
    """
    with engine.begin() as guard:
        if not guard.execute(text(_ALONE)).scalar_one():
            return None
        if not may_make_months(guard):
            raise DatabaseError("this database role may not drop months: run it as the owner of the tables.")
        this = this_month(guard)
        make_months(engine)
        months = [] if keep_months is None else drop_months(engine, this - keep_months)
        examples = 0
        if keep_examples_months is not None:
            examples = _in_steps(engine, _EXPIRE, _first(this, keep_examples_months))
        events = 0
        if keep_events_days is not None:
            events = _in_steps(engine, _FORGET_EVENTS, {"days": keep_events_days})
        with engine.begin() as connection:
            processes = connection.execute(text(f"DELETE {_DEAD}")).rowcount
            connection.execute(text(_OLD_MINUTES))
            connection.execute(text(f"DELETE FROM session WHERE NOT ({SESSION_LIVES})"))
            connection.execute(text("DELETE FROM sign_in WHERE ends_at < now()"))
        return Tidied(months, examples, processes, sweep(engine), events)


def _first(this: int, keep: int) -> dict[str, int]:
    return {"first": (this - keep) << 40}


def _in_steps(engine: Engine, sql: str, given: dict[str, int]) -> int:
    """Delete rows in steps, so that no transaction holds many locks; return their number."""
    expired = 0
    while True:
        with engine.begin() as connection:
            done = connection.execute(text(sql), {**given, "step": _STEP})
            gone = int(done.scalar_one()) if done.returns_rows else done.rowcount
        if not gone:
            return expired
        expired += gone


def sweep(engine: Engine) -> int:
    """Delete what dropped months have left behind; return the number of identities.

    Identities are read as a whole, so this does nothing unless a month was dropped since the last time.
    """
    with engine.connect() as connection:
        months = list(connection.execute(text("SELECT month FROM unswept")).scalars())
    if not months:
        return 0
    swept = sweep_identities(engine)
    with engine.begin() as connection:
        connection.execute(text(_ONE_SWEEP))
        connection.execute(text("SELECT pg_advisory_xact_lock(3, 2)"))  # contents are found meanwhile
        for table in ("remark", "outside_reason", "context_key"):
            connection.execute(text(_LEFT_BEHIND.format(table)))
        for table in ("unconfirmed", "item_content", "settled_look"):
            connection.execute(text(f"DELETE FROM {table} WHERE item < {FIRST_KEPT}"))
        connection.execute(text(UNUSED))
        connection.execute(text("DELETE FROM unswept WHERE month = ANY(:months)"), {"months": months})
    return swept


def sweep_identities(engine: Engine) -> int:
    """Delete the identities of items in dropped months, and return their number."""
    swept = 0
    for part in range(16):  # a transaction each, so that none holds its locks for long
        with engine.begin() as connection:
            connection.execute(text(_ONE_SWEEP))
            gone = connection.execute(text(f"DELETE FROM identity_{part:02} WHERE item < {FIRST_KEPT}"))
            swept += gone.rowcount
    return swept
