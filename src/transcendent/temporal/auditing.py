"""What labels with known chances say about accepted answers, and what monitors saw."""

from typing import NamedTuple

import numpy as np

from transcendent._utils.arrays import BoolArray, FloatArray, IntArray
from transcendent._utils.text import some


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


class Watched(NamedTuple):
    """What a monitor of drift saw, period by period.

    Attributes
    ----------
    threshold : float
        P(ever a false alarm), of each of the two kinds, is at most one over this if objects are exchangeable
        with calibration and the rejector does not learn; if it does, from one time it learns to the next.
    periods : tuple of str
        The periods that had objects.
    log_value : array of shape (periods,)
        Logarithm of the evidence of drift after each.
    drift, more_rejected : tuples of str
        The periods in which an alarm was raised: that objects are not like calibration any more; that more
        are rejected than calibration explains.
    """

    threshold: float
    periods: tuple[str, ...]
    log_value: FloatArray
    drift: tuple[str, ...]
    more_rejected: tuple[str, ...]

    @classmethod
    def of(cls, threshold: float, by_period: dict[str, list[float]]) -> "Watched":
        """Read what a manifest says of each period: the evidence, and which alarms it raised."""
        periods, columns = tuple(by_period), np.array(list(by_period.values()))
        value, drift, more = columns.T
        alarms = (tuple(np.array(periods)[raised > 0].tolist()) for raised in (drift, more))
        return cls(threshold, periods, value, *alarms)

    def __str__(self) -> str:
        unlike, more = (some(alarms) if alarms else "none" for alarms in (self.drift, self.more_rejected))
        return f"unlike calibration {unlike}; more rejected than calibration explains {more}"


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
