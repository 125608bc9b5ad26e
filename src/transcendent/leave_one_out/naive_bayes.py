"""Naive Bayes: sums over the rows, from which one row is taken away."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import softmax
from sklearn.naive_bayes import BernoulliNB, GaussianNB, MultinomialNB
from sklearn.preprocessing import binarize
from sklearn.utils import check_array

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, encode_labels
from transcendent.errors import NoShortcutError
from transcendent.leave_one_out.classes import (
    blocks,
    left_out_log_priors,
    mean_of,
    member_blocks,
)
from transcendent.leave_one_out.registry import LeftOut, register

_CANCELLED, _LOST = 1e-6, 1e-8
"""A sum of which a row leaves less than these shares is summed anew (variances), or given up (counts)."""


_ROUNDING = 1e-11
"""Deviations of this share of a mean may be but rounding."""


@register(GaussianNB, kind="exact")
def gaussian(bayes: Any, X: Any, y: AnyArray) -> LeftOut:
    """Take each row away from the mean and variance of its class, and from the smoothing."""
    rows = check_array(X, dtype=np.float64)
    codes = encode_labels(y, bayes.classes_, "y")
    everyone = _Group(rows, np.arange(len(codes)))
    groups = [_Group(rows, np.flatnonzero(codes == c)) for c in range(len(bayes.classes_))]
    densities = np.empty((len(codes), len(groups)))
    for cut, part in blocks(rows):
        left_out = np.arange(cut.start, cut.stop)
        smoothing = bayes.var_smoothing * everyone.variances_without(left_out).max(axis=1)
        for c, group in enumerate(groups):
            deviations, variances = part - group.mean, np.tile(group.variance, (len(part), 1))
            own = codes[cut] == c
            deviations[own] *= group.size / (group.size - 1)
            variances[own] = group.variances_without(left_out[own])
            variances += smoothing[:, None]
            if np.any(variances <= (_ROUNDING * group.mean) ** 2):
                raise NoShortcutError(
                    "a feature does not vary within a class, and var_smoothing is too small"
                )
            densities[cut, c] = _log_normal(deviations, variances)
    return _answers(bayes, densities, left_out_log_priors(codes, len(groups), bayes.priors))


class _Group:
    """Some of the rows, with the mean and variance of each column."""

    def __init__(self, rows: FloatArray, members: IntArray) -> None:
        self.rows, self.members, self.size = rows, members, len(members)
        self.mean = mean_of(rows, members)
        squares = np.zeros_like(self.mean)
        for part in member_blocks(rows, members):
            squares += ((part - self.mean) ** 2).sum(axis=0)
        self.variance = squares / self.size

    def variances_without(self, left_out: IntArray) -> FloatArray:
        """Variances of the other members, for each member left out."""
        n = self.size
        squares = (self.rows[left_out] - self.mean) ** 2
        variances: FloatArray = n / (n - 1) * (self.variance - squares / (n - 1))
        for i, j in np.argwhere(variances < _CANCELLED * self.variance):
            others = self.members[self.members != left_out[i]]
            variances[i, j] = np.var(self.rows[others, j])
        return variances


def _log_normal(deviations: FloatArray, variances: FloatArray) -> FloatArray:
    densities: FloatArray = -0.5 * (np.log(2 * np.pi * variances) + deviations**2 / variances).sum(axis=1)
    return densities


@register(BernoulliNB, kind="exact")
def bernoulli(bayes: Any, X: Any, y: AnyArray) -> LeftOut:
    """Take each row away from the counts of its class."""
    alpha, rows = _smoothing(bayes), _canonical(X)
    if alpha.ndim:
        raise NoShortcutError("BernoulliNB with an array of alphas is not supported")
    if bayes.binarize is None and not all(_is_binary(part) for _, part in blocks(rows)):
        raise NoShortcutError("binarize=None with features other than 0 and 1 is not supported")
    codes = encode_labels(y, bayes.classes_, "y")
    densities = np.empty((len(codes), len(bayes.classes_)))
    sizes, counts = bayes.class_count_[:, None], bayes.feature_count_
    full = _bernoulli_weights(counts, counts, sizes, alpha)
    # A feature that no member of the class has is absent from the row; one that all have is present.
    own = _bernoulli_weights(np.maximum(counts - 1, 0), np.minimum(counts, sizes - 1), sizes - 1, alpha)
    for cut, part in blocks(rows):
        present = part if bayes.binarize is None else binarize(part, threshold=bayes.binarize)
        log_chances, members = _linear(present, *full), codes[cut]
        positions = np.arange(len(members))
        log_chances[positions, members] = _linear(present, *own)[positions, members]
        densities[cut] = log_chances
    return _answers(bayes, densities, _log_priors(bayes, codes))


def _bernoulli_weights(
    if_present: FloatArray, if_absent: FloatArray, sizes: FloatArray, alpha: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Weights of the present features and an offset per class, from the counts in either case.

    In the arithmetic of scikit-learn, so that rounding is the same when alpha is small.
    """
    log_sizes = np.log(sizes + 2 * alpha)
    present = np.log(if_present + alpha) - log_sizes
    with np.errstate(divide="ignore"):
        absent = np.log(1 - np.exp(np.log(if_absent + alpha) - log_sizes))
    if not np.isfinite(absent).all():
        raise NoShortcutError("alpha is so small that features become certain")
    return present - absent, absent.sum(axis=1)


