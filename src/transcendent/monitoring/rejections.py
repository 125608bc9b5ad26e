"""Are more objects rejected than calibration explains?"""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from transcendent._utils.arrays import BoolArray
from transcendent.judging.calibration import Calibration
from transcendent.monitoring.alarms import Alarm, first_above
from transcendent.monitoring.state import check_counts, check_fields, check_numbers
from transcendent.thresholds import SearchResult

_RATES = np.arange(1, 20) / 20
"""How far alternatives lie between the rate to exceed and 1."""


@dataclass
class Rejections:
    """Counts rejections, and raises an alarm when they are more than calibration explains.

    A sequential test that the rate of rejection is at most ``expected``, which with probability
    1 - 1 / (2 threshold) it is if objects are exchangeable with calibration, whatever thresholds were chosen
    there; so P(ever a false alarm) ≤ 1 / threshold. This is proven for thresholds on the credibility of one
    measure; for merged measures, and thresholds on credibility and confidence both, it is an approximation.

    Attributes
    ----------
    calibrated, expected : float
        Share rejected in calibration, and the largest that calibration allows for.
    threshold : float
        One over the chance of a false alarm.
    n, rejected : int
        Number of objects so far, and of those rejected.
    log_value : float
        Logarithm of the evidence.
    alarm : Alarm or None
        The first alarm.
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
        # Dvoretzky, Kiefer and Wolfowitz for each class: whatever threshold was chosen, its share is as near.
        near = n_classes * math.sqrt(math.log(2 * n_classes * threshold) / (2 * n))
        rate = result.rejection_rate
        return cls(rate, min(1.0, rate + near), threshold)

    @property
    def rate(self) -> float:
        """Share of rejected objects, NaN before the first object."""
        return self.rejected / self.n if self.n else math.nan

    def update(self, rejected: BoolArray) -> None:
        """Take in objects, in order of arrival."""
        if len(rejected) == 0 or self.expected >= 1:
            self.n, self.rejected = self.n + len(rejected), self.rejected + int(np.sum(rejected))
            return
        at = np.union1d(np.flatnonzero(rejected), len(rejected) - 1)  # the evidence falls at all others
        n = self.n + at + 1
        k = self.rejected + np.cumsum(rejected)[at]
        values = self._log_values(n, k)
        if self.alarm is None and (alarm := first_above(2 * self.threshold, values, 0)) is not None:
            self.alarm = Alarm(int(n[alarm.at - 1]), alarm.log_value)
        self.n, self.rejected, self.log_value = int(n[-1]), int(k[-1]), float(values[-1])

    def _log_values(self, n: Any, k: Any) -> Any:
        """Mean of the likelihood ratios of some higher rates, as logarithms."""
        rates = self.expected + _RATES * (1 - self.expected)
        up, down = np.log(rates / self.expected), np.log((1 - rates) / (1 - self.expected))
        terms = k[:, None] * up + (n - k)[:, None] * down
        return np.logaddexp.reduce(terms, axis=1) - math.log(len(rates))

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain numbers."""
        return asdict(self) | {"alarm": None if self.alarm is None else list(self.alarm)}

    def resumed(self, state: dict[str, Any], n: int) -> "Rejections":
        """Return what had this state after n objects, and started as this one did."""
        check_fields(state, *asdict(self))
        check_counts(n=n if state["n"] == n else -1, rejected=state["rejected"], kept=n - state["rejected"])
        check_numbers(log_value=state["log_value"])
        for name in ("calibrated", "expected", "threshold"):
            if state[name] != getattr(self, name):
                raise ValueError(f"this state is damaged: {name} is {state[name]!r:.40}.")
        alarm = Alarm.from_json(state["alarm"], n)
        return replace(self, **{name: state[name] for name in ("n", "rejected", "log_value")}, alarm=alarm)

    def __repr__(self) -> str:
        rate = f"{self.rate:.1%}" if self.n else "nothing"
        return f"{rate} rejected (calibration {self.calibrated:.1%}, which explains {self.expected:.1%})"
