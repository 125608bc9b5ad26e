"""Figures of the page with their captions."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from transcendent._utils.arrays import FloatArray
from transcendent._utils.extras import extra
from transcendent._utils.listing import figure
from transcendent._utils.text import counted
from transcendent.plots.base import Display
from transcendent.plots.performance import PerformanceDisplay
from transcendent.report.findings import Findings
from transcendent.report.svg import as_svg
from transcendent.report.words import percent, plain, rejector_names

_MAX_LABEL = 14
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "transcendent", "text.parse_math": False}
_FORMS = {"wide": 9.2, "narrow": 3.9}  # inches


@dataclass(frozen=True)
class Figure:
    """A figure for wide and for narrow screens, with its caption."""

    name: str
    title: str
    caption: str
    wide: str
    narrow: str


def draw_figures(f: Findings) -> dict[str, list[Figure]]:
    """Draw staffing, rejectors over time, risk and coverage and, if a monitor ran, evidence of drift."""
    planned = {
        "staffing": [_staffing(f)] if f.overall.errors else [],
        "together": [_together(f)] if len(f.over_time) > 1 else [],
        "over_time": _over_time(f),
        "risk": [_risk(f)],
        "evidence": _evidence(f),
    }
    return {
        section: [
            Figure(name, title, caption, *_drawn(display, name, height))
            for name, title, caption, display, height in figures
        ]
        for section, figures in planned.items()
    }


def _over_time(f: Findings) -> Iterator[tuple[str, str, str, Display, float]]:
    for i, (display, name) in enumerate(zip(f.over_time, rejector_names(f), strict=False)):
        caption = _over_time_caption(f, display, name)
        display = replace(
            display,
            rejector=name,
            periods=tuple(plain(period, _MAX_LABEL) for period in display.periods),
            classes=np.array([plain(c, _MAX_LABEL) for c in display.classes], dtype=object),
        )
        yield f"over-time-{i}", name, caption, display, 3.7


def _legend_names(f: Findings) -> tuple[str, ...]:
    """Return the names of the rejectors that are drawn, as legends show them."""
    labels = [plain(name, 18) for name in rejector_names(f)[: len(f.risk.rejectors)]]
    # Matplotlib leaves labels that begin with an underscore out of legends.
    return tuple(f" {n}" if n.startswith("_") else n for n in labels)


def _staffing(f: Findings) -> tuple[str, str, str, Display, float]:
    display = replace(f.staffing, rejectors=_legend_names(f))
    caption = (
        f"Share of the detector's errors that people see if they look at the least trusted objects of every "
        f"{f.unit}, against the objects they look at a {f.staffing.unit}, at {f.minutes:g} minutes each. "
        "Large markers show what the rejectors themselves reject; the dotted line is a look at objects drawn "
        f"at random. {_not_drawn(f)}"
    )
    return "staffing", "Staffing", caption.strip(), display, 2.8


def _together(f: Findings) -> tuple[str, str, str, Display, float]:
    c = f.comparison
    positive = None if c.positive is None else plain(c.positive, _MAX_LABEL)
    periods = tuple(plain(period, _MAX_LABEL) for period in c.periods)
    display = replace(c, rejectors=_legend_names(f), positive=positive, periods=periods)
    metric = "F1" if c.metric == "f1" else "Error rate"
    of_positive = "" if positive is None else f" and of class {positive}"
    caption = (
        f"{metric} of the answers that each rejector keeps, beside that of all answers of the first one's "
        f"detector; below, the share of all objects{of_positive} that it rejects. {_not_drawn(f)}"
    )
    return "together", "All rejectors", caption.strip(), display, 3.7 if positive is None else 4.6


def _not_drawn(f: Findings) -> str:
    drawn = len(f.risk.rejectors)
    return f"The first {drawn} of {len(f.rejectors)} rejectors are drawn." if len(f.rejectors) > drawn else ""


def _risk(f: Findings) -> tuple[str, str, str, Display, float]:
    display = replace(f.risk, rejectors=_legend_names(f))
    return "risk", "Risk and coverage", _risk_caption(f), display, 2.8


def _evidence(f: Findings) -> Iterator[tuple[str, str, str, Display, float]]:
    if f.evidence is None:
        return
    names = dict(zip((r.name for r in f.rejectors), rejector_names(f), strict=True))
    display = replace(
        f.evidence,
        rejectors=tuple(plain(names[name], 18) for name in f.evidence.rejectors),
        periods=tuple(plain(period, _MAX_LABEL) for period in f.evidence.periods),
    )
    caption = (
        f"Evidence, after each {f.unit}, that objects are not like calibration objects; while they are, the "
        "probability that it ever reaches 100 is at most 1%. Values far above the alarm are drawn at the top."
    )
    if len(f.seeds) > 1:
        caption += " Means over seeds, of logarithms."
    yield "evidence", "Evidence of drift", caption, display, 2.8


def _over_time_caption(f: Findings, display: PerformanceDisplay, name: str) -> str:
    period = f"group of {counted(f.step, f.unit)}" if f.step > 1 else f.unit
    metric = "F1" if display.metric == "f1" else "Error rate"
    of_each = " of all objects and of each true class" if len(display.classes) else ""
    sentences = [
        f"{metric} of the answers {name} keeps, of all, and of those it rejects, by {period}; "
        f"below, the share it rejects{of_each}.",
        f"Kept: {_course(display.kept, display.periods, metric, period)}.",
        f"All: {_course(display.baseline, display.periods, metric, period)}.",
    ]
    low, high = percent(np.nanmin(display.rejection_rate)), percent(np.nanmax(display.rejection_rate))
    sentences.append(f"Rejected: {low if low == high else f'{low} to {high}'} of a {period}.")
    if display.interval is not None:
        shaded = "range over seeds" if len(f.seeds) > 1 else "95% bootstrap interval over objects"
        sentences.append(f"Shaded: {shaded}.")
    if f.step > 1:
        sentences.append(
            f"There are too many {f.unit}s to draw one by one: they are in {len(f.by_period)} groups of "
            f"{f.step}, each named after its first {f.unit}."
        )
    return " ".join(sentences)


def _course(values: FloatArray, periods: Sequence[str], metric: str, period: str) -> str:
    """Return the first, last, lowest and highest value in words, each with its period."""
    defined = np.flatnonzero(~np.isnan(values))
    if not len(defined):
        return f"undefined in every {period}"
    write = partial(figure, digits=3) if metric == "F1" else percent
    at = map(int, (defined[0], defined[-1], np.nanargmin(values), np.nanargmax(values)))
    first, last, lowest, highest = (f"{write(values[i])} in {plain(periods[i], 24)}" for i in at)
    return first if len(defined) == 1 else f"{first}, {last}, lowest {lowest}, highest {highest}"


def _risk_caption(f: Findings) -> str:
    sentences = [
        "Error rate of the kept answers if every period kept the same share, most trusted first. "
        "A lower curve is a better ranking. Large markers show what the rejectors themselves keep."
    ]
    drawn = len(f.risk.rejectors)
    if drawn > 1:
        best = int(np.argmin(f.risk.aurc))
        sentences.append(
            f"Lowest on average over all shares: {rejector_names(f)[best]} "
            f"(AURC {f.risk.aurc[best]:.4f}). Rejectors may also differ in their detectors."
        )
    return " ".join([*sentences, _not_drawn(f)]).strip()


def _drawn(display: Display, name: str, height: float) -> Iterator[str]:
    """Yield SVG for each width of the page."""
    style, figures = extra("matplotlib.style", "report"), extra("matplotlib.figure", "report")
    for form, width in _FORMS.items():
        with style.context(["default", _STYLE]), warnings.catch_warnings():
            # Browsers have fonts for characters that matplotlib has none for.
            warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
            figure = figures.Figure(figsize=(width, height), layout="constrained")
            display.plot(figure.add_subplot())
            yield as_svg(figure, display.axes_, f"{name}-{form}")
