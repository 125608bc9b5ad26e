"""Whether a fitted detector is at the optimum that its shortcut starts from."""

import numpy as np

from transcendent.arrays import FloatArray
from transcendent.errors import NoShortcutError

TOLERANCE = 0.05
"""Of the spread of decision values. Promised rejection rates then hold to about a hundredth; solvers that
converge at scikit-learn's default tolerances come within 0.02 on scaled features at C = 1."""

_EQUAL = 1e-3
"""Values within this share of their size are those of a class against a rest that is all alike: its few rows
are what spreads."""

_ROUNDING = 1e-12


def check_converged(fitted: FloatArray, optimum: FloatArray) -> None:
    """Raise `NoShortcutError` if a detector's decision values on its training rows are not the optimum's.

    New objects are scored by the detector as it is: left-out scores of the optimum would not compare with
    theirs. Columns are classes, each with a spread of its own.
    """
    values = zip(*(np.reshape(v, (len(v), -1)).T for v in (fitted, optimum)), strict=True)
    distance = max(_distance(*column) for column in values)
    if not distance <= TOLERANCE:
        raise NoShortcutError(
            f"the solver stopped short of its optimum, by {distance:.2g} of the spread of decision values "
            f"(allowed: {TOLERANCE}); scale the features, raise max_iter or lower tol"
        )


def _distance(fitted: FloatArray, optimum: FloatArray) -> float:
    """Root mean square of the differences, in deviations; the outer twentieths count as no further out."""
    low, high = np.quantile(optimum, (0.05, 0.95))
    if high - low <= _EQUAL * np.median(np.abs(optimum)):
        low, high = -np.inf, np.inf
    fitted, optimum = np.clip(fitted, low, high), np.clip(optimum, low, high)
    difference = np.sqrt(np.mean((fitted - optimum) ** 2))
    return float(difference / max(optimum.std(), _ROUNDING * max(1.0, np.abs(optimum).max())))
