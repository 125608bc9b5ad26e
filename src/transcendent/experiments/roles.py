"""The role of the columns in a table of a detector's past answers: scores, answers, truths, times."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transcendent._utils.arrays import AnyArray, missing_rows
from transcendent._utils.text import some
from transcendent.errors import ArgumentError
from transcendent.experiments.proposing import by_name, guess_name, guess_time, read_as_meant
from transcendent.experiments.scores import boundary
from transcendent.tables.answers import ScoreColumns, class_codes, numbers, separation
from transcendent.tables.frames import Columns, lacking
from transcendent.tables.objects import Objects
from transcendent.tables.reading import is_table, read_objects

_TRUTHS = ("truth", "true_label", "y_true", "ground_truth", "actual", "label", "class", "target", "y")
_VERDICTS = ("malicious", "malware", "is_malware", "spam", "verdict")
_ANSWERS = ("answer", "predicted", "prediction", "pred", "y_pred", "predicted_label", "decision", "detected")
_SCORES = ("score", "probability", "proba", "prob", "confidence", "suspicion", "decision_function", "y_score")
_PERIODS = ("time", "date", "month", "week", "day", "year", "period")
_OF_CLASS = re.compile(r"(p|prob|proba|probability|score|scores|logit|class)[\W_]", re.IGNORECASE)


class AnswerTable(NamedTuple):
    """A table with the role of its columns; ``objects`` have the other columns as rows.

    ``missing_labels`` are texts that are read as missing labels, with their numbers, and ``formats`` those of
    dates.
    """

    objects: Objects
    columns: Columns
    missing_labels: dict[str, int]
    formats: list[str]

    @property
    def labels(self) -> list[Any]:
        """The different labels."""
        y = np.asarray(self.objects.y)
        return np.unique(np.delete(y, missing_rows(y)).tolist()).tolist()  # type: ignore[no-any-return]


def read_answers(
    file: Path, scores: list[str], answer: str | None, truth: str | None, time: str | None
) -> AnswerTable:
    """Read the table, and find the columns with labels, times and ids."""
    if not is_table(file):
        raise ArgumentError("file", f"{file} is not a table of answers (Parquet or CSV).")
    frame = read_objects(file, Columns()).X
    there = list(map(str, frame.columns))
    named = answer if answer is not None and _as_number(answer) is None else None
    given: dict[str, list[Any]] = {"answer": [named], "truth": [truth], "time": [time]}
    for option, names in {"scores": scores, **given}.items():
        if absent := [name for name in names if name is not None and name not in there]:
            raise ArgumentError(option, str(lacking(option, absent, there, str(file))))
    free = frame.drop(columns=[name for name in {*scores, answer} if name in there])
    time = time or _guess_time(free.drop(columns=[truth] if truth else []))
    free = free.drop(columns=[time])
    identifier = guess_name(free.drop(columns=[truth] if truth else []))
    truth = truth or _guess_truth(free.drop(columns=[identifier] if identifier else []))
    columns = Columns(label=truth, time=time, id=None if identifier == truth else identifier)
    objects, missing, formats = read_as_meant(file, columns)
    table = AnswerTable(objects.with_iso_dates(formats), columns, missing, formats)
    if not table.labels:
        raise ArgumentError("truth", f"no row has a true label in {truth!r}.")
    if len(table.labels) < 2:
        raise ArgumentError("truth", f"all true labels in {truth!r} are {table.labels[0]!r}: two are needed.")
    return table


def _guess_time(frame: Any) -> str:
    found = guess_time(frame) or by_name(frame, _PERIODS)
    if found is None:
        raise ArgumentError("time", "which column says when each answer was given? None holds dates.")
    return found


def _guess_truth(frame: Any) -> str:
    found = by_name(frame, (*_TRUTHS, *_VERDICTS))
    if found is None:
        few = [str(name) for name in frame.columns if 2 <= frame[name].nunique() <= 20]
        hint = f" Few different values are in {some(few)}." if few else ""
        raise ArgumentError("truth", f"which column holds the true labels, where they are known?{hint}")
    return found


def find_scores(table: AnswerTable, names: list[str], answer: str | None) -> ScoreColumns:
    """Return the columns of scores, the classes in their order, and how answers are known."""
    frame, labels = table.objects.X, table.labels
    given = answer or _guess_answer(frame.drop(columns=names), labels)
    number = None if given is None else _as_number(given)
    column = given if number is None else None
    names = names or _guess_scores(frame.drop(columns=[column] if column else []), labels)
    for name in names:
        if not np.isfinite(numbers(frame[name])).any():
            raise ArgumentError("scores", f"{name!r} holds no numbers, such as {frame[name].iloc[0]!r:.40}.")
    if len(names) > 1:
        if number is not None:
            raise ArgumentError("answer", "a number is for one column of scores; name a column of answers.")
        return ScoreColumns(tuple(names), _in_order(names, labels), column)
    scores = numbers(frame[names[0]])
    if column is not None:
        return _one_with_answers(names[0], scores, column, frame[column].to_numpy(), labels)
    if len(labels) > 2:
        raise ArgumentError(
            "scores",
            f"one column of scores is for two classes, but {table.columns.label!r} has {len(labels)}, "
            f"{some(list(map(repr, labels)), 4)}: name a column per class, or the detector's answers by "
            "--answer.",
        )
    return _one_without_answers(names[0], scores, number, np.asarray(table.objects.y), labels)


def _one_with_answers(
    name: str, scores: Any, column: str, answers: AnyArray, labels: list[Any]
) -> ScoreColumns:
    """Return a single column: the score of a class, or how sure the detector is of its answer."""
    codes = class_codes(answers, labels)
    if 2 * np.count_nonzero(codes >= 0) < len(codes):
        said = some([repr(value) for value in dict.fromkeys(answers.tolist())], 3)
        wanted = some(list(map(repr, labels)), 3)
        raise ArgumentError(
            "answer",
            f"{column!r} holds {said}, but the true labels are {wanted}: write both alike, or let "
            "answers follow from scores by leaving this out.",
        )
    known = (codes >= 0) & np.isfinite(scores)
    above = separation(scores[known], codes[known] == 1) if len(labels) == 2 else 0.5
    if 0.1 < above < 0.9:
        return ScoreColumns((name,), tuple(labels), column, of_answer=True)
    return ScoreColumns((name,), tuple(labels if above > 0.5 else labels[::-1]), column)


def _one_without_answers(
    name: str, scores: Any, number: float | None, y: AnyArray, labels: list[Any]
) -> ScoreColumns:
    """Return a single column: the score of the class whose objects have the higher ones."""
    known = np.isfinite(scores)
    codes = class_codes(y, labels)
    told = known & (codes >= 0)
    classes = labels[::-1] if separation(scores[told], codes[told] == 1) < 0.5 else labels
    low, high = scores[known].min(), scores[known].max()
    if number is None and low >= 0 and high > 1:
        raise ArgumentError(
            "answer",
            f"the scores in {name!r} run from {low:g} to {high:g}: above which one is the answer "
            f"{classes[1]!r}? Give this number, or the column with answers.",
        )
    return ScoreColumns((name,), tuple(classes), boundary(scores) if number is None else number)


def _guess_answer(frame: Any, labels: list[Any]) -> str | None:
    """Return a column that is named like answers and holds labels."""
    columns = [found for name in (*_ANSWERS, *_VERDICTS) if (found := by_name(frame, (name,)))]
    holding = [name for name in columns if np.mean(class_codes(frame[name].to_numpy(), labels) >= 0) > 0.9]
    return holding[0] if holding else None


def _guess_scores(frame: Any, labels: list[Any]) -> list[str]:
    """Return the columns named after classes, the one named like a score, or the only one of numbers."""
    numeric = [str(name) for name in frame.columns if frame[name].dtype.kind in "iuf"]
    each = [[name for name in numeric if _is_of(name, label)] for label in labels]
    if len(of_classes := [names[0] for names in each if len(names) == 1]) > 1:
        return of_classes
    named = [found for name in _SCORES if (found := by_name(frame, (name,)))]
    likely = named or numeric
    if len(likely) == 1:
        return likely
    hint = f"{some(likely)}?" if likely else "None holds numbers."
    raise ArgumentError("scores", f"which columns hold the detector's scores or probabilities: {hint}")


def _is_of(name: str, label: Any) -> bool:
    """Return whether a column is named after a class: benign, p_benign, score[benign]; p_1, but not f_1."""
    ends = tuple(f"{mark}{label}".lower() for mark in "_[(. ")
    after = name.lower().rstrip("])").endswith(ends)
    return name.lower() == str(label).lower() or (
        after and bool(isinstance(label, str) or _OF_CLASS.match(name))
    )


def _in_order(names: list[str], labels: list[Any]) -> tuple[Any, ...]:
    """Return the class of each column: the one it is named after, or else in the order of the labels."""
    named = [[label for label in labels if _is_of(name, label)] for name in names]
    found = tuple(of[0] for of in named if len(of) == 1)
    if len(set(found)) == len(names):
        return found
    if len(names) == len(labels):
        return tuple(labels)
    known = some(list(map(repr, labels)))
    raise ArgumentError("scores", f"{len(names)} columns for {len(labels)} classes: {known}.")


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
