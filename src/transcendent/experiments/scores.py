"""A detector given by its scores: the table ``[detector]`` of an experiment without a model."""

from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np

from transcendent._utils.arrays import IntArray, missing_rows
from transcendent._utils.text import some
from transcendent.experiments.survey import Obstacle
from transcendent.experiments.toml import TomlTable, literal
from transcendent.tables.answers import ScoreColumns, class_codes, numbers, separation
from transcendent.tables.objects import Objects

_KEYS = ("scores", "answer", "classes", "score_of")
_NOTHING_TRAINS = "with scores under [detector] nothing trains, all training rows calibrate: leave out"


class Judged(NamedTuple):
    """Objects with a detector's answers as rows, how these were read, and rows that have none."""

    objects: Objects
    columns: ScoreColumns
    unanswered: IntArray


def score_table(toml: TomlTable) -> TomlTable | None:
    """Return ``[detector]`` if it names columns of scores; raise if the file contradicts them."""
    detector = toml.table("detector")
    if "scores" not in detector.values:
        return None
    for key in ("class", "steps"):
        if key in detector.values:
            raise detector.error(f"{key} fits a detector, scores are those of another: set one.", key)
    detector.check(_KEYS)
    names = detector.get("scores", list)
    if not names or len(set(map(str, names))) < len(names) or not all(isinstance(n, str) for n in names):
        raise detector.error("scores must be a list of different columns.", "scores")
    answer, classes = detector.get("answer", (str, int, float)), detector.get("classes", list, [])
    if len(names) > 1 and (not isinstance(answer, str | None) or "score_of" in detector.values):
        key = "score_of" if "score_of" in detector.values else "answer"
        raise detector.error(f"{key} = {detector.values[key]!r} is for a single column of scores.", key)
    if len(classes) == 1 or len(set(map(str, classes))) < len(classes):
        raise detector.error("classes must be different labels, at least two.", "classes")
    if "score_of" in detector.values:
        if detector.get("score_of", str) != "answer":
            raise detector.error('score_of can only be "answer".', "score_of")
        if not isinstance(answer, str):
            raise detector.error('score_of = "answer" needs the column with answers: answer = "..."')
    if toml.table("split").values.get("chronological"):
        raise toml.table("split").error(f"{_NOTHING_TRAINS} chronological.", "chronological")
    if toml.table("retrain").values:
        raise toml.table("retrain").error(f"{_NOTHING_TRAINS} [retrain].")
    return detector


def to_read(detector: TomlTable) -> list[str]:
    """Return the columns that hold scores and answers."""
    return ScoreColumns(tuple(detector.values["scores"]), (), detector.values.get("answer")).columns


def judged(detector: TomlTable, objects: Objects) -> Judged:
    """Return objects with answers as rows instead of a frame."""
    columns = _settle(detector, objects)
    answers, unanswered = columns.read(objects.X)
    if isinstance(columns.answer, str) and 2 * len(unanswered) > len(objects):
        values = objects.X[columns.answer].dropna().unique().tolist()
        raise detector.error(
            f"the answers in {columns.answer!r}, such as {some([repr(v) for v in values], 3)}, are not among "
            f"the labels {some([repr(label) for label in columns.classes], 3)}: write both alike.",
            "answer",
        )
    return Judged(replace(objects, X=answers), columns, unanswered)


def notes_on_scores(columns: ScoreColumns | None) -> dict[str, Any]:
    """Return the notes that an artifact needs to read scores from new tables."""
    return {} if columns is None else {"scores": asdict(columns)}


def about_answers(found: Judged) -> list[Obstacle]:
    """Return the problem with rows that have no answer, if any."""
    if not len(found.unanswered):
        return []
    message = found.objects.have("no score or no answer", found.unanswered)
    return [Obstacle(found.columns.columns, message, ['unanswered = "drop" under [data] leaves them out'])]


