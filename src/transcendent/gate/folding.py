"""Monitors of the traffic of all gates: one process at a time folds closed minutes into their state.

A minute is closed once every process with a live heartbeat has flushed it. Its counts, summed over
processes, are added to the monitor in an order that its number draws, and the new state is stored together
with that number. So the evidence depends neither on the number of processes nor on crashes.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from psycopg.types.json import Jsonb
from sqlalchemy import Connection, Engine, text

from transcendent._utils.arrays import AnyArray
from transcendent.gate.auditing import Harm, harm_in
from transcendent.gate.minutes import STORED, MinuteCounts, counts_of
from transcendent.gate.model import Model
from transcendent.gate.paging import raise_alarm
from transcendent.gate.processes import LIVE
from transcendent.monitoring import Alarm, DriftMonitor

THRESHOLD = 100.0
"""Evidence that raises an alarm: a false one has a probability of at most 1 / 100, ever."""

_PAUSE = 60.0  # seconds between two looks at the labels of the audit
_MAX_FOLDED = 100  # minutes in a row, so that a gate that stops does not wait for many

# Excludes flushes and other processes that fold. One that stops in between must not hold the lock for ever.
_LOCK = """
SELECT set_config('idle_in_transaction_session_timeout', '60s', true), pg_try_advisory_xact_lock(3, 0) AS free
"""
_START = "INSERT INTO monitor (deployment, problem) VALUES (:deployment, :problem) ON CONFLICT DO NOTHING"
_KNOWN = "SELECT folded, state, sums, problem FROM monitor WHERE deployment = :deployment"
# A process that has not flushed yet closes no minute.
_NEXT = """
SELECT min(minute) FROM minute_counts WHERE deployment = :deployment AND minute > :folded AND minute <= (
    SELECT min(coalesce(flushed, -1)) FROM process WHERE seen_at > now() - make_interval(secs => :live))
"""
_COUNTS = "SELECT cells, counts, sums FROM minute_counts WHERE deployment = :deployment AND minute = :minute"
_STORE = """
UPDATE monitor SET folded = :minute, folded_at = now(), state = :state, objects = :objects,
    rejected = :rejected, expected = :expected, log_value = :log_value, sums = :sums, moved = :moved
WHERE deployment = :deployment
"""
# What the pages show of a day is what was known last.
_OF_DAY = """
INSERT INTO monitor_day (deployment, day, log_value)
VALUES (:deployment, (to_timestamp(60 * :minute) AT TIME ZONE 'UTC')::date, :log_value)
ON CONFLICT (deployment, day) DO UPDATE SET log_value = excluded.log_value
"""
_ERROR_OF_DAY = """
INSERT INTO monitor_day (deployment, day, labels, wrong, unclear, low, high)
VALUES (:deployment, (now() AT TIME ZONE 'UTC')::date, :labels, :wrong, :unclear, :low, :high)
ON CONFLICT (deployment, day) DO UPDATE SET labels = excluded.labels, wrong = excluded.wrong,
    unclear = excluded.unclear, low = excluded.low, high = excluded.high
"""
_OUTDATED = "DELETE FROM minute_counts WHERE deployment = :deployment AND minute <= :minute"
_FAILED = "UPDATE monitor SET problem = :problem WHERE deployment = :deployment"
# What the error of accepted answers is computed from: labels, and days that are over.
_LABELS = "SELECT coalesce(max(id), 0) || ' ' || (now() AT TIME ZONE 'UTC')::date FROM label"
# One process at a time looks at them. It excludes nothing else: many labels take a while to read.
_LOOK = f"""
SELECT audited, ({_LABELS}) AS now FROM monitor
WHERE deployment = :deployment AND pg_try_advisory_xact_lock(3, 1)
"""
_AUDITED = "UPDATE monitor SET audited = :audited WHERE deployment = :deployment"
# A deployment that decided ends with the next one, also if that has the same model.
_LIST = """
SELECT monitor.deployment, model.digest AS model, CASE WHEN deployment.action IN ('active', 'observe')
        AND EXISTS (SELECT FROM deployment AS later WHERE later.action IN ('active', 'observe')
            AND later.id > deployment.id) THEN 'ended' ELSE deployment.action END AS state,
    objects, rejected, expected,
    monitor.log_value, moved, problem, folded_at, array(SELECT kind FROM alarm
        WHERE alarm.deployment = monitor.deployment ORDER BY id) AS alarms,
    array(SELECT kind FROM alarm WHERE alarm.deployment = monitor.deployment
        AND acknowledged_at IS NOT NULL ORDER BY id) AS acknowledged
FROM monitor JOIN deployment ON deployment.id = monitor.deployment
JOIN model ON model.id = deployment.model
WHERE NOT :served OR monitor.deployment IN (
    SELECT deployment FROM process WHERE seen_at > now() - make_interval(secs => :live))
