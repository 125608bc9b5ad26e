"""Tables of the page: what is undefined is a dash, and the dash says why."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from transcendent._utils.arrays import AnyArray, encode_labels
from transcendent.report.words import (
    UNDEFINED,
    counted,
    decimal,
    distinct,
    percent,
    plain,
    positive_name,
    unit_of,
)
from transcendent.temporal.result import Backtest

MOST_CLASSES = 20
MOST_ROWS = 50


@dataclass(frozen=True)
class Cell:
    """A number as it is shown, and why it is not if it is undefined."""

    text: str
    why: str = ""


@dataclass(frozen=True)
class Table:
    """Names of columns, over which there may be names of groups of columns; rows; and notes below."""

    name: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell]]]
    groups: Sequence[tuple[str, int]] = ()
    notes: Sequence[str] = field(default_factory=list)


def summary_table(result: Backtest, summary: dict[str, AnyArray]) -> Table:
    """One row per rejector; ``summary`` is the backtest's."""
    names = distinct(result.answers)[:MOST_ROWS]
    f1 = "F1" if result.positive is not None else "Macro F1"
    columns = ["Rejector", "all", "all", "kept", "all", "kept", "rejected", "Errors caught", "caught"]
    groups = [("", 1), ("Rejected of", 1), (f"{f1} of", 2), ("Error of", 3), ("", 1)]
    if positive := positive_name(result):
        columns.insert(2, f"class {plain(positive, 16)}")
        groups[1] = ("Rejected of", 2)
    columns += [f"{f1} kept", "AURC"]
    groups += [("If 15% were rejected", 2), ("", 1)]
    rows = [
        (name, _summary_cells({key: column[i] for key, column in summary.items()}, result))
        for i, name in enumerate(names)
    ]
    left_out = len(result.answers) - len(names)
    notes = [
        f"If 15% were rejected: of every {unit_of(result)}, least trusted first. "
        "AURC: mean error of the kept over all rejection rates; lower is better.",
        *_notes_on_dashes(rows),
    ]
    if left_out:
        notes.append(f"{counted(left_out, 'more rejector')} not shown.")
    caption = f"All {counted(len(result.periods), unit_of(result))} together, one row per rejector"
    return Table("summary", caption, columns, rows, groups, notes)


def class_table(result: Backtest, rejector: str) -> Table:
    """What was rejected of each true class, largest first."""
    answer, k = result.answers_of(rejector), len(result.classes)
    actual = encode_labels(result.y, result.classes, "y")
    wrong, rejected = answer.labels != result.y, ~answer.accepted
    subsets = (np.ones(len(actual), dtype=bool), rejected, wrong, wrong & rejected)
    counts = np.array([np.bincount(actual[subset], minlength=k) for subset in subsets])
    order = np.argsort(-counts[0], kind="stable")
    shown, rest = order[:MOST_CLASSES], order[MOST_CLASSES:]
    names = distinct(result.classes[shown])
    rows = [(name, _class_cells(*counts[:, c])) for name, c in zip(names, shown, strict=True)]
    notes = _notes_on_dashes(rows)
    if len(rest):
        rows.append((f"{len(rest):,} other classes", _class_cells(*counts[:, rest].sum(axis=1))))
        notes.insert(0, f"Shown are the {len(shown)} largest of {k:,} classes; the others are one row.")
    columns = ["True class", "Objects", "Rejected", "Wrong", "Errors caught", "Wrong among the kept"]
    return Table("by-class", f"What {plain(rejector)} did, by true class", columns, rows, notes=notes)


