"""A measure from another model, fitted beside the detector."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import clone

from transcendent._utils import parallel
from transcendent._utils.arrays import FloatArray, chunks, count_rows, encode_labels, take_rows
from transcendent._utils.estimators import see_through, transform
from transcendent.leave_one_out.registry import find_shortcut
from transcendent.measures.auto import resolve_measure
from transcendent.measures.base import Measure, training_codes

_BLOCK = 1 << 14


class SecondOpinion(Measure):
    """A measure of another classifier, fitted on the detector's training rows.

    If the detector is a pipeline, these are the transformed rows.

    Parameters
    ----------
    estimator : classifier
        The other classifier.
    measure : "auto" or Measure
        The measure of that classifier.
    n_jobs : int or None
        Largest number of OpenMP threads of the classifier, -1 for one per core; by default no limit. Boosting
        with more threads than free cores takes several times as long as with one.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent.measures import Probability, SecondOpinion
    >>> X, y = [[-2.0], [-1.0], [1.0], [2.0]], ["ham", "ham", "spam", "spam"]
    >>> svm = LinearSVC().fit(X, y)
    >>> SecondOpinion(GaussianNB(), Probability()).fit(svm, X, y).scores(svm, [[0.1]]).round(2)
    array([[-0.23, -0.77]])
    """

    needs_rows = needs_rows_alone = True

    def __init__(self, estimator: Any, measure: Any = "auto", *, n_jobs: int | None = None) -> None:
        self.estimator = estimator
        self.measure = measure
        self.n_jobs = n_jobs

    def fit(self, estimator: Any, X: Any, y: Any) -> Self:
        """Fit the other classifier and its measure; its labels are positions in the detector's classes."""
        codes = training_codes(estimator, y)
        with self._threads():
            self.estimator_ = clone(self.estimator).fit(X, codes)
        transformers, classifier = see_through(self.estimator_)
        self.measure_ = resolve_measure(self.measure, self.estimator_)
        if self.measure_.needs_rows:
            self.measure_.fit(classifier, transform(transformers, X), codes)
        return self

    def scores(self, estimator: Any, X: Any) -> FloatArray:  # noqa: ARG002
        """Return the scores of the other classifier's measure."""
        transformers, classifier = see_through(self.estimator_)
        # In blocks, because its transformers may make sparse rows dense.
        blocks = (take_rows(X, rows) for rows in chunks(count_rows(X), _BLOCK))
        with self._threads():
            scored = [self.measure_.scores(classifier, transform(transformers, block)) for block in blocks]
        return np.concatenate(scored)

    def _threads(self) -> AbstractContextManager[Any]:
        if self.n_jobs is None:
            return nullcontext()
        return parallel.openmp_threads(effective_n_jobs(self.n_jobs))

    @property
    def left_out_is_exact(self) -> bool:
        """Whether the other classifier has an exact shortcut."""
        return find_shortcut(self.estimator_, {}).kind == "exact" and self.measure_.left_out_is_exact

    def left_out_scores(self, answers: Any, X: Any, y: Any) -> FloatArray:
        """Return the left-out scores of the other classifier, by its shortcut."""
        codes = encode_labels(y, answers.classes_, "y")
        transformers, classifier = see_through(self.estimator_)
        rows = transform(transformers, X)
        own = find_shortcut(self.estimator_, {}).function(classifier, rows, codes)
        return self.measure_.left_out_scores(own, rows, codes)
