"""A test of whether more objects are rejected than calibration explains."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from transcendent._utils.arrays import BoolArray
from transcendent.judging.calibration import Calibration
from transcendent.monitoring.alarms import Alarm, first_above
from transcendent.monitoring.state import check, check_counts, check_fields, check_numbers
from transcendent.thresholds import SearchResult

_RATES = np.arange(1, 20) / 20
"""Positions of the alternative rates between the expected rate (0) and 1."""


@dataclass
class Rejections:
    """The number of rejected objects, and an alarm when there are more than calibration explains.

    A sequential test that the rejection rate is at most ``expected``. If objects are exchangeable with
    calibration, it is with probability 1 - 1 / (2 threshold), whatever thresholds were chosen there. So
    P(ever a false alarm) ≤ 1 / threshold. This is proven for thresholds on the credibility of one measure,
    and an approximation for merged measures and for thresholds on both credibility and confidence.
    """

    calibrated: float
    expected: float
    threshold: float
    n: int = 0
    rejected: int = 0
    log_value: float = 0.0
    alarm: Alarm | None = None

    @classmethod
    def of(cls, calibration: Calibration, result: SearchResult, threshold: float) -> "Rejections":
        """Start from the calibration objects and thresholds of a rejector."""
        n, n_classes = len(calibration.actual), len(calibration.classes)
        # The Dvoretzky–Kiefer–Wolfowitz inequality for each class. It bounds all thresholds at once, so it
        # holds for the one that a search chose on the same objects.
        margin = n_classes * math.sqrt(math.log(2 * n_classes * threshold) / (2 * n))
        return cls(result.rejection_rate, min(1.0, result.rejection_rate + margin), threshold)

    @property
    def rate(self) -> float:
        """Share of rejected objects; NaN before the first object."""
        return self.rejected / self.n if self.n else math.nan

    def update(self, rejected: BoolArray) -> None:
        """Add objects, in order of arrival."""
        if len(rejected) == 0 or self.expected >= 1:
            self.n, self.rejected = self.n + len(rejected), self.rejected + int(np.sum(rejected))
            return
        at = np.union1d(np.flatnonzero(rejected), len(rejected) - 1)  # the evidence only falls at the others
        n = self.n + at + 1
        k = self.rejected + np.cumsum(rejected)[at]
        # The mean of the likelihood ratios of several higher rates.
        rates = self.expected + _RATES * (1 - self.expected)
        up, down = np.log(rates / self.expected), np.log((1 - rates) / (1 - self.expected))
        terms = k[:, None] * up + (n - k)[:, None] * down
        values = np.logaddexp.reduce(terms, axis=1) - math.log(len(rates))
        if self.alarm is None and (alarm := first_above(2 * self.threshold, values, 0)) is not None:
            self.alarm = Alarm(int(n[alarm.at - 1]), alarm.log_value)
        self.n, self.rejected, self.log_value = int(n[-1]), int(k[-1]), float(values[-1])

    def resumed(self, state: dict[str, Any], n: int) -> "Rejections":
        """Return these new counts with their state after n objects."""
        check_fields(state, *asdict(self))
        check_counts(n=n if state["n"] == n else -1, rejected=state["rejected"], kept=n - state["rejected"])
        check_numbers(log_value=state["log_value"])
        for name in ("calibrated", "expected", "threshold"):
            check(state[name] == getattr(self, name), f"{name} is {state[name]!r:.40}")
        return replace(self, **state | {"alarm": Alarm.from_json(state["alarm"], n)})

    def __repr__(self) -> str:
        rate = f"{self.rate:.1%}" if self.n else "nothing"
        return f"{rate} rejected (calibration {self.calibrated:.1%}, expected at most {self.expected:.1%})"
