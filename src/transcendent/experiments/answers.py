"""An experiment proposed from a table of past answers: how to read it, a split, and rejectors."""

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transcendent._utils.text import counted, some
from transcendent.errors import ArgumentError
from transcendent.experiments.proposing import Proposal, read_as_missing
from transcendent.experiments.roles import AnswerTable, find_scores, read_answers
from transcendent.experiments.scores import left_out
from transcendent.experiments.survey import examples_of, in_words, ways_to_read
from transcendent.experiments.toml import literal, one_or_list
from transcendent.judging.judge import ScoreEvaluator
from transcendent.tables.answers import ScoreColumns, class_codes
from transcendent.tables.objects import Objects, without_time
from transcendent.tables.times import find_formats
from transcendent.temporal import cut_periods
from transcendent.temporal.periods import Calendar, training_rows
from transcendent.thresholds.guaranteed import GuaranteedSearch

BUDGET = 0.15
PROMISED = (0.01, 0.02, 0.03, 0.05, 0.1)
"""The shares of wrong answers that are tried; the chance that any promise is broken is 5%."""

_DELTA = 0.05 / len(PROMISED)
_MOST_REJECTED = 0.5
_FEWEST_MONTHS = 4
_FEWEST = 7  # objects of a period, so that 15% of them are at least one
_WINDOW = 1000
_FEWEST_OF_CLASS = 10
_MOST_PERIODS = 400


class _Split(NamedTuple):
    """The end of calibration, the period, and whether some later period is too small for a budget."""

    train: Any
    period: Calendar | None
    sparse: bool


def propose_answers(
    file: Any,
    *,
    toml: Any = None,
    scores: Sequence[str] = (),
    answer: str | None = None,
    truth: str | None = None,
    time: str | None = None,
) -> Proposal:
    """Propose an experiment about a detector's past answers, which needs neither the detector nor features.

    Rejectors are a budget of 15% of each period, thresholds, and what can be promised, if anything. The first
    third of the answers calibrates.

    Parameters
    ----------
    file : path
        A table, Parquet or CSV.
    toml : path or None
        Where the proposal will be written; by default beside the table.
    scores : sequence of str
        The column with a score or probability, or one column per class.
    answer : str or None
        The column with the detector's answers, or the score above which it answers with the second class.
    truth, time : str or None
        The columns with true labels and times. Roles that are not given are guessed from names and values.
    """
    file = Path(file)
    table = read_answers(file, [*scores], answer, truth, time)
    columns = find_scores(table, [*scores], answer)
    answers, unanswered = columns.read(table.objects.X)
    dates = _are_dates(table)
    known = replace(table.objects, X=answers).without_labels(unanswered).complete(dates)
    split = _split(known, dates, columns.classes)
    promised = _promise(known, split)
    where = os.path.relpath(file, file.parent if toml is None else Path(toml).parent)
    text = "\n\n".join(_sections(where, table, columns, split, promised)) + "\n"
    guesses = {
        "scores": ", ".join(columns.scores),
        "answer": None if columns.answer is None else str(columns.answer),
        "truth": table.columns.label,
        "time": table.columns.time,
    }
    notes = [*_notes(table, left_out(table.objects, unanswered, dates), dates), *_explained(columns)]
    return Proposal(text, guesses, notes)


def _are_dates(table: AnswerTable) -> bool:
    """Return whether times are dates; False if they number the periods."""
    objects, times = table.objects, np.asarray(table.objects.times)
    if times.dtype.kind in "iuf":
        if len(np.unique(times[~np.isnan(times)])) > _MOST_PERIODS:
            raise ArgumentError(
                "time", f"{objects.name} has times such as {times[0]:g}: write dates such as 2024-09-01."
            )
        return False
    if len(rows := without_time(times, True)) > len(times) / 2:
        said = objects.have("no date such as 2024-09-01 or 2024-09", rows)
        unclear = find_formats(times[rows].tolist()).unclear
        which = " Whether day or month comes first is unclear: write 2024-09-01." if unclear else ""
        raise ArgumentError("time", f"in {table.columns.time!r} {said}: {examples_of(times[rows])}.{which}")
    return True


