"""Options and arguments that several commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option


class UsageError(Exception):
    """The options of a command contradict each other or name something that does not exist."""


def out(text: str) -> Any:
    """Return the option that names the output."""
    return Option("--out", "-o", help=text)


def _file(metavar: str, text: str) -> Any:
    return Argument(metavar=metavar, exists=True, dir_okay=False, readable=False, help=text)


def _silence(quiet: bool) -> bool:
    if quiet:
        from transcendent._utils.parallel import progress

        progress.silenced = True
    return quiet


def _share(text: Any) -> float:
    """Read a share between 0 and 1, or a percentage."""
    try:
        share = float(str(text).removesuffix("%")) / (100 if str(text).endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise typer.BadParameter(f"{text} must be between 0 and 1, or a percentage: 0.05 or 5%.")
    return share


AsJson = Annotated[bool, Option("--json", help="Print JSON, for a program to read.")]
Quiet = Annotated[bool, Option("--quiet", "-q", callback=_silence, help="Show no progress.")]
Toml = Annotated[Path, _file("TOML", "Describes data, split, detector and rejectors.")]
ArtifactFile = Annotated[Path, _file("ARTIFACT", "A file written by 'transcendent fit' or save().")]
TableFile = Annotated[Path, _file("FILE", "A table of objects: Parquet or CSV.")]
AnswersFile = Annotated[Path, _file("FILE", "A table of a detector's past answers: Parquet or CSV.")]
TomlOrObjects = Annotated[Path, _file("FILE", "A TOML file, or a file of objects.")]
ObjectsFile = Annotated[Path, _file("OBJECTS", "A file of objects, as for decide.")]
ArtifactToLearn = Annotated[
    Path | None,
    Option("--artifact", exists=True, dir_okay=False, help="The artifact that fit wrote (default: as fit)."),
]
LearntArtifact = Annotated[
    Path | None, out("The artifact to write (default: named after TOML, with -learnt).")
]
What = Annotated[str, Option(help="What learns: judge, detector or both.")]
Trust = Annotated[
    list[str] | None,
    Option("--trust", envvar="TRANSCENDENT_TRUSTED", help="A type to allow in the artifact; repeatable."),
]
PublicKey = Annotated[
    Path | None,
    Option(
        exists=True,
        dir_okay=False,
        help="Require a signature that matches this public key (default: TRANSCENDENT_PUBLIC_KEY).",
    ),
]
Strict = Annotated[bool, Option("--strict", help="Refuse an artifact written with any other version.")]
SigningKey = Annotated[
    Path | None, Option(exists=True, dir_okay=False, help="A private Ed25519 key (PEM) to sign with.")
]
Label = Annotated[str | None, Option(help="The column with labels.")]
Time = Annotated[str | None, Option(help="The column with times.")]
Identifier = Annotated[str | None, Option("--id", help="The column with ids of objects.")]
Share = Annotated[
    float, Option(parser=_share, metavar="SHARE", help="The largest share of calibration objects to reject.")
]
Database = Annotated[str | None, Option(help="URL of the database; overrides the setting.")]