def _linear(rows: Any, weights: FloatArray, offset: FloatArray) -> FloatArray:
    values: FloatArray = rows @ weights.T + offset
    return values


def _is_binary(rows: Any) -> bool:
    values = rows.data if sp.issparse(rows) else rows
    return bool(((values == 0) | (values == 1)).all())


@register(MultinomialNB, kind="exact")
def multinomial(bayes: Any, X: Any, y: AnyArray) -> LeftOut:
    """Take each row away from the counts of its class."""
    alpha, rows = _smoothing(bayes), _canonical(X)
    codes = encode_labels(y, bayes.classes_, "y")
    densities = np.empty((len(codes), len(bayes.classes_)))
    counts, alphas = bayes.feature_count_, np.broadcast_to(alpha, rows.shape[1])
    totals = (counts + alphas).sum(axis=1)
    for cut, part in blocks(rows):
        present, members = sp.csr_array(part).astype(np.float64), codes[cut]
        log_chances = np.asarray(present @ bayes.feature_log_prob_.T)
        positions = np.repeat(np.arange(len(members)), np.diff(present.indptr))
        counted = counts[members[positions], present.indices]
        smoothed = _rest(counted, present.data, alphas[present.indices])
        lengths = present.sum(axis=1)
        own = np.bincount(positions, present.data * np.log(smoothed), minlength=len(members))
        lost = lengths * np.log(_rest(totals[members], lengths, 0))
        log_chances[np.arange(len(members)), members] = own - lost
        densities[cut] = log_chances
    return _answers(bayes, densities, _log_priors(bayes, codes))


def _rest(counts: FloatArray, taken: FloatArray, alphas: Any) -> FloatArray:
    rest = counts - taken
    smoothed: FloatArray = rest + alphas
    if np.any((rest != 0) & (smoothed < _LOST * counts)):
        raise NoShortcutError("a count exceeds all others of its feature by far")
    return smoothed


def _smoothing(bayes: Any) -> FloatArray:
    alpha = np.asarray(bayes.alpha, dtype=np.float64)
    if not bayes.force_alpha:
        alpha = np.maximum(alpha, 1e-10)
    if not alpha.all():
        raise NoShortcutError("alpha=0 gives infinite logarithms")
    return alpha


def _canonical(X: Any) -> Any:
    """Rows whose stored entries, if sparse, are at different places."""
    rows = check_array(X, accept_sparse="csr")
    if sp.issparse(rows) and not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def _log_priors(bayes: Any, codes: IntArray) -> FloatArray:
    given, n_classes = bayes.class_prior, len(bayes.classes_)
    if given is None and not bayes.fit_prior:
        given = np.full(n_classes, 1 / n_classes)
    return left_out_log_priors(codes, n_classes, given)


def _answers(bayes: Any, densities: FloatArray, log_priors: FloatArray) -> LeftOut:
    joint = log_priors + densities
    return LeftOut(
        bayes.classes_,
        predict_joint_log_proba=joint,
        predict_proba=softmax(joint, axis=1),
        class_log_densities=densities,
    )
