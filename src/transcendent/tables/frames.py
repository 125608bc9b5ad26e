"""Objects from files with named columns: Parquet and CSV.

CSV is read strictly: where pandas would silently shift, rename or fill in values, an error names the line.
"""

import codecs
import csv
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from transcendent._utils.arrays import AnyArray
from transcendent._utils.extras import extra
from transcendent._utils.text import some, suggestion
from transcendent.tables.objects import Objects, have

_LONGEST_VALUE = (1 << 31) - 1


@dataclass(frozen=True)
class Columns:
    """The role of columns (of a table) or arrays (of an npz file).

    ``text`` are columns to read as text, even if all values look like numbers or are missing.
    """

    label: str | None = None
    time: str | None = None
    id: str | None = None
    features: str | list[str] | None = None
    without: tuple[str, ...] = ()
    text: tuple[str, ...] = ()

    def special(self) -> dict[str, str]:
        """Return the columns with labels, times and ids, by role."""
        named = {"label": self.label, "time": self.time, "id": self.id}
        return {key: name for key, name in named.items() if name is not None}


class ColumnError(ValueError):
    """Columns or arrays do not exist; ``key`` is their role."""

    def __init__(self, key: str, missing: list[str], there: list[str], where: str) -> None:
        if len(missing) == 1:
            hint = suggestion(missing[0], there) if there else "."
            if key == "features":
                hint = hint.replace("; choose from", "; besides the features it has")
            super().__init__(f"{where} has no column {missing[0]!r}{hint}")
        else:
            super().__init__(f"{where} lacks {len(missing)} columns: {some(missing, 5)}.")
        self.key = key


def read_frame(path: Path, columns: Columns) -> Objects:
    """Return the objects of a Parquet or CSV file."""
    try:
        if path.suffix.lower() == ".parquet":
            frame = extra("pandas", "cli").read_parquet(path).rename(columns=str)
            frame = frame if frame.index.names == [None] else frame.reset_index()
        else:
            frame = _read_csv(path, columns)
    except (ValueError, OSError, extra("pyarrow", "cli").ArrowException) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # about access to the file, not about its content
        said = str(error)
        raise ValueError(said if said.startswith(str(path)) else f"{path} cannot be read: {said}") from None
    name, special, features = str(path), columns.special(), columns.features
    if features is None:
        features = [c for c in frame.columns if c not in special.values() and c not in columns.without]
    used = [features] if isinstance(features, str) else features
    wanted = {key: [column] for key, column in special.items()} | {"without": list(columns.without)}
    check_columns(wanted if columns.features is None else wanted | {"features": used}, frame.columns, name)
    _check_flat(frame[[*special.values(), *used]], name)
    X: Any = frame[features]
    if isinstance(features, str):  # a column of texts
        if len(missing := np.flatnonzero(X.isna())):
            raise ValueError(f"{name}: {have(f'no {features!r}', missing, len(X))}. Remove these rows.")
        X = _as_array(X).astype(object)
    values = {key: _as_array(frame[column]) for key, column in special.items()}
    return Objects(name, X, values.get("label"), values.get("time"), values.get("id"))


def _read_csv(path: Path, columns: Columns) -> Any:
    """Return a frame of a CSV file.

    Ids, labels that are text, columns of text and times of eight digits stay as they are written. If all
    columns are features, each needs a name.
    """
    pandas = extra("pandas", "cli")
    limit = csv.field_size_limit(_LONGEST_VALUE)
    try:
        n_rows, written = _check(path, (columns.id, columns.label), columns.features is None)
    except UnicodeDecodeError as error:
        utf_16 = error.object.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        encoding, name = ("UTF-16", "UTF-16") if utf_16 else ("LATIN1", "Latin-1 for example")
        raise ValueError(
            f"{path} is not UTF-8 text ({error.reason}). Convert it, from {name}: "
            f"iconv -f {encoding} -t UTF-8 {path.name}"
        ) from None
    finally:
        csv.field_size_limit(limit)
    time = columns.time
    frame = pandas.read_csv(
        path,
        encoding="utf-8-sig",
        index_col=False,
        low_memory=False,  # in chunks, a column could change its type in the middle
        dtype=dict.fromkeys(columns.text if time is None else [*columns.text, time], str),
    )
    if len(frame) != n_rows:
        raise ValueError(f"{path} has {n_rows:,} or {len(frame):,} rows, depending on how quotes are read.")
    for name, texts in written.items():
        if name == columns.id or any(isinstance(value, str) for value in frame[name]):
            frame[name] = pandas.Series(texts, dtype=object).replace("", None)  # 007 is not 7, NA not missing
    if time in frame.columns and not frame[time].dropna().str.fullmatch(r"\d{8}").all():  # 20240901 is a day
        with suppress(ValueError):
            frame[time] = pandas.to_numeric(frame[time])
    return frame


