"""Check that a fitted detector is at the optimum that its shortcut starts from."""

import numpy as np

from transcendent._utils.arrays import FloatArray, IntArray
from transcendent.leave_one_out.shared import refuse_if

TOLERANCE, TOLERANCE_WITHIN = 0.05, 0.15
"""Largest distances from the optimum, as shares of the spread of decision values of all rows and within a
class. At scikit-learn's default tolerances, on scaled features and at C = 1, solvers stay below 0.02."""

_FINEST = 100
"""The spread within a class is taken to be at least that of all rows over this number, or over the size of
the class if that is smaller."""

_EQUAL = 1e-3
"""If values differ by less than this share of their size, most rows are alike (a class against a uniform
rest). Then only the few others have a spread, and nothing is clipped."""

_ROUNDING = 1e-12


def check_converged(fitted: FloatArray, optimum: FloatArray, codes: IntArray) -> None:
    """Raise `NoShortcutError` if a detector's decision values on its training rows are not the optimum's.

    The detector itself scores new objects, and left-out scores of a distant optimum are not comparable with
    theirs. Each column (a class) is measured by its own spread. So are the rows of each class in ``codes``:
    p-values compare rows within a class, and the spread of all rows hides a class that is rare or far away.
    """
    values = zip(*(np.reshape(v, (len(v), -1)).T for v in (fitted, optimum)), strict=True)
    together, within = np.max([_distances(ours, best, codes) for ours, best in values], axis=0)
    limits = ((together, TOLERANCE, ""), (within, TOLERANCE_WITHIN, " within a class"))
    for distance, allowed, where in limits:
        refuse_if(
            not distance <= allowed,
            f"the solver stopped short of its optimum, by {distance:.2g} of the spread of decision values"
            f"{where} (allowed: {allowed}); scale the features, raise max_iter or lower tol",
        )


def _distances(fitted: FloatArray, optimum: FloatArray, codes: IntArray) -> tuple[float, float]:
    """Return difference over spread: of all rows, and the largest within a class."""
    rounding = _ROUNDING * max(1.0, float(np.abs(optimum).max()))
    difference, spread = _difference(fitted, optimum, rounding)
    within = []
    for code in np.unique(codes):
        members = np.flatnonzero(codes == code)
        least = max(spread / min(_FINEST, len(members)), rounding)
        own_difference, own_spread = _difference(fitted[members], optimum[members], least)
        within.append(own_difference / own_spread)
    return difference / spread, float(np.max(within))


def _difference(fitted: FloatArray, optimum: FloatArray, least: float) -> tuple[float, float]:
    """Return the root mean square difference and the spread, with the outer twentieths clipped."""
    low, high = np.quantile(optimum, (0.05, 0.95))
    if high - low <= _EQUAL * np.median(np.abs(optimum)):
        low, high = -np.inf, np.inf
    fitted, optimum = (np.clip(values, low - least, high + least) for values in (fitted, optimum))
    return float(np.sqrt(np.mean((fitted - optimum) ** 2))), max(float(optimum.std()), least)
