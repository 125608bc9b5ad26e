"""Decisions about a file of objects, and new thresholds, with a saved rejector."""

import io
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transcendent._utils.arrays import missing_rows, take_rows
from transcendent._utils.extras import extra
from transcendent._utils.files import write_whole
from transcendent._utils.text import visible
from transcendent.artifacts import Artifact, open_artifact
from transcendent.artifacts.trial import ROWS, try_out
from transcendent.batch import TableDecisions, decide_table
from transcendent.batch.columns import decision_table, named_by_row, open_writer
from transcendent.batch.plan import MAGIC
from transcendent.cli.console import writing
from transcendent.cli.objects import build_search
from transcendent.cli.settings import UsageError
from transcendent.cli.survey import columns_of_text
from transcendent.cli.tables import ColumnError, Columns, Objects, have, is_table, read_objects
from transcendent.decisions import Decisions, Rejector, summary_as_dict
from transcendent.errors import ArtifactError, BatchError
from transcendent.rejectors import Traits, set_quorum

_FORMULAS = r"^[=+\-@\t\r\n＝＋－＠']"


@dataclass(frozen=True)
class Access:
    """What an artifact has to satisfy: only trusted types, a signature, and if ``strict`` our versions."""

    trusted: list[str]
    public_key: Path | None
    strict: bool

    def open_and_try(self, path: Path) -> Artifact:
        """Return the artifact, checked, and tried out in another process."""
        artifact = open_artifact(path, public_key=self.public_key)
        self.check_and_try(artifact)
        return artifact

    def check_and_try(self, artifact: Artifact, rows: Any = None) -> None:
        """Check an artifact, and try it out on some rows in another process."""
        artifact.check(self.trusted, strict=self.strict)
        try_out(artifact, self.trusted, rows)


def is_in_parts(
    objects: str, out: str | None, workers: int | None, scheduler: str | None, options: bool
) -> bool:
    """Return whether objects are decided in parts; refuse what does not go together.

    ``options`` says whether there are any that only go with parts.
    """
    if workers is not None and scheduler is not None:
        raise UsageError("--workers are of this machine, --scheduler is of another: give one of them.")
    path = Path(objects)
    parts = bool(workers or scheduler or "://" in objects or path.is_dir())
    if parts and path.is_file() and not _begins_as_parquet(path):
        raise UsageError(
            f"only Parquet is decided in parts, not {objects}: leave out --workers or --scheduler."
        )
    if parts and (out is None or out == "-" or out.endswith((".parquet", ".csv"))):
        raise UsageError("a table that is decided in parts needs --out FOLDER, to which they are written.")
    if not parts and options:
        raise UsageError("--features, --values and --digest go with --workers, --scheduler or a folder.")
    if not parts and not path.is_file():
        raise UsageError(f"there is no file {objects}.")
    if not parts and out not in (None, "-") and Path(str(out)).suffix not in (".parquet", ".csv"):
        raise UsageError(f"--out {out}: decisions are written as .parquet, .csv, or to - as CSV.")
    return parts


def _begins_as_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def decide_in_parts(
    artifact: Path,
    table: str,
    out: str,
    access: Access,
    *,
    workers: int | None,
    scheduler: str | None,
    features: list[str],
    **given: Any,
) -> TableDecisions:
    """Decide a table with the rejector in an artifact, and write to a folder."""
    tried = access.open_and_try(artifact)
    chosen = features[0] if len(features) == 1 else features or None
    try:
        with _client(scheduler) as client, writing(out):
            return decide_table(
                tried,
                table,
                out,
                features=chosen,
                n_jobs=None if client else workers or -1,
                client=client,
                trusted=access.trusted,
                **given,
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted. What is done is kept in {out}; the same command resumes from there."
        ) from None


def _client(scheduler: str | None) -> AbstractContextManager[Any]:
    if scheduler is None:
        return nullcontext()
    try:
        client: AbstractContextManager[Any] = extra("distributed", "dask").Client(scheduler)
    except (OSError, ValueError) as error:
        raise BatchError(f"there is no Dask scheduler at {scheduler}: {error}") from None
    return client


def decide_file(
    path: Path,
    file: Path,
    identifier: str | None,
    access: Access,
    *,
    quorum: int | None = None,
    p_values: bool = True,
) -> tuple[Decisions, Any]:
    """Return decisions of the rejector in an artifact about the objects of a file, and all as a table."""
    artifact, rejector, objects = open_for(path, file, identifier, access)
    if quorum is not None:
        set_quorum(rejector, quorum)
    with pointing_to(file, artifact):
        decisions = _decide(rejector, objects)
    names = {"id": objects.ids} if objects.ids is not None else named_by_row(file.name, 0, len(objects))
    return decisions, decision_table(names, decisions, artifact.digest, p_values)


