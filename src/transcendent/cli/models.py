"""The commands about the models of gates: add, list, promote, rollback, retire, processes."""

import getpass
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from transcendent.cli import console, options, showing
from transcendent.cli.options import AsJson, Database, Trust

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from transcendent.gate.promotion import Promoted

group = typer.Typer(
    help="Add models to the database, and choose the one that gates serve which were started without an "
    "artifact.",
    no_args_is_help=True,
)
Digest = Annotated[str, Argument(metavar="DIGEST", help="The model's digest; the first digits suffice.")]
Reason = Annotated[str, Option(help="Why, for the record.")]
Wait = Annotated[float, Option(min=0, metavar="SECONDS", help="Time for all gates to load the model.")]


@contextmanager
def _engine(database: str | None) -> Iterator["Engine"]:
    from transcendent.gate.database import opened
    from transcendent.gate.settings import read_settings

    with opened(read_settings(database=database).database.get_secret_value()) as engine:
        yield engine


@contextmanager
def _connection(database: str | None) -> Iterator["Connection"]:
    with _engine(database) as engine, engine.connect() as connection:
        yield connection


def add(
    file: Annotated[
        Path,
        Argument(metavar="FILE", exists=True, dir_okay=False, help="The artifact to add to the database."),
    ],
    name: Annotated[str | None, Option(help="A name for lists (default: that of the file).")] = None,
    reason: Reason = "",
    database: Database = None,
    trust: Trust = None,
    public_key: options.PublicKey = None,
) -> None:
    """Verify an artifact, try it out, and store it in the database. It does not decide before a promotion."""
    from transcendent.gate.database import opened
    from transcendent.gate.settings import read_settings
    from transcendent.gate.stored import add as store

    settings = read_settings(database=database, trusted=trust or None, public_key=public_key)
    with opened(settings.database.get_secret_value()) as engine:
        model = store(
            engine,
            file,
            settings.trusted,
            settings.public_key,
            file.stem if name is None else name,
            getpass.getuser(),
            reason,
        )
    promote = f"transcendent gate model promote {model.digest[:12]} --reason TEXT"
    console.say(f"added {file}: promote it with '{promote}'.")
    typer.echo(model.digest)


def list_models(database: Database = None, as_json: AsJson = False) -> None:
    """List the models in the database, and the number of running gates that have loaded each."""
    from transcendent._utils.listing import Listing
    from transcendent.gate.stored import list_models as found_in

    with _connection(database) as connection:
        found = found_in(connection)
    rows = [
        (
            each["name"],
            each["digest"][:12],
            each["rejector"],
            f"{each['added_at']:%Y-%m-%d}",
            each["state"] or "–",
            str(each["processes"]),
        )
        for each in found
    ]
    head = ("name", "digest", "rejector", "added", "state", "gates")
    text = Listing(head, rows, texts=head[1:-1]).as_text()
    showing.show(text, {"models": found}, as_json)


def promote(
    digest: Digest,
    reason: Reason,
    observe: Annotated[
        bool,
        Option("--observe", help="Answer that all objects are accepted, and keep rejected ones as usual."),
    ] = False,
    budget: Annotated[
        float | None,
        Option(help="Share of the traffic to reject (default: as a shadow, or the artifact's own rule)."),
    ] = None,
    audit: Annotated[
        float | None,
        Option(
            help="Share of accepted objects to keep for an audit (default: as now, or the setting audit)."
        ),
    ] = None,
    wait: Wait = 60,
    database: Database = None,
) -> None:
    """Let all gates load a model, then serve it; refuse if one of them cannot."""
    from transcendent.gate.database import opened
    from transcendent.gate.promotion import audit_now, budget_of_shadow
    from transcendent.gate.promotion import promote as deploy
    from transcendent.gate.settings import read_settings
    from transcendent.gate.stored import find

    settings = read_settings(database=database)
    with opened(settings.database.get_secret_value()) as engine:
        with engine.connect() as connection:
            model = find(connection, digest)
            if audit is None:
                audit = audit_now(connection, settings.audit)
            if budget is None:
                budget = budget_of_shadow(connection, model.number)
        action, given = "observe" if observe else "active", {"audit": audit, "budget": budget}
        _say(deploy(engine, model, action, given, getpass.getuser(), reason, wait))


def rollback(reason: Reason, wait: Wait = 60, database: Database = None) -> None:
    """Return to the model and settings before the last promotion or rollback."""
    from transcendent.gate.promotion import rollback as undo

    with _engine(database) as engine:
        _say(undo(engine, getpass.getuser(), reason, wait))


def _say(done: "Promoted") -> None:
    settings = ", ".join(f"{name} {value:g}" for name, value in done.settings.items() if value is not None)
    gates = f"{done.gates} {'gate serves' if done.gates == 1 else 'gates serve'} it within 2 seconds"
    console.say(
        f"deployment {done.deployment}: model {done.model.digest[:12]} ({done.model.name}) is {done.action}, "
        f"with {settings}; {gates if done.gates else 'no gate follows the deployments yet'}."
    )


def retire(digest: Digest, reason: Reason, database: Database = None) -> None:
    """Let gates drop a model that is prepared, a shadow, or the one before. Its artifact stays."""
    from transcendent.gate.promotion import retire as drop
    from transcendent.gate.stored import find

    with _engine(database) as engine:
        with engine.connect() as connection:
            model = find(connection, digest)
        drop(engine, model, getpass.getuser(), reason)
    console.say(f"model {model.digest[:12]} ({model.name}) is retired.")


def processes(database: Database = None, as_json: AsJson = False) -> None:
    """List the gates that are running: what each serves, has loaded, and could not load."""
    from transcendent._utils.listing import Listing
    from transcendent.gate.promotion import list_processes

    with _connection(database) as connection:
        found = list_processes(connection)
    head = ("host", "process", "version", "deployment", "state", "model", "started")
    texts = ("version", "state", "model", "started")
    rows = [tuple(map(_cell, (each[name] for name in _SHOWN))) for each in found]
    problems = [
        f"{each['host']}, process {each['pid']}: {each['problem']}" for each in found if each["problem"]
    ]
    showing.show(
        "\n".join([Listing(head, rows, texts=texts).as_text(), *problems]), {"processes": found}, as_json
    )


_SHOWN = ("host", "pid", "version", "deployment", "state", "model", "started_at")


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:%Y-%m-%d %H:%M}" if hasattr(value, "strftime") else str(value)[:12]


COMMANDS: dict[str, Callable[..., None]] = {
    "add": add,
    "list": list_models,
    "promote": promote,
    "rollback": rollback,
    "retire": retire,
    "processes": processes,
}
