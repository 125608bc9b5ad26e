"""Decide, explain or monitor the objects of one file in memory, with a saved rejector."""

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from transcendent._utils.arrays import missing_rows, take_rows
from transcendent._utils.cells import locating_bad_value
from transcendent._utils.dates import as_times
from transcendent._utils.extras import extra
from transcendent._utils.text import some, suggestion
from transcendent.artifacts import Artifact, open_artifact
from transcendent.artifacts.sandbox import ROWS, Access
from transcendent.batch.columns import decision_table, named_by_row
from transcendent.batch.writing import open_writer
from transcendent.decisions import Decisions, Rejector, declared
from transcendent.errors import ArgumentError, ArtifactError
from transcendent.evaluators.cross import set_quorum
from transcendent.experiments.looks import stands_for_missing
from transcendent.experiments.survey import FORMATS, columns_of_text, examples_of, ways_to_read
from transcendent.explaining import Explanation, KnownObjects, explain
from transcendent.monitoring import DriftMonitor
from transcendent.tables.answers import ScoreColumns
from transcendent.tables.frames import ColumnError, Columns
from transcendent.tables.layout import Layout
from transcendent.tables.objects import Objects, without_time
from transcendent.tables.reading import is_table, read_objects
from transcendent.tables.times import find_formats
from transcendent.temporal.periods import in_order_of_time

_FORMULAS = r"^[=+\-@\t\r\n＝＋－＠']"


def decide_file(
    path: Path,
    file: Path,
    access: Access,
    *,
    identifier: str | None = None,
    quorum: int | None = None,
    p_values: bool = True,
) -> tuple[Decisions, Any]:
    """Return an artifact's decisions about the objects of a file, and the same as an Arrow table."""
    artifact, rejector, objects = _open(path, file, access, identifier=identifier)
    if declared(rejector).evolves:
        raise ValueError(
            f"{path} holds a {type(rejector).__name__}, which changes with each decision; a command would "
            "lose these changes. Load it in Python; for a budget, save a RejectionBudget and decide the "
            "objects of a period in one file."
        )
    if quorum is not None:
        set_quorum(rejector, quorum)
    with _naming_file(file, artifact), locating_bad_value(objects.X, objects.lines):
        try:
            decisions = rejector.decide(objects.X)
        except TypeError as error:
            if text := columns_of_text(objects.X):
                raise ValueError(f"the columns {text[:5]} hold text: {error!s:.200}") from error
            raise
    names = {"id": objects.ids} if objects.ids is not None else named_by_row(file.name, 0, len(objects))
    return decisions, decision_table(names, decisions, artifact.digest, p_values)


def monitor_file(
    path: Path,
    file: Path,
    access: Access,
    state: Path,
    *,
    time: str | None = None,
    threshold: float | None = None,
) -> DriftMonitor:
    """Return the monitor of a state file, or a new one, updated with the objects of a file.

    ``time`` is the column that orders the objects; by default the order of the file is used. A budget makes
    no difference, since nothing is decided here.
    """
    artifact, rejector, objects = _open(path, file, access, time=time)
    rejector = declared(rejector).without_budget
    if not state.exists():
        given: dict[str, Any] = {} if threshold is None else {"threshold": threshold}
        monitor = DriftMonitor.of(rejector, **given)
    elif threshold is not None:
        raise ArgumentError("threshold", f"{state} exists and has its own threshold: leave this out.")
    else:
        try:
            monitor = DriftMonitor.from_json(state.read_text(), rejector)
        except ValueError as error:
            raise ValueError(f"{state}: {error}") from error
    if time is not None:
        objects = _in_order(objects, artifact.manifest["notes"])
    with _naming_file(file, artifact), locating_bad_value(objects.X, objects.lines):
        monitor.update(objects.X)
    return monitor


