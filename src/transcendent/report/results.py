"""Figures of the page in rows and columns. An undefined figure is a dash with its reason."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transcendent._utils.arrays import FloatArray
from transcendent._utils.listing import figure
from transcendent._utils.text import counted
from transcendent.report.findings import Difference, ErrorCounts, Findings, PeriodFigures, RateFigures
from transcendent.report.words import (
    FEW_OBJECTS,
    UNDEFINED,
    distinct,
    new_classes,
    percent,
    plain,
    points,
    positive_first,
    positive_name,
    ratio,
    rejector_names,
)

_MAX_ROWS = 50


@dataclass(frozen=True)
class Cell:
    """A number as text with half of its interval, or a dash and why the number is undefined."""

    text: str
    why: str = ""
    half: str = ""


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
    f1, classes = _f1(f), _class_columns(f)
    columns = ["Rejector", "all", *classes, "all", "kept", "all", "kept", "rejected", "Errors caught"]
    columns += ["caught", f"{f1} kept", *classes[:1], "AURC"]
    groups = [("", 1), ("Rejected of", 1 + len(classes)), (f"{f1} of", 2), ("Error of", 3), ("", 1)]
    groups += [("If 15% were rejected", 3), ("", 1)]
    named = list(enumerate(rejector_names(f)))
    rows = [(name, _summary_cells(i, f)) for i, name in named[:_MAX_ROWS]]
    notes = [
        f"If 15% were rejected: the least trusted of every {f.unit}, and of {classes[0]} the share that is. "
        "AURC: mean error of the kept over all rejection rates; lower is better.",
        *_notes_on_dashes(rows),
    ]
    if f.halves:
        notes.insert(0, f"Means over {len(f.seeds)} seeds ± half of their 95% interval (Student's t).")
    if len(named) > _MAX_ROWS:
        notes.append(f"{counted(len(named) - _MAX_ROWS, 'more rejector')} not shown.")
    caption = f"All {counted(len(f.periods), f.unit)} together, one row per rejector"
    return Results("summary", caption, columns, rows, groups, notes)


def difference_results(f: Findings) -> Results:
    """Return what the first rejector gains over others, with intervals."""
    names = dict(zip((r.name for r in f.rejectors), rejector_names(f), strict=True))
    f1 = _f1(f)
    shown = {"errors_caught": "Errors caught", "f1_kept": f"{f1} kept", "error_kept": "Error of the kept"}
    if f.positive:
        shown["positives_rejected"] = f"Rejected of class {plain(positive_name(f), 16)}"
    rows = [
        (names[name], [_difference_cell(metric, found[metric]) for metric in shown])
        for name, found in f.differences.items()
    ]
    of_seeds = " and seeds" if f.halves else ""
    notes = [
        "Shares in percentage points. In brackets, 95% intervals of a paired bootstrap that draws blocks of "
        f"3 {f.unit}s{of_seeds}, the same for both: one that contains 0 decides nothing. They are about "
        f"{f.unit}s like these.",
        *_notes_on_dashes(rows),
    ]
    caption = (
        f"{plain(f.rejectors[0].name)} minus each other rejector, if both rejected 15% of every {f.unit}"
    )
    return Results("differences", caption, ["Minus", *shown.values()], rows, notes=notes)


def _difference_cell(metric: str, values: Difference) -> Cell:
    if any(map(math.isnan, values)):
        return Cell(UNDEFINED, "it is undefined for one of the two")
    scale, digits = (1, 3) if metric == "f1_kept" else (100, 2 if metric == "error_kept" else 1)
    middle, low, high = (f"{scale * value:+.{digits}f}".replace("-", "−") for value in values)
    return Cell(middle, half=f"({low} to {high})")


def staffing_results(f: Findings) -> Results:
    """Return what the first rejector would catch if people looked at more or fewer objects."""
    unit, objects = f.staffing.unit, f.staffing.objects
    first = f.rejectors[0]
    own = RateFigures(first.rejection_rate, first.errors_caught, first.error_kept, first.of_classes)
    rows = [(f"as it rejects: {percent(own.rejection_rate, 1)}", _staffing_cells(own, f))]
    rows += [(f"{at.rejection_rate:.0%}", _staffing_cells(at, f)) for at in f.at_rates]
    columns = [f"Rejected of every {f.unit}", f"Looks a {unit}", f"Hours a {unit}"]
    columns += ["Errors caught", "Looks for one error"]
    columns += ["Wrong among the kept", *(f"Rejected of {name}" for name in _class_columns(f))]
    caption = (
        f"Looks at {objects:,.0f} objects a {unit}, least trusted by {plain(f.rejectors[0].name)} first, "
        f"{f.minutes:g} minutes each"
    )
    return Results("by-looks", caption, columns, rows, notes=_notes_on_dashes(rows))


def _staffing_cells(at: RateFigures, f: Findings) -> list[Cell]:
    looks, errors = at.rejection_rate * f.staffing.objects, f.overall.errors / f.overall.objects
    hours = looks * f.minutes / 60
    found = at.errors_caught * errors / at.rejection_rate if at.rejection_rate else math.nan
    return [
        Cell(f"{looks:,.1f}" if looks < 100 else f"{looks:,.0f}"),
        Cell(f"{hours:,.1f}" if hours >= 1 else f"{hours:.2g}"),
        _share(at.errors_caught, "there are no errors"),
        Cell(f"{1 / found:,.1f}") if found > 0 else Cell(UNDEFINED, "no error is found"),
        _share(at.error_kept, "nothing is kept"),
        *_of_classes(f, at.of_classes),
    ]


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
    rows = [
        (name, _alarm_cells(f, f.monitors.get(rejector.name))) for name, rejector in list(names)[:_MAX_ROWS]
    ]
    threshold = next(iter(f.monitors.values()))[0].threshold
    notes = [
        "While objects are exchangeable with calibration objects, the probability that an alarm of a kind is "
        f"ever raised is at most 1 in {threshold:,.0f}. If the rejector learns, that holds until it "
        "learns again. No alarm does not mean no drift, and drift does not mean worse answers.",
        "Within a budget, the rejections counted are those that the evaluator's own thresholds would make.",
        *_notes_on_dashes(rows),
    ]
    columns = ["Rejector", "Unlike calibration", "More rejected by thresholds than calibration explains"]
    return Results("alarms", "First alarms, raised without labels", columns, rows, notes=notes)


def _alarm_cells(f: Findings, watched: Sequence[Any] | None) -> list[Cell]:
    if watched is None:
        return [Cell(UNDEFINED, "rejectors of this kind are not monitored")] * 2
    by_kind = ([one.drift for one in watched], [one.more_rejected for one in watched])
    if len(watched) == 1:
        return [Cell(_first(alarms)) for (alarms,) in by_kind]
    return [Cell(_first_of_seeds(f, alarms)) for alarms in by_kind]


def _first_of_seeds(f: Findings, alarms: Sequence[Sequence[str]]) -> str:
    """Return when the first alarms of all seeds were raised, and of how many."""
    firsts = sorted((own[0] for own in alarms if own), key=f.periods.index)
    if not firsts:
        return "no alarm"
    span = " to ".join(plain(period, 24) for period in dict.fromkeys((firsts[0], firsts[-1])))
    return f"{span}, with {len(firsts)} of {len(alarms)} seeds"


def _first(alarms: Sequence[str]) -> str:
    if not alarms:
        return "no alarm"
    again = f", and {counted(len(alarms) - 1, 'time')} more" if len(alarms) > 1 else ""
    return f"{plain(alarms[0], 24)}{again}"


def _summary_cells(i: int, f: Findings) -> list[Cell]:
    r, half, no_f1 = f.rejectors[i], f.halves[i] if f.halves else None, _no_f1(f)

    def share(key: str, why: str) -> Cell:
        return _share(getattr(r, key), why, getattr(half, key, None))

    def metric(key: str, why: str) -> Cell:
        return _metric(getattr(r, key), why, getattr(half, key, None))

    return [
        share("rejection_rate", ""),
        *_of_classes(f, r.of_classes, getattr(half, "of_classes", None)),
        metric("f1_baseline", no_f1),
        metric("f1_kept", no_f1 if r.rejection_rate < 1 else "nothing is kept"),
        share("error_baseline", ""),
        share("error_kept", "nothing is kept"),
        share("error_rejected", "nothing is rejected"),
        share("errors_caught", "there are no errors"),
        share("caught_at_15", "there are no errors"),
        metric("f1_kept_at_15", no_f1),
        _of_classes(f, r.of_classes_at_15, getattr(half, "of_classes_at_15", None))[0],
        Cell(f"{r.aurc:.4f}", half=f"± {half.aurc:.4f}" if half else ""),
    ]


def _class_columns(f: Findings) -> list[str]:
    """Return the names of the classes whose rejections stand beside those of all objects."""
    if f.n_classes <= 2:
        return [f"class {plain(f.classes[c], 16)}" for c in positive_first(f)]
    return [*(f"class {plain(name, 16)}" for name in f.positive), "the worst class"]


def _of_classes(f: Findings, shares: FloatArray, halves: FloatArray | None = None) -> list[Cell]:
    """Return the cells of `_class_columns`."""
    order = positive_first(f)
    shown = order if f.n_classes <= 2 else order[: len(f.positive)]
    cells = [
        _share(shares[c], "there are no objects of the class", None if halves is None else halves[c])
        for c in shown
    ]
    if f.n_classes > 2:
        cells.append(_share(np.nanmax(np.where(f.class_sizes >= FEW_OBJECTS, shares, 0.0)), ""))
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


def _share(value: float, why: str, half: float | None = None) -> Cell:
    if math.isnan(value):
        return Cell(UNDEFINED, why)
    return Cell(percent(value, 1), half="" if half is None else f"± {points(half)}")


def _metric(value: float, why: str, half: float | None = None) -> Cell:
    if math.isnan(value):
        return Cell(UNDEFINED, why)
    return Cell(figure(value, 3), half="" if half is None else f"± {figure(half, 3)}")


def _notes_on_dashes(rows: Sequence[tuple[str, Sequence[Cell]]]) -> list[str]:
    reasons = dict.fromkeys(cell.why for _, cells in rows for cell in cells if cell.why)
    return [f"– is undefined: {'; or '.join(reasons)}."] if reasons else []