def _split(known: Objects, dates: bool, classes: Sequence[Any]) -> _Split:
    """Split after a third of the answers, and after enough of every class that scores are for."""
    if not len(known):
        raise ArgumentError("truth", "no answer has a score, a true label and a time.")
    period: Calendar | None = None
    if dates:
        period = "month" if len(cut_periods(known.times, "month")) >= _FEWEST_MONTHS else "day"
    periods = cut_periods(known.times, period)
    if len(periods) == 1:
        raise ArgumentError("time", f"all answers are from {periods.labels[0]}: later ones are needed, too.")
    codes = class_codes(np.asarray(known.y), classes)  # -1 for a class that no score is for
    counts = np.zeros((len(periods), len(classes) + 1), dtype=np.intp)
    np.add.at(counts, (periods.codes, codes), 1)
    before = np.cumsum(counts, axis=0)
    enough = before >= np.minimum(_FEWEST_OF_CLASS, np.maximum(1, before[-1] // 3))
    if not enough[-2, :-1].all():
        late = classes[np.flatnonzero(~enough[-2, :-1])[0]]
        raise ArgumentError(
            "truth",
            f"too few answers before {periods.labels[-1]} have the true label {late!r}: leave these rows "
            "out, or give them another label.",
        )
    first = int(np.argmax(enough[:, :-1].all(axis=1) & (before.sum(axis=1) >= len(known) / 3))) + 1
    first = min(first, len(periods) - 1)
    if n_unscored := int(before[first - 1, -1]):
        example = np.asarray(known.y)[codes < 0].tolist()[0]
        raise ArgumentError(
            "truth",
            f"no column of scores is for the true labels of {counted(n_unscored, 'answer')} before "
            f"{periods.labels[first]}, such as {example!r}: leave these rows out.",
        )
    sizes = periods.counts[first:]
    train = periods.labels[first] if dates else np.unique(np.asarray(known.times))[first].item()
    return _Split(train, period, bool(np.any((sizes > 0) & (sizes < _FEWEST))))


def _promise(known: Objects, split: _Split) -> float | None:
    """Return the strictest error that can be promised without rejecting most calibration objects."""
    rows = known.take(training_rows(known.times, split.train, split.period))
    judge = ScoreEvaluator(search=GuaranteedSearch(PROMISED[0], delta=_DELTA))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for error in PROMISED:
            try:
                if hasattr(judge, "calibration_"):
                    judge.rethreshold(GuaranteedSearch(error, delta=_DELTA))
                else:
                    judge.fit(rows.X, rows.y)
            except ValueError:  # nothing can be proven
                continue
            if judge.result_.rejection_rate <= _MOST_REJECTED:
                return error
    return None


def _sections(
    file: str, table: AnswerTable, columns: ScoreColumns, split: _Split, promised: float | None
) -> Iterator[str]:
    yield "monitor = 100"
    data = {
        "file": file,
        "label": table.columns.label,
        "time": table.columns.time,
        "id": table.columns.id,
        "time_format": one_or_list(table.formats),
        "missing_labels": [*table.missing_labels] or None,
        **dict.fromkeys(("unlabelled", "undated", "unanswered"), "drop"),
    }
    yield _toml("data", data)
    positive = columns.classes[1] if len(columns.classes) == 2 else None
    times = {"train": split.train, "period": split.period or "none", "pos_label": positive}
    yield _toml("split", times | {"allow": ["class_windows"]})
    detector = {"scores": [*columns.scores], "answer": columns.answer, "classes": [*columns.classes]}
    yield _toml("detector", detector | ({"score_of": "answer"} if columns.of_answer else {}))
    budget = {"type": "ICE", "budget": BUDGET, "window": _WINDOW if split.sparse else None}
    yield _toml("rejectors.budget", budget)
    yield _toml("rejectors.thresholds", {"type": "ICE"})
    if promised is not None:
        yield (
            '[rejectors.promise]\ntype = "ICE"\nsearch = { class = "GuaranteedSearch", '
            f"error = {promised}, delta = {_DELTA} }}"
        )


def _toml(name: str, values: dict[str, Any]) -> str:
    lines = [f"{key} = {literal(value)}" for key, value in values.items() if value is not None]
    return "\n".join([f"[{name}]", *lines])


def _notes(table: AnswerTable, causes: dict[str, int], dates: bool) -> Iterator[str]:
    """Yield how labels and dates were read, and how many answers are left out, by cause."""
    objects, times = table.objects, np.asarray(table.objects.times)
    if table.missing_labels:
        yield read_as_missing(table.missing_labels)
    if table.formats:
        yield f"times are read by time_format = {literal(one_or_list(table.formats))}"
    if causes:
        yield f"{sum(causes.values()):,} of {len(objects):,} answers are left out: {in_words(causes)}"
    if dates and (examples := examples_of(undated := times[without_time(times, dates)])):
        yield f"not dates: {examples}"
        yield from ways_to_read(undated)


def _explained(columns: ScoreColumns) -> Iterator[str]:
    """Yield how scores were understood, where the table does not say."""
    names = some([repr(name) for name in columns.scores])
    if len(columns.scores) > 1:
        yield f"{names} are read as scores of {some(list(map(repr, columns.classes)))}, in this order"
    elif columns.of_answer:
        yield f"{names} is read as how sure the detector is of its answer, whichever that is"
    else:
        yield f"{names} is read as higher for {columns.classes[1]!r}"
    if columns.answer is None:
        yield "no column holds the detector's answers: they are the class with the highest score"
    elif not isinstance(columns.answer, str):
        first, second = columns.classes
        yield (
            f"no column holds the detector's answers: they are {second!r} above {columns.answer:g}, "
            f"otherwise {first!r}"
        )
