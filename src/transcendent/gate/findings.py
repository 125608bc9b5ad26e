"""Events as security teams read them: OCSF, ECS and CEF, one line each.

A rejection means that nobody should act on the detector's answer automatically: its confidence is low,
whatever the answer is.
"""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from transcendent import __version__
from transcendent._utils.text import visible

_OCSF_VERSION = "1.5.0"
_ECS_VERSION = "8.17.0"
_TITLES = {
    "rejected": "Rejected: do not act on the detector's answer automatically",
    "labelled": "Labelled by an analyst",
    "skipped": "Skipped by an analyst",
    "undone": "Label or skip taken back",
    "decided": "Decided again by another model",
    "closed": "Closed without a label",
    "deployed": "Deployment changed",
    "alarm": "Alarm of a monitor",
    "outside": "Labelled by another system",
    "inferred": "Labelled by inference from other objects",
}
_CREATED, _UPDATED, _CLOSED = 1, 2, 3  # activities of an OCSF finding
_NEW, _IN_PROGRESS, _RESOLVED = 1, 2, 4  # its status
_ACTIVITIES = {
    "rejected": (_CREATED, _NEW),
    "labelled": (_CLOSED, _RESOLVED),
    "closed": (_CLOSED, _RESOLVED),
}
_SEVERITIES = {"rejected": 3, "alarm": 4}  # medium and high in OCSF; all others are informational
_CEF_SEVERITIES = {"rejected": 5, "alarm": 8}
_CEF_TEXTS = ("object_id", "predicted", "label", "model", "sender")
_CEF_ESCAPED = str.maketrans({"\\": "\\\\", "=": "\\=", "\n": "\\n", "\r": "\\r"})


def as_json(event: dict[str, Any]) -> str:
    """Return an event as the interface has it."""
    return json.dumps(event)  # ASCII, so that no line contains control characters of a sender


def as_ocsf(event: dict[str, Any]) -> str | None:
    """Return an event of an item as an OCSF Detection Finding; None for an event that is no finding."""
    kind, data, when = event["type"], event["data"], _milliseconds(event["timestamp"])
    if "item" not in data:
        return None
    activity, status = _ACTIVITIES.get(kind, (_UPDATED, _IN_PROGRESS))
    finding = {
        "metadata": {
            "version": _OCSF_VERSION,
            "uid": event["id"],
            "product": {"name": "gate", "vendor_name": "transcendent", "version": __version__},
        },
        "category_uid": 2,
        "category_name": "Findings",
        "class_uid": 2004,
        "class_name": "Detection Finding",
        "activity_id": activity,
        "type_uid": 200400 + activity,
        "time": when,
        "severity_id": _SEVERITIES.get(kind, 1),
        "status_id": status,
        "confidence_id": 1 if data.get("accepted") is False else 0,  # low, or unknown
        "finding_info": {
            "uid": str(data["item"]),
            "title": _title(event),
            "types": [kind],
            "analytic": {"uid": str(data.get("model", "")), "name": "transcendent", "type_id": 4},  # learning
        },
        "message": _message(event),
        "is_alert": kind == "rejected",
        "unmapped": data,
    }
    return json.dumps(finding)


def as_ecs(event: dict[str, Any]) -> str:
    """Return an event with the fields of the Elastic Common Schema; the gate's own are in `transcendent`."""
    kind, data = event["type"], event["data"]
    is_change = kind == "deployed"
    told: dict[str, Any] = {
        "@timestamp": event["timestamp"],
        "ecs": {"version": _ECS_VERSION},
        "event": {
            "id": event["id"],
            "kind": "alert" if kind in _SEVERITIES else "event",
            "category": ["configuration" if is_change else "intrusion_detection"],
            "type": ["change" if is_change else "info"],
            "action": kind,
            "dataset": "transcendent.gate",
            "provider": "transcendent",
        },
        "message": _message(event),
        "observer": {"vendor": "transcendent", "product": "gate", "version": __version__},
        "transcendent": data,
    }
    if kind == "rejected":
        told["tags"] = ["do-not-act-automatically"]
    if "author" in data:
        told["user"] = {"name": data["author"]}
    if "reason" in data:
        told["event"]["reason"] = data["reason"]
    return json.dumps(told)


def as_cef(event: dict[str, Any]) -> str:
    """Return an event as a line of the Common Event Format."""
    kind, data = event["type"], event["data"]
    fields: dict[str, Any] = {"rt": _milliseconds(event["timestamp"]), "externalId": event["id"]}
    if "item" in data:
        fields |= {"cn1Label": "item", "cn1": data["item"]}
    for number, name in enumerate(_CEF_TEXTS, start=1):
        if data.get(name) is not None:
            fields |= {f"cs{number}Label": name, f"cs{number}": data[name]}
    if data.get("context"):
        fields |= {"cs6Label": "context", "cs6": json.dumps(data["context"])}
    for number, name in enumerate(("credibility", "confidence"), start=1):
        if name in data:
            fields |= {f"cfp{number}Label": name, f"cfp{number}": data[name]}
    fields |= {"suser": data.get("author"), "reason": data.get("reason"), "act": data.get("action")}
    if kind == "rejected":
        fields["act"] = "do not act automatically"
    severity = _CEF_SEVERITIES.get(kind, 1)
    header = [
        "CEF:0",
        *map(_header, ("transcendent", "gate", __version__, kind, _title(event), str(severity))),
    ]
    values = {name: _cef_value(value) for name, value in fields.items() if value is not None}
    return "|".join([*header, " ".join(f"{name}={value}" for name, value in values.items())])


def _cef_value(value: Any) -> str:
    return visible(str(value), "\n\r").translate(_CEF_ESCAPED)


FORMATS: dict[str, Callable[[dict[str, Any]], str | None]] = {
    "json": as_json,
    "ocsf": as_ocsf,
    "ecs": as_ecs,
    "cef": as_cef,
}
"""A function for each format; None for an event that the format has no place for."""


def _title(event: dict[str, Any]) -> str:
    kind: str = event["type"]
    if kind == "labelled" and "source" in event["data"]:  # of another system, which settled the item
        kind = "outside"
    if kind == "labelled" and "inferred" in event["data"]:
        kind = "inferred"
    return _TITLES.get(kind, kind)


def _message(event: dict[str, Any]) -> str:
    title, data = _title(event), event["data"]
    if "source" in data:
        title += f" ({data['source']})"
    if "inferred" in data:
        title += f" ({data['inferred']})"
    return f"{title}: object {data['object_id']}" if "object_id" in data else title


def _milliseconds(moment: str) -> int:
    return round(1000 * datetime.fromisoformat(moment).timestamp())


def _header(field: str) -> str:
    return field.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("\r", " ")