def period_table(merged: Backtest, result: Backtest, step: int, rejector: str) -> Table:
    """One row per period, or per group of periods if there are too many."""
    unit, f1 = unit_of(result), "F1" if result.positive is not None else "Macro F1"
    series = {
        (metric, subset): merged.series(rejector, metric, subset)
        for metric in ("objects", "errors", "error", "f1", "share", "share_of_errors")
        for subset in ("baseline", "kept", "rejected")
    }
    rows = [
        (_span(result, i, step), _period_cells({key: values[i] for key, values in series.items()}, merged))
        for i in range(len(merged.periods))
    ]
    notes = _notes_on_dashes(rows)
    if step > 1:
        notes.insert(0, f"The {counted(len(result.periods), unit)} are in {len(rows)} groups of {step}.")
    columns = [unit.capitalize(), "Objects", "Rejected", "Errors", "Caught", "all", "kept", "all", "kept"]
    groups = [("", 5), ("Error of", 2), (f"{f1} of", 2)]
    return Table("by-period", f"What {plain(rejector)} did, by {unit}", columns, rows, groups, notes)


def _summary_cells(row: dict[str, Any], result: Backtest) -> list[Cell]:
    cells = [
        Cell(percent(row["rejection_rate"], 1)),
        _metric(row["f1_baseline"], _no_f1(result)),
        _metric(row["f1_kept"], _no_f1(result) if row["rejection_rate"] < 1 else "nothing is kept"),
        _share(row["error_baseline"], ""),
        _share(row["error_kept"], "nothing is kept"),
        _share(row["error_rejected"], "nothing is rejected"),
        _share(row["errors_caught"], "there are no errors"),
        _share(row["caught_at_15"], "there are no errors"),
        _metric(row["f1_kept_at_15"], _no_f1(result)),
        Cell(f"{row['aurc']:.4f}"),
    ]
    if result.positive is not None:
        cells.insert(1, _share(row["positives_rejected"], "there are no objects of the class"))
    return cells


def _class_cells(objects: int, rejected: int, wrong: int, caught: int) -> list[Cell]:
    kept = objects - rejected
    return [
        Cell(f"{objects:,}"),
        _ratio(rejected, objects, "there are no objects of the class"),
        _ratio(wrong, objects, "there are no objects of the class"),
        _ratio(caught, wrong, "there are no errors"),
        _ratio(wrong - caught, kept, "nothing is kept" if objects else "there are no objects of the class"),
    ]


def _period_cells(values: dict[tuple[str, str], float], result: Backtest) -> list[Cell]:
    objects, errors = values["objects", "baseline"], values["errors", "baseline"]
    nothing = "" if objects else "there are no objects"
    nothing_kept = nothing or ("" if values["objects", "kept"] else "nothing is kept")
    return [
        Cell(f"{objects:,.0f}"),
        _share(values["share", "rejected"], nothing),
        Cell(f"{errors:,.0f}"),
        _share(values["share_of_errors", "rejected"], nothing or "there are no errors"),
        _share(values["error", "baseline"], nothing),
        _share(values["error", "kept"], nothing_kept),
        _metric(values["f1", "baseline"], nothing or _no_f1(result)),
        _metric(values["f1", "kept"], nothing_kept or _no_f1(result)),
    ]


def _span(result: Backtest, i: int, step: int) -> str:
    first, *_, last = [*result.periods[i * step : (i + 1) * step]] * 2
    return plain(first, 24) if step == 1 else f"{plain(first, 24)} to {plain(last, 24)}"


def _no_f1(result: Backtest) -> str:
    return f"class {positive_name(result)} neither occurs nor is predicted"


def _ratio(part: int, whole: int, why: str) -> Cell:
    return _share(part / whole if whole else math.nan, why)


def _share(value: float, why: str) -> Cell:
    return Cell(UNDEFINED, why) if math.isnan(value) else Cell(percent(value, 1))


def _metric(value: float, why: str) -> Cell:
    return Cell(UNDEFINED, why) if math.isnan(value) else Cell(decimal(value))


def _notes_on_dashes(rows: Sequence[tuple[str, Sequence[Cell]]]) -> list[str]:
    reasons = dict.fromkeys(cell.why for _, cells in rows for cell in cells if cell.why)
    return [f"– is undefined: {'; or '.join(reasons)}."] if reasons else []
