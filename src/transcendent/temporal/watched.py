"""Evidence and alarms of drift monitors during a backtest."""

from typing import NamedTuple

import numpy as np

from transcendent._utils.arrays import FloatArray
from transcendent._utils.text import some


class Watched(NamedTuple):
    """Evidence and alarms of a drift monitor by period.

    If objects are exchangeable with calibration, P(ever a false alarm) ≤ 1 / ``threshold`` for each kind of
    alarm until the rejector learns again. ``log_value`` is the logarithm of the evidence after each of
    ``periods``, which are those with objects. ``drift`` and ``more_rejected`` are the periods in which the
    monitor and its test of rejections raised an alarm.
    """

    threshold: float
    periods: tuple[str, ...]
    log_value: FloatArray
    drift: tuple[str, ...]
    more_rejected: tuple[str, ...]

    @classmethod
    def of(cls, threshold: float, by_period: dict[str, list[float]]) -> "Watched":
        """Read the evidence and alarms of each period from a manifest."""
        periods = tuple(by_period)
        value, drift, more = np.array(list(by_period.values())).T
        alarms = (tuple(np.array(periods)[raised > 0].tolist()) for raised in (drift, more))
        return cls(threshold, periods, value, *alarms)

    def __str__(self) -> str:
        unlike, more = (some(alarms) if alarms else "none" for alarms in (self.drift, self.more_rejected))
        return f"unlike calibration {unlike}; more rejected than calibration explains {more}"
