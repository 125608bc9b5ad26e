"""Estimates of the error among accepted answers from an audit of some of them."""

from typing import NamedTuple

import numpy as np

from transcendent._utils.arrays import BoolArray, FloatArray, IntArray


class AuditEstimate(NamedTuple):
    """The error among accepted answers, estimated from an audit.

    Attributes
    ----------
    error : float
        The estimate; NaN if nothing is known.
    low, high : float
        Its interval. That of a `HarmMonitor` holds with probability 1 - delta at all times; that of
        `Backtest.audit` with 95%, by a normal approximation.
    labels : int
        Number of audited answers.
    """

    error: float
    low: float
    high: float
    labels: int


def estimate_error(wrong: BoolArray, chance: FloatArray, n: int) -> AuditEstimate:
    """Estimate the share of wrong answers among n, given labelled ones and their chances of being chosen."""
    drawn = chance < 1
    # With two extra answers of either kind, a few labels without errors do not give an interval of width 0.
    share = (np.sum(wrong[drawn]) + 2) / (np.sum(drawn) + 4)
    variance = share * (1 - share) * np.sum((1 - chance[drawn]) / chance[drawn] ** 2)
    error, half = float(np.sum(wrong / chance)) / n, float(1.96 * np.sqrt(variance)) / n
    return AuditEstimate(error, max(error - half, 0.0), min(error + half, 1.0), len(wrong))


def drawn_in_every_period(accepted: IntArray, labelled: IntArray, drawn: IntArray) -> bool:
    """Return whether every period with unlabelled accepted objects has drawn ones; all given by period."""
    n = int(accepted.max(initial=-1)) + 1
    unseen = np.bincount(accepted, minlength=n) - np.bincount(labelled, minlength=n)
    return bool(np.isin(np.flatnonzero(unseen), drawn).all())
