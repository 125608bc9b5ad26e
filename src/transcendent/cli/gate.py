"""The commands of the gate: serve, migrate, months, check, token, quarantine."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from transcendent._utils.extras import extra
from transcendent.cli import console
from transcendent.cli.settings import UsageError

if TYPE_CHECKING:
    from sqlalchemy import Engine

app = typer.Typer(
    help="Serve decisions, and keep rejected objects until they are labelled. Settings come from the "
    "environment (TRANSCENDENT_GATE_...) and from the TOML file that TRANSCENDENT_GATE_FILE names.",
    no_args_is_help=True,
)
token = typer.Typer(help="Tokens: who may use a gate, in which role.", no_args_is_help=True)
quarantine = typer.Typer(help="What is in the quarantine.", no_args_is_help=True)
app.add_typer(token, name="token")
app.add_typer(quarantine, name="quarantine")

AsJson = Annotated[bool, Option("--json", help="Print JSON, for a program to read.")]
Database = Annotated[str | None, Option(help="URL of the database, instead of the setting.")]


def _command(
    group: typer.Typer, name: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def register(function: Callable[..., None]) -> Callable[..., None]:
        return group.command(name)(console.guarded(_with_extra(function)))

    return register


def _with_extra(function: Callable[..., None]) -> Callable[..., None]:
    @wraps(function)
    def checked(*args: Any, **given: Any) -> None:
        for module in (
            "sqlalchemy",
            "psycopg",
            "alembic",
            "pydantic_settings",
            "fastapi",
            "uvicorn",
        ):
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

    return checked


@contextmanager
def _engine(database: str | None) -> Iterator["Engine"]:
    from transcendent.gate.database import opened
    from transcendent.gate.settings import read_settings

    with opened(read_settings(database=database).database.get_secret_value()) as engine:
        yield engine


@_command(app)
def serve(
    artifact: Annotated[Path | None, Argument(metavar="ARTIFACT", help="What to serve.")] = None,
    database: Database = None,
    host: Annotated[str | None, Option(help="The address to listen on.")] = None,
    port: Annotated[int | None, Option(help="The port to listen on.")] = None,
    trust: Annotated[
        list[str] | None,
        Option("--trust", envvar="TRANSCENDENT_TRUSTED", help="A type to allow in it; repeatable."),
    ] = None,
    no_tokens: Annotated[bool, Option("--no-tokens", help="Let everyone on this machine in.")] = False,
) -> None:
    """Serve decisions until it is interrupted."""
    from transcendent.gate.server import serve as start
    from transcendent.gate.settings import read_settings

    start(
        read_settings(
            artifact=artifact,
            database=database,
            host=host,
            port=port,
            trusted=trust or None,
            tokens="none" if no_tokens else None,
        )
    )


@_command(app)
def migrate(
    to: Annotated[str, Option(help="The version: head, base, or a number.")] = "head",
    database: Database = None,
    yes: Annotated[bool, Option("--yes", help="Go back to an older version, which drops tables.")] = False,
) -> None:
    """Create the tables, or bring them to another version."""
    from transcendent.gate.database import connect, versions
    from transcendent.gate.database import migrate as run
    from transcendent.gate.settings import read_settings

    url = read_settings(database=database).database.get_secret_value()
    if to not in ("head", "base", *versions()):
        raise UsageError(f"there is no version {to}; there are {', '.join(versions())}.")
    if to not in ("head", versions()[-1]) and not yes:
        raise UsageError(f"--to {to} drops tables and what is in them: add --yes if that is meant.")
    engine = connect(url)
    try:
        now = run(engine, to)
    finally:
        engine.dispose()
    console.say(f"the database has version {now or 'none'}.")


@_command(app)
def months(database: Database = None) -> None:
    """Create the partitions of this month and the next two; gates whose role owns the tables do so."""
    from transcendent.gate.database import make_months

    with _engine(database) as engine:
        last = make_months(engine)
    console.say(f"there are partitions up to {last}.")


@_command(app)
def check(
    database: Database = None,
    repair: Annotated[
        bool, Option("--repair", help="Repair months, counts and identities; gates wait meanwhile.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Look for contradictions between the tables, and say what to do about them."""
    from transcendent.gate.check import check as look
    from transcendent.gate.check import repair as mend
    from transcendent.gate.database import DatabaseError

    with _engine(database) as engine:
        if repair:
            mend(engine)
        found = look(engine)
    lines = [f"{each.what}: {each.way_out}" for each in found] or ["nothing is wrong."]
    console.show("\n".join(lines), {"problems": [each._asdict() for each in found]}, as_json)
    if found:
        raise DatabaseError("the tables contradict each other.")


