"""The problems that prevent a fit on a table, by column, each with the line of TOML that solves it."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.utils import get_tags

from transcendent._utils.arrays import AnyArray, missing_rows
from transcendent._utils.cells import are_infinite, are_missing, are_not_numbers, find_cells
from transcendent._utils.dates import undated_rows
from transcendent._utils.text import some, suggestion
from transcendent.experiments.looks import LABELS, NAMES, has_many_texts, holds_dates, is_name
from transcendent.experiments.toml import literal, one_or_list
from transcendent.tables.frames import Columns
from transcendent.tables.layout import Layout
from transcendent.tables.objects import Objects, without_time
from transcendent.tables.times import find_formats, with_iso_dates
from transcendent.temporal.periods import Calendar

FORMATS = (
    "ISO dates such as 2024-09-01, seconds since 1970, or in a format that time_format = "
    '"%d/%m/%Y" under [data] names'
)


class Obstacle(NamedTuple):
    """A problem with columns that prevents a fit, and the ways out."""

    columns: list[str]
    message: str
    remedies: list[str]


class Takes(NamedTuple):
    """What rows may contain: missing labels, missing times, missing values, text.

    ``encoded`` are columns with a step of their own, which turns them into numbers.
    """

    unlabelled: bool = False
    undated: bool = False
    missing: bool = False
    text: bool = False
    encoded: frozenset[str] = frozenset()

    @classmethod
    def of(cls, detectors: list[Any], *, unlabelled: bool, undated: bool) -> "Takes":
        """Return what all detectors can handle, as far as first steps tell; only a fit tells more."""
        missing, text, encoded = True, True, []
        for detector in detectors:
            steps = [step for _, step in getattr(detector, "steps", [(None, detector)])]
            own = [step for step in steps if isinstance(step, ColumnTransformer)]
            first = next((step for step in steps if step not in own), None)
            missing &= first is None or get_tags(first).input_tags.allow_nan
            text &= detector is None or len(steps) > 1
            encoded.append({name for step in own for _, _, names in step.transformers for name in names})
        return cls(unlabelled, undated, missing, text, frozenset(set.intersection(*encoded)))


def find_problems(objects: Objects, columns: Columns, takes: Takes, *, dates: bool) -> list[Obstacle]:
    """Return all problems that prevent a fit; ``dates`` says whether times must be dates."""
    found = [*_about_labels(objects, columns, takes), *_about_times(objects, columns, takes, dates)]
    return [*found, *_about_cells(objects, takes)] if hasattr(objects.X, "columns") else found


def listed(problems: list[Obstacle]) -> str:
    """Return the problems as lines, each followed by its remedies."""
    names = [some(problem.columns, 3) for problem in problems]
    width = max(map(len, names))
    lines = []
    for name, problem in zip(names, problems, strict=True):
        lines.append(f"  {name.ljust(width)}  {problem.message}")
        lines += [f"  {' ' * width}  → {remedy}" for remedy in problem.remedies]
    return "\n".join(lines)


def in_words(causes: dict[str, int]) -> str:
    """Return the numbers of rows that are left out, by cause."""
    return ", ".join(f"{n:,} ({cause})" for cause, n in causes.items())


def columns_of_text(X: Any) -> list[str]:
    """Return the columns of a frame that hold neither numbers nor booleans."""
    return Layout.of(X).text


def check_dates(objects: Objects, period: Calendar | None) -> None:
    """Raise if times are numbers although periods follow the calendar."""
    if period is not None and objects.times is not None and objects.times.dtype.kind in "iuf":
        raise ValueError(
            f"{objects.name}: the times are numbers, not dates such as 2024-09-01. If they number the "
            'periods: period = "none".'
        )


def _about_labels(objects: Objects, columns: Columns, takes: Takes) -> Iterator[Obstacle]:
    if objects.y is None:
        return
    name, missing = [columns.label or "labels"], missing_rows(objects.y)
    if len(missing) and not takes.unlabelled:
        message = objects.have("no label", missing)
        yield Obstacle(name, message, ['unlabelled = "drop" under [data] leaves them out'])
    known = set(np.delete(objects.y, missing).tolist())
    if len(known) < 2:
        said = f"has only one label: {known.pop()!r:.40}" if known else "has no labels"
        yield Obstacle(name, said, ["a detector needs objects of at least two classes"])


def _about_times(objects: Objects, columns: Columns, takes: Takes, dates: bool) -> Iterator[Obstacle]:
    if objects.times is None:
        return
    rows = without_time(objects.times, dates)
    few = 2 * len(rows) <= len(objects)
    if not len(rows) or (takes.undated and few):
        return
    name, message = [columns.time or "times"], objects.have("no date" if dates else "no time", rows)
    if examples := examples_of(objects.times[rows]):
        message += f": {examples}"
    remedies = [*ways_to_read(objects.times[rows])] if dates else []
    if few or not dates:
        remedies.append('undated = "drop" under [data] leaves them out')
    elif not remedies:
        remedies.append(f"dates are {FORMATS}")
    yield Obstacle(name, message, remedies)


def examples_of(times: AnyArray) -> str:
    """Return the first different values that are there."""
    there = np.delete(times, missing_rows(times))
    return some([f"{value!r:.40}" for value in dict.fromkeys(there.tolist())], 3)


def ways_to_read(times: AnyArray) -> Iterator[str]:
    """Yield the lines of TOML with which times that are not ISO dates are read."""
    formats, unclear = find_formats(times.tolist())
    if formats:
        n = len(times) - len(undated_rows(with_iso_dates(times, formats)))
        yield f"time_format = {literal(one_or_list(formats))} under [data] reads {n:,} of them"
    for one, other in unclear:
        yield f'time_format = "{one}" under [data] if the day comes first, otherwise "{other}"'


def _about_cells(objects: Objects, takes: Takes) -> Iterator[Obstacle]:
    X, n = objects.X, len(objects)
    there, text = [str(name) for name in X.columns], columns_of_text(X)
    for name in sorted(takes.encoded - set(there)):
        message = f"does not exist{suggestion(name, there)}"
        yield Obstacle([name], message, ["correct columns under [detector]"])
    odd = {name: found for name in text if (found := text_among_numbers(objects, name))}
    for name, message in odd.items():
        yield Obstacle([name], message, ["empty these cells, or remove the rows from the file"])
    if not takes.text:
        yield from _about_text(objects, [name for name in text if name not in {*odd, *takes.encoded}])
    numbers = X.drop(columns=[name for name in there if name in {*text, *takes.encoded}])
    rows, columns = find_cells(numbers, are_missing)
    if len(rows) and not takes.missing:
        lacking, counts = np.unique(columns, return_counts=True)
        shown = some([f"{count:,}" for count in counts], 3)
        message = f"no value in {shown} of {n:,} rows, the first is {objects.place(rows[0])}"
        remedy = '{ class = "sklearn.impute.SimpleImputer" } as a step under [detector] fills them in'
        yield Obstacle([str(numbers.columns[j]) for j in lacking], message, [remedy])
    rows, columns = find_cells(numbers, are_infinite)
    for j in np.unique(columns):
        message = objects.have("infinity", rows[columns == j])
        yield Obstacle([str(numbers.columns[j])], message, ["remove these rows from the file"])


def _about_text(objects: Objects, text: list[str]) -> Iterator[Obstacle]:
    """Yield the ways out for text columns; only those with few texts that are nothing else are encoded."""
    encoded: list[str] = []
    many: list[str] = []
    for name in text:
        values, without = objects.X[name], f'without = ["{name}"] under [data] leaves the column out'
        if holds_dates(values):
            remedies = [f'time = "{name}" under [data] takes them as times'] if objects.times is None else []
            yield Obstacle([name], "holds dates", [*remedies, without])
        elif objects.y is None and name.lower() in LABELS:
            remedies = [f'label = "{name}" under [data] takes them as labels']
            yield Obstacle([name], "holds text, labels by its name", [*remedies, without])
        elif is_name(values) or name.lower() in NAMES:
            remedies = [f'id = "{name}" under [data] names objects by it'] if objects.ids is None else []
            what = "a different one in every row" if is_name(values) else "ids by its name"
            yield Obstacle([name], f"holds text, {what}", [*remedies, without])
        else:
            (many if has_many_texts(values) else encoded).append(name)
    if many:
        quoted = literal(many)
        what = "holds many different texts" if len(many) == 1 else "hold many different texts"
        yield Obstacle(many, what, [f"without = {quoted} under [data] leaves out what is not a feature"])
    if encoded:
        quoted = literal(encoded)
        verb, what = ("holds", "the column") if len(encoded) == 1 else ("hold", "the columns")
        remedies = [
            f"without = {quoted} under [data] leaves {what} out",
            f'{{ class = "sklearn.preprocessing.OneHotEncoder", columns = {quoted}, '
            'handle_unknown = "ignore" } as a step under [detector] turns text into numbers',
        ]
        yield Obstacle(encoded, f"{verb} text", remedies)


def text_among_numbers(objects: Objects, name: str) -> str | None:
    """Describe the text in a column that is mostly numbers; None in other columns."""
    values = objects.X[name]
    there = np.flatnonzero(values.notna())
    rows = there[are_not_numbers(values.to_numpy(dtype=object)[there])]
    if not 0 < 3 * len(rows) < len(there):
        return None
    return f"{objects.have('no number', rows)}: {values.iloc[rows[0]]!r:.40}"
