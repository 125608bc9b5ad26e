"""Objects as a detector's answers: scores by column and a label, by which a judge of scores decides.

An object has an ``id``, ``scores``, and a ``label`` if the detector's answers have a column of their own.
Its ``features`` are optional: they are shown and exported, and never used to decide.
"""

from typing import Any

import numpy as np

from transcendent._utils.arrays import AnyArray, IntArray
from transcendent._utils.text import some
from transcendent.gate import origin
from transcendent.gate.features import (
    BadObjectError,
    Group,
    ObjectProblem,
    Parsed,
    as_numbers,
    check_id,
    in_short,
    read_origin,
)
from transcendent.tables.answers import ScoreColumns
from transcendent.tables.layout import Kind, Layout

_FIELDS = frozenset(["id", "scores", "label", "features"]) | origin.FIELDS
_MAX_EXACT = 1 << 53  # the largest whole number up to which all are exact as floating point


def layout_of(columns: ScoreColumns) -> Layout:
    """Return the layout of rows that have a detector's scores and, in a column of its own, its label."""
    kinds: dict[str, Kind] = dict.fromkeys(columns.scores, "number")
    dtypes = dict.fromkeys(columns.scores, "float64")
    if columns.own_answer is not None:
        kinds[columns.own_answer], dtypes[columns.own_answer] = _kind_and_type(columns.classes)
    return Layout(len(kinds), list(kinds), kinds, dtypes, scores=columns.scores)


def _kind_and_type(classes: tuple[Any, ...]) -> tuple[Kind, str]:
    types = set(map(type, classes))
    if types == {bool}:
        return "boolean", "bool"
    if types <= {int, float} and all(abs(label) <= _MAX_EXACT for label in classes):
        return "number", "int64" if types == {int} else "float64"
    return "text", "object"


def read_scores(columns: ScoreColumns, layout: Layout, objects: list[Any]) -> Parsed:
    """Return objects as rows of a layout; a problem with one does not affect the others."""
    parsed = Parsed(ids=[each.get("id") if type(each) is dict else None for each in objects])
    read: dict[int, list[Any]] = {}
    for place, each in enumerate(objects):
        try:
            check_id(each)
            read[place] = _cells(columns, each)
            if not (origin.FIELDS | {"features"}).isdisjoint(each):
                parsed.origins[place] = read_origin(each, features=True)
        except BadObjectError as error:
            parsed.problems[place] = ObjectProblem(*error.args)
            read.pop(place, None)
    if read:
        places, (rows, unknown) = np.array(list(read)), _rows(columns, layout, list(read.values()))
        for place in places[unknown].tolist():
            parsed.problems[place] = _no_class(columns, objects[place])
        if len(unknown) < len(places):
            parsed.groups = [Group(np.delete(places, unknown), rows)]
    return parsed


def _rows(columns: ScoreColumns, layout: Layout, cells: list[list[Any]]) -> tuple[Any, IntArray]:
    """Return cells with known labels as a frame, and the places of the others."""
    sent = _columns(columns, cells)
    answers, unknown = columns.read(sent)
    if columns.own_answer is not None:  # "1", 1 and true may be the same class: keep one of them
        is_text = columns.own_answer in layout.text
        sent[columns.own_answer] = answers.labels.astype(str).astype(object) if is_text else answers.labels
    return layout.frame({name: np.delete(column, unknown) for name, column in sent.items()}), unknown


def _columns(columns: ScoreColumns, rows: list[list[Any]]) -> dict[str, AnyArray]:
    cells = list(zip(*rows, strict=True))
    found: dict[str, AnyArray] = {
        name: np.array(column, dtype=np.float64) for name, column in zip(columns.scores, cells, strict=False)
    }
    if columns.own_answer is not None:
        found[columns.own_answer] = np.array(cells[-1], dtype=object)
    return found


def _cells(columns: ScoreColumns, each: dict[str, Any]) -> list[Any]:
    """Return the scores of an object and its label, if it needs one."""
    if odd := sorted(each.keys() - _FIELDS):
        raise BadObjectError(odd[0][:80], f"this gate judges scores: send {_wanted(columns)}.")
    given = each.get("scores")
    if type(given) is not dict or given.keys() != set(columns.scores):
        names = some([repr(name) for name in columns.scores], 10)
        raise BadObjectError("scores", f"scores must map {names} to numbers, and nothing else.")
    scores = as_numbers([[given[name] for name in columns.scores]], "scores", columns.scores).tolist()
    for name, score in zip(columns.scores, scores, strict=True):
        if score != score:
            raise BadObjectError(f"scores.{name:.80}", "the score is missing (null).")
    if columns.own_answer is None:
        if "label" in each:
            raise BadObjectError("label", "the answer follows from the scores: leave label out.")
        return list(scores)
    if each.get("label") is None:
        raise BadObjectError("label", f"the label is missing: send {_wanted(columns)}.")
    if type(each["label"]) not in (str, int, float, bool):
        raise BadObjectError("label", f"{in_short(each['label'])} is not a label.")
    return [*scores, each["label"]]


def _wanted(columns: ScoreColumns) -> str:
    return "scores" if columns.own_answer is None else "scores and label, the detector's answer"


def _no_class(columns: ScoreColumns, each: dict[str, Any]) -> ObjectProblem:
    field = "scores" if columns.own_answer is None else "label"
    said = in_short(next(iter(each["scores"].values())) if field == "scores" else each["label"])
    return ObjectProblem(
        field, f"{said} is not one of the classes {some(list(map(repr, columns.classes)), 5)}."
    )
