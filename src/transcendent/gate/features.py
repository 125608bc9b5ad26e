"""Objects as they are sent, as rows for a detector, and as bytes in the database.

An object has an ``id`` and its features in one of three forms: ``values`` alone, one number a feature;
``positions`` and ``values``, the features that are not zero; or ``features``, numbers by name. ``null`` is a
missing value.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import AnyArray, FloatArray
from transcendent._utils.extras import extra
from transcendent._utils.text import some, suggestion

LONGEST_ID = 200

_NUMBERS = {int, float, bool, type(None)}
_FORMS = {
    frozenset(["id", "values"]): "dense",
    frozenset(["id", "positions", "values"]): "sparse",
    frozenset(["id", "features"]): "named",
}
_ONES, _PAIRS, _WHOLE = b"\x01", b"\x02", b"\x03"


class Problem(NamedTuple):
    """What is wrong with an object, and where."""

    field: str
    message: str


class BadObjectError(Exception):
    """An object cannot be read."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(field, message)


@dataclass(frozen=True)
class Group:
    """Objects of one form: their places in the request, and their rows."""

    places: AnyArray
    rows: Any


@dataclass
class Parsed:
    """Objects that were read, by form, and problems of the others, by place."""

    ids: list[Any]
    groups: list[Group] = field(default_factory=list)
    problems: dict[int, Problem] = field(default_factory=dict)


class Layout:
    """The features of a detector: their number, and their names if it knows any."""

    def __init__(self, width: int, names: Sequence[str] | None = None) -> None:
        self.width = width
        self.names = None if names is None else list(map(str, names))
        self._known = set(self.names or ())
        self._suggested: dict[str, str] = {}

    def read(self, objects: list[Any]) -> Parsed:
        """Return the objects as rows; a problem with one is no problem of the others."""
        self._suggested.clear()
        parsed = Parsed(ids=[each.get("id") if type(each) is dict else None for each in objects])
        readers = {"dense": self._dense, "sparse": self._sparse, "named": self._named}
        for form, places in _by_form(objects, parsed).items():
            if group := self._read_form(readers[form], objects, places, parsed.problems):
                parsed.groups.append(group)
        return parsed

    def _read_form(
        self,
        read: Callable[[list[Any]], Any],
        objects: list[Any],
        places: list[int],
        problems: dict[int, Problem],
    ) -> Group | None:
        try:
            return Group(np.array(places), read([objects[place] for place in places]))
        except BadObjectError:
            pass
        good = []
        for place in places:
            try:
                read([objects[place]])
                good.append(place)
            except BadObjectError as error:
                problems[place] = error.problem
        return Group(np.array(good), read([objects[place] for place in good])) if good else None

    def _dense(self, objects: list[Any]) -> Any:
        for each in objects:
            if type(each["values"]) is not list:
                raise BadObjectError("values", "values is a list of numbers.")
            if len(each["values"]) != self.width:
                raise BadObjectError(
                    "values",
                    f"{len(each['values'])} values; the detector was fitted on {self.width} features.",
                )
        numbers = _numbers([each["values"] for each in objects], "values")
        return self.framed(numbers.reshape(len(objects), self.width))

    def _sparse(self, objects: list[Any]) -> Any:
        positions, values = ([each[name] for each in objects] for name in ("positions", "values"))
        for name, lists in (("positions", positions), ("values", values)):
            if set(map(type, lists)) != {list}:
                raise BadObjectError(name, f"{name} is a list of numbers.")
        lengths = list(map(len, positions))
        if lengths != list(map(len, values)):
            raise BadObjectError("values", f"{len(values[0])} values for {lengths[0]} positions.")
        indices = self._positions(positions)
        starts = np.cumsum([0, *lengths], dtype=np.int64)
        return _canonical(_numbers(values, "values"), indices, starts, self.width)

    def _positions(self, lists: list[list[Any]]) -> AnyArray:
        flat = list(chain.from_iterable(lists))
        if set(map(type, flat)) <= {int} and (not flat or 0 <= min(flat) <= max(flat) < self.width):
            return np.array(array("i", flat))
        where, bad = next(
            (where, position)
            for where, position in enumerate(flat)
            if type(position) is not int or not 0 <= position < self.width
        )
        raise BadObjectError(
            f"positions[{where}]", f"{_shown(bad)} is not a whole number from 0 to {self.width - 1}."
        )

    def _named(self, objects: list[Any]) -> Any:
        if self.names is None:
            raise BadObjectError("features", "the detector was fitted without names: send values.")
        rows = []
        for each in objects:
            given = each["features"]
            if type(given) is not dict:
                raise BadObjectError("features", "features is an object: a number by the name of a feature.")
            if given.keys() != self._known:
                self._refuse_names(given)
            rows.append([given[name] for name in self.names])
        return self.framed(_numbers(rows, "features", self.names).reshape(len(objects), self.width))

    def _refuse_names(self, given: dict[str, Any]) -> None:
        if unknown := sorted(given.keys() - self._known):
            raise BadObjectError(f"features.{unknown[0]:.80}", f"no such feature{self._close_to(unknown[0])}")
        missing = sorted(self._known - given.keys())
        raise BadObjectError("features", f"missing: {some(missing)}; null is a missing value.")

    def _close_to(self, name: str) -> str:
        """The end of a sentence about an unknown name: a search of many, or for many, takes too long."""
        if len(self._known) <= 100 and not self._suggested:
            self._suggested[name] = suggestion(name[:80], self._known)
        return self._suggested.get(name, ".")

    def framed(self, numbers: FloatArray) -> Any:
        """Return rows as the detector was fitted on them: a frame, if it knows names."""
        if self.names is None:
            return numbers
        return extra("pandas", "gate").DataFrame(numbers, columns=self.names)


