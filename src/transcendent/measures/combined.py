"""Several measures together: the same objects seen in different ways."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

from transcendent._utils.arrays import FloatArray, IntArray
from transcendent._utils.estimators import seeded
from transcendent.errors import MeasureError
from transcendent.judging.merging import Bag, Merging
from transcendent.measures.auto import resolve_measure
from transcendent.measures.base import Measure, checked_scores
from transcendent.measures.names import from_name


class CombinedMeasure(Measure):
    """Measures of different kinds, merged on the scale they have in common: p-values.

    Each part scores every object. Calibration turns the scores of each part into p-values, merges these
    into one score per class by Fisher's rule (the sum of -log p), and ranks that score among the calibration
    objects' own: the outcome is a p-value like any other. It is never lower than if all calibration objects
    were ranked anew beside each new object, and mostly at most a few steps of the bag higher. The detector's
    labels do not change; only the judgement of them does.

    Parameters
    ----------
    measures : list
        The parts: measures, their names, functions, or ``"auto"`` for the one that suits the detector.
    weights : array of shape (parts,) or None
        How much each part counts: equally if None.
    bag : {"class", "all"}
        Among whose merged scores a new one is ranked. ``"class"``: those of calibration objects of the class
        in question, so that p-values are valid for every class. ``"all"``: those of all calibration objects,
        each for its own class; then p-values are valid for the classes together, rare classes have as fine
        steps as others, and one ranking of all objects, as under a budget, treats the classes alike.
    random_state : int, RandomState or None
        Seeds every part whose own ``random_state`` is None.

    Attributes
    ----------
    measures_ : list of Measure
        The fitted parts.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent import CombinedMeasure, InductiveEvaluator
    >>> from transcendent.measures import NeighbourRatio, SecondOpinion
    >>> X, y = make_classification(1000, flip_y=0.1, random_state=0)
    >>> both = CombinedMeasure(["auto", SecondOpinion(RandomForestClassifier(20)), NeighbourRatio()])
    >>> ice = InductiveEvaluator(LinearSVC(), measure=both, random_state=0).fit(X, y)
    >>> ice.calibration_.scores.shape  # objects, classes, parts
    (340, 2, 3)
    """

    def __init__(
        self,
        measures: Sequence[Any],
        *,
        weights: Any = None,
        bag: Bag = "class",
        random_state: Any = None,
    ) -> None:
        self.measures = measures
        self.weights = weights
        self.bag = bag
        self.random_state = random_state

    @property
    def needs_rows(self) -> bool:  # type: ignore[override]
        """Whether any part does; what ``"auto"`` stands for may."""
        return any(getattr(from_name(part), "needs_rows", part == "auto") for part in self.measures)

    @property
    def n_parts(self) -> int:
        """How many parts there are."""
        return len(self.measures)

    @property
    def merging(self) -> Merging:
        """The weights and the bag."""
        merging = Merging(self.weights, self.bag)
        merging.check_parts(self.n_parts)
        return merging

    def fit(self, estimator: Any, X: Any, y: Any) -> Self:
        """Fit every part."""
        self.merging  # noqa: B018  # refuses bad parameters before anything is fitted
        parts = self._resolved(estimator)
        if self.random_state is not None:
            seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
            parts = [seeded(part, seed) for part in parts]
        self.measures_ = [part.fit(estimator, X, y) if part.needs_rows else part for part in parts]
        return self

    def scores(self, estimator: Any, X: Any) -> FloatArray:
        """(n, classes, parts) scores."""
        parts = self._parts(estimator)
        return _stacked(parts, [part.scores(estimator, X) for part in parts], len(estimator.classes_))

    @property
    def left_out_is_exact(self) -> bool:
        """Whether those of all parts are."""
        return all(part.left_out_is_exact for part in getattr(self, "measures_", ()))

    def left_out_scores(self, answers: Any, X: Any, y: Any) -> FloatArray:
        """(n, classes, parts) left-out scores, if every part has a way to them."""
        parts = self._parts(answers)
        return _stacked(parts, [part.left_out_scores(answers, X, y) for part in parts], len(answers.classes_))

    def implied_labels(self, estimator: Any, scores: FloatArray) -> IntArray | None:
        """The detector's answers, where the scores of a part settle them."""
        for m, part in enumerate(self._parts(estimator)):
            if (codes := part.implied_labels(estimator, scores[:, :, m])) is not None:
                return codes
        return None

    def _parts(self, estimator: Any) -> list[Measure]:
        """The fitted parts; those that learn nothing need not have been."""
        fitted: list[Measure] | None = getattr(self, "measures_", None)
        return self._resolved(estimator) if fitted is None else fitted

    def _resolved(self, estimator: Any) -> list[Measure]:
        """Fresh parts from what the user passed."""
        parts = [resolve_measure(part, estimator) for part in self.measures]
        if not parts or any(part.n_parts is not None for part in parts):
            raise MeasureError("a combined measure needs parts, none of them a combined measure itself.")
        return parts


def _stacked(parts: list[Measure], scores: list[FloatArray], n_classes: int) -> FloatArray:
    shape = (len(scores[0]), n_classes)
    pairs = zip(parts, scores, strict=True)
    return np.stack([checked_scores(part, own, shape) for part, own in pairs], axis=-1)
