"""Figures as SVG inside a page: with its colours and fonts, no identifier twice, no dates or addresses."""

import io
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np

from transcendent._utils.arrays import FloatArray
from transcendent._utils.extras import extra
from transcendent.plots.base import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    SMALL,
    VERMILLION,
    Display,
)
from transcendent.plots.performance import PerformanceDisplay, RiskCoverageDisplay
from transcendent.report.words import counted, decimal, distinct, percent, plain, unit_of
from transcendent.temporal.result import Backtest

MOST_PERIODS = 160
MOST_REJECTORS = 8

_MOST_CLASSES = 4
_LONGEST_LABEL = 14
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "transcendent", "text.parse_math": False}
_FORMS = {"wide": 9.2, "narrow": 3.9}  # inches
_LEGEND_ROW = 0.15
_DENSE = 20  # markers an inch
_COLOURS = {
    BLACK: "currentColor",
    BLUE: "var(--blue)",
    VERMILLION: "var(--vermillion)",
    GREEN: "var(--green)",
    PURPLE: "var(--purple)",
    ORANGE: "var(--orange)",
    SKY: "var(--sky)",
    "#E6E6E6": "var(--grid)",
    "#CCCCCC": "var(--bar)",
}
_DROPPED = ("metadata", "style", "clipPath")


@dataclass(frozen=True)
class Figure:
    """A figure drawn for wide and for narrow screens, and what it shows in words."""

    name: str
    title: str
    wide: str
    narrow: str
    caption: str