def left_out(objects: Objects, unanswered: IntArray, dates: bool) -> dict[str, int]:
    """Return how many answers are left out, by cause; one without a score or an answer counts there only."""
    if not len(unanswered):
        return objects.left_out(dates)
    answered = objects.take(np.delete(np.arange(len(objects)), unanswered))
    return {**answered.left_out(dates), "no score or answer": len(unanswered)}


def check_training(detector: TomlTable, columns: ScoreColumns, labels: Any) -> None:
    """Raise unless the training rows have exactly the classes that scores are for."""
    known = np.unique(labels)
    codes = class_codes(known, columns.classes)
    key = "classes" if "classes" in detector.values else "scores"
    if len(unscored := known[codes < 0].tolist()):
        raise detector.error(
            f"no score is for the label {some(list(map(repr, unscored)), 3)} of training rows: "
            f"missing_labels = {literal(list(map(str, unscored)))} under [data] leaves them out.",
            key,
        )
    if lacking := [label for code, label in enumerate(columns.classes) if code not in codes]:
        raise detector.error(
            f"no training row has the label {some(list(map(repr, lacking)), 3)}, so there is nothing to "
            "compare such answers with. Set a later train under [split], or take the class and its column "
            "out of classes and scores.",
            key,
        )


def _settle(detector: TomlTable, objects: Objects) -> ScoreColumns:
    """Return how the columns are read, with defaults for classes and for the score that means the second."""
    names, answer = tuple(detector.values["scores"]), detector.values.get("answer")
    classes, of_answer = _classes(detector, objects), "score_of" in detector.values
    if len(names) > 1 and len(names) != len(classes):
        raise detector.error(
            f"there are {len(names)} columns of scores for {len(classes)} classes, "
            f"{some(list(map(repr, classes)))}: name the class of each column, classes = [...].",
            "scores",
        )
    if len(names) == 1 and len(classes) != 2 and not of_answer:
        raise detector.error(
            f"one column of scores is for two classes, and there are {len(classes)}, "
            f"{some(list(map(repr, classes)))}: name a column per class. If the column tells how sure the "
            'detector is of its answer: score_of = "answer".',
            "scores",
        )
    found = ScoreColumns(names, classes, answer, of_answer)
    if len(names) == 1 and answer is None:
        return ScoreColumns(names, classes, boundary(numbers(objects.X[names[0]])))
    if len(names) == 1 and isinstance(answer, str) and not of_answer:
        _check_direction(detector, found, objects.X)
    return found


def boundary(scores: Any) -> float:
    """Return the score above which the answer is the second class: 0.5 for probabilities, otherwise 0."""
    known = scores[np.isfinite(scores)]
    return 0.5 if np.all((known >= 0) & (known <= 1)) else 0.0


def _classes(detector: TomlTable, objects: Objects) -> tuple[Any, ...]:
    """Return the classes with the type of the labels, since TOML may write 1 as text."""
    y = np.array([], dtype=object) if objects.y is None else np.delete(objects.y, missing_rows(objects.y))
    labels = np.unique(y.tolist()).tolist()
    given = detector.get("classes", list, labels)
    at = class_codes(np.array(given, dtype=object), labels) if labels else [-1] * len(given)
    return tuple(label if place < 0 else labels[place] for label, place in zip(given, at, strict=True))


def _check_direction(detector: TomlTable, columns: ScoreColumns, frame: Any) -> None:
    """Raise if high scores do not mean the second class by the detector's own answers."""
    assert isinstance(columns.answer, str)
    codes, scores = class_codes(frame[columns.answer].to_numpy(), columns.classes), columns.scores[0]
    known = (codes >= 0) & np.isfinite(values := numbers(frame[scores]))
    if not separation(values[known], codes[known] == 1) < 0.5:
        return
    first, second = columns.classes
    raise detector.error(
        f"the scores in {scores!r} are higher for answers {first!r} than for {second!r}. If they are scores "
        f"of {first!r}: classes = {literal([second, first])}. If they tell how sure the detector is of its "
        'answer: score_of = "answer".',
        "scores",
    )
