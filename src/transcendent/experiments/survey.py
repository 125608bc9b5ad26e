"""The problems that prevent a fit on a table, by column, each with the line of TOML that solves it."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.utils import get_tags

from transcendent._utils.arrays import AnyArray, missing_rows
from transcendent._utils.cells import are_infinite, are_missing, are_not_numbers, find_cells
from transcendent._utils.dates import as_dates
from transcendent._utils.text import some, suggestion
from transcendent.tables.frames import Columns
from transcendent.tables.layout import Layout
from transcendent.tables.objects import Objects, have, without_time
from transcendent.temporal.periods import Calendar


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


def is_name(values: Any) -> bool:
    """Return whether a text column names its objects: every row has a different text."""
    there = values.dropna()
    return len(there) > 1 and bool(there.nunique() == len(there))


def _about_labels(objects: Objects, columns: Columns, takes: Takes) -> Iterator[Obstacle]:
    if objects.y is None:
        return
    name, missing = [columns.label or "labels"], missing_rows(objects.y)
    if len(missing) and not takes.unlabelled:
        message = have("no label", missing, len(objects))
        yield Obstacle(name, message, ['unlabelled = "drop" under [data] leaves them out'])
    known = set(np.delete(objects.y, missing).tolist())
    if len(known) < 2:
        said = f"has only one label: {known.pop()!r:.40}" if known else "has no labels"
        yield Obstacle(name, said, ["a detector needs objects of at least two classes"])


def _about_times(objects: Objects, columns: Columns, takes: Takes, dates: bool) -> Iterator[Obstacle]:
    if objects.times is None:
        return
    rows = without_time(objects.times, dates)
    if not len(rows) or (takes.undated and len(rows) <= len(objects) / 2):
        return
    name, message = [columns.time or "times"], have("no date" if dates else "no time", rows, len(objects))
    if dates and len(rows) > len(objects) / 2:
        yield Obstacle(name, message, [_complaint(objects.times)])
        return
    (odd,) = objects.times[rows[:1]].tolist()
    example = "" if len(missing_rows(np.array([odd], dtype=object))) else f": {odd!r:.40}"
    yield Obstacle(name, message + example, ['undated = "drop" under [data] leaves them out'])


def _complaint(times: AnyArray) -> str:
    try:
        as_dates(np.delete(times, missing_rows(times)))
    except ValueError as error:
        return str(error)
    return "every object needs a date"


def _about_cells(objects: Objects, takes: Takes) -> Iterator[Obstacle]:
    X, n = objects.X, len(objects)
    there, text = [str(name) for name in X.columns], columns_of_text(X)
    for name in sorted(takes.encoded - set(there)):
        message = f"does not exist{suggestion(name, there)}"
        yield Obstacle([name], message, ["correct columns under [detector]"])
    odd = {name: found for name in text if (found := text_among_numbers(X[name]))}
    for name, message in odd.items():
        yield Obstacle([name], message, ["empty these cells, or remove the rows from the file"])
    if not takes.text:
        yield from _about_text(objects, [name for name in text if name not in {*odd, *takes.encoded}])
    numbers = X.drop(columns=text)
    rows, columns = find_cells(numbers, are_missing)
    if len(rows) and not takes.missing:
        lacking, counts = np.unique(columns, return_counts=True)
        shown = some([f"{count:,}" for count in counts], 3)
        message = f"no value in {shown} of {n:,} rows, the first is row {rows[0]}"
        remedy = '{ class = "sklearn.impute.SimpleImputer" } as a step under [detector] fills them in'
        yield Obstacle([str(numbers.columns[j]) for j in lacking], message, [remedy])
    rows, columns = find_cells(numbers, are_infinite)
    for j in np.unique(columns):
        message = have("infinity", rows[columns == j], n)
        yield Obstacle([str(numbers.columns[j])], message, ["remove these rows from the file"])


def _about_text(objects: Objects, text: list[str]) -> Iterator[Obstacle]:
    names = [name for name in text if is_name(objects.X[name])]
    for name in names:
        remedies = [f'without = ["{name}"] under [data] leaves the column out']
        if objects.ids is None:
            remedies.insert(0, f'id = "{name}" under [data] names objects by it')
        yield Obstacle([name], "holds text, a different one in every row", remedies)
    if others := [name for name in text if name not in names]:
        quoted = json.dumps(others, ensure_ascii=False)
        verb, what = ("holds", "the column") if len(others) == 1 else ("hold", "the columns")
        remedies = [
            f"without = {quoted} under [data] leaves {what} out",
            f'{{ class = "sklearn.preprocessing.OneHotEncoder", columns = {quoted}, '
            'handle_unknown = "ignore" } as a step under [detector] turns text into numbers',
        ]
        yield Obstacle(others, f"{verb} text", remedies)


def text_among_numbers(values: Any) -> str | None:
    """Describe the text in a column that is mostly numbers; None in other columns."""
    there = np.flatnonzero(values.notna())
    rows = there[are_not_numbers(values.to_numpy(dtype=object)[there])]
    if not 0 < 3 * len(rows) < len(there):
        return None
    return f"{have('no number', rows, len(values))}: {values.iloc[rows[0]]!r:.40}"
