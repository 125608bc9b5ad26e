"""Alarms of the monitors, as rows that somebody acknowledges."""

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg.types.json import Jsonb
from sqlalchemy import Connection, Engine, text

from transcendent.errors import TranscendentError
from transcendent.monitoring import Alarm

# An alarm is not repeated: a deployment has at most one of a kind.
_RAISE = """
INSERT INTO alarm (deployment, kind, at, log_value, moved)
VALUES (:deployment, :kind, :at, :log_value, :moved)
ON CONFLICT (deployment, kind) DO NOTHING RETURNING id
"""
_LIST = """
SELECT alarm.id, alarm.deployment, model.digest AS model, kind, at, log_value, moved, raised_at,
    acknowledged_at, acknowledged_by, alarm.reason
FROM alarm JOIN deployment ON deployment.id = alarm.deployment JOIN model ON model.id = deployment.model
ORDER BY alarm.id DESC
"""
_ACKNOWLEDGE = """
UPDATE alarm SET acknowledged_at = now(), acknowledged_by = :who, reason = :reason
WHERE id = :id AND acknowledged_at IS NULL
"""
_KNOWN = "SELECT acknowledged_by, acknowledged_at FROM alarm WHERE id = :id"


class AlarmError(TranscendentError):
    """The alarm does not exist, or was acknowledged before."""


def raise_alarm(
    connection: Connection, deployment: int, kind: str, alarm: Alarm, moved: Sequence[Mapping[str, Any]] = ()
) -> int | None:
    """Add an alarm with the features that moved, and return its number; None if there is one of this kind."""
    given = {"deployment": deployment, "kind": kind, **alarm._asdict(), "moved": Jsonb(list(moved))}
    number: int | None = connection.execute(text(_RAISE), given).scalar()
    return number


def list_alarms(engine: Engine) -> list[dict[str, Any]]:
    """Return all alarms, latest first."""
    with engine.connect() as connection:
        return [dict(row) for row in connection.execute(text(_LIST)).mappings()]


def acknowledge(engine: Engine, number: int, who: str, reason: str) -> None:
    """Note that somebody knows of an alarm, and what they make of it."""
    with engine.begin() as connection:
        given = {"id": number, "who": who, "reason": reason}
        if connection.execute(text(_ACKNOWLEDGE), given).rowcount:
            return
        known = connection.execute(text(_KNOWN), {"id": number}).first()
    if known is None:
        raise AlarmError(f"there is no alarm {number}: 'transcendent gate alarms' lists them.")
    raise AlarmError(
        f"alarm {number} was acknowledged by {known.acknowledged_by} on "
        f"{known.acknowledged_at:%Y-%m-%d %H:%M}."
    )
