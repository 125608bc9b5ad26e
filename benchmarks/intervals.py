"""How a figure over several seeds is shown."""

import re
from typing import Any

import numpy as np
from scipy.stats import t


def interval(values: Any, digits: int | None = None, sign: str = "") -> str:
    """Mean and the half-width of its 95% interval by Student's t, unless all values are the same."""
    if np.isnan(values).any():
        return "undefined"
    mean = float(np.mean(values))
    if digits is None:
        digits = 4 if abs(mean) < 0.1 else 3
    shown = f"{mean:{sign}.{digits}f}"
    if np.ptp(values) > 0:
        half = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
        shown = f"{shown} ± {half:.{digits}f}"
    return re.sub(r"\b0\.", ".", shown)
