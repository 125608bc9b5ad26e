"""Objects from files with named columns: Parquet and CSV.

CSV is read strictly: where pandas would silently shift, rename or fill in values, an error names the line.
"""

import codecs
import csv
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from transcendent._utils.arrays import AnyArray, IntArray
from transcendent._utils.extras import extra
from transcendent._utils.text import some, suggestion
from transcendent.tables.objects import Objects

_LONGEST_VALUE = (1 << 31) - 1
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?!0[0-9])(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")  # 01 is a text
_BOOLEANS = {f(str(value)): value for value in (True, False) for f in (str, str.lower, str.upper)}
_AS_PANDAS = (
    "#N/A,#N/A N/A,#NA,-1.#IND,-1.#QNAN,-NaN,-nan,1.#IND,1.#QNAN,<NA>,N/A,NA,NULL,NaN,None,n/a,nan,null"
)
_MISSING = frozenset(_AS_PANDAS.split(","))


@dataclass(frozen=True)
class Columns:
    """The role of columns (of a table) or arrays (of an npz file).

    ``text`` are columns to read as text, even if all values look like numbers or are missing.
    ``missing_labels`` are texts that stand for a missing label, exactly as they are written.
    """

    label: str | None = None
    time: str | None = None
    id: str | None = None
    features: str | list[str] | None = None
    without: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    missing_labels: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise if a column has two roles."""
        features = [self.features] if isinstance(self.features, str) else self.features or []
        if self.label in features:
            said = f"{self.label!r} holds the labels, so it cannot be a feature or a score."
            raise ColumnError("features", said)

    def special(self) -> dict[str, str]:
        """Return the columns with labels, times and ids, by role."""
        named = {"label": self.label, "time": self.time, "id": self.id}
        return {key: name for key, name in named.items() if name is not None}

    def with_texts(self) -> "Columns":
        """Return these columns with labels, and a column of whole texts, to be read as text."""
        whole = self.features if isinstance(self.features, str) else None
        return replace(self, text=(*self.text, *(name for name in (self.label, whole) if name is not None)))


class ColumnError(ValueError):
    """Columns or arrays do not exist, or have two roles; ``key`` is their role."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def lacking(key: str, missing: list[str], there: list[str], where: str) -> ColumnError:
    """Return an error about columns that do not exist."""
    if len(missing) > 1:
        return ColumnError(key, f"{where} lacks {len(missing)} columns: {some(missing, 5)}.")
    hint = suggestion(missing[0], there) if there else "."
    if key == "features":
        hint = hint.replace("; choose from", "; besides the features it has")
    return ColumnError(key, f"{where} has no column {missing[0]!r}{hint}")


def read_frame(path: Path, columns: Columns) -> Objects:
    """Return the objects of a Parquet or CSV file."""
    try:
        if path.suffix.lower() == ".parquet":
            frame, lines = _read_parquet(path), None
        else:
            frame, lines = _read_csv(path, columns.with_texts())
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
    if isinstance(features, str):
        X = _texts(Objects(name, X, lines=lines), features)
    values = {key: _as_array(frame[column]) for key, column in special.items()}
    if lines is not None and "label" in values:
        values["label"] = _as_meant(values["label"], columns.missing_labels)
    return Objects(name, X, values.get("label"), values.get("time"), values.get("id"), lines)


def _read_parquet(path: Path) -> Any:
    """Return a frame of a Parquet file; an index with a name becomes a column."""
    try:
        frame = extra("pandas", "cli").read_parquet(path)
    except TypeError:  # pandas writes Arrow types of lists, structs and dictionaries that it cannot read
        frame = extra("pyarrow.parquet", "cli").read_table(path).to_pandas(ignore_metadata=True)
        frame = frame.loc[:, [not str(name).startswith("__index_level_") for name in frame.columns]]
    frame = frame.rename(columns=str)
    return frame if frame.index.names == [None] else frame.reset_index()


def _read_csv(path: Path, columns: Columns) -> tuple[Any, IntArray]:
    """Return a frame of a CSV file, and the lines where its rows begin.

    Ids, labels that are text, columns of text and times of eight digits stay as they are written. If all
    columns are features, each needs a name.
    """
    pandas = extra("pandas", "cli")
    limit = csv.field_size_limit(_LONGEST_VALUE)
    try:
        lines, written = _check(path, (columns.id, columns.label), columns.features is None)
    except UnicodeDecodeError as error:
        utf_16 = error.object.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        encoding, name = ("UTF-16", "UTF-16") if utf_16 else ("LATIN1", "Latin-1 for example")
        raise ValueError(
            f"{path} is not UTF-8 text ({error.reason}). Convert it, from {name}: "
            f"iconv -f {encoding} -t UTF-8 {path.name} > new.csv"
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
        na_values={columns.label: list(columns.missing_labels)} if columns.label else None,
    )
    if len(frame) != len(lines):
        raise ValueError(
            f"{path} has {len(lines):,} or {len(frame):,} rows, depending on how quotes are read."
        )
    for name, texts in written.items():
        if name == columns.id or any(isinstance(value, str) for value in frame[name]):
            frame[name] = pandas.Series(texts, dtype=object).replace("", None)  # 007 is not 7, NA not missing
    if time in frame.columns and not frame[time].dropna().str.fullmatch(r"\d{8}").all():  # 20240901 is a day
        with suppress(ValueError):
            frame[time] = pandas.to_numeric(frame[time])
    return frame, np.array(lines, dtype=np.intp)


def _check(path: Path, kept: Collection[str | None], use_all: bool) -> tuple[list[int], dict[str, list[str]]]:
    """Check that rows match the header; return their first lines, and the columns of ``kept`` as written."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(_lines(file, path))
        try:
            header = next(reader, [])
            _check_header(header, path, use_all or "" in kept)
            lines: list[int] = []
            written: dict[str, list[str]] = {name: [] for name in header if name in kept}
            places = [(header.index(name), texts) for name, texts in written.items()]
            end = reader.line_num
            for row in reader:
                begin, end = end + 1, reader.line_num
                if row and len(row) != len(header):
                    raise ValueError(
                        f"{path}, line {reader.line_num}: {len(row)} values for the {len(header)} columns of "
                        "the header. Quote values that contain commas."
                    )
                if row:
                    lines.append(begin)
                    for place, texts in places:
                        texts.append(row[place])
        except csv.Error as error:
            raise ValueError(f"{path}, line {reader.line_num}: {error}.") from None
    return lines, written


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
    if header[0].startswith("\ufeff"):
        raise ValueError(f"{path} begins with two byte order marks. Remove one: tail -c +4 {path.name}")
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
            f"{path} has one column, {header[0][:60]!r}: values must be separated by commas, not {other!r}. "
            'To convert it: python -c "import pandas; '
            f"pandas.read_csv('{path.name}', sep={other!r}, dtype=str).to_csv('new.csv', index=False)\""
        )


def check_columns(wanted: dict[str, list[str]], there: Iterable[Any], name: str) -> None:
    """Raise if wanted columns, by role, are missing, or names occur twice."""
    found = [str(column) for column in there]
    if twice := [column for column, times in Counter(found).items() if times > 1]:
        raise ValueError(f"{name} has several columns of the same name: {', '.join(twice[:5])}.")
    for key, columns in wanted.items():
        if missing := [str(column) for column in columns if column not in found]:
            raise lacking(key, missing, [column for column in found if column not in columns], name)


def _check_flat(frame: Any, name: str) -> None:
    for column in frame.columns[frame.dtypes == "object"]:
        there = frame[column].dropna()
        if len(there) and isinstance(there.iloc[0], list | dict | tuple | np.ndarray):
            raise ValueError(
                f"{name}: the column {column!r} holds lists or structs, not a number or text per row. "
                "Rows as lists of positions that are not zero: transcendent decide --workers."
            )


def _texts(found: Objects, column: str) -> AnyArray:
    """Return a column of whole texts; raise if it has gaps or holds anything else."""
    if len(missing := np.flatnonzero(found.X.isna())):
        raise ValueError(f"{found.name}: {found.have(f'no {column!r}', missing)}. Remove these rows.")
    values = _as_array(found.X)
    if values.dtype.kind not in "iuU":
        raise ValueError(f"{found.name}: the column {column!r} holds {found.X.dtype}, not texts.")
    return values.astype(str).astype(object)


def _as_meant(labels: AnyArray, missing: Collection[str]) -> AnyArray:
    """Return labels of a CSV file as booleans or numbers if all are; otherwise as they are written.

    They stay text, too, if two different numbers would become one. Among booleans and numbers, texts such as
    NA are missing.
    """
    cells = labels.tolist()
    known = [cell for cell in set(cells) if isinstance(cell, str) and cell not in _MISSING.union(missing)]
    values = _booleans(known) or _numbers(known)
    if known and values is None:
        return labels
    gap = math.nan if values and isinstance(next(iter(values.values())), float) else None
    found = [(values or {}).get(cell, gap) for cell in cells]
    return np.array(found, dtype=object if gap is None and None in found else None)


def _booleans(texts: list[str]) -> dict[str, Any] | None:
    return {text: _BOOLEANS[text] for text in texts} if all(text in _BOOLEANS for text in texts) else None


def _numbers(texts: list[str]) -> dict[str, Any] | None:
    """Return the number of each text; None if one is not a number, or floats would not tell them apart."""
    plain = {text: text.strip() for text in texts}
    if not all(map(_NUMBER.fullmatch, plain.values())):
        return None
    if all(map(_INTEGER.fullmatch, plain.values())):
        whole = {text: int(number) for text, number in plain.items()}
        return whole if np.array(list(whole.values())).dtype.kind in "iu" else None
    floats = {text: float(number) for text, number in plain.items()}
    exact = len(set(floats.values())) == len(set(map(Decimal, plain.values())))
    return floats if exact and all(map(math.isfinite, floats.values())) else None


def _as_array(column: Any) -> AnyArray:
    """Return a column as an array, of type str if all values are."""
    values: AnyArray = column.to_numpy()
    if values.dtype.kind != "O" or not all(isinstance(value, str) for value in values.tolist()):
        return values
    return np.array(values.tolist(), dtype=str)