@_command(token, "create")
def create_token(
    name: Annotated[str, Argument(help="Whom the token is for; the author of what they write.")],
    role: Annotated[str, Option(help="client, analyst or operator.")],
    database: Database = None,
) -> None:
    """Make a token and print it. It is shown this once."""
    from transcendent.gate.access import Tokens

    with _engine(database) as engine:
        typer.echo(Tokens(engine).create(name, role))  # type: ignore[arg-type]


@_command(token, "revoke")
def revoke_token(name: Annotated[str, Argument(help="Whose token.")], database: Database = None) -> None:
    """Make a token invalid, within 10 seconds."""
    from transcendent.gate.access import Tokens

    with _engine(database) as engine:
        Tokens(engine).revoke(name)
    console.say(f"the token of {name} is revoked.")


@_command(token, "list")
def list_tokens(database: Database = None, as_json: AsJson = False) -> None:
    """List tokens, without their secrets."""
    from transcendent._utils.text import columns
    from transcendent.gate.access import Tokens

    with _engine(database) as engine:
        found = Tokens(engine).list()
    rows = [
        (each["name"], each["role"], f"{each['created_at']:%Y-%m-%d}", _day(each["revoked_at"]))
        for each in found
    ]
    text = columns([("name", "role", "created", "revoked"), *rows])
    console.show(text, {"tokens": found}, as_json)


def _day(moment: Any) -> str:
    return f"{moment:%Y-%m-%d}" if moment else ""


@_command(quarantine, "show")
def show_quarantine(
    item: Annotated[int | None, Argument(help="An item; by default counts of all.")] = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Count the items, or show one."""
    from transcendent.gate.quarantine import Quarantine

    with _engine(database) as engine:
        found = Quarantine(engine)
        shown: dict[str, Any] = dict(found.counts()) if item is None else found.show(item)
    lines = console.lines(**{name: value for name, value in shown.items() if name != "history"})
    history = [_line(each) for each in shown.get("history", [])]
    console.show("\n".join([lines, *history]), shown, as_json)


def _line(action: dict[str, Any]) -> str:
    said = ", ".join(str(action[name]) for name in ("label", "reason", "note") if action[name])
    return f"{action['written_at']:%Y-%m-%d %H:%M} {action['author']}: {action['action']} {said}".rstrip()


@_command(quarantine, "export")
def export_quarantine(
    out: Annotated[Path, Option("--out", "-o", help="The Parquet file to write.")], database: Database = None
) -> None:
    """Write all labelled objects as Parquet, to learn from."""
    from transcendent.gate.export import export_labelled

    if out.suffix != ".parquet":
        raise UsageError(
            f"--out {out}: labelled objects are written as Parquet: name the file something.parquet."
        )
    with _engine(database) as engine, console.writing(out):
        n = export_labelled(engine, out)
    console.say(f"{n:,} labelled objects written to {out}")


@_command(quarantine, "drop")
def drop_quarantine(
    before: Annotated[str, Option(help="The first month to keep, such as 2026-11.")],
    database: Database = None,
    yes: Annotated[bool, Option("--yes", help="Drop them; without it, they are only named.")] = False,
) -> None:
    """Drop all that was kept before a month, labelled or not. The history of labels stays."""
    from transcendent.gate.database import (
        check_over,
        drop_months,
        month_of,
        months_before,
        sweep_identities,
    )

    with _engine(database) as engine:
        check_over(engine, month_of(before))
        found = months_before(engine, month_of(before))
        if not found and not yes:
            console.say(f"nothing is kept from before {before}.")
        elif not yes:
            console.say(f"would drop {', '.join(found)}: add --yes if that is meant.")
        else:
            started = time.perf_counter()
            drop_months(engine, month_of(before))
            dropped = time.perf_counter() - started
            swept = sweep_identities(engine)
            console.say(
                f"dropped {', '.join(found) or 'nothing'} in {dropped:.1f} s; {swept:,} identities forgotten."
            )
