"""States of the wall, written into the database as gates would have left them: calm, drift, harm."""

import math
import random
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb
from sqlalchemy import Engine, event, text

from transcendent.gate.pages.state import read_month, read_wall

GATE = UUID(int=7)
_GROW = "item|payload|identity|label|inferred|content|disagreement|event|minute_counts|shadow_counts"
COMPARED = {
    "since": "2026-11-14T00:00:00+00:00",
    "objects": 12_000,
    "differ": 288,
    "other_label": 10,
    "active_rejected": 1776,
    "shadow_rejected": 1428,
    "settled": True,
    "labels": 90,
    "unclear": 2,
    "active_right": 17,
    "shadow_right": 71,
    "better": "shadow",
    "more_labels": None,
}
_DAY = """
INSERT INTO monitor_day (deployment, day, log_value, labels, wrong, unclear, low, high)
VALUES (:deployment, :day, :log_value, :labels, :wrong, 0, :low, :high)
ON CONFLICT (deployment, day) DO UPDATE SET log_value = excluded.log_value, labels = excluded.labels,
    wrong = excluded.wrong, low = excluded.low, high = excluded.high
"""
_DECIDED = (
    "INSERT INTO decided_day VALUES (:day, :deployment, :gate, :objects, :rejected) ON CONFLICT DO NOTHING"
)
_WORK = (
    "INSERT INTO work (day, labels, caught, inferred, seconds) VALUES (:day, :labels, :caught, :inferred, :s)"
)
_WAITING = """INSERT INTO waiting_day VALUES (:day, :waiting, 30000, now())
ON CONFLICT (day) DO UPDATE SET waiting = excluded.waiting"""
_MONITOR = """
INSERT INTO monitor (deployment, objects, rejected, expected, log_value, moved)
VALUES (:deployment, 400000, 59000, 0.16, :log_value, :moved)
ON CONFLICT (deployment) DO UPDATE SET objects = excluded.objects, log_value = excluded.log_value,
    moved = excluded.moved, expected = excluded.expected
"""
_ALARM = """
INSERT INTO alarm (deployment, kind, at, log_value, moved, raised_at)
VALUES (:deployment, :kind, 1000, 5, :moved, :at) ON CONFLICT DO NOTHING RETURNING id
"""
# So that a gate does not compute the error from labels that are not there.
_AUDITED = """UPDATE monitor SET audited = (
    SELECT coalesce(max(id), 0) || ' ' || (now() AT TIME ZONE 'UTC')::date FROM label)"""
MOVED = [
    {"feature": "accessibility", "moved": 1.42, "fit": 0.1, "now": 0.83},
    {"feature": "overlay", "moved": 0.9, "fit": 0.02, "now": 0.31},
    {"feature": "dex loading", "moved": None, "fit": 0.5, "now": None},
]


def paint(
    engine: Engine,
    deployment: int,
    *,
    drift: bool = False,
    harm: bool = False,
    shadow: int | None = None,
    active: int | None = None,
    days: int = 45,
) -> dict[str, int]:
    """Fill the days up to today; return the numbers of the alarms by kind."""
    chance, today = random.Random(0), datetime.now(UTC).date()
    alarms = {}
    with engine.begin() as connection:

        def run(sql: str, **given: Any) -> Any:
            return connection.execute(text(sql), given)

        value = 0.0
        for i in range(days):
            day, late = today - timedelta(days=days - 1 - i), i > days - 16
            value = max(-0.5, value * 0.8 + chance.gauss(0.1, 0.3) + (0.9 if drift and late else 0))
            error = (0.05 if harm and late else 0.011) + chance.gauss(0, 0.0005)
            n = 100 + 9 * i
            run(
                _DAY,
                deployment=deployment,
                day=day,
                log_value=value * (1.8 if drift and late else 1),
                labels=n,
                wrong=round(error * n),
                low=error * 0.55,
                high=min(1, error * 1.65),
            )
            objects = chance.randrange(50_000, 66_000)
            rejected = int(objects * chance.gauss(0.148, 0.01))
            run(_DECIDED, day=day, deployment=deployment, gate=GATE, objects=objects, rejected=rejected)
            labels = chance.randrange(20, 90)
            run(_WORK, day=day, labels=labels, caught=labels // 4, inferred=3 * labels, s=labels * 48.0)
            run(_WAITING, day=day, waiting=300 + chance.randrange(60) + 4 * i)
        moved = Jsonb(MOVED if drift else [])
        run(_MONITOR, deployment=deployment, log_value=math.log(4310) if drift else 0.4, moved=moved)
        raised = datetime.now(UTC) - timedelta(days=15, hours=2)
        for kind, is_on in (("drift", drift), ("harm", harm)):
            if is_on:
                given = {"deployment": deployment, "kind": kind, "at": raised}
                alarms[kind] = run(_ALARM, moved=moved if kind == "drift" else Jsonb([]), **given).scalar()
        run(_AUDITED)
        if shadow is not None:
            run(
                """INSERT INTO compared VALUES (:shadow, :active, :found, now() + interval '1 hour')
                ON CONFLICT (shadow) DO UPDATE SET found = excluded.found, made_at = excluded.made_at""",
                shadow=shadow,
                active=active,
                found=Jsonb(COMPARED),
            )
    return alarms


def scans(engine: Engine, pinned: int | None = None) -> tuple[list[str], int]:
    """Return the plans of statements of the wall and the month that read a table as a whole that grows.

    Also return the number of statements.
    """
    read: list[tuple[str, Any]] = []
    found = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        read.append((statement, parameters))

    with engine.connect() as connection:
        event.listen(connection, "before_cursor_execute", note)
        wall = read_wall(connection, pinned, 0.02)
        read_month(connection, wall.now.date().replace(day=1), 0.02)
        event.remove(connection, "before_cursor_execute", note)
        for statement, parameters in read:
            plan = connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).scalars()
            found.append("\n".join(plan))
    return [plan for plan in found if re.search(rf"Seq Scan on ({_GROW})", plan)], len(read)
