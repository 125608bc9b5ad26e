"""Decisions about a file of objects, and new thresholds, with a saved rejector."""

import io
import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from transcendent._utils.arrays import AnyArray, take_rows
from transcendent._utils.extras import extra
from transcendent._utils.files import write_whole
from transcendent._utils.text import visible
from transcendent.artifacts import Artifact, open_artifact, save
from transcendent.artifacts.trial import ROWS, try_out
from transcendent.batch import TableDecisions, decide_table
from transcendent.batch.plan import MAGIC, Digest
from transcendent.cli.console import InterruptedRunError, writing
from transcendent.cli.objects import build_search
from transcendent.cli.settings import UsageError
from transcendent.cli.tables import ColumnError, Columns, Objects, is_table, read_objects
from transcendent.decisions import Decisions, Rejector, summary_as_dict
from transcendent.errors import ArtifactError, BatchError

_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", "'")


@dataclass(frozen=True)
class Access:
    """What an artifact has to satisfy before it is used.

    Attributes
    ----------
    trusted : list of str
        Types to allow in it.
    public_key : path or None
        What it has to be signed with.
    strict : bool
        Whether it has to be written under the versions that are here.
    """

    trusted: list[str]
    public_key: Path | None
    strict: bool

    def open_and_try(self, path: Path) -> Artifact:
        """The artifact, checked, and tried out in another process."""
        artifact = open_artifact(path, public_key=self.public_key)
        self.check_and_try(artifact)
        return artifact

    def check_and_try(self, artifact: Artifact, rows: Any = None) -> None:
        """Check an artifact, and try it out on some rows in another process."""
        artifact.check(self.trusted, strict=self.strict)
        try_out(artifact, self.trusted, rows)


def _begins_as_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


@dataclass(frozen=True)
class InParts:
    """What only a table that is decided in parts can be asked for."""

    out: str | None
    workers: int | None
    scheduler: str | None
    features: list[str]
    values: str | None
    p_values: bool
    digest: str

    def asked_for(self, objects: str) -> bool:
        """Whether these objects are to be decided so."""
        if self.workers is not None and self.scheduler is not None:
            raise UsageError("--workers are of this machine, --scheduler is of another: give one of them.")
        parts = bool(self.workers or self.scheduler or "://" in objects or Path(objects).is_dir())
        if parts and Path(objects).is_file() and not _begins_as_parquet(Path(objects)):
            raise UsageError(
                f"only Parquet is decided in parts, not {objects}: leave out --workers or --scheduler."
            )
        if parts and (self.out is None or self.out == "-" or self.out.endswith((".parquet", ".csv"))):
            raise UsageError(
                "a table that is decided in parts needs --out FOLDER, to which they are written."
            )
        if not parts and (self.features or self.values or self.p_values or self.digest != "footer"):
            raise UsageError(
                "--features, --values, --p-values and --digest go with --workers, --scheduler or a folder."
            )
        return parts

    def decide(self, artifact: Path, table: str, identifier: str | None, access: Access) -> TableDecisions:
        """Decide, and write to the folder."""
        tried = access.open_and_try(artifact)
        single = len(self.features) == 1 and self.features[0]
        try:
            with self._client() as client, writing(self.out):
                return decide_table(
                    tried,
                    table,
                    self.out,
                    features=single or self.features or None,
                    values=self.values,
                    identifier=identifier,
                    p_values=self.p_values,
                    digest=cast("Digest", self.digest),
                    n_jobs=None if client else self.workers or -1,
                    client=client,
                    trusted=access.trusted,
                )
        except KeyboardInterrupt:
            raise InterruptedRunError(
                f"interrupted. What is done is kept in {self.out}; the same command goes on from there."
            ) from None

    def _client(self) -> AbstractContextManager[Any]:
        if self.scheduler is None:
            return nullcontext()
        try:
            client: AbstractContextManager[Any] = extra("distributed", "dask").Client(self.scheduler)
        except (OSError, ValueError) as error:
            raise BatchError(f"there is no Dask scheduler at {self.scheduler}: {error}") from None
        return client


def existing_file(name: str) -> Path:
    """The path, if it is that of a file."""
    path = Path(name)
    if not path.is_file():
        raise UsageError(f"there is no file {name}.")
    return path


