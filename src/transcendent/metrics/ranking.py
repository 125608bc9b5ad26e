"""How well a score ranks right answers above wrong ones, at any threshold."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from transcendent._utils.arrays import FloatArray, as_finite
from transcendent._utils.checks import check_shares


@dataclass(frozen=True)
class RiskCoverage:
    """Error rate of the kept objects against the share kept, most credible first.

    Objects of equal credibility count as if in random order.

    Attributes
    ----------
    coverage, risk : arrays of shape (n,)
        Share of the objects kept, from 1/n to 1, and their error rate.
    aurc : float
        Mean risk over all coverages.
    excess_aurc : float
        ``aurc`` minus that of a perfect ranking of the same answers.
    augrc : float
        Area under the generalised risk, the share of *all* objects that are kept and wrong: the chance that
        an object is kept and wrong at a random coverage. Unlike AURC, it gives no extra weight to errors
        among the few most credible objects.
    """

    coverage: FloatArray
    risk: FloatArray
    aurc: float
    excess_aurc: float
    augrc: float


def risk_coverage(wrong: Any, credibility: Any) -> RiskCoverage:
    """Return the risk–coverage curve of a ranking by credibility or another score, higher = more trusted.

    Parameters
    ----------
    wrong : bool array of shape (n,)
        Which answers are wrong.
    credibility : array of shape (n,)
        Score that ranks the objects.

    Examples
    --------
    >>> from transcendent.metrics import risk_coverage
    >>> curve = risk_coverage([False, False, True, False], [0.9, 0.8, 0.4, 0.1])
    >>> curve.risk.round(2)
    array([0.  , 0.  , 0.33, 0.25])
    >>> round(curve.aurc, 4), round(curve.excess_aurc, 4), curve.augrc
    (0.1458, 0.0833, 0.09375)
    """
    errors, score = _checked(wrong, credibility)
    n = len(errors)
    if n == 0:
        return RiskCoverage(np.empty(0), np.empty(0), np.nan, np.nan, np.nan)
    kept = np.arange(1, n + 1)
    _, level, sizes = np.unique(-score, return_inverse=True, return_counts=True)
    at_levels = np.cumsum(np.bincount(level, errors))
    # Between two levels of the score the order is random: the expected number of errors is a line.
    cumulative = np.interp(kept, np.append(0, np.cumsum(sizes)), np.append(0, at_levels))
    risk = cumulative / kept
    best = np.maximum(0.0, kept - (n - errors.sum())) / kept
    return RiskCoverage(
        coverage=kept / n,
        risk=risk,
        aurc=float(risk.mean()),
        excess_aurc=float(risk.mean() - best.mean()),
        augrc=float((cumulative.sum() - cumulative[-1] / 2) / n**2),
    )


def errors_caught(wrong: Any, credibility: Any, *, rejection_rate: float = 0.15) -> float:
    """Return the share of all errors that are among the least credible objects; NaN without errors.

    It compares rejectors at the same rejection rate. Tied objects count as if in random order.

    Parameters
    ----------
    wrong : bool array of shape (n,)
        Which answers are wrong.
    credibility : array of shape (n,)
        Score that ranks the objects; higher = more trusted.
    rejection_rate : float
        Share of the objects to reject.

    Examples
    --------
    >>> from transcendent.metrics import errors_caught
    >>> errors_caught([False, False, True, True], [0.9, 0.8, 0.4, 0.1], rejection_rate=0.25)
    0.5
    """
    errors, score = _checked(wrong, credibility)
    total = errors.sum()
    if total == 0:
        return float("nan")
    return float(1 - errors @ kept_shares(score, rejection_rate) / total)


def kept_shares(credibility: FloatArray, rejection_rate: float) -> FloatArray:
    """Return the chance of each object to be kept if a share is rejected, least credible first.

    It is 1 or 0, except for equally credible objects at the limit.
    """
    check_shares(ends="included", rejection_rate=rejection_rate)
    _, levels, counts = np.unique(-credibility, return_inverse=True, return_counts=True)
    n_kept = (1 - rejection_rate) * len(credibility)
    if abs(n_kept - round(n_kept)) <= 4 * np.spacing(float(len(credibility))):  # as (1 - 0.7) * 10 is
        n_kept = round(n_kept)
    left = n_kept - (np.cumsum(counts) - counts)
    return np.clip(left / counts, 0, 1)[levels]


def _checked(wrong: Any, credibility: Any) -> tuple[FloatArray, FloatArray]:
    errors = np.asarray(wrong)
    if errors.dtype != bool and not np.isin(errors, [0, 1]).all():
        raise ValueError("wrong must be true or false for each object: whether its answer is wrong.")
    score = as_finite(credibility, "credibility", ndim=1) if np.size(credibility) else np.empty(0)
    if errors.shape != score.shape:
        raise ValueError(f"wrong and credibility differ in shape: {errors.shape}, {score.shape}.")
    return errors.astype(np.float64), score
