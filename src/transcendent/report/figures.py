"""Figures of the page, and their captions."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from transcendent._utils.extras import extra
from transcendent.plots.base import Display
from transcendent.report.findings import Course, Findings, OverTime
from transcendent.report.svg import as_svg
from transcendent.report.words import counted, decimal, percent, plain, rejector_names

_LONGEST_LABEL = 14
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "transcendent", "text.parse_math": False}
_FORMS = {"wide": 9.2, "narrow": 3.9}  # inches


@dataclass(frozen=True)
class Figure:
    """A figure drawn for wide and for narrow screens, and what it shows in words."""

    name: str
    title: str
    caption: str
    wide: str
    narrow: str


def draw_figures(f: Findings) -> dict[str, list[Figure]]:
    """Rejectors over time, the error of the kept at every coverage, and evidence of drift if there is any."""
    planned = {"over_time": _over_time(f), "risk": [_risk(f)], "evidence": _evidence(f)}
    return {
        section: [
            Figure(name, title, caption, *_drawn(display, name, height))
            for name, title, caption, display, height in some
        ]
        for section, some in planned.items()
    }


def _over_time(f: Findings) -> Iterator[tuple[str, str, str, Display, float]]:
    for i, (over_time, name) in enumerate(zip(f.over_time, rejector_names(f), strict=False)):
        display = replace(
            over_time.display,
            rejector=name,
            periods=tuple(plain(period, _LONGEST_LABEL) for period in over_time.display.periods),
            classes=np.array([plain(c, _LONGEST_LABEL) for c in over_time.display.classes], dtype=object),
        )
        yield f"over-time-{i}", name, _over_time_caption(f, over_time, name), display, 3.7


def _risk(f: Findings) -> tuple[str, str, str, Display, float]:
    # Matplotlib leaves labels that begin with an underscore out of legends.
    labels = [plain(name, 18) for name in rejector_names(f)[: len(f.risk.rejectors)]]
    display = replace(f.risk, rejectors=tuple(f" {n}" if n.startswith("_") else n for n in labels))
    return "risk", "Risk and coverage", _risk_caption(f), display, 2.8


def _evidence(f: Findings) -> Iterator[tuple[str, str, str, Display, float]]:
    if f.evidence is None:
        return
    names = dict(zip((r.name for r in f.rejectors), rejector_names(f), strict=True))
    display = replace(
        f.evidence,
        rejectors=tuple(plain(names[name], 18) for name in f.evidence.rejectors),
        periods=tuple(plain(period, _LONGEST_LABEL) for period in f.evidence.periods),
    )
    caption = (
        f"Evidence that objects are not like those of calibration, after each {f.unit}: what one unit of "
        "capital has become by betting against it. What is far above the alarm is drawn at the top."
    )
    yield "evidence", "Evidence of drift", caption, display, 2.8


def _over_time_caption(f: Findings, over_time: OverTime, name: str) -> str:
    display = over_time.display
    period = f"group of {counted(f.step, f.unit)}" if f.step > 1 else f.unit
    metric = "F1" if display.metric == "f1" else "Error rate"
    of_each = " of all objects and of each true class" if len(display.classes) else ""
    parts = [
        f"{metric} of the answers {name} keeps, of all, and of those it rejects, by {period}; "
        f"below, the share it rejects{of_each}.",
        f"Kept: {_course(over_time.kept, metric, period)}.",
        f"All: {_course(over_time.all, metric, period)}.",
    ]
    low, high = percent(over_time.least_rejected), percent(over_time.most_rejected)
    parts.append(f"Rejected: {low if low == high else f'{low} to {high}'} of a {period}.")
    if display.interval is not None:
        parts.append("Shaded: what chance in the objects can do (95% bootstrap interval).")
    if f.step > 1:
        parts.append(
            f"There are too many {f.unit}s to draw one by one: they are in {len(f.by_period)} groups of "
            f"{f.step}, named after their first."
        )
    return " ".join(parts)


def _course(course: Course | None, metric: str, period: str) -> str:
    if course is None:
        return f"undefined in every {period}"
    say = decimal if metric == "F1" else percent
    first, last, lowest, highest = (
        f"{say(value)} in {plain(at, 24)}"
        for value, at in (course.first, course.last, course.lowest, course.highest)
    )
    return first if course.first == course.last else f"{first}, {last}, lowest {lowest}, highest {highest}"


def _risk_caption(f: Findings) -> str:
    parts = [
        "Error rate of the kept answers if every period kept the same share, most trusted first. "
        "The lower the curve, the better the ranking; large markers are what the thresholds chose."
    ]
    drawn = len(f.risk.rejectors)
    if drawn > 1:
        best = int(np.argmin(f.risk.aurc))
        parts.append(
            f"Lowest on average over all shares: {rejector_names(f)[best]} "
            f"(AURC {f.risk.aurc[best]:.4f}). Rejectors with detectors of their own also differ in these."
        )
    if len(f.rejectors) > drawn:
        parts.append(f"Drawn are the first {drawn} of {len(f.rejectors)} rejectors.")
    return " ".join(parts)


def _drawn(display: Display, name: str, height: float) -> Iterator[str]:
    """SVG for each width of the page."""
    style, figures = extra("matplotlib.style", "report"), extra("matplotlib.figure", "report")
    for form, width in _FORMS.items():
        with style.context(["default", _STYLE]), warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "Glyph .* missing from", UserWarning
            )  # browsers have more fonts
            figure = figures.Figure(figsize=(width, height), layout="constrained")
            display.plot(figure.add_subplot())
            yield as_svg(figure, display.axes_, f"{name}-{form}")
