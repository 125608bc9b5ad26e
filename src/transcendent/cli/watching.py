"""A monitor of drift over files of objects, with its state in a file of its own."""

from pathlib import Path
from typing import Any

import numpy as np

from transcendent._utils.dates import as_times
from transcendent._utils.files import write_whole
from transcendent.cli.console import writing
from transcendent.cli.deciding import Access, open_for, pointing_to
from transcendent.cli.settings import UsageError
from transcendent.monitoring import DriftMonitor
from transcendent.temporal.periods import in_order_of_time


def watch(
    artifact: Path, file: Path, state: Path, time: str | None, access: Access, given: dict[str, Any]
) -> DriftMonitor:
    """Let the monitor of a state file take in the objects of a file; without a state, start one."""
    opened, rejector, objects = open_for(artifact, file, None, access, time)
    if state.exists():
        if given:
            raise UsageError(f"{state} exists and has its settings: leave out {', '.join(given)}.")
        try:
            monitor = DriftMonitor.from_json(state.read_text(), rejector)
        except ValueError as error:
            raise ValueError(f"{state}: {error}") from error
    else:
        monitor = DriftMonitor.of(rejector, **given)
    if time is not None:
        times = in_order_of_time(as_times(objects.times, len(objects)))
        objects = objects.take(np.argsort(times, kind="stable"))
    with pointing_to(file, opened):
        monitor.update(objects.X)
    return monitor


def keep(monitor: DriftMonitor, state: Path) -> None:
    """Write the state of a monitor, whole or not at all."""
    with writing(state):
        write_whole(state, monitor.to_json().encode())


def facts(monitor: DriftMonitor) -> dict[str, Any]:
    """Return what a monitor says, for a program to read."""
    rejections = monitor.rejections
    return {
        "objects": monitor.n,
        "threshold": monitor.settings.threshold,
        "alarm_at": None if monitor.alarm is None else monitor.alarm.at,
        "log_value": monitor.log_value,
        "alarms_at": {str(label): alarm.at for label, alarm in monitor.alarms.items()},
        "log_values": {str(label): value for label, value in monitor.log_values.items()},
        "rejected": rejections.rate,
        "calibrated": rejections.calibrated,
        "explained": rejections.expected,
        "rejection_alarm_at": None if rejections.alarm is None else rejections.alarm.at,
    }
