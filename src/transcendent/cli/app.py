"""The commands: they read files, call the library, and print."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from transcendent import __version__
from transcendent._utils.files import is_about_writing
from transcendent.cli import console, gate, showing
from transcendent.cli.settings import UsageError

if TYPE_CHECKING:
    from transcendent.temporal import Backtest

app = typer.Typer(
    help="Which answers of a detector can still be trusted?",
    epilog="Exit codes: "
    + "; ".join(f"{code} {meaning}" for code, meaning in console.EXIT_CODES.items())
    + ".",
    no_args_is_help=True,
    rich_markup_mode=None,  # half a second of imports
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(gate.app, name="gate")

AsJson = Annotated[bool, Option("--json", help="Print JSON, for a program to read.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Show no progress.")]
_FILE: dict[str, Any] = {"exists": True, "dir_okay": False, "readable": False}
Toml = Annotated[
    Path, Argument(metavar="TOML", **_FILE, help="Describes data, split, detector and rejectors.")
]
ArtifactFile = Annotated[
    Path, Argument(metavar="ARTIFACT", **_FILE, help="What 'transcendent fit' or save() wrote.")
]
Trust = Annotated[
    list[str] | None,
    Option("--trust", envvar="TRANSCENDENT_TRUSTED", help="A type to allow in the artifact; repeatable."),
]
PublicKey = Annotated[
    Path | None,
    Option(
        exists=True,
        dir_okay=False,
        help="Require a signature that matches this public key; by default the one that "
        "TRANSCENDENT_PUBLIC_KEY in the environment names.",
    ),
]
Strict = Annotated[
    bool, Option("--strict", help="Refuse an artifact that was written under any other version.")
]
SigningKey = Annotated[
    Path | None, Option(exists=True, dir_okay=False, help="A private Ed25519 key (PEM) to sign with.")
]


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"transcendent {__version__}")
        raise typer.Exit


def _not_zero(number: int | None) -> int | None:
    if number == 0:
        raise typer.BadParameter("0 rejectors would never finish.")
    return number


def _share(text: Any) -> float:
    """Read a share between 0 and 1, or a percentage."""
    try:
        share = float(str(text).removesuffix("%")) / (100 if str(text).endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise typer.BadParameter(f"{text} is no share between 0 and 1; 5 percent are 0.05 or 5%.")
    return share


_VERSION = Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)


@app.callback()
def _before_any_command(version: Annotated[bool, _VERSION] = False) -> None:
    """Which answers of a detector can still be trusted?"""


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Register a command; on a failure it prints a line and ends with an exit code."""
    return app.command()(console.guarded(function))


