"""How a figure over several seeds is shown."""

import re
from typing import Any

import numpy as np
from scipy.stats import t


def half_width(values: Any) -> Any:
    """Half a 95% interval of the mean by Student's t, along the first axis."""
    n = len(values)
    return t.ppf(0.975, n - 1) * np.std(values, axis=0, ddof=1) / np.sqrt(n)


def interval(values: Any, digits: int | None = None, sign: str = "") -> str:
    """Mean and half its 95% interval, unless all values are the same; a dash if it is undefined."""
    if np.isnan(values).any():
        return "–"
    mean = float(np.mean(values))
    if digits is None:
        digits = 4 if abs(mean) < 0.1 else 3
    shown = f"{mean:{sign}.{digits}f}"
    if np.ptp(values) > 0:
        shown = f"{shown} ± {half_width(values):.{digits}f}"
    return re.sub(r"\b0\.", ".", shown)
