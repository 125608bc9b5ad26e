"""The command ``transcendent`` and its subcommands."""

from collections.abc import Callable
from typing import Annotated

import typer

from transcendent import __version__
from transcendent.cli import artifacts, console, experiments, gate

app = typer.Typer(
    help="Decide which answers of a detector can still be trusted.",
    epilog="Exit codes: "
    + "; ".join(f"{code} {meaning}" for code, meaning in console.EXIT_CODES.items())
    + ".",
    no_args_is_help=True,
    rich_markup_mode=None,  # half a second of imports
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS: tuple[Callable[..., int | None], ...] = (
    experiments.example,
    experiments.check,
    experiments.init,
    experiments.data,
    experiments.fit,
    artifacts.decide,
    artifacts.explain,
    experiments.backtest,
    experiments.report,
    artifacts.info,
    artifacts.verify,
    artifacts.thresholds,
    experiments.learn,
    artifacts.monitor,
)
for command in COMMANDS:
    app.command()(console.guarded(command))
app.add_typer(gate.app, name="gate")


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"transcendent {__version__}")
        raise typer.Exit


_VERSION = typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)


@app.callback()
def _before_any_command(version: Annotated[bool, _VERSION] = False) -> None:
    """Decide which answers of a detector can still be trusted."""
