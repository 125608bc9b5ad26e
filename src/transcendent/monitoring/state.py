"""State of monitors as text."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def reading(text: str, kind: str, newest: int) -> Iterator[dict[str, Any]]:
    """Give the state in a text to be read; what is wrong with it is raised as a `ValueError` that says so."""
    try:
        state = json.loads(text, parse_constant=_refuse)
        is_one = state["kind"] == kind
    except (ValueError, TypeError, KeyError):
        is_one = False
    if not is_one:
        raise ValueError(f"this is not the state of a {kind}: that is the text which its to_json returned.")
    if type(version := state.get("format")) is not int or version != newest:
        raise ValueError(f"the state has format {version!r}, and this transcendent reads {newest}.")
    try:
        yield state
    except (TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        raise ValueError(f"this state of a {kind} is damaged ({error}): start a new one.") from error


def check_counts(**counts: Any) -> None:
    """Refuse what is no number of things."""
    for name, count in counts.items():
        if type(count) is not int or count < 0:
            raise ValueError(f"this state is damaged: {name} is {count!r}.")


def _refuse(constant: str) -> float:
    raise ValueError(constant)