def decide_file(
    path: Path, file: Path, identifier: str | None, access: Access
) -> tuple[Decisions, AnyArray | None]:
    """Decisions of the rejector in an artifact about the objects of a file, and what these are called."""
    artifact = open_artifact(path, public_key=access.public_key)
    if artifact.manifest["rejector"] == "ScoreEvaluator":
        raise ValueError(
            f"{path} judges scores, not objects: load it in Python, and give decide(scores, labels)."
        )
    if artifact.manifest["rejector"] == "StreamingBudget":
        raise ValueError(
            f"{path} holds a budget over a stream, whose state a command would not keep: load it in Python, "
            "or save a RejectionBudget and give the objects of a period in one file."
        )
    features, notes = artifact.manifest["features"], artifact.manifest["notes"]
    columns = Columns(id=identifier, features=notes.get("features") or features["names"])
    if identifier is None and is_table(file):
        columns = replace(columns, id=notes.get("id"))
    objects = _read(file, columns, features["count"], named=identifier is not None)
    access.check_and_try(artifact, take_rows(objects.X, slice(0, ROWS)))
    rejector: Rejector = artifact.rejector(access.trusted)
    try:
        with artifact.deciding():
            return _decide(rejector, objects), objects.ids
    except ArtifactError:
        raise
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def _decide(rejector: Rejector, objects: Objects) -> Decisions:
    try:
        return rejector.decide(objects.X)
    except TypeError as error:
        if text := objects.columns_of_text():
            raise ValueError(f"the columns {text[:5]} hold no numbers: {error!s:.200}") from error
        raise


def check_output(out: Path | None) -> None:
    """Refuse a name whose ending says nothing, before any work is done."""
    if out is not None and str(out) != "-" and out.suffix not in (".parquet", ".csv"):
        raise UsageError(f"--out {out}: decisions are written as .parquet, .csv, or to - as CSV.")


def write_decisions(decisions: Decisions, ids: AnyArray | None, out: Path) -> None:
    """One row per object: its id or number, and what was decided."""
    arrow = extra("pyarrow", "cli")
    first = {"row": range(len(decisions))} if ids is None else {"id": ids}
    columns = {**first, **decisions.to_dict()}
    content = io.BytesIO()
    if out.suffix == ".parquet":
        extra("pyarrow.parquet", "cli").write_table(arrow.table(columns), content)
        write_whole(out, content.getvalue())
        return
    unspoilt = {name: _without_formulas(values, name) for name, values in columns.items()}
    extra("pyarrow.csv", "cli").write_csv(arrow.table(unspoilt), content)
    if str(out) != "-":
        write_whole(out, content.getvalue())
    elif sys.stdout.isatty():
        sys.stdout.write(visible(content.getvalue().decode(), keep="\n"))
    else:
        sys.stdout.buffer.write(content.getvalue())


def _without_formulas(values: Any, name: str) -> Any:
    """Text that a spreadsheet would run as a formula with ' before it, and so what begins with ' itself.

    Taking one ' away from all that begins with it gives the values back.
    """
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "OU":
        return values
    texts = values.tolist()
    runs = [isinstance(text, str) and text.startswith(_FORMULAS) for text in texts]
    if not any(runs):
        return values
    warnings.warn(
        f"{sum(runs):,} entries of {name!r} begin with = + - @ or ' and have a ' before them in CSV, lest a "
        "spreadsheet run them as formulas. Parquet has them as they are.",
        stacklevel=2,
    )
    return [f"'{text}" if run else text for text, run in zip(texts, runs, strict=True)]


def summarise(decisions: Decisions) -> dict[str, Any]:
    """How many objects of each predicted class were accepted and rejected."""
    return {"objects": len(decisions), **summary_as_dict(decisions.summary())}


def rethreshold(
    artifact: Artifact,
    trusted: list[str],
    objective: str | None,
    max_rejection: float | None,
    constraints: list[str],
) -> tuple[Any, list[dict[str, Any]], list[dict[str, Any]]]:
    """The rejector with new thresholds, and what the old and the new ones promise."""
    from transcendent.artifacts.manifest import facts

    classes = artifact.manifest["classes"] or []
    default = "f1" if len(classes) == 2 else "accuracy"
    search = build_search(objective or default, max_rejection, constraints)
    rejector = artifact.rejector(trusted)
    if not hasattr(rejector, "rethreshold"):
        raise ValueError(
            f"{artifact.path} holds a {type(rejector).__name__}, which has no thresholds to search."
        )
    return rejector.rethreshold(search), artifact.manifest["thresholds"], facts(rejector)["thresholds"]


def save_again(rejector: Any, artifact: Artifact, out: Path, signing_key: Path | None) -> None:
    """Save what was loaded from an artifact, with what that one said of its training."""
    period, notes = artifact.manifest["training_period"], artifact.manifest["notes"]
    save(rejector, out, training_period=period, notes=notes, signing_key=signing_key)


def _read(file: Path, columns: Columns, width: int | None, *, named: bool) -> Objects:
    """Objects as the artifact wants them; nobody needs their names to decide."""
    try:
        objects = read_objects(file, columns, width=width)
    except ColumnError as error:
        if error.key != "id" or named:
            raise
        warnings.warn(f"{error} Objects are numbered; --id names them by another column.", stacklevel=2)
        return _read(file, replace(columns, id=None), width, named=False)
    if hasattr(objects.X, "isna") and (missing := objects.X.isna().sum()).any():
        some = ", ".join(f"{name} ({count:,})" for name, count in missing[missing > 0].head(5).items())
        warnings.warn(f"values are missing in {file}: {some}.", stacklevel=2)
    return objects
