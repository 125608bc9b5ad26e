"""The commands for experiments in TOML files: example, check, init, data, fit, learn, backtest, report."""

import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from transcendent.cli import console, options, outputs, showing
from transcendent.cli.artifacts import access_of, save_again
from transcendent.cli.options import UsageError

if TYPE_CHECKING:
    from transcendent.artifacts import Artifact
    from transcendent.artifacts.sandbox import Access


def example(as_json: options.AsJson = False) -> None:
    """Write two tables to try the other commands on: objects.csv, and new.csv without verdicts."""
    from transcendent.datasets.streams import write_example

    files = [Path("objects.csv"), Path("new.csv")]
    for file in files:
        if file.exists():
            raise UsageError(f"{file} exists: run this in another folder.")
    with outputs.writing(files[0]):
        write_example(*files)
    showing.show(
        "written: objects.csv (5,000 objects of ten months, which drift) and new.csv (1,000 later ones,\n"
        "without verdicts); next: transcendent init objects.csv",
        {"files": [str(file) for file in files]},
        as_json,
    )


def check(
    file: options.AnswersFile,
    scores: Annotated[
        str | None, Option(help="The column with a score or probability, or one per class: a,b.")
    ] = None,
    answer: Annotated[
        str | None,
        Option(help="The column with answers, or the score above which the answer is the second class."),
    ] = None,
    truth: Annotated[str | None, Option(help="The column with true labels, where they are known.")] = None,
    time: options.Time = None,
    out: Annotated[
        Path | None, Option("--out", "-o", help="The page to write; by default beside the table.")
    ] = None,
    toml: Annotated[
        Path | None, Option(help="Also write the experiment, for fit, decide and monitor.")
    ] = None,
    as_json: options.AsJson = False,
    _quiet: options.Quiet = False,
) -> None:
    """Report on a detector's past answers; needs no model and no features.

    How it has aged, what a look at the answers it was least sure of would have found, when alarms would have
    sounded, and what could be promised. The roles of columns that no option sets are guessed.
    """
    from transcendent._utils.files import write_whole
    from transcendent.report import check_answers

    page = out or file.with_suffix(".html")
    if page.exists() and page.suffix not in (".html", ".htm"):
        raise UsageError(f"--out {page} exists and is not an HTML page: choose another name.")
    if toml is not None and toml.exists():
        raise UsageError(f"{toml} exists: --toml NAME writes another file.")
    columns = [name.strip() for name in scores.split(",")] if scores else []
    found = check_answers(file, page, toml=toml, scores=columns, answer=answer, truth=truth, time=time)
    if toml is not None:
        with outputs.writing(toml):
            write_whole(toml, found.proposal.text.encode())
    for note in found.proposal.notes:
        console.say(f"note: {note}")
    where = f"written to {page}"
    if toml is not None:
        where += f" and {toml}; next: transcendent fit {shlex.quote(str(toml))} --rejector budget"
    said = {"page": str(page), "columns": found.proposal.guesses, "lead": dict(found.lead)}
    showing.show(
        f"{showing.answers(found)}\n\n{where}",
        {**said, "notes": found.proposal.notes, **showing.results(found.result)},
        as_json,
    )


def init(
    file: options.TableFile,
    out: Annotated[Path | None, options.out("The TOML file to write (default: beside the table).")] = None,
    label: options.Label = None,
    time: options.Time = None,
    identifier: options.Identifier = None,
    as_json: options.AsJson = False,
) -> None:
    """Write a TOML file for an experiment from a table.

    The roles of columns that no option sets are guessed from names and values. Check the file before use.
    """
    from transcendent._utils.files import write_whole
    from transcendent.experiments import propose

    toml = out or file.with_suffix(".toml")
    if toml.exists():
        raise UsageError(f"{toml} exists: --out NAME writes another file.")
    proposal = propose(file, toml=toml, label=label, time=time, identifier=identifier)
    with outputs.writing(toml):
        write_whole(toml, proposal.text.encode())
    for note in proposal.notes:
        console.say(f"note: {note}")
    text = f"{proposal.text}\nwritten to {toml}; next: transcendent data {toml}"
    showing.show(text, {"toml": str(toml), **proposal.guesses, "notes": proposal.notes}, as_json)


def data(
    file: options.TomlOrObjects,
    label: options.Label = None,
    time: options.Time = None,
    identifier: options.Identifier = None,
    train: Annotated[str | None, Option(help="The end of training; checks this split.")] = None,
    period: Annotated[str, Option(help="year, quarter, month, week, day or none.")] = "month",
    as_json: options.AsJson = False,
) -> None:
    """Describe objects, and check a split for biases."""
    from transcendent.errors import TemporalBiasError
    from transcendent.experiments import describing, read
    from transcendent.tables.frames import Columns

    if file.suffix == ".toml":
        found = read(file).check() | {"toml": True}
    else:
        columns = Columns(label, time, identifier)
        found = describing.describe_file(file, columns, train=train, period=period) | {"toml": False}
    showing.show(showing.objects(found), found, as_json)
    if any(bias.refuses for bias in found.get("biases", [])):
        raise TemporalBiasError("a backtest refuses this split.")


