"""Checks of a monitor's state when it is read from text."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from transcendent._utils.arrays import FloatArray

_MAX_COUNT = 1 << 62


@contextmanager
def reading(text: str, kind: str, newest: int) -> Iterator[dict[str, Any]]:
    """Yield the state in a text; turn every error of reading it into a `ValueError`."""
    try:
        state = json.loads(text, parse_constant=_refuse)
        is_one = state["kind"] == kind
    except (ValueError, TypeError, KeyError, RecursionError):
        is_one = False
    if not is_one:
        raise ValueError(f"this is not the state of a {kind}: pass the text that its to_json returned.")
    if type(version := state.get("format")) is not int or version != newest:
        raise ValueError(f"the state has format {version!r}, but this version reads format {newest}.")
    try:
        yield state
    except (TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        raise ValueError(f"this state of a {kind} is damaged ({error}): start a new one.") from error


def check(holds: Any, problem: str) -> None:
    """Raise an error that states the problem of a damaged state, unless a condition holds."""
    if not holds:
        raise ValueError(f"this state is damaged: {problem}. Start a new monitor.")


def check_counts(**counts: Any) -> None:
    """Raise if a value is not a count."""
    for name, count in counts.items():
        check(type(count) is int and 0 <= count < _MAX_COUNT, f"{name} is {count!r:.40}")


def check_numbers(**numbers: Any) -> None:
    """Raise if a value is not a finite number."""
    for name, number in numbers.items():
        finite = type(number) in (int, float) and abs(number) <= sys.float_info.max
        check(finite, f"{name} is {number!r:.40}")


def check_fields(state: Any, *names: str) -> None:
    """Raise if fields are missing or unknown: a default in place of one would go unnoticed."""
    complete = type(state) is dict and set(state) == set(names)
    check(complete, f"{state!r:.80} does not have the fields {', '.join(names)}")


def as_numbers(values: Any, n: int, name: str) -> FloatArray:
    """Return a list of n finite numbers as an array."""
    check(type(values) is list and len(values) == n, f"{name} does not have {n} numbers")
    for value in values:
        check_numbers(**{name: value})
    return np.array(values, dtype=np.float64)


def _refuse(constant: str) -> float:
    raise ValueError(constant)
