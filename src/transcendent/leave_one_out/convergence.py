"""Whether a fitted detector is at the optimum that its shortcut starts from."""

import numpy as np

from transcendent._utils.arrays import FloatArray, IntArray
from transcendent.errors import NoShortcutError

TOLERANCE = 0.05
"""Of the spread of decision values. Solvers that converge at scikit-learn's default tolerances come within
0.02 on scaled features at C = 1."""

TOLERANCE_WITHIN = 0.15
"""Of their spread within a class."""

_FINEST = 100
"""The spread within a class counts as no less than this part of that of all rows; within a class of fewer
members, as the part that their number says, since they lie about so far apart."""

_EQUAL = 1e-3
"""Values within this share of their size are those of a class against a rest that is all alike: its few rows
are what spreads."""

_ROUNDING = 1e-12


def check_converged(fitted: FloatArray, optimum: FloatArray, codes: IntArray) -> None:
    """Raise `NoShortcutError` if a detector's decision values on its training rows are not the optimum's.

    New objects are scored by the detector as it is: left-out scores of the optimum would not compare with
    theirs. Columns are classes, each with a spread of its own. So has each class of rows, which ``codes``
    tell: p-values compare its members, and all rows together hide a rare class or one far from the others.
    """
    values = zip(*(np.reshape(v, (len(v), -1)).T for v in (fitted, optimum)), strict=True)
    together, within = np.max([_distances(ours, best, codes) for ours, best in values], axis=0)
    _check(together, TOLERANCE, "decision values")
    _check(within, TOLERANCE_WITHIN, "decision values within a class")


def _check(distance: float, allowed: float, what: str) -> None:
    if not distance <= allowed:
        raise NoShortcutError(
            f"the solver stopped short of its optimum, by {distance:.2g} of the spread of {what} "
            f"(allowed: {allowed}); scale the features, raise max_iter or lower tol"
        )


def _distances(fitted: FloatArray, optimum: FloatArray, codes: IntArray) -> tuple[float, float]:
    """Differences in deviations: of all rows, and the largest within a class."""
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
    """Root mean square of the differences, and the spread; the outer twentieths count as no further out."""
    low, high = np.quantile(optimum, (0.05, 0.95))
    if high - low <= _EQUAL * np.median(np.abs(optimum)):
        low, high = -np.inf, np.inf
    fitted, optimum = (np.clip(values, low - least, high + least) for values in (fitted, optimum))
    return float(np.sqrt(np.mean((fitted - optimum) ** 2))), max(float(optimum.std()), least)
