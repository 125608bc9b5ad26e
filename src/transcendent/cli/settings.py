"""The settings of a TOML file, checked key by key; an error names the line and the way out."""

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transcendent._utils.text import suggestion
from transcendent.errors import TranscendentError

Keys = tuple[str, ...]


class SettingsError(TranscendentError, ValueError):
    """A TOML file cannot be understood; the message names the file, the line and the way out."""


class UsageError(Exception):
    """The options of a command contradict each other or name something that does not exist."""


@dataclass(frozen=True)
class Settings:
    """One table of a TOML file, and where in the file it is.

    ``keys`` lead to this table; of a list of tables it is the one at position ``occurrence``.
    """

    path: Path
    text: str
    values: dict[str, Any]
    keys: Keys = ()
    occurrence: int = 0

    @classmethod
    def read(cls, path: Path) -> "Settings":
        """The whole file."""
        try:
            text = path.read_text(encoding="utf-8-sig")
            return cls(path, text, tomllib.loads(text))
        except UnicodeDecodeError as error:
            raise SettingsError(f"{path} is not a TOML file: {error}.") from None
        except tomllib.TOMLDecodeError as error:
            raise SettingsError(f"{path} is not valid TOML: {error}.") from None

    def table(self, key: str) -> "Settings":
        """A table in this one; empty if it is not there."""
        values = self.values.get(key, {})
        if not isinstance(values, dict):
            raise self.error(f"{key} must be a table: [{'.'.join((*self.keys, key))}].", key)
        return Settings(self.path, self.text, values, (*self.keys, key), self.occurrence)

    def check(self, known: Collection[str]) -> None:
        """Refuse keys that mean nothing here."""
        for key in self.values:
            if key not in known:
                where = f"[{'.'.join(self.keys)}]" if self.keys else "this file"
                raise self.error(f"{where} has no {key!r}{suggestion(key, known)}", key)

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """A value of the kind, or the default if it is not there."""
        if key not in self.values:
            return default
        value = self.values[key]
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = " or ".join(_WORDS.get(one, one.__name__) for one in kinds)
            raise self.error(f"{key} must be {wanted}, not {value!r:.60}.", key)
        return value

    def require(self, key: str, kind: type | tuple[type, ...], hint: str) -> Any:
        """A value that has to be there."""
        if key not in self.values:
            where = f"[{'.'.join(self.keys)}]" if self.keys else "the file"
            raise self.error(f"{where} lacks {key}: {hint}")
        return self.get(key, kind)

    @contextmanager
    def at(self, *keys: str) -> Iterator[None]:
        """Give a ValueError or TypeError of the library the line of a key."""
        try:
            yield
        except SettingsError:
            raise
        except (ValueError, TypeError) as error:
            raise self.error(str(error), *keys) from None

    def error(self, message: str, *keys: str) -> SettingsError:
        """An error at the line of a key of this table, or of the table itself."""
        line = line_of(self.text, (*self.keys, *keys), self.occurrence)
        place = f"{self.path}, line {line}" if line else str(self.path)
        return SettingsError(f"{place}: {message}")


_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}
_HEADER = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_TEXT = re.compile(r""""(?:[^"\\]|\\.)*"|'[^']*'""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def line_of(text: str, keys: Keys, occurrence: int = 0) -> int | None:
    """The line that sets a key, or failing that the nearest table around it.

    Of tables in a list, ``[[so]]``, the one of that number.
    """
    table: Keys = ()
    best, depth, seen = None, 0, -1
    for number, line in _statements(text):
        if header := _HEADER.match(line):
            table = _parts(header[1])
            here: Keys = table
            if line.lstrip().startswith("[[") and keys[: len(here)] == here:
                seen += 1
        elif assigned := _KEY.match(line):
            here = (*table, *_parts(assigned[1]))
        else:
            continue
        if len(here) > depth and keys[: len(here)] == here and max(seen, 0) <= occurrence:
            best, depth = number, len(here)
            if seen >= 0 and seen < occurrence:
                depth -= 1  # a later table of the list is the one
    return best


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """The lines at which something begins, with their numbers; not those inside lists or long texts."""
    opened, quoted = 0, False
    for number, line in enumerate(text.split("\n"), 1):
        if not opened and not quoted:
            yield number, line
        if (line.count('"""') + line.count("'''")) % 2:
            quoted = not quoted
        elif not quoted and not (opened == 0 and _HEADER.match(line)):
            bare = _TEXT.sub("", line).partition("#")[0]
            opened = max(0, opened + bare.count("[") - bare.count("]"))


def _parts(dotted: str) -> Keys:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))


def fresh(values: Mapping[str, Any], *without: str) -> dict[str, Any]:
    """The values but for some keys."""
    return {key: value for key, value in values.items() if key not in without}
