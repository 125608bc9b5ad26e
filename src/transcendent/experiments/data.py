"""The objects that ``[data]`` of a TOML file names."""

from collections.abc import Collection
from typing import Any, NamedTuple

from transcendent import datasets
from transcendent._utils.text import suggestion
from transcendent.experiments.scores import about_answers, judged, left_out, to_read
from transcendent.experiments.survey import Obstacle, Takes, find_problems
from transcendent.experiments.toml import TomlTable
from transcendent.tables.answers import ScoreColumns
from transcendent.tables.frames import ColumnError, Columns
from transcendent.tables.objects import Objects
from transcendent.tables.reading import is_table, read_objects
from transcendent.tables.times import is_format

_LOADERS = ("apigraph", "lamda", "nvd", "trec07p")
_PLACES = ("file", "table", "dataset", "folder")
_DROPPED = ("unlabelled", "undated", "unanswered")
_MEANING = ("time_format", "missing_labels", *_DROPPED)
_KEYS = (*_PLACES, "label", "time", "id", "features", "without", *_MEANING, "deduplicate")


class Surveyed(NamedTuple):
    """All objects, their columns, what the detectors can handle, and the problems that prevent a fit.

    Objects that are to be dropped have no label; ``left_out`` are their numbers, by cause.
    """

    objects: Objects
    columns: Columns
    takes: Takes
    problems: list[Obstacle]
    left_out: dict[str, int]
    scores: ScoreColumns | None = None


def survey(
    data: TomlTable,
    detectors: list[Any],
    needed: Collection[str],
    *,
    dates: bool,
    scores: TomlTable | None = None,
) -> Surveyed:
    """Read the objects that ``[data]`` names, and look for problems.

    ``needed`` are required keys, of ``label`` and ``time``; ``dates`` says whether times must be dates. With
    ``scores``, the table ``[detector]`` of an experiment without a model, the rows are a detector's answers.
    """
    dropped = {}
    for key in _DROPPED:
        if (chosen := data.get(key, str, "refuse")) not in ("refuse", "drop"):
            raise data.error(f'{key} must be "refuse" or "drop".', key)
        dropped[key] = chosen == "drop"
    formats = _formats(data) if dates else []
    found, columns = _read(data, needed, scores)
    found = found.with_iso_dates(formats) if dates else found
    if scores is not None:
        return _survey_answers(scores, found, columns, dropped, dates)
    dropped.pop("unanswered")
    objects, causes, takes = found.with_times(dates), found.left_out(dates), Takes.of(detectors, **dropped)
    problems = find_problems(found, columns, takes, dates=dates)
    return Surveyed(objects, columns, takes, problems, causes)


def _survey_answers(
    scores: TomlTable, found: Objects, columns: Columns, dropped: dict[str, bool], dates: bool
) -> Surveyed:
    """Return objects whose rows are answers, and the problems that prevent a calibration."""
    answers = judged(scores, found)
    takes = Takes(dropped["unlabelled"], dropped["undated"])
    problems = find_problems(answers.objects, columns, takes, dates=dates)
    if not dropped["unanswered"]:
        problems += about_answers(answers)
    objects = answers.objects.with_times(dates).without_labels(answers.unanswered)
    causes = left_out(answers.objects, answers.unanswered, dates)
    return Surveyed(objects, columns, takes, problems, causes, answers.columns)


def _read(
    data: TomlTable, needed: Collection[str], scores: TomlTable | None = None
) -> tuple[Objects, Columns]:
    """Return the objects and their columns; paths are relative to the TOML file."""
    data.check(_KEYS)
    here = data.path.parent
    features_only = ("dataset", "table", "features", "without")
    for key in ("unanswered",) if scores is None else features_only:
        if key in data.values:
            kind = "without features, given by scores" if scores is None else "with features"
            raise data.error(f"{key} is for detectors {kind}.", key)
    if (name := data.get("dataset", str)) is not None:
        if name not in _LOADERS:
            raise data.error(f"there is no dataset {name!r}{suggestion(name, _LOADERS)}", "dataset")
        folder, deduplicate = data.get("folder", str), data.get("deduplicate", bool, False)
        if deduplicate and name != "apigraph":
            raise data.error("deduplicate is for apigraph only.", "deduplicate")
        given = {"deduplicate": True} if deduplicate else {}
        found = getattr(datasets, f"load_{name}")(here / folder if folder else None, **given)
        return Objects(name, found.X, found.y, found.times, feature_names=found.feature_names), Columns()
    file = here / data.get("file", str, needed='for example file = "objects.parquet"')
    beside = data.get("table", str)
    for key in needed:
        if is_table(file) or key == "time":
            data.get(key, str, needed=f'the column with {key}s: {key} = "..."')
    columns = Columns(
        label=data.get("label", str),
        time=data.get("time", str),
        id=data.get("id", str),
        features=data.get("features", (str, list)) if scores is None else to_read(scores),
        without=tuple(data.get("without", list, [])),
        missing_labels=tuple(map(str, data.get("missing_labels", list, []))),
    )
    if isinstance(columns.features, list) and not all(isinstance(name, str) for name in columns.features):
        raise data.error("features must be the name of a text column, or a list of names.", "features")
    if columns.without and columns.features is not None:
        raise data.error("features and without exclude each other: set one of them.", "without")
    try:
        return read_objects(file, columns, here / beside if beside else None), columns
    except ColumnError as error:
        if scores is not None and error.key == "features":
            raise scores.error(str(error), "scores") from None
        raise data.error(str(error), error.key) from None
    except FileNotFoundError as error:
        raise data.error(f"there is no file {error.filename}", "file") from None


def _formats(data: TomlTable) -> list[str]:
    """Return the formats of dates that are not ISO 8601."""
    given = data.get("time_format", (str, list), [])
    formats = [given] if isinstance(given, str) else given
    for form in formats:
        if not isinstance(form, str) or "%" not in form or not is_format(form):
            raise data.error(f'{form!r:.40} is not a format such as "%d/%m/%Y".', "time_format")
    return formats


def notes_on(data: TomlTable) -> dict[str, Any]:
    """Return the notes that an artifact needs to read new rows."""
    keys = ("id", "features", "undated")
    notes = {key: data.values[key] for key in keys if isinstance(data.values.get(key), str)}
    return notes | ({"time_format": given} if (given := _formats(data)) else {})
