"""Events to write in other formats, for tests and benchmarks of the gate."""

from typing import Any

HOSTILE = [
    "a|b",
    "a=b c=d",
    "back\\slash\\",
    "line\nbreak\r\nCEF:0|evil|",
    "\\n is not a newline, \\= no equals sign",
    "  blanks around  ",
    "tab\t\x1b[2Jescape\x00\x85\u2028",
    "𝕦nicode ü 中 \u202e right to left",
    '"quotes", {braces}',
    " cs1=injected suser=root",
    "",
]


def event_of(kind: str = "rejected", **data: Any) -> dict[str, Any]:
    """Return an event of an item; ``data`` replaces what it says."""
    usual = {
        "item": 750_000_000_000_001,
        "object_id": "a1",
        "sender": "sensor",
        "received_at": "2026-11-18T01:00:00Z",
        "predicted": "malware",
        "accepted": False,
        "credibility": 0.125,
        "confidence": 0.5,
        "model": "d" * 64,
        "context": {},
    }
    stamp = "2026-11-18T01:00:00.250000Z"
    return {"id": "814-3-1", "type": kind, "timestamp": stamp, "data": {**usual, **data}}


DEPLOYED: dict[str, Any] = {
    "id": "814-4-0",
    "type": "deployed",
    "timestamp": "2026-11-18T01:00:00Z",
    "data": {"deployment": 3, "action": "active", "model": "d" * 64, "author": "boss", "reason": "better"},
}


RAISED: dict[str, Any] = {
    "id": "814-5-0",
    "type": "alarm",
    "timestamp": "2026-11-18T01:00:00Z",
    "data": {
        "alarm": 1,
        "kind": "drift",
        "deployment": 3,
        "at": 1200,
        "log_value": 4.7,
        "moved": [{"feature": "size", "moved": 1.5, "fit": 3.0, "now": 6.0}],
    },
}
