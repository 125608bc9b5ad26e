"""Commands about events: print them, and show what webhooks could not deliver."""

import time
from collections.abc import Callable
from datetime import UTC
from typing import Annotated, Any

import typer
from typer import Option

from transcendent.cli import console, showing
from transcendent.cli.options import AsJson, Database, UsageError

PAUSE = 1.0  # seconds between two looks for new events


def group(checked: Callable[[Callable[..., None]], Callable[..., None]]) -> typer.Typer:
    """Return the group of commands; ``checked`` wraps a command that needs the gate's dependencies."""
    made = typer.Typer(help="Print events, for other systems; show deliveries of webhooks.")
    made.callback(invoke_without_command=True)(checked(print_events))
    made.command("deliveries")(checked(deliveries))
    return made


def print_events(
    context: typer.Context,
    after: Annotated[str, Option(metavar="ID", help="Only events after the one with this id.")] = "",
    follow: Annotated[bool, Option("--follow", help="Wait for further events until interrupted.")] = False,
    form: Annotated[str, Option("--format", help="json, ocsf, ecs or cef.")] = "json",
    database: Database = None,
) -> None:
    """Print events, one a line, oldest first."""
    from transcendent.gate.database import opened
    from transcendent.gate.events import Cursor, CursorError, Events
    from transcendent.gate.findings import FORMATS
    from transcendent.gate.settings import read_settings

    if context.invoked_subcommand is not None:
        return
    if form not in FORMATS:
        raise UsageError(f"--format {form}: must be one of {', '.join(FORMATS)}.")
    try:
        cursor = Cursor.read(after)
    except CursorError as error:
        raise UsageError(f"--after: {error}") from None
    settings = read_settings(database=database)
    with opened(settings.database.get_secret_value()) as engine:
        events = Events(engine, settings.event_context)
        while True:
            for page in events.all_after(cursor):
                for line in map(FORMATS[form], page.events):
                    if line is not None:
                        typer.echo(line)
                cursor = page.last
            if not follow:
                return
            time.sleep(PAUSE)


def deliveries(
    retry: Annotated[
        bool, Option("--retry", help="Send what was given up again, with as many attempts as at first.")
    ] = False,
    target: Annotated[str | None, Option(help="Only deliveries to the webhook of this name.")] = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Count the deliveries that wait or were given up, and show why they fail."""
    from transcendent._utils.listing import Listing
    from transcendent.gate.database import opened
    from transcendent.gate.settings import read_settings
    from transcendent.gate.webhooks import list_deliveries, retry_dead

    with opened(read_settings(database=database).database.get_secret_value()) as engine:
        if retry:
            console.say(f"deliveries that will be sent again: {retry_dead(engine, target):,}.")
        found: dict[str, Any] = list_deliveries(engine, target)
    counts = [
        (
            each["target"],
            f"{each['waiting']:,}",
            f"{each['dead']:,}",
            *_next_attempt(each),
        )
        for each in found["targets"]
    ]
    dead = [(each["event"], each["target"], str(each["tries"]), each["problem"]) for each in found["dead"]]
    texts = ("target", "next attempt", "problem")
    tables = [Listing(("target", "waiting", "given up", "next attempt", "problem"), counts, texts=texts)]
    if dead:
        tables.append(Listing(("event", "target", "attempts", "problem"), dead, texts=texts))
    showing.show("\n\n".join(each.as_text() for each in tables), found, as_json)


def _next_attempt(target: dict[str, Any]) -> tuple[str, str]:
    """Return when a delivery that failed is sent again, and its problem."""
    if target["problem"] is None:
        return "", ""
    return f"{target['next_attempt'].astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC", target["problem"]
