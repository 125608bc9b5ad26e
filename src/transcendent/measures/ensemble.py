"""Disagreement among the members of an ensemble."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.ensemble import BaggingClassifier, ExtraTreesClassifier, RandomForestClassifier
from sklearn.utils import _safe_indexing, check_array

from transcendent._utils.arrays import FloatArray, count_rows
from transcendent.errors import MeasureError, NoShortcutError
from transcendent.measures.base import Measure

POLLED = (RandomForestClassifier, ExtraTreesClassifier, BaggingClassifier)


class TreeDisagreement(Measure):
    """Share of the trees of a forest (or members of a bagging ensemble) that vote for other classes.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from transcendent.measures import TreeDisagreement
    >>> X, y = [[0.0], [1.0], [8.0], [9.0]] * 5, [0, 0, 1, 1] * 5
    >>> forest = RandomForestClassifier(10, random_state=0).fit(X, y)
    >>> TreeDisagreement().scores(forest, [[0.5]])
    array([[0., 1.]])
    """

    def scores(self, estimator: Any, X: Any) -> FloatArray:
        """Return shares of dissenting votes, in [0, 1]."""
        if not isinstance(estimator, POLLED):
            raise MeasureError(
                f"{type(estimator).__name__} is not a forest: TreeDisagreement needs one of "
                f"{', '.join(kind.__name__ for kind in POLLED)}."
            )
        votes = np.zeros((count_rows(X), len(estimator.classes_)))
        rows = np.arange(len(votes))
        for codes in _member_codes(estimator, X):
            votes[rows, np.asarray(codes, dtype=np.intp)] += 1
        return 1.0 - votes / len(estimator.estimators_)

    def left_out_scores(self, answers: Any, X: Any, y: Any) -> FloatArray:  # noqa: ARG002
        """Return shares of dissenting votes among the members that were not fitted on the row."""
        if not hasattr(answers, "vote_shares"):
            raise NoShortcutError("there are no left-out votes")
        return np.asarray(1.0 - answers.vote_shares(X))


def _member_codes(ensemble: Any, X: Any) -> Iterator[Any]:
    """Yield the labels that each member predicts, as positions in the ensemble's ``classes_``."""
    if isinstance(ensemble, BaggingClassifier):
        rows = check_array(X, dtype=None, accept_sparse="csr", ensure_all_finite=False)
        for member, features in zip(ensemble.estimators_, ensemble.estimators_features_, strict=True):
            yield member.predict(_safe_indexing(rows, features, axis=1))
        return
    # Trees work on float32 rows: convert once, not once per tree.
    rows = check_array(X, dtype=np.float32, accept_sparse="csr", ensure_all_finite="allow-nan")
    for tree in ensemble.estimators_:
        yield tree.predict(rows, check_input=False)
