"""A TOML file, checked key by key; errors name the line and the way out."""

import json
import re
import tomllib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transcendent._utils.text import suggestion
from transcendent.errors import SettingsError

Keys = tuple[str, ...]


@dataclass(frozen=True)
class TomlTable:
    """One table of a TOML file, and its place in the file.

    ``keys`` lead to this table; ``occurrence`` is its position in a list of tables.
    """

    path: Path
    text: str
    values: dict[str, Any]
    keys: Keys = ()
    occurrence: int = 0

    @classmethod
    def read(cls, path: Path, text: str | None = None) -> "TomlTable":
        """Read a whole file, or its text if that is given."""
        try:
            text = path.read_text(encoding="utf-8-sig") if text is None else text
            return cls(path, text, tomllib.loads(text))
        except UnicodeDecodeError as error:
            raise SettingsError(f"{path} is not a TOML file: {error}.") from None
        except tomllib.TOMLDecodeError as error:
            raise SettingsError(f"{path} is not valid TOML: {error}.") from None
        except RecursionError:
            raise SettingsError(f"{path} is not valid: its lists or tables are nested too deeply.") from None

    def table(self, key: str) -> "TomlTable":
        """Return a table in this one; an empty one if it does not exist."""
        values = self.values.get(key, {})
        if not isinstance(values, dict):
            raise self.error(f"{key} must be a table: [{'.'.join((*self.keys, key))}].", key)
        return TomlTable(self.path, self.text, values, (*self.keys, key), self.occurrence)

    def check(self, known: Collection[str]) -> None:
        """Raise on unknown keys."""
        for key in self.values:
            if key not in known:
                where = f"[{'.'.join(self.keys)}]" if self.keys else "this file"
                raise self.error(f"{where} has no {key!r}{suggestion(key, known)}", key)

    def get(
        self, key: str, kind: type | tuple[type, ...], default: Any = None, *, needed: str | None = None
    ) -> Any:
        """Return a value of the kind, or the default if the key is not set.

        With ``needed``, which shows how to set it, the key is required.
        """
        if key not in self.values:
            if needed is None:
                return default
            where = f"[{'.'.join(self.keys)}]" if self.keys else "the file"
            raise self.error(f"{where} lacks {key}: {needed}")
        value = self.values[key]
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            named = [one for one in kinds if one is not int or float not in kinds]
            wanted = " or ".join(_WORDS.get(one, one.__name__) for one in named)
            raise self.error(f"{key} must be {wanted}, not {value!r:.60}.", key)
        return value

    @contextmanager
    def at(self, *keys: str) -> Iterator[None]:
        """Raise a ValueError or TypeError as an error at the line of a key."""
        try:
            yield
        except SettingsError:
            raise
        except (ValueError, TypeError) as error:
            raise self.error(str(error), *keys) from None

    def error(self, message: str, *keys: str) -> SettingsError:
        """Return an error at the line of a key of this table, or of the table itself."""
        line = line_of(self.text, (*self.keys, *keys), self.occurrence)
        place = f"{self.path}, line {line}" if line else str(self.path)
        return SettingsError(f"{place}: {message}")


def literal(value: Any) -> str:
    """Return a value as TOML, which differs from JSON in one character only."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def one_or_list(values: list[str]) -> str | list[str] | None:
    """Return values for a key that takes a text or a list; None without any."""
    return values[0] if len(values) == 1 else values or None


_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


_TOKENS = re.compile(  # texts and comments, in which brackets mean nothing; brackets; ends of lines
    r'''"""(?:\\.|[^\\])*?"{3,5}|\'{3}.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}\n]''',
    re.DOTALL,
)


def line_of(text: str, keys: Keys, occurrence: int = 0) -> int | None:
    """Return the line that sets a key, or else that of the nearest table around it.

    ``occurrence`` is the position in a list of tables, ``[[name]]``.
    """
    best, depth, seen = None, 0, -1
    for number, statement, values in _statements(text):
        found = 0
        while found < len(keys) and isinstance(values, dict) and keys[found] in values:
            values = values[keys[found]]
            values = values[0] if isinstance(values, list) and values else values
            found += 1
        seen += statement.startswith("[[") and not values  # all keys of the header were found
        if found > depth and seen in (-1, occurrence):
            best, depth = number, found
    return best


def _statements(text: str) -> Iterator[tuple[int, str, Any]]:
    """Yield the first line's number of each statement, its text, and its values inside their table."""
    header, start, number, depth = "", 0, 1, 0
    for token in _TOKENS.finditer(f"{text}\n"):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        if token[0] != "\n" or depth:
            continue
        statement = text[start : token.start()].strip()
        if statement and not statement.startswith("#"):
            header = statement if statement.startswith("[") else header
            values = tomllib.loads(statement if statement is header else f"{header}\n{statement}")
            yield number, statement, values
        number += text.count("\n", start, token.end())
        start = token.end()
