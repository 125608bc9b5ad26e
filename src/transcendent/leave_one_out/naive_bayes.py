"""Naive Bayes: one row is subtracted from the sums over all rows."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.naive_bayes import BernoulliNB, GaussianNB, MultinomialNB
from sklearn.preprocessing import binarize
from sklearn.utils import check_array

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, encode_labels
from transcendent.leave_one_out import shared
from transcendent.leave_one_out.registry import LeftOut, register
from transcendent.leave_one_out.shared import blocks, refuse_if

_CANCELLED, _LOST = 1e-6, 1e-8
"""If less than these shares remains without a row, a variance is recomputed and a count refused."""

_ROUNDING = 1e-11
"""Deviations below this share of the mean may be rounding errors."""


@register(GaussianNB, kind="exact")
def gaussian(bayes: Any, X: Any, y: AnyArray) -> LeftOut:
    """Remove each row from the mean and variance of its class, and from the smoothing."""
    rows, codes = shared.rows_and_codes(bayes, X, y, sparse=False)
    everyone = _RowGroup(rows, np.arange(len(codes)))
    groups = [_RowGroup(rows, np.flatnonzero(codes == c)) for c in range(len(bayes.classes_))]
    densities = np.empty((len(codes), len(groups)))
    for cut, part in blocks(rows):
        left_out = np.arange(cut.start, cut.stop)
        smoothing = bayes.var_smoothing * everyone.variances_without(left_out).max(axis=1)
        for c, group in enumerate(groups):
            deviations, variances = part - group.mean, np.tile(group.variance, (len(part), 1))
            own = codes[cut] == c
            # Without x the mean is mean - (x - mean) / (n - 1), so x is n / (n - 1) times as far from it.
            deviations[own] *= group.size / (group.size - 1)
            variances[own] = group.variances_without(left_out[own])
            variances += smoothing[:, None]
            constant = np.any(variances <= (_ROUNDING * group.mean) ** 2)
            refuse_if(constant, "a feature does not vary within a class, and var_smoothing is too small")
            densities[cut, c] = -0.5 * (np.log(2 * np.pi * variances) + deviations**2 / variances).sum(axis=1)
    priors = shared.left_out_log_priors(codes, len(groups), bayes.priors)
    return LeftOut(bayes.classes_, **shared.density_answers(priors, densities))


class _RowGroup:
    """Some of the rows, with the mean and the variance of each column."""

    def __init__(self, rows: FloatArray, members: IntArray) -> None:
        self.rows, self.members, self.size = rows, members, len(members)
        self.mean = shared.mean_of(rows, members)
        squares = np.zeros_like(self.mean)
        for part in shared.member_blocks(rows, members):
            squares += ((part - self.mean) ** 2).sum(axis=0)
        self.variance = squares / self.size

    def variances_without(self, left_out: IntArray) -> FloatArray:
        """Return variances without each of some members: n / (n - 1) (variance - deviation² / (n - 1)).

        This is Welford's update (1962), reversed. Deviations from the mean of all rows keep the digits that
        sums of squares would lose; where the subtraction still cancels, the variance is computed directly.
        """
        n = self.size
        squares = (self.rows[left_out] - self.mean) ** 2
        variances: FloatArray = n / (n - 1) * (self.variance - squares / (n - 1))
        for i, j in np.argwhere(variances < _CANCELLED * self.variance):
            others = self.members[self.members != left_out[i]]
            variances[i, j] = np.var(self.rows[others, j])
        return variances


@register(BernoulliNB, kind="exact")
def bernoulli(bayes: Any, X: Any, y: AnyArray) -> LeftOut:
    """Remove each row from the counts of its class."""
    alpha, rows, codes, densities = _start(bayes, X, y)
    refuse_if(alpha.ndim, "BernoulliNB with an array of alphas is not supported")
    values = rows.data if sp.issparse(rows) else rows
    counted = bayes.binarize is not None or ((values == 0) | (values == 1)).all()
    refuse_if(not counted, "binarize=None with features other than 0 and 1 is not supported")
    sizes, counts = bayes.class_count_[:, None], bayes.feature_count_
    full = _bernoulli_weights(counts, counts, sizes, alpha)
    # A feature that no member of the class has is absent from the row, and one that all have is present: the
    # limits 0 and sizes - 1 change no answer, they only keep the logarithms finite.
    own = _bernoulli_weights(np.maximum(counts - 1, 0), np.minimum(counts, sizes - 1), sizes - 1, alpha)
    for cut, part in blocks(rows):
        present = part if bayes.binarize is None else binarize(part, threshold=bayes.binarize)
        positions = np.arange(present.shape[0]), codes[cut]
        densities[cut] = present @ full[0].T + full[1]
        densities[cut][positions] = (present @ own[0].T + own[1])[positions]
    return _finish(bayes, codes, densities)


def _bernoulli_weights(
    if_present: FloatArray, if_absent: FloatArray, sizes: FloatArray, alpha: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the weights of present features and an offset per class, from the counts in either case.

    The order of operations is scikit-learn's, for the same rounding when alpha is small.
    """
    log_sizes = np.log(sizes + 2 * alpha)
    present = np.log(if_present + alpha) - log_sizes
    with np.errstate(divide="ignore"):
        absent = np.log(1 - np.exp(np.log(if_absent + alpha) - log_sizes))
    refuse_if(not np.isfinite(absent).all(), "alpha is so small that probabilities round to 1")
    return present - absent, absent.sum(axis=1)


