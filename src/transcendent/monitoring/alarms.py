"""The moment at which evidence raises an alarm."""

import math
from typing import Any, NamedTuple

import numpy as np

from transcendent._utils.arrays import FloatArray
from transcendent.monitoring.state import check_counts, check_numbers


class Alarm(NamedTuple):
    """The moment at which evidence reached its threshold.

    Attributes
    ----------
    at : int
        Number of objects up to the alarm.
    log_value : float
        Logarithm of the evidence at that object.
    """

    at: int
    log_value: float

    @classmethod
    def from_json(cls, state: Any, n: int) -> "Alarm | None":
        """Return the alarm in a state, if any, that was raised within n objects."""
        if state is None:
            return None
        at, log_value = state
        check_counts(at=at, after=n - at)
        check_numbers(log_value=log_value)
        return cls(at, log_value)


def first_above(threshold: float, log_values: FloatArray, before: int) -> Alarm | None:
    """Return the alarm at the first value that reaches a threshold, given the number of objects before."""
    high = log_values >= math.log(threshold)
    if not high.any():
        return None
    first = int(np.argmax(high))
    return Alarm(before + first + 1, float(log_values[first]))
