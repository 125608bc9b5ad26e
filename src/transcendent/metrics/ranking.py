"""How well a score ranks right answers before wrong ones, whatever threshold is set on it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from transcendent._utils.arrays import FloatArray, as_finite


@dataclass(frozen=True)
class RiskCoverage:
    """Error among the kept objects against the share that is kept, most credible first.

    Objects of equal credibility have no order; they count as if put in a random one.

    Attributes
    ----------
    coverage, risk : arrays of shape (n,)
        Share of the objects kept, 1/n to 1, and the error rate among them.
    aurc : float
        Mean risk over all coverages.
    excess_aurc : float
        What of it a perfect ranking of the same answers would have avoided.
    augrc : float
        Area under the generalised risk, the share of *all* objects that are kept and wrong: the chance that
        an object is kept and wrong if a coverage is drawn at random. Unlike AURC it gives errors among the
        most credible few no extra weight.
    """

    coverage: FloatArray
    risk: FloatArray
    aurc: float
    excess_aurc: float
    augrc: float


def risk_coverage(wrong: Any, credibility: Any) -> RiskCoverage:
    """Risk–coverage curve of a ranking by credibility, or by anything higher = more trusted.

    Parameters
    ----------
    wrong : bool array of shape (n,)
        Which answers are wrong.
    credibility : array of shape (n,)
        What the objects are ranked by.

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
    cumulative = np.interp(kept, *_errors_at_ties(errors, score))
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
    """Share of the errors among the ``rejection_rate`` least credible objects; NaN without errors.

    Rejectors are comparable at one rejection rate only, and this makes them so. Ties are cut as if in random
    order.

    Parameters
    ----------
    wrong : bool array of shape (n,)
        Which answers are wrong.
    credibility : array of shape (n,)
        What the objects are ranked by; higher = more trusted.
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
    """How much of each object is kept if this share of them is rejected, least credible first.

    1 or 0, but for those at the limit that are equally credible: the chance of each.
    """
    if not 0 <= rejection_rate <= 1:
        raise ValueError(f"rejection_rate is a share between 0 and 1, not {rejection_rate!r}.")
    _, levels, counts = np.unique(-credibility, return_inverse=True, return_counts=True)
    n_kept = (1 - rejection_rate) * len(credibility)
    if abs(n_kept - round(n_kept)) <= 4 * np.spacing(float(len(credibility))):  # (1 - 0.7) * 10
        n_kept = round(n_kept)
    left = n_kept - (np.cumsum(counts) - counts)
    return np.clip(left / counts, 0, 1)[levels]


def _errors_at_ties(errors: FloatArray, score: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Objects kept and errors among them where the score changes; in between a random order is a line."""
    order = np.argsort(-score, kind="stable")
    ordered = score[order]
    last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    cumulative = np.cumsum(errors[order])[last]
    return np.append(0.0, last + 1.0), np.append(0.0, cumulative)


def _checked(wrong: Any, credibility: Any) -> tuple[FloatArray, FloatArray]:
    errors = np.asarray(wrong)
    if errors.dtype != bool and not np.isin(errors, [0, 1]).all():
        raise ValueError("wrong says which answers are wrong: true or false for each object.")
    score = as_finite(credibility, "credibility", ndim=1) if np.size(credibility) else np.empty(0)
    if errors.shape != score.shape:
        raise ValueError(f"wrong and credibility differ in shape: {errors.shape}, {score.shape}.")
    return errors.astype(np.float64), score