def fit(
    toml: options.Toml,
    out: Annotated[Path | None, options.out("The artifact to write (default: named after TOML).")] = None,
    rejector: Annotated[str | None, Option(help="The name of the rejector, if there are several.")] = None,
    train: Annotated[str | None, Option(help="The end of training, instead of train under [split].")] = None,
    signing_key: options.SigningKey = None,
    as_json: options.AsJson = False,
    _quiet: options.Quiet = False,
) -> None:
    """Fit a rejector and save it as an artifact."""
    from transcendent._utils.text import counted
    from transcendent.artifacts.artifact import read_artifact
    from transcendent.experiments import read

    experiment, out = read(toml), out or toml.with_suffix(".transcendent")
    outputs.refuse_overwrite(out, toml, *experiment.files)
    fitted = experiment.fit(rejector, train=train)
    with outputs.writing(out):
        fitted.save(out, signing_key=signing_key)
    artifact = read_artifact(out)
    if fitted.n_left_out:
        left_out = counted(fitted.n_left_out, "labelled object")
        console.say(
            f"note: {left_out} outside the training window left out; --train {fitted.take_all} takes all"
        )
    showing.show(
        f"{fitted.name}, fitted on {len(fitted.rows):,} objects, is in {out}.\n{showing.artifact(artifact)}"
        f"\n\nnext, here with the objects of the experiment: {_decide_line(artifact, experiment.files)}",
        showing.facts(artifact),
        as_json,
    )


def _decide_line(artifact: "Artifact", files: list[Path]) -> str:
    """Return a command that decides with an artifact, as a shell reads it."""
    from transcendent.artifacts.types import trust_options

    words = [str(artifact.path), str(files[0]) if files else "OBJECTS"]
    trust = trust_options(artifact.types_to_trust())
    return f"transcendent decide {shlex.join(words)} {trust}".rstrip()


def learn(
    toml: options.Toml,
    labels: Annotated[
        Path,
        Option(
            exists=True, dir_okay=False, help="Objects labelled since the fit: a table, or the gate's export."
        ),
    ],
    artifact: options.ArtifactToLearn = None,
    out: options.LearntArtifact = None,
    what: options.What = "judge",
    trust: options.Trust = None,
    public_key: options.PublicKey = None,
    strict: options.Strict = False,
    signing_key: options.SigningKey = None,
    as_json: options.AsJson = False,
    _quiet: options.Quiet = False,
) -> None:
    """Let an artifact learn from labels that came after its fit.

    The rows of the fit train and calibrate again, and the labelled objects train too. Pass every object
    labelled since the fit; labels that are not classes, and rows of the fit, are left out and counted.
    """
    access = access_of(trust, public_key, strict)
    learn_from(labels, toml, artifact, out, what, access, signing_key, as_json)


def learn_from(
    labels: Path,
    toml: Path,
    artifact: Path | None,
    out: Path | None,
    what: str,
    access: "Access",
    signing_key: Path | None,
    as_json: bool,
) -> None:
    """Let an artifact learn from a file of labels, save the result and show it."""
    from transcendent.artifacts.artifact import read_artifact
    from transcendent.experiments import read
    from transcendent.experiments.survey import in_words

    experiment, origin = read(toml), artifact or toml.with_suffix(".transcendent")
    out = out or toml.with_name(f"{toml.stem}-learnt.transcendent")
    if not origin.is_file():
        raise UsageError(
            f"there is no {origin}: 'transcendent fit {toml}' writes it; --artifact names another."
        )
    outputs.refuse_overwrite(out, toml, labels, *experiment.files)
    opened = access.open_and_try(origin)
    learnt = experiment.learn(
        opened.rejector(access.trusted),
        labels,
        what=what,  # type: ignore[arg-type]  # checked there
        train=opened.manifest["notes"].get("train"),
    )
    said = f"{learnt.n_learnt:,} labelled objects"
    save_again(learnt.rejector, opened, out, signing_key, learnt=f"{said} ({what})")
    made = read_artifact(out)
    left_out = f"left out: {in_words(learnt.left_out)}\n" if learnt.left_out else ""
    text = f"learnt from {said}; written to {out}.\n{left_out}{showing.artifact(made)}"
    counts = {"learnt": learnt.n_learnt, "left_out": learnt.left_out}
    showing.show(text, counts | showing.facts(made), as_json)


