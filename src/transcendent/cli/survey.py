"""What stands between a table and a fit, column by column, each with the line of TOML that helps."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.utils import get_tags

from transcendent._utils.arrays import AnyArray, IntArray, missing_rows
from transcendent._utils.dates import as_dates
from transcendent._utils.extras import extra
from transcendent._utils.text import some, suggestion
from transcendent.cli.tables import Columns, Objects, have, without_time

_FEW = 50  # different texts in a column that is worth one feature for each


class Problem(NamedTuple):
    """Something about columns that keeps a detector from being fitted, and the ways out."""

    columns: list[str]
    message: str
    remedies: list[str]


class Takes(NamedTuple):
    """What may be in the rows: labels and times that are missing, missing values, text.

    ``encoded`` are columns that a step of their own turns into numbers.
    """

    unlabelled: bool = False
    undated: bool = False
    missing: bool = False
    text: bool = False
    encoded: frozenset[str] = frozenset()

    @classmethod
    def of(cls, detector: Any, *, unlabelled: bool, undated: bool) -> "Takes":
        """What a detector takes as far as its first step tells; beyond that only a fit does."""
        steps = [step for _, step in getattr(detector, "steps", [(None, detector)])]
        first = next((step for step in steps if not isinstance(step, ColumnTransformer)), None)
        missing = first is None or get_tags(first).input_tags.allow_nan
        own = [step for step in steps if isinstance(step, ColumnTransformer)]
        encoded = frozenset(name for step in own for _, _, names in step.transformers for name in names)
        return cls(unlabelled, undated, missing, text=detector is None or len(steps) > 1, encoded=encoded)


def find_problems(objects: Objects, columns: Columns, takes: Takes, *, dates: bool) -> list[Problem]:
    """All that keeps these objects from being fitted; ``dates`` says whether times have to be dates."""
    found = [*_about_labels(objects, columns, takes), *_about_times(objects, columns, takes, dates)]
    if hasattr(objects.X, "columns"):
        found += _about_names(objects, takes)
        text = columns_of_text(objects.X)
        numbers = objects.X.drop(columns=text)
        odd = {name: rows for name in text if len(rows := among_numbers(objects.X[name]))}
        found += _about_odd_cells(objects, odd)
        if not takes.text:
            found += _about_text(objects, [n for n in text if n not in odd and n not in takes.encoded])
        if not takes.missing:
            found += _about_missing(numbers)
        found += _about_infinity(numbers)
    return found


def listed(problems: list[Problem]) -> str:
    """The problems as lines, each followed by its remedies."""
    names = [some(problem.columns, 3) for problem in problems]
    width = max(map(len, names))
    lines = []
    for name, problem in zip(names, problems, strict=True):
        lines.append(f"  {name.ljust(width)}  {problem.message}")
        lines += [f"  {' ' * width}  → {remedy}" for remedy in problem.remedies]
    return "\n".join(lines)


def columns_of_text(X: Any) -> list[str]:
    """Columns of a frame that hold no numbers."""
    kinds = X.dtypes.items() if hasattr(X, "columns") else ()
    return [str(name) for name, kind in kinds if getattr(kind, "kind", "O") not in "biuf"]


def is_name(values: Any) -> bool:
    """Whether a column of text names its objects: a different text in every row."""
    there = values.dropna()
    return len(there) > 1 and bool(there.nunique() == len(there))


def has_few_texts(values: Any) -> bool:
    """Whether a column holds few enough different texts for one feature each."""
    return bool(values.nunique() <= _FEW)


def _about_labels(objects: Objects, columns: Columns, takes: Takes) -> Iterator[Problem]:
    if objects.y is None:
        return
    name, missing = [columns.label or "labels"], missing_rows(objects.y)
    if len(missing) and not takes.unlabelled:
        message = have("no label", missing, len(objects))
        yield Problem(name, message, ['unlabelled = "drop" under [data] leaves them out'])
    known = set(np.delete(objects.y, missing).tolist())
    if len(known) < 2:
        said = f"has one label only: {known.pop()!r:.40}" if known else "has no labels"
        yield Problem(name, said, ["a detector needs objects of at least two classes"])


def _about_times(objects: Objects, columns: Columns, takes: Takes, dates: bool) -> Iterator[Problem]:
    if objects.times is None:
        return
    rows = without_time(objects.times, dates)
    if not len(rows) or (takes.undated and len(rows) <= len(objects) / 2):
        return
    name, message = [columns.time or "times"], have("no date" if dates else "no time", rows, len(objects))
    if dates and len(rows) > len(objects) / 2:
        yield Problem(name, message, [_complaint(objects.times)])
        return
    (odd,) = objects.times[rows[:1]].tolist()
    example = "" if len(missing_rows(np.array([odd], dtype=object))) else f": {odd!r:.40}"
    yield Problem(name, message + example, ['undated = "drop" under [data] leaves them out'])


def _complaint(times: AnyArray) -> str:
    try:
        as_dates(np.delete(times, missing_rows(times)))
    except ValueError as error:
        return str(error)
    return "every object needs a date"


def _about_names(objects: Objects, takes: Takes) -> Iterator[Problem]:
    there = [str(name) for name in objects.X.columns]
    for name in sorted(takes.encoded - set(there)):
        yield Problem([name], f"is no column{suggestion(name, there)}", ["correct columns under [detector]"])


def _about_odd_cells(objects: Objects, odd: dict[str, IntArray]) -> Iterator[Problem]:
    for name, rows in odd.items():
        example = f": {objects.X[name].iloc[rows[0]]!r:.40}"
        remedy = "empty these cells, or take the rows out of the file"
        yield Problem([name], have("no number", rows, len(objects)) + example, [remedy])


def _about_text(objects: Objects, text: list[str]) -> Iterator[Problem]:
    names = [name for name in text if is_name(objects.X[name])]
    for name in names:
        remedies = [f'without = ["{name}"] under [data] leaves the column out']
        if objects.ids is None:
            remedies.insert(0, f'id = "{name}" under [data] names objects by it')
        yield Problem([name], "holds text, a different one in every row", remedies)
    if others := [name for name in text if name not in names]:
        quoted = "[" + ", ".join(f'"{name}"' for name in others) + "]"
        verb, what = ("holds", "the column") if len(others) == 1 else ("hold", "the columns")
        remedies = [
            f"without = {quoted} under [data] leaves {what} out",
            f'{{ class = "sklearn.preprocessing.OneHotEncoder", columns = {quoted}, '
            'handle_unknown = "ignore" } as a step under [detector] makes numbers of it',
        ]
        yield Problem(others, f"{verb} text", remedies)


def among_numbers(values: Any) -> IntArray:
    """Rows whose text is no number in a column where most are; none in other columns."""
    numbers = extra("pandas", "cli").to_numeric(values, errors="coerce")
    rows = np.flatnonzero(values.notna() & numbers.isna())
    return rows if len(rows) < numbers.notna().sum() / 2 else rows[:0]


def _about_missing(X: Any) -> Iterator[Problem]:
    missing = X.isna()
    counts = missing.sum()
    if len(counts := counts[counts > 0]):
        numbers = some([f"{n:,}" for n in counts], 3)
        first = int(np.argmax(missing.to_numpy().any(axis=1)))
        yield Problem(
            [str(name) for name in counts.index],
            f"no value in {numbers} of {len(X):,} rows, the first is row {first}",
            ['{ class = "sklearn.impute.SimpleImputer" } as a step under [detector] fills them in'],
        )


def _about_infinity(X: Any) -> Iterator[Problem]:
    for name in X.columns:
        values = X[name].to_numpy(dtype=np.float64, na_value=np.nan)
        if len(rows := np.flatnonzero(np.isinf(values))):
            yield Problem([str(name)], have("infinity", rows, len(X)), ["take these rows out of the file"])
