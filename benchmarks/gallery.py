"""The gallery: runs examples/gallery, saves its pictures in docs/images, and writes docs/learn/gallery.

python benchmarks/gallery.py              # all of it, half a minute
python benchmarks/gallery.py alarm why    # the pictures of some examples, and all pages
python benchmarks/gallery.py --check      # runs all examples, writes nothing; fails if a page would change
"""

import ast
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cycler import cycler
from pictures import save

from transcendent.plots.base import COLOURS

mpl.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[1]
EXAMPLES, PAGES = ROOT / "examples/gallery", ROOT / "docs/learn/gallery"
STORIES = {
    "drift": "Three kinds of drift",
    "budget": "Thresholds or a budget",
    "by_class": "A rare class",
    "alarm": "An alarm without labels",
    "labels": "Labels every month",
    "late_labels": "Late labels, wrong labels",
    "promise": "Promises, kept and broken",
    "why": "Why an object was rejected",
}
DISPLAYS = {
    "performance": "One rejector over time",
    "comparison": "Several rejectors over time",
    "difference": "Is one better than the other?",
    "risk_coverage": "Risk and coverage",
    "staffing": "Staffing",
    "quorum": "The quorum",
    "alpha_assessment": "Alpha assessment",
    "trade_off": "Trade-off",
    "covariate_shift": "Covariate shift",
    "monitor": "A monitor and an audit",
    "evidence_by_month": "Evidence month by month",
}
TITLES = STORIES | DISPLAYS
STYLE: Any = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.prop_cycle": cycler(color=COLOURS),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9,
    "font.size": 9,
    "grid.color": "0.9",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 3.5,
}
INDEX = """# Gallery

One screen of code and one picture each. Every example runs by itself, in seconds, with the
[extra](../start.md#install) `plots`. They are in `examples/gallery`; `python benchmarks/gallery.py` draws
them with the colours of this page. The streams are invented; results on real ones are under *Evidence*.

## Stories

{stories}

## Displays

Every figure of [`transcendent.plots`](../../reference/api.md#plots).

{displays}
"""
PAGE = """# {title}

{sentence}

[![{title}](../../images/{picture}.svg)](../../images/{picture}.svg)

```python
{code}
```

{display}[All pictures](index.md){around}
"""


def picture(name: str) -> str:
    """Return the name of the picture of an example."""
    return f"gallery-{name.replace('_', '-')}"


def draw(name: str) -> Any:
    """Run an example, and return its figure."""
    plt.show = lambda *_, **__: None
    with mpl.rc_context(STYLE):
        runpy.run_path(str(EXAMPLES / f"{name}.py"))
        return plt.gcf()


def page_of(name: str) -> str:
    """Return the page of an example."""
    source = (EXAMPLES / f"{name}.py").read_text("utf-8")
    sentence = ast.get_docstring(ast.parse(source)) or ""
    code = source.split('"""\n', 2)[-1].strip().removesuffix("plt.show()").strip() + "\nplt.show()"
    drawn = re.search(r"(\w+Display)\.", code)
    reference = "[`{0}`](../../reference/api.md#transcendent.plots.{0}) · "
    return PAGE.format(
        title=TITLES[name],
        sentence=sentence,
        picture=picture(name),
        code=code,
        display=reference.format(drawn[1]) if drawn else "",
        around=neighbours(name),
    )


def neighbours(name: str) -> str:
    """Return links to the examples before and after one."""
    names = list(TITLES)
    i = names.index(name)
    before = f" · before: [{TITLES[names[i - 1]]}]({names[i - 1]}.md)" if i else ""
    after = f" · next: [{TITLES[names[i + 1]]}]({names[i + 1]}.md)" if i + 1 < len(names) else ""
    return before + after


def index() -> str:
    """Return the page with all pictures."""
    stories, displays = (
        "\n".join(
            f"- [![](../../images/{picture(name)}.svg) {title}]({name}.md)" for name, title in group.items()
        )
        for group in (STORIES, DISPLAYS)
    )
    return INDEX.format(stories=stories, displays=displays)


def pages() -> dict[Path, str]:
    """Return the text of every page."""
    return {PAGES / f"{name}.md": page_of(name) for name in TITLES} | {PAGES / "index.md": index()}


def main(names: list[str]) -> None:
    check = "--check" in names
    for name in [each for each in names if each != "--check"] or TITLES:
        figure = draw(name)
        if not check:
            print(save(figure, picture(name)).name)
        plt.close("all")
    written = {page: page.read_text("utf-8") if page.exists() else "" for page in pages()}
    others = [page for page, text in pages().items() if text != written[page]]
    if check:
        missing = {f"{name}.py" for name in TITLES} ^ {path.name for path in EXAMPLES.glob("*.py")}
        sys.exit("\n".join([*(f"{page.name} is not up to date" for page in others), *missing]) or None)
    PAGES.mkdir(exist_ok=True)
    for page in others:
        page.write_text(pages()[page], "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