def explain_file(
    path: Path,
    file: Path,
    access: Access,
    *,
    identifier: str | None = None,
    wanted: Sequence[str] = (),
    known: Path | None = None,
    label: str | None = None,
    time: str | None = None,
) -> list[tuple[str, Explanation]]:
    """Return explanations of an artifact's decisions about objects of a file, with the names of the objects.

    ``wanted`` are ids, or rows counted from 0 if there are none; by default the object that is trusted least.
    ``known`` is a file of objects to compare with, whose labels and times are in the columns ``label`` and
    ``time``.
    """
    artifact, rejector, objects = _open(path, file, access, identifier=identifier)
    compared = None if known is None else _known_objects(artifact, known, label, time)
    names = artifact.layout().shown_names
    with _naming_file(file, artifact), locating_bad_value(objects.X, objects.lines):
        decisions = (deepcopy(rejector) if declared(rejector).evolves else rejector).decide(objects.X)
    rows = (
        _rows_of(objects, wanted) if wanted else [int(np.lexsort((decisions.ranking, decisions.accepted))[0])]
    )
    others = [_without_itself(compared, objects, i) for i in rows]
    return [
        (_name_of(objects, i), explain(rejector, objects.X, i, other, decisions=decisions, names=names))
        for i, other in zip(rows, others, strict=True)
    ]


def _known_objects(artifact: Artifact, file: Path, label: str | None, time: str | None) -> KnownObjects:
    """Return the objects of a file with a label."""
    if label is None:
        raise ArgumentError("label", "name the column of --known that holds the labels.")
    features, notes = artifact.manifest["features"], artifact.manifest["notes"]
    layout, identifier = Layout.described(features), notes.get("id")
    columns = Columns(
        label=label,
        time=time,
        id=identifier if is_table(file) else None,
        features=notes.get("features") or features["names"],
        text=() if layout.documents else tuple(layout.text),
    )
    found = _read(file, columns, features["count"], numbered=True)
    classes = set(map(str, artifact.manifest["classes"] or ()))
    texts = {label for label in np.asarray(found.y).tolist() if stands_for_missing(label)} - classes
    if texts:  # without them, the other labels may be numbers
        found = _read(file, replace(columns, missing_labels=tuple(texts)), features["count"], numbered=True)
    formats = notes.get("time_format") or ([] if found.times is None else find_formats(found.times).formats)
    found = found.with_labels().with_iso_dates(formats)
    return KnownObjects(layout.as_fitted(found.X), found.y, found.times, found.ids)


def _without_itself(known: KnownObjects | None, objects: Objects, i: int) -> KnownObjects | None:
    """Return known objects without those that have the id of the object; None if there are no others."""
    if known is None or known.ids is None or objects.ids is None:
        return known
    others = np.flatnonzero(known.ids.astype(str) != str(objects.ids[i]))
    if len(others) == len(known):
        return known
    times = None if known.times is None else known.times[others]
    rows = take_rows(known.X, others)
    return KnownObjects(rows, known.labels[others], times, known.ids[others]) if len(others) else None


def _rows_of(objects: Objects, wanted: Sequence[str]) -> list[int]:
    """Return the rows of the objects with some ids; raise if one does not exist."""
    names = (
        np.arange(len(objects)).astype(str) if objects.ids is None else np.asarray(objects.ids).astype(str)
    )
    rows = []
    for name in wanted:
        found = np.flatnonzero(names == name)
        if not len(found):
            known = suggestion(name, names.tolist()) if len(names) <= 1000 else "."
            raise ArgumentError("object", f"{objects.name} has no object {name!r}{known}")
        rows += found.tolist()
    return rows


def _name_of(objects: Objects, i: int) -> str:
    return objects.place(i) if objects.ids is None else str(objects.ids[i])


def _in_order(objects: Objects, notes: Mapping[str, Any]) -> Objects:
    """Return objects in the order of their times, which are read as for the fit; undated ones are dropped."""
    dated = objects.with_iso_dates(notes.get("time_format", ()))
    undated = without_time(np.asarray(dated.times), True)
    if notes.get("undated") == "drop" and 0 < len(undated) < len(dated):
        warnings.warn(f"left out: {dated.have('no date', undated)}.", stacklevel=2)
        dated = dated.take(np.delete(np.arange(len(dated)), undated))
    times = np.asarray(dated.times)
    try:
        when = in_order_of_time(as_times(times, len(dated)))
    except ValueError:
        rows = without_time(times, True)
        examples = examples_of(times[rows])
        said = dated.have("no date", rows) + (f": {examples}" if examples else "")
        ways = [f" {way}." for way in ways_to_read(times[rows])]
        raise ValueError(
            f"{dated.name}: {said}. Dates are {FORMATS} before the fit.{''.join(ways)} Without --time, the "
            "order of the file is used."
        ) from None
    return dated.take(np.argsort(when, kind="stable"))


