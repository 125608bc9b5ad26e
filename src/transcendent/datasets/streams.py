"""Synthetic streams with chosen amounts of one or more kinds of drift."""

import math
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from scipy.special import ndtri
from sklearn.utils import check_random_state

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray
from transcendent._utils.checks import check_shares
from transcendent._utils.extras import extra
from transcendent.datasets.base import Dataset

Pattern = Literal["gradual", "sudden", "recurring", "new_class"]

_SIGNAL = 0.98
_MAX_SHIFT = 3.0
_MAX_ODDS_RATIO = 10.0
_NEW_SHARE = 0.3
_NEW_PLACE = 4.0
_MIN_FEATURES = 4


def make_stream(
    n_objects: int = 12_000,
    n_periods: int = 12,
    *,
    n_features: int = 10,
    positive_share: float = 0.3,
    pattern: Pattern = "gradual",
    covariate: float = 0.0,
    prior: float = 0.0,
    concept: float = 0.0,
    start: str = "2020-01",
    random_state: Any = None,
) -> Dataset:
    """Draw a stream of two classes over months, with a chosen amount of each kind of drift.

    The strength t of the drift follows the pattern, month by month, from 0 to at most 1. For each object:

    - its label y is 1 with probability p(t), whose odds are ``10 ** (prior * t)`` times those of
      ``positive_share``;
    - its signal is ``s = 0.98 * z + sqrt(1 - 0.98 ** 2) * noise``, where z is a standard normal drawn above
      (y = 1) or below (y = 0) the quantile b that has ``positive_share`` above it;
    - features 0 and 1 are s and a standard normal, rotated by the angle ``concept * t * π / 2``;
    - feature 2 is a standard normal plus ``3 * covariate * t``, and the others are standard normal.

    With ``prior=0`` the signal is standard normal, so the features are normal around
    ``(0, 0, 3 * covariate * t, 0, …)`` with unit covariance at any angle, and
    ``P(y = 1 | x) = Φ((0.98 * s - b) / sqrt(1 - 0.98 ** 2))``, where s is x along the rotated direction.
    Each kind of drift alone therefore has an exact meaning:

    - *covariate* changes P(x), but not P(y | x) or the class shares;
    - *prior* changes the class shares, but not P(x | y); P(x) and P(y | x) follow from them;
    - *concept* changes P(y | x), but not P(x) or the class shares. At 1 and full strength, the direction
      that separated the classes carries no information.

    Parameters
    ----------
    n_objects : int
        Number of objects, spread evenly over the periods.
    n_periods : int
        Number of months, at least 2.
    n_features : int
        Number of columns, at least 4.
    positive_share : float
        Share of class 1 in the first month.
    pattern : {"gradual", "sudden", "recurring", "new_class"}
        Course of the strength: linear from 0 to 1; from 0 to 1 at once in the middle; up and down every six
        months; or 0 until the middle and then linear to 1, where a share ``0.3 * t`` of each month is of a
        new class (label 2), normal around 4 in feature 3 whatever the drift.
    covariate, prior, concept : float
        Amount of each drift, from 0 (none) to 1.
    start : str
        The first month.
    random_state : int, RandomState or None
        Seed of all draws.

    Returns
    -------
    Dataset
        X is dense, y is 0, 1 or 2, times are in seconds.

    Examples
    --------
    >>> from transcendent.datasets import make_stream
    >>> import numpy as np
    >>> stream = make_stream(prior=1, pattern="sudden", random_state=0)
    >>> stream
    sudden stream: 12,000 objects (0: 5,274, 1: 6,726), 10 columns, 2020-01-01T...
    >>> late = stream.times >= np.datetime64("2020-07")
    >>> print(f"{stream.y[~late].mean():.2f} {stream.y[late].mean():.2f}")
    0.31 0.81
    """
    _check(
        n_objects, n_periods, n_features, positive_share, covariate=covariate, prior=prior, concept=concept
    )
    generator = check_random_state(random_state)
    periods = np.arange(n_objects) * n_periods // n_objects
    strength = _strengths(pattern, n_periods)[periods]
    odds = positive_share / (1 - positive_share) * _MAX_ODDS_RATIO ** (prior * strength)
    y = (generator.random_sample(n_objects) < odds / (1 + odds)).astype(np.intp)
    X = generator.standard_normal((n_objects, n_features))
    angles = concept * strength * np.pi / 2
    cos, sin, signal, noise = np.cos(angles), np.sin(angles), _signal(y, positive_share, generator), X[:, 1]
    X[:, :2] = np.stack([cos * signal - sin * noise, sin * signal + cos * noise], axis=1)
    X[:, 2] += _MAX_SHIFT * covariate * strength
    if pattern == "new_class":
        _add_new_class(X, y, _NEW_SHARE * strength, generator)
    return Dataset(X, y, _draw_times(start, periods, generator), name=f"{pattern} stream")


