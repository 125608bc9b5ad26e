"""Monitors of streams: drift without labels and harm by an audit, with state that survives a restart."""

from transcendent.monitoring.alarms import Alarm
from transcendent.monitoring.audit import AuditEstimate
from transcendent.monitoring.drift import DriftMonitor, ObservedDecisions
from transcendent.monitoring.harm import HarmMonitor, expected_errors
from transcendent.monitoring.labels import LabelPlan, plan_labels
from transcendent.monitoring.movers import CovariateShift, covariate_shift

__all__ = [
    "Alarm",
    "AuditEstimate",
    "CovariateShift",
    "DriftMonitor",
    "HarmMonitor",
    "LabelPlan",
    "ObservedDecisions",
    "covariate_shift",
    "expected_errors",
    "plan_labels",
]
