"""Gives the pictures in docs/images colours that read on light and on dark pages.

python benchmarks/pictures.py            # after a benchmark has drawn; pictures that have them stay
python benchmarks/pictures.py --check    # fails if there is a picture without them
"""

import io
import re
import sys
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).parents[1] / "docs/images"
INK = "#7b7f86"  # has a contrast of four to one with white and with a dark page alike
BLACK = r'#000000(?!; stroke-width: 2"|; stroke-width: 1\.0; )'  # but for medians and hatches inside boxes
STYLES = {
    r"fill: #ffffff": "fill: none",
    r"stroke: (#e6e6e6|#b0b0b0; stroke-opacity: 0\.3)": f"stroke: {INK}; stroke-opacity: 0.25",
    r"(fill|stroke): #cccccc": rf"\1: {INK}; \1-opacity: 0.35",
    rf"{BLACK}|#555555|#888888|#999999": INK,
    r"<svg (?!fill)": f'<svg fill="{INK}" ',
}


def for_any_page(svg: str) -> str:
    """Without a background; text, axes, grids and whatever else is black or grey in one tone."""
    for old, new in STYLES.items():
        svg = re.sub(old, new, svg)
    return svg


def save(figure: Any, name: str) -> Path:
    """Write a figure of matplotlib to the folder, in those colours; the same figure gives the same file."""
    import matplotlib as mpl

    drawn = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "transcendent"}):
        figure.savefig(drawn, format="svg", metadata={"Date": None}, bbox_inches="tight", dpi=200)
    path = IMAGES / f"{name}.svg"
    path.write_text(for_any_page(drawn.getvalue()), "utf-8")
    return path


if __name__ == "__main__":
    drawn = {picture: picture.read_text("utf-8") for picture in sorted(IMAGES.glob("*.svg"))}
    others = [picture for picture, svg in drawn.items() if svg != for_any_page(svg)]
    if "--check" in sys.argv:
        sys.exit("\n".join(f"{picture.name} has other colours" for picture in others) or None)
    for picture in others:
        picture.write_text(for_any_page(drawn[picture]), "utf-8")
