"""Read the bodies of requests for decisions, and write those of their answers."""

import json
from typing import Any

import orjson

from transcendent.decisions import DOUBTS, Decisions
from transcendent.gate.features import Problems


class RefusedError(Exception):
    """A request is refused, with a status and a reason."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class NoJSONError(RefusedError):
    """The body of a request is not JSON."""


def read_objects(body: bytes, max_objects: int, *, leniently: bool = False) -> list[Any]:
    """Return the objects of a request; ``leniently`` also reads NaN and other deviations from JSON."""
    read = _read_leniently(body) if leniently else _read(body)
    if type(read) is not dict or read.keys() != {"objects"} or type(read["objects"]) is not list:
        raise RefusedError(422, 'the body must be {"objects": [...]} and nothing else.')
    if (n := len(read["objects"])) > max_objects:
        raise RefusedError(413, f"{n:,} objects; a request has at most {max_objects:,}: send fewer at once.")
    return list(read["objects"])


def _read(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except ValueError as error:
        raise NoJSONError(400, f"the body is not JSON: {error!s:.200}") from None


def _read_leniently(body: bytes) -> Any:
    """Parse JSON that may contain NaN, infinity or halves of characters, as some programs write it.

    Python's parser accepts these, but is many times slower than orjson.
    """
    try:
        return json.loads(body.decode(), parse_constant=_Constant, parse_int=_whole_number)
    except (ValueError, RecursionError):
        return _read(body)  # raises an error that describes the problem


class _Constant(str):
    """NaN or Infinity in a request. The gate accepts neither: null is a missing value."""

    __repr__ = str.__str__


def _whole_number(digits: str) -> int | float:
    return int(digits) if len(digits) < 20 else float(digits)  # inf if there are too many


def to_answers(ids: list[str], decisions: Decisions) -> list[dict[str, Any]]:
    """Return the decisions as one dictionary per object."""
    nothing: list[Any] = [None] * len(decisions)
    doubts, accepted = nothing, decisions.accepted.tolist()
    if decisions.doubts is not None:
        kinds = zip(decisions.doubts.tolist(), accepted, strict=True)
        doubts = [None if is_accepted else DOUBTS[kind] for kind, is_accepted in kinds]
    votes = nothing if decisions.votes is None else decisions.votes.tolist()
    credibility, confidence = decisions.credibility.tolist(), decisions.confidence.tolist()
    columns = zip(
        ids, decisions.labels.tolist(), accepted, credibility, confidence, votes, doubts, strict=True
    )
    return [
        {
            "id": name,
            "label": label,
            "accepted": is_accepted,
            "credibility": p_value,
            "confidence": other,
            "votes": of_folds,
            "doubt": doubt,
        }
        for name, label, is_accepted, p_value, other, of_folds, doubt in columns
    ]


def write_answer(
    model: str,
    answers: list[dict[str, Any] | None],
    ids: list[Any],
    problems: Problems,
    cutoff: int | None = None,
    *,
    observed: bool = False,
) -> tuple[int, bytes]:
    """Return status and body: 200, or 422 with the problems and the decisions about the other objects."""
    notes = ({} if cutoff is None else {"cutoff": cutoff}) | ({"observed": True} if observed else {})
    decided = {"model": model, **notes, "decisions": answers}
    if not problems:
        return 200, orjson.dumps(decided)
    errors = [
        {
            "field": _as_text(f"objects[{place}]" + (f".{problem.field}" if problem.field else "")),
            "id": _as_text(ids[place]) if type(ids[place]) is str and len(ids[place]) < 1000 else None,
            "message": problem.message,
        }
        for place, problem in sorted(problems.items())
    ]
    detail = f"{len(errors)} of {len(answers)} objects cannot be decided; errors says why."
    details = {"title": "Unprocessable", "status": 422, "detail": detail, "errors": errors}
    return 422, orjson.dumps({**details, **decided})


def _as_text(given: str) -> str:
    """Escape halves of characters, which cannot be written."""
    return given.encode(errors="backslashreplace").decode()
