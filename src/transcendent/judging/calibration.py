"""The calibration objects of a judge, as plain arrays."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal

import numpy as np
from scipy.stats import rankdata

from transcendent._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray, abbreviate
from transcendent._utils.checks import check_choices
from transcendent.errors import CalibrationError, CalibrationWarning
from transcendent.judging.pvalues import Bags, Form, credibility_and_confidence, merge_ties, rounding
from transcendent.merging import Merging
from transcendent.thresholds.base import Search, SearchResult
from transcendent.thresholds.guaranteed import held_out_mask

CalibrationLabel = Literal["predicted", "true"]

_FEW = 20
_MAX_RANKED = 1 << 14


@dataclass(frozen=True)
class AlphaAssessment:
    """P-values of calibration objects by class, split into correct and incorrect answers.

    A good measure puts the correct ones high and the incorrect ones low.

    Attributes
    ----------
    classes : array
        The labels.
    p_values : array of shape (m,)
        One for each object, or for each object and class.
    labels : array of shape (m,)
        The class that each of the m ``p_values`` is for: the predicted label, or every class in turn.
    correct : bool array of shape (m,)
        Whether that class is the object's true label.
    """

    classes: AnyArray
    labels: AnyArray
    correct: AnyArray
    p_values: FloatArray

    def quartiles(self) -> dict[tuple[Any, str], FloatArray]:
        """Return the three quartiles per class and group, NaN for a group without objects."""
        out = {}
        for label in self.classes.tolist():
            for name, right in (("correct", True), ("incorrect", False)):
                group = self.p_values[(self.labels == label) & (self.correct == right)]
                out[label, name] = np.quantile(group, [0.25, 0.5, 0.75]) if len(group) else np.full(3, np.nan)
        return out


@dataclass(frozen=True)
class Calibration:
    """Scores and labels of the calibration objects, and the p-values they have.

    Attributes
    ----------
    classes : array
        The labels.
    scores : array of shape (n, classes) or (n, classes, members)
        Nonconformity for each class; a combined measure has one for each member.
    actual, predicted : int arrays of shape (n,)
        True and predicted labels, as positions in ``classes``.
    p_value : {"paper", "plus_one"}
        The form of p-values.
    label : {"predicted", "true"}
        The label whose p-value is used to search thresholds.
    merging : Merging or None
        The rule that merges members, if there are any.
    held_out_seed : int or None
        Seed that draws the objects that only test thresholds and are in no bag; None draws no objects.
    """

    classes: AnyArray
    scores: FloatArray
    actual: IntArray
    predicted: IntArray
    p_value: Form = "paper"
    label: CalibrationLabel = "predicted"
    merging: Merging | None = None
    held_out_seed: int | None = None

    def __post_init__(self) -> None:
        check_choices(Form, p_value=self.p_value)
        check_choices(CalibrationLabel, calibration_label=self.label)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out cached values, so that pickles and hashes do not depend on use."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def counts(self) -> IntArray:
        """Number of calibration objects of each class in the bags."""
        return np.bincount(self.actual[self._bagged], minlength=len(self.classes))

    def merge(self, scores: FloatArray) -> FloatArray:
        """Return (n, classes) scores of new objects, merged if there are members."""
        return scores if self.merging is None else self.merging.scores(self.member_p_values(scores))

    @cached_property
    def merged(self) -> FloatArray:
        """(n, classes) scores of the calibration objects, merged if there are members."""
        return self.scores if self.merging is None else self.merging.scores(self._own_member_p_values)

    def check_bags(self, user: str) -> None:
        """Refuse a draw that left the bag of some class empty."""
        if len(empty := self.classes[self.counts == 0]):
            raise CalibrationError(
                f"{user} compares with 30% of the calibration objects, drawn at random, and none of them has "
                f"the label {abbreviate(empty)}: pass more calibration objects of it."
            )

    @cached_property
    def bags(self) -> Bags:
        """The sorted scores that new objects are compared with."""
        pooled = self.merging is not None and self.merging.bag == "all"
        return Bags.of(self.merged[self._bagged], self.actual[self._bagged], self.classes, pooled=pooled)

    @cached_property
    def p_values(self) -> FloatArray:
        """(n, classes) p-values of the calibration objects, each left out of its own bag."""
        rows = self._bagged
        p = self.bags.left_out_p_values(self.merged[rows], self.actual[rows], self.p_value)
        if self.held_out_seed is None:
            return p
        of_all = self.bags.p_values(self.merged, self.p_value)
        of_all[rows] = p
        return of_all

    @property
    def tested(self) -> BoolArray:
        """Mask of the objects that only test thresholds and are in no bag."""
        n = len(self.actual)
        return np.zeros(n, dtype=bool) if self.held_out_seed is None else held_out_mask(n, self.held_out_seed)

    @property
    def repeated(self) -> int:
        """Number of test objects whose scores and labels equal those of an earlier test object.

        They are repeated rows, or rows that the measure cannot distinguish.
        """
        tested = self.tested
        if not tested.any():
            return 0
        columns = self.scores[tested].reshape(tested.sum(), -1).T
        scores = [merge_ties(column, rounding(np.sort(column))) for column in columns]
        objects = np.column_stack([*scores, self.actual[tested], self.predicted[tested]])
        return len(objects) - len(np.unique(objects, axis=0))

    @cached_property
    def _bagged(self) -> Any:
        """Index of the objects in the bags."""
        return slice(None) if self.held_out_seed is None else ~self.tested

    @cached_property
    def _member_bags(self) -> list[Bags]:
        assert self.merging is not None
        pools, actual = self.merging.pools, self.actual[self._bagged]
        members = enumerate(np.moveaxis(self.scores[self._bagged], -1, 0))
        return [Bags.of(own, actual, self.classes, pooled=pools(m)) for m, own in members]

    def member_p_values(self, scores: FloatArray) -> FloatArray:
        """Return (n, classes, members) p-values of new objects, in the form ``"plus_one"``."""
        members = enumerate(self._member_bags)
        return np.stack([bags.p_values(scores[:, :, m], "plus_one") for m, bags in members], axis=-1)

    def credibility(self, codes: IntArray, scores: FloatArray) -> FloatArray:
        """Return the p-value of each new object for one label, given as its position."""
        out = np.empty(len(codes))
        for c in range(len(self.classes)):
            own = np.flatnonzero(codes == c)
            merged = scores[own, c]
            if self.merging is not None:
                members = enumerate(self._member_bags)
                p = [bags.p_values_of(c, merged[:, m], "plus_one") for m, bags in members]
                merged = self.merging.scores(np.stack(p, axis=-1))
            out[own] = self.bags.p_values_of(c, merged, self.p_value)
        return out

    @property
    def _own_member_p_values(self) -> FloatArray:
        """(n, classes, members) p-values of the calibration objects.

        An object in the bag gets the smallest p-value it could have beside a new object: itself counted once,
        and divided by the size of the bag with the new object in it. So the p-values of new objects stay
        valid. They can be a few steps too high: one for each calibration object that would otherwise rank
        on the other side of the new one.
        """
        p, actual = self.member_p_values(self.scores), self.actual[self._bagged]
        own = (np.arange(len(p))[self._bagged], actual)
        size = np.column_stack([bags.counts[actual] for bags in self._member_bags]) + 1
        p[own] = (np.rint(p[own] * size) - 1) / size
        return p

    def credibility_and_confidence(self) -> tuple[FloatArray, FloatArray]:
        """Return both values of the calibration objects, for the labels that ``label`` names."""
        codes = self.predicted if self.label == "predicted" else self.actual
        return credibility_and_confidence(self.p_values, codes)

    def search(self, search: Search) -> SearchResult:
        """Search thresholds on these objects."""
        credibility, confidence = self.credibility_and_confidence()
        return search.find_coded(self.actual, self.predicted, credibility, confidence, classes=self.classes)

    def alpha_assessment(self, *, label_conditional: bool = True) -> AlphaAssessment:
        """Split p-values into those of correct and of incorrect answers.

        Label-conditional: each object's p-value for its predicted label. Otherwise each object counts once
        for every class, as if it had been predicted as that class, so every class has incorrect answers.
        """
        n, k = self.p_values.shape
        if label_conditional:
            codes, actual, p = self.predicted, self.actual, self.p_values[np.arange(n), self.predicted]
        else:
            codes, actual, p = np.tile(np.arange(k), n), np.repeat(self.actual, k), self.p_values.ravel()
        known = ~np.isnan(p)
        return AlphaAssessment(self.classes, self.classes[codes[known]], (codes == actual)[known], p[known])


def warn_if_reversed(calibrations: Sequence[Calibration], *, stacklevel: int) -> None:
    """Warn about scores, or members, with the wrong sign; no object may be in two calibrations.

    With the wrong sign, objects look stranger than others for their predicted label and for their true one.
    Both must hold beyond chance: with a detector no better than chance, a measure of the right sign often
    shows the second, most of all for left-out rows.
    """
    scores, actual, predicted = (
        np.concatenate([getattr(one, name)[:: -(-len(one.actual) // _MAX_RANKED)] for one in calibrations])
        for name in ("scores", "actual", "predicted")
    )
    members = scores[:, :, None] if scores.ndim == 2 else scores
    found = []
    for m in range(members.shape[2]):
        ranks = rankdata(members[:, :, m], axis=0) - (len(actual) + 1) / 2
        if _strangeness(ranks, predicted) > 3 and _strangeness(ranks, actual) > 2:
            found.append(m)
    if found:
        which = "" if scores.ndim == 2 else f" by the members at positions {found} of the measure"
        warnings.warn(
            f"objects look stranger for their own class than others do{which}. Higher scores must mean "
            "stranger: from probabilities pass -p.",
            CalibrationWarning,
            stacklevel=stacklevel,
        )


def _strangeness(ranks: FloatArray, codes: IntArray) -> float:
    """Return by how many standard deviations objects rank higher for their own label than for a random one.

    The standard deviation is exact for a random permutation of the labels.
    """
    n = len(codes)
    shares = np.bincount(codes, minlength=ranks.shape[1]) / n
    variance = np.sum((ranks - (ranks @ shares)[:, None]) ** 2 @ shares) * n / max(n - 1, 1)
    excess = ranks[np.arange(n), codes].sum()
    return float(excess / np.sqrt(variance)) if variance > 1e-6 else 0.0  # equal columns carry no evidence


def warn_if_coarse(calibrations: Sequence[Calibration], *, stacklevel: int) -> None:
    """Warn about classes with coarse p-values, and about thresholds without evidence."""
    classes = calibrations[0].classes
    counts = np.min([calibration.counts for calibration in calibrations], axis=0)
    few = np.flatnonzero(counts < _FEW)
    if len(few):
        steps = "; ".join(
            f"{classes.tolist()[c]!r} has {counts[c]}, so steps of 1/{counts[c]} = {1 / counts[c]:.3g}"
            for c in few[:5]
        )
        more = f"; and {len(few) - 5} more classes" if len(few) > 5 else ""
        warnings.warn(
            f"few calibration objects make p-values coarse: {steps}{more}.",
            CalibrationWarning,
            stacklevel=stacklevel,
        )
    answers = [np.bincount(calibration.predicted, minlength=len(classes)) for calibration in calibrations]
    if never := classes[np.min(answers, axis=0) == 0].tolist():
        names = ", ".join(map(repr, never[:5])) + (" …" if len(never) > 5 else "")
        whose = " of some fold" if len(calibrations) > 1 else ""
        verb = "accepted" if calibrations[0].held_out_seed is None else "rejected"
        warnings.warn(
            f"no calibration object{whose} was predicted as {names}: "
            f"there is nothing to find a threshold on, so every such answer is {verb}.",
            CalibrationWarning,
            stacklevel=stacklevel,
        )