def _check(path: Path, kept: Collection[str | None], use_all: bool) -> tuple[int, dict[str, list[str]]]:
    """Check that rows match the header; return their number, and the columns of ``kept`` as written."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(_lines(file, path))
        try:
            header = next(reader, [])
            _check_header(header, path, use_all)
            n_rows = 0
            written: dict[str, list[str]] = {name: [] for name in header if name in kept}
            places = [(header.index(name), texts) for name, texts in written.items()]
            for row in reader:
                if row and len(row) != len(header):
                    raise ValueError(
                        f"{path}, line {reader.line_num}: {len(row)} values for the {len(header)} columns of "
                        "the header. Quote values that contain commas."
                    )
                n_rows += bool(row)
                for place, texts in places if row else ():
                    texts.append(row[place])
        except csv.Error as error:
            raise ValueError(f"{path}, line {reader.line_num}: {error}.") from None
    return n_rows, written


def _lines(file: Iterable[str], path: Path) -> Iterator[str]:
    """Yield lines; raise where csv and pandas would split them differently."""
    for number, line in enumerate(file, 1):
        if line.endswith("\r"):
            raise ValueError(
                f"{path}, line {number}: a carriage return without a line feed, which ends a row for some "
                "programs only. Convert it: tr '\\r' '\\n', or sed 's/\\r*$//'."
            )
        yield line


def _check_header(header: list[str], path: Path, use_all: bool) -> None:
    if not header:
        raise ValueError(f"{path} is empty, or its first line is. The first line must name the columns.")
    for number, name in enumerate(header, 1):
        if name in header[: number - 1]:
            first = header.index(name) + 1
            raise ValueError(f"{path}: columns {first} and {number} are both named {name!r}. Rename one.")
        if not name.strip() and use_all:
            raise ValueError(
                f"{path}: column {number} has no name. Name it, remove it (pandas: to_csv(index=False)), "
                "or list the columns to use."
            )
    other = next((separator for separator in ";\t|" if separator in header[0]), None)
    if len(header) == 1 and other:
        raise ValueError(
            f"{path} has one column, {header[0]!r:.80}: values must be separated by commas, not {other!r}."
        )


def check_columns(wanted: dict[str, list[str]], there: Iterable[Any], name: str) -> None:
    """Raise if wanted columns, by role, are missing, or names occur twice."""
    found = [str(column) for column in there]
    if twice := [column for column, times in Counter(found).items() if times > 1]:
        raise ValueError(f"{name} has several columns of the same name: {', '.join(twice[:5])}.")
    for key, columns in wanted.items():
        if missing := [str(column) for column in columns if column not in found]:
            raise ColumnError(key, missing, [column for column in found if column not in columns], name)


def _check_flat(frame: Any, name: str) -> None:
    for column in frame.columns[frame.dtypes == "object"]:
        there = frame[column].dropna()
        if len(there) and isinstance(there.iloc[0], list | dict | tuple | np.ndarray):
            raise ValueError(
                f"{name}: the column {column!r} holds lists or structs, not a number or text per row. "
                "Rows as lists of positions that are not zero: transcendent decide --workers."
            )


def _as_array(column: Any) -> AnyArray:
    """Return a column as an array, of type str if all values are."""
    values: AnyArray = column.to_numpy()
    if values.dtype.kind != "O" or not all(isinstance(value, str) for value in values.tolist()):
        return values
    return np.array(values.tolist(), dtype=str)