def _by_form(objects: list[Any], parsed: Parsed) -> dict[str, list[int]]:
    """Return the places of the objects of each form, and write down problems of the others."""
    if objects and _are_named(parsed.ids) and len(shapes := set(map(tuple, objects))) == 1:
        form = _FORMS.get(frozenset(shapes.pop()))
        if form is not None:
            return {form: list(range(len(objects)))}
    found: dict[str, list[int]] = {}
    for place, each in enumerate(objects):
        try:
            found.setdefault(_form(each), []).append(place)
        except BadObjectError as error:
            parsed.problems[place] = error.problem
    return found


def _are_named(ids: list[Any]) -> bool:
    if set(map(type, ids)) != {str}:
        return False
    return "".join(ids).isprintable() and min(map(len, ids)) > 0 and max(map(len, ids)) <= LONGEST_ID


def _form(each: Any) -> str:
    if type(each) is not dict:
        raise BadObjectError("", "an object is a JSON object with an id and features.")
    if "id" not in each:
        raise BadObjectError("id", "an object needs an id.")
    if not _are_named([each["id"]]):
        raise BadObjectError("id", f"an id is a text of 1 to {LONGEST_ID} printable characters.")
    form = _FORMS.get(frozenset(each))
    if form is None:
        unknown = sorted(each.keys() - {"id", "values", "positions", "features"})
        raise BadObjectError(
            unknown[0][:80] if unknown else "",
            "features are given in one form: values, positions and values, or features by name.",
        )
    return form


def _numbers(lists: list[Any], field: str, names: Sequence[str] | None = None) -> FloatArray:
    """Return the numbers of all lists in one array: true and false are 1 and 0, null is NaN."""

    def at(where: int) -> str:
        return f"{field}[{where}]" if names is None else f"{field}.{names[where % len(names)]:.80}"

    flat = list(chain.from_iterable(lists))
    try:
        numbers = np.array(array("d", flat))
    except TypeError:
        for where, value in enumerate(flat):
            if type(value) not in _NUMBERS:
                raise BadObjectError(at(where), f"{_shown(value)} is not a number.") from None
        numbers = np.array(flat, dtype=np.float64)
    if np.isinf(numbers).any():
        where = int(np.flatnonzero(np.isinf(numbers))[0])
        raise BadObjectError(at(where), "a number is finite.")
    return numbers


def _shown(value: Any) -> str:
    return type(value).__name__ if isinstance(value, list | dict) else repr(value)[:40]  # which may be deep


def _canonical(values: FloatArray, indices: AnyArray, starts: AnyArray, width: int) -> sp.csr_matrix:
    """Return rows with sorted positions and without zeros; refuse a position that is given twice."""
    rows = sp.csr_matrix((values, indices, starts), shape=(len(starts) - 1, width))
    rising = np.diff(indices) > 0
    ends = starts[1:-1] - 1
    rising[ends[(ends >= 0) & (ends < len(rising))]] = True
    if not rising.all():
        rows.sort_indices()
        same = np.diff(rows.indices) == 0
        owner = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        if (same & (np.diff(owner) == 0)).any():
            raise BadObjectError("positions", "a position is given twice.")
    if (values == 0).any():
        rows.eliminate_zeros()
    return rows


def encode(rows: Any, places: AnyArray | None = None) -> list[bytes]:
    """Return rows, or those at some places, as bytes: the same for the same features in whatever form."""
    if not sp.issparse(rows):
        dense = np.asarray(rows, dtype=np.float64)
        rows, places = sp.csr_matrix(dense if places is None else dense[places]), None
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


def decode(encoded: bytes) -> tuple[AnyArray, FloatArray]:
    """Return the positions and values that are not zero."""
    form, rest = encoded[:1], encoded[1:]
    if form == _ONES:
        positions = np.frombuffer(rest, dtype="<i4")
        return positions, np.ones(len(positions))
    if form == _PAIRS:
        n = len(rest) // 12
        return np.frombuffer(rest, dtype="<i4", offset=8 * n), np.frombuffer(rest, dtype="<f8", count=n)
    values = np.frombuffer(rest, dtype="<f8")
    positions = np.flatnonzero(values).astype(np.int32)
    return positions, values[positions]


def encode_p_values(p_values: FloatArray) -> list[bytes]:
    """Return the p-values of each object as bytes, in the order of the classes."""
    return [row.tobytes() for row in p_values.astype("<f8")]


def decode_p_values(encoded: bytes) -> list[float]:
    """Return the p-values of an object."""
    found: list[float] = np.frombuffer(encoded, dtype="<f8").tolist()
    return found