ORDER BY monitor.deployment
"""


class Folded(NamedTuple):
    """The state of a monitor after a minute, and the alarms that the minute has raised, by kind."""

    monitor: DriftMonitor
    alarms: dict[str, Alarm]


def fold(rejector: Any, state: str | None, minute: int, counts: Mapping[int, int]) -> Folded:
    """Return the monitor of a rejector after another minute, given its state before."""
    if state is None:
        monitor = DriftMonitor.of(rejector, threshold=THRESHOLD)
    else:
        monitor = DriftMonitor.from_json(state, rejector)
    before = _alarms(monitor)
    monitor.update_counts(counts, seed=minute)
    return Folded(monitor, {kind: raised for kind, raised in _alarms(monitor).items() if kind not in before})


def error_of(harm: Harm) -> dict[str, Any]:
    """Return the numbers of labels and errors, and the interval that holds whatever unclear answers are."""
    right, wrong = harm.unclear_right, harm.unclear_wrong
    low, high = right.kept_error.low, wrong.kept_error.high
    return {"labels": right.labels, "wrong": right.wrong, "unclear": harm.unclear, "low": low, "high": high}


def _alarms(monitor: DriftMonitor) -> dict[str, Alarm]:
    alarms = {"drift": monitor.alarm, "rejections": monitor.rejections.alarm}
    return {kind: alarm for kind, alarm in alarms.items() if alarm is not None}


class Folding:
    """Folds the minutes of deployments whose models this process has loaded.

    ``served`` returns these models by the number of their deployment. ``promised`` is the setting
    `promised_error`. Labels are read over ``reading``, so that nothing else on ``engine`` waits for that.
    """

    def __init__(
        self,
        engine: Engine,
        served: Callable[[], Mapping[int, Model]],
        promised: float | None = None,
        reading: Engine | None = None,
    ) -> None:
        self._engine, self._served, self._promised = engine, served, promised
        self._reading = reading or engine
        self._started: set[int] = set()
        self._looked: dict[int, float] = {}

    def fold_closed(self) -> None:
        """Fold closed minutes, each in a transaction, unless another process is doing so."""
        for deployment, model in self._served().items():
            if deployment not in self._started:
                with self._engine.begin() as connection:
                    given = {"deployment": deployment, "problem": model.unmonitored}
                    connection.execute(text(_START), given)
                self._started.add(deployment)
            for _ in range(_MAX_FOLDED):
                if not self._fold_next(deployment, model):
                    break
            self._look_for_harm(deployment)

    def _fold_next(self, deployment: int, model: Model) -> bool:
        """Fold the next minute of a deployment; return False if there is none."""
        with self._engine.begin() as connection:
            if not connection.execute(text(_LOCK)).one().free:
                return False
            of = {"deployment": deployment}
            known = connection.execute(text(_KNOWN), of).one()
            if known.problem is not None:
                return False
            minute = connection.execute(text(_NEXT), {**of, "folded": known.folded, "live": LIVE}).scalar()
            if minute is None:
                return False
            counts = MinuteCounts(sums=None if known.sums is None else np.array(known.sums))
            for row in connection.execute(text(_COUNTS), {**of, "minute": minute}):
                own = counts_of(row)
                counts.add(own.cells, own.sums)
            try:
                after, alarms = fold(model.rejector, known.state, minute, counts.cells)
            except ValueError as error:  # such as a state that another version has written
                connection.execute(text(_FAILED), {**of, "problem": str(error)})
                return False
            moved = [] if model.watched is None or counts.sums is None else model.watched.moved(counts.sums)
            self._store(connection, deployment, minute, after, counts.sums, moved)
            for kind, alarm in alarms.items():
                raise_alarm(connection, deployment, kind, alarm, moved)
            connection.execute(text(_OUTDATED), {**of, "minute": minute - STORED})
        return True

    def _store(
        self,
        connection: Connection,
        deployment: int,
        minute: int,
        monitor: DriftMonitor,
        sums: AnyArray | None,
        moved: list[dict[str, Any]],
    ) -> None:
        rejections = monitor.rejections
        given = {
            "objects": monitor.n,
            "rejected": rejections.rejected,
            "expected": rejections.expected,
            "log_value": monitor.log_value,
            "state": monitor.to_json(),
            "sums": None if sums is None else sums.tolist(),
            "moved": Jsonb(moved),
        }
        connection.execute(text(_STORE), {"deployment": deployment, "minute": minute, **given})
        of_day = {"deployment": deployment, "minute": minute, "log_value": monitor.log_value}
        connection.execute(text(_OF_DAY), of_day)

    def _look_for_harm(self, deployment: int) -> None:
        """Raise an alarm of harm; nothing is computed unless labels or days have come since the last look."""
        looked = self._looked.get(deployment, -_PAUSE)
        if self._promised is None or time.monotonic() - looked < _PAUSE:
            return
        self._looked[deployment] = time.monotonic()
        of = {"deployment": deployment}
        with self._reading.begin() as connection:
            look = connection.execute(text(_LOOK), of).first()
            if look is None or look.now == look.audited:
                return
            harm = harm_in(connection, deployment, self._promised)
            if harm.unclear_right.alarm is not None:
                raise_alarm(connection, deployment, "harm", harm.unclear_right.alarm)
            connection.execute(text(_ERROR_OF_DAY), {**of, **error_of(harm)})
            connection.execute(text(_AUDITED), {**of, "audited": look.now})


def list_monitors(connection: Connection, *, served: bool = False) -> list[dict[str, Any]]:
    """Return the monitors of all deployments, or of those that running gates serve, oldest first."""
    found = connection.execute(text(_LIST), {"served": served, "live": LIVE})
    return [dict(row) for row in found.mappings()]
