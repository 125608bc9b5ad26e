"""A file of labelled objects that explanations compare with, besides the labelled items."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import is_missing, take_rows
from transcendent._utils.text import some
from transcendent.errors import GateSettingsError
from transcendent.gate.features import decode, encode
from transcendent.gate.model import Model
from transcendent.gate.settings import GateSettings
from transcendent.tables.answers import class_codes
from transcendent.tables.frames import ColumnError, Columns
from transcendent.tables.layout import Layout
from transcendent.tables.objects import Objects
from transcendent.tables.reading import is_table, read_objects

MAX_ROWS = 20_000
"""Limit on the objects of a file that are used: rows at equal distances if it has more."""
MAX_FILE = 256 << 20
"""Limit on the bytes of the file, which is read as a whole."""
_OF_DAY = re.compile(r"(?<=\d{4}-\d\d-\d\d)[ T]\d\d:\d\d.*")


class LabelledObject(NamedTuple):
    """An object with a label, as text, and its encoded features; ``item`` is None for those of a file."""

    item: int | None
    object_id: str | None
    label: str
    time: str | None
    encoded: bytes


def reference_of(settings: GateSettings) -> "Reference | None":
    """Return the reference file of a gate, if its settings name one."""
    path = settings.reference
    return None if path is None else Reference(path, settings.reference_label, settings.reference_time)


class Reference:
    """The objects of a file, read again for each model, whose columns and classes they need."""

    def __init__(self, path: Path, label: str, time: str | None) -> None:
        if not path.is_file():
            raise GateSettingsError(f"reference names a file that does not exist: {path}")
        if (size := path.stat().st_size) > MAX_FILE:
            raise GateSettingsError(
                f"reference: {path} has {size >> 20:,} MB, and at most {MAX_FILE >> 20} are read: write a "
                "sample of its objects to a file of their own."
            )
        self._path, self._label, self._time = path, label, time
        self._read: tuple[str, list[LabelledObject]] | None = None

    def objects(self, model: Model) -> list[LabelledObject]:
        """Return the objects whose label is a class of a model; raise `GateSettingsError` if there are none.

        Those of the last model are remembered.
        """
        if self._read is None or self._read[0] != model.digest:
            self._read = model.digest, self._objects(model)
        return self._read[1]

    def _objects(self, model: Model) -> list[LabelledObject]:
        if model.scores is not None:
            return []  # its rows are scores, which are not compared
        try:
            found = self._file(model)
            codes = class_codes(np.asarray(found.y), model.classes)
            labelled = np.flatnonzero(codes >= 0)
            if not len(labelled):
                raise ValueError(f"no label is a class of the model ({some(list(map(str, model.classes)))}).")
            found, codes = found.take(labelled), codes[labelled]
            step = -(-len(found) // MAX_ROWS)
            found, codes = found.take(np.arange(0, len(found), step)), codes[::step]
            encoded = encode(_canonical(found.X))
            rows_from(model.layout, encoded[:100], sparse=True)  # raises if a column has another type
        except (ValueError, TypeError, OSError) as error:
            raise GateSettingsError(f"reference: {self._path} cannot be used: {error!s:.300}") from None
        names = [None] * len(found) if found.ids is None else list(map(str, found.ids))
        times = [None] * len(found) if found.times is None else list(map(_time, found.times.tolist()))
        labels = [str(model.classes[code]) for code in codes.tolist()]
        return [LabelledObject(None, *each) for each in zip(names, labels, times, encoded, strict=True)]

    def _file(self, model: Model) -> Objects:
        """Read the columns of a model; ids only if there is a column of that name."""
        features, notes, layout = model.manifest["features"], model.manifest["notes"], model.layout
        columns = {
            "label": self._label,
            "time": self._time,
            "features": notes.get("features") or features["names"],
            "text": () if layout.documents else tuple(layout.text),
        }
        identifier = notes.get("id") if is_table(self._path) else None
        try:
            found = read_objects(self._path, Columns(id=identifier, **columns), width=features["count"])
        except ColumnError as error:
            if error.key != "id":
                raise
            found = read_objects(self._path, Columns(**columns), width=features["count"])
        if found.y is None:
            raise ValueError("it has no labels.")
        if layout.names is None and found.X.shape[1] != layout.width:
            raise ValueError(f"it has {found.X.shape[1]} columns, and the model {layout.width}.")
        found = found.with_labels()
        return Objects(found.name, layout.as_fitted(found.X), found.y, found.times, found.ids)


def rows_from(layout: Layout, encoded: list[bytes], *, sparse: bool) -> Any:
    """Return encoded objects as rows of a layout: a frame or texts if the detector was fitted on these.

    Otherwise the rows are an array, or with ``sparse`` a sparse matrix.
    """
    decoded = list(map(decode, encoded))
    if layout.names is None:
        starts = np.cumsum([0, *(len(positions) for positions, _ in decoded)])
        positions, values = (np.concatenate([np.empty(0), *each]) for each in zip(*decoded, strict=True))
        rows = sp.csr_matrix((values, positions.astype(np.int32), starts), shape=(len(decoded), layout.width))
        return rows if sparse else rows.toarray()
    cells = np.zeros((len(decoded), layout.width), dtype=object if layout.text else np.float64)
    for row, (places, own) in zip(cells, decoded, strict=True):
        row[places] = own
    return layout.rows(cells)


def _canonical(X: Any) -> Any:
    """Return sparse rows with sorted positions and without stored zeros, as `encode` needs them."""
    if not sp.issparse(X):
        return X
    rows = sp.csr_matrix(take_rows(X, slice(None)), dtype=np.float64)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    return rows


def _time(value: Any) -> str | None:
    """Return a time as it is written, without the time of the day."""
    return None if is_missing(value) else _OF_DAY.sub("", str(value)[:40])