def open_for(
    path: Path, file: Path, identifier: str | None, access: Access, time: str | None = None
) -> tuple[Artifact, Rejector, Objects]:
    """Return an artifact, tried out, with its rejector and the objects of a file that it can decide about."""
    artifact = open_artifact(path, public_key=access.public_key)
    if artifact.manifest["rejector"] == "ScoreEvaluator":
        raise ValueError(
            f"{path} judges scores, not objects: load it in Python, and give decide(scores, labels)."
        )
    features, notes = artifact.manifest["features"], artifact.manifest["notes"]
    columns = Columns(
        id=identifier,
        time=time,
        features=notes.get("features") or features["names"],
        text=tuple(notes.get("text", ())),
    )
    if identifier is None and is_table(file):
        columns = replace(columns, id=notes.get("id"))
    objects = _read(file, columns, features["count"], named=identifier is not None)
    access.check_and_try(artifact, take_rows(objects.X, slice(0, ROWS)))
    rejector = artifact.rejector(access.trusted)
    if Traits.of(rejector).evolves:
        raise ValueError(
            f"{path} holds a {type(rejector).__name__}, which changes while it decides. A command would not "
            "keep that: load it in Python, or for a budget save a RejectionBudget and give the objects of a "
            "period in one file."
        )
    return artifact, rejector, objects


@contextmanager
def pointing_to(file: Path, artifact: Artifact) -> Iterator[None]:
    """Decide with an artifact's rejector; what is wrong with the objects is said of their file."""
    try:
        with artifact.deciding():
            yield
    except ArtifactError:
        raise
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def _decide(rejector: Rejector, objects: Objects) -> Decisions:
    try:
        return rejector.decide(objects.X)
    except TypeError as error:
        if text := columns_of_text(objects.X):
            raise ValueError(f"the columns {text[:5]} hold no numbers: {error!s:.200}") from error
        raise


def write_table(table: Any, out: Path) -> None:
    """Write decisions as Parquet or CSV, or print them as CSV if the name is ``-``."""
    content = io.BytesIO()
    if out.suffix == ".parquet":
        with open_writer(content, table.schema) as writer:
            writer.write_table(table)
    else:
        extra("pyarrow.csv", "cli").write_csv(_without_formulas(table), content)
    if str(out) != "-":
        write_whole(out, content.getvalue())
    elif sys.stdout.isatty():
        sys.stdout.write(visible(content.getvalue().decode(), keep="\n"))
    else:
        sys.stdout.buffer.write(content.getvalue())


def _without_formulas(table: Any) -> Any:
    """Put ' before text that a spreadsheet would run as a formula, and before text that begins with ' itself.

    Taking one ' away from all that begins with it gives the values back.
    """
    arrow, compute = extra("pyarrow", "cli"), extra("pyarrow.compute", "cli")
    for i, (name, kind) in enumerate(zip(table.schema.names, table.schema.types, strict=True)):
        if arrow.types.is_string(kind) or arrow.types.is_dictionary(kind):
            texts = table.column(i).cast(arrow.string())
            runs = compute.match_substring_regex(texts, _FORMULAS)
            if many := compute.sum(runs).as_py():
                warnings.warn(
                    f"{many:,} entries of {name!r} begin with = + - @ or ' and have a ' before them in CSV, "
                    "lest a spreadsheet run them as formulas. Parquet has them as they are.",
                    stacklevel=2,
                )
            marked = compute.binary_join_element_wise("'", texts, "")
            table = table.set_column(i, name, compute.if_else(runs, marked, texts))
    return table


def summarise(decisions: Decisions) -> dict[str, Any]:
    """Return the numbers of accepted and rejected objects of each predicted class."""
    return {"objects": len(decisions), **summary_as_dict(decisions.summary())}


def rethreshold(
    artifact: Artifact,
    trusted: list[str],
    objective: str | None,
    max_rejection: float | None,
    constraints: list[str],
) -> tuple[Any, list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rejector with new thresholds, and what the old and the new ones promise."""
    from transcendent.artifacts.manifest import facts

    classes = artifact.manifest["classes"] or []
    default = "f1" if len(classes) == 2 else "accuracy"
    search = build_search(objective or default, max_rejection, constraints)
    rejector = artifact.rejector(trusted)
    if not Traits.of(rejector).rethresholds:
        raise ValueError(
            f"{artifact.path} holds a {type(rejector).__name__}, which has no thresholds to search."
        )
    return rejector.rethreshold(search), artifact.manifest["thresholds"], facts(rejector)["thresholds"]


def _read(file: Path, columns: Columns, width: int | None, *, named: bool) -> Objects:
    """Read objects with the artifact's columns; names that are noted but not there are left out."""
    try:
        objects = read_objects(file, columns, width=width)
    except ColumnError as error:
        if error.key != "id" or named:
            raise
        warnings.warn(f"{error} Objects are numbered; --id names them by another column.", stacklevel=2)
        return _read(file, replace(columns, id=None), width, named=False)
    if objects.ids is not None and len(rows := missing_rows(objects.ids)):
        raise ValueError(f"{file}: {have(f'no {columns.id!r}', rows, len(objects))}. Take these rows out.")
    if hasattr(objects.X, "isna") and (missing := objects.X.isna().sum()).any():
        some = ", ".join(f"{name} ({count:,})" for name, count in missing[missing > 0].head(5).items())
        warnings.warn(f"values are missing in {file}: {some}.", stacklevel=2)
    return objects
