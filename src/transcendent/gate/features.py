"""Objects as JSON in requests, as rows for a detector, and as bytes in the database.

An object has an ``id`` and its features in one of three forms: ``values`` alone, one number per feature;
``positions`` and ``values`` of the features that are not zero; or ``features``, values by name, which may be
text. ``null`` is a missing value. ``context`` and ``seen_at`` are optional.
"""

from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import orjson
import scipy.sparse as sp

from transcendent._utils.arrays import AnyArray, FloatArray, is_missing, take_rows
from transcendent._utils.text import some, suggestion
from transcendent.gate import origin
from transcendent.tables.layout import DOCUMENT, Layout, ascend

LONGEST_ID = 200

_NUMBERS = {int, float, bool, type(None)}
_FORMS = {
    frozenset(["id", "values"]): "dense",
    frozenset(["id", "positions", "values"]): "sparse",
    frozenset(["id", "features"]): "named",
}
# The first byte of encoded features names their form.
_ONES, _PAIRS, _WHOLE, _TEXTS = b"\x01", b"\x02", b"\x03", b"\x04"


class ObjectProblem(NamedTuple):
    """A problem with an object, and the field that has it."""

    field: str
    message: str


Problems = dict[int, ObjectProblem]
"""Problems by place in the request."""


class BadObjectError(Exception):
    """An object cannot be read; the arguments are those of `ObjectProblem`."""


@dataclass(frozen=True)
class Group:
    """Objects of one form: their places in the request, and their rows."""

    places: AnyArray
    rows: Any


@dataclass
class Parsed:
    """Objects that could be read, grouped by form, and the problems of the others, by place."""

    ids: list[Any]
    groups: list[Group] = field(default_factory=list)
    problems: Problems = field(default_factory=dict)
    origins: dict[int, origin.Origin] = field(default_factory=dict)


def read_rows(layout: Layout, objects: list[Any]) -> Parsed:
    """Return objects as rows of a layout; a problem with one does not affect the others."""
    parsed = Parsed(ids=[each.get("id") if type(each) is dict else None for each in objects])
    reader = _Reader(layout)
    readers = {"dense": reader.dense, "sparse": reader.sparse, "named": reader.named}
    for form, places in _by_form(objects, parsed).items():
        if group := _read_form(readers[form], objects, places, parsed.problems):
            parsed.groups.append(group)
    return parsed


def _read_form(
    read: Callable[[list[Any]], Any], objects: list[Any], places: list[int], problems: Problems
) -> Group | None:
    try:
        return Group(np.array(places), read([objects[place] for place in places]))
    except BadObjectError:
        good = []
    for place in places:
        try:
            read([objects[place]])
            good.append(place)
        except BadObjectError as error:
            problems[place] = ObjectProblem(*error.args)
    return Group(np.array(good), read([objects[place] for place in good])) if good else None


