"""Recognise the rows of earlier fits by their content, in any order."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from transcendent._utils.arrays import AnyArray, BoolArray, IntArray
from transcendent._utils.digests import float_type, number_digests, pair_up, row_digests

_UNSEEN, _TRAINS = -2, -1


class Roles(NamedTuple):
    """The calibration and training rows of each detector, as positions among the rows given to ``learn``.

    Their order depends on content alone: the rows of ``fit`` in their order, then the others.
    """

    calibration: list[IntArray]
    train: list[IntArray]
    n_new: int
    left_out: BoolArray
    known: "KnownRows"


@dataclass(frozen=True)
class KnownRows:
    """Digests of the rows that an evaluator was fitted on and has learnt since.

    ``dtype`` is the type of the numbers in the rows of ``fit``. ``digests`` and ``codes`` have the content of
    these rows and their labels, as positions in ``classes``. ``learnt`` has the content of the other rows,
    copies once, and ``folds`` the detector that each of them calibrates, -1 for none.
    """

    dtype: str
    classes: AnyArray
    codes: AnyArray
    digests: AnyArray
    learnt: AnyArray
    folds: AnyArray

    @classmethod
    def of(cls, X: Any, codes: IntArray, classes: AnyArray) -> Self:
        """Return the digests of the rows of a fit."""
        digests = row_digests(X, float_type(X))
        none = np.empty(0, dtype=np.int32)
        return cls(float_type(X), classes, codes.astype(np.int32), digests, digests[:0], none)

    def count_repeated(self, calibration: IntArray) -> int:
        """Return the number of calibration rows of ``fit`` that equal a training row."""
        others = np.delete(self.digests, calibration)
        return int(np.isin(self.digests[calibration], others).sum())

    def copies(self) -> BoolArray:
        """Return which rows of ``fit`` equal another one."""
        _, groups, sizes = np.unique(self.digests, return_inverse=True, return_counts=True)
        return np.asarray(sizes[groups] > 1)

    def assign(self, X: Any, y: AnyArray, classes: AnyArray, calibration: list[IntArray], k: int) -> Roles:
        """Find the rows of ``fit`` among others, and assign each row to training or calibration.

        One in ``k`` rows of a class that ``fit`` has not seen calibrates. Rows keep their roles in later
        calls. A new row that equals a calibration row of a detector does not train that detector.
        """
        digests = row_digests(X, self.dtype)
        of_fit, of_learnt, ids = number_digests(self.digests, self.learnt, digests)
        codes, seen = np.searchsorted(classes, y), np.searchsorted(classes, self.classes)
        old = self._find(of_fit, seen[self.codes], ids, codes, len(classes))
        added = ~np.isin(codes, seen)
        new = np.setdiff1d(np.arange(len(ids)), old)
        new = new[np.lexsort((codes[new], ~added[new], ids[new]))]
        different = new[np.unique(ids[new], return_index=True)[1]]
        folds = np.full(len(of_fit) + len(of_learnt) + len(ids), _UNSEEN)
        folds[of_learnt], folds[of_fit] = self.folds, _TRAINS
        unseen = different[folds[ids[different]] == _UNSEEN]
        _deal(folds, ids[different], np.where(added, codes, -1)[different], len(calibration), k)
        known = replace(
            self,
            learnt=np.concatenate([self.learnt, digests[unseen]]),
            folds=np.concatenate([self.folds, folds[ids[unseen]].astype(np.int32)]),
        )
        roles = Roles([], [], len(new), np.zeros(len(ids), dtype=bool), known)
        for fold, own in enumerate(calibration):
            more = different[added[different] & (folds[ids[different]] == fold)]
            copies = np.isin(ids[new], of_fit[own]) | (folds[ids[new]] == fold)
            roles.left_out[np.setdiff1d(new[copies], more)] = True
            roles.calibration.append(np.concatenate([old[own], more]))
            roles.train.append(np.concatenate([np.delete(old, own), new[~copies]]))
        return roles

    def _find(self, of_fit: IntArray, labels: IntArray, ids: IntArray, codes: IntArray, n: int) -> IntArray:
        """Return the position of each row of ``fit`` among the given rows; refuse if one is missing."""
        places = pair_up(of_fit * n + labels, ids * n + codes)
        missing = np.flatnonzero(places < 0)
        if len(missing) == 0:
            return places
        here, left = np.isin(of_fit[missing], ids), np.setdiff1d(np.arange(len(ids)), places)
        relabelled = pair_up(of_fit[missing], ids[left]) >= 0
        how = "have another label here" if relabelled.all() else "are not among these"
        if 0 < relabelled.mean() < 1:
            how += f", {relabelled.sum():,} of them with another label"
        if n_copies := np.sum(here & ~relabelled):
            how += f", {n_copies:,} of them copies of rows that are here less often than in fit"
        if not here.any() and len(missing) == len(places):
            how += " (do the numbers have another precision or type, such as float32 after a float64 fit?)"
        raise ValueError(
            f"{len(missing):,} of the {len(places):,} rows given to fit {how}; the first is row {missing[0]} "
            "of fit. Pass every row of fit unchanged, each as often as in fit, in any order, and every row "
            "labelled since; if they or their labels have changed, fit again."
        )


def _deal(folds: IntArray, ids: IntArray, added: IntArray, n_folds: int, k: int) -> None:
    """Assign unknown rows: one in k of an added class calibrates, and all others train.

    ``added`` has the class of each row, -1 if ``fit`` has seen the class.
    """
    for c in np.unique(added[added >= 0]):
        own = ids[added == c]
        unseen = own[folds[own] == _UNSEEN]
        turns = (len(own) - len(unseen) + np.arange(len(unseen))) % k
        folds[unseen] = np.where(turns < n_folds, turns, _TRAINS)
    folds[folds == _UNSEEN] = _TRAINS
