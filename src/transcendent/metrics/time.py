"""One number for a metric over time."""

from typing import Any, NamedTuple

import numpy as np


class AreaUnderTime(NamedTuple):
    """Area under a metric's curve over time.

    Attributes
    ----------
    value : float
        Between the metric's smallest and largest value; NaN with fewer than two defined periods.
    periods : int
        Number of periods.
    undefined : tuple of int
        Positions of the periods in which the metric is undefined.
    """

    value: float
    periods: int
    undefined: tuple[int, ...]


def area_under_time(values: Any) -> AreaUnderTime:
    """Return the area under the values of N successive periods by trapezoids, over N − 1 (TESSERACT's AUT).

    A period in which the metric is undefined (NaN) does not count as 0. A straight line between its
    neighbours bridges it; at either end it is left out. ``undefined`` lists such periods.

    Parameters
    ----------
    values : array of shape (periods,)
        The metric in each period, in order.

    Examples
    --------
    >>> from transcendent.metrics import area_under_time
    >>> area_under_time([1.0, 0.5, 0.0])
    AreaUnderTime(value=0.5, periods=3, undefined=())
    >>> area_under_time([1.0, float("nan"), 0.0, float("nan")])
    AreaUnderTime(value=0.5, periods=4, undefined=(1, 3))
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"values must be one per period, got shape {array.shape}.")
    undefined = np.isnan(array)
    at = np.flatnonzero(~undefined)
    area = np.trapezoid(array[at], at) / (at[-1] - at[0]) if len(at) > 1 else np.nan
    return AreaUnderTime(float(area), len(array), tuple(np.flatnonzero(undefined).tolist()))
