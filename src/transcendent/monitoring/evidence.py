"""Evidence from bets, and the rules by which it raises an alarm."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from transcendent._utils.arrays import FloatArray, IntArray
from transcendent.monitoring.alarms import Alarm, first_above
from transcendent.monitoring.martingales import HUNDRED, MARTINGALES, Betting, Martingale
from transcendent.monitoring.state import check, check_fields, check_numbers

Rule = Literal["ville", "cusum", "shiryaev-roberts"]


@dataclass
class Evidence:
    """Evidence against "nothing has changed", and the first alarm that it raised.

    ``"ville"`` splits its capital over changes that begin at every hundredth object, so a long quiet time
    costs little: P(ever a false alarm) ≤ 1 / threshold. ``"shiryaev-roberts"`` adds a capital of 1 at every
    object, and ``"cusum"`` takes the best of these starts: with both, a false alarm takes at least as many
    objects as the threshold on average.
    """

    martingale: Martingale
    rule: Rule
    threshold: float
    log_starts: float = -math.inf
    """Logarithm of the sum (of "cusum", the maximum) of weight / capital over the starts so far."""
    log_value: float = 0.0
    alarm: Alarm | None = None

    @classmethod
    def of(cls, betting: Betting, rule: Rule, threshold: float, state: Any = None) -> "Evidence":
        """Start before the first object, when only "ville" has capital, or resume from a state."""
        if state is None:
            value = 0.0 if rule == "ville" else -math.inf
            return cls(MARTINGALES[betting](), rule, threshold, log_value=value)
        check_fields(state, "martingale", "log_starts", "log_value", "alarm")
        check_numbers(log_starts=state["log_starts"], log_value=state["log_value"])
        martingale = MARTINGALES[betting].from_json(state["martingale"])
        alarm = Alarm.from_json(state["alarm"], martingale.n)
        return cls(martingale, rule, threshold, state["log_starts"], state["log_value"], alarm)

    @property
    def n(self) -> int:
        """Number of objects so far."""
        return self.martingale.n

    def update(self, p: FloatArray) -> FloatArray:
        """Add p-values; return the logarithm of the evidence after each."""
        if len(p) == 0:
            return p
        n, before = self.n, self.martingale.log_value
        after = self.martingale.update(p)
        # A bet that starts at s is worth (capital now) / (capital at s). The terms 1 / (capital at s) are
        # summed as objects come; the sum is multiplied by the capital now.
        starts = -np.concatenate([[before], after[:-1]])
        start, begins = np.divmod(n + np.arange(len(p)), HUNDRED)
        if self.rule == "ville":
            shares = 1 / np.log2(start + 2) - 1 / np.log2(start + 3)  # they sum to 1 over all starts
            starts = np.where(begins == 0, starts + np.log(shares), -np.inf)
        combine = np.maximum if self.rule == "cusum" else np.logaddexp
        so_far = combine.accumulate(np.concatenate([[self.log_starts], starts]))[1:]
        values = after + so_far
        if self.rule == "ville":
            values = np.logaddexp(values, -np.log(np.log2(start + 3)))  # the shares of later starts
        self.alarm = self.alarm or first_above(self.threshold, values, n)
        self.log_starts, self.log_value = float(so_far[-1]), float(values[-1])
        return values

    def to_json(self) -> dict[str, Any] | None:
        """Return the state as plain numbers; None before the first object."""
        if self.n == 0:
            return None
        numbers = {"log_starts": self.log_starts, "log_value": self.log_value}
        return {"martingale": self.martingale.to_json(), **numbers, "alarm": self.alarm}


@dataclass
class JointEvidence:
    """The mean of the evidence of each predicted label and, as the last member, of all objects.

    A change in one rare label shows only among its own objects. A change that is small in every label shows
    only among all objects. The mean of capitals is a capital, so it keeps the promises of the rules.
    """

    members: list[Evidence]
    log_value: float
    alarm: Alarm | None = None

    @classmethod
    def of(
        cls, n_labels: int, betting: Betting, rule: Rule, threshold: float, state: Any = None
    ) -> "JointEvidence":
        """Start before the first object, or resume from a state."""
        if state is None:
            members = [Evidence.of(betting, rule, threshold) for _ in range(n_labels + 1)]
            return cls(members, members[0].log_value)
        check_fields(state, "members", "log_value", "alarm")
        check_numbers(log_value=state["log_value"])
        members = [Evidence.of(betting, rule, threshold, member) for member in state["members"]]
        complete = len(members) == n_labels + 1 and sum(member.n for member in members[:-1]) == members[-1].n
        check(complete, "its evidence is not that of these classes")
        return cls(members, state["log_value"], Alarm.from_json(state["alarm"], members[-1].n))

    @property
    def n(self) -> int:
        """Number of objects so far."""
        return self.members[-1].n

    def update(self, codes: IntArray, p: FloatArray) -> FloatArray:
        """Add p-values of objects with these labels; return the logarithm of the mean after each."""
        n, *of_labels, of_all = self.n, *self.members
        values = of_all.update(p)
        for c, member in enumerate(of_labels):
            own = codes == c
            since = np.concatenate([[member.log_value], member.update(p[own])])
            values = np.logaddexp(values, since[np.cumsum(own)])
        values = values - math.log(len(self.members))
        self.alarm = self.alarm or first_above(of_all.threshold, values, n)
        self.log_value = float(values[-1])
        return values

    def to_json(self) -> dict[str, Any] | None:
        """Return the state as plain numbers; None before the first object."""
        if self.n == 0:
            return None
        members = [member.to_json() for member in self.members]
        return {"members": members, "log_value": self.log_value, "alarm": self.alarm}
