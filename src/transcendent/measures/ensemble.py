"""Disagreement among the members of an ensemble."""

from typing import Any

import numpy as np
from sklearn.ensemble import BaggingClassifier, ExtraTreesClassifier, RandomForestClassifier
from sklearn.utils import _safe_indexing, check_array

from transcendent._utils.arrays import FloatArray
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
        """Shares of dissenting votes in [0, 1]."""
        if not isinstance(estimator, POLLED):
            raise MeasureError(
                f"{type(estimator).__name__} is not a forest: TreeDisagreement polls the members of "
                f"{', '.join(kind.__name__ for kind in POLLED)}."
            )
        poll = _bagging_votes if isinstance(estimator, BaggingClassifier) else _forest_votes
        return 1.0 - poll(estimator, X) / len(estimator.estimators_)

    def left_out_scores(self, answers: Any, X: Any, y: Any) -> FloatArray:  # noqa: ARG002
        """Shares of dissenting votes among the members that were not fitted on the row."""
        if not hasattr(answers, "vote_shares"):
            raise NoShortcutError("there are no left-out votes")
        dissent: FloatArray = 1.0 - answers.vote_shares(X)
        return dissent


def _forest_votes(forest: Any, X: Any) -> FloatArray:
    # Trees work on float32 rows: convert once, not once per tree.
    rows = check_array(X, dtype=np.float32, accept_sparse="csr", ensure_all_finite="allow-nan")
    votes = np.zeros((rows.shape[0], len(forest.classes_)))
    for tree in forest.estimators_:
        _add_votes(votes, tree.predict(rows, check_input=False))
    return votes


def _bagging_votes(bagging: Any, X: Any) -> FloatArray:
    rows = check_array(X, dtype=None, accept_sparse="csr", ensure_all_finite=False)
    votes = np.zeros((rows.shape[0], len(bagging.classes_)))
    for member, features in zip(bagging.estimators_, bagging.estimators_features_, strict=True):
        _add_votes(votes, member.predict(_safe_indexing(rows, features, axis=1)))
    return votes


def _add_votes(votes: FloatArray, predicted: Any) -> None:
    """Members of these ensembles answer with positions in ``classes_``."""
    votes[np.arange(len(votes)), np.asarray(predicted, dtype=np.intp)] += 1
