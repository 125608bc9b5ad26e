"""Several p-values of one object made into one score, so that different kinds of evidence can be added.

The rules order objects; what the order is worth is for calibration to say, which turns the merged score
into a p-value again. Fisher's statistic and the geometric mean therefore give the same p-values.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from transcendent.arrays import BoolArray, FloatArray, as_finite

Rule = Literal["fisher", "geometric", "minimum", "cauchy"]
Bag = Literal["class", "all"]

_NEARLY_ONE = 0.99
"""Cauchy's rule would let one p-value of 1 outweigh all others."""


@dataclass(frozen=True)
class Merging:
    """How the p-values of the parts become one score, higher = stranger.

    Attributes
    ----------
    rule : {"fisher", "geometric", "minimum", "cauchy"}
        Sum of -log p; the geometric mean of p; the smallest p; sum of the quantiles p has in Cauchy's
        distribution.
    weights : array of shape (parts,), "learned" or None
        How much each part counts: equally if None. Learned ones separate the right answers about
        calibration objects from the wrong ones.
    bag : {"class", "all"}
        Among whose merged scores a new one is ranked.

    Examples
    --------
    >>> from transcendent.merging import Merging
    >>> Merging("minimum").scores([[0.2, 0.9], [0.5, 0.5]])
    array([-0.2, -0.5])
    """

    rule: Rule = "fisher"
    weights: Any = None
    bag: Bag = "class"

    def __post_init__(self) -> None:
        if self.rule not in get_args(Rule):
            raise ValueError(f"rule must be one of {get_args(Rule)}, not {self.rule!r}.")
        if self.bag not in get_args(Bag):
            raise ValueError(f"bag must be one of {get_args(Bag)}, not {self.bag!r}.")
        if self.weights is None:
            return
        if self.rule == "minimum":
            raise ValueError("the smallest p-value has no weights: weights=None, or another rule.")
        if isinstance(self.weights, str):
            if self.weights != "learned":
                raise ValueError(f"weights must be numbers, 'learned' or None, not {self.weights!r}.")
        elif np.any((numbers := as_finite(self.weights, "weights", ndim=1)) < 0) or not numbers.any():
            raise ValueError(f"weights must not be negative, nor all be 0: {numbers.tolist()}.")

    @property
    def to_learn(self) -> bool:
        """Whether the weights are still to be learned."""
        return isinstance(self.weights, str)

    def check_parts(self, n_parts: int) -> None:
        """Refuse weights for another number of parts."""
        if self.weights is not None and not self.to_learn and len(self.weights) != n_parts:
            raise ValueError(f"there are {len(self.weights)} weights for {n_parts} measures.")

    def learned(self, p: FloatArray, wrong: BoolArray) -> Self:
        """With weights under which wrong answers are the strangest, given (n, parts) p-values."""
        return replace(self, weights=_learned_weights(-np.log(p), wrong))

    def scores(self, p: Any) -> FloatArray:
        """(…, parts) positive p-values to scores."""
        values = np.asarray(p, dtype=np.float64)
        weights = np.ones(values.shape[-1]) if self.weights is None else np.asarray(self.weights)
        return _RULES[self.rule](values, weights)


def _fisher(p: FloatArray, weights: FloatArray) -> FloatArray:
    return _sum(-np.log(p), weights)


def _geometric(p: FloatArray, weights: FloatArray) -> FloatArray:
    mean: FloatArray = -np.exp(_sum(np.log(p), weights) / weights.sum())
    return mean


def _minimum(p: FloatArray, weights: FloatArray) -> FloatArray:  # noqa: ARG001
    smallest: FloatArray = -p.min(axis=-1)
    return smallest


def _cauchy(p: FloatArray, weights: FloatArray) -> FloatArray:
    return _sum(np.tan((0.5 - np.minimum(p, _NEARLY_ONE)) * np.pi), weights)


def _sum(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Part by part, and not as a product: rounded alike however many objects there are, so that ties stay."""
    total = np.zeros(values.shape[:-1])
    for m, weight in enumerate(weights):
        total += weight * values[..., m]
    return total


_RULES: dict[str, Callable[[FloatArray, FloatArray], FloatArray]] = {
    "fisher": _fisher,
    "geometric": _geometric,
    "minimum": _minimum,
    "cauchy": _cauchy,
}


def _learned_weights(strangeness: FloatArray, wrong: BoolArray) -> FloatArray:
    """Non-negative weights of a logistic regression, right and wrong answers counting the same in all.

    They are drawn to 1 as if by one wrong answer, so that few errors change little and none nothing.
    """
    n_parts, n_wrong = strangeness.shape[1], int(wrong.sum())
    start = np.append(np.ones(n_parts), 0.0)
    if n_wrong in (0, len(wrong)):
        return start[:-1]
    share = np.where(wrong, 0.5 / n_wrong, 0.5 / (len(wrong) - n_wrong))
    sign = np.where(wrong, 1.0, -1.0)

    def loss(theta: FloatArray) -> tuple[float, FloatArray]:
        margin = sign * (strangeness @ theta[:-1] + theta[-1])
        pull = theta[:-1] - 1
        slope = -share * sign * expit(-margin)
        value = share @ np.logaddexp(0, -margin) + pull @ pull / (2 * n_wrong)
        return value, np.append(slope @ strangeness + pull / n_wrong, slope.sum())

    bounds = [(0.0, None)] * n_parts + [(None, None)]
    weights: FloatArray = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x[:-1]
    return weights if weights.any() else start[:-1]
