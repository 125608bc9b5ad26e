"""The transductive conformal evaluator (TCE), exact and approximate."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

from transcendent import parallel
from transcendent.arrays import AnyArray, FloatArray, IntArray, take_rows
from transcendent.errors import CalibrationError
from transcendent.evaluators.base import ConformalEvaluator, SingleDetectorMixin, fit_detector
from transcendent.evaluators.calibration import CalibrationLabel
from transcendent.evaluators.splits import Split, check_every_row_is_left_out, folds
from transcendent.pvalues import Form


class TransductiveEvaluator(SingleDetectorMixin, ConformalEvaluator):
    """Every row trains and every row calibrates: each is scored by a model that did not see it.

    ``cv="loo"`` refits the detector once per row (TCE). A number of folds leaves rows out in batches
    (approx-TCE); with as many folds as rows it is the same. New objects are judged by one detector fitted
    on everything, against the pooled left-out scores.

    Parameters
    ----------
    estimator, measure, search, p_value, calibration_label, random_state, verbose
        As for `InductiveEvaluator`.
    cv : "loo", int or splitter
        Leave-one-out, a number of stratified folds, or a scikit-learn splitter whose test parts cover each
        row once.
    n_jobs : int or None
        How many refits run at once, in processes, and how many chunks of rows are decided at once, in
        threads.

    Attributes
    ----------
    classes_, estimator_, measure_, calibration_, result_, thresholds_
        As for `InductiveEvaluator`.

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

    def __init__(
        self,
        estimator: Any,
        *,
        measure: Any = "auto",
        search: Any = "auto",
        cv: Any = 10,
        p_value: Form = "paper",
        calibration_label: CalibrationLabel = "predicted",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = True,
    ) -> None:
        self.estimator = estimator
        self.measure = measure
        self.search = search
        self.cv = cv
        self.p_value = p_value
        self.calibration_label = calibration_label
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any, **params: Any) -> Self:
        """Score every row left out, then fit on everything; ``params`` go to the detector, routed."""
        X, y, codes = self._start_fit(X, y)
        check_every_row_is_left_out(codes, self.classes_)
        splits, total = folds(self.cv, codes, self.classes_, check_random_state(self.random_state))
        routed = self._routed(params)
        # Many small refits go out in batches: one task each would cost more than the fits.
        size = 25 if total > 100 else 1
        parts = parallel.run(
            _score_left_out,
            ((self.estimator, self.measure, X, y, batch, routed) for batch in _batches(splits, size)),
            total=-(-total // size),
            n_jobs=self.n_jobs,
            label="scoring left-out rows",
            verbose=self.verbose,
        )
        rows, predicted, scores = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        if not np.array_equal(np.sort(rows), np.arange(len(y))):
            raise CalibrationError("the test parts of cv must cover every row exactly once.")
        order = np.argsort(rows)
        detector = fit_detector(self.estimator, self.measure, X, y, np.arange(len(y)), routed)
        return self._finish_fit([(detector, self._calibration(predicted[order], scores[order], y))])


def _score_left_out(
    estimator: Any, measure: Any, X: Any, y: AnyArray, splits: list[Split], params: dict[str, Any]
) -> tuple[IntArray, IntArray, FloatArray]:
    """Rows, predicted labels and scores of the test parts, each from a fit on its training part."""
    rows, predicted, scores = [], [], []
    for train, test in splits:
        answer = fit_detector(estimator, measure, X, y, train, params).answer(take_rows(X, test))
        rows.append(test)
        predicted.append(answer[0])
        scores.append(answer[1])
    return np.concatenate(rows), np.concatenate(predicted), np.concatenate(scores)


def _batches(splits: Iterable[Split], size: int) -> Iterator[list[Split]]:
    iterator = iter(splits)
    while batch := list(islice(iterator, size)):
        yield batch
