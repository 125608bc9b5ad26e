"""DroidEvolver: five online learners, where learners that are not aging label rows for aging ones."""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from transcendent._utils.arrays import (
    AnyArray,
    BoolArray,
    FloatArray,
    IntArray,
    abbreviate,
    canonical_rows,
    labels_to_fit,
    warn_of_other_order,
)
from transcendent._utils.cells import check_names, locate_bad_value
from transcendent.decisions import Decisions, InWords, Rejector, index_of

_N_LEARNERS = 5
_PA, _OGD, _AROW, _RDA, _ADA_FOBOS = range(_N_LEARNERS)

# The usual constants of these learners; larger L1 weights reduce their accuracy.
_PA_LIMIT = _OGD_RATE = _AROW_R = _RDA_GAMMA = _ADA_FOBOS_RATE = 1.0
_RDA_L1 = _ADA_FOBOS_L1 = 1e-4
_ADA_FOBOS_DELTA = 10.0


class DroidEvolver(Rejector, ClassifierMixin, BaseEstimator):
    """Rejects a row if any of five online linear learners is aging on it.

    After Xu et al., "DroidEvolver: Self-Evolving Android Malware Detection System" (EuroS&P 2019). The
    learners are PA-I, OGD, AROW, RDA and Ada-FOBOS. For each row, each learner's score is ranked among its
    scores of recent rows on the same side of zero. A learner whose rank, the juvenilization indicator, is
    outside ``healthy`` is aging: it has no vote, and learns the row with the label the others give it.

    ``decide`` **changes the learners**: pass each row once, in the order of time. ``predict`` returns the
    labels that ``decide`` would, and changes nothing. ``fit`` starts over.

    Parameters
    ----------
    buffer_size : int
        Number of rows whose scores are kept to rank new scores.
    healthy : pair of floats
        Lowest and highest juvenilization indicator of a learner that is not aging.
    random_state : int, RandomState or None
        Seed for the rows that fill the buffer, and for the entry that each new row replaces.

    Notes
    -----
    Online learners remember recent rows best. If rows of a period have no finer times, shuffle them rather
    than pass one class after the other.

    The indicator is the share of scores no further from zero than the row's. The paper on Transcendent counts
    those further away, which is the same if ``healthy`` is symmetric around one half.

    In its decisions ``votes`` is the number of learners that are not aging and give the label,
    ``credibility`` their share of the five, and ``confidence`` one minus the share of those that give the
    other label. A row is accepted if no learner is aging.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from transcendent.baselines import DroidEvolver
    >>> X, y = make_classification(2000, flip_y=0.1, random_state=0)
    >>> evolver = DroidEvolver(buffer_size=500, healthy=(0.1, 0.9), random_state=0).fit(X[:1000], y[:1000])
    >>> decisions = evolver.decide(X[1000:])
    >>> right = decisions.labels == y[1000:]
    >>> bool(right[decisions.accepted].mean() > right[decisions.rejected].mean())
    True
    """

    evolves = depends_on_others = has_votes = True

    def __init__(
        self, *, buffer_size: int = 2000, healthy: tuple[float, float] = (0.3, 0.7), random_state: Any = None
    ) -> None:
        self.buffer_size = buffer_size
        self.healthy = healthy
        self.random_state = random_state

    def in_words(self, n_classes: int) -> InWords:  # noqa: ARG002
        """Return how its learners judge and reject."""
        return InWords(
            "judges by five online linear learners that teach each other (DroidEvolver)",
            "a row on which any of them is aging",
            "It changes as it decides, and may teach itself wrong labels.",
        )

    @locate_bad_value
    def fit(self, X: Any, y: Any) -> Self:
        """Train every learner in one pass over rows of two classes in the order of time; fill the buffer."""
        if not isinstance(self.buffer_size, int | np.integer) or self.buffer_size < 1:
            raise ValueError(f"buffer_size must be a positive integer, got {self.buffer_size!r}.")
        low, high = self.healthy
        if not 0 <= low <= high <= 1:
            raise ValueError(f"healthy must be two numbers with 0 <= low <= high <= 1, got {self.healthy!r}.")
        self.__dict__.pop("_pool", None)  # a fit that fails leaves no old state behind
        warn_of_other_order(X, y, stacklevel=4)
        if y is not None:
            y = labels_to_fit(y)
        check_names(X)
        X, y = validate_data(self, canonical_rows(X), y, accept_sparse="csr", dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) != 2:
            raise ValueError(
                f"Only binary classification is supported: {type(self).__name__} needs rows of two classes, "
                f"but y has {len(self.classes_)} class(es): {abbreviate(self.classes_)}."
            )
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        generator, learners = np.random.default_rng(seed), _Learners(X.shape[1] + 1)
        for row, sign in zip(_rows(X), np.where(codes == 1, 1.0, -1.0).tolist(), strict=True):
            learners.learn(range(_N_LEARNERS), row, sign, learners.scores(row))
        drawn = X[generator.integers(X.shape[0], size=self.buffer_size)]
        buffer = np.stack([learners.scores(row) for row in _rows(drawn)], axis=1)
        self._pool = _Pool(learners, buffer, generator)
        return self

    def predict(self, X: Any) -> AnyArray:
        """Return the labels ``decide`` would give, without evolving."""
        X = self._check_rows(X)
        return np.asarray(self.classes_[deepcopy(self._pool).evolve(X, self.healthy)[0]])

    def decide(self, X: Any) -> Decisions:
        """Label each row, accept or reject it, and update the learners, one row after the other."""
        index, X = index_of(X), self._check_rows(X)
        codes, scores, young = self._pool.evolve(X, self.healthy)
        positive = scores > 0
        votes = np.stack([(young & ~positive).sum(axis=1), (young & positive).sum(axis=1)], axis=1)
        p = votes / _N_LEARNERS
        each = np.arange(len(codes))
        return Decisions(
            labels=self.classes_[codes],
            accepted=votes.sum(axis=1) == _N_LEARNERS,
            credibility=p[each, codes],
            confidence=1 - p[each, 1 - codes],
            classes=self.classes_,
            votes=votes[each, codes],
            index=index,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags

    @locate_bad_value
    def _check_rows(self, X: Any) -> Any:
        check_is_fitted(self, "_pool")
        check_names(X)
        return validate_data(self, canonical_rows(X), accept_sparse="csr", dtype=np.float64, reset=False)


_Row = tuple[IntArray, FloatArray]
"""Columns of a row that are not zero, in order, and its values there; the last one is the intercept."""


class _Learners:
    """The five learners, one column of ``weights`` each; the cost of a step grows with the row's entries."""

    def __init__(self, width: int) -> None:
        self.weights = np.zeros((width, _N_LEARNERS))  # in RDA's column, the sum of its gradients
        self.steps = [0] * _N_LEARNERS
        self.variances = np.ones(width)  # of AROW
        self.squares = np.zeros(width)  # of Ada-FOBOS: sums of squared gradients
        self.shrunk = np.zeros(width)  # and the step up to which each weight has been shrunk

    def scores(self, row: _Row) -> FloatArray:
        """Return each learner's score of the row, positive for the second class."""
        columns, x = row
        weights = self.weights[columns]
        weights[:, _RDA] = self._rda_weights(weights[:, _RDA])
        weights[:, _ADA_FOBOS] = self._ada_fobos_weights(columns)
        # Summed in the order of columns: weights of zero do not change the last bit, so ties stay ties.
        return np.asarray((weights * x[:, None]).sum(axis=0))

    def learn(self, learners: Iterable[int], row: _Row, sign: float, scores: FloatArray) -> None:
        """Update some of the learners by one step, given the present scores of the row."""
        for learner in learners:
            loss = 1.0 - sign * float(scores[learner])
            if loss > 0:
                _STEPS[learner](self, *row, sign, loss)
            self.steps[learner] += 1

    def _pa(self, columns: IntArray, x: FloatArray, sign: float, loss: float) -> None:
        self.weights[columns, _PA] += min(_PA_LIMIT, loss / float((x * x).sum())) * sign * x

    def _ogd(self, columns: IntArray, x: FloatArray, sign: float, _loss: float) -> None:
        self.weights[columns, _OGD] += _OGD_RATE / sqrt(self.steps[_OGD] + 1) * sign * x

    def _arow(self, columns: IntArray, x: FloatArray, sign: float, loss: float) -> None:
        variances = self.variances[columns]
        towards = variances * x
        beta = 1.0 / (float((towards * x).sum()) + _AROW_R)
        self.weights[columns, _AROW] += loss * beta * sign * towards
        self.variances[columns] = variances - beta * towards * towards

    def _rda(self, columns: IntArray, x: FloatArray, sign: float, _loss: float) -> None:
        self.weights[columns, _RDA] -= sign * x

    def _rda_weights(self, gradients: FloatArray) -> FloatArray:
        t = max(self.steps[_RDA], 1)
        return -sqrt(t) / _RDA_GAMMA * _shrink(gradients / t, _RDA_L1)

    def _ada_fobos(self, columns: IntArray, x: FloatArray, sign: float, _loss: float) -> None:
        weights = self._ada_fobos_weights(columns)
        squares = self.squares[columns] + x * x
        rates = _ADA_FOBOS_RATE / (_ADA_FOBOS_DELTA + np.sqrt(squares))
        self.weights[columns, _ADA_FOBOS] = _shrink(weights + rates * sign * x, _ADA_FOBOS_L1 * rates)
        self.squares[columns] = squares
        self.shrunk[columns] = self.steps[_ADA_FOBOS] + 1

    def _ada_fobos_weights(self, columns: IntArray) -> FloatArray:
        """Return weights after all missed shrinks, which are equal while a weight has no gradient."""
        missed = self.steps[_ADA_FOBOS] - self.shrunk[columns]
        rates = _ADA_FOBOS_RATE / (_ADA_FOBOS_DELTA + np.sqrt(self.squares[columns]))
        return _shrink(self.weights[columns, _ADA_FOBOS], missed * (_ADA_FOBOS_L1 * rates))


_STEPS = (_Learners._pa, _Learners._ogd, _Learners._arow, _Learners._rda, _Learners._ada_fobos)


@dataclass
class _Pool:
    """The learners, their (learners, buffer size) scores of recent rows, and a random generator."""

    learners: _Learners
    buffer: FloatArray
    generator: np.random.Generator

    def evolve(self, X: Any, healthy: tuple[float, float]) -> tuple[IntArray, FloatArray, BoolArray]:
        """Return labels as 0 or 1, the learners' scores, and the mask of learners that are not aging."""
        n = X.shape[0]
        codes, scores = np.empty(n, dtype=np.intp), np.empty((n, _N_LEARNERS))
        young = np.empty((n, _N_LEARNERS), dtype=bool)
        replaced = self.generator.integers(self.buffer.shape[1], size=n).tolist()
        for i, row in enumerate(_rows(X)):
            self.buffer[:, replaced[i]] = scores[i] = self.learners.scores(row)
            indicators = self._juvenilization(scores[i])
            young[i] = (healthy[0] <= indicators) & (indicators <= healthy[1])
            codes[i] = self._conclude(row, scores[i], young[i])
        return codes, scores, young

    def _juvenilization(self, scores: FloatArray) -> FloatArray:
        """Return the share of each learner's scores on this side of zero that are no further from zero."""
        same_side = (self.buffer > 0) == (scores > 0)[:, None]
        nearer = np.abs(self.buffer) <= np.abs(scores)[:, None]
        return np.asarray((same_side & nearer).sum(axis=1) / same_side.sum(axis=1))

    def _conclude(self, row: _Row, scores: FloatArray, young: BoolArray) -> bool:
        """Return whether learners that are not aging give the second class; the others learn the label."""
        voters = scores[young]
        if len(voters) in (0, _N_LEARNERS):
            return bool(scores.sum() > 0)
        positive = bool(voters.sum() > 0)
        self.learners.learn(np.flatnonzero(~young).tolist(), row, 1.0 if positive else -1.0, scores)
        return positive


def _rows(X: Any) -> Iterator[_Row]:
    """Yield the rows with a one appended for the intercept."""
    with_ones = sp.hstack([sp.csr_array(X), np.ones((X.shape[0], 1))], format="csr")
    with_ones.sum_duplicates()
    with_ones.eliminate_zeros()
    columns, values, ends = with_ones.indices.astype(np.intp), with_ones.data, with_ones.indptr.tolist()
    for start, end in pairwise(ends):
        yield columns[start:end], values[start:end]


def _shrink(values: FloatArray, by: FloatArray | float) -> FloatArray:
    """Move values towards zero, and not beyond it."""
    return np.sign(values) * np.maximum(np.abs(values) - by, 0.0)
