"""The commands that use artifacts: decide, explain, info, verify, thresholds, monitor."""

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from transcendent.cli import console, options, outputs, showing
from transcendent.cli.options import UsageError

if TYPE_CHECKING:
    from transcendent.artifacts import Artifact
    from transcendent.artifacts.sandbox import Access


def decide(
    artifact: options.ArtifactFile,
    objects: Annotated[
        str, Argument(metavar="OBJECTS", help="A Parquet, CSV, npz or libsvm file, or a folder of Parquet.")
    ],
    out: Annotated[
        str | None, options.out("A .parquet or .csv file, - for CSV on standard output, or a folder.")
    ] = None,
    identifier: options.Identifier = None,
    workers: Annotated[
        int | None,
        Option(
            "--workers", "-w", min=1, help="Number of worker processes (default for a folder: all cores)."
        ),
    ] = None,
    scheduler: Annotated[str | None, Option(help="Address of a Dask cluster: tcp://host:8786.")] = None,
    features: Annotated[
        list[str] | None,
        Option(help="For tables in parts: a column with a feature (repeatable), or the one with whole rows."),
    ] = None,
    values: Annotated[
        str | None, Option(help="For tables in parts: the column with the values of sparse rows.")
    ] = None,
    quorum: Annotated[
        int | None, Option(min=1, help="Number of folds of a cross-conformal evaluator that must accept.")
    ] = None,
    p_values: Annotated[bool, Option("--p-values/--no-p-values", help="Write a p-value per class.")] = True,
    digest: Annotated[
        str, Option(help="For tables in parts: check files for changes by 'footer' or 'content'.")
    ] = "footer",
    trust: options.Trust = None,
    public_key: options.PublicKey = None,
    strict: options.Strict = False,
    as_json: options.AsJson = False,
    _quiet: options.Quiet = False,
) -> None:
    """Accept or reject answers about new objects.

    A file is decided in memory. A folder of Parquet files, or a file with --workers or --scheduler, is
    decided in parts and can have any size; the same command resumes an interrupted run.
    """
    from transcendent.decisions import summary_as_dict

    in_parts = _is_in_parts(objects, out, workers, scheduler, bool(features or values or digest != "footer"))
    access = access_of(trust, public_key, strict)
    if out is not None:
        outputs.refuse_overwrite(out, artifact, objects)
    given: dict[str, Any] = {"identifier": identifier, "quorum": quorum, "p_values": p_values}
    if in_parts:
        from transcendent.batch import decide_table

        tried = access.open_and_try(artifact)
        columns = features[0] if features and len(features) == 1 else features or None
        given |= {"features": columns, "values": values, "digest": digest, "trusted": access.trusted}
        connected = nullcontext() if scheduler is None else _connected(scheduler)
        with connected as client, outputs.resumable(out), outputs.writing(out):
            n_jobs = None if client else workers or -1
            table = decide_table(tried, objects, out, n_jobs=n_jobs, client=client, **given)
        showing.show(f"{table!r}\n\nwritten to {out}", table.to_dict(), as_json)
        return
    from transcendent.batch.in_memory import decide_file, written

    decisions, decided = decide_file(artifact, Path(objects), access, **given)
    if out is not None:
        _write(written(decided, Path(out).suffix), out)
    if out != "-":
        where = f"written to {out}" if out else "not written; to keep the decisions: --out FILE"
        counts = {"objects": len(decisions), **summary_as_dict(decisions.summary())}
        showing.show(f"{decisions!r}\n\n{where}", counts, as_json)


def explain(
    artifact: options.ArtifactFile,
    objects: options.ObjectsFile,
    wanted: Annotated[
        list[str] | None,
        Option(
            "--object",
            help="The id of an object, or its row, counted from 0, if there are no ids; repeatable (default: "
            "the object that is trusted least).",
        ),
    ] = None,
    identifier: options.Identifier = None,
    known: Annotated[
        Path | None,
        Option(exists=True, dir_okay=False, help="A file of objects with known labels to compare with."),
    ] = None,
    label: Annotated[str | None, Option(help="The column of --known with labels.")] = None,
    time: Annotated[str | None, Option(help="The column of --known with times.")] = None,
    trust: options.Trust = None,
    public_key: options.PublicKey = None,
    strict: options.Strict = False,
    as_json: options.AsJson = False,
    _quiet: options.Quiet = False,
) -> None:
    """Explain why objects were rejected or accepted: the doubt, what they are like, what would settle it."""
    from transcendent.batch.in_memory import explain_file

    if known is None and (label or time):
        raise UsageError("--label and --time name columns of --known FILE, which is missing.")
    found = explain_file(
        artifact,
        objects,
        access_of(trust, public_key, strict),
        identifier=identifier,
        wanted=wanted or (),
        known=known,
        label=label,
        time=time,
    )
    text = "\n\n\n".join(f"{name}\n{why}" for name, why in found)
    showing.show(text, {"objects": [{"object": name, **why.to_dict()} for name, why in found]}, as_json)


