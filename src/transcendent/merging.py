"""Merge several p-values of one object into one score by Fisher's rule.

The score only orders objects; calibration turns it into a p-value again.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from transcendent._utils.arrays import FloatArray, as_finite
from transcendent._utils.checks import check_choices

Bag = Literal["class", "all"]


@dataclass(frozen=True)
class Merging:
    """The rule that merges the p-values of members into one score: the weighted sum of -log p.

    Attributes
    ----------
    weights : array of shape (members,) or None
        The weight of each member; None weighs all equally.
    bag : {"class", "all"}
        The calibration objects that a new merged score is ranked among.
    absolute : tuple of int
        Positions of members whose scores have one scale for all classes. With ``bag="all"`` these members
        are also ranked among all objects, and the others within the class.

    Examples
    --------
    >>> from transcendent.merging import Merging
    >>> Merging().scores([[0.2, 0.9], [0.5, 0.5]]).round(2)
    array([1.71, 1.39])
    """

    weights: Any = None
    bag: Bag = "class"
    absolute: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_choices(Bag, bag=self.bag)
        if isinstance(self.weights, str):
            raise ValueError(f"weights must be numbers or None, not {self.weights!r}.")
        if self.weights is None:
            return
        numbers = as_finite(self.weights, "weights", ndim=1)
        if np.any(numbers < 0) or not numbers.any():
            raise ValueError(f"weights must not be negative, nor all be 0: {numbers.tolist()}.")

    def pools(self, member: int) -> bool:
        """Return whether the scores of a member are ranked among those of all objects."""
        return self.bag == "all" and member in self.absolute

    def check_members(self, n_members: int) -> None:
        """Refuse weights for a different number of members, and positions of members that do not exist."""
        check_absolute(self.absolute, n_members)
        if self.weights is not None and len(self.weights) != n_members:
            raise ValueError(f"there are {len(self.weights)} weights for {n_members} measures.")

    def scores(self, p: Any) -> FloatArray:
        """Turn (…, members) positive p-values into scores."""
        strangeness = -np.log(np.asarray(p, dtype=np.float64))
        weights = np.ones(strangeness.shape[-1]) if self.weights is None else np.asarray(self.weights)
        total: FloatArray = np.zeros(strangeness.shape[:-1])
        # A matrix product would round differently for different numbers of objects, and break ties.
        for m, weight in enumerate(weights):
            total += weight * strangeness[..., m]
        return total


def check_absolute(absolute: Any, n_members: int) -> tuple[int, ...]:
    """Return positions of members as a tuple; refuse invalid ones."""
    places = tuple(np.atleast_1d(np.asarray(absolute)).tolist())
    if not all(type(m) is int and 0 <= m < n_members for m in places):
        raise ValueError(f"absolute must be positions of members, 0 to {n_members - 1}, not {absolute!r}.")
    return places
