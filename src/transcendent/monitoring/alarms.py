"""When capital is high enough for an alarm: by the chance of any false alarm, or by the time between them."""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from transcendent._utils.arrays import FloatArray, IntArray
from transcendent.monitoring.martingales import HUNDRED, MARTINGALES, Betting, Martingale
from transcendent.monitoring.state import check_counts

Rule = Literal["ville", "cusum", "shiryaev-roberts"]


class Alarm(NamedTuple):
    """An alarm.

    Attributes
    ----------
    at : int
        How many objects had come when it was raised.
    log_value : float
        Logarithm of the evidence then.
    """

    at: int
    log_value: float


@dataclass
class Evidence:
    """What a martingale gained against objects like calibration, and the alarm when that is enough.

    ``"ville"`` splits its capital over changes that begin at every hundredth object, so that a long quiet
    time costs little: P(ever a false alarm) ≤ 1 / threshold. ``"shiryaev-roberts"`` starts anew with
    capital 1 at every object, ``"cusum"`` takes the best of these starts: the mean number of objects to a
    false alarm is at least the threshold.
    """

    martingale: Martingale
    rule: Rule
    threshold: float
    n: int = 0
    log_starts: float = -math.inf
    """Logarithm of the sum, or of the largest, of one over the capital at each start, weighted."""
    log_value: float = 0.0
    alarm: Alarm | None = None

    @classmethod
    def start(cls, betting: Betting, rule: Rule, threshold: float) -> "Evidence":
        """Start with nothing seen; only "ville" has capital then."""
        value = 0.0 if rule == "ville" else -math.inf
        return cls(MARTINGALES[betting](), rule, threshold, log_value=value)

    def update(self, p: FloatArray) -> FloatArray:
        """Take in p-values; return the logarithm of the evidence after each."""
        if len(p) == 0:
            return p
        before = self.martingale.log_value
        after = self.martingale.update(p)
        starts = -np.concatenate([[before], after[:-1]])
        start, begins = np.divmod(self.n + np.arange(len(p)), HUNDRED)
        if self.rule == "ville":
            shares = 1 / np.log2(start + 2) - 1 / np.log2(start + 3)
            starts = np.where(begins == 0, starts + np.log(shares), -np.inf)
        together = np.maximum if self.rule == "cusum" else np.logaddexp
        open_ = together.accumulate(np.concatenate([[self.log_starts], starts]))[1:]
        values = after + open_
        if self.rule == "ville":
            values = np.logaddexp(values, -np.log(np.log2(start + 3)))  # what has not been bet yet
        self.alarm = self.alarm or first_above(self.threshold, values, self.n)
        self.n, self.log_starts, self.log_value = self.n + len(p), float(open_[-1]), float(values[-1])
        return values

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain numbers; minus infinity is None."""
        return {
            "martingale": self.martingale.to_json(),
            "n": self.n,
            "log_starts": _finite(self.log_starts),
            "log_value": _finite(self.log_value),
            "alarm": None if self.alarm is None else list(self.alarm),
        }

    @classmethod
    def from_json(cls, state: dict[str, Any], betting: Betting, rule: Rule, threshold: float) -> "Evidence":
        """Return the evidence that had this state."""
        check_counts(n=state["n"])
        starts, value = (
            -math.inf if state[name] is None else state[name] for name in ("log_starts", "log_value")
        )
        alarm = None if state["alarm"] is None else Alarm(*state["alarm"])
        martingale = MARTINGALES[betting](**state["martingale"])
        return cls(martingale, rule, threshold, state["n"], starts, value, alarm)


@dataclass
class JointEvidence:
    """Evidence of the objects of each predicted label and, last, of all objects: the mean of these.

    A change in a rare label drowns among all objects, and one that is small in every label shows only there.
    The mean of capitals is a capital, so that the promises of the rules hold for it.
    """

    parts: list[Evidence]
    log_value: float
    alarm: Alarm | None = None

    @classmethod
    def start(cls, n_labels: int, betting: Betting, rule: Rule, threshold: float) -> "JointEvidence":
        """Start with nothing seen."""
        parts = [Evidence.start(betting, rule, threshold) for _ in range(n_labels + 1)]
        return cls(parts, parts[0].log_value)

    @property
    def n(self) -> int:
        """Number of objects so far."""
        return self.parts[-1].n

    def update(self, codes: IntArray, p: FloatArray) -> FloatArray:
        """Take in p-values of objects with these labels; return the logarithm of the mean after each."""
        n, *of_labels, together = self.n, *self.parts
        values = together.update(p)
        for c, part in enumerate(of_labels):
            own = codes == c
            since = np.concatenate([[part.log_value], part.update(p[own])])
            values = np.logaddexp(values, since[np.cumsum(own)])
        values = values - math.log(len(self.parts))
        self.alarm = self.alarm or first_above(together.threshold, values, n)
        self.log_value = float(values[-1])
        return values

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain numbers."""
        return {
            "parts": [part.to_json() for part in self.parts],
            "log_value": _finite(self.log_value),
            "alarm": None if self.alarm is None else list(self.alarm),
        }

    @classmethod
    def from_json(
        cls, state: dict[str, Any], n_labels: int, betting: Betting, rule: Rule, threshold: float
    ) -> "JointEvidence":
        """Return the evidence that had this state."""
        parts = [Evidence.from_json(part, betting, rule, threshold) for part in state["parts"]]
        if len(parts) != n_labels + 1:
            raise ValueError("this state is damaged: its evidence is not that of these classes.")
        value = -math.inf if state["log_value"] is None else state["log_value"]
        return cls(parts, value, None if state["alarm"] is None else Alarm(*state["alarm"]))


def first_above(threshold: float, log_values: FloatArray, before: int) -> Alarm | None:
    """Return the alarm at the first value that reaches a threshold, after some objects before them."""
    high = log_values >= math.log(threshold)
    if not high.any():
        return None
    first = int(np.argmax(high))
    return Alarm(before + first + 1, float(log_values[first]))


def _finite(log_value: float) -> float | None:
    return None if math.isinf(log_value) else log_value
