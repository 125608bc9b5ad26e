"""State of monitors as text."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from transcendent._utils.arrays import FloatArray

_MOST = 1 << 62


@contextmanager
def reading(text: str, kind: str, newest: int) -> Iterator[dict[str, Any]]:
    """Give the state in a text to be read; what is wrong with it is raised as a `ValueError` that says so."""
    try:
        state = json.loads(text, parse_constant=_refuse)
        is_one = state["kind"] == kind
    except (ValueError, TypeError, KeyError, RecursionError):
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
        if type(count) is not int or not 0 <= count < _MOST:
            raise ValueError(f"this state is damaged: {name} is {count!r:.40}.")


def check_numbers(**numbers: Any) -> None:
    """Refuse what is no finite number."""
    for name, number in numbers.items():
        if type(number) not in (int, float) or not abs(number) <= sys.float_info.max:
            raise ValueError(f"this state is damaged: {name} is {number!r:.40}.")


def check_fields(state: Any, *names: str) -> None:
    """Refuse a state without one of its parts: it would start anew without a word."""
    if type(state) is not dict or set(state) != set(names):
        raise ValueError(f"this state is damaged: {state!r:.80} does not have the parts {', '.join(names)}.")


def as_numbers(values: Any, n: int, name: str) -> FloatArray:
    """Return n finite numbers; refuse anything else."""
    if type(values) is not list or len(values) != n:
        raise ValueError(f"this state is damaged: {name} does not have {n} numbers.")
    for value in values:
        check_numbers(**{name: value})
    return np.array(values, dtype=np.float64)


def _refuse(constant: str) -> float:
    raise ValueError(constant)
