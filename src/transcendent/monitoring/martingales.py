"""Bets against uniform p-values. Their capital grows when objects stop being like calibration objects.

If p-values are independent and uniform, each capital is a martingale that starts at 1. It then ever reaches c
with probability at most 1/c (Ville's inequality). All arithmetic goes object by object, so results do not
depend on the size of batches.
"""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Self

import numpy as np
from scipy.special import gammainc, gammaln, hyp1f1

from transcendent._utils.arrays import FloatArray
from transcendent.monitoring.state import as_numbers, check, check_counts, check_fields, check_numbers

Betting = Literal["jumper", "mixture"]

HUNDRED = 100
_JUMP = 0.1
_EPSILONS = np.array([[-1], [-0.5], [0], [0.5], [1]])
_MIN_P = 2.0**-60  # a p-value of 0 would give infinite capital
_UNDERFLOW = 1e-280
_ROUNDING = 1e-6


@dataclass
class Martingale(ABC):
    """The logarithm of a bettor's capital, and the number of p-values so far."""

    log_value: float = 0.0
    n: int = 0

    @abstractmethod
    def update(self, p: FloatArray) -> FloatArray:
        """Bet on one or more p-values in their order; return the logarithm of the capital after each."""

    @abstractmethod
    def is_possible(self) -> bool:
        """Return whether bets can lead to this state."""

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain numbers."""
        return {name: np.asarray(value).tolist() for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Self:
        """Return the martingale with this state."""
        check_fields(state, *(field.name for field in fields(cls)))
        check_counts(n=state["n"])
        lists = [name for name in ("shares", "gains") if name in state]
        arrays: dict[str, Any] = {name: as_numbers(state[name], 5, name) for name in lists}
        check_numbers(**{name: value for name, value in state.items() if name not in ("n", *lists)})
        martingale = cls(**state | arrays)
        check(martingale.is_possible(), "no bets lead to its capital")
        return martingale


@dataclass
class Jumper(Martingale):
    """Bets that p-values are low, high or neither, with a tenth of the capital moved every hundred objects.

    The simple jumper of Vovk and others: factors 1 + ε (p − ½), here with ε in {−1, −½, 0, ½, 1}, since a
    large bet on a small change loses. Moving capital back to every ε finds changes that come and go.
    ``log_base`` is the logarithm of the capital when it was last moved, ``shares`` are its shares on each ε,
    and ``gains`` the factors by which these have grown since.
    """

    log_base: float = 0.0
    shares: FloatArray = field(default_factory=lambda: np.full(5, 0.2))
    gains: FloatArray = field(default_factory=lambda: np.ones(5))

    def is_possible(self) -> bool:
        """Return whether shares are positive and sum to 1, and gains are positive."""
        positive = min(self.shares.min(), self.gains.min()) > 0
        return bool(positive and abs(self.shares.sum() - 1) <= _ROUNDING)

    def update(self, p: FloatArray) -> FloatArray:
        """Bet on p-values, one after the other; return the logarithm of the capital after each."""
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
        """Return the logarithm of the capital, given the gains of each ε within each hundred objects.

        Capital is moved after each of the ``full`` hundreds that are complete.
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

    It depends only on the number of p-values and ``surprise``, minus the sum of their logarithms.
    """

    surprise: float = 0.0

    def is_possible(self) -> bool:
        """Return whether the surprise is not negative."""
        return self.surprise >= 0

    def update(self, p: FloatArray) -> FloatArray:
        """Bet on p-values, one after the other; return the logarithm of the capital after each."""
        steps = -np.log(np.maximum(p, _MIN_P))
        surprise = np.cumsum(np.concatenate([[self.surprise], steps]))[1:]
        values = _log_mixture(self.n + np.arange(1.0, len(p) + 1), surprise)
        self.n, self.surprise, self.log_value = self.n + len(p), float(surprise[-1]), float(values[-1])
        return values


MARTINGALES: dict[str, type[Martingale]] = {"jumper": Jumper, "mixture": Mixture}


def _log_mixture(n: FloatArray, s: FloatArray) -> FloatArray:
    """Return the logarithm of the integral of ε^n e^((1−ε) s) over ε from 0 to 1.

    It is a lower incomplete gamma function. That underflows where s is small compared with n; there the
    integral is computed as 1F1(1, n + 2, s) / (n + 1).
    """
    gamma = gammainc(n + 1, s)
    small = gamma < _UNDERFLOW
    with np.errstate(divide="ignore"):
        values: FloatArray = s + gammaln(n + 1) + np.log(gamma) - (n + 1) * np.log(s)
    values[small] = np.log(hyp1f1(1.0, n[small] + 2, s[small])) - np.log(n[small] + 1)
    return values
