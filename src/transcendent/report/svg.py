"""Figures as SVG elements of the page: its colours and fonts, unique identifiers, no dates or links."""

import io
import re
from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from transcendent.plots.base import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, SMALL, VERMILLION

_LEGEND_ROW = 0.15  # inches
_DENSE = 20  # markers per inch
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


def as_svg(figure: Any, axes: Sequence[Any], name: str) -> str:
    """Return a matplotlib figure as an element of the page, made higher for legends above its axes."""
    width, height = figure.get_size_inches()
    for ax in axes:
        ax.set_title("", loc="left")
        height += _LEGEND_ROW * _legend_over(ax, width)
        _shrink_dense_markers(ax, width)
    figure.set_figheight(height)
    content = io.StringIO()
    figure.savefig(content, format="svg", transparent=True, metadata={"Date": None})
    return _inline(content.getvalue(), name)


def _legend_over(ax: Any, width: float) -> int:
    """Put a legend above the axes, in as many columns as fit, and return its height in lines."""
    handles, labels = ax.get_legend_handles_labels()
    if not labels:
        return 0
    lines = [label.split("\n") for label in labels]
    longest = max(len(line) for entry in lines for line in entry)
    columns = min(max(1, int(13 * width) // (longest + 7)), 4)
    place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2}
    ax.legend(handles, labels, **place, columnspacing=1.4, fontsize=SMALL, frameon=False, ncols=columns)
    return -(-len(lines) // columns) * max(map(len, lines))


def _shrink_dense_markers(ax: Any, width: float) -> None:
    for line in ax.get_lines():
        if line.get_markevery() is None and len(line.get_xdata()) > _DENSE * width:
            line.set_markersize(0.55 * line.get_markersize())


def _inline(svg: str, name: str) -> str:
    """Return SVG as an element of the page, with identifiers that begin with ``name``."""
    root = ElementTree.fromstring(svg)
    attributes = [item for element in root.iter() for item in element.attrib.items()]
    used = {value.removeprefix("#") for key, value in attributes if key.endswith("href")}
    element = _rewritten(root, name, used)
    element.attrib = {"viewBox": root.attrib["viewBox"]}
    return ElementTree.tostring(element, encoding="unicode")


def _rewritten(element: Element, name: str, used: set[str]) -> Element:
    new = Element(_local(element.tag), dict(_attributes(element, name, used)))
    new.text = element.text if new.tag in ("text", "tspan") else None
    children = [_rewritten(child, name, used) for child in element if _local(child.tag) not in _DROPPED]
    new.extend(child for child in children if len(child) or child.tag not in ("g", "defs"))
    # Hundreds of markers of one style make a page large, so their group has the style once.
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
    """Return a style with colours of the page and without fonts."""
    kept = [part for part in style.split("; ") if not part.startswith("font-family")]
    return re.sub(r"#[0-9a-f]{6}", lambda c: _COLOURS.get(c[0].upper(), c[0]), "; ".join(kept))


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]
