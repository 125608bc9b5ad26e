"""The calibration objects of a judge, as plain arrays."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal

import numpy as np
from scipy.stats import rankdata

from transcendent._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray, abbreviate
from transcendent.errors import CalibrationError, CalibrationWarning
from transcendent.judging.merging import Merging
from transcendent.judging.pvalues import (
    Bags,
    Form,
    check_form,
    credibility_and_confidence,
    merge_ties,
    rounding,
)
from transcendent.thresholds.base import Search, SearchResult
from transcendent.thresholds.guaranteed import drawn_apart

CalibrationLabel = Literal["predicted", "true"]

_FEW = 20
_MOST_RANKED = 1 << 14


@dataclass(frozen=True)
class AlphaAssessment:
    """P-values of calibration objects by class, split into correct and incorrect answers.

    A good measure puts the correct ones high and the incorrect ones low.

    Attributes
    ----------
    classes : array of shape (classes,)
        The labels there are.
    labels : array of shape (m,)
        Which class each p-value is for: the predicted label, or every class in turn.
    correct : bool array of shape (m,)
        Whether that class is the object's true label.
    p_values : array of shape (m,)
        The p-values.
    """

    classes: AnyArray
    labels: AnyArray
    correct: AnyArray
    p_values: FloatArray

    def quartiles(self) -> dict[tuple[Any, str], FloatArray]:
        """Return the three quartiles per class and group; a group without objects has NaN."""
        out = {}
        for label in self.classes.tolist():
            for name, right in (("correct", True), ("incorrect", False)):
                group = self.p_values[(self.labels == label) & (self.correct == right)]
                out[label, name] = np.quantile(group, [0.25, 0.5, 0.75]) if len(group) else np.full(3, np.nan)
        return out


@dataclass(frozen=True)
class Calibration:
    """Scores, true and predicted labels of the calibration objects, and what follows from them.

    Attributes
    ----------
    classes : array of shape (classes,)
        The labels there are.
    scores : array of shape (n, classes) or (n, classes, members)
        Nonconformity, one column per class; of a combined measure, that of each member.
    actual, predicted : int arrays of shape (n,)
        True and predicted labels, as positions in ``classes``.
    form : {"paper", "plus_one"}
        Which p-value.
    label : {"predicted", "true"}
        Which label's p-value stands for a calibration object when thresholds are searched.
    merging : Merging or None
        How the members are merged.
    apart : int or None
        Seed of the draw of the objects that are in no bag, and only test thresholds; of none if None.
    """

    classes: AnyArray
    scores: FloatArray
    actual: IntArray
    predicted: IntArray
    form: Form = "paper"
    label: CalibrationLabel = "predicted"
    merging: Merging | None = None
    apart: int | None = None

    def __post_init__(self) -> None:
        check_form(self.form)
        check_calibration_label(self.label)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out cached values, so that pickles and hashes do not depend on use."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def counts(self) -> IntArray:
        """Number of calibration objects of each class in the bags."""
        return np.bincount(self.actual[self._bagged], minlength=len(self.classes))

    @property
    def answer_counts(self) -> IntArray:
        """Number of calibration objects predicted as each class."""
        return np.bincount(self.predicted, minlength=len(self.classes))

    def merge(self, scores: FloatArray) -> FloatArray:
        """Merge the members' scores of new objects, if there are members, into (n, classes) scores."""
        return scores if self.merging is None else self.merging.scores(self.member_p_values(scores))

    @cached_property
    def merged(self) -> FloatArray:
        """(n, classes) scores of the calibration objects, merged if there are members."""
        return self.scores if self.merging is None else self.merging.scores(self._own_member_p_values)

    def check_bags(self, user: str) -> None:
        """Refuse a draw that left the bag of some class without objects."""
        if len(empty := self.classes[self.counts == 0]):
            raise CalibrationError(
                f"{user} compares with 30% of the calibration objects, drawn at random, and none of them has "
                f"the label {abbreviate(empty)}: give more calibration objects of it."
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
        p = self.bags.left_out_p_values(self.merged[rows], self.actual[rows], self.form)
        if self.apart is None:
            return p
        everybody = self.bags.p_values(self.merged, self.form)
        everybody[rows] = p
        return everybody

    @property
    def tested(self) -> BoolArray:
        """Which objects are in no bag, and only test thresholds."""
        n = len(self.actual)
        return np.zeros(n, dtype=bool) if self.apart is None else drawn_apart(n, self.apart)

    @property
    def repeated(self) -> int:
        """Number of objects that test whose scores and labels equal those of an earlier one of them.

        These are repeated rows, or rows that the measure does not tell apart.
        """
        tested = self.tested
        if not tested.any():
            return 0
        scores = [
            merge_ties(s, rounding(np.sort(s))) for s in self.scores[tested].reshape(tested.sum(), -1).T
        ]
        objects = np.column_stack([*scores, self.actual[tested], self.predicted[tested]])
        return len(objects) - len(np.unique(objects, axis=0))

    @cached_property
    def _bagged(self) -> Any:
        """Which objects are in the bags."""
        return slice(None) if self.apart is None else ~self.tested

    @cached_property
    def _member_bags(self) -> list[Bags]:
        assert self.merging is not None
        members = enumerate(np.moveaxis(self.scores, -1, 0))
        pools = self.merging.pools
        rows = self._bagged
        return [Bags.of(own[rows], self.actual[rows], self.classes, pooled=pools(m)) for m, own in members]

    def member_p_values(self, scores: FloatArray) -> FloatArray:
        """Return (n, classes, members) p-values; each object counts as a member of its bag."""
        tables = enumerate(self._member_bags)
        return np.stack([table.p_values(scores[:, :, m], "plus_one") for m, table in tables], axis=-1)

    def credibility(self, codes: IntArray, scores: FloatArray) -> FloatArray:
        """Return the p-values of new objects' scores for one label each, given as positions."""
        out = np.empty(len(codes))
        for c in range(len(self.classes)):
            own = np.flatnonzero(codes == c)
            merged = scores[own, c]
            if self.merging is not None:
                bags = enumerate(self._member_bags)
                p = [table.p_values_of(c, merged[:, m], "plus_one") for m, table in bags]
                merged = self.merging.scores(np.stack(p, axis=-1))
            out[own] = self.bags.p_values_of(c, merged, self.form)
        return out

    @property
    def _own_member_p_values(self) -> FloatArray:
        """(n, classes, members) p-values of the calibration objects.

        Of a member of the bag it is the smallest one it could have beside a new object: counted once, and
        divided by the size of the bag with the new object in it. So new objects' p-values stay valid. They
        can be a few steps too high: one for each calibration object that its true p-value ranks elsewhere.
        """
        p, actual = self.member_p_values(self.scores), self.actual[self._bagged]
        own = (np.arange(len(p))[self._bagged], actual)
        size = np.column_stack([bags.counts[actual] for bags in self._member_bags]) + 1
        p[own] = (np.rint(p[own] * size) - 1) / size
        return p

    def credibility_and_confidence(self) -> tuple[FloatArray, FloatArray]:
        """Return both values of the calibration objects, for the label that ``label`` names."""
        codes = self.predicted if self.label == "predicted" else self.actual
        return credibility_and_confidence(self.p_values, codes)

    def search(self, search: Search) -> SearchResult:
        """Search thresholds on these objects."""
        credibility, confidence = self.credibility_and_confidence()
        return search.find_coded(self.actual, self.predicted, credibility, confidence, classes=self.classes)

    def alpha_assessment(self, *, label_conditional: bool = True) -> AlphaAssessment:
        """Split p-values into those of correct and of incorrect answers.

        Label-conditional: each object's p-value for its predicted label. Otherwise each object counts once
        for every class, as if it had been predicted so, which gives every class incorrect answers to show.
        """
        n, k = self.p_values.shape
        if label_conditional:
            codes, actual, p = self.predicted, self.actual, self.p_values[np.arange(n), self.predicted]
        else:
            codes, actual, p = np.tile(np.arange(k), n), np.repeat(self.actual, k), self.p_values.ravel()
        known = ~np.isnan(p)
        return AlphaAssessment(self.classes, self.classes[codes[known]], (codes == actual)[known], p[known])


def check_calibration_label(label: Any) -> None:
    """Refuse a ``calibration_label`` that does not exist."""
    if label not in ("predicted", "true"):
        raise ValueError(f"calibration_label must be 'predicted' or 'true', not {label!r}.")


def warn_if_reversed(calibrations: Sequence[Calibration], *, stacklevel: int) -> None:
    """Warn about scores, or members of scores, with the wrong sign; the objects must be different ones.

    Objects then look stranger for the label they are given than objects with other labels, and stranger for
    their own class than others. Both are needed, beyond chance: a detector at chance level has measures of
    the right sign that say the second, and even more often for left-out rows.
    """
    scores, actual, predicted = (
        np.concatenate([getattr(one, name)[:: -(-len(one.actual) // _MOST_RANKED)] for one in calibrations])
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
            f"objects look stranger for their own class than others do{which}. Scores are higher = stranger: "
            "from probabilities pass -p.",
            CalibrationWarning,
            stacklevel=stacklevel,
        )


def _strangeness(ranks: FloatArray, codes: IntArray) -> float:
    """Return how many standard deviations higher than at random objects rank for their own label.

    The deviation is the exact one of labels that are dealt out at random.
    """
    n = len(codes)
    shares = np.bincount(codes, minlength=ranks.shape[1]) / n
    variance = np.sum((ranks - (ranks @ shares)[:, None]) ** 2 @ shares) * n / max(n - 1, 1)
    excess = ranks[np.arange(n), codes].sum()
    return float(excess / np.sqrt(variance)) if variance > 1e-6 else 0.0  # columns that are equal say nothing


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
    answers = np.min([calibration.answer_counts for calibration in calibrations], axis=0)
    never = classes[answers == 0].tolist()
    if never:
        names = ", ".join(map(repr, never[:5])) + (" …" if len(never) > 5 else "")
        whose = " of some fold" if len(calibrations) > 1 else ""
        verb = "accepts" if calibrations[0].apart is None else "rejects"
        warnings.warn(
            f"no calibration object{whose} was predicted as {names}: "
            f"there is nothing to learn a threshold from, so it {verb} every such answer.",
            CalibrationWarning,
            stacklevel=stacklevel,
        )
