"""The commands about settling: how much was settled and how much of it is wrong, and resume."""

import getpass
from typing import Annotated, Any

import typer
from typer import Option

from transcendent._utils.text import as_percent, counted
from transcendent.cli import console, showing
from transcendent.cli.options import AsJson, Database, UsageError

group = typer.Typer(
    help="Show what resolved cases have settled, and resume settling.", invoke_without_command=True
)


def settling(context: typer.Context, database: Database = None, as_json: AsJson = False) -> None:
    """Show what resolved cases have settled, and resume settling."""
    from transcendent.gate.database import opened
    from transcendent.gate.settings import read_settings
    from transcendent.gate.settling import status

    if context.invoked_subcommand is not None:
        return
    settings = read_settings(database=database)
    with opened(settings.database.get_secret_value()) as engine, engine.connect() as connection:
        found = status(connection, settings.max_settle_error)
    own = {"settle": settings.settle, "negative": settings.negative, "max_error": settings.max_settle_error}
    showing.show(_in_words(found, own), {**own, **found}, as_json)


def _in_words(found: dict[str, Any], own: dict[str, Any]) -> str:
    looked = found["drawn"] - found["waiting"]
    return showing.lines(
        settling=_state(found, own),
        settled=counted(found["settled"], "item"),
        looked_at=f"{looked:,} of {found['drawn']:,} that were drawn to be looked at all the same",
        error=_error(found["error"], own["max_error"]),
        cases=f"{found['cases']:,}; contested contents: {found['contested']:,}",
    )


def _state(found: dict[str, Any], own: dict[str, Any]) -> str:
    if not found["on"]:
        last = found["switch"]
        return f"STOPPED on {last['written_at']:%Y-%m-%d %H:%M} by {last['author']}: {last['reason']}"
    if own["settle"] is None:
        return "off in these settings (settle is not set): cases are only suggested"
    near = "the same features" if own["settle"] == 0 else f"features within a distance of {own['settle']:g}"
    negative = ", ".join(own["negative"]) or "none"
    state = f"paused until some of {found['waiting']:,} looks are labelled" if found["paused"] else "on"
    return f"{state}: {near}; negative classes: {negative}"


def _error(error: dict[str, Any], max_error: float) -> str:
    limit = f"at most {as_percent(max_error)} is accepted"
    if not error["labels"]:
        return f"no label of a look counts yet; {limit}"
    share = showing.percents(error["low"], error["high"], 2)
    labels = counted(error["labels"], "label")
    return f"{share} of settled labels wrong ({labels}, {error['unclear']:,} unclear); {limit}"


def suggestion_in_words(found: dict[str, Any] | None) -> str | None:
    """Describe the suggestion of an item."""
    if found is None:
        return None
    contested = "; its features had different labels" if found["contested"] else ""
    who, where = found["author"], f"item {found['item']}, distance {found['distance']:.2f}"
    return f"{found['label']} (by {who} on {found['labelled_at']:%Y-%m-%d}: {where}{contested})"


def resume(
    reason: Annotated[str, Option(help="Why its error is now expected to be lower.")],
    database: Database = None,
) -> None:
    """Settle again after the error was too high; it is counted anew."""
    from transcendent.gate.database import opened
    from transcendent.gate.settings import read_settings
    from transcendent.gate.settling import resume as turn_on

    if not reason.strip():
        raise UsageError("--reason: must not be empty.")
    with opened(read_settings(database=database).database.get_secret_value()) as engine:
        turn_on(engine, getpass.getuser(), reason)
    console.say("settling is resumed.")
