"""Detect that large terms cancel in a detector, so that its answer about a row depends on other rows.

The last bits of a matrix product depend on its size. If the values of a column are far from 0 compared with
their spread, the terms that cancel are much larger than the scores, and the scores lose digits.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.frozen import FrozenEstimator
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid, RadiusNeighborsClassifier
from sklearn.utils.sparsefuncs import mean_variance_axis

from transcendent._utils.arrays import FloatArray, IntArray, take_rows
from transcendent._utils.estimators import see_through, transform
from transcendent.errors import CalibrationError
from transcendent.judging.pvalues import rounding
from transcendent.measures.detector import CodedAnswers, Detector, has_single_precision, round_to_single

_TRIED_FROM = 2.0**11
_MAX_WITH_SQUARES = 2.0**14
_N_INSPECTED, _N_TRIED = 256, 32
# Safety factors between the observed noise and the widest tie. The first is large, since single precision
# costs little; the second is small, since a refused detector costs much.
_MARGIN_IN_DOUBLE, _MARGIN_IN_SINGLE = 64, 2
_SHARE_IN_SINGLE = 2.0**-16  # of the standard deviation of the scores


class _Farthest(NamedTuple):
    """The distance of the farthest column from 0, in standard deviations, and its name."""

    ratio: float = 0.0
    column: str = ""


def settle_precision(
    X: Any, rows: IntArray, actual: IntArray, detector: Detector, answer: CodedAnswers
) -> tuple[Detector, CodedAnswers]:
    """Return a detector and its answer about the calibration rows, in the precision that its scores have.

    The detector is tested if rows are in single precision, or if the mean of a column, or of all columns
    together, is at least 2¹¹ standard deviations, before or after the steps of a pipeline. The test scores
    some rows alone and together. If the scores differ, they are rounded to single precision. If they differ
    by more than such a tie, or if labels differ, the detector is refused. Detectors that compute distances as
    differences of squares are refused beyond 2¹⁴, because their error grows with the square.
    """
    X = take_rows(X, np.random.default_rng(0).permutation(rows)[:_N_INSPECTED])
    transformers, classifier = see_through(detector.estimator)
    seen = transform(transformers, X)
    inside = _farthest(seen)
    farthest = max(_farthest(X), inside, key=lambda found: found.ratio)
    single = any(map(has_single_precision, (X, seen)))
    if farthest.ratio < _TRIED_FROM and not single:
        return detector, answer
    if _subtracts_squares(classifier) and inside.ratio > _MAX_WITH_SQUARES:
        reason = f"{type(classifier).__name__} subtracts squares that are larger still"
        raise _refusal(detector, single, farthest, reason)
    X = take_rows(X, slice(0, _N_TRIED))
    labels, scores = detector.answer(X)
    alone = [detector.answer(take_rows(X, slice(i, i + 1))) for i in range(len(labels))]
    if not np.array_equal(np.concatenate([label for label, _ in alone]), labels):
        raise _refusal(detector, single, farthest, "a row gets one label alone and another among other rows")
    noise = np.abs(np.concatenate([own for _, own in alone]) - scores)
    codes, calibrating = answer
    if np.all(_MARGIN_IN_DOUBLE * noise <= _ties_within(scores, calibrating, actual)):
        return detector, answer
    calibrating = round_to_single(calibrating)
    room = _ties_within(scores, calibrating, actual)
    if single:  # scores near 0 have the noise of larger ones, such as those of other classes
        room = np.maximum(room, _SHARE_IN_SINGLE * scores.std(axis=0))
    if np.any(_MARGIN_IN_SINGLE * noise > room):
        reason = (
            f"scores of a row alone and among others differ by up to {noise.max():.1g}, while the standard "
            f"deviation of all scores is {scores.std():.1g}"
        )
        raise _refusal(detector, single, farthest, reason)
    return detector._replace(in_single_precision=True), (codes, calibrating)


def _farthest(X: Any) -> _Farthest:
    """Return how far columns are from 0: the farthest one, or all columns together."""
    with np.errstate(over="ignore", invalid="ignore"):
        if sp.issparse(X):
            mean, variance = mean_variance_axis(sp.csr_matrix(X, dtype=np.float64), axis=0)
        else:
            values = np.asarray(X) if hasattr(X, "shape") else np.array(X, dtype=object)
            if values.ndim != 2 or values.dtype.kind not in "fiubO":
                return _Farthest()
            try:
                values = values.astype(np.float64)
            except (ValueError, TypeError):  # text
                return _Farthest()
            mean, variance = values.mean(axis=0), values.var(axis=0)
        known = np.isfinite(mean) & np.isfinite(variance)
        varies = known & (np.sqrt(variance) > 2.0**-48 * np.abs(mean))  # equal values vary by rounding
        if not varies.any():
            return _Farthest()
        each = np.abs(mean[varies]) / np.sqrt(variance[varies])
        together = np.linalg.norm(mean[known]) / np.sqrt(variance[varies].sum())
        position = int(np.flatnonzero(varies)[each.argmax()])
        column = repr(X.columns[position]) if hasattr(X, "columns") else f"column {position}"
        return _Farthest(float(max(each.max(), together)), column)


def _subtracts_squares(classifier: Any) -> bool:
    """Return whether it computes Euclidean distances by expanding the square."""
    if isinstance(classifier, KNeighborsClassifier | RadiusNeighborsClassifier):
        euclidean = classifier.effective_metric_ in ("euclidean", "sqeuclidean")
        return euclidean and classifier._fit_method == "brute"
    return isinstance(classifier, NearestCentroid) and classifier.metric == "euclidean"


def _ties_within(scores: FloatArray, calibrating: FloatArray, actual: IntArray) -> FloatArray:
    """Return the largest difference at which each score still ties with calibration scores."""
    ties = np.full(scores.shape, np.inf)
    for c in np.unique(actual):
        for column in np.ndindex(scores.shape[2:]):
            own, bag = scores[:, c, *column], calibrating[actual == c, c, *column]
            ties[:, c, *column] = own - rounding(np.sort(bag)).lowered(own)
    return ties


def _refusal(detector: Detector, single: bool, farthest: _Farthest, reason: str) -> CalibrationError:
    if single:
        return CalibrationError(
            f"in single precision too few digits are left where terms cancel: {reason}. Pass rows in double "
            "precision, to fit and to decide: X.astype(numpy.float64)."
        )
    if isinstance(detector.estimator, FrozenEstimator):
        scaled = "make_pipeline(StandardScaler(), detector).fit(X, y)"
        way_out = f"It is frozen, so fit it on scaled columns first: FrozenEstimator({scaled})."
    else:
        way_out = "Put a StandardScaler before the detector: make_pipeline(StandardScaler(), detector)."
    return CalibrationError(
        f"the columns are up to {farthest.ratio:,.0f} standard deviations away from 0 (the farthest: "
        f"{farthest.column}), so digits are lost where large terms cancel: {reason}. {way_out}"
    )
