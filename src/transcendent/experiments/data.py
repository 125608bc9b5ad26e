"""The objects that ``[data]`` of a TOML file names."""

from collections.abc import Collection
from typing import Any, NamedTuple

from transcendent import datasets
from transcendent._utils.text import suggestion
from transcendent.experiments.survey import Obstacle, Takes, find_problems
from transcendent.experiments.toml import TomlTable
from transcendent.tables.frames import ColumnError, Columns
from transcendent.tables.objects import Objects
from transcendent.tables.reading import is_table, read_objects

_LOADERS = ("apigraph", "lamda", "nvd", "trec07p")
_PLACES = ("file", "table", "dataset", "folder")
_KEYS = (*_PLACES, "label", "time", "id", "features", "without", "unlabelled", "undated", "deduplicate")


class Surveyed(NamedTuple):
    """All objects, their columns, what the detectors can handle, and the problems that prevent a fit.

    Objects that are to be dropped have no label.
    """

    objects: Objects
    columns: Columns
    takes: Takes
    problems: list[Obstacle]


def survey(data: TomlTable, detectors: list[Any], needed: Collection[str], *, dates: bool) -> Surveyed:
    """Read the objects that ``[data]`` names, and look for problems.

    ``needed`` are required keys, of ``label`` and ``time``; ``dates`` says whether times must be dates.
    """
    dropped = {}
    for key in ("unlabelled", "undated"):
        if (chosen := data.get(key, str, "refuse")) not in ("refuse", "drop"):
            raise data.error(f'{key} must be "refuse" or "drop".', key)
        dropped[key] = chosen == "drop"
    found, columns = _read(data, needed)
    objects, takes = found.with_times(dates), Takes.of(detectors, **dropped)
    return Surveyed(objects, columns, takes, find_problems(found, columns, takes, dates=dates))


def _read(data: TomlTable, needed: Collection[str]) -> tuple[Objects, Columns]:
    """Return the objects and their columns; paths are relative to the TOML file."""
    data.check(_KEYS)
    here = data.path.parent
    if (name := data.get("dataset", str)) is not None:
        if name not in _LOADERS:
            raise data.error(f"there is no dataset {name!r}{suggestion(name, _LOADERS)}", "dataset")
        folder, deduplicate = data.get("folder", str), data.get("deduplicate", bool, False)
        if deduplicate and name != "apigraph":
            raise data.error("deduplicate is for apigraph only.", "deduplicate")
        given = {"deduplicate": True} if deduplicate else {}
        found = getattr(datasets, f"load_{name}")(here / folder if folder else None, **given)
        return Objects(name, found.X, found.y, found.times), Columns()
    file = here / data.get("file", str, needed='for example file = "objects.parquet"')
    beside = data.get("table", str)
    for key in needed:
        if is_table(file) or key == "time":
            data.get(key, str, needed=f'the column with {key}s: {key} = "..."')
    columns = Columns(
        label=data.get("label", str),
        time=data.get("time", str),
        id=data.get("id", str),
        features=data.get("features", (str, list)),
        without=tuple(data.get("without", list, [])),
    )
    if isinstance(columns.features, list) and not all(isinstance(name, str) for name in columns.features):
        raise data.error("features must be the name of a text column, or a list of names.", "features")
    if columns.without and columns.features is not None:
        raise data.error("features and without exclude each other: set one of them.", "without")
    try:
        return read_objects(file, columns, here / beside if beside else None), columns
    except ColumnError as error:
        raise data.error(str(error), error.key) from None
    except FileNotFoundError as error:
        raise data.error(f"there is no file {error.filename}", "file") from None


def notes_on(data: TomlTable, text: list[str]) -> dict[str, Any]:
    """Return the notes that an artifact needs to read new rows; ``text`` are text columns."""
    notes = {key: data.values[key] for key in ("id", "features") if isinstance(data.values.get(key), str)}
    return notes | ({"text": text} if text else {})
