"""Sparklines: numbers by day as SVG, with the same in words for those who cannot see it."""

import math
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from itertools import groupby
from typing import NamedTuple

from markupsafe import Markup

from transcendent.gate.pages.state import Point

WIDTH, HEIGHT = 250.0, 60.0
_EDGE = 4.0  # above and below, so that lines are not cut


class Chart(NamedTuple):
    """What to draw: points, the days that the axis spans, a limit, and how a number is written."""

    points: Sequence[Point]
    last: date
    days: int
    written: Callable[[float], str]
    limit: float | None = None
    limit_in_words: str = ""
    least: float = 0.0  # the lowest value at the top of the axis, so that noise looks like noise
    marks: Sequence[date] = ()  # days of alarms

    @property
    def first(self) -> date:
        """The first day of the axis."""
        return self.last - timedelta(days=self.days - 1)


def sparkline(chart: Chart) -> Markup:
    """Return the SVG: a line through known days, a band if they have limits, the limit, and alarms."""
    shown = [each for each in chart.points if chart.first <= each.day <= chart.last]
    ends = [end for each in shown for end in (each.low, each.value, each.high) if end is not None]
    low, high = min([0.0, *ends]), max([chart.least, *ends, *_finite(chart.limit)])
    scale = (HEIGHT - 2 * _EDGE) / (high - low or 1.0)

    def across(of: date) -> float:
        return WIDTH * ((of - chart.first).days + 0.5) / chart.days

    def place(each: Point, value: float) -> str:
        return f"{across(each.day):.1f},{HEIGHT - _EDGE - scale * (value - low):.1f}"

    parts = []
    for run in _runs(shown):
        banded = [each for each in run if each.low is not None and each.high is not None]
        if len(banded) > 1:
            corners = [place(each, each.high or 0.0) for each in banded]
            corners += [place(each, each.low or 0.0) for each in reversed(banded)]
            parts.append(f'<polygon class="band" points="{" ".join(corners)}"/>')
        line = [place(each, each.value) for each in run]
        line = line if len(line) > 1 else line * 2  # a line without length is a dot
        parts.append(f'<polyline class="line" points="{" ".join(line)}"/>')
    if chart.limit is not None and math.isfinite(chart.limit):
        y = HEIGHT - _EDGE - scale * (chart.limit - low)
        parts.append(f'<line class="limit" x1="0" x2="{WIDTH:g}" y1="{y:.1f}" y2="{y:.1f}"/>')
    for each in _marked(chart):
        x = f"{across(each):.1f}"
        tick = f'<line class="alarm" x1="{x}" x2="{x}" y1="0" y2="{HEIGHT:g}">'
        parts.append(f"{tick}<title>Alarm on {day(each)}</title></line>")
    head = f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" preserveAspectRatio="none" aria-label="'
    return Markup(head) + in_words(chart) + Markup('">' + "".join(parts) + "</svg>")


def in_words(chart: Chart) -> str:
    """Return the same as a sentence."""
    shown = [each for each in chart.points if chart.first <= each.day <= chart.last]
    limit = f" {chart.limit_in_words}." if chart.limit_in_words else ""
    if marked := _marked(chart):
        limit += f" Alarm on {', '.join(map(day, marked))}."
    if not shown:
        return f"Nothing is known of the last {chart.days} days.{limit}"
    start, end = shown[0], shown[-1]
    highest = max(shown, key=lambda each: each.value)
    if start is end:
        return f"Only one day is known: {chart.written(end.value)} on {day(end.day)}.{limit}"
    return (
        f"From {chart.written(start.value)} on {day(start.day)} to {chart.written(end.value)} on "
        f"{day(end.day)}; highest {chart.written(highest.value)} on {day(highest.day)}.{limit}"
    )


def day(of: date) -> str:
    """Return a day such as 3 Nov."""
    return f"{of.day} {of:%b}"


def _marked(chart: Chart) -> list[date]:
    return [each for each in chart.marks if chart.first <= each <= chart.last]


def _finite(value: float | None) -> list[float]:
    return [] if value is None or not math.isfinite(value) else [value]


def _runs(points: Sequence[Point]) -> list[list[Point]]:
    """Return the points in runs of days without a gap."""
    runs = groupby(enumerate(points), key=lambda pair: pair[1].day.toordinal() - pair[0])
    return [[each for _, each in run] for _, run in runs]
