"""Summaries that pages read: how many items wait, and how shadows compare with the model that decides.

One process at a time brings them up to date, each in a short transaction that may be repeated.
"""

import time
from collections.abc import Callable
from typing import Any

from psycopg.types.json import Jsonb
from sqlalchemy import Engine, text

from transcendent.gate.comparing import ModelComparison, compare
from transcendent.gate.deployments import DeploymentError, needed
from transcendent.gate.quarantine import queue_in

EVERY = 15.0  # seconds between looks
_FRESH = 60.0  # seconds for which a summary is left as it is
_SHARE = 0.05  # of the time at most goes to comparisons


_ALONE = "SELECT pg_try_advisory_xact_lock(3, 5)"
_TAKEN = """
SELECT EXISTS (SELECT FROM waiting_day WHERE taken_at > now() - make_interval(secs => :fresh))
"""
_WAITING = """
INSERT INTO waiting_day (day, waiting, oldest, taken_at)
VALUES ((now() AT TIME ZONE 'UTC')::date, :waiting, :oldest, now())
ON CONFLICT (day) DO UPDATE
SET waiting = excluded.waiting, oldest = excluded.oldest, taken_at = excluded.taken_at
"""
# Today's and yesterday's rows have names, since the time of an analyst goes on from the last one.
_ADD_UP = """
WITH today AS (
    SELECT (now() AT TIME ZONE 'UTC')::date AS day
), old AS (
    DELETE FROM work WHERE day IN (SELECT work.day FROM work, today GROUP BY work.day, today.day
        HAVING count(*) > 1 OR (max(author) > '' AND work.day < today.day - 1)) RETURNING *
)
INSERT INTO work (day, author, labels, caught, inferred, outside, seconds, last_at)
SELECT old.day, CASE WHEN old.day < today.day - 1 THEN '' ELSE author END AS known, sum(labels), sum(caught),
    sum(inferred), sum(outside), sum(seconds), max(last_at)
FROM old, today GROUP BY old.day, known
"""
_COMPARED = """
INSERT INTO compared (shadow, active, found) VALUES (:shadow, :active, :found)
ON CONFLICT (shadow) DO UPDATE SET active = excluded.active, found = excluded.found, made_at = now()
"""
_MADE = """
SELECT pg_try_advisory_xact_lock(3, 6) AND NOT EXISTS (SELECT FROM compared
    WHERE shadow = :shadow AND active = :active AND made_at > now() - make_interval(secs => :fresh))
"""
_DIGEST = "SELECT digest FROM model WHERE id = :model"


class Summaries:
    """Keeps the summaries of a database. ``clock`` returns seconds."""

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._clock = engine, clock
        self._took: dict[int, float] = {}

    def work(self) -> None:
        """Bring up to date what is older than a minute."""
        self._count_waiting()
        with self._engine.connect() as connection:
            plan = needed(connection)
        if plan.deciding is not None:
            for each in plan.shadows:
                self._compare(plan.deciding.model, each.id, each.model)

    def _count_waiting(self) -> None:
        with self._engine.begin() as connection:
            if not connection.execute(text(_ALONE)).scalar_one():
                return
            if connection.execute(text(_TAKEN), {"fresh": _FRESH}).scalar_one():
                return
            waiting, ages = queue_in(connection)
            given = {"waiting": sum(waiting.values()), "oldest": max(ages.values(), default=None)}
            connection.execute(text(_WAITING), given)
            connection.execute(text(_ADD_UP))

    def _compare(self, active: int, shadow: int, model: int) -> None:
        """Compare a shadow with the model that decides, less often if that takes long."""
        fresh = max(_FRESH, self._took.get(shadow, 0.0) / _SHARE)
        with self._engine.begin() as connection:
            given = {"shadow": shadow, "active": active}
            if not connection.execute(text(_MADE), {**given, "fresh": fresh}).scalar_one():
                return
            began = self._clock()
            digests = [
                connection.execute(text(_DIGEST), {"model": each}).scalar_one() for each in (active, model)
            ]
            try:
                found = compare(connection, *digests)
            except DeploymentError:  # nothing was compared yet
                return
            connection.execute(text(_COMPARED), {**given, "found": Jsonb(summary_of(found))})
            self._took[shadow] = self._clock() - began


def summary_of(found: ModelComparison) -> dict[str, Any]:
    """Return what pages say about a comparison of the model that decides, a, and its shadow, b."""
    labels, unclear, a_right, b_right = (
        sum(getattr(cell, name) for cell in found.cells)
        for name in ("labels", "unclear", "a_right", "b_right")
    )
    return {
        "since": found.since.isoformat(),
        "objects": found.objects,
        "differ": found.disagreements,
        "other_label": sum(cell.objects for cell in found.cells if None not in (cell.a, cell.b)),
        "active_rejected": found.a_rejected,
        "shadow_rejected": found.b_rejected,
        "settled": found.settled,
        "labels": labels,
        "unclear": unclear,
        "active_right": a_right,
        "shadow_right": b_right,
        "better": {"a": "active", "b": "shadow", None: None}[found.better],
        "more_labels": found.more_labels,
    }
