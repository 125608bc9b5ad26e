"""Figures of the page in rows and columns. An undefined figure is a dash with its reason."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transcendent._utils.listing import figure
from transcendent._utils.text import counted
from transcendent.report.findings import ErrorCounts, Findings, PeriodFigures, RejectorFigures
from transcendent.report.words import (
    UNDEFINED,
    distinct,
    new_classes,
    percent,
    plain,
    positive_name,
    ratio,
    rejector_names,
)

_MAX_ROWS = 50


@dataclass(frozen=True)
class Cell:
    """A number as text, or a dash and why the number is undefined."""

    text: str
    why: str = ""


@dataclass(frozen=True)
class Results:
    """Rows of cells, headings of columns and of groups of columns, and notes below.

    ``new`` has the names of rows about classes that no training row had.
    """

    name: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell]]]
    groups: Sequence[tuple[str, int]] = ()
    notes: Sequence[str] = ()
    new: frozenset[str] = frozenset()


def summary_results(f: Findings) -> Results:
    """Return figures of all periods together, one row per rejector."""
    f1 = _f1(f)
    columns = ["Rejector", "all", "all", "kept", "all", "kept", "rejected", "Errors caught", "caught"]
    groups = [("", 1), ("Rejected of", 1), (f"{f1} of", 2), ("Error of", 3), ("", 1)]
    if f.positive:
        columns.insert(2, f"class {plain(positive_name(f), 16)}")
        groups[1] = ("Rejected of", 2)
    columns += [f"{f1} kept", "AURC"]
    groups += [("If 15% were rejected", 2), ("", 1)]
    named = list(zip(rejector_names(f), f.rejectors, strict=True))
    rows = [(name, _summary_cells(rejector, f)) for name, rejector in named[:_MAX_ROWS]]
    notes = [
        f"If 15% were rejected: the least trusted of every {f.unit}. "
        "AURC: mean error of the kept over all rejection rates; lower is better.",
        *_notes_on_dashes(rows),
    ]
    if len(named) > _MAX_ROWS:
        notes.append(f"{counted(len(named) - _MAX_ROWS, 'more rejector')} not shown.")
    caption = f"All {counted(len(f.periods), f.unit)} together, one row per rejector"
    return Results("summary", caption, columns, rows, groups, notes)


def class_results(f: Findings) -> Results:
    """Return figures of each true class, largest first."""
    names = distinct(name for name, _ in f.by_class)
    rows = [(name, _class_cells(counts)) for name, (_, counts) in zip(names, f.by_class, strict=True)]
    notes = _notes_on_dashes(rows)
    if f.other_classes is not None:
        rows.append((f"{f.n_classes - len(rows):,} other classes", _class_cells(f.other_classes)))
        notes.insert(
            0, f"The {len(names)} largest of {f.n_classes:,} classes are shown; the others share a row."
        )
    if f.new_classes:
        notes.append(f"new: {new_classes(f)}.")
    columns = ["True class", "Objects", "Rejected", "Wrong", "Errors caught", "Wrong among the kept"]
    caption = f"Results of {plain(f.rejectors[0].name)} by true class"
    new = (name for name, (label, _) in zip(names, f.by_class, strict=True) if label in f.new_classes)
    return Results("by-class", caption, columns, rows, notes=notes, new=frozenset(new))


def period_results(f: Findings) -> Results:
    """Return one row per period, or per group of periods if there are too many."""
    rows = [(_span(f, i), _period_cells(period, f)) for i, period in enumerate(f.by_period)]
    notes = _notes_on_dashes(rows)
    if f.step > 1:
        notes.insert(0, f"The {counted(len(f.periods), f.unit)} are shown in {len(rows)} groups of {f.step}.")
    columns = [f.unit.capitalize(), "Objects", "Rejected", "Errors", "Caught", "all", "kept", "all", "kept"]
    groups = [("", 5), ("Error of", 2), (f"{_f1(f)} of", 2)]
    caption = f"Results of {plain(f.rejectors[0].name)} by {f.unit}"
    return Results("by-period", caption, columns, rows, groups, notes)


def alarm_results(f: Findings) -> Results:
    """Return the first alarms of the monitors, one row per rejector."""
    names = zip(rejector_names(f), f.rejectors, strict=True)
    rows = [(name, _alarm_cells(f.monitors.get(rejector.name))) for name, rejector in list(names)[:_MAX_ROWS]]
    threshold = next(iter(f.monitors.values())).threshold
    notes = [
        "While objects are exchangeable with calibration objects, the probability that an alarm of a kind is "
        f"ever raised is at most 1 in {threshold:,.0f}. If the rejector learns, that holds until it "
        "learns again. No alarm does not mean no drift, and drift does not mean worse answers.",
        *_notes_on_dashes(rows),
    ]
    columns = ["Rejector", "Unlike calibration", "More rejected than calibration explains"]
    return Results("alarms", "First alarms, raised without labels", columns, rows, notes=notes)


def _alarm_cells(watched: Any) -> list[Cell]:
    if watched is None:
        return [Cell(UNDEFINED, "rejectors of this kind are not monitored")] * 2
    return [Cell(_first(watched.drift)), Cell(_first(watched.more_rejected))]


def _first(alarms: Sequence[str]) -> str:
    if not alarms:
        return "no alarm"
    again = f", and {counted(len(alarms) - 1, 'time')} more" if len(alarms) > 1 else ""
    return f"{plain(alarms[0], 24)}{again}"


def _summary_cells(r: RejectorFigures, f: Findings) -> list[Cell]:
    cells = [
        Cell(percent(r.rejection_rate, 1)),
        _metric(r.f1_baseline, _no_f1(f)),
        _metric(r.f1_kept, _no_f1(f) if r.rejection_rate < 1 else "nothing is kept"),
        _share(r.error_baseline, ""),
        _share(r.error_kept, "nothing is kept"),
        _share(r.error_rejected, "nothing is rejected"),
        _share(r.errors_caught, "there are no errors"),
        _share(r.caught_at_15, "there are no errors"),
        _metric(r.f1_kept_at_15, _no_f1(f)),
        Cell(f"{r.aurc:.4f}"),
    ]
    if f.positive:
        cells.insert(1, _share(r.positives_rejected, "there are no objects of the class"))
    return cells


def _class_cells(c: ErrorCounts) -> list[Cell]:
    kept, nothing = c.objects - c.rejected, "there are no objects of the class"
    return [
        Cell(f"{c.objects:,}"),
        _share(ratio(c.rejected, c.objects), nothing),
        _share(ratio(c.errors, c.objects), nothing),
        _share(ratio(c.caught, c.errors), "there are no errors"),
        _share(ratio(c.errors - c.caught, kept), "nothing is kept" if c.objects else nothing),
    ]


def _period_cells(period: PeriodFigures, f: Findings) -> list[Cell]:
    c = period.counts
    kept, nothing = c.objects - c.rejected, "" if c.objects else "there are no objects"
    nothing_kept = nothing or ("" if kept else "nothing is kept")
    return [
        Cell(f"{c.objects:,}"),
        _share(ratio(c.rejected, c.objects), nothing),
        Cell(f"{c.errors:,}"),
        _share(ratio(c.caught, c.errors), nothing or "there are no errors"),
        _share(ratio(c.errors, c.objects), nothing),
        _share(ratio(c.errors - c.caught, kept), nothing_kept),
        _metric(period.f1_all, nothing or _no_f1(f)),
        _metric(period.f1_kept, nothing_kept or _no_f1(f)),
    ]


def _span(f: Findings, i: int) -> str:
    first, *_, last = [*f.periods[i * f.step : (i + 1) * f.step]] * 2
    return plain(first, 24) if f.step == 1 else f"{plain(first, 24)} to {plain(last, 24)}"


def _f1(f: Findings) -> str:
    return "F1" if f.positive else "Macro F1"


def _no_f1(f: Findings) -> str:
    return f"class {positive_name(f)} neither occurs nor is predicted"


def _share(value: float, why: str) -> Cell:
    return Cell(UNDEFINED, why) if math.isnan(value) else Cell(percent(value, 1))


def _metric(value: float, why: str) -> Cell:
    return Cell(UNDEFINED, why) if math.isnan(value) else Cell(figure(value, 3))


def _notes_on_dashes(rows: Sequence[tuple[str, Sequence[Cell]]]) -> list[str]:
    reasons = dict.fromkeys(cell.why for _, cells in rows for cell in cells if cell.why)
    return [f"– is undefined: {'; or '.join(reasons)}."] if reasons else []