def merge_periods(result: Backtest) -> tuple[Backtest, int]:
    """The same objects in at most `MOST_PERIODS` periods, and how many of the old make a new one."""
    step = -(-len(result.periods) // MOST_PERIODS)
    if step == 1:
        return result, step
    return replace(result, periods=result.periods[::step], period=result.period // step), step


def performance_figure(merged: Backtest, step: int, rejector: str, label: str, name: str) -> Figure:
    """F1, or without a positive class the error, over time, and what was rejected.

    ``merged`` and ``step`` are from `merge_periods`; ``label`` is what the rejector is called on the page.
    """
    alone = replace(merged, answers={rejector: merged.answers_of(rejector)})
    metric = "error" if merged.positive is None else "f1"
    few = len(merged.classes) <= _MOST_CLASSES
    display = PerformanceDisplay.from_backtest(alone, rejector, metric, intervals=few)
    display = replace(
        display,
        rejector=label,
        periods=tuple(plain(period, _LONGEST_LABEL) for period in display.periods),
        classes=np.array([plain(c, _LONGEST_LABEL) for c in display.classes], dtype=object),
    )
    wide, narrow = (_svg(display, f"{name}-{form}", width, 3.7) for form, width in _FORMS.items())
    return Figure(name, display.rejector, wide, narrow, _performance_caption(display, merged, step))


def risk_coverage_figure(result: Backtest) -> Figure:
    """Error of the kept at every coverage, of the first rejectors."""
    names = list(result.answers)
    shown = names[:MOST_REJECTORS]
    display = RiskCoverageDisplay.from_backtest(result, shown)
    caption = _risk_caption(replace(display, rejectors=tuple(distinct(shown))), len(names))
    # Matplotlib leaves labels that begin with an underscore out of legends.
    labels = [plain(name, 18) for name in distinct(shown)]
    display = replace(display, rejectors=tuple(f" {n}" if n.startswith("_") else n for n in labels))
    wide, narrow = (_svg(display, f"risk-{form}", width, 2.8) for form, width in _FORMS.items())
    return Figure("risk", "Risk and coverage", wide, narrow, caption)


def _performance_caption(display: PerformanceDisplay, merged: Backtest, step: int) -> str:
    unit = unit_of(merged)
    period = f"group of {counted(step, unit)}" if step > 1 else unit
    metric = "F1" if display.metric == "f1" else "Error rate"
    say = decimal if display.metric == "f1" else percent
    parts = [
        f"{metric} of the answers {display.rejector} keeps, of all, and of those it rejects, by {period}; "
        f"below, the share it rejects{' of all objects and of each true class' * bool(len(display.classes))}."
    ]
    periods = tuple(plain(period, 24) for period in merged.periods)
    for what, values in (("Kept", display.kept), ("All", display.baseline)):
        parts.append(f"{what}: {_course(values, periods, say, period)}.")
    rates = display.rejection_rate[~np.isnan(display.rejection_rate)]
    low, high = percent(rates.min()), percent(rates.max())
    parts.append(f"Rejected: {low if low == high else f'{low} to {high}'} of a {period}.")
    if display.interval is not None:
        parts.append("Shaded: what chance in the objects can do (95% bootstrap interval).")
    if step > 1:
        n = len(merged.periods)
        parts.append(
            f"There are too many {unit}s to draw one by one: they are in {n} groups of {step}, named after "
            "their first."
        )
    return " ".join(parts)


def _course(values: FloatArray, periods: tuple[str, ...], say: Any, unit: str) -> str:
    there = np.flatnonzero(~np.isnan(values))
    if not len(there):
        return f"undefined in every {unit}"
    text = f"{say(values[there[0]])} in {periods[there[0]]}"
    if len(there) > 1:
        low, high = (there[int(pick(values[there]))] for pick in (np.argmin, np.argmax))
        text += f", {say(values[there[-1]])} in {periods[there[-1]]}"
        text += (
            f", lowest {say(values[low])} in {periods[low]}, highest {say(values[high])} in {periods[high]}"
        )
    return text


def _risk_caption(display: RiskCoverageDisplay, n_rejectors: int) -> str:
    parts = [
        "Error rate of the kept answers if every period kept the same share, most trusted first. "
        "The lower the curve, the better the ranking; large markers are what the thresholds chose."
    ]
    if len(display.rejectors) > 1:
        best = int(np.argmin(display.aurc))
        parts.append(
            f"Lowest on average over all shares: {display.rejectors[best].strip()} "
            f"(AURC {display.aurc[best]:.4f}). Rejectors with detectors of their own also differ in these."
        )
    if n_rejectors > len(display.rejectors):
        parts.append(f"Drawn are the first {len(display.rejectors)} of {n_rejectors} rejectors.")
    return " ".join(parts)


def _svg(display: Display, name: str, width: float, height: float) -> str:
    style, figures = extra("matplotlib.style", "report"), extra("matplotlib.figure", "report")
    content = io.StringIO()
    with style.context(["default", _STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # browsers have more fonts
        figure = figures.Figure(figsize=(width, height), layout="constrained")
        display.plot(figure.add_subplot())
        for ax in display.axes_:
            ax.set_title("", loc="left")
            height += _LEGEND_ROW * _legend_over(ax, width)
            _shrink_dense_markers(ax, width)
        figure.set_figheight(height)
        figure.savefig(content, format="svg", transparent=True, metadata={"Date": None})
    return inline(content.getvalue(), name)


def _legend_over(ax: Any, width: float) -> int:
    """A legend above the axes, in as many columns as there is room for; how many lines of text it has."""
    handles, labels = ax.get_legend_handles_labels()
    lines = [label.split("\n") for label in labels]
    longest = max(len(line) for entry in lines for line in entry)
    columns = min(max(1, int(13 * width) // (longest + 7)), 4)
    ax.legend(
        handles,
        labels,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.2,
        columnspacing=1.4,
        fontsize=SMALL,
        frameon=False,
        ncols=columns,
    )
    return -(-len(lines) // columns) * max(map(len, lines))


def _shrink_dense_markers(ax: Any, width: float) -> None:
    for line in ax.get_lines():
        if line.get_markevery() is None and len(line.get_xdata()) > _DENSE * width:
            line.set_markersize(0.55 * line.get_markersize())


def inline(svg: str, name: str) -> str:
    """Matplotlib's SVG as an element of a page: its identifiers begin with ``name``, its colours are CSS."""
    root = ElementTree.fromstring(svg)
    used = {value for element in root.iter() for value in _references(element)}
    element = _rewritten(root, name, used)
    element.attrib = {"viewBox": root.attrib["viewBox"]}
    return ElementTree.tostring(element, encoding="unicode")


def _references(element: Element) -> Iterator[str]:
    for key, value in element.attrib.items():
        if key.endswith("href"):
            yield value.removeprefix("#")


def _rewritten(element: Element, name: str, used: set[str]) -> Element:
    new = Element(_local(element.tag), dict(_attributes(element, name, used)))
    new.text = element.text if new.tag == "text" or new.tag == "tspan" else None
    children = [_rewritten(child, name, used) for child in element if _local(child.tag) not in _DROPPED]
    new.extend(child for child in children if len(child) or child.tag not in ("g", "defs"))
    styles = {child.get("style", "") for child in new}
    if new.tag == "g" and len(styles) == 1 and all(child.tag == "use" for child in new):
        new.attrib |= {"style": styles.pop()}
        for child in new:
            child.attrib.pop("style", None)
    return new


def _attributes(element: Element, name: str, used: set[str]) -> Iterator[tuple[str, str]]:
    for key, value in element.attrib.items():
        if key == "id" and value in used:
            yield key, f"{name}-{value}"
        elif key.endswith("href"):
            yield "href", f"#{name}-{value.removeprefix('#')}"
        elif key == "style":
            yield key, _page_style(value)
        elif key in ("d", "x", "y", "transform", "points") and not value.startswith("rotate(-0 "):
            yield key, " ".join(re.sub(r"-?\d+\.\d+", lambda n: f"{float(n[0]):.2f}", value).split())


def _page_style(style: str) -> str:
    """With colours of the page and without fonts."""
    kept = [part for part in style.split("; ") if not part.startswith("font-family")]
    return re.sub(r"#[0-9a-f]{6}", lambda c: _COLOURS.get(c[0].upper(), c[0]), "; ".join(kept))


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]
