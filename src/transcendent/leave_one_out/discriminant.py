"""Discriminant analysis: covariances from which the deviation of one row is taken away."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cholesky, eigvalsh, solve_triangular
from scipy.special import softmax
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.utils import check_array

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, encode_labels
from transcendent.errors import NoShortcutError
from transcendent.leave_one_out.classes import (
    block_slices,
    blocks,
    decision_values,
    left_out_log_priors,
    mean_of,
    member_blocks,
)
from transcendent.leave_one_out.registry import LeftOut, register

_ACCURATE = 1e-7
"""What must remain, relative to a usual value, where numbers are subtracted: more than half of the digits."""


@register(LinearDiscriminantAnalysis, kind="exact")
def linear_discriminant(lda: Any, X: Any, y: AnyArray) -> LeftOut:
    """Take each row away from the covariance, and from the mean and prior of its class."""
    _check_linear(lda)
    rows = check_array(X, dtype=np.float64)
    codes = encode_labels(y, lda.classes_, "y")
    groups = [np.flatnonzero(codes == c) for c in range(len(lda.classes_))]
    means = np.array([mean_of(rows, members) for members in groups])
    scores = left_out_log_priors(codes, len(groups), None if lda.priors is None else lda.priors_)
    for c, downdate in enumerate(_downdates(lda, rows, groups, means)):
        priors = np.exp(scores[groups[c][0]])
        for cut in block_slices(len(groups[c]), means.size):
            left_out = groups[c][cut]
            scores[left_out] += _linear_scores(lda, rows[left_out], c, priors, means, downdate)
    return LeftOut(
        lda.classes_, decision_function=decision_values(scores), predict_proba=softmax(scores, axis=1)
    )


def _check_linear(lda: Any) -> None:
    if lda.solver not in ("svd", "lsqr"):
        raise NoShortcutError(f"solver={lda.solver!r} is not supported")
    if lda.shrinkage is not None or lda.covariance_estimator is not None:
        raise NoShortcutError("a shrunk or otherwise estimated covariance is not supported")
    if not np.all(lda.priors_):
        raise NoShortcutError("a prior of 0 is not supported")


@dataclass(frozen=True)
class _Downdate:
    """A covariance without a row of a class: L Lᵀ - weight u uᵀ, where u is the row less the class mean."""

    factor: FloatArray
    weight: float
    least_remainder: float
    """What a row must leave of the covariance so that the rank stays clear of truncation."""
    size: int
    """Of the class, that row included."""


def _downdates(lda: Any, rows: FloatArray, groups: list[IntArray], means: FloatArray) -> Iterator[_Downdate]:
    """For rows of each class."""
    scatters = (_scatter(rows, members, mean) for members, mean in zip(groups, means, strict=True))
    sizes, zeros = [len(members) for members in groups], np.zeros((rows.shape[1], rows.shape[1]))
    if lda.solver == "svd" or lda.priors is None:
        covariance = sum(scatters, start=zeros) / len(rows)
        factor, least = _factor(lda, covariance, means)
        divisor = _pooled_divisor(lda, covariance, len(rows))
        factor *= np.sqrt(len(rows) / (divisor - 1))
        for size in sizes:
            yield _Downdate(factor, size / (size - 1) / (divisor - 1), least, size)
        return
    # Here each class counts by its prior, however many rows are left of it.
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
    """By what the sums of squares are divided: ``scalings_`` make the variances 1."""
    if lda.solver == "lsqr":
        return n
    if not lda.scalings_.size:
        raise NoShortcutError("the class means are equal")
    variances = ((covariance @ lda.scalings_) * lda.scalings_).sum(axis=0)
    return _nearest(n * variances.mean(), n, n - len(lda.classes_))


def _nearest(divisor: float, new: int, old: int) -> int:
    """Which of two divisors it is: that of scikit-learn since 1.9, or that of older versions."""
    nearest = min(new, old, key=lambda candidate: abs(candidate - divisor))
    if abs(nearest - divisor) > 0.5:
        raise NoShortcutError("the covariance is not that of the rows")
    return nearest


def _factor(lda: Any, covariance: FloatArray, means: FloatArray) -> tuple[FloatArray, float]:
    """The Cholesky factor, and the least remainder of `_Downdate`."""
    # Columns of zeros take no part in either solver: any variance will do.
    zero = (np.diag(covariance) == 0) & ~means.any(axis=0)
    covariance[zero, zero] = np.trace(covariance) / max(1, len(zero) - zero.sum())
    deviations = np.sqrt(np.diag(covariance))
    if np.any(deviations <= _ACCURATE * np.abs(means).max(axis=0)):
        raise NoShortcutError("a feature does not vary within the classes")
    correlations = covariance / deviations / deviations[:, None]
    smallest = max(eigvalsh(correlations, subset_by_index=(0, 0))[0], np.finfo(float).tiny)
    if lda.solver == "svd":  # drops singular values, the roots of these eigenvalues, up to tol
        least = max(4 * lda.tol**2, _ACCURATE) / smallest
    else:  # drops eigenvalues of the covariance itself up to machine precision
        spectrum = np.maximum(eigvalsh(covariance), np.finfo(float).tiny)
        least = max(_ACCURATE / smallest, 1e-11 * spectrum[-1] / spectrum[0])
    _check_remainder(1.0, least)
    return cholesky(covariance, lower=True), least


def _check_remainder(remainder: float, least: float) -> None:
    if remainder <= least:
        raise NoShortcutError("the within-class covariance is nearly of deficient rank")


def _linear_scores(
    lda: Any, rows: FloatArray, c: int, priors: FloatArray, means: FloatArray, downdate: _Downdate
) -> FloatArray:
    """Left-out decision values of rows of class c, less the log priors.

    In the metric of the inverse covariance they are half of |x - origin|² - |x - mean|², where the origin
    is 0 for the solver "lsqr" and the mean of the class means for "svd".
    """
    deviations = _whiten(downdate.factor, rows - means[c])
    remainders = 1 - downdate.weight * (deviations**2).sum(axis=1)
    _check_remainder(remainders.min(), downdate.least_remainder)
    stretch = downdate.weight / remainders
    # From here on, everything is relative to the mean of class c with all its rows.
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
    whitened: FloatArray = solve_triangular(factor, vectors.T, lower=True).T
    return whitened


def _squared_lengths(vectors: FloatArray, deviations: FloatArray, stretch: FloatArray) -> FloatArray:
    """(rows, k) from (rows, k, columns), in the metric without each row, which stretches its deviation."""
    along = (vectors @ deviations[:, :, None])[:, :, 0]
    lengths: FloatArray = (vectors**2).sum(axis=2) + stretch[:, None] * along**2
    return lengths


def _check_between(lda: Any, arms: FloatArray, deviations: FloatArray, stretch: FloatArray) -> None:
    """Refuse class means so nearly in a line, or plane, that the solver would put them there."""
    along = arms @ deviations[:, :, None]
    products = arms @ arms.transpose(0, 2, 1) + stretch[:, None, None] * along @ along.transpose(0, 2, 1)
    spectrum = np.linalg.eigvalsh(products)
    rank = min(arms.shape[1] - 1, arms.shape[2])
    if np.any(spectrum[:, -rank] <= max(2 * lda.tol, 1e-6) ** 2 * spectrum[:, -1]):
        raise NoShortcutError("the class means are nearly of deficient rank")


@register(QuadraticDiscriminantAnalysis, kind="exact")
def quadratic_discriminant(qda: Any, X: Any, y: AnyArray) -> LeftOut:
    """Take each row away from the covariance, mean and prior of its class."""
    if getattr(qda, "solver", "svd") != "svd":
        raise NoShortcutError(f"solver={qda.solver!r} is not supported")
    rows = check_array(X, dtype=np.float64)
    codes = encode_labels(y, qda.classes_, "y")
    densities = np.empty((len(codes), len(qda.classes_)))
    for c in range(len(qda.classes_)):
        own = codes == c
        gaussian = _Gaussian.of_class(qda, c, rows, np.flatnonzero(own))
        for cut, part in blocks(rows):
            densities[cut, c] = gaussian.log_densities(part, own[cut])
    joint = left_out_log_priors(codes, len(qda.classes_), qda.priors) + densities
    return LeftOut(
        qda.classes_,
        predict_joint_log_proba=joint,
        predict_proba=softmax(joint, axis=1),
        decision_function=decision_values(joint),
        class_log_densities=densities,
    )


@dataclass(frozen=True)
class _Gaussian:
    """A class of the quadratic discriminant, with and without each of its rows.

    Without a row of deviation u, the covariance has the same axes, ``grown`` variances along them, and
    ``weight`` u uᵀ less.
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
        """From the fitted attributes."""
        size, mean, variances = len(members), qda.means_[c], qda.scalings_[c]
        if size - 1 < max(2, rows.shape[1]):
            raise NoShortcutError("a class has too few rows to do without one")
        divisor = _divisor(rows, members, mean, variances - qda.reg_param, 1 - qda.reg_param)
        grown = (variances - qda.reg_param) * divisor / (divisor - 1) + qda.reg_param
        if grown.min() <= qda.tol:
            raise _deficient()
        weight = (1 - qda.reg_param) * size / (size - 1) / (divisor - 1)
        return cls(mean, qda.rotations_[c], variances, grown, weight, qda.tol, size)

    def log_densities(self, rows: FloatArray, own: AnyArray) -> FloatArray:
        """Up to a constant, of rows of which some are the class's own."""
        squares = ((rows - self.mean) @ self.axes) ** 2
        lengths = squares @ (1 / self.variances)
        volumes = np.full(len(rows), np.log(self.variances).sum())
        # What is left of the variance in any direction exceeds tol if this is positive.
        excess = 1 - self.weight * squares[own] @ (1 / (self.grown - self.tol))
        if np.any(excess <= _ACCURATE):
            raise _deficient()
        without = squares[own] @ (1 / self.grown)
        remainders = 1 - self.weight * without
        lengths[own] = (self.size / (self.size - 1)) ** 2 * without / remainders
        volumes[own] = np.log(self.grown).sum() + np.log(remainders)
        densities: FloatArray = -0.5 * (lengths + volumes)
        return densities


def _deficient() -> NoShortcutError:
    return NoShortcutError("the covariance of a class is nearly of deficient rank")


def _divisor(rows: FloatArray, members: IntArray, mean: FloatArray, shares: FloatArray, scale: float) -> int:
    """By what the sums of squares are divided to give, times the scale, the shares of the variances."""
    if shares.sum() <= 0:
        return len(members)
    total = sum(float(((part - mean) ** 2).sum()) for part in member_blocks(rows, members))
    return _nearest(scale * total / shares.sum(), len(members), len(members) - 1)