def write_example(labelled: Path, unlabelled: Path) -> None:
    """Write a drifting stream as two CSV files: ten months with verdicts, and two later months without."""
    stream = make_stream(6000, n_features=6, concept=0.6, random_state=0)
    frame = extra("pandas", "cli").DataFrame(stream.X.round(4), columns=[f"f{i}" for i in range(6)])
    frame.insert(0, "id", [f"object-{i:04}" for i in range(len(stream))])
    frame.insert(1, "first_seen", stream.times.astype(str))
    frame["verdict"] = np.where(stream.y == 1, "malicious", "benign")
    frame[:5000].to_csv(labelled, index=False)
    frame[5000:].drop(columns="verdict").to_csv(unlabelled, index=False)


def _strengths(pattern: Pattern, n_periods: int) -> FloatArray:
    """Return the strength of the drift in each period."""
    periods, middle = np.arange(n_periods, dtype=np.float64), n_periods // 2
    match pattern:
        case "gradual":
            return periods / (n_periods - 1)
        case "sudden":
            return np.where(periods < middle, 0.0, 1.0)
        case "recurring":
            return (1 - np.cos(np.pi * periods / 3)) / 2
        case "new_class":
            return np.maximum(0, periods - middle + 1) / (n_periods - middle)
    raise ValueError(f"pattern must be one of {', '.join(get_args(Pattern))}, got {pattern!r}.")


def _signal(y: IntArray, positive_share: float, generator: Any) -> FloatArray:
    """Return normal variables that almost separate the classes."""
    tail = 1 - generator.random_sample(len(y))
    latent: FloatArray = np.where(y == 1, -ndtri(positive_share * tail), ndtri((1 - positive_share) * tail))
    noise: FloatArray = generator.standard_normal(len(y))
    return _SIGNAL * latent + math.sqrt(1 - _SIGNAL**2) * noise


def _add_new_class(X: FloatArray, y: IntArray, shares: FloatArray, generator: Any) -> None:
    new = generator.random_sample(len(y)) < shares
    y[new] = 2
    X[new] = generator.standard_normal((int(new.sum()), X.shape[1]))
    X[new, 3] += _NEW_PLACE


def _draw_times(start: str, periods: IntArray, generator: Any) -> AnyArray:
    try:
        first = np.datetime64(datetime.strptime(start, "%Y-%m"), "M")
    except ValueError:
        raise ValueError(f"start must be a month such as 2020-01, got {start!r}.") from None
    opens = (first + periods).astype("datetime64[s]")
    seconds = ((first + periods + 1).astype("datetime64[s]") - opens).astype(np.int64)
    within = (generator.random_sample(len(periods)) * seconds).astype(np.int64)
    return np.sort(opens + within)


def _check(n_objects: int, n_periods: int, n_features: int, positive_share: float, **drifts: float) -> None:
    if n_periods < 2:
        raise ValueError(f"n_periods must be at least 2, got {n_periods}.")
    if n_objects < n_periods:
        raise ValueError(f"n_objects must be at least n_periods ({n_periods}), got {n_objects}.")
    if n_features < _MIN_FEATURES:
        raise ValueError(f"n_features must be at least {_MIN_FEATURES}, got {n_features}.")
    check_shares(ends="excluded", positive_share=positive_share)
    for name, amount in drifts.items():
        if not 0 <= amount <= 1:
            raise ValueError(f"{name} must be from 0 (no drift) to 1, got {amount}.")
