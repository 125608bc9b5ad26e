"""The object to explain, with everything it is compared with, in one form."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.pipeline import make_pipeline

from transcendent._utils.arrays import (
    FloatArray,
    canonical_rows,
    column_names,
    count_rows,
    of_kind,
    take_rows,
)
from transcendent._utils.estimators import see_through
from transcendent.decisions import Rejector
from transcendent.explaining.known_objects import KnownObjects
from transcendent.explaining.variants import has_columns, usual_row

_SAMPLE = 1000


@dataclass(frozen=True, eq=False)
class Subject:
    """The object to explain.

    ``row`` has the columns that features are named after, None if there are none; ``rows`` are those given
    with it. ``detectors`` take such rows. ``evaluator`` takes them, too, unless rows are texts: then their
    columns are the words that the first step of the detector counts. ``itself`` is the position of the object
    among the known objects, if it is one of them.
    """

    evaluator: Any
    detectors: list[Any]
    row: Any
    rows: Any
    known: KnownObjects | None
    names: Any
    are_texts: bool = False
    itself: int | None = None

    @classmethod
    def of(
        cls,
        told: Rejector,
        evaluator: Any,
        X: Any,
        i: int,
        known: KnownObjects | None,
        names: Any,
        itself: int | None = None,
    ) -> "Subject":
        """Return the row ``i`` of ``X`` with its names and known objects; refuse other columns."""
        detectors = list(told.fitted.detectors)
        if told.judges_scores:
            return cls(evaluator, [], None, None, None, None)
        row = take_rows(X, np.array([i]))
        if not has_columns(row):
            return cls._of_text(evaluator, detectors, row, known, itself)
        given = column_names(X) if names is None else names
        given = told.fitted.feature_names if given is None else given
        if given is not None and len(given) != row.shape[1]:
            raise ValueError(f"there are {len(given)} names for {row.shape[1]} columns.")
        if known is not None:
            _check_columns(row, known)
        sparse = getattr(evaluator, "fitted_on_sparse_", sp.issparse(row))
        row, known = of_kind(row, sparse=sparse), None if known is None else known.of_kind(sparse=sparse)
        return cls(evaluator, detectors, row, X, known, given, itself=itself)

    @classmethod
    def _of_text(
        cls,
        evaluator: Any,
        detectors: list[Any],
        text: Any,
        known: KnownObjects | None,
        itself: int | None,
    ) -> "Subject":
        steps, classifier = see_through(detectors[0]) if len(detectors) == 1 else ([], None)
        if not steps or not hasattr(steps[0], "get_feature_names_out"):
            return cls(evaluator, [], None, None, None, None)
        words = steps[0]
        row = canonical_rows(words.transform(text))
        known = None if known is None else known.seen_through(words)
        rest = make_pipeline(*steps[1:], classifier)
        names = words.get_feature_names_out()
        return cls(evaluator, [rest], row, row, known, names, are_texts=True, itself=itself)

    def name(self, column: int) -> str:
        """Return the name of a column."""
        return f"column {column}" if self.names is None else str(self.names[column])

    @cached_property
    def distances(self) -> FloatArray:
        """The distance of every known object; infinite for the object itself."""
        if self.known is None:
            return np.empty(0)
        distances = self.known.distances(self.row)
        if self.itself is not None:
            distances[self.itself] = np.inf
        return distances

    @cached_property
    def usual(self) -> Any:
        """A row of usual values, of the known objects or else of the rows given; None if that is one row.

        Known objects that are few or of one class do not tell what is usual.
        """
        if self.known is not None and self.known.tells_usual:
            return self.known.usual
        n = count_rows(self.rows)
        sample = take_rows(self.rows, np.arange(0, n, -(-n // _SAMPLE)))
        return None if n == 1 else usual_row(of_kind(sample, sparse=sp.issparse(self.row)))


def _check_columns(row: Any, known: KnownObjects) -> None:
    if not has_columns(known.X):
        raise ValueError("the known objects have no columns, but X has.")
    mine, theirs = column_names(row), column_names(known.X)
    if (mine is None) != (theirs is None) or (mine and type(row) is not type(known.X)):
        own, other = type(row).__name__, type(known.X).__name__
        raise ValueError(f"X is a {own}, the known objects are a {other}: pass both in one form.")
    if row.shape[1] != known.X.shape[1] or (mine and theirs and mine != theirs):
        raise ValueError(
            f"the known objects have other columns ({known.X.shape[1]}) than X ({row.shape[1]}): pass the "
            "same columns in the same order."
        )