def _is_in_parts(
    objects: str, out: str | None, workers: int | None, scheduler: str | None, parts_only: bool
) -> bool:
    """Return whether objects are decided in parts; raise on options that contradict this or each other."""
    if workers is not None and scheduler is not None:
        raise UsageError("--workers uses this machine, --scheduler a cluster: choose one.")
    path = Path(objects)
    parts = bool(workers or scheduler or "://" in objects or path.is_dir())
    if parts and path.is_file():
        with path.open("rb") as file:
            if file.read(4) != b"PAR1":
                raise UsageError(f"{objects} is not Parquet: leave out --workers or --scheduler.")
    if parts and (out is None or out == "-" or out.endswith((".parquet", ".csv"))):
        raise UsageError("a table that is decided in parts needs --out FOLDER.")
    if not parts and parts_only:
        raise UsageError("--features, --values and --digest need --workers, --scheduler or a folder.")
    if not parts and not path.is_file():
        raise UsageError(f"there is no file {objects}.")
    if not parts and out not in (None, "-") and Path(str(out)).suffix not in (".parquet", ".csv"):
        raise UsageError(f"--out {out}: must end in .parquet or .csv, or be - for CSV on standard output.")
    return parts


def access_of(trust: list[str] | None, public_key: Path | None, strict: bool) -> "Access":
    """Return the requirements on artifacts that these options set."""
    from transcendent.artifacts.sandbox import Access

    return Access(trust or (), public_key, strict)


def _connected(scheduler: str) -> AbstractContextManager[Any]:
    from transcendent._utils.extras import extra
    from transcendent.errors import BatchError

    try:
        client: AbstractContextManager[Any] = extra("distributed", "dask").Client(scheduler)
    except (OSError, ValueError) as error:
        raise BatchError(f"there is no Dask scheduler at {scheduler}: {error}") from None
    return client


def _write(content: bytes, out: str) -> None:
    """Write to a file, or to standard output for ``-``; on a terminal, control characters are escaped."""
    from transcendent._utils.files import write_whole
    from transcendent._utils.text import visible

    with outputs.writing(out):
        if out != "-":
            write_whole(Path(out), content)
        elif sys.stdout.isatty():
            sys.stdout.write(visible(content.decode(), keep="\n"))
        else:
            sys.stdout.buffer.write(content)


def info(
    artifact: options.ArtifactFile, public_key: options.PublicKey = None, as_json: options.AsJson = False
) -> None:
    """Show the contents of an artifact, without loading it."""
    from transcendent.artifacts import open_artifact

    opened = open_artifact(artifact, public_key=public_key)
    showing.show(showing.artifact(opened), showing.facts(opened), as_json)


def verify(
    artifact: options.ArtifactFile,
    trust: options.Trust = None,
    public_key: options.PublicKey = None,
    strict: options.Strict = False,
    as_json: options.AsJson = False,
) -> None:
    """Check an artifact's digest, signature, types and versions, and run it on sample rows."""
    opened = access_of(trust, public_key, strict).open_and_try(artifact)
    differences = opened.version_differences()
    showing.show(
        f"{artifact} is complete, holds trusted types only, and decided sample rows.\n"
        f"{showing.signature(opened)}\n{showing.versions(differences)}\nsha256 {opened.digest}",
        {
            "verified": True,
            "signature_checked": opened.signature_checked,
            "version_differences": differences,
            **showing.facts(opened),
        },
        as_json,
    )


