"""What rejection asks of people: objects to look at, hours, and the classes that pay for it."""

import numpy as np

from transcendent._utils.text import counted
from transcendent.report.findings import Findings
from transcendent.report.words import FEW_OBJECTS, percent, plain

_MONTH = 30.436875  # days


def looks(f: Findings) -> tuple[float, str]:
    """Return the number of rejected objects in a unit of time, and the unit: month, day or period."""
    if f.days is None:
        return f.overall.rejected / len(f.periods), f.unit
    if f.days < _MONTH - 3:  # shorter than any month
        return f.overall.rejected / f.days, "day"
    return f.overall.rejected * _MONTH / f.days, "month"


def workload(f: Findings) -> str:
    """Return the objects to look at and the hours that takes, on average and in the busiest period."""
    if not f.overall.rejected:
        return "There is nothing to look at."
    number, unit = looks(f)
    a_day = f" ({_number(f.overall.rejected / f.days)} a day)" if f.days is not None and unit != "day" else ""
    said = f"{_number(number)} objects a {unit} to look at{a_day}: {_hours(f, number)} at {_pace(f)}."
    when, most = f.busiest
    if most * len(f.periods) > 1.05 * f.overall.rejected:
        said += f" In the busiest {f.unit}, {plain(when, 24)}, {counted(most, 'object')}: {_hours(f, most)}."
    if unlabelled := f.manifest.get("unlabelled"):
        said += f" Not counted: {counted(unlabelled, 'object')} without a label or a date."
    return said


def workload_tile(f: Findings) -> tuple[str, str, str]:
    """Return label, value and comparison of the objects to look at."""
    number, unit = looks(f)
    return f"objects a {unit} to look at", _number(number), f"{_hours(f, number)} at {_pace(f)}"


def paid_by(f: Findings) -> str:
    """Return a sentence on classes most of which are rejected, though few objects are; empty if none."""
    first = f.rejectors[0]
    shares = np.where(f.class_sizes >= FEW_OBJECTS, first.of_classes, np.nan)
    costly = [c for c in range(f.n_classes) if shares[c] >= max(0.5, 2 * first.rejection_rate)]
    if not costly:
        return ""
    worst = max(costly, key=lambda c: shares[c])
    more = f", and of {len(costly) - 1:,} more classes half or more" if len(costly) > 1 else ""
    return (
        f"Class {plain(f.classes[worst], 24)} pays for it: {percent(shares[worst])} of its objects are "
        f"rejected{more}, though only {percent(first.rejection_rate)} of all are. For these the detector "
        "gives no answer until someone has looked."
    )


def broken_promise(f: Findings) -> str:
    """Return a sentence on a guarantee that did not hold; empty if it held, or if there is none."""
    first = f.rejectors[0]
    promised = f.in_words.get(first.name, {}).get("promised_error")
    if promised is None or not first.error_kept > promised:
        return ""
    return (
        f"The guarantee did not hold: at most {percent(promised)} of the kept answers were to be wrong, and "
        f"{percent(first.error_kept, 1)} are. It is only about objects like those of calibration."
    )


def _hours(f: Findings, number: float) -> str:
    return f"{_number(number * f.minutes / 60)} hours"


def _pace(f: Findings) -> str:
    return f"{f.minutes:g} minutes each" if f.minutes != 1 else "1 minute each"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:,.2g}"
