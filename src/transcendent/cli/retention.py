"""The commands that get rid of data: tidy and delete."""

import getpass
import os
from typing import TYPE_CHECKING, Annotated

from typer import Option

from transcendent._utils.text import counted
from transcendent.cli import console
from transcendent.cli.options import Database, UsageError

if TYPE_CHECKING:
    from transcendent.gate.deletion import ToDelete


def tidy(
    database: Database = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only say what would be done.")] = False,
) -> None:
    """Create the next months, and delete what is older than the settings keep; made for cron."""
    from transcendent.gate.database import opened
    from transcendent.gate.deletion import declare_fields
    from transcendent.gate.retention import tidy as run
    from transcendent.gate.retention import to_tidy
    from transcendent.gate.settings import read_settings

    settings = read_settings(database=database)
    kept = settings.keep_months, settings.keep_examples_months, settings.keep_events_days
    with opened(settings.database.get_secret_value()) as engine:
        if dry_run:
            console.say(f"would do: {to_tidy(engine, *kept)}")
            return
        declare_fields(engine, settings.deletable_context)
        done = run(engine, *kept)
    console.say("another process is tidying up: nothing was done." if done is None else str(done))


def delete(
    reason: Annotated[str, Option(help="Why, such as the number of a request; it is kept.")],
    object_id: Annotated[str | None, Option("--object", metavar="ID", help="The id of an object.")] = None,
    sender: Annotated[str | None, Option(metavar="NAME", help="All objects of a sender.")] = None,
    context: Annotated[
        str | None,
        Option(metavar="FIELD=VALUE", help="All objects with this value of a field in deletable_context."),
    ] = None,
    database: Database = None,
    yes: Annotated[bool, Option("--yes", help="Delete; without it, the objects are only counted.")] = False,
) -> None:
    """Delete what the database holds about objects: by id, by sender, or by a field of the context."""
    from transcendent.gate.database import opened
    from transcendent.gate.deletion import delete as run
    from transcendent.gate.deletion import find
    from transcendent.gate.settings import read_settings

    settings = read_settings(database=database)
    target = _target(object_id, sender, context, settings.deletable_context)
    if not reason.strip():
        raise UsageError("--reason must say why.")
    with opened(settings.database.get_secret_value()) as engine:
        if yes:
            done = run(engine, target, _user(), reason)
            console.say(
                f"deleted {counted(done.items, 'object')}, {counted(done.examples, 'example')}, "
                f"{counted(done.notes, 'note')}."
            )
            return
        found = find(engine, target)
    if not found.items and not found.examples:
        console.say("nothing is kept of it: is it written as it was sent?")
        return
    console.say(
        f"would delete {counted(len(found.items), 'object')} and {counted(len(found.examples), 'example')}: "
        "add --yes to confirm."
    )


def _user() -> str:
    """Return the name of the user; a container may have one without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def _target(object_id: str | None, sender: str | None, context: str | None, fields: list[str]) -> "ToDelete":
    """Return what to delete; raise unless it is named in exactly one way."""
    from transcendent.gate.deletion import ToDelete

    given = {"object": object_id, "sender": sender, "context": context}
    named = [(kind, value) for kind, value in given.items() if value is not None]
    if len(named) != 1:
        raise UsageError("name what to delete by one of --object, --sender and --context.")
    kind, value = named[0]
    try:
        value.encode()
    except UnicodeEncodeError:  # bytes of the command line that are no text
        raise UsageError(f"--{kind} must be text in UTF-8.") from None
    if kind != "context":
        return ToDelete(kind, value)
    field, equals, wanted = value.partition("=")
    if not equals:
        raise UsageError(f"--context {value}: must be FIELD=VALUE.")
    if field not in fields:
        raise UsageError(
            f"--context {field}: the setting deletable_context has no such field "
            f"({', '.join(fields) or 'it is empty'}): add it there."
        )
    return ToDelete(kind, wanted, field)
