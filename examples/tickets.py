"""Open a ticket for each rejected object and each alarm, and close it once the object has a label.

GATE_ADDRESS=https://gate.example GATE_TOKEN=tg_… python examples/tickets.py FOLDER [--once]

The token is an operator's. Tickets are JSON files in FOLDER; for a ticket system, replace `read_ticket` and
`write_ticket`. The script may be killed at any time: it remembers the last event that it has handled, and a
ticket the last one that changed it, so an event that is read again changes nothing.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from transcendent.errors import GateError
from transcendent.gate import GateClient

SECONDS = 5  # between two looks at the events
OPENS = ("rejected", "undone", "alarm")
CLOSES = ("labelled", "closed")

Ticket = dict[str, Any]


def read_ticket(folder: Path, key: str) -> Ticket | None:
    """Return the ticket with this key, or None."""
    path = folder / f"{key}.json"
    return json.loads(path.read_text()) if path.exists() else None


def write_ticket(folder: Path, key: str, ticket: Ticket) -> None:
    """Create or replace the ticket with this key."""
    write(folder / f"{key}.json", json.dumps(ticket, indent=1))


def write(path: Path, text: str) -> None:
    """Write a file as a whole or not at all."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def new_state(event: dict[str, Any]) -> str | None:
    """Return what an event makes of its ticket: open, closed, or None if it stays as it is."""
    kind = event["type"]
    if kind == "decided":  # again, by another model
        return "open" if event["data"]["reason"] == "rejected" else "closed"
    return "open" if kind in OPENS else "closed" if kind in CLOSES else None


def place(event_id: str) -> list[int]:
    """Return the place of an event in the order of all."""
    return [int(each) for each in event_id.split("-")]


def handle(folder: Path, event: dict[str, Any]) -> None:
    """Open, reopen or close the ticket of an event."""
    data, state = event["data"], new_state(event)
    if state is None:
        return
    key = f"alarm-{data['alarm']}" if event["type"] == "alarm" else f"item-{data['item']}"
    ticket = read_ticket(folder, key)
    if ticket is None:
        if event["type"] not in ("rejected", "decided", "alarm") or state == "closed":
            return  # objects of the audit have no tickets
        ticket = {"opened": event["timestamp"], "about": data}
    elif place(event["id"]) <= place(ticket["event"]):
        return
    said = {name: data[name] for name in ("label", "author", "reason") if name in data}
    write_ticket(folder, key, {**ticket, "state": state, "last": said, "event": event["id"]})


def follow(gate: GateClient, folder: Path) -> int:
    """Handle the events since the last time, and return their number."""
    cursor = folder / "cursor"
    last = cursor.read_text() if cursor.exists() else ""
    n = 0
    for event in gate.events(after=last):
        handle(folder, event)
        write(cursor, event["id"])
        n += 1
    return n


def main() -> None:
    """Follow the events, until interrupted or once."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--once", action="store_true", help="handle what there is, such as by cron")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with GateClient(os.environ["GATE_ADDRESS"], os.environ["GATE_TOKEN"]) as gate:
        while True:
            try:
                if n := follow(gate, given.folder):
                    print(f"{n} events", flush=True)
            except GateError as error:
                if given.once or error.status not in (0, 502, 503, 504):
                    raise
                print(error, flush=True)
            if given.once:
                return
            time.sleep(SECONDS)


if __name__ == "__main__":
    main()
