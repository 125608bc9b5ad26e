"""The error among accepted answers, from labels whose chances of being chosen are known."""

from typing import NamedTuple

import numpy as np

from transcendent._utils.arrays import BoolArray, FloatArray, IntArray


class Audit(NamedTuple):
    """What labels say about the error among accepted answers.

    Attributes
    ----------
    error, half : float
        The estimate, and half of its 95% interval (normal approximation); NaN if nothing was audited.
    labels : int
        Number of accepted answers that were labelled.
    """

    error: float
    half: float
    labels: int


def drawn_in_every_period(accepted: IntArray, labelled: IntArray, drawn: IntArray) -> bool:
    """Whether some were drawn in every period that has accepted objects without a label, given periods."""
    n = int(accepted.max(initial=-1)) + 1
    unseen = np.bincount(accepted, minlength=n) - np.bincount(labelled, minlength=n)
    return bool(np.isin(np.flatnonzero(unseen), drawn).all())


def estimate_error(wrong: BoolArray, chance: FloatArray, n: int) -> Audit:
    """Estimate the share of wrong answers among n, given some of them with their chances of being labelled.

    The interval takes the errors among those drawn for alike in all periods, and two more of either kind
    for seen, so that few labels without an error do not promise that there is none.
    """
    drawn = chance < 1
    share = (np.sum(wrong[drawn]) + 2) / (np.sum(drawn) + 4)
    variance = share * (1 - share) * np.sum((1 - chance[drawn]) / chance[drawn] ** 2)
    return Audit(float(np.sum(wrong / chance)) / n, float(1.96 * np.sqrt(variance)) / n, len(wrong))
