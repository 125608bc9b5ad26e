"""Discriminant analysis: the covariance without a row is a rank-one downdate of the fitted one.

Let the covariance without row x be L Lᵀ - weight (x - mean)(x - mean)ᵀ, u = L⁻¹(x - mean) and remainder =
1 - weight |u|². Then squared lengths |v|² become |v|² + weight (v·u)² / remainder (Sherman–Morrison formula),
and the determinant is that of L Lᵀ times the remainder (matrix determinant lemma; Golub and Van Loan, Matrix
Computations). Digits are lost only if the remainder is small: that is refused.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cholesky, eigvalsh, solve_triangular
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray
from transcendent.leave_one_out import shared
from transcendent.leave_one_out.registry import LeftOut, register
from transcendent.leave_one_out.shared import member_blocks, refuse_if

_ACCURATE = 1e-7
"""Smallest share of a value that may remain after a subtraction: half of the digits are then correct."""

_SINGULAR = "the within-class covariance is nearly singular"
_DEFICIENT = "the covariance of a class is nearly singular"


@register(LinearDiscriminantAnalysis, kind="exact")
def linear_discriminant(lda: Any, X: Any, y: AnyArray) -> LeftOut:
    """Remove each row from the covariance, and from the mean and prior of its class."""
    refuse_if(lda.solver not in ("svd", "lsqr"), f"solver={lda.solver!r} is not supported")
    estimated = lda.shrinkage is not None or lda.covariance_estimator is not None
    refuse_if(estimated, "a shrunk or otherwise estimated covariance is not supported")
    refuse_if(not np.all(lda.priors_), "a prior of 0 is not supported")
    rows, codes = shared.rows_and_codes(lda, X, y, sparse=False)
    groups = [np.flatnonzero(codes == c) for c in range(len(lda.classes_))]
    means = np.array([shared.mean_of(rows, members) for members in groups])
    scores = shared.left_out_log_priors(codes, len(groups), None if lda.priors is None else lda.priors_)
    for c, downdate in enumerate(_downdates(lda, rows, groups, means)):
        priors = np.exp(scores[groups[c][0]])
        for cut in shared.block_slices(len(groups[c]), means.size):
            left_out = groups[c][cut]
            scores[left_out] += _linear_scores(lda, rows[left_out], c, priors, means, downdate)
    return LeftOut(lda.classes_, **shared.score_answers(scores))


@dataclass(frozen=True)
class _Downdate:
    """The covariance without a row: L Lᵀ - weight (x - mean)(x - mean)ᵀ.

    The remainder must exceed ``least_remainder``: below it, scikit-learn's solver might reduce the rank.
    ``size`` is that of the class with the row.
    """

    factor: FloatArray
    weight: float
    least_remainder: float
    size: int


def _downdates(lda: Any, rows: FloatArray, groups: list[IntArray], means: FloatArray) -> Iterator[_Downdate]:
    """Yield the downdate for the rows of each class."""
    scatters = (_scatter(rows, members, mean) for members, mean in zip(groups, means, strict=True))
    sizes, zeros = [len(members) for members in groups], np.zeros((rows.shape[1], rows.shape[1]))
    if lda.solver == "svd" or lda.priors is None:
        covariance = sum(scatters, start=zeros) / len(rows)
        factor, least = _factor(lda, covariance, means)
        divisor = _pooled_divisor(lda, covariance, len(rows))
        # Without x the scatter is smaller by n_c / (n_c - 1) (x - mean)(x - mean)ᵀ, and the divisor by one.
        factor *= np.sqrt(len(rows) / (divisor - 1))
        for size in sizes:
            yield _Downdate(factor, size / (size - 1) / (divisor - 1), least, size)
        return
    # Classes are weighted by the given priors, not by their sizes: without x, the covariance of its class is
    # (scatter - n / (n - 1) (x - mean)(x - mean)ᵀ) / (n - 1), and the others do not change.
    shares = [prior / size for prior, size in zip(lda.priors_, sizes, strict=True)]
    covariance = sum((share * scatter for share, scatter in zip(shares, scatters, strict=True)), start=zeros)
    for members, mean, share, size in zip(groups, means, shares, sizes, strict=True):
        grown = covariance + share / (size - 1) * _scatter(rows, members, mean)
        factor, least = _factor(lda, grown, means)
        yield _Downdate(factor, share * (size / (size - 1)) ** 2, least, size)


def _scatter(rows: FloatArray, members: IntArray, mean: FloatArray) -> FloatArray:
    scatter = np.zeros((rows.shape[1], rows.shape[1]))
    for part in member_blocks(rows, members):
        deviations = part - mean
        scatter += deviations.T @ deviations
    return scatter


def _pooled_divisor(lda: Any, covariance: FloatArray, n: int) -> int:
    """Return the divisor of the sums of squares, from ``scalings_``, with which the variances are 1."""
    if lda.solver == "lsqr":
        return n
    refuse_if(not lda.scalings_.size, "the class means are equal")
    variances = ((covariance @ lda.scalings_) * lda.scalings_).sum(axis=0)
    return _nearest(n * variances.mean(), n, n - len(lda.classes_))


def _nearest(divisor: float, new: int, old: int) -> int:
    """Return the divisor of scikit-learn since 1.9 (``new``) or of older versions, whichever was used."""
    nearest = min(new, old, key=lambda candidate: abs(candidate - divisor))
    refuse_if(abs(nearest - divisor) > 0.5, "the fitted covariance is not that of the rows")
    return nearest


def _factor(lda: Any, covariance: FloatArray, means: FloatArray) -> tuple[FloatArray, float]:
    """Return the Cholesky factor, and the least remainder of `_Downdate`."""
    # Neither solver uses columns of zeros: their variance does not matter if it is positive.
    zero = (np.diag(covariance) == 0) & ~means.any(axis=0)
    covariance[zero, zero] = np.trace(covariance) / max(1, len(zero) - zero.sum())
    deviations = np.sqrt(np.diag(covariance))
    constant = deviations <= _ACCURATE * np.abs(means).max(axis=0)
    refuse_if(constant.any(), "a feature does not vary within the classes")
    correlations = covariance / deviations / deviations[:, None]
    smallest = max(eigvalsh(correlations, subset_by_index=(0, 0))[0], np.finfo(float).tiny)
    if lda.solver == "svd":  # drops singular values, the roots of these eigenvalues, up to tol
        least = max(4 * lda.tol**2, _ACCURATE) / smallest
    else:  # drops eigenvalues of the covariance itself up to machine precision
        spectrum = np.maximum(eigvalsh(covariance), np.finfo(float).tiny)
        least = max(_ACCURATE / smallest, 1e-11 * spectrum[-1] / spectrum[0])
    refuse_if(least >= 1, _SINGULAR)
    return cholesky(covariance, lower=True), least


def _linear_scores(
    lda: Any, rows: FloatArray, c: int, priors: FloatArray, means: FloatArray, downdate: _Downdate
) -> FloatArray:
    """Return the left-out decision values of rows of class c, without the log priors.

    They are (|x - origin|² - |x - mean|²) / 2 in the metric of the inverse covariance. The origin is 0 for
    the solver "lsqr" and the mean of the class means for "svd".
    """
    deviations = _whiten(downdate.factor, rows - means[c])
    remainders = 1 - downdate.weight * (deviations**2).sum(axis=1)
    refuse_if(remainders.min() <= downdate.least_remainder, _SINGULAR)
    stretch = downdate.weight / remainders
    # All points below are relative to the mean of class c with all its rows.
    points = np.repeat(_whiten(downdate.factor, means - means[c])[None], len(rows), axis=0)
    points[:, c] = -deviations / (downdate.size - 1)
    shares = priors if lda.solver == "svd" else np.zeros_like(priors)
    zero = -_whiten(downdate.factor, means[[c]])
    origin = shares @ points + (1 - shares.sum()) * zero
    if lda.solver == "svd" and len(means) > 2:
        _check_between(lda, np.sqrt(priors)[:, None] * (points - origin[:, None]), deviations, stretch)
    to_points = _squared_lengths(deviations[:, None] - points, deviations, stretch)
    to_origin = _squared_lengths((deviations - origin)[:, None], deviations, stretch)
    return 0.5 * (to_origin - to_points)


def _whiten(factor: FloatArray, vectors: FloatArray) -> FloatArray:
    return np.asarray(solve_triangular(factor, vectors.T, lower=True).T)


def _squared_lengths(vectors: FloatArray, deviations: FloatArray, stretch: FloatArray) -> FloatArray:
    """Return |v|² + stretch (v·u)² for vectors of shape (rows, k, columns): the metric without each row."""
    along = (vectors @ deviations[:, :, None])[:, :, 0]
    return np.asarray((vectors**2).sum(axis=2) + stretch[:, None] * along**2)


def _check_between(lda: Any, arms: FloatArray, deviations: FloatArray, stretch: FloatArray) -> None:
    """Refuse class means so close to a line or plane that the solver would reduce their rank."""
    along = arms @ deviations[:, :, None]
    products = arms @ arms.transpose(0, 2, 1) + stretch[:, None, None] * along @ along.transpose(0, 2, 1)
    spectrum = np.linalg.eigvalsh(products)
    rank = min(arms.shape[1] - 1, arms.shape[2])
    truncated = spectrum[:, -rank] <= max(2 * lda.tol, 1e-6) ** 2 * spectrum[:, -1]
    refuse_if(truncated.any(), "the class means are nearly linearly dependent")


@register(QuadraticDiscriminantAnalysis, kind="exact")
def quadratic_discriminant(qda: Any, X: Any, y: AnyArray) -> LeftOut:
    """Remove each row from the covariance, mean and prior of its class."""
    solver = getattr(qda, "solver", "svd")
    refuse_if(solver != "svd", f"solver={solver!r} is not supported")
    rows, codes = shared.rows_and_codes(qda, X, y, sparse=False)
    densities = np.empty((len(codes), len(qda.classes_)))
    for c in range(len(qda.classes_)):
        own = codes == c
        gaussian = _Gaussian.of_class(qda, c, rows, np.flatnonzero(own))
        for cut, part in shared.blocks(rows):
            densities[cut, c] = gaussian.log_densities(part, own[cut])
    priors = shared.left_out_log_priors(codes, len(qda.classes_), qda.priors)
    answers = shared.density_answers(priors, densities)
    return LeftOut(qda.classes_, **answers | shared.score_answers(answers["predict_joint_log_proba"]))


@dataclass(frozen=True)
class _Gaussian:
    """A class of the quadratic discriminant, with and without each of its rows.

    Without a row x the covariance has ``grown`` variances along the same axes, minus ``weight``
    (x - mean)(x - mean)ᵀ. The row itself is size / (size - 1) times as far from the mean without it.
    """

    mean: FloatArray
    axes: FloatArray
    variances: FloatArray
    grown: FloatArray
    weight: float
    tol: float
    size: int

    @classmethod
    def of_class(cls, qda: Any, c: int, rows: FloatArray, members: IntArray) -> "_Gaussian":
        """Read the class from the fitted attributes."""
        size, mean, variances = len(members), qda.means_[c], qda.scalings_[c]
        refuse_if(size - 1 < max(2, rows.shape[1]), "a class has too few rows to leave one out")
        divisor = _divisor(rows, members, mean, variances - qda.reg_param, 1 - qda.reg_param)
        grown = (variances - qda.reg_param) * divisor / (divisor - 1) + qda.reg_param
        refuse_if(grown.min() <= qda.tol, _DEFICIENT)
        weight = (1 - qda.reg_param) * size / (size - 1) / (divisor - 1)
        return cls(mean, qda.rotations_[c], variances, grown, weight, qda.tol, size)

    def log_densities(self, rows: FloatArray, own: AnyArray) -> FloatArray:
        """Return log densities of rows, up to a constant; ``own`` marks rows of the class, each left out."""
        squares = ((rows - self.mean) @ self.axes) ** 2
        lengths = squares @ (1 / self.variances)
        volumes = np.full(len(rows), np.log(self.variances).sum())
        # The variance left in every direction exceeds tol if this is positive.
        excess = 1 - self.weight * squares[own] @ (1 / (self.grown - self.tol))
        refuse_if(np.any(excess <= _ACCURATE), _DEFICIENT)
        without = squares[own] @ (1 / self.grown)
        remainders = 1 - self.weight * without
        lengths[own] = (self.size / (self.size - 1)) ** 2 * without / remainders
        volumes[own] = np.log(self.grown).sum() + np.log(remainders)
        return np.asarray(-0.5 * (lengths + volumes))


def _divisor(rows: FloatArray, members: IntArray, mean: FloatArray, shares: FloatArray, scale: float) -> int:
    """Return the divisor with which scale times the sums of squares gives ``shares``."""
    if shares.sum() <= 0:
        return len(members)
    total = sum(float(((part - mean) ** 2).sum()) for part in member_blocks(rows, members))
    return _nearest(scale * total / shares.sum(), len(members), len(members) - 1)
