"""An experiment proposed from a table: the role of columns, what to drop, and a first detector."""

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transcendent._utils.arrays import missing_rows
from transcendent._utils.text import some
from transcendent.errors import ArgumentError
from transcendent.experiments.looks import LABELS as _LABELS
from transcendent.experiments.looks import NAMES as _NAMES
from transcendent.experiments.looks import TIMES as _TIMES
from transcendent.experiments.looks import (
    find_missing_labels,
    has_many_texts,
    holds_dates,
    is_name,
    plain_name,
)
from transcendent.experiments.survey import columns_of_text, examples_of, text_among_numbers, ways_to_read
from transcendent.experiments.toml import literal, one_or_list
from transcendent.tables.frames import Columns, lacking
from transcendent.tables.objects import Objects, without_time
from transcendent.tables.reading import is_table, read_objects
from transcendent.tables.times import find_formats
from transcendent.temporal import cut_periods

_FEWEST_MONTHS = 4
_ID = re.compile(r"(?:^|[_\W])(?i:id)$|[a-z]I[dD]$")  # sample_id, Object ID, fileId


class Proposal(NamedTuple):
    """The result of `propose`."""

    text: str
    guesses: dict[str, str | None]
    notes: list[str]


def propose(
    file: Any,
    *,
    toml: Any = None,
    label: str | None = None,
    time: str | None = None,
    identifier: str | None = None,
) -> Proposal:
    """Propose an experiment about the objects of a table.

    The result has the ``text`` of a TOML file, ``guesses`` of columns, and ``notes`` on what is left out.

    Parameters
    ----------
    file : path
        A table, Parquet or CSV.
    toml : path or None
        Where the proposal will be written; paths in it are relative to this. By default beside the table.
    label, time, identifier : str or None
        The columns with labels, times and ids of objects; by default guessed from names and values.
    """
    file = Path(file)
    if not is_table(file):
        raise ArgumentError("file", f"{file} is not a table (Parquet or CSV) to propose an experiment for.")
    frame = read_objects(file, Columns()).X
    for argument, name in (("label", label), ("time", time), ("identifier", identifier)):
        if name is not None and name not in frame.columns:
            there = list(map(str, frame.columns))
            raise ArgumentError(argument, str(lacking(argument, [name], there, str(file))))
    time = time or guess_time(frame.drop(columns=[label, identifier], errors="ignore"))
    identifier = identifier or guess_name(frame.drop(columns=[label, time], errors="ignore"))
    label = label or _guess_label(frame.drop(columns=[time, identifier], errors="ignore"))
    read, missing, formats = read_as_meant(file, Columns(label, time, identifier))
    objects = read.with_iso_dates(formats)
    _check_times(objects, time)
    if objects.y is None or len(missing_rows(objects.y)) == len(objects):
        raise ArgumentError("label", f"no row has a label in {label!r}.")
    where = os.path.relpath(file, file.parent if toml is None else Path(toml).parent)
    guesses = {"label": label, "time": time, "id": identifier}
    left_out = {name: why for name in columns_of_text(objects.X) if (why := _why(objects, name))}
    if time is None and (named := by_name(objects.X, _TIMES)):
        ways = "".join(f'; time = "{named}" and {way}' for way in ways_to_read(_cells(objects.X[named])))
        left_out[named] = f"its name suggests a time, but it holds no dates such as 2024-09-01{ways}"
    data = {
        "file": where,
        **guesses,
        "time_format": one_or_list(formats),
        "missing_labels": list(missing),
    }
    title = f"title = {literal(file.stem)}  # of the report"
    text = "\n\n".join([title, *_sections(objects, data, list(left_out))]) + "\n"
    notes = [*_notes(objects, left_out), *_notes_on_labels(objects, missing)]
    return Proposal(text, guesses, [*notes, *_notes_on_times(read, objects, formats)])


def read_as_meant(file: Path, columns: Columns) -> tuple[Objects, dict[str, int], list[str]]:
    """Return objects, the labels that are read as missing, with their numbers, and the formats of dates."""
    found = read_objects(file, columns)
    missing = {} if found.y is None else find_missing_labels(found.y)
    if missing:  # without them, the other labels may be numbers
        found = read_objects(file, replace(columns, missing_labels=tuple(missing)))
    return found, missing, [] if found.times is None else find_formats(found.times.tolist()).formats


def read_as_missing(labels: dict[str, int]) -> str:
    """Return a note on labels that are read as missing, and their numbers."""
    return f"read as no label: {some([f'{label!r} ({n:,})' for label, n in labels.items()])}"


def _check_times(objects: Objects, time: str | None) -> None:
    """Raise if most times are not dates."""
    if objects.times is None or len(rows := without_time(objects.times, True)) <= len(objects) / 2:
        return
    said = objects.have("no date such as 2024-09-01", rows)
    ways = [f" Without --time, add to the TOML file: {way}." for way in ways_to_read(objects.times[rows])]
    raise ArgumentError("time", f"in {time!r} {said}.{''.join(ways)}")


def _why(objects: Objects, name: str) -> str | None:
    """Return why a text column is left out; None if it is not."""
    column = objects.X[name]
    if holds_dates(column):
        return "it holds dates"
    many = "it holds many different texts" if has_many_texts(column) or is_name(column) else None
    return text_among_numbers(objects, name) or many


def _notes(objects: Objects, left_out: dict[str, str]) -> Iterator[str]:
    yield from (f"the column {name!r} is left out: {why}" for name, why in left_out.items())
    if objects.ids is not None and (again := len(objects) - len(set(objects.ids.tolist()))):
        yield f"{again:,} of {len(objects):,} ids occur more than once"
    if objects.times is None:
        yield "no column holds dates such as 2024-09-01, so a backtest is not possible"


