"""An experiment proposed from a table: the role of columns, what to drop, and a first detector."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transcendent._utils.arrays import missing_rows
from transcendent._utils.dates import is_date
from transcendent._utils.text import some
from transcendent.errors import ArgumentError
from transcendent.experiments.survey import columns_of_text, is_name, text_among_numbers
from transcendent.tables.frames import ColumnError, Columns
from transcendent.tables.objects import Objects, have, without_time
from transcendent.tables.reading import is_table, read_objects
from transcendent.temporal import cut_periods

_LABELS = ("label", "verdict", "class", "target", "y", "malicious", "malware", "is_malware", "spam")
_TIMES = ("first_seen", "seen", "time", "timestamp", "datetime", "date", "received", "created")
_NAMES = ("id", "uid", "sha256", "sha1", "md5", "hash", "name")
_LOOKED_AT = 1000
_FEWEST_MONTHS = 4
_FEW_TEXTS = 50  # for which a column gets one feature per text


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
            raise ArgumentError(argument, str(ColumnError(argument, [name], there, str(file))))
    time = time or _guess_time(frame.drop(columns=[label, identifier], errors="ignore"))
    identifier = identifier or _guess_name(frame.drop(columns=[label, time], errors="ignore"))
    label = label or _guess_label(frame.drop(columns=[time, identifier], errors="ignore"))
    objects = read_objects(file, Columns(label, time, identifier))
    if time is not None and len(rows := without_time(objects.times, True)) > len(objects) / 2:  # type: ignore[arg-type]
        raise ArgumentError("time", f"in {time!r} {have('no date such as 2024-09-01', rows, len(objects))}.")
    if objects.y is None or len(missing_rows(objects.y)) == len(objects):
        raise ArgumentError("label", f"no row has a label in {label!r}.")
    where = os.path.relpath(file, file.parent if toml is None else Path(toml).parent)
    guesses = {"label": label, "time": time, "id": identifier}
    left_out = {name: why for name in columns_of_text(objects.X) if (why := _why(objects.X[name]))}
    if time is None and (named := _by_name(objects.X, _TIMES)):
        left_out[named] = "its name suggests a time, but it holds no dates such as 2024-09-01"
    text = "\n\n".join(_sections(objects, {"file": where, **guesses}, list(left_out))) + "\n"
    return Proposal(text, guesses, [*_notes(objects, left_out)])


def _why(column: Any) -> str | None:
    """Return why a text column is left out; None if it is not."""
    many = "it holds many different texts" if column.nunique() > _FEW_TEXTS else None
    return text_among_numbers(column) or many


def _notes(objects: Objects, left_out: dict[str, str]) -> Iterator[str]:
    yield from (f"the column {name!r} is left out: {why}" for name, why in left_out.items())
    if objects.ids is not None and (again := len(objects) - len(set(objects.ids.tolist()))):
        yield f"{again:,} of {len(objects):,} ids occur more than once"
    if objects.times is None:
        yield "no column holds dates such as 2024-09-01, so a backtest is not possible"


def _sections(objects: Objects, data: dict[str, Any], left_out: list[str]) -> list[str]:
    text = columns_of_text(objects.X)
    encoded = [name for name in text if name not in left_out]
    if left_out:
        data = data | {"without": left_out}
    known = objects.complete(dates=True)
    if len(known) < len(objects):
        data = data | {"unlabelled": "drop", "undated": "drop" if objects.times is not None else None}
    lines = [f"{key} = {_literal(value)}" for key, value in data.items() if value]
    sections = ["\n".join(["[data]", *lines])]
    if known.times is not None:
        sections.append(_split(known.times))
    classes = ["sklearn.preprocessing.StandardScaler", "sklearn.svm.LinearSVC"]
    if objects.X.drop(columns=[*{*text, *left_out}]).isna().any(axis=None):
        classes.insert(0, "sklearn.impute.SimpleImputer")
    steps: list[dict[str, Any]] = [{"class": name} for name in classes]
    if encoded:
        one_hot = {"class": "sklearn.preprocessing.OneHotEncoder", "columns": encoded}
        steps.insert(0, one_hot | {"handle_unknown": "ignore", "sparse_output": False})
    pairs = [", ".join(f"{key} = {_literal(value)}" for key, value in step.items()) for step in steps]
    inside = "\n".join(f"  {{ {pair} }}," for pair in pairs)
    sections.append(f"[detector]\nsteps = [\n{inside}\n]")
    sections.append(
        "[rejectors.ICE]\n\n"
        "# To compare, in a backtest:\n"
        "# [rejectors.probability]\n"
        "# [rejectors.drift]\n"
        '# type = "ICE"\n'
        '# measure = "drift"\n'
        "# budget = 0.15"
    )
    return sections


def _literal(value: Any) -> str:
    """Return a value as TOML, which differs from JSON in one character only."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _split(times: Any) -> str:
    """Return a split that trains on the first third of the objects, to the end of a month or day."""
    by = "month" if len(cut_periods(times, "month")) >= _FEWEST_MONTHS else "day"
    periods = cut_periods(times, by)  # type: ignore[arg-type]
    before = np.cumsum(periods.counts) >= len(times) / 3
    first = min(int(np.argmax(before)) + 1, len(periods) - 1)
    return f'[split]\ntrain = "{periods.labels[first]}"  # seen before: training\nperiod = "{by}"'


def _guess_label(frame: Any) -> str:
    if (named := _by_name(frame, _LABELS)) is not None:
        return named
    few = [str(name) for name in frame.columns if 2 <= frame[name].nunique() <= 20]
    hint = f" Few different values are in {some(few)}." if few else ""
    raise ArgumentError("label", f"which column holds the labels?{hint}")


def _guess_time(frame: Any) -> str | None:
    dated = [str(name) for name in frame.columns if _holds_dates(frame[name])]
    named = _by_name(frame[dated], _TIMES)
    if named is None and len(dated) > 1:
        raise ArgumentError("time", f"which column says when objects were seen: {' or '.join(dated)}?")
    return named or next(iter(dated), None)


def _guess_name(frame: Any) -> str | None:
    text, named = columns_of_text(frame), _by_name(frame, _NAMES)
    if named is not None and (named in text or is_name(frame[named])):
        return named
    return next((name for name in text if is_name(frame[name])), None)


def _by_name(frame: Any, names: tuple[str, ...]) -> str | None:
    by_lower_case = {str(column).lower(): str(column) for column in frame.columns}
    return next((by_lower_case[name] for name in names if name in by_lower_case), None)


def _holds_dates(column: Any) -> bool:
    if column.dtype.kind in "biufM":
        return bool(column.dtype.kind == "M")
    first = column.dropna().head(_LOOKED_AT).tolist()
    return bool(first) and sum(map(is_date, first)) > 0.9 * len(first)
