"""Ensembles fitted on samples of the rows: members whose sample lacks a row answer for it.

These are the out-of-bag estimates of Breiman (Random Forests, 2001).
"""

from typing import Any

import numpy as np
from sklearn.ensemble import BaggingClassifier, ExtraTreesClassifier, RandomForestClassifier
from sklearn.utils import _safe_indexing, check_array

from transcendent._utils.arrays import AnyArray, BoolArray, FloatArray, take_rows
from transcendent.leave_one_out.registry import LeftOut, register
from transcendent.leave_one_out.shared import refuse_if

MIN_MEMBERS = 5
"""Smallest number of members that must answer for a row."""


@register(RandomForestClassifier, ExtraTreesClassifier, kind="approximate")
def forest(trees: Any, X: Any, y: AnyArray) -> LeftOut:
    """Average the trees whose sample lacks the row."""
    weight = trees.class_weight
    refuse_if(isinstance(weight, str), f"class_weight={weight!r} changes with the labels of the rows")
    unseen = _unseen(trees, len(y))
    rows = check_array(X, dtype=np.float32, accept_sparse="csr", ensure_all_finite="allow-nan")
    votes, chances = np.zeros((2, len(y), len(trees.classes_)))
    for tree, judged in zip(trees.estimators_, unseen, strict=True):
        # Predicting all rows is faster than copying some of them.
        shares = tree.predict_proba(rows, check_input=False)[judged]
        votes[judged, np.argmax(shares, axis=1)] += 1
        chances[judged] += shares
    return _answers(trees, votes, chances, unseen)


@register(BaggingClassifier, kind="approximate")
def bagging(ensemble: Any, X: Any, y: AnyArray) -> LeftOut:
    """Average the members whose sample lacks the row."""
    unseen = _unseen(ensemble, len(y))
    rows = check_array(X, dtype=None, accept_sparse="csr", ensure_all_finite=False)
    votes, chances = np.zeros((2, len(y), len(ensemble.classes_)))
    members = zip(ensemble.estimators_, ensemble.estimators_features_, unseen, strict=True)
    for member, features, outside in members:
        judged = np.flatnonzero(outside)
        part = _safe_indexing(take_rows(rows, judged), features, axis=1)
        labels = np.asarray(member.predict(part), dtype=np.intp)
        votes[judged, labels] += 1
        if hasattr(member, "predict_proba"):
            known = np.asarray(member.classes_, dtype=np.intp)
            chances[np.ix_(judged, known)] += member.predict_proba(part)
        else:
            chances[judged, labels] += 1
    return _answers(ensemble, votes, chances, unseen)


def _unseen(ensemble: Any, n_rows: int) -> BoolArray:
    """Return the (members, rows) mask of the rows that are not in the sample of a member."""
    unseen = np.ones((len(ensemble.estimators_), n_rows), dtype=bool)
    for row, sample in zip(unseen, ensemble.estimators_samples_, strict=True):
        row[sample] = False
    refuse_if(not unseen.any(), f"every member was fitted on every row (bootstrap={ensemble.bootstrap})")
    judges = unseen.sum(axis=0)
    fewest = int(np.argmin(judges))
    where = f"row {fewest} is in the sample of all but {judges[fewest]} of n_estimators={len(unseen)}"
    refuse_if(judges[fewest] < MIN_MEMBERS, f"too few members: {where}")
    return unseen


def _answers(ensemble: Any, votes: FloatArray, chances: FloatArray, unseen: BoolArray) -> LeftOut:
    judges = unseen.sum(axis=0)[:, None]
    return LeftOut(ensemble.classes_, predict_proba=chances / judges, vote_shares=votes / judges)