def _notes_on_labels(objects: Objects, missing: dict[str, int]) -> Iterator[str]:
    """Yield which labels are read as missing, and which rows have none."""
    if missing:
        yield f"{read_as_missing(missing)}; remove from missing_labels what is a class"
    if len(rows := missing_rows(np.asarray(objects.y))):
        yield f'{objects.have("no label", rows)}; unlabelled = "drop" leaves them out'


def _notes_on_times(read: Objects, objects: Objects, formats: list[str]) -> Iterator[str]:
    """Yield which dates are read by a format, and which rows have no date."""
    if objects.times is None or read.times is None:
        return
    before, rows = without_time(read.with_iso_dates().times, True), without_time(objects.times, True)  # type: ignore[arg-type]
    if formats:
        by_format = np.setdiff1d(before, rows)
        examples = examples_of(read.times[by_format])
        yield f"{len(by_format):,} times, such as {examples}, are read by time_format"
    if len(rows):
        examples = examples_of(objects.times[rows])
        said = objects.have("no date", rows) + (f": {examples}" if examples else "")
        also = ", unless time_format names their format, too" if re.search(r"\d", examples) else ""
        yield f'{said}; undated = "drop" leaves them out{also}'
        yield from ways_to_read(objects.times[rows])


def _cells(column: Any) -> Any:
    return column.to_numpy(dtype=object)


def _sections(objects: Objects, data: dict[str, Any], left_out: list[str]) -> list[str]:
    text = columns_of_text(objects.X)
    encoded = [name for name in text if name not in left_out]
    if left_out:
        data = data | {"without": left_out}
    known = objects.complete(dates=True)
    if len(missing_rows(np.asarray(objects.y))):
        data = data | {"unlabelled": "drop"}
    unclear: list[str] = []
    if objects.times is not None and len(rows := without_time(objects.times, True)):
        data = data | {"undated": "drop"}
        unclear = [f"# {way}" for way in ways_to_read(objects.times[rows])]
    lines = [f"{key} = {literal(value)}" for key, value in data.items() if value]
    sections = ["\n".join(["[data]", *lines, *unclear])]
    if known.times is not None:
        sections.append(_split(known.times))
    classes = ["sklearn.preprocessing.StandardScaler", "sklearn.svm.LinearSVC"]
    if objects.X.drop(columns=[*{*text, *left_out}]).isna().any(axis=None):
        classes.insert(0, "sklearn.impute.SimpleImputer")
    steps: list[dict[str, Any]] = [{"class": name} for name in classes]
    if encoded:
        one_hot = {"class": "sklearn.preprocessing.OneHotEncoder", "columns": encoded}
        steps.insert(0, one_hot | {"handle_unknown": "ignore", "sparse_output": False})
    pairs = [", ".join(f"{key} = {literal(value)}" for key, value in step.items()) for step in steps]
    inside = "\n".join(f"  {{ {pair} }}," for pair in pairs)
    sections.append(f"[detector]\nsteps = [\n{inside}\n]")
    sections.append(
        "[rejectors.drift]\n"
        'type = "ICE"\n'
        'measure = "drift"  # three other models beside the detector\n'
        "budget = 0.15  # share of each period that is looked at\n\n"
        "# To compare, in a backtest:\n"
        "# [rejectors.ICE]  # by the detector's own score, with thresholds instead of a budget\n"
        "# [rejectors.probability]"
    )
    return sections


def _split(times: Any) -> str:
    """Return a split that trains on the first third of the objects, to the end of a month or day."""
    by = "month" if len(cut_periods(times, "month")) >= _FEWEST_MONTHS else "day"
    periods = cut_periods(times, by)  # type: ignore[arg-type]
    before = np.cumsum(periods.counts) >= len(times) / 3
    first = min(int(np.argmax(before)) + 1, len(periods) - 1)
    return f'[split]\ntrain = "{periods.labels[first]}"  # seen before: training\nperiod = "{by}"'


def _guess_label(frame: Any) -> str:
    if (named := by_name(frame, _LABELS)) is not None:
        return named
    few = [str(name) for name in frame.columns if 2 <= frame[name].nunique() <= 20]
    hint = f" Few different values are in {some(few)}." if few else ""
    raise ArgumentError("label", f"which column holds the labels?{hint}")


def guess_time(frame: Any) -> str | None:
    """Return the column that holds dates, None without one; raise if several do and no name decides."""
    dated = [str(name) for name in frame.columns if holds_dates(frame[name])]
    named = by_name(frame[dated], _TIMES)
    if named is None and len(dated) > 1:
        raise ArgumentError("time", f"which column says when objects were seen: {' or '.join(dated)}?")
    return named or next(iter(dated), None)


def guess_name(frame: Any) -> str | None:
    """Return the column that names objects, None without one."""
    text, named = columns_of_text(frame), by_name(frame, _NAMES)
    if named is not None and (named in text or is_name(frame[named])):
        return named
    ids = [str(name) for name in frame.columns if _ID.search(str(name)) and frame[name].dtype.kind != "f"]
    return next((n for n in [*ids, *text] if is_name(frame[n]) and not holds_dates(frame[n])), None)


def by_name(frame: Any, names: tuple[str, ...]) -> str | None:
    """Return the first column that has one of the names, in any case, with spaces or underscores."""
    by_plain_name = {plain_name(column): str(column) for column in frame.columns}
    return next((by_plain_name[name] for name in names if name in by_plain_name), None)