def thresholds(
    artifact: options.ArtifactFile,
    objective: Annotated[
        str | None,
        Option(
            help="f1, accuracy, precision, recall, error, rejection_rate or macro_f1 (default: f1 for two "
            "classes, accuracy for more)."
        ),
    ] = None,
    max_rejection: options.Share = 0.15,
    constraint: Annotated[list[str] | None, Option(help="Such as 'recall >= 0.9'; repeatable.")] = None,
    out: Annotated[Path | None, options.out("The artifact to write (default: only show them).")] = None,
    trust: options.Trust = None,
    public_key: options.PublicKey = None,
    strict: options.Strict = False,
    signing_key: options.SigningKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Search new thresholds for an artifact.

    The training data are not needed: the artifact holds its calibration objects.
    """
    from transcendent.artifacts.manifest import facts
    from transcendent.decisions import declared

    access = access_of(trust, public_key, strict)
    opened = access.open_and_try(artifact)
    classes = opened.manifest["classes"] or []
    objective = objective or ("f1" if len(classes) == 2 else "accuracy")
    search = _search(objective, max_rejection, constraint or [])
    rejector = opened.rejector(access.trusted)
    if not declared(rejector).can_rethreshold:
        raise ValueError(f"{artifact} holds a {type(rejector).__name__}, which has no thresholds to search.")
    retuned = rejector.rethreshold(search)
    before, after = opened.manifest["thresholds"], facts(retuned)["thresholds"]
    if out is not None:
        save_again(retuned, opened, out, signing_key)
    old, new = (showing.thresholds(classes, promises) for promises in (before, after))
    where = f"written to {out}" if out else "not written; to keep them: --out FILE"
    text = f"before\n{old}\n\nafter\n{new}\n\n{where}"
    showing.show(text, {"before": before, "after": after, "out": None if out is None else str(out)}, as_json)


def save_again(rejector: Any, origin: "Artifact", out: Path, signing_key: Path | None, **notes: str) -> None:
    """Save a rejector with the notes of the artifact it comes from; warn if the signature is lost."""
    from transcendent.artifacts import save

    period, notes = origin.manifest["training_period"], origin.manifest["notes"] | notes
    with outputs.writing(out):
        save(rejector, out, training_period=period, notes=notes, signing_key=signing_key)
    if origin.signed and signing_key is None:
        console.say(f"warning: {origin.path} is signed, {out} is not; to sign it: --signing-key KEY.")


def _search(objective: str, max_rejection: float, constraints: list[str]) -> Any:
    from transcendent import ExactSearch
    from transcendent.metrics.ratios import resolve_metric
    from transcendent.thresholds.base import parse_constraint

    try:
        resolve_metric(objective)
        parsed = [parse_constraint(text) for text in constraints]
    except ValueError as error:
        raise UsageError(str(error)) from None
    return ExactSearch(objective, max_rejection=max_rejection, constraints=parsed)


def monitor(
    artifact: options.ArtifactFile,
    objects: options.ObjectsFile,
    state: Annotated[Path, Option(help="Stores the monitor between files (JSON).")],
    time: Annotated[str | None, Option(help="Column with times (default: the order of the file).")] = None,
    threshold: Annotated[
        float | None, Option(help="A false alarm is at most 1/threshold likely (default: 100).")
    ] = None,
    again: Annotated[bool, Option("--again", help="Take a file that was taken before once more.")] = False,
    figure: Annotated[Path | None, Option(help="Draw evidence and rejections to this .svg or .png.")] = None,
    trust: options.Trust = None,
    public_key: options.PublicKey = None,
    strict: options.Strict = False,
    as_json: options.AsJson = False,
    _quiet: options.Quiet = False,
) -> int:
    """Raise an alarm when new objects differ from the calibration objects; needs no labels.

    Run it for every file of new objects, in order of arrival, with the same state. The exit code is 11 once
    there is an alarm, of drift or of rejections.
    """
    from transcendent._utils.files import write_whole
    from transcendent.batch.in_memory import monitor_file
    from transcendent.batch.taken import TakenFiles

    outputs.refuse_overwrite(state, artifact, objects, option="--state")
    taken = TakenFiles.of(state)
    taken.add(objects, again=again)
    access = access_of(trust, public_key, strict)
    seen = monitor_file(artifact, objects, access, state, time=time, threshold=threshold)
    if figure is not None:
        with outputs.writing(figure):
            seen.plot().figure_.savefig(figure)
    with outputs.writing(state):
        write_whole(state, taken.added_to(seen.to_json()).encode())
    showing.show(repr(seen), showing.alarms(seen), as_json)
    return 0 if seen.alarm is None and seen.rejections.alarm is None else 11
