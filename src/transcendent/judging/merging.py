"""Merge several p-values of one object into one score by Fisher's rule.

The rule orders objects. Calibration says what the order is worth: it turns the merged score into a p-value.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from transcendent._utils.arrays import FloatArray, as_finite

Bag = Literal["class", "all"]


@dataclass(frozen=True)
class Merging:
    """How the p-values of the members become one score, higher = stranger: the weighted sum of -log p.

    Attributes
    ----------
    weights : array of shape (members,) or None
        How much each member counts: equally if None.
    bag : {"class", "all"}
        Among whose merged scores a new one is ranked.
    absolute : tuple of int
        Positions of members whose scores of all classes are on one scale. If the bag is of all objects, they
        are ranked among all, too, the others within the class.

    Examples
    --------
    >>> from transcendent.judging.merging import Merging
    >>> Merging().scores([[0.2, 0.9], [0.5, 0.5]]).round(2)
    array([1.71, 1.39])
    """

    weights: Any = None
    bag: Bag = "class"
    absolute: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.bag not in get_args(Bag):
            raise ValueError(f"bag must be one of {get_args(Bag)}, not {self.bag!r}.")
        if isinstance(self.weights, str):
            raise ValueError(f"weights must be numbers or None, not {self.weights!r}.")
        if self.weights is None:
            return
        numbers = as_finite(self.weights, "weights", ndim=1)
        if np.any(numbers < 0) or not numbers.any():
            raise ValueError(f"weights must not be negative, nor all be 0: {numbers.tolist()}.")

    def pools(self, member: int) -> bool:
        """Whether the scores of a member are ranked among those of all objects."""
        return self.bag == "all" and member in self.absolute

    def check_members(self, n_members: int) -> None:
        """Refuse weights for another number of members, and members that do not exist."""
        check_absolute(self.absolute, n_members)
        if self.weights is not None and len(self.weights) != n_members:
            raise ValueError(f"there are {len(self.weights)} weights for {n_members} measures.")

    def scores(self, p: Any) -> FloatArray:
        """Turn (…, members) positive p-values into scores."""
        strangeness = -np.log(np.asarray(p, dtype=np.float64))
        weights = np.ones(strangeness.shape[-1]) if self.weights is None else np.asarray(self.weights)
        total: FloatArray = np.zeros(strangeness.shape[:-1])
        # Member by member, not as a product: rounded alike however many objects there are, so ties stay ties.
        for m, weight in enumerate(weights):
            total += weight * strangeness[..., m]
        return total


def check_absolute(absolute: Any, n_members: int) -> tuple[int, ...]:
    """Return positions of members; refuse anything else."""
    places = tuple(np.atleast_1d(np.asarray(absolute)).tolist())
    if not all(type(m) is int and 0 <= m < n_members for m in places):
        raise ValueError(f"absolute has positions of members, from 0 to {n_members - 1}, not {absolute!r}.")
    return places