def written(table: Any, suffix: str) -> bytes:
    """Return a table of decisions as the content of a file: Parquet, or else CSV."""
    content = io.BytesIO()
    if suffix == ".parquet":
        with open_writer(content, table.schema) as writer:
            writer.write_table(table)
    else:
        extra("pyarrow.csv", "cli").write_csv(_without_formulas(table), content)
    return content.getvalue()


def _open(
    path: Path, file: Path, access: Access, *, identifier: str | None = None, time: str | None = None
) -> tuple[Artifact, Rejector, Objects]:
    """Return a checked artifact, its rejector, and the objects of a file in the artifact's columns."""
    artifact = open_artifact(path, public_key=access.public_key)
    features, notes = artifact.manifest["features"], artifact.manifest["notes"]
    scores, layout = artifact.score_columns(), Layout.described(features)
    columns = Columns(
        id=notes.get("id") if identifier is None and is_table(file) else identifier,
        time=time,
        features=notes.get("features") or features["names"] if scores is None else scores.columns,
        text=() if layout.documents else tuple(layout.text),
    )
    objects = _read(file, columns, features["count"], numbered=identifier is None)
    objects = replace(objects, X=layout.as_fitted(objects.X)) if scores is None else _answers(objects, scores)
    access.check_and_try(artifact, take_rows(objects.X, slice(0, ROWS)))
    rejector = artifact.rejector(access.trusted)
    return artifact, rejector, objects


def _answers(objects: Objects, scores: ScoreColumns) -> Objects:
    """Return objects with a detector's answers as rows; raise if some have none."""
    answers, unanswered = scores.read(objects.X)
    if len(unanswered):
        what = f"no score or no answer in {', '.join(scores.columns)}"
        raise ValueError(f"{objects.name}: {objects.have(what, unanswered)}. Remove these rows.")
    return replace(objects, X=answers)


def _read(file: Path, columns: Columns, width: int | None, *, numbered: bool) -> Objects:
    """Read objects; if the column with ids is missing and ``numbered``, warn and read them without ids."""
    try:
        objects = read_objects(file, columns, width=width)
    except ColumnError as error:
        if error.key != "id" or not numbered:
            raise
        warnings.warn(f"{error} Objects are numbered instead; --id names another column.", stacklevel=2)
        return _read(file, replace(columns, id=None), width, numbered=False)
    if objects.ids is not None and len(rows := missing_rows(objects.ids)):
        raise ValueError(f"{file}: {objects.have(f'no {columns.id!r}', rows)}. Remove these rows.")
    if hasattr(objects.X, "isna") and (missing := objects.X.isna().sum()).any():
        counts = [f"{name} ({count:,})" for name, count in missing[missing > 0].items()]
        warnings.warn(f"values are missing in {file}: {some(counts, 5)}.", stacklevel=2)
    return objects


@contextmanager
def _naming_file(file: Path, artifact: Artifact) -> Iterator[None]:
    """Name the file in errors about its objects, while an artifact's rejector decides."""
    try:
        with artifact.deciding():
            yield
    except ArtifactError:
        raise
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def _without_formulas(table: Any) -> Any:
    """Put ' before text that a spreadsheet would run as a formula, and before text that begins with '.

    Removing one leading ' restores every value.
    """
    arrow, compute = extra("pyarrow", "cli"), extra("pyarrow.compute", "cli")
    for i, (name, kind) in enumerate(zip(table.schema.names, table.schema.types, strict=True)):
        if arrow.types.is_string(kind) or arrow.types.is_dictionary(kind):
            texts = table.column(i).cast(arrow.string())
            runs = compute.match_substring_regex(texts, _FORMULAS)
            if many := compute.sum(runs).as_py():
                warnings.warn(
                    f"{many:,} entries of {name!r} begin with = + - @ or ' and get a leading ' in CSV, so "
                    "that no spreadsheet runs them as formulas. Parquet keeps them unchanged.",
                    stacklevel=2,
                )
            marked = compute.binary_join_element_wise("'", texts, "")
            table = table.set_column(i, name, compute.if_else(runs, marked, texts))
    return table