class _Reader:
    """Reads the objects of a request, form by form."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.width = layout, layout.width
        self._suggested: dict[str, str] = {}

    def dense(self, objects: list[Any]) -> Any:
        """Read objects with one value per feature."""
        self._refuse_text("values")
        for each in objects:
            if type(each["values"]) is not list:
                raise BadObjectError("values", "values must be a list of numbers.")
            if len(each["values"]) != self.width:
                counted = f"{len(each['values'])} values; the detector was fitted on {self.width} features."
                raise BadObjectError("values", counted)
        numbers = as_numbers([each["values"] for each in objects], "values").reshape(-1, self.width)
        for j in self.layout.boolean:
            _check_booleans(numbers[:, j], f"values[{j}]")
        return self.layout.rows(numbers)

    def sparse(self, objects: list[Any]) -> Any:
        """Read objects with the features that are not zero; sort positions and leave zeros out."""
        self._refuse_text("positions")
        positions, values = ([each[name] for each in objects] for name in ("positions", "values"))
        for name, lists in (("positions", positions), ("values", values)):
            if set(map(type, lists)) != {list}:
                raise BadObjectError(name, f"{name} must be a list of numbers.")
        lengths = list(map(len, positions))
        if lengths != list(map(len, values)):
            raise BadObjectError("values", f"{len(values[0])} values for {lengths[0]} positions.")
        indices, starts = self._positions(positions), np.cumsum([0, *lengths], dtype=np.int64)
        numbers = as_numbers(values, "values")
        rows = sp.csr_matrix((numbers, indices, starts), shape=(len(objects), self.width))
        if not ascend(indices, starts):
            rows.sort_indices()
            if not ascend(rows.indices, rows.indptr):
                raise BadObjectError("positions", "positions must not repeat.")
        if (numbers == 0).any():
            rows.eliminate_zeros()
        return rows

    def _positions(self, lists: list[list[Any]]) -> AnyArray:
        flat = list(chain.from_iterable(lists))
        with suppress(OverflowError):
            if set(map(type, flat)) <= {int}:
                positions = np.array(array("i", flat))
                if positions.min(initial=0) >= 0 and positions.max(initial=-1) < self.width:
                    return positions
        where, bad = next(
            (i, each) for i, each in enumerate(flat) if type(each) is not int or not 0 <= each < self.width
        )
        raise BadObjectError(
            f"positions[{where}]", f"{in_short(bad)} is not a whole number from 0 to {self.width - 1}."
        )

    def named(self, objects: list[Any]) -> Any:
        """Read objects with values by feature name."""
        if self.layout.names is None:
            raise BadObjectError("features", "the detector was fitted without feature names: send values.")
        rows = []
        for each in objects:
            given = each["features"]
            if type(given) is not dict:
                raise BadObjectError("features", "features must map feature names to values.")
            if given.keys() != self.layout.known:
                self._refuse_names(given)
            rows.append([given[name] for name in self.layout.names])
        if self.layout.text:
            return self.layout.frame(self._columns(rows))
        numbers = as_numbers(rows, "features", self.layout.names).reshape(-1, self.width)
        for j in self.layout.boolean:
            _check_booleans(numbers[:, j], f"features.{self.layout.names[j]:.80}")
        return self.layout.rows(numbers)

    def _columns(self, rows: list[list[Any]]) -> dict[str, AnyArray]:
        """Return the values of rows by column: text and None, or numbers."""
        columns: dict[str, AnyArray] = {}
        for name, values in zip(self.layout.names or (), zip(*rows, strict=True), strict=True):
            kind, field = self.layout.kinds[name], f"features.{name:.80}"
            columns[name] = (
                _texts(values, field) if kind == "text" else as_numbers([values], "features", [name])
            )
            if kind == "boolean":
                _check_booleans(columns[name], field)
        if self.layout.documents and None in columns[DOCUMENT].tolist():
            raise BadObjectError(f"features.{DOCUMENT}", "the text is missing.")
        return columns

    def _refuse_text(self, field: str) -> None:
        if self.layout.text:
            raise BadObjectError(field, "the detector was fitted on text columns: send features by name.")

    def _refuse_names(self, given: dict[str, Any]) -> None:
        if unknown := sorted(given.keys() - self.layout.known):
            raise BadObjectError(f"features.{unknown[0]:.80}", f"no such feature{self._suggest(unknown[0])}")
        missing = sorted(self.layout.known - given.keys())
        raise BadObjectError("features", f"missing: {some(missing)}; send null for a missing value.")

    def _suggest(self, name: str) -> str:
        """Return how to end a sentence about an unknown name.

        Only the first name of a request is looked up: a search for many, or among many, would take too long.
        """
        if len(self.layout.known) <= 100 and not self._suggested:
            self._suggested[name] = suggestion(name[:80], self.layout.known)
        return self._suggested.get(name, ".")


def _by_form(objects: list[Any], parsed: Parsed) -> dict[str, list[int]]:
    """Return the places of the objects of each form, and add the problems of the others."""
    # Most requests have one form and good ids, which is checked without a loop.
    if objects and _are_named(parsed.ids) and len(shapes := set(map(tuple, objects))) == 1:
        form = _FORMS.get(frozenset(shapes.pop()))
        if form is not None:
            return {form: list(range(len(objects)))}
    found: dict[str, list[int]] = {}
    for place, each in enumerate(objects):
        try:
            form = _form(each)
            if not origin.FIELDS.isdisjoint(each):
                parsed.origins[place] = read_origin(each)
            found.setdefault(form, []).append(place)
        except BadObjectError as error:
            parsed.problems[place] = ObjectProblem(*error.args)
    return found


def _are_named(ids: list[Any]) -> bool:
    if set(map(type, ids)) != {str}:
        return False
    return "".join(ids).isprintable() and min(map(len, ids)) > 0 and max(map(len, ids)) <= LONGEST_ID


def check_id(each: Any) -> None:
    """Raise unless an object is one, with a valid id."""
    if type(each) is not dict:
        raise BadObjectError("", "must be a JSON object with an id and features.")
    if "id" not in each:
        raise BadObjectError("id", "an object needs an id.")
    if not _are_named([each["id"]]):
        raise BadObjectError("id", f"an id must be a string of 1 to {LONGEST_ID} printable characters.")


def _form(each: Any) -> str:
    check_id(each)
    form = _FORMS.get(frozenset(each) - origin.FIELDS)
    if form is None:
        unknown = sorted(each.keys() - {"id", "values", "positions", "features"} - origin.FIELDS)
        raise BadObjectError(
            unknown[0][:80] if unknown else "",
            "send features in one of three forms: values; positions and values; or features by name.",
        )
    return form


def read_origin(each: dict[str, Any], *, features: bool = False) -> origin.Origin:
    """Return what an object has for analysts, with its features if these are only shown."""
    at = "context"
    try:
        context = origin.read_context(each.get(at))
        at = "seen_at"
        seen_at = origin.read_time(each.get(at))
        at = "features"
        return origin.Origin(context, seen_at, origin.read_features(each.get(at)) if features else None)
    except ValueError as error:
        raise BadObjectError(at, str(error)) from None


def as_numbers(lists: list[Any], field: str, names: Sequence[str] | None = None) -> FloatArray:
    """Return the numbers of all lists in one array: true and false are 1 and 0, null is NaN."""

    def at(where: int) -> str:
        return f"{field}[{where}]" if names is None else f"{field}.{names[where % len(names)]:.80}"

    flat = list(chain.from_iterable(lists))
    try:
        numbers = np.array(array("d", flat))
    except TypeError:
        for where, value in enumerate(flat):
            if type(value) not in _NUMBERS:
                raise BadObjectError(at(where), f"{in_short(value)} is not a number.") from None
        numbers = np.array(flat, dtype=np.float64)
    if np.isinf(numbers).any():
        where = int(np.flatnonzero(np.isinf(numbers))[0])
        raise BadObjectError(at(where), "numbers must be finite.")
    return numbers


def _check_booleans(numbers: FloatArray, field: str) -> None:
    wrong = numbers[(numbers != 0) & (numbers != 1) & ~np.isnan(numbers)]
    if len(wrong):
        raise BadObjectError(field, f"{wrong[0]:g} is neither true nor false.")


def _texts(values: Sequence[Any], field: str) -> AnyArray:
    """Return texts as an array, None for missing ones."""
    for value in values:
        if type(value) is not str and value is not None:
            raise BadObjectError(field, f"{in_short(value)} is not text.")
    try:
        "".join(filter(None, values)).encode()
    except UnicodeEncodeError:
        raise BadObjectError(field, "the text has half of a character.") from None
    return np.array([*values, None], dtype=object)[:-1]


def in_short(value: Any) -> str:
    """Return a value as an error shows it."""
    # The repr of a deeply nested list would exceed the recursion limit.
    return type(value).__name__ if isinstance(value, list | dict) else repr(value)[:40]


def encode(rows: Any, places: AnyArray | None = None) -> list[bytes]:
    """Return rows, or those at ``places``, as bytes in the shortest form: equal features give equal bytes."""
    if not sp.issparse(rows):
        cells = np.asarray(rows if places is None else take_rows(rows, places))
        if cells.dtype.kind not in "biuf":
            return [_encode_cells(row) for row in cells.reshape(len(cells), -1).tolist()]
        rows, places = sp.csr_matrix(cells.astype(np.float64, copy=False)), None
    if places is None:
        places = np.arange(rows.shape[0])
    width = rows.shape[1]
    ones = (rows.data == 1).tolist()
    values, positions = rows.data.astype("<f8"), rows.indices.astype("<i4")
    encoded = []
    for start, end in zip(rows.indptr[places].tolist(), rows.indptr[places + 1].tolist(), strict=True):
        if False not in ones[start:end]:
            encoded.append(_ONES + positions[start:end].tobytes())
        elif 12 * (end - start) < 8 * width:
            encoded.append(_PAIRS + values[start:end].tobytes() + positions[start:end].tobytes())
        else:
            whole = np.zeros(width, dtype="<f8")
            whole[positions[start:end]] = values[start:end]
            encoded.append(_WHOLE + whole.tobytes())
    return encoded


def _encode_cells(row: list[Any]) -> bytes:
    """Return a row that may have text as bytes; without text they are those of its numbers.

    True and false are 1 and 0, as in other rows: the model knows which columns are boolean.
    """
    cells = [
        str(each) if isinstance(each, str) else None if is_missing(each) else float(each) + 0.0
        for each in row
    ]
    if any(type(cell) is str for cell in cells):
        return _TEXTS + orjson.dumps(cells)
    return encode(np.array([cells], dtype=np.float64))[0]


def decode(encoded: bytes) -> tuple[AnyArray, AnyArray]:
    """Return the positions and values of the features that are not zero; with text, missing ones are None."""
    form, rest = encoded[:1], encoded[1:]
    if form == _TEXTS:
        cells = orjson.loads(rest)
        kept = [position for position, cell in enumerate(cells) if cell != 0]
        return np.array(kept, dtype=np.int32), np.array([cells[i] for i in kept], dtype=object)
    if form == _ONES:
        positions = np.frombuffer(rest, dtype="<i4")
        return positions, np.ones(len(positions))
    if form == _PAIRS:
        n = len(rest) // 12
        return np.frombuffer(rest, dtype="<i4", offset=8 * n), np.frombuffer(rest, dtype="<f8", count=n)
    values = np.frombuffer(rest, dtype="<f8")
    positions = np.flatnonzero(values).astype(np.int32)
    return positions, values[positions]
