"""The commands of the gate: serve, learn, check, its tables, tokens, models, events, monitors, quarantine."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from transcendent._utils.extras import extra
from transcendent._utils.text import counted, some
from transcendent.cli import (
    campaigns,
    console,
    events,
    learning,
    models,
    options,
    outputs,
    retention,
    settling,
    shadows,
    showing,
    watching,
)
from transcendent.cli.options import AsJson, Database, Trust, UsageError

if TYPE_CHECKING:
    from sqlalchemy import Engine

app = typer.Typer(
    help="Serve decisions, and keep rejected objects until they are labelled. Settings come from the "
    "environment (TRANSCENDENT_GATE_...) and from the TOML file in TRANSCENDENT_GATE_FILE.",
    no_args_is_help=True,
)
token = typer.Typer(help="Manage tokens: each gives a user access in a role.", no_args_is_help=True)
quarantine = typer.Typer(help="Show, export and drop objects in the quarantine.", no_args_is_help=True)
Days = Annotated[float | None, Option(help="Days after which the new token expires.")]
_MODULES = (
    "sqlalchemy", "psycopg", "alembic", "pydantic_settings", "fastapi", "jinja2", "uvicorn",
    "prometheus_client",
)  # fmt: skip
app.add_typer(token, name="token")
app.add_typer(quarantine, name="quarantine")
app.add_typer(watching.group, name="alarms")
app.add_typer(models.group, name="model")
app.add_typer(settling.group, name="settling")


def _command(
    group: typer.Typer, name: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command that needs the gate's dependencies and its database."""
    return lambda function: group.command(name)(_checked(function))