@register(MultinomialNB, kind="exact")
def multinomial(bayes: Any, X: Any, y: AnyArray) -> LeftOut:
    """Remove each row from the counts of its class."""
    alpha, rows, codes, densities = _start(bayes, X, y)
    counts, alphas = bayes.feature_count_, np.broadcast_to(alpha, rows.shape[1])
    totals = (counts + alphas).sum(axis=1)
    for cut, part in blocks(rows):
        present, members = sp.csr_array(part).astype(np.float64), codes[cut]
        densities[cut] = present @ bayes.feature_log_prob_.T
        # In its own class: Σ x_j log(count_j - x_j + α_j) - Σ x_j log(total - Σ x_j), over the row's entries.
        positions = np.repeat(np.arange(len(members)), np.diff(present.indptr))
        counted = counts[members[positions], present.indices]
        smoothed = _rest(counted, present.data, alphas[present.indices])
        lengths = present.sum(axis=1)
        own = np.bincount(positions, present.data * np.log(smoothed), minlength=len(members))
        lost = lengths * np.log(_rest(totals[members], lengths, 0))
        densities[cut][np.arange(len(members)), members] = own - lost
    return _finish(bayes, codes, densities)


def _rest(counts: FloatArray, taken: FloatArray, alphas: Any) -> FloatArray:
    """Return counts without one row, plus the smoothing."""
    rest = counts - taken
    lost = (rest != 0) & (rest + alphas < _LOST * counts)
    refuse_if(np.any(lost), "a count is far larger than all others of its feature")
    return np.asarray(rest + alphas)


def _start(bayes: Any, X: Any, y: AnyArray) -> tuple[FloatArray, Any, IntArray, FloatArray]:
    """Return the smoothing, rows with each entry stored once, codes of labels, and room for log densities."""
    alpha = np.asarray(bayes.alpha, dtype=np.float64)
    if not bayes.force_alpha:
        alpha = np.maximum(alpha, 1e-10)
    refuse_if(not alpha.all(), "alpha=0 gives infinite logarithms")
    rows = check_array(X, accept_sparse="csr")
    if sp.issparse(rows) and not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    codes = encode_labels(y, bayes.classes_, "y")
    return alpha, rows, codes, np.empty((len(codes), len(bayes.classes_)))


def _finish(bayes: Any, codes: IntArray, densities: FloatArray) -> LeftOut:
    given, n_classes = bayes.class_prior, len(bayes.classes_)
    if given is None and not bayes.fit_prior:
        given = np.full(n_classes, 1 / n_classes)
    priors = shared.left_out_log_priors(codes, n_classes, given)
    return LeftOut(bayes.classes_, **shared.density_answers(priors, densities))
