"""CSV read strictly: what pandas would shift, rename or fill in silently is refused, with its line."""

import codecs
import csv
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from transcendent._utils.extras import extra

_LONGEST_VALUE = (1 << 31) - 1


def read_csv(
    path: Path,
    *,
    identifier: str | None,
    label: str | None,
    time: str | None,
    text: Collection[str],
    use_all: bool,
) -> Any:
    """A frame of the values under each name of the header.

    Ids, labels that are text, columns of ``text`` and times of eight digits stay as they are written. With
    ``use_all`` every column is to be used, so that one without a name is refused too.
    """
    pandas = extra("pandas", "cli")
    limit = csv.field_size_limit(_LONGEST_VALUE)
    try:
        n_rows, written = _check(path, (identifier, label), use_all)
    except UnicodeDecodeError as error:
        utf_16 = error.object.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        encoding, name = ("UTF-16", "UTF-16") if utf_16 else ("LATIN1", "Latin-1 for example")
        raise ValueError(
            f"{path} is not UTF-8 text ({error.reason}). Convert it, from {name}: "
            f"iconv -f {encoding} -t UTF-8 {path.name}"
        ) from None
    finally:
        csv.field_size_limit(limit)
    frame = pandas.read_csv(
        path,
        encoding="utf-8-sig",
        index_col=False,
        low_memory=False,  # else the type of a column may change in the middle
        dtype=dict.fromkeys(text if time is None else [*text, time], str),
    )
    if len(frame) != n_rows:
        raise ValueError(f"{path} has {n_rows:,} or {len(frame):,} rows, depending on how quotes are read.")
    for name, texts in written.items():
        if name == identifier or any(isinstance(value, str) for value in frame[name]):
            frame[name] = pandas.Series(texts, dtype=object).replace("", None)  # 007 is not 7, NA not missing
    if time in frame.columns:
        frame[time] = _numbers_or_text(frame[time])
    return frame


def _check(path: Path, kept: Collection[str | None], use_all: bool) -> tuple[int, dict[str, list[str]]]:
    """Number of rows, each with a value for every column of the header, and columns as they are written."""
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
                        "the header. Values that contain commas are to be quoted."
                    )
                n_rows += bool(row)
                for place, texts in places if row else ():
                    texts.append(row[place])
        except csv.Error as error:
            raise ValueError(f"{path}, line {reader.line_num}: {error}.") from None
    return n_rows, written


def _lines(file: Iterable[str], path: Path) -> Iterator[str]:
    """The lines, as csv and pandas both see them."""
    for number, line in enumerate(file, 1):
        if line.endswith("\r"):
            raise ValueError(
                f"{path}, line {number}: a carriage return without a line feed, which some programs take "
                "for the end of a row and others do not. Convert it: tr '\\r' '\\n', or sed 's/\\r*$//'."
            )
        yield line


def _check_header(header: list[str], path: Path, use_all: bool) -> None:
    if not header:
        raise ValueError(f"{path} is empty, or its first line is: that is to name the columns.")
    for number, name in enumerate(header, 1):
        if name in header[: number - 1]:
            first = header.index(name) + 1
            raise ValueError(f"{path}: columns {first} and {number} have one name, {name!r}. Rename one.")
        if not name.strip() and use_all:
            raise ValueError(
                f"{path}: column {number} has no name. Name it, take it out (pandas: to_csv(index=False)), "
                "or name the columns to use."
            )
    other = next((separator for separator in ";\t|" if separator in header[0]), None)
    if len(header) == 1 and other:
        raise ValueError(
            f"{path} has one column, {header[0]!r:.80}: values are to be separated by commas, not {other!r}."
        )


def _numbers_or_text(column: Any) -> Any:
    """Numbers, if all are and not all have eight digits, as days have."""
    if column.dropna().str.fullmatch(r"\d{8}").all():
        return column
    try:
        return extra("pandas", "cli").to_numeric(column)
    except ValueError:
        return column
