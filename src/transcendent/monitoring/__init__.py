"""Monitors of streams: drift without labels and harm by an audit, with state that survives a restart."""

from transcendent.monitoring.alarms import Alarm
from transcendent.monitoring.drift import DriftMonitor
from transcendent.monitoring.harm import HarmMonitor, KeptError, expected_errors
from transcendent.monitoring.history import History
from transcendent.monitoring.movers import Movers
from transcendent.monitoring.plan import LabelPlan, plan_labels
from transcendent.monitoring.rejections import Rejections

__all__ = [
    "Alarm",
    "DriftMonitor",
    "HarmMonitor",
    "History",
    "KeptError",
    "LabelPlan",
    "Movers",
    "Rejections",
    "expected_errors",
    "plan_labels",
]