def _checked(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command's function that names a missing dependency, or what is wrong with the database."""

    @wraps(function)
    def checked(*args: Any, **given: Any) -> None:
        for module in _MODULES:
            extra(module, "gate")
        from sqlalchemy.exc import SQLAlchemyError

        try:
            function(*args, **given)
        except SQLAlchemyError as error:
            said = " ".join(str(getattr(error, "orig", error)).split())
            raise ValueError(
                "the database that --database or TRANSCENDENT_GATE_DATABASE names "
                f"cannot be used: {said:.300}"
            ) from None

    return console.guarded(checked)


app.add_typer(events.group(_checked), name="events")


for _name, _function in (models.COMMANDS | shadows.COMMANDS).items():
    _command(models.group, _name)(_function)


@contextmanager
def _engine(database: str | None) -> Iterator["Engine"]:
    from transcendent.gate.database import opened
    from transcendent.gate.settings import read_settings

    with opened(read_settings(database=database).database.get_secret_value()) as engine:
        yield engine


@_command(app)
def serve(
    artifact: Annotated[
        Path | None, Argument(metavar="ARTIFACT", help="The artifact to serve (default: what is promoted).")
    ] = None,
    database: Database = None,
    host: Annotated[str | None, Option(help="The address to listen on.")] = None,
    port: Annotated[int | None, Option(help="The port to listen on.")] = None,
    trust: Trust = None,
    no_tokens: Annotated[
        bool, Option("--no-tokens", help="Allow access without a token, from this machine only.")
    ] = False,
) -> None:
    """Serve decisions until interrupted."""
    from transcendent.gate.server import serve as start
    from transcendent.gate.settings import read_settings

    given = {"artifact": artifact, "database": database, "host": host, "port": port}
    start(read_settings(**given, trusted=trust or None, tokens="none" if no_tokens else None))


@_command(app)
def demo(
    database: Annotated[
        str | None, Option(help="URL of an empty database (default: a throwaway PostgreSQL server).")
    ] = None,
    port: Annotated[int | None, Option(help="The port of the gate (default: a free one).")] = None,
    seconds: Annotated[
        float | None, Option(min=0, help="Seconds after which the demo stops by itself.")
    ] = None,
    keep: Annotated[Path | None, Option(metavar="FOLDER", help="A new folder for data that stay.")] = None,
    days: Annotated[int, Option(min=2, max=30, help="Days of history to begin with.")] = 30,
    drift_after: Annotated[
        float, Option(help="Seconds until the traffic changes; negative: in the history.")
    ] = 60,
) -> None:
    """Show a gate with synthetic traffic that drifts and simulated analysts, until interrupted."""
    from transcendent.gate.demo import run

    if keep is not None and (database is not None or (keep.exists() and any(keep.iterdir()))):
        raise UsageError(f"--keep {keep}: must be a new folder, and cannot be combined with --database.")
    run(database, port, seconds, keep, days, drift_after, console.say, typer.echo)


_command(app)(learning.learn)
_command(models.group)(learning.report)


@_command(app)
def migrate(
    to: Annotated[str, Option(help="The version to migrate to: head, base or a number.")] = "head",
    database: Database = None,
    yes: Annotated[bool, Option("--yes", help="Confirm an older version, which drops tables.")] = False,
) -> None:
    """Create the tables, or migrate them to another version."""
    from transcendent.gate.database import connect, versions
    from transcendent.gate.database import migrate as run
    from transcendent.gate.settings import read_settings

    url = read_settings(database=database).database.get_secret_value()
    if to not in ("head", "base", *versions()):
        raise UsageError(f"--to {to}: must be head, base or one of {', '.join(versions())}.")
    if to not in ("head", versions()[-1]) and not yes:
        raise UsageError(f"--to {to} drops tables with their content: add --yes to confirm.")
    engine = connect(url)
    try:
        now = run(engine, to)
    finally:
        engine.dispose()
    console.say(f"the database has version {now or 'none'}.")


@_command(app)
def months(database: Database = None) -> None:
    """Create the partitions of this month and the next two; gates that own the tables do it themselves."""
    from transcendent.gate.database import make_months

    with _engine(database) as engine:
        last = make_months(engine)
    console.say(f"there are partitions up to {last}.")


@_command(app)
def check(
    database: Database = None,
    repair: Annotated[
        bool, Option("--repair", help="First repair months, counts and identities; gates wait meanwhile.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Look for contradictions between the tables, and show how to resolve them."""
    from transcendent.gate.check import check as look
    from transcendent.gate.check import repair as repair_tables
    from transcendent.gate.database import DatabaseError

    with _engine(database) as engine:
        if repair:
            repair_tables(engine)
        found = look(engine)
    lines = [f"{each.what}: {each.way_out}" for each in found] or ["no contradictions."]
    showing.show("\n".join(lines), {"problems": [each._asdict() for each in found]}, as_json)
    if found:
        raise DatabaseError("the tables contradict each other.")


@_command(app, "sign-in")
def sign_in(
    name: Annotated[str, Argument(help="The name of the user, shown as the author of their labels.")],
    role: Annotated[str, Option(help="analyst, operator or viewer.")],
    minutes: Annotated[int, Option(help="Minutes for which the link is valid.")] = 15,
    database: Database = None,
) -> None:
    """Print a link with which a user signs in to the gate's pages, once.

    The link begins with the setting public_url; without it, with this machine and the setting port.
    """
    from transcendent.gate.database import opened
    from transcendent.gate.pages.sessions import Sessions
    from transcendent.gate.settings import read_settings

    settings = read_settings(database=database)
    with opened(settings.database.get_secret_value()) as engine:
        key = Sessions(engine).invite(name, role, minutes)
    typer.echo(f"{settings.seen_at}/sign-in/link?key={key}")


@_command(token, "create")
def create_token(
    name: Annotated[str, Argument(help="The name of the user, shown as the author of their labels.")],
    role: Annotated[str, Option(help="client, analyst, labeller, operator, metrics or viewer.")],
    days: Days = None,
    database: Database = None,
) -> None:
    """Create a token and print it. It is not shown again."""
    from transcendent.gate.access import ROLES, Tokens

    if role not in ROLES:
        raise UsageError(f"--role {role}: must be one of {', '.join(ROLES)}.")
    with _engine(database) as engine:
        typer.echo(Tokens(engine).create(name, role, _days(days)))


@_command(token, "rotate")
def rotate_token(
    name: Annotated[str, Argument(help="The name of the user.")],
    overlap_hours: Annotated[float, Option(help="Hours until the token that the user has now ends.")] = 24,
    days: Days = None,
    database: Database = None,
) -> None:
    """Create a second token for a user and print it. By default it lives as long as the first one."""
    from transcendent.gate.access import Tokens

    with _engine(database) as engine:
        typer.echo(Tokens(engine).rotate(name, timedelta(hours=overlap_hours), _days(days)))


def _days(given: float | None) -> timedelta | None:
    return None if given is None else timedelta(days=given)


@_command(token, "revoke")
def revoke_token(
    name: Annotated[str, Argument(help="The name of the user.")], database: Database = None
) -> None:
    """Revoke the tokens of a user, and end their sessions; takes effect within 10 seconds."""
    from transcendent.gate.access import Tokens

    with _engine(database) as engine:
        Tokens(engine).revoke(name)
    console.say(f"the token of {name} is revoked.")


@_command(token, "list")
def list_tokens(database: Database = None, as_json: AsJson = False) -> None:
    """List tokens, without their secrets."""
    from transcendent._utils.listing import Listing
    from transcendent.gate.access import Tokens

    with _engine(database) as engine:
        found = Tokens(engine).list()
    rows = [(t["name"], t["role"], f"{t['created_at']:%Y-%m-%d}", _end(t), f"tg_{t['id']}_…") for t in found]
    head = ("name", "role", "created", "ends", "token")
    text = Listing(head, rows, texts=head[1:]).as_text()
    showing.show(text, {"tokens": found}, as_json)


def _end(token: dict[str, Any]) -> str:
    if token["revoked_at"] is None:
        return "never"
    return f"{'' if token['valid'] else 'ended '}{token['revoked_at'].astimezone(UTC):%Y-%m-%d %H:%M} UTC"


@_command(quarantine, "show")
def show_quarantine(
    item: Annotated[int | None, Argument(help="The number of the item to show (default: count all).")] = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Count the items, or show one; with second opinions, also how analysts agree."""
    from transcendent.gate.database import opened
    from transcendent.gate.opinions import SecondOpinions
    from transcendent.gate.quarantine import Quarantine
    from transcendent.gate.settings import read_settings

    settings = read_settings(database=database)
    with opened(settings.database.get_secret_value()) as engine:
        found = Quarantine(engine) if settings.opinions == 1 else SecondOpinions(engine)
        shown: dict[str, Any] = dict(found.counts()) if item is None else found.show(item)
        if settings.opinions > 1:
            with engine.connect() as connection:
                shown |= learning.opinions_in(connection, item)
    lists = ("history", "outside", "earlier", "opinions", "suggestion", "blind")
    lines = showing.lines(
        **{name: _short(name, value) for name, value in shown.items() if name not in lists},
        suggestion=settling.suggestion_in_words(shown.get("suggestion")),
    )
    history = [f"{earlier:,} earlier ones are not listed"] if (earlier := shown.get("earlier")) else []
    history += [_line(each) for each in shown.get("history", [])]
    history += [_line({"action": each["source"], "note": None, **each}) for each in shown.get("outside", [])]
    remarks = {"action": "opinion", "reason": None, "note": None}
    history += [_line({**remarks, **each}) for each in shown.get("opinions", [])]
    showing.show("\n".join([lines, *history]), shown, as_json)


@_command(quarantine, "explain")
def explain_item(
    item: Annotated[int, Argument(help="The number of the item to explain.")],
    artifact: Annotated[
        Path | None, Option(help="The artifact that decided it (default: the setting, or the database's).")
    ] = None,
    trust: Trust = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Explain why an item was rejected or accepted: the doubt, and the labelled objects it is like."""
    from transcendent.gate.database import opened
    from transcendent.gate.explanations import explain_once
    from transcendent.gate.settings import read_settings

    settings = read_settings(database=database, artifact=artifact, trusted=trust or None)
    with opened(settings.database.get_secret_value()) as engine:
        found = explain_once(engine, settings, item)
    showing.show(found["text"], found, as_json)


def _short(name: str, value: Any) -> Any:
    """Return a number, or the numbers of classes, with four digits; other values as they are."""
    if name == "in_campaigns":
        return counted(value, "content")  # all other counts are of items
    if isinstance(value, dict) and value and all(isinstance(each, float) for each in value.values()):
        return ", ".join(f"{name}: {each:.4g}" for name, each in value.items())
    return f"{value:.4g}" if isinstance(value, float) else value


def _line(action: dict[str, Any]) -> str:
    said = ", ".join(str(action[name]) for name in ("label", "reason", "note") if action[name])
    line = f"{action['written_at']:%Y-%m-%d %H:%M} {action['author']}: {action['action']} {said}".rstrip()
    return f"{line} ({_origin(action)})" if action.get("inferred") else line


def _origin(action: dict[str, Any]) -> str:
    """Return from which items' labels one follows that nobody gave."""
    items = some(list(map(str, action["inferred_from"] or [])))
    kinds = {"copy": "copy of item", "campaign": "of its campaign, after items", "settled": "settled by item"}
    return f"inferred: {kinds[action['inferred']]} {items}"


@_command(quarantine, "export")
def export_quarantine(
    out: Annotated[Path, options.out("The Parquet file to write.")],
    model: learning.OfModel = "",
    since: Annotated[
        str | None, Option(help="Only objects labelled at this time or later, such as 2026-11-01 (UTC).")
    ] = None,
    teach: Annotated[
        bool, Option("--teach", help="Only labels that may teach: with second opinions, agreed ones.")
    ] = False,
    inferred: Annotated[
        bool, Option("--inferred", help="Also labels that nobody gave: of copies and campaigns.")
    ] = False,
    database: Database = None,
) -> None:
    """Write labelled objects as Parquet, to learn from."""
    from transcendent._utils.dates import as_moment
    from transcendent.gate.database import opened
    from transcendent.gate.export import export_labelled
    from transcendent.gate.settings import read_settings

    if out.suffix != ".parquet":
        raise UsageError(f"--out {out}: must end in .parquet.")
    try:
        start = None if since is None else as_moment(since)
    except ValueError as error:
        raise UsageError(f"--since: {error}") from None
    settings = read_settings(database=database)
    opinions = settings.opinions if teach else 1
    if start is not None and opinions > 1:
        raise UsageError("--since cannot be combined with --teach: analysts agree later than they label.")
    with opened(settings.database.get_secret_value()) as engine, outputs.writing(out):
        n = export_labelled(engine, out, model=model, since=start, opinions=opinions, inferred=inferred)
    console.say(f"{counted(n, 'labelled object')} written to {out}")
    if settings.opinions > opinions:
        console.say("note: not all of them may teach: --teach writes those that two analysts agree on.")


@_command(quarantine, "close")
def close_quarantine(
    model: Annotated[str, Option(help="The digest of the model, or how it begins.")],
    database: Database = None,
    yes: Annotated[bool, Option("--yes", help="Close the items; without it, they are only counted.")] = False,
) -> None:
    """Close the items that wait under a model, such as one that is no longer served."""
    from transcendent.gate.quarantine import Quarantine

    with _engine(database) as engine:
        items = Quarantine(engine)
        digest, waiting, held = items.to_close(model)
        stay = f"; {counted(held, 'held item')} {'stays' if held == 1 else 'stay'}" if held else ""
        if yes:
            closed = counted(items.close(digest, "operator"), "item")
            console.say(f"closed {closed} of model {digest[:12]}{stay}.")
        else:
            to_close = counted(waiting - held, "item")
            console.say(f"would close {to_close} of model {digest[:12]}{stay}: add --yes to confirm.")


@_command(quarantine, "drop")
def drop_quarantine(
    before: Annotated[str, Option(help="The first month to keep, such as 2026-11.")],
    database: Database = None,
    yes: Annotated[bool, Option("--yes", help="Drop the months; without it, they are only listed.")] = False,
) -> None:
    """Drop all objects from before a month. Labels stay, and labelled objects become examples."""
    from transcendent.gate.database import check_over, drop_months, month_of, months_before
    from transcendent.gate.retention import sweep

    try:
        month = month_of(before)
    except ValueError as error:
        raise UsageError(f"--before: {error}") from None
    with _engine(database) as engine:
        check_over(engine, month)
        found = months_before(engine, month)
        if not found and not yes:
            console.say(f"there is nothing from before {before}.")
        elif not yes:
            console.say(f"would drop {', '.join(found)}: add --yes to confirm.")
        else:
            started = time.perf_counter()
            drop_months(engine, month)
            dropped = time.perf_counter() - started
            swept = sweep(engine)
            console.say(
                f"dropped {', '.join(found) or 'nothing'} in {dropped:.1f} s; {swept:,} identities forgotten."
            )


_command(app)(campaigns.campaigns)
_command(app)(retention.tidy)
_command(app)(retention.delete)
_command(app)(watching.monitors)
_command(watching.group)(watching.acknowledge)
watching.group.callback()(_checked(watching.alarms))
_command(settling.group)(settling.resume)
settling.group.callback()(_checked(settling.settling))
