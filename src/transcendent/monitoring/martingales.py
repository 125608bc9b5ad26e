"""Bets against uniform p-values: capital grows where objects stop being like calibration.

Under independent uniform p-values each capital is a martingale that starts at 1, so that it reaches c with
probability at most 1/c, ever (Ville). All arithmetic goes object by object, so that the size of batches
does not change a bit.
"""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from scipy.special import gammainc, gammaln, hyp1f1

from transcendent._utils.arrays import FloatArray
from transcendent.monitoring.state import as_numbers, check_counts, check_fields, check_numbers

Betting = Literal["jumper", "mixture"]

HUNDRED = 100
_JUMP = 0.1
_EPSILONS = np.array([[-1], [-0.5], [0], [0.5], [1]])
_SMALLEST = 2.0**-60
_UNDERFLOW = 1e-280
_ROUNDING = 1e-6


@dataclass
class Martingale(ABC):
    """The capital of a way to bet, as its logarithm, and the number of p-values so far."""

    log_value: float = 0.0
    n: int = 0

    @classmethod
    @abstractmethod
    def from_json(cls, state: dict[str, Any]) -> "Martingale":
        """Return the martingale that had this state."""

    @abstractmethod
    def update(self, p: FloatArray) -> FloatArray:
        """Bet on p-values, one after the other; return the logarithm of the capital after each."""

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain numbers."""
        state = asdict(self)
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in state.items()
        }


@dataclass
class Jumper(Martingale):
    """Bets that p-values are low, high or neither, and may change its mind at every hundredth object.

    The simple jumper of Vovk and others: factors 1 + ε (p − ½), here with ε in {−1, −½, 0, ½, 1}, since a
    whole bet on a small change loses. It forgets, so that it finds changes that come and go.

    Attributes
    ----------
    log_base : float
        Logarithm of the capital when it last could change its mind.
    shares, gains : arrays of shape (5,)
        How much of that was put on each ε, and the factor by which this has grown since.
    """

    log_base: float = 0.0
    shares: FloatArray = field(default_factory=lambda: np.full(5, 0.2))
    gains: FloatArray = field(default_factory=lambda: np.ones(5))

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> "Jumper":
        """Return the martingale that had this state."""
        check_fields(state, "log_value", "n", "log_base", "shares", "gains")
        check_counts(n=state["n"])
        check_numbers(log_value=state["log_value"], log_base=state["log_base"])
        shares, gains = (as_numbers(state[name], 5, name) for name in ("shares", "gains"))
        if shares.min() <= 0 or abs(shares.sum() - 1) > _ROUNDING or gains.min() <= 0:
            raise ValueError("this state is damaged: its bets are none.")
        return cls(state["log_value"], state["n"], state["log_base"], shares, gains)

    def update(self, p: FloatArray) -> FloatArray:
        """Bet on p-values, one after the other; return the logarithm of the capital after each."""
        if len(p) == 0:
            return p
        before, hundreds = self.n % HUNDRED, -(-(self.n % HUNDRED + len(p)) // HUNDRED)
        new = slice(before, before + len(p))
        factors = np.ones((5, hundreds * HUNDRED))
        factors[:, new] += _EPSILONS * (p - 0.5)
        factors[:, before] *= self.gains
        gains = np.multiply.accumulate(factors.reshape(5, hundreds, HUNDRED), axis=2)
        values = self._bet(gains, full=(before + len(p)) // HUNDRED).ravel()[new]
        self.n, self.log_value = self.n + len(p), float(values[-1])
        self.gains = gains[:, -1, -1] if self.n % HUNDRED else np.ones(5)
        return values

    def _bet(self, gains: FloatArray, full: int) -> FloatArray:
        """Return the logarithm of the capital, given what each ε gains in some hundreds of objects.

        After the full ones minds change.
        """
        shares = [self.shares]
        for ends in gains[:, :full, -1].T:
            capital = ends * shares[-1]
            shares.append(capital / capital.sum() * (1 - _JUMP) + _JUMP / 5)
        total = (gains * np.transpose(shares)[:, : gains.shape[1], None]).sum(axis=0)
        logs = np.log(total)
        bases = np.cumsum([self.log_base, *logs[:full, -1]])
        self.shares, self.log_base = shares[-1], float(bases[-1])
        return np.asarray(bases[: len(logs), None] + logs)


@dataclass
class Mixture(Martingale):
    """Bets that p-values are low: the mean of all powers ε p^(ε − 1) with ε from 0 to 1.

    It depends on the number of p-values and the sum of their logarithms alone.
    """

    surprise: float = 0.0

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> "Mixture":
        """Return the martingale that had this state."""
        check_fields(state, "log_value", "n", "surprise")
        check_counts(n=state["n"])
        check_numbers(log_value=state["log_value"], surprise=state["surprise"])
        if state["surprise"] < 0:
            raise ValueError("this state is damaged: its bets are none.")
        return cls(state["log_value"], state["n"], state["surprise"])

    def update(self, p: FloatArray) -> FloatArray:
        """Bet on p-values, one after the other; return the logarithm of the capital after each."""
        steps = -np.log(np.maximum(p, _SMALLEST))
        surprise = np.cumsum(np.concatenate([[self.surprise], steps]))[1:]
        values = _log_mixture(self.n + np.arange(1.0, len(p) + 1), surprise)
        if len(p):
            self.n, self.surprise, self.log_value = self.n + len(p), float(surprise[-1]), float(values[-1])
        return values


MARTINGALES: dict[str, type[Martingale]] = {"jumper": Jumper, "mixture": Mixture}


def _log_mixture(n: FloatArray, s: FloatArray) -> FloatArray:
    """Logarithm of the integral of ε^n e^((1−ε) s) over ε from 0 to 1.

    Where the incomplete gamma function, which gives it, is too small for a number, so is s beside n, and
    1F1(1, n + 2, s) / (n + 1) is exact.
    """
    gamma = gammainc(n + 1, s)
    small = gamma < _UNDERFLOW
    with np.errstate(divide="ignore"):
        values: FloatArray = s + gammaln(n + 1) + np.log(gamma) - (n + 1) * np.log(s)
    values[small] = np.log(hyp1f1(1.0, n[small] + 2, s[small])) - np.log(n[small] + 1)
    return values
