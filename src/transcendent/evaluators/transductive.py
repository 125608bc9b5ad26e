"""The transductive conformal evaluator (TCE), exact and approximate."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

from transcendent import parallel
from transcendent.arrays import FloatArray, IntArray, take_rows
from transcendent.errors import CalibrationError
from transcendent.evaluators.base import FoldedEvaluator, SingleDetectorMixin, Training
from transcendent.evaluators.splits import Split, check_every_row_is_left_out, folds


class TransductiveEvaluator(SingleDetectorMixin, FoldedEvaluator):
    """Every row trains and every row calibrates: each is scored by a model that did not see it.

    ``cv="loo"`` refits the detector once per row (TCE). A number of folds leaves rows out in batches
    (approx-TCE); with as many folds as rows it is the same. New objects are judged by one detector fitted
    on everything, against the pooled left-out scores.

    Parameters other than ``cv`` and ``n_jobs``, and all attributes, are those of `InductiveEvaluator`.

    Parameters
    ----------
    cv : "loo", int or splitter
        Leave-one-out, a number of stratified folds, or a scikit-learn splitter whose test parts cover each
        row once.
    n_jobs : int or None
        How many refits run at once, in processes, and how many chunks of rows are decided at once, in
        threads.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from transcendent import TransductiveEvaluator
    >>> X, y = make_classification(200, flip_y=0.1, random_state=0)
    >>> tce = TransductiveEvaluator(GaussianNB(), cv="loo").fit(X, y)
    >>> len(tce.calibration_.scores), tce.measure_
    (200, Density())
    """

    def fit(self, X: Any, y: Any, **params: Any) -> Self:
        """Score every row left out, then fit on everything; ``params`` go to the detector, routed."""
        training, codes = self._start_fit(X, y, params)
        check_every_row_is_left_out(codes, self.classes_)
        splits, total = folds(self.cv, codes, self.classes_, check_random_state(self.random_state))
        # Many small refits go out in batches: one task each would cost more than the fits.
        size = 25 if total > 100 else 1
        parts = parallel.run(
            _score_left_out,
            ((training, batch) for batch in _batches(splits, size)),
            total=-(-total // size),
            n_jobs=self.n_jobs,
            label="scoring left-out rows",
            verbose=self.verbose,
        )
        rows, predicted, scores = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        if not np.array_equal(np.sort(rows), np.arange(len(codes))):
            raise CalibrationError("the test parts of cv must cover every row exactly once.")
        order = np.argsort(rows)
        calibration = self._calibration(predicted[order], scores[order], training.y)
        return self._finish_fit([(training.fit(np.arange(len(codes))), calibration)])


def _score_left_out(training: Training, splits: list[Split]) -> tuple[IntArray, IntArray, FloatArray]:
    """Rows, predicted labels and scores of the test parts, each from a fit on its training part."""
    rows, predicted, scores = [], [], []
    for train, test in splits:
        answer = training.fit(train).answer(take_rows(training.X, test))
        rows.append(test)
        predicted.append(answer[0])
        scores.append(answer[1])
    return np.concatenate(rows), np.concatenate(predicted), np.concatenate(scores)


def _batches(splits: Iterable[Split], size: int) -> Iterator[list[Split]]:
    iterator = iter(splits)
    while batch := list(islice(iterator, size)):
        yield batch