@command
def init(
    file: Annotated[Path, Argument(metavar="FILE", **_FILE, help="A table of objects: Parquet or CSV.")],
    out: Annotated[
        Path | None, Option("--out", "-o", help="The TOML file to write; by default beside the table.")
    ] = None,
    label: Annotated[str | None, Option(help="The column with labels.")] = None,
    time: Annotated[str | None, Option(help="The column with times.")] = None,
    identifier: Annotated[str | None, Option("--id", help="The column that names objects.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a TOML file for an experiment from a table.

    Columns that are not given are guessed from their names and values. Look through the file before you
    use it.
    """
    from transcendent._utils.files import write_whole
    from transcendent.cli.proposing import propose

    toml = out or file.with_suffix(".toml")
    if toml.exists():
        raise UsageError(f"{toml} exists: --out NAME writes another file.")
    proposal = propose(file, toml, label, time, identifier)
    with console.writing(toml):
        write_whole(toml, proposal.text.encode())
    for note in proposal.notes:
        console.say(f"note: {note}")
    text = f"{proposal.text}\nwritten to {toml}; next: transcendent data {toml}"
    console.show(text, {"toml": str(toml), **proposal.guesses, "notes": proposal.notes}, as_json)


@command
def fit(
    toml: Toml,
    out: Annotated[Path, Option("--out", "-o", help="The artifact to write.")],
    rejector: Annotated[str | None, Option(help="Which rejector, if the file has several.")] = None,
    train: Annotated[
        str | None, Option(help="Fit on objects seen before this time, instead of split.train.")
    ] = None,
    signing_key: SigningKey = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit a rejector and save it as an artifact."""
    from transcendent.artifacts import save
    from transcendent.artifacts.artifact import read_artifact
    from transcendent.cli.experiment import Experiment

    console.silence(quiet)
    experiment = Experiment.read(toml)
    console.spare(out, toml, *experiment.files)
    name, fitted, rows = experiment.fit(rejector, train)
    with console.writing(out):
        save(fitted, out, training_period=rows.period(), notes=experiment.notes(), signing_key=signing_key)
    artifact = read_artifact(out)
    if left_out := experiment.later(rows):
        console.say(f"note: {left_out}")
    console.show(
        f"{name}, fitted on {len(rows):,} objects, is in {out}.\n{showing.described(artifact)}"
        f"\n\nnext: transcendent decide {out} OBJECTS",
        showing.facts(artifact),
        as_json,
    )


@command
def decide(
    artifact: ArtifactFile,
    objects: Annotated[
        str,
        Argument(
            metavar="OBJECTS", help="A file (Parquet, CSV, npz or libsvm), or a folder of Parquet files."
        ),
    ],
    out: Annotated[
        str | None,
        Option(
            "--out",
            "-o",
            help="Where to write decisions: a .parquet or .csv file, - for CSV on standard output, or the "
            "folder of a table in parts.",
        ),
    ] = None,
    identifier: Annotated[str | None, Option("--id", help="The column that names objects.")] = None,
    workers: Annotated[
        int | None,
        Option(
            "--workers", "-w", min=1, help="Number of worker processes (default for a folder: all cores)."
        ),
    ] = None,
    scheduler: Annotated[
        str | None, Option(help="Decide in parts on this Dask cluster: tcp://host:8786.")
    ] = None,
    features: Annotated[
        list[str] | None,
        Option(help="For tables in parts: a column with a feature (repeatable), or the one with whole rows."),
    ] = None,
    values: Annotated[
        str | None, Option(help="For tables in parts: the column with the values of sparse rows.")
    ] = None,
    quorum: Annotated[
        int | None,
        Option(min=1, help="How many folds of a cross-conformal evaluator must accept; by default its own."),
    ] = None,
    p_values: Annotated[
        bool, Option("--p-values/--no-p-values", help="Write a p-value per class, if there are any.")
    ] = True,
    digest: Annotated[
        str,
        Option(
            help="For tables in parts: how to tell that a file is unchanged, by its 'footer' or 'content'."
        ),
    ] = "footer",
    trust: Trust = None,
    public_key: PublicKey = None,
    strict: Strict = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Accept or reject answers about new objects.

    A file is decided in memory and at once. A folder of Parquet files, or a file with --workers or
    --scheduler, is decided in parts, whatever its size; the same command resumes an interrupted run.
    """
    from transcendent.cli import deciding

    console.silence(quiet)
    if out is not None:
        console.spare(out, artifact, objects)
    access = deciding.Access(trust or [], public_key, strict)
    options = bool(features or values or digest != "footer")
    if deciding.is_in_parts(objects, out, workers, scheduler, options):
        table = deciding.decide_in_parts(
            *(artifact, objects, str(out), access),
            workers=workers,
            scheduler=scheduler,
            features=features or [],
            values=values,
            identifier=identifier,
            quorum=quorum,
            p_values=p_values,
            digest=digest,
        )
        console.show(f"{table!r}\n\nwritten to {out}", table.to_dict(), as_json)
        return
    decisions, written = deciding.decide_file(
        artifact, Path(objects), identifier, access, quorum=quorum, p_values=p_values
    )
    if out is not None:
        with console.writing(out):
            deciding.write_table(written, Path(out))
    if out != "-":
        where = f"written to {out}" if out else "nothing is written; --out FILE keeps the decisions"
        console.show(f"{decisions!r}\n\n{where}", deciding.summarise(decisions), as_json)


@command
def backtest(
    toml: Toml,
    out: Annotated[
        Path | None,
        Option("--out", "-o", help="The folder to keep it in; by default named after the TOML file."),
    ] = None,
    jobs: Annotated[
        int | None,
        Option("--jobs", "-j", callback=_not_zero, help="How many rejectors run at once; -1: one per core."),
    ] = None,
    fresh: Annotated[
        bool, Option("--fresh", help="Replace the backtest that the folder holds, finished or not.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """What would rejection have given over the past?

    Fits rejectors on the training window and lets them decide what came later, period by period. The
    same command resumes an interrupted run, and shows a finished one.
    """
    from transcendent.cli.experiment import Experiment

    console.silence(quiet)
    experiment = Experiment.read(toml)
    folder = out or experiment.folder
    try:
        with console.filling(folder):
            read = (folder / "manifest.json").is_file() and not fresh
            result = experiment.backtest(folder, jobs, fresh=fresh)
    except OSError as error:
        if is_about_writing(error):
            raise console.OutputError(
                f"{folder} cannot be written: {error.strerror or error}. What is done is kept; once there is "
                "room, the same command resumes from there."
            ) from error
        raise
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted. What is done is kept in {folder}; the same command resumes from there."
        ) from None
    where = f"kept in {folder}"
    if read:
        where = f"read from {folder}, where it finished {result.manifest['finished']}; --fresh runs it again"
    alarms = ""
    if monitors := result.monitors:
        said = {name: monitors.get(name, "not monitored") for name in result.answers}
        alarms = "".join(f"\nalarms of {name}: {seen}" for name, seen in said.items())
    text = f"{result!r}{alarms}\n\n{where}; for a page to show: transcendent report {folder}"
    console.show(text, {"folder": str(folder), "read": read, **_results(result)}, as_json)


@command
def report(
    folder: Annotated[
        Path | None, Argument(metavar="[FOLDER]", help="A finished backtest; by default the latest here.")
    ] = None,
    out: Annotated[
        Path | None, Option("--out", "-o", help="The page to write; by default report.html in the folder.")
    ] = None,
    title: Annotated[str | None, Option(help="A title for the page.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a finished backtest as one HTML page."""
    from transcendent.cli.experiment import finished_backtest
    from transcendent.report import write_report

    found, result = finished_backtest(folder)
    page = out or found / "report.html"
    if page.exists() and page.suffix not in (".html", ".htm"):
        raise UsageError(f"--out {page} exists and is no HTML page: give another name.")
    with console.writing(page):
        write_report(result, page, title=title or found.resolve().name)
    console.show(
        f"{page} ({page.stat().st_size / 1e6:.1f} MB)", {"report": str(page), **_results(result)}, as_json
    )


@command
def info(artifact: ArtifactFile, public_key: PublicKey = None, as_json: AsJson = False) -> None:
    """Say what is in an artifact, without loading it."""
    from transcendent.artifacts import open_artifact

    opened = open_artifact(artifact, public_key=public_key)
    console.show(showing.described(opened), showing.facts(opened), as_json)


@command
def verify(
    artifact: ArtifactFile,
    trust: Trust = None,
    public_key: PublicKey = None,
    strict: Strict = False,
    as_json: AsJson = False,
) -> None:
    """Check an artifact's digest, signature, types and versions, and try it out in another process."""
    from transcendent.cli.deciding import Access

    opened = Access(trust or [], public_key, strict).open_and_try(artifact)
    differences = opened.version_differences()
    console.show(
        f"{artifact} is whole, holds nothing that is not trusted, and was tried out on sample rows.\n"
        f"{showing.signature(opened)}\n{showing.versions(differences)}\nsha256 {opened.digest}",
        {
            "verified": True,
            "signature_checked": opened.signature_checked,
            "version_differences": [difference._asdict() for difference in differences],
            **showing.facts(opened),
        },
        as_json,
    )


@command
def thresholds(
    artifact: ArtifactFile,
    objective: Annotated[
        str | None,
        Option(
            help="f1, accuracy, precision, recall, error, rejection_rate or macro_f1; by default f1 for two "
            "classes, accuracy for more."
        ),
    ] = None,
    max_rejection: Annotated[
        float,
        Option(parser=_share, metavar="SHARE", help="The largest share of calibration objects to reject."),
    ] = 0.15,
    constraint: Annotated[list[str] | None, Option(help="Such as 'recall >= 0.9'; repeatable.")] = None,
    out: Annotated[
        Path | None,
        Option("--out", "-o", help="The artifact with the new thresholds; without it they are only shown."),
    ] = None,
    trust: Trust = None,
    public_key: PublicKey = None,
    strict: Strict = False,
    signing_key: SigningKey = None,
    as_json: AsJson = False,
) -> None:
    """Search new thresholds for an artifact.

    Needs none of the training data: the artifact holds its calibration objects.
    """
    from transcendent.artifacts import save
    from transcendent.cli.deciding import Access, rethreshold

    opened = Access(trust or [], public_key, strict).open_and_try(artifact)
    retuned, before, after = rethreshold(opened, trust or [], objective, max_rejection, constraint or [])
    if out is not None:
        with console.writing(out):
            period, notes = opened.manifest["training_period"], opened.manifest["notes"]
            save(retuned, out, training_period=period, notes=notes, signing_key=signing_key)
        if opened.signed and signing_key is None:
            console.say(f"warning: {artifact} is signed, {out} is not; --signing-key KEY signs it.")
    old, new = (showing.threshold_table(opened.manifest["classes"], promises) for promises in (before, after))
    where = f"written to {out}" if out else "nothing is written; --out FILE keeps them"
    text = f"before\n{old}\n\nafter\n{new}\n\n{where}"
    console.show(text, {"before": before, "after": after, "out": None if out is None else str(out)}, as_json)


@command
def learn(
    artifact: ArtifactFile,
    toml: Toml,
    labelled: Annotated[
        Path,
        Argument(metavar="LABELLED", **_FILE, help="A table of objects with labels, which came later."),
    ],
    out: Annotated[Path, Option("--out", "-o", help="The artifact that has learnt.")],
    what: Annotated[str, Option(help="What learns: judge, detector or both.")] = "judge",
    train: Annotated[str | None, Option(help="As for fit: where its training rows end.")] = None,
    trust: Trust = None,
    public_key: PublicKey = None,
    strict: Strict = False,
    signing_key: SigningKey = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Let an artifact learn from labels that came later.

    The TOML file, and --train if fit had it, are those the artifact was fitted with: its rows train and
    calibrate again, and the labelled objects train. Give all labelled objects since the fit, each time.
    """
    from transcendent.artifacts import save
    from transcendent.artifacts.artifact import read_artifact
    from transcendent.cli.deciding import Access
    from transcendent.cli.experiment import Experiment
    from transcendent.rejectors import Traits

    console.silence(quiet)
    experiment = Experiment.read(toml)
    console.spare(out, toml, labelled, *experiment.files)
    opened = Access(trust or [], public_key, strict).open_and_try(artifact)
    learnt, n = experiment.learn(opened.rejector(trust or []), labelled, what, train)
    said, left_out = f"{n:,} labelled objects", Traits.of(learnt).n_left_out
    if left_out:
        said += f", {left_out:,} of which equal calibration objects and do not train"
    with console.writing(out):
        period, notes = opened.manifest["training_period"], dict(opened.manifest["notes"])
        notes["learnt"] = f"{said} ({what})"
        save(learnt, out, training_period=period, notes=notes, signing_key=signing_key)
    if opened.signed and signing_key is None:
        console.say(f"warning: {artifact} is signed, {out} is not; --signing-key KEY signs it.")
    made = read_artifact(out)
    text = f"learnt from {said}; written to {out}.\n{showing.described(made)}"
    console.show(text, showing.facts(made), as_json)


@command
def monitor(
    artifact: ArtifactFile,
    objects: Annotated[Path, Argument(metavar="OBJECTS", **_FILE, help="A file of objects, as for decide.")],
    state: Annotated[Path, Option(help="Keeps the monitor from one file to the next (JSON).")],
    time: Annotated[
        str | None, Option(help="The column with times; by default objects come in the order of the file.")
    ] = None,
    threshold: Annotated[
        float | None, Option(help="P(ever a false alarm) is at most 1 over this; 100 by default.")
    ] = None,
    figure: Annotated[Path | None, Option(help="Draw evidence and rejections to this .svg or .png.")] = None,
    trust: Trust = None,
    public_key: PublicKey = None,
    strict: Strict = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Are objects still like those that calibrated? No labels are needed.

    Call it for every file of new objects, in order of arrival, with the same state.
    """
    from transcendent.cli.deciding import Access
    from transcendent.cli.watching import facts, keep, watch

    console.silence(quiet)
    console.spare(state, artifact, objects, option="--state")
    given = {} if threshold is None else {"threshold": threshold}
    seen = watch(artifact, objects, state, time, Access(trust or [], public_key, strict), given)
    if figure is not None:
        with console.writing(figure):
            seen.plot().figure_.savefig(figure)
    keep(seen, state)
    console.show(repr(seen), facts(seen), as_json)


@command
def data(
    file: Annotated[Path, Argument(metavar="FILE", **_FILE, help="A TOML file, or a file of objects.")],
    label: Annotated[str | None, Option(help="The column with labels.")] = None,
    time: Annotated[str | None, Option(help="The column with times.")] = None,
    identifier: Annotated[str | None, Option("--id", help="The column that names objects.")] = None,
    train: Annotated[
        str | None, Option(help="Where training ends: splits the objects, and checks the split.")
    ] = None,
    period: Annotated[str, Option(help="year, quarter, month, week, day or none.")] = "month",
    as_json: AsJson = False,
) -> None:
    """Describe objects, and check a split for biases."""
    from transcendent.cli.describing import describe_file, in_words
    from transcendent.cli.tables import Columns
    from transcendent.errors import TemporalBiasError

    found = describe_file(file, columns=Columns(label, time, identifier), train=train, period=period)
    console.show(in_words(found), found, as_json)
    if any(bias["refuses"] for bias in found.get("biases", [])):
        raise TemporalBiasError("a backtest refuses this split.")


def _results(result: "Backtest") -> dict[str, Any]:
    return {
        "objects": len(result.y),
        "periods": list(result.periods),
        "pos_label": result.pos_label,
        "summary": result.summary(),
        "biases": result.manifest["biases"],
        "monitors": {name: seen._asdict() for name, seen in result.monitors.items()},
    }