def backtest(
    toml: options.Toml,
    out: Annotated[Path | None, options.out("Folder for results (default: named after TOML).")] = None,
    jobs: Annotated[int | None, Option("--jobs", "-j", help="Rejectors that run at once (-1: all).")] = None,
    fresh: Annotated[bool, Option("--fresh", help="Replace the backtest in the folder.")] = False,
    as_json: options.AsJson = False,
    _quiet: options.Quiet = False,
) -> None:
    """Evaluate rejectors over time.

    Fits rejectors on the training window and decides later objects, period by period. The same command
    resumes an interrupted run, and shows a finished one.
    """
    from transcendent.experiments import read

    if jobs == 0:
        raise UsageError("--jobs must not be 0.")
    experiment = read(toml)
    folder = out or toml.with_suffix("")
    finished = (folder / "manifest.json").is_file() and not fresh
    with outputs.resumable(folder), outputs.output_folder(folder):
        result = experiment.backtest(folder, n_jobs=jobs, fresh=fresh)
    where = f"kept in {folder}"
    if finished:
        where = f"read from {folder}, where it finished {result.manifest['finished']}; --fresh runs it again"
    seen = result.monitors
    alarms = [f"\nalarms of {name}: {seen.get(name, 'not monitored')}" for name in result.answers if seen]
    text = f"{result!r}{''.join(alarms)}\n\n{where}; next: transcendent report {folder}"
    showing.show(text, {"folder": str(folder), "read": finished, **showing.results(result)}, as_json)


def report(
    folder: Annotated[
        Path | None, Argument(metavar="FOLDER", help="A finished backtest (default: the latest here).")
    ] = None,
    out: Annotated[Path | None, options.out("The page to write (default: report.html in FOLDER).")] = None,
    title: Annotated[str | None, Option(help="A title for the page.")] = None,
    minutes: Annotated[float, Option(min=0.01, help="Minutes to look at one object, for the hours.")] = 5.0,
    toml: Annotated[
        Path | None,
        Option(
            exists=True,
            dir_okay=False,
            help="The experiment, whose rows are needed to show campaigns (default: FOLDER.toml).",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Write a finished backtest as one HTML page."""
    from transcendent.report import write_report
    from transcendent.temporal import Backtest, RepeatedBacktest

    found = _finished_backtest(folder)
    page = out or found / "report.html"
    if page.exists() and page.suffix not in (".html", ".htm"):
        raise UsageError(f"--out {page} exists and is not an HTML page: choose another name.")
    repeated = not (found / "manifest.json").exists()
    result: Backtest | RepeatedBacktest = (RepeatedBacktest if repeated else Backtest).load(found)
    title = title or result.title or found.resolve().name
    X, missing = _tested_rows(result, found, toml)
    with outputs.writing(page):
        write_report(result, page, X=X, title=title, minutes=minutes)
    showing.show(
        f"{page} ({page.stat().st_size / 1e6:.1f} MB)" + (f"\nno campaigns: {missing}" if missing else ""),
        {"report": str(page), "no_campaigns": missing, **showing.results(result)},
        as_json,
    )


def _tested_rows(result: Any, folder: Path, toml: Path | None) -> tuple[Any, str | None]:
    """Return the rows of the experiment, or else why there are none; raise if its file was named."""
    from transcendent.decisions import Answers
    from transcendent.experiments import read
    from transcendent.report.hindsight import has_rows

    path = toml or folder.resolve().with_name(f"{folder.resolve().name}.toml")
    if not path.is_file():
        return None, f"there is no {path.name} beside {folder}; --toml names the experiment."
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the backtest has shown them
            X = read(path).objects.X
        if isinstance(X, Answers):
            raise ValueError(f"{path.name} has answers and scores, but no features.")
        if not has_rows(result, X):
            raise ValueError(f"{path.name} does not have the rows that were tested.")
    except (ValueError, OSError) as error:
        if toml is not None:
            raise
        return None, str(error)
    return X, None


def _finished_backtest(folder: Path | None) -> Path:
    """Return the folder of a finished backtest; by default the latest in the working directory."""
    from transcendent.temporal.checkpoints import is_backtest

    if folder is None:
        here = [*Path().glob("*/decisions.parquet"), *Path().glob("*/seed-*/decisions.parquet")]
        if not here:
            raise ValueError("there is no finished backtest here: transcendent report FOLDER")
        folder = Path(max(here, key=lambda path: path.stat().st_mtime).parts[0])
    if folder.suffix == ".toml":
        folder = folder.with_suffix("")
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}.")
    if not is_backtest(folder) and not any(map(is_backtest, folder.glob("seed-*"))):
        raise ValueError(f"{folder} holds no finished backtest: run 'transcendent backtest' first.")
    return folder
