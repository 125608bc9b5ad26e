"""An experiment proposed from a table: which column means what, what to drop, a detector to begin with."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from transcendent._utils.arrays import missing_rows
from transcendent._utils.dates import is_date
from transcendent._utils.text import some
from transcendent.cli.settings import UsageError
from transcendent.cli.survey import among_numbers, columns_of_text, has_few_texts, is_name
from transcendent.cli.tables import (
    ColumnError,
    Columns,
    Objects,
    have,
    is_table,
    read_objects,
    without_time,
)
from transcendent.temporal import cut_periods

_LABELS = ("label", "verdict", "class", "target", "y", "malicious", "malware", "is_malware", "spam")
_TIMES = ("first_seen", "seen", "time", "timestamp", "datetime", "date", "received", "created")
_NAMES = ("id", "uid", "sha256", "sha1", "md5", "hash", "name")
_LOOKED_AT = 1000
_FEWEST_MONTHS = 4


@dataclass(frozen=True)
class Proposal:
    """The text of a TOML file, which column it takes for what, and what a reader might not expect."""

    text: str
    guesses: dict[str, str | None]
    notes: list[str]


def propose(file: Path, toml: Path, label: str | None, time: str | None, identifier: str | None) -> Proposal:
    """Propose an experiment about the objects of a table, for a TOML file in some place.

    Columns that are not given are guessed.
    """
    if not is_table(file):
        raise UsageError(f"{file}: an experiment is proposed from a table, Parquet or CSV.")
    frame = read_objects(file, Columns()).X
    for option, name in (("--label", label), ("--time", time), ("--id", identifier)):
        if name is not None and name not in frame.columns:
            raise UsageError(
                f"{option}: {ColumnError(option, [name], list(map(str, frame.columns)), str(file))}"
            )
    time = time or _guess_time(frame.drop(columns=_given(label, identifier)))
    identifier = identifier or _guess_name(frame.drop(columns=_given(label, time)))
    label = label or _guess_label(frame.drop(columns=_given(time, identifier)))
    objects = read_objects(file, Columns(label, time, identifier))
    if time is not None and len(rows := without_time(objects.times, True)) > len(objects) / 2:  # type: ignore[arg-type]
        raise UsageError(f"--time {time}: {have('no date such as 2024-09-01', rows, len(objects))}.")
    if objects.y is None or len(missing_rows(objects.y)) == len(objects):
        raise UsageError(f"--label {label}: no row has a label there.")
    where = os.path.relpath(file, toml.parent)
    data: dict[str, Any] = {"file": where, "label": label, "time": time, "id": identifier}
    guesses = {key: name for key, name in data.items() if key != "file"}
    left_out = _left_out(objects.X, time)
    text = "\n\n".join(_sections(objects, data, list(left_out))) + "\n"
    return Proposal(text, guesses, [*_notes(objects, left_out)])


def _left_out(X: Any, time: str | None) -> dict[str, str]:
    """Columns that the detector is not to use, and why."""
    reasons = {name: why for name in columns_of_text(X) if (why := _why(X[name]))}
    if time is None and (named := _by_name(X, _TIMES)):
        reasons[named] = "it sounds like a time, but holds no dates such as 2024-09-01"
    return reasons


def _why(column: Any) -> str | None:
    """Why a column of text is left out; None if it is not."""
    if len(rows := among_numbers(column)):
        return f"{have('no number', rows, len(column))}: {column.iloc[rows[0]]!r:.40}"
    return None if has_few_texts(column) else "holds text, many different ones"


def _notes(objects: Objects, left_out: dict[str, str]) -> Iterator[str]:
    yield from (f"the column {name!r} is left out: {why}" for name, why in left_out.items())
    if objects.ids is not None and (again := len(objects) - len(set(objects.ids.tolist()))):
        yield f"{again:,} of {len(objects):,} ids occur more than once"
    if objects.times is None:
        yield "no column holds dates such as 2024-09-01, so there is nothing to backtest on"


def _given(*names: str | None) -> list[str]:
    return [name for name in names if name is not None]


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
    steps: list[dict[str, Any]] = [
        {"class": "sklearn.preprocessing.StandardScaler"},
        {"class": "sklearn.svm.LinearSVC"},
    ]
    if objects.X.drop(columns=[*{*text, *left_out}]).isna().any(axis=None):
        steps.insert(0, {"class": "sklearn.impute.SimpleImputer"})
    if encoded:
        one_hot = {
            "class": "sklearn.preprocessing.OneHotEncoder",
            "columns": encoded,
            "handle_unknown": "ignore",
            "sparse_output": False,
        }
        steps.insert(0, one_hot)
    inside = "\n".join(f"  {_inline(step)}," for step in steps)
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
    """A value as TOML writes it, which is as JSON does but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _inline(step: dict[str, Any]) -> str:
    return "{ " + ", ".join(f"{key} = {_literal(value)}" for key, value in step.items()) + " }"


def _split(times: Any) -> str:
    """Training on the first third of the objects, to the end of a month or, of few months, a day."""
    by = "month" if len(cut_periods(times, "month")) >= _FEWEST_MONTHS else "day"
    periods = cut_periods(times, by)  # type: ignore[arg-type]
    before = np.cumsum(periods.counts) >= len(times) / 3
    first = min(int(np.argmax(before)) + 1, len(periods) - 1)
    return f'[split]\ntrain = "{periods.labels[first]}"  # seen before: training\nperiod = "{by}"'


def _guess_label(frame: Any) -> str:
    named = _by_name(frame, _LABELS)
    if named is not None:
        return named
    few = [str(name) for name in frame.columns if 2 <= frame[name].nunique() <= 20]
    hint = f" Few different values are in {some(few)}." if few else ""
    raise UsageError(f"which column holds the labels? --label NAME says so.{hint}")


def _guess_time(frame: Any) -> str | None:
    dated = [str(name) for name in frame.columns if _holds_dates(frame[name])]
    if len(dated) <= 1:
        return dated[0] if dated else None
    named = _by_name(frame[dated], _TIMES)
    if named is None:
        options = " or ".join(f"--time {name}" for name in dated)
        raise UsageError(f"which of the columns with dates says when objects were seen? {options}.")
    return named


def _guess_name(frame: Any) -> str | None:
    text = [name for name in columns_of_text(frame) if is_name(frame[name])]
    named = _by_name(frame, _NAMES)
    if named is not None and (named in columns_of_text(frame) or is_name(frame[named])):
        return named
    return text[0] if text else None


def _by_name(frame: Any, names: tuple[str, ...]) -> str | None:
    by_lower_case = {str(column).lower(): str(column) for column in frame.columns}
    return next((by_lower_case[name] for name in names if name in by_lower_case), None)


def _holds_dates(column: Any) -> bool:
    if column.dtype.kind == "M":
        return True
    if column.dtype.kind in "biuf":
        return False
    some_of_them = column.dropna().head(_LOOKED_AT).tolist()
    return bool(some_of_them) and bool(np.mean([is_date(value) for value in some_of_them]) > 0.9)
