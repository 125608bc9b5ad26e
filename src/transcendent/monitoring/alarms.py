"""When capital is high enough for an alarm: by the chance of any false alarm, or by the time between them."""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from transcendent._utils.arrays import FloatArray, IntArray
from transcendent.monitoring.martingales import HUNDRED, MARTINGALES, Betting, Martingale
from transcendent.monitoring.state import check_counts, check_fields, check_numbers

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

    @classmethod
    def from_json(cls, state: Any, n: int) -> "Alarm | None":
        """Return the alarm of a state, if any, that was raised within n objects."""
        if state is None:
            return None
        at, log_value = state
        check_counts(at=at, after=n - at)
        check_numbers(log_value=log_value)
        return cls(at, log_value)


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
        check_fields(state, "martingale", "n", "log_starts", "log_value", "alarm")
        n = state["n"]
        check_counts(n=n)
        martingale = MARTINGALES[betting].from_json(state["martingale"])
        check_counts(**{"number of p-values": n if martingale.n == n else -1})
        starts, value = (_log(state[name], n) for name in ("log_starts", "log_value"))
        return cls(martingale, rule, threshold, n, starts, value, Alarm.from_json(state["alarm"], n))


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
        check_fields(state, "parts", "log_value", "alarm")
        parts = [Evidence.from_json(part, betting, rule, threshold) for part in state["parts"]]
        if len(parts) != n_labels + 1 or sum(part.n for part in parts[:-1]) != parts[-1].n:
            raise ValueError("this state is damaged: its evidence is not that of these classes.")
        n = parts[-1].n
        return cls(parts, _log(state["log_value"], n), Alarm.from_json(state["alarm"], n))


def first_above(threshold: float, log_values: FloatArray, before: int) -> Alarm | None:
    """Return the alarm at the first value that reaches a threshold, after some objects before them."""
    high = log_values >= math.log(threshold)
    if not high.any():
        return None
    first = int(np.argmax(high))
    return Alarm(before + first + 1, float(log_values[first]))


def _log(state: Any, n: int) -> float:
    """Return the logarithm of a state after n objects; minus infinity, which is None, is before the first."""
    if state is None and n == 0:
        return -math.inf
    check_numbers(log_value=state)
    return float(state)


def _finite(log_value: float) -> float | None:
    return None if math.isinf(log_value) else log_value
