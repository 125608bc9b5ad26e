"""Which models share contents: those with the same columns and classes."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple, Protocol, TypeVar

import orjson
from sqlalchemy import Connection, text

from transcendent.tables.layout import DIFFERING, Layout

# Read once: a model may have many feature names.
_MODELS = "SELECT id, features, classes FROM model WHERE id <> ALL(:known)"


class ContentColumns(NamedTuple):
    """What models that share contents have in common: a digest of columns and classes, and some of it."""

    digest: bytes
    width: int
    classes: tuple[str, ...]
    of_scores: bool


class OfModel(Protocol):
    """A row that belongs to a model."""

    @property
    def model(self) -> int:
        """The number of the model."""


T = TypeVar("T", bound=OfModel)


class SharedColumns:
    """The columns of the models of a database."""

    def __init__(self) -> None:
        self._known: dict[int, ContentColumns] = {}
        self._names: dict[bytes, Sequence[str] | None] = {}

    def read(self, connection: Connection) -> list[int]:
        """Read what is new, and return the models, except those of scores."""
        for row in connection.execute(text(_MODELS), {"known": list(self._known)}):
            columns = {name: value for name, value in row.features.items() if name not in DIFFERING}
            digest = sha256(orjson.dumps([columns, row.classes], option=orjson.OPT_SORT_KEYS)).digest()
            width, classes = row.features["count"] or 0, tuple(map(str, row.classes))
            self._known[row.id] = ContentColumns(digest, width, classes, "scores" in row.features)
            self._names[digest] = Layout.described(row.features).names_to_show
        return [model for model, columns in self._known.items() if not columns.of_scores]

    def of(self, model: int) -> ContentColumns:
        """Return the columns of a model that was read."""
        return self._known[model]

    def names(self, columns: ContentColumns) -> Sequence[str] | None:
        """Return the names of columns, None if they have none."""
        return self._names[columns.digest]

    def divide(self, rows: Iterable[T]) -> dict[ContentColumns, list[T]]:
        """Return cases or contents by the columns of their models, without those of scores."""
        found: dict[ContentColumns, list[T]] = defaultdict(list)
        for row in rows:
            columns = self._known.get(row.model)
            if columns is not None and not columns.of_scores:
                found[columns].append(row)
        return found
