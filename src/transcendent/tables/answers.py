"""A detector's answers from the columns of a table: its scores, and what it answered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

from transcendent._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray
from transcendent._utils.cells import as_number
from transcendent._utils.extras import extra
from transcendent.decisions import Answers


@dataclass(frozen=True)
class ScoreColumns:
    """The columns with a detector's scores and answers, and how to read them.

    Attributes
    ----------
    scores : tuple of str
        One column for each of ``classes``, higher = more likely; or one column for all of them.
    classes : tuple
        The labels in the order of the columns; with one column, the class of low scores first.
    answer : str, float or None
        The column with the answers, or the score above which one column means the second class; None takes
        the class with the highest score.
    of_answer : bool
        Whether one column tells how sure the detector is of its answer, whichever that is.
    """

    scores: tuple[str, ...]
    classes: tuple[Any, ...]
    answer: str | float | None = None
    of_answer: bool = False

    @classmethod
    def from_json(cls, notes: Mapping[str, Any]) -> "ScoreColumns":
        """Return the columns that the notes of an artifact name."""
        try:
            found = cls(**{**notes, "scores": tuple(notes["scores"]), "classes": tuple(notes["classes"])})
            valid = all(isinstance(name, str) for name in found.scores) and found.scores != ()
            valid &= isinstance(found.answer, str | float | int | None)
            valid &= len(found.scores) in (1, len(found.classes)) and len(found.classes) >= 2
        except (KeyError, TypeError):
            valid = False
        if not valid:
            raise ValueError(f"these are not columns of scores: {notes!r:.200}")
        return found

    @property
    def columns(self) -> list[str]:
        """The columns to read."""
        named = [self.answer] if isinstance(self.answer, str) else []
        return list(dict.fromkeys([*self.scores, *named]))

    @property
    def own_answer(self) -> str | None:
        """The column with the answers if it holds no scores, None if answers follow from scores."""
        return self.answer if isinstance(self.answer, str) and self.answer not in self.scores else None

    def read(self, frame: Any) -> tuple[Answers, IntArray]:
        """Return the answers in the columns of a frame or a mapping, and the rows without one.

        These lack a finite score or have an answer that is none of the classes. They get scores of 0.
        """
        scores = np.column_stack([numbers(frame[name]) for name in self.scores])
        codes = self._codes(frame, scores)
        known = np.isfinite(scores).all(axis=1) & (codes >= 0)
        scores[~known], codes = 0, np.where(known, codes, 0)
        classes = np.array(self.classes)
        if len(self.scores) == len(classes):
            strange = -scores
        else:
            own = codes[:, None] if self.of_answer else 1
            strange = np.where(np.arange(len(classes)) == own, -scores, scores)
        # A ScoreEvaluator has its classes in sorted order.
        return Answers(classes[codes], strange[:, np.argsort(classes)]), np.flatnonzero(~known)

    def _codes(self, frame: Any, scores: FloatArray) -> IntArray:
        if isinstance(self.answer, str):
            return class_codes(np.asarray(frame[self.answer]), self.classes)
        if self.answer is None:
            return np.asarray(np.argmax(scores, axis=1))
        return np.asarray(scores[:, 0] > self.answer, dtype=np.intp)


def numbers(column: Any) -> FloatArray:
    """Return a column as numbers, NaN where it holds anything else."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        return np.asarray(column, dtype=np.float64)
    if column.dtype.kind in "mM":
        return np.full(len(column), np.nan)
    found = extra("pandas", "cli").to_numeric(column, errors="coerce")
    return np.asarray(found.to_numpy(dtype=np.float64, na_value=np.nan))


def class_codes(values: AnyArray, classes: Sequence[Any]) -> IntArray:
    """Return positions among the classes, -1 for other values; 1, 1.0, True and "1" are the same class."""
    same_numbers = len(set(map(_key, classes))) < len(classes)
    if same_numbers and values.dtype.kind in "biuf":
        raise ValueError(
            f"answers are numbers, which cannot tell classes such as 01 and 1 apart: {classes!r}."
        )
    key = str if same_numbers else _key
    places = {key(label): code for code, label in enumerate(classes)}
    cells = values.tolist()
    found = {cell: places.get(key(cell), -1) for cell in set(cells)}
    return np.array([found[cell] for cell in cells], dtype=np.intp)


def separation(scores: FloatArray, second: BoolArray) -> float:
    """Return the chance that a score of the second class is the higher one; NaN without both classes."""
    n_second, n_first = np.count_nonzero(second), np.count_nonzero(~second)
    if not n_second or not n_first:
        return float("nan")
    return float((rankdata(scores)[second].mean() - (n_second + 1) / 2) / n_first)


def _key(label: Any) -> Any:
    number = as_number(label)
    return str(label).strip() if number is None else number
